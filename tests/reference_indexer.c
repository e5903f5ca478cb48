/* The indexer's and rows_copy's twins. */
#include "convert.h"
#include "reference.h"
#include "tap.h"
#include "tensor.h"
#include "vector.h"

#include <math.h>

#define DIM   64
#define ROPE  16
#define HEADS 20

static struct ref_type type = {.head_dim = 512, .rope_dim = ROPE, .ratio = 4, .page_align = 32};
static uint16_t q[2][HEADS][DIM], q_out[2][HEADS][DIM];
static float weights[2][HEADS + 1], w_out[2][HEADS], rope[8][ROPE];

static void queries(void) {
    struct ref_indexer indexer = {.format = REF_FP8_INDEX, .heads = HEADS, .dim = DIM};
    int32_t position[2] = {3, -1};
    struct ref_indexer_query args = {.tokens = 2,
                                     .positions = 8,
                                     .position = position,
                                     .rope = rope[0],
                                     .q = (uint8_t *)q,
                                     .weights = (uint8_t *)weights,
                                     .q_stride = sizeof q[0],
                                     .weights_stride = sizeof weights[0],
                                     .q_out = q_out[0][0],
                                     .w_out = w_out[0]};
    for (int p = 0; p < 8; p++)
        for (int i = 0; i < ROPE; i++)
            rope[p][i] = p == 3 && i >= ROPE / 2 ? 1 : 0; /* 90 degrees */
    for (int h = 0; h < HEADS; h++) {
        weights[0][h] = (float)h;
        for (int i = 0; i < DIM; i++) q[0][h][i] = ref_bf16((float)(i % 8 + 1));
    }
    memset(q_out, 0xa5, sizeof q_out);
    ref_indexer_query(&type, &indexer, &args);
    ok(ref_bf16_value(q_out[0][2][5]) == 6 && ref_bf16_value(q_out[0][2][DIM - ROPE]) == -2 &&
           ref_bf16_value(q_out[0][2][DIM - ROPE + 1]) == 1,
       "small whole numbers survive; the last pairs are turned");
    ok(fabsf(w_out[0][7] - 7 / sqrtf(DIM * HEADS)) < 1e-7f, "weights carry both factors");
    is(q_out[1][0][0], 0xa5a5, "padding is left");
    type.hadamard = true;
    for (int i = 0; i < DIM; i++) q[0][0][i] = ref_bf16(i ? 0 : 1);
    ref_indexer_query(&type, &indexer, &args);
    ok(ref_bf16_value(q_out[0][0][0]) == 0.125f && ref_bf16_value(q_out[0][0][63]) == 0.125f,
       "the transform spreads a single one evenly");
    indexer.format = REF_FP4_INDEX;
    q[0][0][0] = ref_bf16(0);
    q[0][0][1] = ref_bf16(0.3f);
    ref_indexer_query(&type, &indexer, &args);
    float code = fabsf(ref_bf16_value(q_out[0][0][0]));
    ok(code == 0.03125f || code == 0.046875f, "fp4 leaves what e2m1 can say (%g)", code);
}

/* Score of one entry in doubles. */
static double score_of(const struct ref_type *stored, const struct ref_place *place, int page,
                       int row, const float *w) {
    uint16_t key[DIM];
    double sum = 0;
    ref_row_load(stored, place, (uint64_t)page, (uint32_t)row, key);
    for (int h = 0; h < HEADS; h++) {
        double dot = 0;
        for (int i = 0; i < DIM; i++)
            dot += (double)ref_bf16_value(q[0][h][i]) * (double)ref_bf16_value(key[i]);
        sum += (double)w[h] * fmax(dot, 0);
    }
    return sum;
}

static void scores(void) {
    static uint8_t pages[3][4096];
    float w[2][HEADS], scored[2][10];
    struct ref_indexer indexer = {
        .format = REF_FP8_INDEX, .heads = HEADS, .dim = DIM, .chip = ref_chip_of(90)};
    struct ref_type stored = type;
    int32_t batch_id[2] = {0, -1}, position[2] = {43, 43}, table[3] = {2, -1, 0};
    struct ref_indexer_scores args = {.batch = {2, 1, 0, 0, batch_id, position, NULL, NULL},
                                      .scores_stride = 10,
                                      .first = 1,
                                      .q = q[0][0],
                                      .w = w[0],
                                      .block = {table, 3, 3},
                                      .place = {.plane = {{pages[0], sizeof pages[0]}}, .rows = 4},
                                      .scores = scored[0]};
    stored.format = REF_FP8_INDEX;
    stored.head_dim = DIM;
    uint32_t state = 3;
    for (int h = 0; h < HEADS; h++) {
        w[0][h] = (float)(h % 5) - 2;
        for (int i = 0; i < DIM; i++) {
            state = state * 1664525 + 1013904223;
            q[0][h][i] = ref_bf16((float)((int32_t)state >> 24) / 64);
        }
    }
    for (int i = 0; i < 12; i++) {
        uint16_t key[DIM];
        for (int e = 0; e < DIM; e++) {
            state = state * 1664525 + 1013904223;
            key[e] = ref_bf16((float)((int32_t)state >> 24) / 64);
        }
        ref_row_store(&stored, &args.place, (uint64_t)i / 4, (uint32_t)i % 4, key);
    }
    for (int i = 0; i < 20; i++) scored[i / 10][i % 10] = 77;
    ref_indexer_scores(&type, &indexer, &args);
    double error = fmax(fabs(score_of(&stored, &args.place, 2, 1, w[0]) - (double)scored[0][0]),
                        fabs(score_of(&stored, &args.place, 0, 2, w[0]) - (double)scored[0][9]));
    ok(error < 1e-2, "entries 1 and 10 have the scores that doubles give (%.2g)", error);
    ok(scored[0][3] == -INFINITY && scored[0][6] == -INFINITY,
       "entries that are not backed score -inf");
    ok(scored[1][0] == 77, "padding is left");
    position[0] = 18; /* entries 0..3 */
    scored[0][3] = 77;
    ref_indexer_scores(&type, &indexer, &args);
    ok(scored[0][2] != 77 && scored[0][3] == 77, "only visible entries are scored");
}

static void topk(void) {
    float list[3][9] = {{1, 5, 3, 5, -INFINITY, 5, NAN, -0.0f, 0.0f}};
    int32_t position[3] = {35, 3, -1}, chosen[3][6], count[3];
    struct ref_indexer indexer = {.topk = 4};
    struct ref_indexer_topk args = {3, 9, 6, position, list[0], chosen[0], count};
    memset(chosen, 0x55, sizeof chosen);
    ref_indexer_topk(&type, &indexer, &args);
    ok(count[0] == 4 && chosen[0][0] == 1 && chosen[0][1] == 2 && chosen[0][2] == 3 &&
           chosen[0][3] == 5,
       "the four best, ascending by entry");
    ok(count[1] == 1 && chosen[1][0] == 0 && chosen[1][1] == 0x55555555, "one visible entry");
    is(count[2], 0, "padding chooses none");
    indexer.topk = 2;
    ref_indexer_topk(&type, &indexer, &args);
    ok(chosen[0][0] == 1 && chosen[0][1] == 3, "ties go to the lower entry");
    indexer.topk = 6;
    ref_indexer_topk(&type, &indexer, &args);
    ok(chosen[0][5] == 7, "-0 and 0 tie");
    indexer.topk = 100;
    ref_indexer_topk(&type, &indexer, &args);
    is(count[0], 6, "never more than there is room for");
    args.topk_stride = 9;
    int32_t all[27];
    args.topk = all;
    list[0][8] = -1;
    indexer.topk = 8;
    ref_indexer_topk(&type, &indexer, &args);
    ok(count[0] == 8 && all[6] == 7 && all[7] == 8, "NaN is below everything");
}

static void copies(void) {
    uint8_t src[4][32], dst[4][48];
    for (int i = 0; i < 128; i++) src[i / 32][i % 32] = (uint8_t)i;
    memset(dst, 0xa5, sizeof dst);
    ref_rows_copy(&(struct ref_rows_copy){16, 32, 48, 4, (int32_t[]){3, -1, 0, 1},
                                          (int32_t[]){0, 1, 3, -1}, src[0], dst[0]});
    ok(!memcmp(dst[0], src[3], 16) && !memcmp(dst[3], src[0], 16) && dst[0][16] == 0xa5,
       "pages go where their ids say");
    ok(dst[1][0] == 0xa5 && dst[2][0] == 0xa5, "an id of -1 on either side copies nothing");
}

int main(void) {
    tap_plan(5 + 4 + 7 + 2);
    queries();
    scores();
    topk();
    copies();
    return tap_done();
}
