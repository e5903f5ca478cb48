/* The references' exp2 and Walsh-Hadamard transform against definitions in doubles. */
#include "vector.h"

#include "convert.h"
#include "tap.h"

#include <math.h>

/* The largest error of every STEP-th number in [from, to), in units of the result's last place. */
static double worst(float from, float to, uint32_t step) {
    uint32_t a = ref_bits(from), b = ref_bits(to);
    double most = 0;
    if (a > b) { /* negative numbers count downwards */
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    for (uint64_t bits = a; bits < b; bits += step) {
        float x = ref_float((uint32_t)bits), got = ref_exp2(x);
        double want = exp2((double)x);
        double unit = ldexp(1, ilogb(want) - 23);
        double error = fabs((double)got - want) / unit;
        if (!(error <= most)) most = error;
    }
    return most;
}

/* 4,096 results, whose bits were computed apart from this code in rational arithmetic. */
static uint64_t hash_of_results(void) {
    uint64_t hash = 0xcbf29ce484222325;
    uint32_t state = 1;
    for (int i = 0; i < 4096; i++) {
        state = state * 1664525 + 1013904223;
        float y = ref_exp2((float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-17f);
        for (int b = 0; b < 4; b++) hash = (hash ^ (ref_bits(y) >> 8 * b & 255)) * 0x100000001b3;
    }
    return hash;
}

static void exponential(void) {
    /* Every number with KVF_TEST_LONG, some two million without. */
    uint32_t step = getenv("KVF_TEST_LONG") ? 1 : 997;
    double below = worst(-125, -0x1p-126f, step), above = worst(0x1p-126f, 127.9999f, step);
    tap_note("largest error below 0: %.3f units in the last place, above: %.3f", below, above);
    ok(below < 1.0, "exp2 of negative numbers is within one unit in the last place");
    ok(above < 1.0, "and of positive ones");
    ok(hash_of_results() == 0x1ec1e86ac70e0e01,
       "its bits are those of the polynomial as it is published");
    bool exact = true;
    for (int i = -125; i < 128; i++) exact = exact && (double)ref_exp2((float)i) == ldexp(1, i);
    ok(exact, "whole numbers give powers of two");
    ok(ref_exp2(0) == 1 && ref_exp2(-0.0f) == 1, "zero gives 1");
    ok(ref_exp2(-125.01f) == 0 && ref_exp2(-INFINITY) == 0 && !signbit(ref_exp2(-1e30f)),
       "below -125 it is +0");
    ok(isinf(ref_exp2(128)) && isinf(ref_exp2(INFINITY)), "from 128 on infinity");
    ok(isnan(ref_exp2(NAN)), "NaN stays");
}

static void hadamard(void) {
    float x[128], y[128];
    double most = 0;
    for (int i = 0; i < 128; i++) x[i] = y[i] = (float)(i * 37 % 101) - 50;
    ref_hadamard(y, 128);
    for (int i = 0; i < 128; i++) {
        double sum = 0;
        for (int j = 0; j < 128; j++) sum += __builtin_parity((unsigned)(i & j)) ? -x[j] : x[j];
        most = fmax(most, fabs(sum / sqrt(128) - (double)y[i]));
    }
    ok(most < 1e-4, "element i is the sum over j of (-1)^popcount(i & j) x_j / sqrt(128)");
    float ones[4] = {1, 1, 1, 1};
    ref_hadamard(ones, 4);
    ok(ones[0] == 2 && ones[1] == 0 && ones[3] == 0, "the scale is the root of the length");
    /* (2^24 + 1) - 2^24 loses the 1, (2^24 - 2^24) + 1 does not: neighbours come first. */
    float order[4] = {0x1p24f, 1, -0x1p24f, 0};
    ref_hadamard(order, 4);
    ok(order[0] == 0 && order[2] == 0x1p24f, "neighbours are added first");
}

int main(void) {
    tap_plan(8 + 3);
    exponential();
    hadamard();
    return tap_done();
}
