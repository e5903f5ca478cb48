/* q_norm_rope and inverse_rope: by hand, and against the same in double within bf16's rounding. */
#include "convert.h"
#include "heads.h"
#include "tap.h"

#include <math.h>

#define TOKENS    5
#define HEADS     3
#define DIM       512
#define ROPE      64
#define NOPE      (DIM - ROPE)
#define POSITIONS 10

static struct ref_type type = {.head_dim = DIM, .rope_dim = ROPE, .norm_eps = 1e-6f};
static uint16_t q[TOKENS][HEADS * DIM + 8], out[TOKENS][HEADS * DIM + 16];
static float rope[POSITIONS][ROPE];
static int32_t position[TOKENS] = {3, -1, 9, POSITIONS, 0};

static struct ref_heads args_of(void) {
    return (struct ref_heads){
        .tokens = TOKENS,
        .heads = HEADS,
        .positions = POSITIONS,
        .q = (const uint8_t *)q,
        .q_stride = sizeof q[0],
        .rope = rope[0],
        .position = position,
        .out = (uint8_t *)out,
        .out_stride = sizeof out[0],
    };
}

static void fill(void) {
    uint32_t state = 7;
    for (uint32_t p = 0; p < POSITIONS; p++)
        for (uint32_t i = 0; i < ROPE / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / ROPE);
            rope[p][i] = (float)cos(angle);
            rope[p][ROPE / 2 + i] = (float)sin(angle);
        }
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t i = 0; i < HEADS * DIM; i++) {
            state = state * 1664525 + 1013904223;
            q[t][i] = ref_bf16((float)(int32_t)state * 0x1p-29f);
        }
    memset(out, 0xab, sizeof out);
}

static double value(uint16_t bits) {
    return (double)ref_bf16_value(bits);
}

/* Element i of a head after the norm, in double. */
static double normed(const uint16_t *head, uint32_t i) {
    double sum = 0;
    for (uint32_t k = 0; k < DIM; k++) sum += value(head[k]) * value(head[k]);
    return value(head[i]) / sqrt(sum / DIM + 1e-6);
}

/* The rotation by `sign` times the angles of a position. */
static double rotated(double a, double b, bool second, uint32_t p, uint32_t pair, double sign) {
    double angle = p * pow(10000, -2.0 * pair / ROPE) * sign;
    return second ? a * sin(angle) + b * cos(angle) : a * cos(angle) - b * sin(angle);
}

static bool close(double got, double want, double size) {
    return fabs(got - want) <= size * 0x1p-8 * 1.01;
}

static void against_double(bool round) {
    struct ref_heads args = args_of();
    unsigned wrong = 0;
    fill();
    type.round_before_rope = round;
    ref_q_norm_rope(&type, &args);
    for (uint32_t t = 0; t < TOKENS; t += 2)
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint16_t *in = q[t] + h * DIM, *got = out[t] + h * DIM;
            for (uint32_t i = 0; i < NOPE; i++)
                wrong += !close(value(got[i]), normed(in, i), fabs(normed(in, i)));
            for (uint32_t i = NOPE; i < DIM; i++) {
                uint32_t even = i & ~1u;
                double a = normed(in, even), b = normed(in, even + 1);
                double want = rotated(a, b, i & 1, (uint32_t)position[t], (even - NOPE) / 2, 1);
                wrong += !close(value(got[i]), want, (round ? 2 : 1) * (fabs(a) + fabs(b)) / 1.4);
            }
        }
    ok(wrong == 0, "norm and rotation as in double%s", round ? ", rounded in between" : "");
}

static void untouched(void) {
    bool same_bytes = true;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t i = 0; i < HEADS * DIM + 16; i++)
            if (t == 1 || t == 3 || i >= HEADS * DIM) same_bytes &= out[t][i] == 0xabab;
    ok(same_bytes, "padding, positions beyond the table and gaps stay as they are");
}

static void by_hand(void) {
    struct ref_heads args = args_of();
    fill();
    for (uint32_t i = 0; i < DIM; i++) q[0][i] = ref_bf16(i % 2 ? -2 : 2);
    for (uint32_t i = 0; i < ROPE; i++) rope[3][i] = i < ROPE / 2 ? .25f : .5f;
    type.round_before_rope = false;
    type.norm_eps = 0;
    ref_q_norm_rope(&type, &args);
    ok(value(out[0][0]) == 1 && value(out[0][NOPE - 1]) == -1, "twos become ones");
    ok(value(out[0][NOPE]) == .75 && value(out[0][NOPE + 1]) == .25,
       "(1, -1) turned by (1/4, 1/2) is (3/4, 1/4)");
    ref_inverse_rope(&type, &args);
    ok(value(out[0][DIM - 2]) == .3125 && value(out[0][DIM - 1]) == -.3125,
       "and back: (3/16 + 1/8, 1/16 - 3/8)");
    ok(value(out[0][0]) == 1, "inverse_rope leaves the nope part");
    type.norm_eps = 1e-6f;
    memset(q[4], 0, sizeof q[4]);
    q[4][DIM] = 0x7fc1;
    ref_q_norm_rope(&type, &args);
    ok(out[4][0] == 0 && out[4][DIM - 1] == 0, "a head of zeros stays zero");
    ok(out[4][DIM + 7] == 0x7fff && out[4][2 * DIM] == 0, "a NaN fills its own head only");
}

static void there_and_back(void) {
    struct ref_heads args = args_of();
    unsigned wrong = 0;
    fill();
    type.norm_eps = 1e-6f;
    ref_q_norm_rope(&type, &args);
    ref_inverse_rope(&type, &args);
    for (uint32_t t = 0; t < TOKENS; t += 2)
        for (uint32_t i = 0; i < HEADS * DIM; i++) {
            const uint16_t *head = q[t] + i / DIM * DIM;
            double a = normed(head, i % DIM), b = normed(head, i % DIM ^ 1);
            wrong += !close(value(out[t][i]), a, 2 * (fabs(a) + fabs(b)));
        }
    ok(wrong == 0, "inverse_rope undoes the rotation");
    untouched();
}

int main(void) {
    tap_plan(3 + 6 + 2);
    against_double(false);
    untouched();
    against_double(true);
    by_hand();
    there_and_back();
    return tap_done();
}
