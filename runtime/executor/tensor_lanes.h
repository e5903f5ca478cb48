/*
 * The arithmetic of tensor.h on rows of accumulators, written to be vectorised: included by
 * op_mma.c in each compilation and by the scalar entry for tests.
 */
#ifndef EXECUTOR_TENSOR_LANES_H
#define EXECUTOR_TENSOR_LANES_H

#include "fp.h"
#include "tensor.h"

enum { NO_EXPONENT = -100000, TENSOR_COLUMNS = 8 };

/* A factor taken apart: signed significand, exponent, and whether it is NaN (2) or infinite (1). */
struct tensor_factor {
    int32_t significand, exponent;
    uint32_t special;
};

static inline struct tensor_factor tensor_unpack(const struct tensor_format *f, uint32_t code) {
    uint32_t top = (1u << f->exponent_bits) - 1;
    uint32_t exponent = code >> f->fraction & top, fraction = code & ((1u << f->fraction) - 1);
    bool negative = code >> (f->fraction + f->exponent_bits) & 1;
    struct tensor_factor r = {0, 0, 0};
    if (exponent == top && f->infinities) {
        r.special = fraction ? 2 : 1;
    } else if (!f->infinities && exponent == top && fraction == (1u << f->fraction) - 1) {
        r.special = 2;
    }
    uint32_t significand = exponent ? fraction | 1u << f->fraction : fraction;
    r.exponent = (exponent ? (int32_t)exponent : 1) - f->bias;
    if (!significand) r.exponent = NO_EXPONENT;
    r.significand = negative ? -(int32_t)significand : (int32_t)significand;
    return r;
}

/* The f32 with the magnitude total * 2^(exponent - fraction), cut to `result` fraction bits. */
static inline uint32_t tensor_pack(int64_t total, int32_t exponent, int fraction, int result) {
    if (total == 0) return 0;
    uint64_t magnitude = total < 0 ? 0 - (uint64_t)total : (uint64_t)total;
    uint32_t sign = total < 0 ? 0x80000000u : 0;
    int lead = 63 - __builtin_clzll(magnitude);
    int e = exponent - fraction + lead;
    int drop = lead - result;
    if (e < -126) drop += -126 - e;
    if (drop > 0) magnitude = drop > 63 ? 0 : magnitude >> drop << (drop > 63 ? 0 : drop);
    if (!magnitude) return sign;
    if (e > 127) return sign | 0x7f800000u;
    /* Now at most 24 bits are left: exact in f32. */
    int shift = lead - 23;
    uint32_t bits = (uint32_t)(shift >= 0 ? magnitude >> shift : magnitude << -shift);
    if (e >= -126) return sign | (uint32_t)(e + 127) << 23 | (bits & 0x7fffffu);
    return sign | bits >> (-126 - e);
}

/*
 * One step for `TENSOR_COLUMNS` accumulators of one row: a[k] are the row's factors, b[k][column]
 * the columns'. `shift` brings a product's fraction bits to the rule's.
 */
static inline void tensor_step(const int32_t *as, const int32_t *ae,
                               const int32_t (*bs)[TENSOR_COLUMNS],
                               const int32_t (*be)[TENSOR_COLUMNS], int k, int product_fraction,
                               int fraction, int result, uint32_t *c) {
    int32_t highest[TENSOR_COLUMNS], ce[TENSOR_COLUMNS], cs[TENSOR_COLUMNS];
    for (int n = 0; n < TENSOR_COLUMNS; n++) {
        uint32_t e = c[n] >> 23 & 255;
        int32_t s = (int32_t)(c[n] & 0x7fffff) | (e ? 0x800000 : 0);
        ce[n] = (e ? (int32_t)e : 1) - 127;
        ce[n] = s ? ce[n] : NO_EXPONENT;
        cs[n] = s;
        highest[n] = ce[n];
    }
    for (int i = 0; i < k; i++)
        for (int n = 0; n < TENSOR_COLUMNS; n++) {
            int32_t e = ae[i] + be[i][n];
            highest[n] = e > highest[n] ? e : highest[n];
        }
    /* Products have up to 27 bits at 25 fraction bits: sums of eight fit 32 bits. */
    int64_t total[TENSOR_COLUMNS] = {0};
    int up = fraction - product_fraction;
    for (int start = 0; start < k; start += 8) {
        int32_t part[TENSOR_COLUMNS] = {0};
        int end = start + 8 < k ? start + 8 : k;
        for (int i = start; i < end; i++)
            for (int n = 0; n < TENSOR_COLUMNS; n++) {
                int32_t p = as[i] * bs[i][n];
                int32_t sign = p >> 31, down = highest[n] - (ae[i] + be[i][n]);
                uint32_t magnitude = (uint32_t)((p ^ sign) - sign);
                if (up >= 0)
                    magnitude <<= up;
                else
                    down -= up;
                down = down > 31 ? 31 : down;
                int32_t aligned = (int32_t)(magnitude >> down);
                part[n] += (aligned ^ sign) - sign;
            }
        for (int n = 0; n < TENSOR_COLUMNS; n++) total[n] += part[n];
    }
    for (int n = 0; n < TENSOR_COLUMNS; n++) {
        int32_t down = highest[n] - ce[n];
        int64_t aligned = fraction >= 23 ? (int64_t)cs[n] << (fraction - 23) : cs[n];
        if (fraction < 23) down += 23 - fraction;
        aligned = down > 62 ? 0 : aligned >> down;
        total[n] += c[n] >> 31 ? -aligned : aligned;
        /* A sum that overflowed in an earlier block stays infinite. */
        uint32_t sum = tensor_pack(total[n], highest[n], fraction, result);
        c[n] = (c[n] & 0x7f800000) == 0x7f800000 ? c[n] : sum;
    }
}

/* What NaN and infinity among factors and accumulator make of the result; 0 when there are none. */
static inline uint32_t tensor_special(const struct tensor_factor *a, const struct tensor_factor *b,
                                      int b_step, int k, uint32_t c) {
    bool nan = (c & 0x7fffffff) > 0x7f800000, plus = c == 0x7f800000, minus = c == 0xff800000;
    for (int i = 0; i < k; i++) {
        const struct tensor_factor *x = &a[i], *y = &b[i * b_step];
        if (!(x->special | y->special)) continue;
        if ((x->special | y->special) & 2)
            nan = true;
        else if (!x->significand || !y->significand)
            nan = true; /* infinity times zero */
        else if ((x->significand < 0) != (y->significand < 0))
            minus = true;
        else
            plus = true;
    }
    if (nan || (plus && minus)) return F32_NAN;
    return plus ? 0x7f800000u : minus ? 0xff800000u : 0;
}

#endif
