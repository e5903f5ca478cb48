/* tail_append's twin: streams, ring rows, dtypes and lengths by hand. */
#include "convert.h"
#include "reference.h"
#include "tap.h"

#include <math.h>

#define DIM    4
#define TOKENS 16
#define SLOTS  2
#define ROWS   12

static float kv[TOKENS][2 * DIM], score[TOKENS][2 * DIM], ape[4][2 * DIM];
static float tail[4][SLOTS][ROWS][DIM]; /* ka, za, kb, zb */
static int32_t length[SLOTS], batch_id[TOKENS], position[TOKENS], cu_tokens[2], state_slot[1];

static void setup(int count, int first, int slot) {
    memset(tail, 0xa5, sizeof tail);
    length[0] = length[1] = -7;
    for (int t = 0; t < TOKENS; t++) {
        batch_id[t] = t < count ? 0 : -1;
        position[t] = t < count ? first + t : -1;
        for (int c = 0; c < 2 * DIM; c++) {
            kv[t][c] = (float)(100 * (first + t) + c);
            score[t][c] = -kv[t][c];
        }
    }
    for (int i = 0; i < 4 * 2 * DIM; i++) ape[i / 8][i % 8] = (float)(i / 8 + 1) / 4;
    cu_tokens[1] = count;
    state_slot[0] = slot;
}

static void run(const struct ref_type *type) {
    struct ref_tail_append args = {
        .batch = {TOKENS, 1, SLOTS, 0, batch_id, position, cu_tokens, state_slot},
        .dim = DIM,
        .kv = (uint8_t *)kv,
        .score = (uint8_t *)score,
        .kv_stride = sizeof kv[0],
        .score_stride = sizeof score[0],
        .ape = ape[0],
        .len = {(uint8_t *)length, 4},
    };
    struct ref_array *arrays[] = {&args.ka, &args.za, &args.kb, &args.zb};
    for (int i = 0; i < 4; i++)
        *arrays[i] = (struct ref_array){(uint8_t *)tail[i], sizeof tail[i][0]};
    ref_tail_append(type, &args);
}

/* Rows of an array whose first element is not poison. */
static unsigned rows_written(int array, int slot) {
    unsigned count = 0;
    for (int r = 0; r < ROWS; r++) count += ref_bits(tail[array][slot][r][0]) != 0xa5a5a5a5;
    return count;
}

static void overlapped(void) {
    struct ref_type type = {
        .ratio = 4, .overlap = true, .drafts = 1, .input = REF_F32, .state = REF_F32};
    is(ref_tail_ring(&type), 9, "two groups and a draft");
    setup(3, 8, 1); /* positions 8, 9, 10 in rows 8, 0, 1 */
    run(&type);
    ok(tail[0][1][8][0] == 804 && tail[0][1][1][3] == 1007, "stream a is the second half");
    ok(tail[2][1][8][0] == 800 && tail[2][1][1][3] == 1003, "stream b the first");
    ok(tail[1][1][0][1] == -905 && tail[3][1][0][1] == -901, "scores likewise");
    ok(rows_written(0, 1) == 3 && rows_written(3, 1) == 3 && rows_written(0, 0) == 0,
       "three rows of one slot");
    ok(length[1] == 3 && length[0] == -7, "three tokens are not covered by an entry yet");
    type.ape_on_write = true;
    run(&type);
    ok(tail[1][1][1][0] == -1004 + 0.75f && tail[2][1][1][0] == 1000,
       "ape is added to scores, by position modulo ratio");
}

static void plain(void) {
    struct ref_type type = {.ratio = 4, .input = REF_F32, .state = REF_F32};
    setup(11, 1, 0); /* ring 4: positions 8..11 survive */
    run(&type);
    ok(tail[0][0][0][0] == 800 && tail[0][0][3][0] == 1100, "a chunk longer than the ring");
    is(rows_written(0, 0), 4, "keeps as many rows as the ring has");
    ok(length[0] == 0 && rows_written(2, 0) == 0, "a complete group, and no stream b");
    setup(2, 0, 2);
    run(&type);
    is(rows_written(0, 0) + rows_written(0, 1), 0, "a slot out of range writes nothing");
}

static void dtypes(void) {
    struct ref_type type = {.ratio = 4, .input = REF_F32, .state = REF_F32};
    uint16_t half[DIM];
    uint32_t odd_nan = 0xff812345;
    setup(1, 0, 0);
    memcpy(&kv[0][0], &odd_nan, 4);
    memcpy(&score[0][1], &odd_nan, 4);
    run(&type);
    ok(ref_bits(tail[0][0][0][0]) == odd_nan && ref_bits(tail[1][0][0][1]) == odd_nan,
       "the same dtype keeps a NaN's bits");
    type.ape_on_write = true;
    run(&type);
    is(ref_bits(tail[1][0][0][1]), 0x7fffffff, "an addition makes the chip's NaN");
    type.state = REF_BFLOAT;
    kv[0][1] = 1 + 0x1p-8f;
    score[0][0] = 256;
    ape[0][0] = 1.5f;
    run(&type);
    memcpy(half, tail[0][0][0], sizeof half);
    ok(half[0] == 0x7fff && half[1] == 0x3f80, "bf16 tails are rounded");
    memcpy(half, tail[1][0][0], sizeof half);
    is(half[0], ref_bf16(258), "the sum once");
    type = (struct ref_type){.ratio = 4, .input = REF_BFLOAT, .state = REF_F32};
    for (int c = 0; c < DIM; c++) ((uint16_t *)kv)[c] = ref_bf16((float)(c + 1));
    run(&type);
    ok(tail[0][0][0][0] == 1 && tail[0][0][0][3] == 4, "bf16 inputs are widened");
}

int main(void) {
    tap_plan(7 + 4 + 5);
    overlapped();
    plain();
    dtypes();
    return tap_done();
}
