/*
 * The indexer: queries against rotation, Hadamard matrix and nearest code in double; scores
 * against double and against a simulation of the lanes; top-k against a full stable sort.
 */
#include "convert.h"
#include "indexer.h"
#include "tap.h"

#include <math.h>

#define DIM       128
#define ROPE      64
#define HEADS     20
#define TOKENS    6
#define POSITIONS 40
#define K         4
#define PAGES     6
#define COLUMNS   5

static struct ref_type index_type = {
    .format = REF_FP8_INDEX, .head_dim = DIM, .rope_dim = ROPE, .block = 16, .ratio = 4};

static uint32_t state = 99;

static float uniform(void) {
    state = state * 1664525 + 1013904223;
    return (float)(int32_t)(state & 0xffffff00) * 0x1p-31f;
}

/* ---- indexer_query ---- */

static uint16_t q[TOKENS][HEADS][DIM], q_out[TOKENS][HEADS][DIM];
static float weights[TOKENS][HEADS + 2], w_out[TOKENS][HEADS], rope[POSITIONS][ROPE];
static int32_t position[TOKENS] = {0, 7, -1, 39, POSITIONS, 12};

static double angle_of(uint32_t p, uint32_t pair) {
    return p * pow(10000, -2.0 * pair / ROPE);
}

/* The rotated vector, rounded to bf16 as the definition says, then the matrix product. */
static void query_slow(const uint16_t *in, uint32_t p, bool hadamard, double *out) {
    double x[DIM];
    for (uint32_t i = 0; i < DIM; i++) x[i] = (double)ref_bf16_value(in[i]);
    for (uint32_t i = DIM - ROPE; i < DIM; i += 2) {
        double angle = angle_of(p, (i - (DIM - ROPE)) / 2), a = x[i], b = x[i + 1];
        x[i] = (double)ref_bf16_value(ref_bf16((float)(a * cos(angle) - b * sin(angle))));
        x[i + 1] = (double)ref_bf16_value(ref_bf16((float)(a * sin(angle) + b * cos(angle))));
    }
    for (uint32_t i = 0; i < DIM; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < DIM; k++) sum += __builtin_popcount(i & k) % 2 ? -x[k] : x[k];
        out[i] = hadamard ? sum / sqrt(DIM) : x[i];
    }
}

/* Half the distance between codes around `size` when `most` is the largest of its block. */
static double half_step(enum ref_format format, double size, double most) {
    int exponent;
    double largest = format == REF_FP4_INDEX ? 6 : 448;
    double scale = exp2(ceil(log2(most / largest) - 1e-9)), x = size / scale;
    frexp(x, &exponent);
    if (format == REF_FP4_INDEX) return scale * (exponent <= 1 ? .25 : ldexp(1, exponent - 3));
    return scale * ldexp(1, (exponent < -5 ? -5 : exponent) - 5);
}

/* How many elements are wrong; and that others really were quantised. */
static unsigned query_errors(bool hadamard) {
    unsigned wrong = 0, moved = 0;
    uint32_t block = index_type.format == REF_FP4_INDEX ? 32 : DIM;
    double want[DIM];
    for (uint32_t t = 0; t < TOKENS; t++) {
        if (t == 2 || t == 4) continue;
        for (uint32_t h = 0; h < HEADS; h++) {
            query_slow(q[t][h], (uint32_t)position[t], hadamard, want);
            for (uint32_t i = 0; i < DIM; i++) {
                double most = 0, got = (double)ref_bf16_value(q_out[t][h][i]);
                for (uint32_t k = i / block * block; k < i / block * block + block; k++)
                    if (fabs(want[k]) > most) most = fabs(want[k]);
                double slack = fabs(want[i]) * 0x1p-7; /* bf16, twice */
                moved += fabs(got - want[i]) > slack;
                wrong +=
                    fabs(got - want[i]) > half_step(index_type.format, fabs(want[i]), most) + slack;
            }
        }
    }
    return moved > TOKENS * HEADS * DIM / 4 ? wrong : 999;
}

static void run_query(void) {
    struct ref_indexer_query args = {
        .tokens = TOKENS,
        .positions = POSITIONS,
        .heads = HEADS,
        .q = (const uint8_t *)q,
        .q_stride = sizeof q[0],
        .weights = (const uint8_t *)weights,
        .weights_stride = sizeof weights[0],
        .rope = rope[0],
        .position = position,
        .q_out = q_out[0][0],
        .w_out = w_out[0],
    };
    memset(q_out, 0xab, sizeof q_out);
    memset(w_out, 0xab, sizeof w_out);
    ref_indexer_query(&index_type, &args);
}

static void query(void) {
    for (uint32_t p = 0; p < POSITIONS; p++)
        for (uint32_t i = 0; i < ROPE / 2; i++) {
            rope[p][i] = (float)cos(angle_of(p, i));
            rope[p][ROPE / 2 + i] = (float)sin(angle_of(p, i));
        }
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            weights[t][h] = uniform();
            for (uint32_t i = 0; i < DIM; i++) q[t][h][i] = ref_bf16(3 * uniform());
        }
    for (uint32_t i = 0; i < 4; i++) {
        index_type.format = i & 1 ? REF_FP4_INDEX : REF_FP8_INDEX;
        index_type.hadamard = i & 2;
        run_query();
        ok(query_errors(i & 2) == 0, "queries as %s%s keep them",
           ref_format_name(index_type.format), i & 2 ? " after the Hadamard transform" : "");
    }
    unsigned touched = 0;
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        touched += q_out[2][i / DIM][i % DIM] != 0xabab || q_out[4][i / DIM][i % DIM] != 0xabab;
    is(touched, 0, "padding and positions beyond the table are left");
    bool good = true;
    for (uint32_t h = 0; h < HEADS; h++)
        good &=
            fabs((double)w_out[5][h] * sqrt(DIM * HEADS) / (double)weights[5][h] - 1) < 1e-7 * 3;
    ok(good, "weights over the root of dim times heads");
    weights[0][0] = -NAN;
    q[0][1][100] = 0x7f80;
    run_query();
    ok(ref_bits(w_out[0][0]) == 0x7fffffff, "a NaN weight is the NaN");
    index_type.format = REF_FP8_INDEX;
    run_query();
    ok(isnan(ref_bf16_value(q_out[0][1][0])), "an infinity spreads as NaN through the transform");
}

/* ---- indexer_scores ---- */

static uint8_t keys[PAGES][K * (DIM + 4) + 64];
static const int32_t table[2][COLUMNS] = {{3, 0, -1, 5, 1}, {2, PAGES, 4, 1, 0}};
static float scores[TOKENS][24];

static struct ref_indexer_scores scores_args(uint32_t stride, uint32_t first) {
    static const int32_t batch_id[TOKENS] = {0, 1, -1, 1, 2, 0};
    static const int32_t at[TOKENS] = {79, 2, 79, 46, 30, 99};
    return (struct ref_indexer_scores){
        .core = ref_tensor_core_of("sm_90"),
        .tokens = TOKENS,
        .requests = 2,
        .heads = HEADS,
        .scores_stride = stride,
        .first = first,
        .batch_id = batch_id,
        .position = at,
        .q = q_out[0][0],
        .w = w_out[0],
        .block_table = {table[0], COLUMNS, PAGES},
        .keys = {.plane = {{keys[0], sizeof keys[0]}}, .rows = K},
        .scores = scores[0],
    };
}

static void fill_scores(void) {
    struct ref_indexer_scores args = scores_args(24, 0);
    uint16_t row[DIM];
    for (uint32_t p = 0; p < PAGES; p++)
        for (uint32_t r = 0; r < K; r++) {
            for (uint32_t i = 0; i < DIM; i++) row[i] = ref_bf16(uniform());
            ref_row_store(&index_type, &args.keys, p, r, row);
        }
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            w_out[t][h] = uniform();
            for (uint32_t i = 0; i < DIM; i++) q_out[t][h][i] = ref_bf16(2 * uniform());
        }
    for (uint32_t i = 0; i < TOKENS * 24; i++) scores[i / 24][i % 24] = 777;
}

/* The score in double, and its 32 lanes with the sums as they hold them. */
static void score_slow(uint32_t t, const uint16_t *key, double *exact, double *size, float *lanes) {
    float lane[32] = {0}, other[32];
    *exact = *size = 0;
    for (uint32_t tile = 0; tile < HEADS; tile += 16)
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t l = 0; l < 32; l++) {
                uint32_t h = tile + 8 * half + l / 4;
                if (h >= HEADS) continue;
                double dot = 0;
                for (uint32_t i = 0; i < DIM; i++)
                    dot += (double)ref_bf16_value(q_out[t][h][i]) * (double)ref_bf16_value(key[i]);
                float chip = ref_mma_dot(ref_tensor_core_of("sm_90"), q_out[t][h], key, DIM, 0);
                float part = w_out[t][h] * fmaxf(chip, 0);
                lane[l] = lane[l] + part;
                if (l % 4) continue;
                *exact += (double)w_out[t][h] * fmax(dot, 0);
                *size += fabs((double)w_out[t][h] * dot);
            }
    for (uint32_t m = 16; m >= 4; m /= 2) {
        memcpy(other, lane, sizeof other);
        for (uint32_t l = 0; l < 32; l++) lane[l] += other[l ^ m];
    }
    *lanes = lane[0];
}

static void scoring(void) {
    struct ref_indexer_scores args = scores_args(24, 0);
    uint16_t key[DIM];
    unsigned wrong = 0, other = 0, masked = 0;
    fill_scores();
    ref_indexer_scores(&index_type, &args);
    for (uint32_t t = 0; t < TOKENS; t++) {
        int32_t b = args.batch_id[t], n = b == 0 || b == 1 ? (args.position[t] + 1) / 4 : 0;
        for (int32_t j = 0; j < 24; j++) {
            float got = scores[t][j], lanes;
            double exact, size;
            if (j >= n) {
                wrong += got != 777;
                continue;
            }
            int32_t page = j / K < COLUMNS ? table[b][j / K] : -1;
            masked += page < 0 || page >= PAGES;
            if (page < 0 || page >= PAGES) {
                wrong += got != -INFINITY;
                continue;
            }
            ref_row_load(&index_type, &args.keys, (uint64_t)page, (uint32_t)j % K, key);
            score_slow(t, key, &exact, &size, &lanes);
            wrong += fabs((double)got - exact) > size * 1e-5;
            other += ref_bits(got) != ref_bits(lanes);
        }
    }
    ok(wrong == 0, "scores as in double; only visible entries are written");
    is(other, 0, "every sum in the stated order");
    is(masked, 4 + 4 + 4 + 4, "entries without a page score -infinity");

    float all[24];
    memcpy(all, scores[0], sizeof all);
    args = scores_args(7, 5);
    for (uint32_t i = 0; i < TOKENS * 24; i++) scores[i / 24][i % 24] = 777;
    ref_indexer_scores(&index_type, &args);
    same(scores[0], all + 5, 7 * sizeof *all, "a part of the entries: the same scores");
    ok(scores[0][7] == 777, "tokens that see none of them write nothing");
}

static void score_specials(void) {
    struct ref_indexer_scores args = scores_args(24, 0);
    args.tokens = 1;
    fill_scores();
    q_out[0][3][5] = 0x7fc0;
    ref_indexer_scores(&index_type, &args);
    float with_nan = scores[0][0];
    memset(q_out[0][3], 0, sizeof q_out[0][3]);
    ref_indexer_scores(&index_type, &args);
    ok(with_nan == scores[0][0], "a NaN query head counts as zero, as max drops it");
    w_out[0][3] = INFINITY;
    ref_indexer_scores(&index_type, &args);
    ok(ref_bits(scores[0][0]) == 0x7fffffff, "an infinite weight on nothing is the NaN");
}

/* ---- indexer_topk ---- */

#define MANY 3000

static float many[MANY];
static int32_t chosen[MANY];

static const float *sorted_scores;

/* Larger first, NaN last, equal ones by entry: an order without ties. */
static int before(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = sorted_scores[i], y = sorted_scores[j];
    if (isnan(x) || isnan(y)) {
        if (!isnan(x)) return -1;
        if (!isnan(y)) return 1;
    } else if (x != y) {
        return x > y ? -1 : 1;
    }
    return i < j ? -1 : 1;
}

static int ascending(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    return (i > j) - (i < j);
}

static bool topk_good(uint32_t n, uint32_t k) {
    static int32_t order[MANY];
    int32_t count = -5, position_of = (int32_t)(4 * n + 2);
    struct ref_indexer_topk args = {1, k, MANY, MANY, &position_of, many, chosen, &count};
    for (uint32_t i = 0; i < MANY; i++) chosen[i] = -9;
    ref_indexer_topk(&index_type, &args);
    uint32_t want = n < k ? n : k;
    for (uint32_t i = 0; i < n; i++) order[i] = (int32_t)i;
    sorted_scores = many;
    qsort(order, n, sizeof *order, before);
    qsort(order, want, sizeof *order, ascending);
    return count == (int32_t)want && !memcmp(order, chosen, want * sizeof *order) &&
           (want == MANY || chosen[want] == -9);
}

static void topk(void) {
    static const uint32_t sizes[] = {0, 1, 7, 8, 9, 100, 1000, 2999};
    static const uint32_t ks[] = {1, 2, 8, 40, 64, 400, 512, 2048};
    static const uint32_t specials[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0x80000000,
                                        0,          1,          0x80000001, 0x7f7fffff, 0xff7fffff};
    static const char *const kinds[] = {"distinct", "tied", "equal", "special"};
    for (uint32_t kind = 0; kind < 4; kind++) {
        unsigned wrong = 0;
        for (uint32_t i = 0; i < MANY; i++) {
            float x = uniform();
            if (kind == 0) many[i] = x;
            if (kind == 1) many[i] = floorf(x * 4);
            if (kind == 2) many[i] = 1;
            if (kind == 3) many[i] = ref_float(specials[(state >> 9) % 10]);
        }
        for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (uint32_t i = 0; i < sizeof ks / sizeof *ks; i++)
                wrong += !topk_good(sizes[s], ks[i]);
        ok(wrong == 0, "top-k of %s scores is that of a stable sort", kinds[kind]);
    }
    int32_t at[2] = {-1, 399}, count[2] = {7, 7};
    struct ref_indexer_topk args = {2, 8, 20, 8, at, many, chosen, count};
    chosen[0] = -9;
    ref_indexer_topk(&index_type, &args);
    ok(count[0] == 0 && chosen[0] == -9, "padding chooses nothing");
    ok(count[1] == 8 && chosen[15] < 20, "no entry beyond the row of scores");
    args.topk_stride = 5;
    chosen[10] = -9;
    ref_indexer_topk(&index_type, &args);
    ok(count[1] == 5 && chosen[10] == -9, "no more than there is room for");
}

int main(void) {
    tap_plan(8 + 5 + 2 + 7);
    query();
    scoring();
    score_specials();
    topk();
    return tap_done();
}
