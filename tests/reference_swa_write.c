/* swa_write's twin against hand-made cases: which tokens are written, where, and with what bits. */
#include "convert.h"
#include "reference.h"
#include "tap.h"
#include "vector.h"

#include <math.h>

#define DIM       64
#define ROPE      16
#define NOPE      (DIM - ROPE)
#define RING      8
#define SLOTS     4
#define POSITIONS 64
#define TOKENS    32
#define PAGE      (RING * DIM * 2)

static uint16_t latent[TOKENS][DIM];
static float wide[TOKENS][DIM], weight[DIM], rope[POSITIONS][ROPE];
static uint8_t rows[(SLOTS + 1) * PAGE];
static int32_t swa_pos[SLOTS + 1][RING], swa_head[SLOTS + 1]; /* one slot too many as a guard */
static int32_t batch_id[TOKENS], position[TOKENS], cu_tokens[8], state_slot[8];

static struct ref_type bf16_type(void) {
    return (struct ref_type){.format = REF_BF16,
                             .head_dim = DIM,
                             .rope_dim = ROPE,
                             .window = RING,
                             .ring = RING,
                             .input = REF_BFLOAT,
                             .norm_eps = 1e-6f};
}

/* Everything back to poison; the table turns by 90 degrees at odd positions: (a, b) -> (-b, a). */
static void clear(void) {
    memset(rows, 0xa5, sizeof rows);
    for (int s = 0; s <= SLOTS; s++) {
        swa_head[s] = -7;
        for (int r = 0; r < RING; r++) swa_pos[s][r] = -9;
    }
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < ROPE; i++) rope[p][i] = (p % 2 == 0) == (i < ROPE / 2) ? 1 : 0;
    for (int t = 0; t < TOKENS; t++) {
        batch_id[t] = position[t] = -1;
        for (int e = 0; e < DIM; e++) latent[t][e] = ref_bf16((float)(t * 64 + e));
    }
}

/* Request b takes tokens from..to-1 at positions first.. in slot `slot`. */
static void request(int b, int from, int to, int first, int slot) {
    for (int t = from; t < to; t++) {
        batch_id[t] = b;
        position[t] = first + t - from;
    }
    cu_tokens[b] = from;
    cu_tokens[b + 1] = to;
    state_slot[b] = slot;
}

static void run(const struct ref_type *type, uint32_t requests) {
    struct ref_swa_write args = {
        .batch = {TOKENS, requests, SLOTS, POSITIONS, batch_id, position, cu_tokens, state_slot},
        .latent = type->input == REF_F32 ? (uint8_t *)wide : (uint8_t *)latent,
        .latent_stride = DIM * (type->input == REF_F32 ? 4 : 2),
        .norm_weight = weight,
        .rope = rope[0],
        .window = {.plane = {{rows, PAGE}}, .rows = RING},
        .swa_pos = {(uint8_t *)swa_pos, sizeof swa_pos[0]},
        .swa_head = {(uint8_t *)swa_head, sizeof swa_head[0]},
    };
    ref_swa_write(type, &args);
}

static uint16_t element(int slot, int row, int e) {
    uint16_t bits;
    memcpy(&bits, rows + slot * PAGE + row * DIM * 2 + e * 2, 2);
    return bits;
}

static int written_rows(void) {
    int count = 0;
    for (int s = 0; s < SLOTS; s++)
        for (int r = 0; r < RING; r++) count += swa_pos[s][r] != -9;
    return count;
}

/* Bytes of rows whose position says that they were not written. */
static int strays(void) {
    int count = 0;
    for (int s = 0; s < SLOTS; s++)
        for (int r = 0; r < RING; r++)
            for (int i = 0; i < DIM * 2 && swa_pos[s][r] == -9; i++)
                count += rows[s * PAGE + r * DIM * 2 + i] != 0xa5;
    return count;
}

static void placement(void) {
    struct ref_type type = bf16_type();
    clear();
    request(0, 0, 3, 6, 2);
    request(1, 3, 4, 0, 0);
    run(&type, 2);
    ok(swa_pos[2][6] == 6 && swa_pos[2][7] == 7 && swa_pos[2][0] == 8 && swa_pos[0][0] == 0,
       "rows are positions modulo the ring");
    ok(swa_head[2] == 1 && swa_head[0] == 1 && swa_head[1] == -7 && swa_head[3] == -7,
       "the head follows the last token of each request");
    is(written_rows(), 4, "padding writes nothing");
    is(strays(), 0, "rows that hold no token keep their bytes");
    ok(element(2, 0, 5) == latent[2][5] && element(2, 0, NOPE) == latent[2][NOPE] &&
           element(2, 0, DIM - 1) == latent[2][DIM - 1],
       "at an even position the row is the latent");
    ok(element(2, 7, 5) == latent[1][5] &&
           element(2, 7, NOPE) == ref_bf16(-ref_bf16_value(latent[1][NOPE + 1])) &&
           element(2, 7, NOPE + 1) == latent[1][NOPE],
       "at an odd one the pairs of the rope part are turned");
}

static void survival(void) {
    struct ref_type type = bf16_type();
    clear();
    request(0, 1, 21, 30, 1); /* 20 tokens, positions 30..49, ring 8: 42..49 survive */
    run(&type, 1);
    bool good = true;
    for (int p = 42; p < 50; p++)
        good =
            good && swa_pos[1][p % RING] == p && element(1, p % RING, 0) == latent[1 + p - 30][0];
    ok(good, "of a chunk longer than the ring the last tokens survive");
    is(written_rows(), RING, "and no other slot is touched");
    is(swa_head[1], 50 % RING, "the head points behind the last");
    clear();
    request(0, 0, 20, POSITIONS - 19, 0); /* the last position is not in the table */
    run(&type, 1);
    is(written_rows(), RING - 1, "which survive does not depend on whether the last is written");
}

static void refusals(void) {
    struct ref_type type = bf16_type();
    clear();
    request(0, 0, 1, 0, -1);
    request(1, 1, 2, 0, SLOTS);
    request(2, 2, 4, POSITIONS - 1, 3);
    batch_id[10] = 3; /* beyond the requests */
    position[10] = 5;
    batch_id[11] = 2;
    position[11] = -1;
    run(&type, 3);
    is(written_rows(), 1, "slots and positions out of range write nothing");
    is(swa_head[SLOTS], -7, "the slot behind the last is not touched");
    is(swa_pos[3][(POSITIONS - 1) % RING], POSITIONS - 1, "the last row of the table does");
    is(swa_head[3], -7, "a last token beyond the table leaves the head");
}

static float sum(const float *x) {
    return ref_sum_squares(x, 512);
}

/* 2^24 + 1 rounds back to 2^24, so where the ones are added shows in the result. */
static void order_of_sums(void) {
    const float big = 0x1p12f, whole = 0x1p24f;
    float x[512] = {big, 1, 1, 1, 1, 1, 1, 1};
    ok(sum(x) == whole, "in a vector the elements are added in order");
    float last[512] = {1, 1, 1, 1, 1, 1, 1, big};
    ok(sum(last) == whole + 8, "the other way round they count");
    float far[512] = {big}, next[512] = {big};
    for (int i = 0; i < 8; i++) far[256 + i] = next[8 + i] = 1;
    ok(sum(far) == whole, "vector 32 belongs to the lane of vector 0");
    ok(sum(next) == whole + 8, "vector 1 to another");
    float lanes[512] = {big};
    lanes[16 * 8] = lanes[24 * 8] = 1; /* (0 + 16) + (8 + 24), not (0 + 8) + (16 + 24) */
    ok(sum(lanes) == whole, "lanes are added across 16 first");
}

static uint32_t state;

static uint32_t next_random(void) {
    return state = state * 1664525 + 1013904223;
}

static uint64_t fnv(const uint8_t *bytes, size_t count) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

/* Expected bits were computed apart from this code, in doubles rounded after every operation. */
static void norm(void) {
    struct ref_type type = bf16_type();
    float x[DIM];
    type.kv_norm = true;
    type.norm_eps = 0.25f;
    clear();
    request(0, 0, 1, 3, 0);
    state = 1;
    for (int e = 0; e < DIM; e++) latent[0][e] = (next_random() >> 16 & 0x80ff) | 0x3f00;
    for (int e = 0; e < DIM; e++) weight[e] = ref_float(0x3f000000 | next_random() >> 8);
    for (int i = 0; i < ROPE; i++)
        rope[3][i] = ref_float((i < ROPE / 2 ? 0x3f000000 : 0xbe800000) | next_random() >> 9);
    for (int e = 0; e < DIM; e++) x[e] = ref_bf16_value(latent[0][e]);
    ref_rms_norm(x, DIM, weight, 0.25f);
    ok(fnv((uint8_t *)x, sizeof x) == 0x80b33a176e3215b1, "the norm, before any rounding");
    type.round_before_rope = true;
    run(&type, 1);
    ok(fnv(rows + 3 * DIM * 2, DIM * 2) == 0x0aa70c78b5dc20f5,
       "norm, bf16, rotation: all 64 elements");
    type.round_before_rope = false;
    run(&type, 1);
    ok(fnv(rows + 3 * DIM * 2, DIM * 2) == 0x6b1afb2b75f65edf, "rotation of the unrounded norm");
    latent[0][7] = 0xff80;
    run(&type, 1);
    ok(element(0, 3, 7) == 0x7fff && (element(0, 3, 8) & 0x7fff) == 0, "an infinity makes zeros");
    latent[0][7] = 0xffc1;
    run(&type, 1);
    ok(element(0, 3, 0) == 0x7fff && element(0, 3, DIM - 1) == 0x7fff, "a NaN makes NaNs");
}

static void inputs(void) {
    struct ref_type type = bf16_type();
    clear();
    request(0, 0, 1, 2, 0);
    rope[2][0] = 3;
    latent[0][0] = 0xffc1;
    latent[0][NOPE + 2] = 0xffc1;
    latent[0][NOPE + 5] = 0x7f80;
    run(&type, 1);
    is(element(0, 2, 0), 0xffc1, "bf16 latents without a norm keep their bits");
    ok(element(0, 2, NOPE + 2) == 0x7fff && element(0, 2, NOPE + 3) == 0x7fff,
       "the rotation makes the format's NaN, of both in the pair");
    ok(element(0, 2, NOPE + 4) == 0x7fff && element(0, 2, NOPE + 5) == 0x7f80,
       "infinity times zero too");
    type.input = REF_F32;
    for (int e = 0; e < DIM; e++) wide[0][e] = 1 + 0x1p-8f; /* half way to the next bf16 */
    wide[0][1] = NAN;
    run(&type, 1);
    ok(element(0, 2, 0) == 0x3f80 && element(0, 2, 1) == 0x7fff, "f32 latents are rounded");
    is(element(0, 2, NOPE), 0x4041, "3 * (1 + 2^-8) rounds up when the product is rounded");
    type.round_before_rope = true;
    run(&type, 1);
    is(element(0, 2, NOPE), 0x4040, "and is 3 when the factor is rounded first");
}

/* The planes of another format are found at their own strides. */
static void planes(void) {
    static uint8_t codes[SLOTS][RING * NOPE + 32], rotated[SLOTS][RING * ROPE * 2 + 64];
    static float scale[SLOTS][RING + 3];
    struct ref_type type = bf16_type();
    type.format = REF_FP8_TOKEN;
    clear();
    request(0, 0, 1, 4, 3);
    struct ref_swa_write args = {
        .batch = {TOKENS, 1, SLOTS, POSITIONS, batch_id, position, cu_tokens, state_slot},
        .latent = (uint8_t *)latent,
        .latent_stride = sizeof latent[0],
        .rope = rope[0],
        .window = {.plane = {{codes[0], sizeof codes[0]},
                             {rotated[0], sizeof rotated[0]},
                             {(uint8_t *)scale[0], sizeof scale[0]}},
                   .rows = RING},
        .swa_pos = {(uint8_t *)swa_pos, sizeof swa_pos[0]},
        .swa_head = {(uint8_t *)swa_head, sizeof swa_head[0]},
    };
    ref_swa_write(&type, &args);
    ok(scale[3][4] == 47.0f / 448 && codes[3][4 * NOPE + 47] == 0x7e, "fp8_token: scale and codes");
    same(rotated[3] + 4 * ROPE * 2, &latent[0][NOPE], ROPE * 2, "and the rope plane");
}

/* Paged mode: blocks of 8 rows found through the table; pages that are not backed are skipped. */
static void paged(void) {
    struct ref_type type = bf16_type();
    int32_t table[2][3] = {{2, -1, 1}, {SLOTS, 0, -2}}, write_from[2] = {3, 0};
    struct ref_swa_write_paged args = {
        .batch = {TOKENS, 2, 0, POSITIONS, batch_id, position, cu_tokens, NULL},
        .latent = (uint8_t *)latent,
        .latent_stride = sizeof latent[0],
        .rope = rope[0],
        .write_from = write_from,
        .window_table = table[0],
        .pages = SLOTS,
        .table_stride = 3,
        .window = {.plane = {{rows, PAGE}}, .rows = RING},
    };
    type.block = RING;
    clear();
    request(0, 0, 20, 2, -1);  /* positions 2..21 in blocks 0, 1, 2 */
    request(1, 20, 31, 6, -1); /* 6..16 */
    ref_swa_write_paged(&type, &args);
    ok(element(2, 2, 0) == 0xa5a5 && element(2, 3, 0) == latent[1][0] &&
           element(2, 7, 0) == latent[5][0],
       "rows of the first block from write_from on");
    ok(element(1, 0, 0) == latent[14][0] && element(1, 5, 0) == latent[19][0] &&
           element(1, 6, 0) == 0xa5a5,
       "the block in between is not backed, the next one is");
    ok(element(0, 0, 0) == latent[22][0] && element(0, 7, 0) == latent[29][0],
       "a page beyond the pool is skipped, as is a negative one");
    int touched = 0;
    for (int page = 0; page <= SLOTS; page++)
        for (int r = 0; r < RING; r++) touched += element(page, r, 0) != 0xa5a5;
    is(touched, 5 + 6 + 8, "and nothing else is written");
    ok(written_rows() == 0 && swa_head[0] == -7, "there is neither position nor head");
}

/* A workspace gets every token's row, whether it survives in the ring or not. */
static void workspace(void) {
    static uint8_t space[8][PAGE];
    struct ref_type type = bf16_type();
    clear();
    memset(space, 0xa5, sizeof space);
    request(0, 0, 12, 4, 1);
    request(1, 13, 15, 0, SLOTS); /* no slot, but a row */
    batch_id[20] = 7;
    position[20] = 1;
    struct ref_swa_write args = {
        .batch = {TOKENS, 2, SLOTS, POSITIONS, batch_id, position, cu_tokens, state_slot},
        .latent = (uint8_t *)latent,
        .latent_stride = sizeof latent[0],
        .rope = rope[0],
        .window = {.plane = {{rows, PAGE}}, .rows = RING},
        .swa_pos = {(uint8_t *)swa_pos, sizeof swa_pos[0]},
        .swa_head = {(uint8_t *)swa_head, sizeof swa_head[0]},
        .workspace = {.plane = {{space[0], PAGE}}, .rows = RING},
    };
    cu_tokens[1] = 12;
    ref_swa_write(&type, &args);
    int wrong = 0;
    for (uint32_t number = 0; number < 8 * RING; number++) {
        /* Token t of request b is row t + (b + 1) * (window - 1). */
        bool first = number >= 7 && number < 19, second = number >= 27 && number < 29;
        uint16_t want = first ? latent[number - 7][0] : second ? latent[number - 14][0] : 0xa5a5;
        wrong += memcmp(&space[number / RING][number % RING * DIM * 2], &want, 2) != 0;
    }
    is(wrong, 0, "rows t + (b + 1) * (window - 1), and no others");
    ok(written_rows() == RING && element(1, 15 % RING, 0) == latent[11][0],
       "the ring is written as without a workspace");
}

/* Window 8, ring 8: the seven positions before each request's first token. */
static void fill_workspace(void) {
    static uint8_t space[8][PAGE];
    struct ref_type type = bf16_type();
    struct ref_workspace_fill args = {
        .batch = {TOKENS, 4, SLOTS, 0, batch_id, position, cu_tokens, state_slot},
        .window = {.plane = {{rows, PAGE}}, .rows = RING},
        .workspace = {.plane = {{space[0], PAGE}}, .rows = RING},
    };
    clear();
    memset(space, 0xa5, sizeof space);
    for (int i = 0; i < SLOTS * RING; i++) memset(rows + (size_t)i * DIM * 2, i, DIM * 2);
    request(0, 0, 3, 10, 2); /* positions 3..9 before it */
    request(1, 3, 3, 0, 0);
    request(2, 3, 4, 2, 3);     /* positions 0 and 1 */
    request(3, 4, 5, 9, SLOTS); /* no slot */
    ref_workspace_fill(&type, &args);
    int wrong = 0;
    for (int number = 0; number < 8 * RING; number++) {
        int want = 0xa5;
        if (number < 7) want = 2 * RING + (3 + number) % RING;
        if (number == 22 || number == 23) want = 3 * RING + number - 22; /* 3 + 2 * 7 + 5 */
        wrong += space[number / RING][number % RING * DIM * 2 + 5] != want;
    }
    is(wrong, 0, "workspace_fill copies what the ring holds, and nothing from before position 0");
    int32_t table[8] = {-1, 2, 0, 0, 0, 0, 0, 0};
    args.paged = true;
    args.table = (struct ref_table){table, 2, SLOTS};
    type.block = RING;
    memset(space, 0xa5, sizeof space);
    ref_workspace_fill(&type, &args);
    ok(space[0][4 * DIM * 2] == 0xa5 && space[0][5 * DIM * 2] == 2 * RING &&
           space[0][6 * DIM * 2] == 2 * RING + 1,
       "paged: blocks that are not backed are skipped");
    position[0] = INT32_MIN;
    memset(space, 0xa5, sizeof space);
    ref_workspace_fill(&type, &args);
    is(space[0][6 * DIM * 2], 0xa5, "a negative first position has nothing before it");
}

int main(void) {
    tap_plan(6 + 4 + 4 + 5 + 5 + 6 + 2 + 5 + 2 + 3);
    placement();
    survival();
    refusals();
    order_of_sums();
    norm();
    inputs();
    planes();
    paged();
    workspace();
    fill_workspace();
    return tap_done();
}
