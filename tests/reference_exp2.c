/*
 * exp2 and log2 against libm's in double, over a sample or, with --long, over every binary32.
 *
 * The measured bounds stand in fp32.h; here they are tested, and that they are not needlessly wide.
 */
#include "convert.h"
#include "fp32.h"
#include "tap.h"

#include <math.h>

/* Distance in units of the last place of `exact`, whose binade is taken as at least 2^-126. */
static double ulps(float got, double exact) {
    int exponent;
    frexp(exact, &exponent);
    if (exponent < -125) exponent = -125;
    return fabs((double)got - exact) / ldexp(1, exponent - 24);
}

static void special_values(void) {
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff};
    for (size_t i = 0; i < 4; i++)
        ok(ref_bits(ref_exp2(ref_float(nans[i]))) == 0x7fffffff, "exp2 of NaN %08x is the NaN",
           nans[i]);
    static const struct {
        float x, want;
    } exact[] = {{0, 1},
                 {-0.0f, 1},
                 {1, 2},
                 {-1, .5f},
                 {10, 1024},
                 {127, 0x1p127f},
                 {-125, 0x1p-125f},
                 {-INFINITY, 0},
                 {INFINITY, INFINITY},
                 {128, INFINITY},
                 {1e30f, INFINITY},
                 {-1e30f, 0},
                 {-0x1.f40002p+6f, 0}};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        ok(ref_bits(ref_exp2(exact[i].x)) == ref_bits(exact[i].want), "exp2 of %a is %a",
           (double)exact[i].x, (double)exact[i].want);
    ok(isfinite(ref_exp2(0x1.fffffep+6f)), "exp2 just below 128 is finite");
    static const struct {
        float x, want;
    } logs[] = {{1, 0}, {2, 1}, {0x1p-126f, -126}, {0x1p127f, 127}, {.5f, -1}, {1024, 10}};
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++)
        ok(ref_bits(ref_log2(logs[i].x)) == ref_bits(logs[i].want), "log2 of %a is %g",
           (double)logs[i].x, (double)logs[i].want);
}

static void largest(void) {
    ok(ref_bits(ref_max(0.0f, -0.0f)) == 0 && ref_bits(ref_max(-0.0f, 0.0f)) == 0,
       "max takes +0 before -0");
    ok(ref_max(NAN, -3) == -3 && ref_max(-3, NAN) == -3, "max drops a NaN");
    ok(ref_bits(ref_max(-NAN, NAN)) == 0x7fffffff, "max of two NaNs is the NaN");
    ok(ref_max(-INFINITY, -1) == -1 && ref_max(2, 1) == 2 && ref_max(1, 2) == 2, "max of numbers");
}

/* Every `step`-th pattern between two, both signs of them for exp2. */
static void sweep(uint32_t step, double *exp2_worst, double *log2_worst, uint64_t *count) {
    for (uint64_t bits = 0; bits < 0x100000000u; bits += step) {
        float x = ref_float((uint32_t)bits);
        if (x >= -125 && x < 128) {
            double wrong = ulps(ref_exp2(x), exp2((double)x));
            if (wrong > *exp2_worst) *exp2_worst = wrong;
            ++*count;
        }
        if (bits < 0x00800000 || bits >= 0x7f800000) continue;
        double exact = log2((double)x), size = fabs(exact) > 1 ? fabs(exact) : 1;
        double wrong = fabs((double)ref_log2(x) - exact) / size;
        if (wrong > *log2_worst) *log2_worst = wrong;
    }
}

/* In [1/2, 2] most of exp2's and log2's interesting arguments lie: a closer look there. */
static void sweep_small(double *exp2_worst) {
    for (uint32_t bits = 0x3c000000; bits < 0x43000000; bits += 61) {
        float x = ref_float(bits);
        double above = ulps(ref_exp2(x), exp2((double)x));
        double below = -x >= -125 ? ulps(ref_exp2(-x), exp2((double)-x)) : 0;
        if (above > *exp2_worst) *exp2_worst = above;
        if (below > *exp2_worst) *exp2_worst = below;
    }
}

/* At the joints between the polynomial's pieces a larger argument loses one unit at most. */
static unsigned decreases(void) {
    unsigned count = 0;
    for (int half = -249; half < 256; half += 2) {
        uint32_t joint = ref_bits((float)half / 2);
        float last = -1;
        for (int step = -64; step <= 64; step++) {
            float next =
                ref_exp2(ref_float((uint32_t)((int32_t)joint + (half < 0 ? -step : step))));
            count += (int32_t)(ref_bits(last) - ref_bits(next)) > 1 && step > -64;
            last = next;
        }
    }
    return count;
}

int main(int argc, char **argv) {
    bool whole = argc > 1 && !strcmp(argv[1], "--long");
    double exp2_worst = 0, log2_worst = 0;
    uint64_t count = 0;
    tap_plan(4 + 13 + 1 + 6 + 4 + 5);
    special_values();
    largest();
    sweep(whole ? 1 : 1021, &exp2_worst, &log2_worst, &count);
    if (!whole) sweep_small(&exp2_worst);
    tap_note("exp2: at most %.4f ulp over %llu arguments%s; log2: at most %.3g", exp2_worst,
             (unsigned long long)count, whole ? "" : " and 1.9 million small ones", log2_worst);
    ok(count > (whole ? 2200000000u : 2200000u), "a sample large enough");
    ok(exp2_worst <= REF_EXP2_ULP, "exp2 is within %g ulp", REF_EXP2_ULP);
    ok(exp2_worst > REF_EXP2_ULP - (whole ? .001 : .02), "and the bound is not needlessly wide");
    ok(log2_worst <= REF_LOG2_ERROR && log2_worst > REF_LOG2_ERROR * .8,
       "log2 is within %g, and not much better", REF_LOG2_ERROR);
    is(decreases(), 0, "exp2 decreases by no more than a unit around half integers");
    return tap_done();
}
