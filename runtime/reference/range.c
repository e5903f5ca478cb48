#include "range.h"

#include <float.h>
#include <math.h>

#define TINY 0x1p-148 /* what a result below the normal numbers may err */

struct ref_range ref_range_of(double x) {
    return (struct ref_range){x, x};
}

double ref_range_middle(struct ref_range x) {
    return (x.lo + x.hi) / 2;
}

double ref_range_radius(struct ref_range x) {
    return (x.hi - x.lo) / 2;
}

double ref_range_most(struct ref_range x) {
    return fmax(fabs(x.lo), fabs(x.hi));
}

double ref_range_least(struct ref_range x) {
    return x.lo <= 0 && x.hi >= 0 ? 0 : fmin(fabs(x.lo), fabs(x.hi));
}

struct ref_range ref_range_round(struct ref_range x, double units, double size) {
    double slack = units * REF_UNIT * fmax(size, ref_range_most(x)) + TINY;
    return (struct ref_range){x.lo - slack, x.hi + slack};
}

struct ref_range ref_range_add(struct ref_range a, struct ref_range b) {
    return (struct ref_range){a.lo + b.lo, a.hi + b.hi};
}

struct ref_range ref_range_scale(struct ref_range a, double factor) {
    double x = a.lo * factor, y = a.hi * factor;
    return (struct ref_range){fmin(x, y), fmax(x, y)};
}

double ref_grid(double x, int mantissa, int lowest, double largest) {
    int exponent;
    if (x == 0) return 0;
    frexp(x, &exponent);
    if (exponent - 1 < lowest) exponent = lowest + 1;
    double unit = ldexp(1, exponent - 1 - mantissa), near = nearbyint(x / unit) * unit;
    return fabs(near) > largest ? copysign(largest, x) : near;
}

static double bf16(double x) {
    return ref_grid(x, 7, -126, DBL_MAX);
}

struct ref_range ref_range_bf16(struct ref_range x) {
    return (struct ref_range){bf16(x.lo), bf16(x.hi)};
}

/* ---- scales ---- */

/* The least power of two that is not below a positive number. */
static double power_above(double x) {
    int exponent;
    double half = frexp(x, &exponent);
    return ldexp(1, half == .5 ? exponent - 1 : exponent);
}

/* A product or quotient of two binary32 numbers as binary32: double is wide enough to round once.
 */
static double single(double x) {
    return (double)(float)x;
}

/* The scale of a block whose largest magnitude is `most`. */
static double scale_of(enum ref_format format, double most) {
    const double smallest = 0x1p-126, floor = (double)1e-4f;
    switch (format) {
    case REF_FP8_TOKEN: return most == 0 ? 1 : fmax(single(most / 448), smallest);
    case REF_FP8_TWO_PLANE: return power_above(fmax(single(most / 448), floor));
    case REF_FP4_INDEX: return power_above(single(fmax(most, 6 * smallest) * (double)(1 / 6.0f)));
    default: return power_above(single(fmax(most, floor) * (double)(1 / 448.0f)));
    }
}

static uint32_t block_of(enum ref_format format, uint32_t count) {
    if (format == REF_FP8_DS_MLA || format == REF_FP8_TWO_PLANE) return 64;
    return format == REF_FP4_INDEX ? 32 : count;
}

/* ---- codes ---- */

static double code_of(enum ref_format format, double x, double scale) {
    double quotient = single(x / scale);
    if (format == REF_FP4_INDEX) return ref_grid(quotient, 1, 0, 6);
    return ref_grid(quotient, 3, -6, 448);
}

static struct ref_range hull(struct ref_range a, struct ref_range b) {
    return (struct ref_range){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}

/* The stored value of x when the block's scale is known. */
static struct ref_range stored(enum ref_format format, struct ref_range x, double scale) {
    struct ref_range value = {code_of(format, x.lo, scale) * scale,
                              code_of(format, x.hi, scale) * scale};
    return ref_range_bf16((struct ref_range){single(value.lo), single(value.hi)});
}

/*
 * A block whose largest magnitude lies between two numbers. Its scale then has few values, and each
 * gives a range; a scale in steps of two leaves nothing between them, fp8_token's is continuous:
 * there the products of the outermost codes and scales bound the rest.
 */
static void store_block(enum ref_format format, struct ref_range *x, uint32_t count) {
    struct ref_range most = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        most.lo = fmax(most.lo, ref_range_least(x[i]));
        most.hi = fmax(most.hi, ref_range_most(x[i]));
    }
    struct ref_range scale = {scale_of(format, most.lo), scale_of(format, most.hi)};
    bool token = format == REF_FP8_TOKEN;
    for (uint32_t i = 0; i < count; i++) {
        struct ref_range in = x[i];
        struct ref_range both = hull(stored(format, in, scale.lo), stored(format, in, scale.hi));
        double slack = token ? fmax(scale.hi / scale.lo - 1, 0) * ref_range_most(both) : 0;
        int steps = token ? 0 : (int)log2(scale.hi / scale.lo);
        for (int step = 1; step < steps; step++)
            both = hull(both, stored(format, in, ldexp(scale.lo, step)));
        x[i] = ref_range_bf16((struct ref_range){both.lo - slack, both.hi + slack});
    }
}

void ref_range_store(enum ref_format format, uint32_t dim, uint32_t rope_dim, struct ref_range *x) {
    bool index = format == REF_FP8_INDEX || format == REF_FP4_INDEX;
    uint32_t count = index ? dim : dim - rope_dim, block = block_of(format, count);
    if (format == REF_BF16) return;
    for (uint32_t i = 0; i < count; i += block) store_block(format, x + i, block);
}
