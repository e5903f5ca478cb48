#include "tensor.h"

#include "convert.h"

#include <math.h>

#define LARGEST_BLOCK 16

/* A term: magnitude * 2^(exponent - fraction), fraction bits below the binary point. */
struct term {
    int64_t magnitude; /* with its sign */
    int exponent, fraction;
};

struct ref_chip ref_chip_of(int capability) {
    return capability < 90 ? (struct ref_chip){8, 24} : (struct ref_chip){16, 25};
}

/* A bf16's significand of 8 bits with its sign, and its exponent; subnormals are not normalised. */
static struct term split_bf16(uint16_t bits) {
    int field = bits >> 7 & 255, significand = bits & 127;
    if (field) significand |= 128;
    return (struct term){bits & 0x8000 ? -significand : significand, field ? field - 127 : -126, 7};
}

static struct term split_f32(float value) {
    uint32_t bits = ref_bits(value), field = bits >> 23 & 255;
    int64_t significand = bits & 0x7fffff;
    if (field) significand |= 0x800000;
    return (struct term){bits >> 31 ? -significand : significand, field ? (int)field - 127 : -126,
                         23};
}

/* Cut a term to `bits` fraction bits at exponent `top`, toward zero. */
static int64_t aligned(struct term term, int top, int bits) {
    int up = bits - term.fraction, down = top - term.exponent;
    int64_t magnitude = term.magnitude < 0 ? -term.magnitude : term.magnitude;
    magnitude = up >= 0 ? magnitude << up : magnitude >> -up;
    magnitude = down < 63 ? magnitude >> down : 0;
    return term.magnitude < 0 ? -magnitude : magnitude;
}

/* sum * 2^exponent, toward zero. */
static float cut_to_f32(int64_t sum, int exponent) {
    uint64_t magnitude = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    if (!magnitude) return 0;
    int top = 63 - __builtin_clzll(magnitude);                       /* the leading bit's number */
    int lowest = top + exponent < -126 ? -149 - exponent : top - 23; /* the last bit kept */
    if (lowest > 63) return 0;
    if (lowest > 0) magnitude = magnitude >> lowest << lowest;
    float value = (float)ldexp((double)magnitude, exponent); /* exact, or infinite */
    return sum < 0 ? -value : value;
}

/* What a block gives that holds a NaN or an infinity; false if it holds none. */
static bool special(const uint16_t *a, const uint16_t *b, size_t b_step, uint32_t count, float c,
                    float *out) {
    float sum = 0;
    bool any = !isfinite(c);
    if (any) sum += c;
    for (uint32_t i = 0; i < count; i++) {
        float x = ref_bf16_value(a[i]), y = ref_bf16_value(b[i * b_step]);
        if (isfinite(x) && isfinite(y)) continue;
        any = true;
        sum += x * y;
    }
    *out = isnan(sum) ? ref_float(0x7fffffff) : sum;
    return any;
}

static float block_dot(struct ref_chip chip, const uint16_t *a, const uint16_t *b, size_t b_step,
                       float c) {
    struct term terms[LARGEST_BLOCK + 1];
    int top = -10000, bits = (int)chip.bits;
    int64_t sum = 0;
    float out;
    if (special(a, b, b_step, chip.block, c, &out)) return out;
    for (uint32_t i = 0; i < chip.block; i++) {
        struct term x = split_bf16(a[i]), y = split_bf16(b[i * b_step]);
        terms[i] = (struct term){x.magnitude * y.magnitude, x.exponent + y.exponent, 14};
    }
    terms[chip.block] = split_f32(c);
    for (uint32_t i = 0; i <= chip.block; i++)
        if (terms[i].magnitude && terms[i].exponent > top) top = terms[i].exponent;
    for (uint32_t i = 0; i <= chip.block; i++)
        if (terms[i].magnitude) sum += aligned(terms[i], top, bits);
    return cut_to_f32(sum, top - bits);
}

float ref_mma(struct ref_chip chip, const uint16_t *a, const uint16_t *b, size_t b_step, uint32_t k,
              float c) {
    for (uint32_t i = 0; i < k; i += chip.block)
        c = block_dot(chip, a + i, b + i * b_step, b_step, c);
    return c;
}
