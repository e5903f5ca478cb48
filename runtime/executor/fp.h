/*
 * Floating-point formats in integer code: exact decoding, and encoding with any rounding. Sources:
 * IEEE 754 for f16 and f32; the OCP 8-bit formats for e4m3 and e5m2. NaN results are the chips':
 * 0x7fffffff, 0x7fff, 0x7f.
 */
#ifndef EXECUTOR_FP_H
#define EXECUTOR_FP_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ptx.h"

#define F32_NAN 0x7fffffffu

static inline uint32_t f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline uint64_t f64_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double f64_of(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Bits of a result, every NaN made the chip's. */
static inline uint32_t f32_result(float x) {
    return x != x ? F32_NAN : f32_bits(x);
}

static inline uint32_t f32_flush(uint32_t u) {
    return (u & 0x7f800000u) ? u : u & 0x80000000u;
}

static inline float f16_value(uint32_t h) {
    uint32_t magnitude = h & 0x7fff;
    uint32_t u = f32_bits(f32_of(magnitude << 13) * 0x1p112f);
    u |= magnitude >= 0x7c00 ? 0x7f800000u : 0;
    return f32_of(u | (h & 0x8000) << 16);
}

static inline float bf16_value(uint32_t h) {
    return f32_of(h << 16);
}

/* Round to nearest even; NaN becomes 0x7fff. */
static inline uint32_t bf16_round(uint32_t u) {
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded;
}

static inline float e4m3_value(uint32_t code) {
    uint32_t magnitude = code & 0x7f;
    float x = f32_of(magnitude << 20) * 0x1p120f; /* bias 7 against 127 */
    uint32_t u = magnitude == 0x7f ? F32_NAN : f32_bits(x);
    return f32_of(u | (magnitude == 0x7f ? 0 : (code & 0x80) << 24));
}

static inline float e5m2_value(uint32_t code) {
    return f16_value((code & 0xff) << 8);
}

/* The order of minimum and maximum as integers: -0 lies below +0. NaN is for the caller. */
static inline int32_t ordered32(uint32_t u) {
    return (int32_t)(u ^ (uint32_t)((int32_t)u >> 31) >> 1);
}

static inline uint32_t least32(uint32_t x, uint32_t y, bool most) {
    return (ordered32(x) < ordered32(y)) != most ? x : y;
}

/* f16 or bf16. */
static inline float half_value(bool bf16, uint32_t h) {
    return bf16 ? bf16_value(h) : f16_value(h);
}

static inline uint32_t half_flush(uint32_t h) {
    return h & 0x7c00 ? h : h & 0x8000;
}

static inline bool half_nan(bool bf16, uint32_t h) {
    return (h & 0x7fff) > (bf16 ? 0x7f80u : 0x7c00u);
}

struct fp_format {
    int mantissa, lowest;   /* fraction bits; exponent of the least normal number */
    uint32_t largest;       /* code of the largest finite number, without its sign */
    uint32_t infinity, nan; /* codes; infinity 0 when there is none */
    unsigned sign_shift;
};

/* f16, bf16, f32, tf32 (an f32 with 10 fraction bits), e4m3, e5m2. */
extern const struct fp_format fp_f16, fp_bf16, fp_f32, fp_tf32, fp_e4m3, fp_e5m2;

/* The code nearest to x by `round`; beyond the largest number, infinity or (saturate) the largest.
 */
uint32_t fp_encode(double x, const struct fp_format *format, enum ptx_round round, bool saturate);

/* hi + lo with |lo| below half a unit of hi, as one double rounded to odd: rounds again correctly.
 */
static inline double fp_odd(double hi, double lo) {
    uint64_t u = f64_bits(hi);
    if (lo == 0 || (u & 0x7ff0000000000000u) == 0x7ff0000000000000u) return hi;
    if (hi == 0) return lo;
    if ((lo < 0) != (hi < 0)) u--;
    return f64_of(u | 1);
}

/* a + b exactly as sum and error (Knuth); both finite. */
static inline double fp_sum_odd(double a, double b) {
    double s = a + b;
    if (!(fabs(s) <= 0x1p1023)) return s;
    double t = s - a;
    return fp_odd(s, (a - (s - t)) + (b - t));
}

enum fp_operation { FP_ADD, FP_SUB, FP_MUL, FP_FMA, FP_DIV, FP_RCP, FP_SQRT };

/* An f32 operation with a directed rounding, by bits. */
uint32_t fp_directed(enum fp_operation operation, uint32_t x, uint32_t y, uint32_t z,
                     enum ptx_round round);
/* The exact result rounded to odd in binary64: for encoding into f16 or bf16. */
double fp_exact(enum fp_operation operation, double x, double y, double z);

#endif
