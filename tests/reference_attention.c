/* attn's and attn_combine's twins against attention in doubles, and the edge cases by hand. */
#include "convert.h"
#include "reference.h"
#include "tap.h"
#include "tensor.h"
#include "vector.h"

#include <math.h>

#define DIM    64
#define HEADS  3
#define TOKENS 2
#define STRIDE 96
#define SPLITS 3
#define SPLIT  32
#define ROWS   64

static uint16_t window[ROWS][DIM], compressed[ROWS][DIM], q[TOKENS][HEADS][DIM];
static int32_t rows[TOKENS][STRIDE], window_count[TOKENS], entry_count[TOKENS];
static float part_o[TOKENS][SPLITS][HEADS][DIM], part_m[TOKENS][SPLITS][HEADS];
static float part_l[TOKENS][SPLITS][HEADS], sink[HEADS], lse[TOKENS][HEADS];
static uint16_t out[TOKENS][HEADS][DIM];
static uint32_t seed = 1;

static uint16_t random_bf16(void) {
    seed = seed * 1664525 + 1013904223;
    return ref_bf16((float)((int32_t)seed >> 16) * 0x1p-14f);
}

static void run(void) {
    struct ref_type type = {.format = REF_BF16, .head_dim = DIM};
    struct ref_attn args = {
        .tokens = TOKENS,
        .heads = HEADS,
        .splits = SPLITS,
        .split_rows = SPLIT,
        .list_stride = STRIDE,
        .scale = 0.125f,
        .chip = ref_chip_of(90),
        .q = (uint8_t *)q,
        .q_stride = sizeof q[0],
        .rows = rows[0],
        .window_count = window_count,
        .entry_count = entry_count,
        .window = {.plane = {{(uint8_t *)window, sizeof window / 8}}, .rows = ROWS / 8},
        .compressed = {.plane = {{(uint8_t *)compressed, sizeof window / 2}}, .rows = ROWS / 2},
        .part_o = part_o[0][0][0],
        .part_m = part_m[0][0],
        .part_l = part_l[0][0]};
    struct ref_attn_combine combine = {.tokens = TOKENS,
                                       .heads = HEADS,
                                       .splits = SPLITS,
                                       .part_o = part_o[0][0][0],
                                       .part_m = part_m[0][0],
                                       .part_l = part_l[0][0],
                                       .sink = sink,
                                       .out = (uint8_t *)out,
                                       .out_stride = sizeof out[0],
                                       .lse = lse[0]};
    memset(part_o, 0xa5, sizeof part_o);
    ref_attn(&type, &args);
    ref_attn_combine(&type, &combine);
}

static const uint16_t *row_of(int t, int i) {
    return i < window_count[t] ? window[rows[t][i]] : compressed[rows[t][i]];
}

/* The largest error of a token's output and log-sum-exp against doubles. */
static double worst(int t) {
    double most = 0;
    for (int h = 0; h < HEADS; h++) {
        double sum = 0, total[DIM] = {0};
        for (int i = 0; i < window_count[t] + entry_count[t]; i++) {
            double s = 0;
            if (rows[t][i] < 0) continue;
            for (int d = 0; d < DIM; d++)
                s += (double)ref_bf16_value(q[t][h][d]) * (double)ref_bf16_value(row_of(t, i)[d]);
            double weight = exp(s / 8);
            sum += weight;
            for (int d = 0; d < DIM; d++)
                total[d] += weight * (double)ref_bf16_value(row_of(t, i)[d]);
        }
        most = fmax(most, fabs(log(sum) - (double)lse[t][h]));
        for (int d = 0; d < DIM; d++)
            most = fmax(most, fabs(total[d] / (sum + exp((double)sink[h])) -
                                   (double)ref_bf16_value(out[t][h][d])));
    }
    return most;
}

static void setup(int of_window, int of_entries) {
    for (int i = 0; i < ROWS * DIM; i++)
        window[i / DIM][i % DIM] = random_bf16(), compressed[i / DIM][i % DIM] = random_bf16();
    for (int i = 0; i < TOKENS * HEADS * DIM; i++)
        q[i / DIM / HEADS][i / DIM % HEADS][i % DIM] = random_bf16();
    for (int t = 0; t < TOKENS; t++) {
        window_count[t] = of_window, entry_count[t] = of_entries;
        for (int i = 0; i < STRIDE; i++)
            rows[t][i] = i < of_window ? (i * 5 + t) % ROWS : ((i - of_window) * 3 + t) % ROWS;
    }
    for (int h = 0; h < HEADS; h++) sink[h] = (float)h - 1;
}

static void logarithm(void) {
    double most = 0;
    for (uint32_t bits = 0x00800000; bits < 0x7f800000; bits += 9973) {
        float x = ref_float(bits);
        most = fmax(most,
                    fabs((double)ref_log2(x) - log2((double)x)) / fmax(1, fabs(log2((double)x))));
    }
    ok(most < 3e-7, "log2 is right to 3e-7 of itself or of 1 (%.2g)", most);
    ok(ref_log2(1) == 0 && ref_log2(0x1p-100f) == -100, "and exact at powers of two");
}

int main(void) {
    tap_plan(14);
    logarithm();
    setup(20, 57);
    run();
    ok(worst(0) < 0.02 && worst(1) < 0.02, "three splits of both places: near doubles (%.4f)",
       worst(0));
    rows[0][3] = rows[0][40] = -1;
    run();
    ok(worst(0) < 0.02, "rows that are not there do not count");
    for (int d = 0; d < DIM; d++) window[63][d] = 0x7fc0;
    for (int i = 0; i < STRIDE; i++) rows[1][i] = rows[1][i] == 63 ? 62 : rows[1][i];
    run();
    ok(worst(1) < 0.02, "NaN in a row that no list names does not show");

    setup(1, 0);
    for (int h = 0; h < HEADS; h++) sink[h] = -INFINITY;
    run();
    same(out[0][1], window[rows[0][0]], DIM * 2, "one row and no sink: the row itself");
    setup(0, 0);
    run();
    ok(out[0][0][0] == 0 && lse[0][0] == -INFINITY, "an empty list: zero, and no log-sum-exp");
    ok(part_m[0][0][0] == -INFINITY && part_l[0][2][1] == 0 &&
           ref_bits(part_o[0][0][0][0]) == 0xa5a5a5a5,
       "empty splits say so and write no output");
    setup(3, 0);
    rows[0][0] = rows[0][1] = rows[0][2] = -1;
    run();
    ok(out[0][0][5] == 0 && part_m[0][0][0] == -INFINITY && part_l[0][0][0] == 0,
       "a list of rows that are not there is empty too");
    setup(3, 0);
    sink[0] = INFINITY;
    run();
    ok(out[0][0][0] == 0x7fff || out[0][0][0] == 0, "an infinite sink takes everything");
    setup(32, 1);
    run();
    float first = part_m[0][1][0];
    ok(first != -INFINITY && part_m[0][2][0] == -INFINITY,
       "the 33rd row is the second split's first");
    setup(5, 0);
    for (int i = 0; i < 5; i++) rows[0][i] = 7;
    run();
    ok(part_l[0][0][0] == 5, "equal rows have weight one each");
    for (int d = 0; d < DIM; d++) window[7][d] = 0x7fc0;
    run();
    ok(out[0][0][0] == 0, "rows of NaN alone have no largest score: they count as an empty list");
    rows[0][4] = 8;
    run();
    ok(out[0][0][0] == 0x7fff, "a NaN in one row of several is NaN");
    return tap_done();
}
