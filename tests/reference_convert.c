/* The number formats: published values, and every code against a slow definition in doubles. */
#include "convert.h"
#include "tap.h"

#include <float.h>
#include <math.h>

/* Some 4 million binary32 patterns spread over all of them, the 65,536 bf16 ones included. */
#define STEP 1021u

typedef double (*value_of)(unsigned code);

/* The code among 0..last whose value is nearest to x, the even one on a tie. x is not NaN. */
static unsigned nearest(double x, unsigned last, value_of value) {
    unsigned best = 0;
    double least = INFINITY;
    if (x >= value(last)) return last;
    for (unsigned code = 0; code <= last; code++) {
        double distance = fabs(x - value(code));
        if (distance < least || (distance == least && code % 2 == 0)) {
            least = distance;
            best = code;
        }
    }
    return best;
}

static double e4m3_slow(unsigned code) {
    unsigned exponent = code >> 3 & 15, mantissa = code & 7;
    return exponent ? ldexp(8 + mantissa, (int)exponent - 10) : ldexp(mantissa, -9);
}

static double e2m1_slow(unsigned code) {
    static const double grid[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    return grid[code & 7];
}

static bool e4m3_good(float x) {
    if (isnan(x)) return ref_e4m3(x) == 0x7f;
    unsigned want = nearest(fabs((double)x), 0x7e, e4m3_slow) | (signbit(x) ? 0x80u : 0);
    return ref_e4m3(x) == want;
}

static bool e2m1_good(float x) {
    if (isnan(x)) return ref_e2m1(x) == 7;
    return ref_e2m1(x) == (nearest(fabs((double)x), 7, e2m1_slow) | (signbit(x) ? 8u : 0));
}

/* bf16: of the two neighbours that enclose |x| the nearer one, the even one on a tie. */
static bool bf16_good(float x) {
    uint16_t got = ref_bf16(x);
    if (isnan(x)) return got == 0x7fff;
    uint32_t magnitude = ref_bits(x) & 0x7fffffff, low = magnitude >> 16;
    double at = fabs((double)x), below = ref_float(low << 16);
    /* The neighbour of the largest finite number is where infinity would lie: 2^128. */
    double above = low + 1 == 0x7f80 ? ldexp(1, 128) : (double)ref_float((low + 1) << 16);
    uint32_t want = low;
    if (!isinf(x) && (above - at < at - below || (above - at == at - below && low % 2))) want++;
    return got == (want | (signbit(x) ? 0x8000u : 0));
}

static void published(void) {
    static const struct {
        float x;
        uint8_t code;
    } e4m3[] = {{0, 0},          {-0.0f, 0x80},    {0x1p-10f, 0}, {0x1p-9f, 1}, {0x3p-10f, 2},
                {1.0625f, 0x38}, {1.1875f, 0x3a},  {17, 0x58},    {19, 0x5a},   {447, 0x7e},
                {448, 0x7e},     {449, 0x7e},      {1e9f, 0x7e},  {-447, 0xfe}, {INFINITY, 0x7e},
                {NAN, 0x7f},     {-INFINITY, 0xfe}},
      e2m1[] = {{.25f, 0}, {.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4},
                {3.5f, 6}, {5, 6},    {-.25f, 8}, {-0.0f, 8}, {INFINITY, 7}};
    for (size_t i = 0; i < sizeof e4m3 / sizeof *e4m3; i++)
        ok(ref_e4m3(e4m3[i].x) == e4m3[i].code, "e4m3 of %g is %02x", e4m3[i].x, e4m3[i].code);
    for (size_t i = 0; i < sizeof e2m1 / sizeof *e2m1; i++)
        ok(ref_e2m1(e2m1[i].x) == e2m1[i].code, "e2m1 of %g is %x", e2m1[i].x, e2m1[i].code);
}

static void every_code(void) {
    unsigned bad = 0;
    for (unsigned code = 0; code < 256; code++) {
        float value = ref_e4m3_value((uint8_t)code);
        if ((code & 0x7f) == 0x7f)
            bad += isnan(value) ? 0 : 1;
        else
            bad += fabs((double)value) != e4m3_slow(code) || !signbit(value) != !(code & 0x80);
    }
    is(bad, 0, "every e4m3 code has its value");
    bad = 0;
    for (unsigned code = 0; code < 16; code++) {
        float value = ref_e2m1_value((uint8_t)code);
        bad += fabs((double)value) != e2m1_slow(code) || !signbit(value) != !(code & 8);
    }
    is(bad, 0, "every e2m1 code has its value");
    bad = 0;
    for (unsigned byte = 0; byte < 255; byte++)
        bad += (double)ref_ue8m0_value((uint8_t)byte) != ldexp(1, (int)byte - 127);
    ok(bad == 0 && isnan(ref_ue8m0_value(255)), "every ue8m0 byte has its value");
}

static void every_bf16_input(void) {
    unsigned bad8 = 0, bad4 = 0, bad16 = 0;
    for (uint32_t i = 0; i < 0x10000; i++) {
        float x = ref_float(i << 16);
        bad8 += !e4m3_good(x);
        bad4 += !e2m1_good(x);
        bad16 += isnan(x) ? ref_bf16(x) != 0x7fff
                          : ref_bf16(x) != i || ref_bits(ref_bf16_value((uint16_t)i)) != i << 16;
    }
    is(bad8, 0, "e4m3 is the nearest code for each of the 65,536 bf16 values");
    is(bad4, 0, "e2m1 likewise");
    is(bad16, 0, "bf16 values survive the way to binary32 and back, NaN becomes 0x7fff");
}

/* A binade around each tie matters most: all patterns next to a boundary between two codes. */
static void near_boundaries(void) {
    unsigned bad = 0;
    for (unsigned code = 0; code < 0x7e; code++) {
        float middle = (float)((e4m3_slow(code) + e4m3_slow(code + 1)) / 2);
        for (int step = -2; step <= 2; step++) {
            float x = ref_float((uint32_t)((int64_t)ref_bits(middle) + step));
            bad += !e4m3_good(x) || !e4m3_good(-x);
        }
    }
    is(bad, 0, "e4m3 is right at every tie and two steps either side");
}

static void spread(void) {
    unsigned bad8 = 0, bad4 = 0, bad16 = 0;
    for (uint64_t i = 0; i < 0x100000000u; i += STEP) {
        float x = ref_float((uint32_t)i);
        bad16 += !bf16_good(x);
        if (i % (16 * STEP)) continue;
        bad8 += !e4m3_good(x);
        bad4 += !e2m1_good(x);
    }
    is(bad16, 0, "bf16 is the nearest neighbour for 4.2 million binary32 values");
    is(bad8, 0, "e4m3 for 263 thousand of them");
    is(bad4, 0, "e2m1 for the same");
}

static void ue8m0(void) {
    unsigned bad = 0;
    for (uint32_t bits = 0x00800000; bits < 0x7f800000; bits += STEP) {
        float x = ref_float(bits);
        unsigned byte = ref_ue8m0_ceil(x);
        bool enough = ldexp(1, (int)byte - 127) >= (double)x || byte == 254;
        bool least = byte == 0 || ldexp(1, (int)byte - 128) < (double)x;
        bad += !enough || !least;
    }
    is(bad, 0, "ue8m0 is the least power of two that is not below");
    is(ref_ue8m0_ceil(1), 127, "an exact power of two is its own");
    is(ref_ue8m0_ceil(FLT_MAX), 254, "the byte stays below the NaN");
}

int main(void) {
    tap_plan(17 + 10 + 3 + 3 + 1 + 3 + 3);
    published();
    every_code();
    every_bf16_input();
    near_boundaries();
    spread();
    ue8m0();
    return tap_done();
}
