#include "tensor_core.h"

#include "convert.h"
#include "fp32.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_EXPONENT (-126)  /* of a subnormal number */
#define NO_EXPONENT    (-1000) /* of a zero */

struct ref_tensor_core ref_tensor_core_of(const char *target) {
    long number = strncmp(target, "sm_", 3) == 0 ? strtol(target + 3, NULL, 10) : 0;
    if (number < 90) return (struct ref_tensor_core){8, 24};
    return (struct ref_tensor_core){16, 25};
}

/* A finite term: sign * significand * 2^exponent, the significand with its point behind bit 0. */
struct term {
    int32_t significand;
    int exponent;
};

static int bf16_exponent(uint16_t bits) {
    int field = bits >> 7 & 0xff;
    return (field ? field : 1) - 127;
}

static int32_t bf16_significand(uint16_t bits) {
    int32_t fraction = bits & 0x7f;
    return bits & 0x7f80 ? fraction | 0x80 : fraction;
}

static bool bf16_special(uint16_t bits) {
    return (bits & 0x7f80) == 0x7f80;
}

/* A product has 14 bits behind its point. */
static struct term product_of(uint16_t a, uint16_t b) {
    int32_t size = bf16_significand(a) * bf16_significand(b);
    if (size == 0) return (struct term){0, NO_EXPONENT};
    return (struct term){(a ^ b) & 0x8000 ? -size : size, bf16_exponent(a) + bf16_exponent(b)};
}

/* The accumulator has 23 bits behind its point. */
static struct term accumulator_of(float c) {
    uint32_t bits = ref_bits(c);
    int field = (int)(bits >> 23 & 0xff);
    int32_t size = (int32_t)(bits & 0x7fffff);
    if (field) size |= 0x800000;
    if (size == 0) return (struct term){0, NO_EXPONENT};
    return (struct term){bits >> 31 ? -size : size, (field ? field : 1) - 127};
}

/* The term in units of 2^-fraction below the largest exponent, cut off towards zero. */
static int64_t aligned(struct term term, int point, int largest, int fraction) {
    int shift = fraction - point - (largest - term.exponent);
    int64_t size = term.significand < 0 ? -(int64_t)term.significand : term.significand;
    if (shift >= 0)
        size <<= shift;
    else
        size = shift > -63 ? size >> -shift : 0;
    return term.significand < 0 ? -size : size;
}

/* sum * 2^scale as a binary32, cut off towards zero. */
static float cut_off(int64_t sum, int scale) {
    uint64_t size = (uint64_t)(sum < 0 ? -sum : sum);
    if (size == 0) return 0;
    int top = 63 - __builtin_clzll(size) + scale; /* exponent of the leading bit */
    int unit = (top > LEAST_EXPONENT ? top : LEAST_EXPONENT) - 23;
    int drop = unit - scale;
    if (drop > 0) size = drop < 64 ? size >> drop : 0;
    if (drop < 0) size <<= -drop;
    float value = top > 127 ? INFINITY : ldexpf((float)size, unit);
    return sum < 0 ? -value : value;
}

/* With an infinity or NaN among the terms: what the sum of their infinities and NaNs is. */
static float special_sum(const uint16_t *a, const uint16_t *b, uint32_t count, float c) {
    float sum = isfinite(c) ? 0 : c;
    for (uint32_t i = 0; i < count; i++)
        if (bf16_special(a[i]) || bf16_special(b[i]))
            sum += ref_bf16_value(a[i]) * ref_bf16_value(b[i]);
    return ref_one_nan(sum);
}

static float block_sum(int fraction, const uint16_t *a, const uint16_t *b, uint32_t count,
                       float c) {
    struct term product[16], last = accumulator_of(c);
    int largest = last.exponent;
    bool special = !isfinite(c);
    for (uint32_t i = 0; i < count; i++) {
        product[i] = product_of(a[i], b[i]);
        if (product[i].exponent > largest) largest = product[i].exponent;
        special = special || bf16_special(a[i]) || bf16_special(b[i]);
    }
    if (special) return special_sum(a, b, count, c);
    int64_t sum = aligned(last, 23, largest, fraction);
    for (uint32_t i = 0; i < count; i++) sum += aligned(product[i], 14, largest, fraction);
    return cut_off(sum, largest - fraction);
}

float ref_mma_dot(struct ref_tensor_core core, const uint16_t *a, const uint16_t *b, uint32_t count,
                  float c) {
    for (uint32_t i = 0; i < count; i += core.block)
        c = block_sum(core.fraction, a + i, b + i, core.block, c);
    return c;
}
