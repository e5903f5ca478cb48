/*
 * attn and attn_combine: values worked out by hand, a plain softmax in double, a simulation of the
 * lanes for the order of additions, and properties that hold bit for bit.
 */
#include "attention.h"
#include "convert.h"
#include "fp32.h"
#include "tap.h"

#include <math.h>

#define DIM    64
#define HEADS  3
#define LIST   200
#define SPLITS 4
#define PAGES  8
#define RING   24 /* rows of a window page */
#define K      4  /* rows of a compressed page */

static const struct ref_type type = {.format = REF_BF16, .head_dim = DIM, .rope_dim = 16};

static struct {
    uint16_t window[PAGES][RING + 1][DIM]; /* a row between the pages that nothing may touch */
    uint16_t compressed[PAGES * 8][K][DIM];
    uint16_t q[HEADS][DIM];
    int32_t rows[LIST], window_count, entry_count;
    float part_o[SPLITS][HEADS][DIM], part_m[SPLITS][HEADS], part_l[SPLITS][HEADS];
    float sink[HEADS], lse[HEADS];
    uint16_t out[HEADS][DIM];
} now;

/* Equal to the last bit, zeros and NaNs included. */
static bool equal(const void *a, const void *b, size_t bytes) {
    return !memcmp(a, b, bytes);
}

static uint32_t state = 1;

static float uniform(void) {
    state = state * 1664525 + 1013904223;
    return (float)(int32_t)(state & 0xffffff00) * 0x1p-31f;
}

static struct ref_attn attn_args(uint32_t splits, uint32_t split_rows) {
    return (struct ref_attn){
        .core = ref_tensor_core_of("sm_90"),
        .tokens = 1,
        .heads = HEADS,
        .splits = splits,
        .split_rows = split_rows,
        .list_stride = LIST,
        .scale = .125f,
        .q = (const uint8_t *)now.q,
        .q_stride = sizeof now.q,
        .rows = now.rows,
        .window_count = &now.window_count,
        .entry_count = &now.entry_count,
        .window = {.plane = {{(uint8_t *)now.window, sizeof now.window[0]}}, .rows = RING},
        .compressed = {.plane = {{(uint8_t *)now.compressed, sizeof now.compressed[0]}}, .rows = K},
        .part_o = now.part_o[0][0],
        .part_m = now.part_m[0],
        .part_l = now.part_l[0],
    };
}

/* The result of the list, through `splits` splits of `split_rows`. */
static void attend(uint32_t splits, uint32_t split_rows) {
    struct ref_attn args = attn_args(splits, split_rows);
    struct ref_attn_combine combine = {
        .tokens = 1,
        .heads = HEADS,
        .splits = splits,
        .part_o = args.part_o,
        .part_m = args.part_m,
        .part_l = args.part_l,
        .sink = now.sink,
        .out = (uint8_t *)now.out,
        .out_stride = sizeof now.out,
        .lse = now.lse,
    };
    memset(now.part_o, 0xff, sizeof now.part_o);
    ref_attn(&type, &args);
    ref_attn_combine(&type, &combine);
}

/* The place of list position `at`: row `number` of the window or of the compressed place. */
static uint16_t *row_at(uint32_t at) {
    uint32_t number = (uint32_t)now.rows[at];
    return at < (uint32_t)now.window_count ? now.window[number / RING][number % RING]
                                           : now.compressed[number / K][number % K];
}

/* NaN in every row; random values in those that a list of random, distinct rows names. */
static void fill(int32_t window, int32_t entries) {
    memset(now.window, 0xff, sizeof now.window);
    memset(now.compressed, 0xff, sizeof now.compressed);
    now.window_count = window;
    now.entry_count = entries;
    for (int32_t i = 0; i < LIST; i++)
        now.rows[i] = i < window             ? i * 37 % (PAGES * RING)
                      : i < window + entries ? (i - window) * 29 % (PAGES * 8 * K)
                                             : 0x7fffffff;
    for (uint32_t i = 0; i < (uint32_t)(window + entries); i++)
        for (uint32_t d = 0; d < DIM; d++) row_at(i)[d] = ref_bf16(uniform());
    for (uint32_t i = 0; i < HEADS * DIM; i++) now.q[i / DIM][i % DIM] = ref_bf16(4 * uniform());
    for (uint32_t h = 0; h < HEADS; h++) now.sink[h] = -INFINITY;
}

static float out_value(uint32_t head, uint32_t d) {
    return ref_bf16_value(now.out[head][d]);
}

static bool all_out(float want) {
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        if (now.out[i / DIM][i % DIM] != ref_bf16(want)) return false;
    return true;
}

/* ---- by hand ---- */

static void by_hand(void) {
    fill(1, 0);
    attend(1, 64);
    bool copied = true;
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        copied &= now.out[i / DIM][i % DIM] == row_at(0)[i % DIM];
    ok(copied, "one row without a sink is the result");

    fill(20, 30);
    memset(now.q, 0, sizeof now.q);
    for (uint32_t i = 0; i < 50; i++)
        for (uint32_t d = 0; d < DIM; d++) row_at(i)[d] = ref_bf16((float)(i + 1));
    attend(1, 64);
    ok(all_out(25.5f), "equal scores: the mean of 1 .. 50");
    ok(fabsf(now.lse[0] - logf(50)) < 1e-6f, "log-sum-exp is ln 50");
    for (uint32_t h = 0; h < HEADS; h++) now.sink[h] = logf(50);
    attend(1, 64);
    ok(all_out(12.75f), "a sink as heavy as all rows halves it");
    ok(fabsf(now.lse[0] - logf(50)) < 1e-6f, "and is no part of log-sum-exp");
    for (uint32_t h = 0; h < HEADS; h++) now.sink[h] = INFINITY;
    attend(1, 64);
    ok(all_out(0), "an infinite sink leaves nothing");
    for (uint32_t h = 0; h < HEADS; h++) now.sink[h] = 1e30f;
    attend(2, 32);
    ok(all_out(0), "nor does a very large one");

    /* Scores 0 and ln 3 (after the scale of 1/8): weights 1/4 and 3/4. */
    fill(2, 0);
    memset(now.q, 0, sizeof now.q);
    for (uint32_t h = 0; h < HEADS; h++) now.q[h][0] = ref_bf16(1);
    for (uint32_t d = 0; d < DIM; d++) row_at(0)[d] = row_at(1)[d] = 0;
    row_at(1)[0] = ref_bf16(8 * logf(3)); /* 8.8125, rounded */
    row_at(1)[9] = ref_bf16(1);
    attend(1, 32);
    double odds = exp(8.8125 / 8);
    ok(fabs(out_value(1, 9) - odds / (1 + odds)) < 0x1p-8, "two rows, odds of three to one");
}

/* ---- a plain softmax ---- */

static double score_of(uint32_t head, uint32_t at) {
    double sum = 0;
    for (uint32_t d = 0; d < DIM; d++)
        sum += (double)ref_bf16_value(now.q[head][d]) * (double)ref_bf16_value(row_at(at)[d]);
    return sum * .125;
}

/*
 * The largest difference from a softmax in double, as a part of the sum of weighted magnitudes.
 * Expected: bf16 of weight and result, 2^-9 each; exp2 and log-sum-exp add little.
 */
static double worst_error(uint32_t length) {
    double worst = 0;
    for (uint32_t h = 0; h < HEADS; h++) {
        double sum = 0, top[DIM] = {0}, size[DIM] = {0};
        for (uint32_t i = 0; i < length; i++) {
            if (now.rows[i] < 0) continue;
            double weight = exp(score_of(h, i));
            sum += weight;
            for (uint32_t d = 0; d < DIM; d++) {
                double value = (double)ref_bf16_value(row_at(i)[d]);
                top[d] += weight * value;
                size[d] += weight * fabs(value);
            }
        }
        double below = sum + exp((double)now.sink[h]);
        for (uint32_t d = 0; d < DIM; d++) {
            double wrong = fabs((double)out_value(h, d) - top[d] / below) / (size[d] / below);
            if (wrong > worst) worst = wrong;
        }
        double wrong = fabs((double)now.lse[h] - log(sum)) / 16;
        if (wrong > worst) worst = wrong;
    }
    return worst;
}

static void against_double(void) {
    static const struct {
        int32_t window, entries;
        uint32_t splits, split_rows;
    } cases[] = {{1, 0, 1, 64},   {7, 0, 1, 64},    {32, 0, 1, 64},   {33, 1, 1, 64},
                 {24, 90, 2, 64}, {24, 90, 1, 128}, {60, 140, 4, 64}, {0, 77, 4, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill(cases[i].window, cases[i].entries);
        uint32_t length = (uint32_t)(cases[i].window + cases[i].entries);
        now.sink[1] = 1;
        if (length > 40) now.rows[3] = now.rows[length - 1] = -1;
        attend(cases[i].splits, cases[i].split_rows);
        double worst = worst_error(length);
        ok(worst < 0x1p-7, "%d + %d rows in %u splits are as in double (%.2g)", cases[i].window,
           cases[i].entries, cases[i].splits, worst);
        ok(worst > 0, "and not the same by accident");
    }
}

/* ---- the order of additions ---- */

/* The sum over 32 positions as lanes hold them: positions 8j + 2c and the next one in lane c. */
static float lanes_sum(const float p[32]) {
    float eight[4];
    for (uint32_t j = 0; j < 4; j++) {
        float lane[4], other[4];
        for (uint32_t c = 0; c < 4; c++) lane[c] = p[8 * j + 2 * c] + p[8 * j + 2 * c + 1];
        for (uint32_t m = 1; m <= 2; m *= 2) {
            memcpy(other, lane, sizeof other);
            for (uint32_t c = 0; c < 4; c++) lane[c] += other[c ^ m];
        }
        eight[j] = lane[0];
    }
    return ((eight[0] + eight[1]) + eight[2]) + eight[3];
}

/* Four warps have a quarter of the dims each; their products are added in their order. */
static float warps_dot(struct ref_tensor_core core, const uint16_t *q, const uint16_t *row) {
    float warp[4];
    for (uint32_t w = 0; w < 4; w++)
        warp[w] = ref_mma_dot(core, q + w * (DIM / 4), row + w * (DIM / 4), DIM / 4, 0);
    return ((warp[0] + warp[1]) + warp[2]) + warp[3];
}

/* m, l and O of one head over a list of `length` rows, tile by tile. */
static bool same_order(uint32_t head, uint32_t length, const char *target) {
    struct ref_tensor_core core = ref_tensor_core_of(target);
    float m = -INFINITY, l = 0, o[DIM] = {0};
    for (uint32_t first = 0; first < length; first += 32) {
        float s[32], p[32], most = -INFINITY;
        uint16_t weight[32], column[32];
        for (uint32_t i = 0; i < 32; i++) {
            bool there = first + i < length;
            s[i] = there
                       ? warps_dot(core, now.q[head], row_at(first + i)) * (.125f * 0x1.715476p+0f)
                       : -INFINITY;
            most = fmaxf(most, s[i]);
        }
        float next = fmaxf(m, most), alpha = ref_exp2(m - next);
        for (uint32_t i = 0; i < 32; i++) p[i] = ref_exp2(s[i] - next);
        for (uint32_t i = 0; i < 32; i++) weight[i] = ref_bf16(p[i]);
        l = l * alpha;
        l = l + lanes_sum(p);
        for (uint32_t d = 0; d < DIM; d++) {
            for (uint32_t i = 0; i < 32; i++)
                column[i] = first + i < length ? row_at(first + i)[d] : 0;
            o[d] = ref_mma_dot(core, weight, column, 16, o[d] * alpha);
            o[d] = ref_mma_dot(core, weight + 16, column + 16, 16, o[d]);
        }
        m = next;
    }
    return equal(o, now.part_o[0][head], sizeof o) && m == now.part_m[0][head] &&
           l == now.part_l[0][head];
}

static void order(void) {
    static const char *const targets[] = {"sm_80", "sm_90"};
    for (uint32_t t = 0; t < 2; t++) {
        unsigned wrong = 0;
        for (int32_t length = 1; length <= 120; length += 7) {
            fill(length / 2, length - length / 2);
            struct ref_attn args = attn_args(1, 128);
            args.core = ref_tensor_core_of(targets[t]);
            ref_attn(&type, &args);
            for (uint32_t h = 0; h < HEADS; h++)
                wrong += !same_order(h, (uint32_t)length, targets[t]);
        }
        ok(wrong == 0, "%s: every sum in the stated order", targets[t]);
    }
}

/* ---- properties ---- */

/* Two tokens: the first one's rows are NaN throughout, the second has a row -1 among its own. */
static void nothing_left_behind(void) {
    static int32_t rows[2][LIST], counts[2] = {32, 2}, none[2] = {0, 0};
    static float o[2][HEADS][DIM], m[2][HEADS], l[2][HEADS];
    fill(40, 0);
    for (int32_t i = 0; i < 32; i++) rows[0][i] = PAGES * RING - 1 - i; /* filled with 0xff */
    rows[1][0] = -1;
    rows[1][1] = now.rows[1];
    struct ref_attn args = attn_args(1, 64);
    args.tokens = 2;
    args.q_stride = 0;
    args.rows = rows[0];
    args.window_count = counts;
    args.entry_count = none;
    args.part_o = o[0][0];
    args.part_m = m[0];
    args.part_l = l[0];
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t number = (uint32_t)rows[0][i];
        memset(now.window[number / RING][number % RING], 0xff, sizeof now.window[0][0]);
    }
    ref_attn(&type, &args);
    bool clean = true;
    for (uint32_t i = 0; i < DIM; i++) clean &= o[1][0][i] == ref_bf16_value(row_at(1)[i]);
    ok(isnan(o[0][0][0]) && clean, "nothing of a NaN row is left where the next token has none");
}

static void splits_are_lists(void) {
    static float o[HEADS][DIM];
    float m[HEADS], l[HEADS];
    fill(60, 140);
    attend(4, 64);
    memcpy(o, now.part_o[1], sizeof o);
    memcpy(m, now.part_m[1], sizeof m);
    memcpy(l, now.part_l[1], sizeof l);
    /* Positions 64 .. 127 are all compressed rows: as a list of their own. */
    memmove(now.rows, now.rows + 64, 64 * sizeof *now.rows);
    now.window_count = 0;
    now.entry_count = 64;
    attend(4, 64);
    ok(equal(o, now.part_o[0], sizeof o) && equal(m, now.part_m[0], sizeof m) &&
           equal(l, now.part_l[0], sizeof l),
       "a split is what its rows alone give");
    uint8_t untouched[sizeof now.part_o[1]];
    memset(untouched, 0xff, sizeof untouched);
    ok(equal(now.part_o[1], untouched, sizeof untouched), "an empty split writes no values");
    ok(now.part_m[1][0] == -INFINITY && now.part_l[1][0] == 0, "but that it is empty");
}

static void masked_rows(void) {
    uint16_t out[HEADS][DIM];
    float lse[HEADS];
    fill(24, 90);
    attend(2, 64);
    memcpy(out, now.out, sizeof out);
    memcpy(lse, now.lse, sizeof lse);
    for (uint32_t i = 114; i < 160; i++) now.rows[i] = -1;
    now.entry_count = 136;
    attend(4, 64);
    ok(equal(out, now.out, sizeof out) && equal(lse, now.lse, sizeof lse),
       "rows -1 behind a list change nothing");
    for (uint32_t i = 0; i < 160; i++) now.rows[i] = -1;
    attend(4, 64);
    ok(all_out(0) && now.lse[0] == -INFINITY, "a list of -1 only gives zero");
    ok(now.part_l[0][0] == 0 && now.part_o[0][0][0] == 0, "its splits hold zeros");
    now.window_count = now.entry_count = 0;
    now.sink[0] = NAN;
    attend(4, 64);
    ok(all_out(0) && now.lse[2] == -INFINITY, "an empty list, too, whatever the sink");
}

static void not_numbers(void) {
    fill(40, 0);
    row_at(7)[5] = 0x7f81;
    attend(1, 64);
    ok(now.out[0][0] == 0x7fff && now.out[1][9] == 0x7fff,
       "a NaN row's score is NaN, its weight too");
    ok(ref_bits(now.part_l[0][0]) == 0x7fffffff, "the sum is the NaN");
    fill(40, 0);
    now.sink[1] = NAN;
    attend(1, 64);
    ok(isfinite(out_value(0, 3)) && now.out[1][3] == 0x7fff, "a NaN sink is its head's only");
    fill(40, 0);
    for (uint32_t i = 0; i < 40; i++) row_at(i)[0] = ref_bf16(1);
    row_at(7)[0] = 0x7f80;
    now.q[0][0] = ref_bf16(1);
    now.q[1][0] = ref_bf16(-1);
    attend(1, 64);
    ok(now.part_m[0][0] == INFINITY && now.out[0][3] == 0x7fff, "a score of +infinity ends in NaN");
    ok(now.out[1][0] == 0x7fff && isfinite(out_value(1, 3)),
       "a score of -infinity has no weight, but 0 * infinity is NaN");
}

int main(void) {
    tap_plan(8 + 16 + 2 + 1 + 3 + 4 + 5);
    by_hand();
    against_double();
    order();
    nothing_left_behind();
    splits_are_lists();
    masked_rows();
    not_numbers();
    return tap_done();
}
