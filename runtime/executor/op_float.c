/* Floating-point arithmetic, comparison and selection. Multiply and add are never fused here. */
#include "exec.h"
#include "fp.h"

/* ---- f32 ---- */

static inline uint32_t saturate32(uint32_t u) {
    float x = f32_of(u);
    if (!(x > 0)) return 0; /* NaN and -0 too */
    return x > 1 ? 0x3f800000u : u;
}

static uint32_t arithmetic32(enum fp_operation operation, uint32_t x, uint32_t y, uint32_t z) {
    float a = f32_of(x), b = f32_of(y), c = f32_of(z);
    switch (operation) {
    case FP_ADD: return f32_result(a + b);
    case FP_SUB: return f32_result(a - b);
    case FP_MUL: return f32_result(a * b);
    case FP_FMA: return f32_result(fmaf(a, b, c));
    case FP_DIV: return f32_result(a / b);
    case FP_RCP: return f32_result(1.0f / a);
    default: return f32_result(sqrtf(a));
    }
}

/* Any rounding, flush and saturation: the slow and general way. */
static uint32_t general32(const struct op *o, enum fp_operation operation, uint32_t x, uint32_t y,
                          uint32_t z) {
    bool flush = o->flags & FLAG_FTZ;
    if (flush) {
        x = f32_flush(x);
        y = f32_flush(y);
        z = f32_flush(z);
    }
    uint32_t r = o->round > ROUND_RN ? fp_directed(operation, x, y, z, o->round)
                                     : arithmetic32(operation, x, y, z);
    if (flush) r = f32_flush(r);
    return o->flags & FLAG_SAT ? saturate32(r) : r;
}

#define PLAIN32(o) ((o)->round <= ROUND_RN && !((o)->flags & (FLAG_FTZ | FLAG_SAT)))

#define F32_2(name, operation, expression)                                                         \
    OP_FUNCTION(name) {                                                                            \
        const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);                             \
        uint32_t r[LANES];                                                                         \
        if (PLAIN32(o)) {                                                                          \
            const f32_alias *fa = (const f32_alias *)a, *fb = (const f32_alias *)b;                \
            EACH_LANE {                                                                            \
                float x = fa[i], y = fb[i], v = expression;                                        \
                r[i] = v != v ? F32_NAN : f32_bits(v);                                             \
            }                                                                                      \
        } else {                                                                                   \
            EACH_LANE r[i] = general32(o, operation, a[i], b[i], 0);                               \
        }                                                                                          \
        put32(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
    }
F32_2(add_f32, FP_ADD, x + y)
F32_2(sub_f32, FP_SUB, x - y)
F32_2(mul_f32, FP_MUL, x *y)
F32_2(div_f32, FP_DIV, x / y)

static void fused32(struct warp *w, const struct op *o, uint32_t m) {
    const uint32_t *a = source32(w, o->a), *b = source32(w, o->b), *c = source32(w, o->c);
    uint32_t r[LANES];
    if (PLAIN32(o)) {
        const f32_alias *fa = (const f32_alias *)a, *fb = (const f32_alias *)b,
                        *fc = (const f32_alias *)c;
        EACH_LANE {
            float v = __builtin_fmaf(fa[i], fb[i], fc[i]);
            r[i] = v != v ? F32_NAN : f32_bits(v);
        }
    } else {
        EACH_LANE r[i] = general32(o, FP_FMA, a[i], b[i], c[i]);
    }
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c));
}

OP_FUNCTION(fma_f32) {
    fused32(w, o, m);
}

OP_FUNCTION(mad_f32) {
    fused32(w, o, m);
}

#define F32_1(name, expression)                                                                    \
    OP_FUNCTION(name) {                                                                            \
        const uint32_t *a = source32(w, o->a);                                                     \
        uint32_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            uint32_t u = a[i];                                                                     \
            r[i] = expression;                                                                     \
        }                                                                                          \
        put32(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a));                                                \
    }
F32_1(sqrt_f32, general32(o, FP_SQRT, u, 0, 0))
F32_1(rcp_f32, general32(o, FP_RCP, u, 0, 0))

/*
 * Approximate functions: the exact value rounded once. The ISA states an error bound for each, so a
 * chip's last bits may differ; results that are stored must not depend on them.
 */
static float approximate(int function, float x) {
    double v = x;
    switch (function) {
    case FORM_rsqrt_approx_f32: return (float)(1.0 / sqrt(v));
    case FORM_ex2_approx_f32: return (float)exp2(v);
    case FORM_lg2_approx_f32: return (float)log2(v);
    case FORM_sin_approx_f32: return (float)sin(v);
    case FORM_cos_approx_f32: return (float)cos(v);
    default: return (float)tanh(v);
    }
}

static uint32_t approximate32(const struct op *o, int function, uint32_t u) {
    bool flush = o->flags & FLAG_FTZ;
    if (flush) u = f32_flush(u);
    uint32_t r = f32_result(approximate(function, f32_of(u)));
    return flush ? f32_flush(r) : r;
}
F32_1(rsqrt_approx_f32, approximate32(o, FORM_rsqrt_approx_f32, u))
F32_1(ex2_approx_f32, approximate32(o, FORM_ex2_approx_f32, u))
F32_1(lg2_approx_f32, approximate32(o, FORM_lg2_approx_f32, u))
F32_1(sin_approx_f32, approximate32(o, FORM_sin_approx_f32, u))
F32_1(cos_approx_f32, approximate32(o, FORM_cos_approx_f32, u))
F32_1(tanh_approx_f32, approximate32(o, FORM_tanh_approx_f32, u))
F32_1(sqrt_approx_f32, general32(o, FP_SQRT, u, 0, 0))
F32_1(rcp_approx_f32, general32(o, FP_RCP, u, 0, 0))

/* div.approx: beyond 2^126 the divisor's reciprocal underflows to 0. div.full has no such range. */
static uint32_t divide_approximately(const struct op *o, uint32_t x, uint32_t y) {
    uint32_t magnitude = y & 0x7fffffffu;
    if ((o->flags & FLAG_APPROX) && magnitude > 0x7e800000u && magnitude < 0x7f800000u) {
        if ((x & 0x7fffffffu) >= 0x7f800000u) return F32_NAN;
        return (x ^ y) & 0x80000000u;
    }
    return general32(o, FP_DIV, x, y, 0);
}

#define F32_2_SLOW(name, expression)                                                               \
    OP_FUNCTION(name) {                                                                            \
        const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);                             \
        uint32_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            uint32_t x = a[i], y = b[i];                                                           \
            r[i] = expression;                                                                     \
        }                                                                                          \
        put32(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
    }
F32_2_SLOW(div_approx_f32, divide_approximately(o, x, y))
F32_2_SLOW(copysign_f32, (x & 0x80000000u) | (y & 0x7fffffffu))

#define FLUSHED(o, u) ((o)->flags & FLAG_FTZ ? f32_flush(u) : (u))
F32_1(abs_f32, FLUSHED(o, u) & 0x7fffffffu)
F32_1(neg_f32, FLUSHED(o, u) ^ 0x80000000u)

/* The order of minimum and maximum as integers: -0 lies below +0. NaN is for the caller. */
static inline int32_t ordered32(uint32_t u) {
    return (int32_t)(u ^ (uint32_t)((int32_t)u >> 31) >> 1);
}

static inline uint32_t least32(uint32_t x, uint32_t y, bool most) {
    return (ordered32(x) < ordered32(y)) != most ? x : y;
}

static inline uint32_t minimum32(uint32_t x, uint32_t y, bool most, uint32_t flags) {
    if (flags & FLAG_FTZ) {
        x = f32_flush(x);
        y = f32_flush(y);
    }
    uint32_t sign = 0;
    bool xn = (x & 0x7fffffffu) > 0x7f800000u, yn = (y & 0x7fffffffu) > 0x7f800000u;
    if (flags & FLAG_XORSIGN) {
        sign = (x ^ y) & 0x80000000u;
        x &= 0x7fffffffu;
        y &= 0x7fffffffu;
    }
    uint32_t r = least32(x, y, most);
    r = xn ? y : r;
    r = yn ? x : r;
    r |= sign;
    return (xn && yn) || ((flags & FLAG_NAN) && (xn || yn)) ? F32_NAN : r;
}

#define F32_MINIMUM(name, most)                                                                    \
    OP_FUNCTION(name) {                                                                            \
        const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);                             \
        uint32_t r[LANES], flags = o->flags;                                                       \
        EACH_LANE r[i] = minimum32(a[i], b[i], most, flags);                                       \
        put32(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
    }
F32_MINIMUM(min_f32, false)
F32_MINIMUM(max_f32, true)
F32_MINIMUM(min_xorsign_f32, false)
F32_MINIMUM(max_xorsign_f32, true)

/* ---- f64 ---- */

static inline uint64_t f64_result(double x) {
    return x != x ? 0x7ff8000000000000u : f64_bits(x);
}

#define F64_N(name, count, expression)                                                             \
    OP_FUNCTION(name) {                                                                            \
        const f64_alias *a = (const f64_alias *)source32(w, o->a);                                 \
        const f64_alias *b = (count) > 1 ? (const f64_alias *)source32(w, o->b) : a;               \
        const f64_alias *c = (count) > 2 ? (const f64_alias *)source32(w, o->c) : a;               \
        uint64_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            double x = a[i], y = b[i], z = c[i];                                                   \
            (void)y;                                                                               \
            (void)z;                                                                               \
            r[i] = f64_result(expression);                                                         \
        }                                                                                          \
        put64(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m,                                                                      \
               defined_of(w, o->a) & ((count) > 1 ? defined_of(w, o->b) : ALL_LANES) &             \
                   ((count) > 2 ? defined_of(w, o->c) : ALL_LANES));                               \
    }
F64_N(add_f64, 2, x + y)
F64_N(sub_f64, 2, x - y)
F64_N(mul_f64, 2, x *y)
F64_N(fma_f64, 3, fma(x, y, z))
F64_N(mad_f64, 3, fma(x, y, z))
F64_N(div_f64, 2, x / y)
F64_N(rcp_f64, 1, 1.0 / x)
F64_N(sqrt_f64, 1, sqrt(x))

static inline double minimum64(double x, double y, bool most) {
    if (x != x) return y;
    if (y != y) return x;
    if (x == y) return signbit(x) != most ? x : y;
    return (x < y) != most ? x : y;
}
F64_N(min_f64, 2, minimum64(x, y, false))
F64_N(max_f64, 2, minimum64(x, y, true))

#define F64_BITS(name, expression)                                                                 \
    OP_FUNCTION(name) {                                                                            \
        const u64_alias *a = source64(w, o->a), *b = source64(w, o->b ? o->b : o->a);              \
        uint64_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            uint64_t x = a[i], y = b[i];                                                           \
            (void)y;                                                                               \
            r[i] = expression;                                                                     \
        }                                                                                          \
        put64(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
    }
F64_BITS(abs_f64, x & 0x7fffffffffffffffu)
F64_BITS(neg_f64, x ^ 0x8000000000000000u)
F64_BITS(copysign_f64, (x & 0x8000000000000000u) | (y & 0x7fffffffffffffffu))

/* ---- f16 and bf16, single and packed ---- */

static inline float half_value(bool bf16, uint32_t h) {
    return bf16 ? bf16_value(h) : f16_value(h);
}

static inline uint32_t half_flush(uint32_t h) {
    return h & 0x7c00 ? h : h & 0x8000;
}

static inline bool half_nan(bool bf16, uint32_t h) {
    return (h & 0x7fff) > (bf16 ? 0x7f80u : 0x7c00u);
}

static uint32_t half_finish(uint32_t r, bool bf16, uint32_t flags) {
    if ((flags & FLAG_FTZ) && !bf16) r = half_flush(r);
    if (flags & FLAG_SAT) {
        uint32_t one = bf16 ? 0x3f80 : 0x3c00;
        if (half_nan(bf16, r) || (r & 0x8000)) return 0;
        return r > one ? one : r;
    }
    if (flags & FLAG_RELU) {
        if (half_nan(bf16, r)) return 0x7fff;
        if (r & 0x8000) return 0;
    }
    return r;
}

static uint32_t half_arithmetic(const struct op *o, enum fp_operation operation, bool bf16,
                                uint32_t x, uint32_t y, uint32_t z) {
    if ((o->flags & FLAG_FTZ) && !bf16) {
        x = half_flush(x);
        y = half_flush(y);
        z = half_flush(z);
    }
    float a = half_value(bf16, x), b = half_value(bf16, y), c = half_value(bf16, z);
    uint32_t r;
    if (bf16) {
        /* Sums of bf16 round to 24 bits first and stay right (24 >= 2 * 8 + 2); products and fma do
         * not. */
        if (operation == FP_ADD || operation == FP_SUB)
            r = bf16_round(f32_bits(operation == FP_ADD ? a + b : a - b));
        else
            r = fp_encode(fp_exact(operation, a, b, c), &fp_bf16, ROUND_RN, false);
    } else {
        r = fp_encode(fp_exact(operation, a, b, c), &fp_f16, ROUND_RN, false);
    }
    return half_finish(r, bf16, o->flags);
}

static uint32_t half_minimum(const struct op *o, bool bf16, uint32_t x, uint32_t y, bool most) {
    uint32_t flags = o->flags;
    if ((flags & FLAG_FTZ) && !bf16) {
        x = half_flush(x);
        y = half_flush(y);
    }
    bool xn = half_nan(bf16, x), yn = half_nan(bf16, y);
    uint32_t sign = 0;
    if (flags & FLAG_XORSIGN) {
        sign = (x ^ y) & 0x8000;
        x &= 0x7fff;
        y &= 0x7fff;
    }
    /* As f32 bits the order is the same; the low half is zero. */
    uint32_t r = xn ? y : yn ? x : least32(x << 16, y << 16, most) >> 16;
    if ((xn && yn) || ((flags & FLAG_NAN) && (xn || yn))) return 0x7fff;
    return r | sign;
}

#define HALF_BODY(count, both, expression)                                                         \
    const uint32_t *a = source32(w, o->a), *b = (count) > 1 ? source32(w, o->b) : a,               \
                   *c = (count) > 2 ? source32(w, o->c) : a;                                       \
    uint32_t r[LANES];                                                                             \
    EACH_SET_LANE(i, m) {                                                                          \
        uint32_t out = 0;                                                                          \
        for (int half = 0; half <= (both); half++) {                                               \
            uint32_t x = a[i] >> (16 * half) & 0xffff, y = b[i] >> (16 * half) & 0xffff,           \
                     z = c[i] >> (16 * half) & 0xffff;                                             \
            (void)y;                                                                               \
            (void)z;                                                                               \
            out |= (uint32_t)(expression) << (16 * half);                                          \
        }                                                                                          \
        r[i] = out;                                                                                \
    }                                                                                              \
    put_lanes(w, o->d, r, m);                                                                      \
    define(w, o, o->d, m,                                                                          \
           defined_of(w, o->a) & ((count) > 1 ? defined_of(w, o->b) : ALL_LANES) &                 \
               ((count) > 2 ? defined_of(w, o->c) : ALL_LANES));

static inline void put_lanes(struct warp *w, int32_t slot, const uint32_t *value, uint32_t m) {
    uint32_t *d = w->bank[0] + (size_t)slot * LANES;
    EACH_SET_LANE(i, m) d[i] = value[i];
}

#define HALF(name, count, expression)                                                              \
    OP_FUNCTION(name##_f16){HALF_BODY(count, 0, HALF_F16(expression))} OP_FUNCTION(name##_bf16){   \
        HALF_BODY(count, 0, HALF_BF16(expression))} OP_FUNCTION(name##_f16x2){                     \
        HALF_BODY(count, 1, HALF_F16(expression))} OP_FUNCTION(name##_bf16x2) {                    \
        HALF_BODY(count, 1, HALF_BF16(expression))                                                 \
    }
#define HALF_F16(e)                                                                                \
    ({                                                                                             \
        enum { B = 0 };                                                                            \
        e;                                                                                         \
    })
#define HALF_BF16(e)                                                                               \
    ({                                                                                             \
        enum { B = 1 };                                                                            \
        e;                                                                                         \
    })
HALF(add, 2, half_arithmetic(o, FP_ADD, B, x, y, 0))
HALF(sub, 2, half_arithmetic(o, FP_SUB, B, x, y, 0))
HALF(mul, 2, half_arithmetic(o, FP_MUL, B, x, y, 0))
HALF(fma, 3, half_arithmetic(o, FP_FMA, B, x, y, z))
HALF(min, 2, half_minimum(o, B, x, y, false))
HALF(max, 2, half_minimum(o, B, x, y, true))
HALF(min_xorsign, 2, half_minimum(o, B, x, y, false))
HALF(max_xorsign, 2, half_minimum(o, B, x, y, true))
HALF(neg, 1, (((o->flags & FLAG_FTZ) && !B) ? half_flush(x) : x) ^ 0x8000)
HALF(abs, 1, (((o->flags & FLAG_FTZ) && !B) ? half_flush(x) : x) & 0x7fff)

static uint32_t half_approximate(bool bf16, bool flush, int function, uint32_t h) {
    if (flush && !bf16) h = half_flush(h);
    if (flush && bf16 && !(h & 0x7f80)) h &= 0x8000;
    double v = half_value(bf16, h);
    double r = function == FORM_tanh_approx_f32 ? tanh(v) : exp2(v);
    uint32_t code = fp_encode(r, bf16 ? &fp_bf16 : &fp_f16, ROUND_RN, false);
    if (flush && bf16 && !(code & 0x7f80)) code &= 0x8000;
    return code;
}
HALF(ex2_approx, 1, half_approximate(B, o->flags &FLAG_FTZ, FORM_ex2_approx_f32, x))
HALF(tanh_approx, 1, half_approximate(B, false, FORM_tanh_approx_f32, x))

/* ---- comparison ---- */

/* Lanes where the comparison holds, for values that order as T. */
#define COMPARE_CASES(less, equal)                                                                 \
    switch (compare) {                                                                             \
    case CMP_EQ: EACH_LANE r[i] = equal; break;                                                    \
    case CMP_NE: EACH_LANE r[i] = !(equal); break;                                                 \
    case CMP_LT:                                                                                   \
    case CMP_LO: EACH_LANE r[i] = less; break;                                                     \
    case CMP_LE:                                                                                   \
    case CMP_LS: EACH_LANE r[i] = (less) || (equal); break;                                        \
    case CMP_GT:                                                                                   \
    case CMP_HI: EACH_LANE r[i] = !((less) || (equal)); break;                                     \
    default: EACH_LANE r[i] = !(less); break;                                                      \
    }                                                                                              \
    return mask_of8(r)

static inline uint32_t mask_of8(const uint8_t *bytes) {
    uint32_t mask = 0;
    for (int k = 0; k < 4; k++) {
        uint64_t eight;
        memcpy(&eight, bytes + 8 * k, 8);
        mask |= (uint32_t)(eight * 0x0102040810204080u >> 56) << (8 * k);
    }
    return mask;
}

static uint32_t compare_u32(int compare, const uint32_t *a, const uint32_t *b) {
    uint8_t r[LANES];
    COMPARE_CASES(a[i] < b[i], a[i] == b[i]);
}

static uint32_t compare_s32(int compare, const uint32_t *a, const uint32_t *b) {
    uint8_t r[LANES];
    COMPARE_CASES((int32_t)a[i] < (int32_t)b[i], a[i] == b[i]);
}

static uint32_t compare_u64(int compare, const u64_alias *a, const u64_alias *b) {
    uint8_t r[LANES];
    COMPARE_CASES(a[i] < b[i], a[i] == b[i]);
}

static uint32_t compare_s64(int compare, const u64_alias *a, const u64_alias *b) {
    uint8_t r[LANES];
    COMPARE_CASES((int64_t)a[i] < (int64_t)b[i], a[i] == b[i]);
}

/* Ordered comparisons are false with a NaN, the ...u ones true. */
static bool compare_float(int compare, double x, double y) {
    bool unordered = x != x || y != y;
    switch (compare) {
    case CMP_EQ: return x == y;
    case CMP_NE: return !unordered && x != y;
    case CMP_LT: return x < y;
    case CMP_LE: return x <= y;
    case CMP_GT: return x > y;
    case CMP_GE: return x >= y;
    case CMP_EQU: return unordered || x == y;
    case CMP_NEU: return x != y;
    case CMP_LTU: return unordered || x < y;
    case CMP_LEU: return unordered || x <= y;
    case CMP_GTU: return unordered || x > y;
    case CMP_GEU: return unordered || x >= y;
    case CMP_NUM: return !unordered;
    default: return unordered;
    }
}

static uint32_t compare_f32(int compare, const uint32_t *a, const uint32_t *b, bool flush) {
    uint8_t r[LANES];
    if (flush || compare >= CMP_EQU) {
        EACH_LANE r[i] = compare_float(compare, f32_of(flush ? f32_flush(a[i]) : a[i]),
                                       f32_of(flush ? f32_flush(b[i]) : b[i]));
        return mask_of8(r);
    }
    const f32_alias *x = (const f32_alias *)a, *y = (const f32_alias *)b;
    switch (compare) {
    case CMP_EQ: EACH_LANE r[i] = x[i] == y[i]; break;
    case CMP_NE: EACH_LANE r[i] = x[i] < y[i] || x[i] > y[i]; break;
    case CMP_LT: EACH_LANE r[i] = x[i] < y[i]; break;
    case CMP_LE: EACH_LANE r[i] = x[i] <= y[i]; break;
    case CMP_GT: EACH_LANE r[i] = x[i] > y[i]; break;
    default: EACH_LANE r[i] = x[i] >= y[i]; break;
    }
    return mask_of8(r);
}

static uint32_t compare_half(int compare, const uint32_t *a, const uint32_t *b, bool bf16,
                             bool flush, int shift) {
    uint8_t r[LANES];
    EACH_LANE {
        uint32_t x = a[i] >> shift & 0xffff, y = b[i] >> shift & 0xffff;
        if (flush && !bf16) {
            x = half_flush(x);
            y = half_flush(y);
        }
        r[i] = compare_float(compare, half_value(bf16, x), half_value(bf16, y));
    }
    return mask_of8(r);
}

static void widen_s16(uint32_t *to, const uint32_t *from) {
    EACH_LANE to[i] = (uint32_t)(int32_t)(int16_t)from[i];
}

static uint32_t compare_any(struct warp *w, const struct op *o, enum ptx_type type) {
    const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);
    bool flush = o->flags & FLAG_FTZ;
    switch (type) {
    case T_S16: {
        uint32_t x[LANES], y[LANES];
        widen_s16(x, a);
        widen_s16(y, b);
        return compare_s32(o->compare, x, y);
    }
    case T_S32: return compare_s32(o->compare, a, b);
    case T_B64:
    case T_U64: return compare_u64(o->compare, (const u64_alias *)a, (const u64_alias *)b);
    case T_S64: return compare_s64(o->compare, (const u64_alias *)a, (const u64_alias *)b);
    case T_F32: return compare_f32(o->compare, a, b, flush);
    case T_F64: {
        uint8_t r[LANES];
        EACH_LANE r[i] =
            compare_float(o->compare, ((const f64_alias *)a)[i], ((const f64_alias *)b)[i]);
        return mask_of8(r);
    }
    case T_F16:
    case T_F16X2: return compare_half(o->compare, a, b, false, flush, 0);
    case T_BF16:
    case T_BF16X2: return compare_half(o->compare, a, b, true, flush, 0);
    default: return compare_u32(o->compare, a, b);
    }
}

static uint32_t combine(int mode, uint32_t x, uint32_t y) {
    switch (mode) {
    case MODE_AND: return x & y;
    case MODE_OR: return x | y;
    case MODE_XOR: return x ^ y;
    default: return x;
    }
}

/* A conjunction with a known false is known, whatever the other side; a disjunction with a true. */
static uint32_t combine_known(int mode, uint32_t x, uint32_t known_x, uint32_t y,
                              uint32_t known_y) {
    uint32_t both = known_x & known_y;
    if (mode == MODE_AND) return both | (known_x & ~x) | (known_y & ~y);
    if (mode == MODE_OR) return both | (known_x & x) | (known_y & y);
    return both;
}

static void set_pair(struct warp *w, const struct op *o, uint32_t m, uint32_t first,
                     uint32_t second) {
    uint32_t p = predicate_of(w, o);
    uint32_t known = defined_of(w, o->a) & defined_of(w, o->b);
    uint32_t known_p = w->predicates_defined[o->p];
    put_predicate(w, o->d, m, combine(o->mode, first, p),
                  combine_known(o->mode, first, known, p, known_p));
    put_predicate(w, o->d2, m, combine(o->mode, second, p),
                  combine_known(o->mode, second, known, p, known_p));
}

/* Without a third source the predicate that is combined is the constant one and no mode is set. */
#define SETP(name)                                                                                 \
    OP_FUNCTION(name) {                                                                            \
        uint32_t r = compare_any(w, o, (enum ptx_type)o->type);                                    \
        set_pair(w, o, m, r, ~r);                                                                  \
    }
SETP(setp_b)
SETP(setp_b_combine)
SETP(setp_s)
SETP(setp_s_combine)
SETP(setp_u)
SETP(setp_u_combine)
SETP(setp_f32)
SETP(setp_f32_combine)
SETP(setp_f64)
SETP(setp_f64_combine)
SETP(setp_f16)
SETP(setp_f16_combine)
SETP(setp_bf16)
SETP(setp_bf16_combine)

/* Of packed halves the first predicate is the low half's result, the second the high half's. */
static void setp_packed(struct warp *w, const struct op *o, uint32_t m) {
    const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);
    bool bf16 = o->type == T_BF16X2, flush = o->flags & FLAG_FTZ;
    set_pair(w, o, m, compare_half(o->compare, a, b, bf16, flush, 0),
             compare_half(o->compare, a, b, bf16, flush, 16));
}

#define SETP_PACKED(name)                                                                          \
    OP_FUNCTION(name) {                                                                            \
        setp_packed(w, o, m);                                                                      \
    }
SETP_PACKED(setp_f16x2)
SETP_PACKED(setp_f16x2_combine)
SETP_PACKED(setp_bf16x2)
SETP_PACKED(setp_bf16x2_combine)

static void set_value(struct warp *w, const struct op *o, uint32_t m) {
    uint32_t r = compare_any(w, o, (enum ptx_type)o->type2);
    r = combine(o->mode, r, predicate_of(w, o));
    uint32_t yes = o->type == T_F32 ? 0x3f800000u : UINT32_MAX, v[LANES];
    EACH_LANE v[i] = r >> i & 1 ? yes : 0;
    put32(w, o->d, v, m);
    define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & w->predicates_defined[o->p]);
}

#define SET(name)                                                                                  \
    OP_FUNCTION(name) {                                                                            \
        set_value(w, o, m);                                                                        \
    }
SET(set_b)
SET(set_b_combine)
SET(set_s)
SET(set_s_combine)
SET(set_u)
SET(set_u_combine)
SET(set_f32)
SET(set_f32_combine)
SET(set_f64)
SET(set_f64_combine)
SET(set_f16)
SET(set_f16_combine)
SET(set_bf16)
SET(set_bf16_combine)

/* ---- selection ---- */

#define SELECT(name, T, source, put)                                                               \
    OP_FUNCTION(name) {                                                                            \
        const T *a = source(w, o->a), *b = source(w, o->b);                                        \
        uint32_t p = predicate_of(w, o);                                                           \
        SELECT_T_##T r[LANES];                                                                     \
        EACH_LANE r[i] = p >> i & 1 ? a[i] : b[i];                                                 \
        put(w, o->d, r, m);                                                                        \
        define(w, o, o->d, m,                                                                      \
               w->predicates_defined[o->p] &                                                       \
                   ((p & defined_of(w, o->a)) | (~p & defined_of(w, o->b))));                      \
    }
#define SELECT_T_uint32_t  uint32_t
#define SELECT_T_u64_alias uint64_t
SELECT(selp_b16, uint32_t, source32, put32)
SELECT(selp_b32, uint32_t, source32, put32)
SELECT(selp_b64, u64_alias, source64, put64)

#define SLCT(name, T, source, put)                                                                 \
    OP_FUNCTION(name) {                                                                            \
        const T *a = source(w, o->a), *b = source(w, o->b);                                        \
        const uint32_t *c = source32(w, o->c);                                                     \
        bool is_float = o->type2 == T_F32, flush = o->flags & FLAG_FTZ;                            \
        SELECT_T_##T r[LANES];                                                                     \
        EACH_LANE {                                                                                \
            uint32_t u = flush ? f32_flush(c[i]) : c[i];                                           \
            bool first = is_float ? f32_of(u) >= 0 : (int32_t)u >= 0;                              \
            r[i] = first ? a[i] : b[i];                                                            \
        }                                                                                          \
        put(w, o->d, r, m);                                                                        \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c));    \
    }
SLCT(slct_b16, uint32_t, source32, put32)
SLCT(slct_b32, uint32_t, source32, put32)
SLCT(slct_b64, u64_alias, source64, put64)
SLCT(slct_f32_b16, uint32_t, source32, put32)
SLCT(slct_f32_b32, uint32_t, source32, put32)
SLCT(slct_f32_b64, u64_alias, source64, put64)

/* ---- class of a number ---- */

#define TESTP(name, kind)                                                                          \
    OP_FUNCTION(name) {                                                                            \
        uint8_t r[LANES];                                                                          \
        EACH_LANE {                                                                                \
            int class = o->type == T_F64 ? fpclassify(((const f64_alias *)source32(w, o->a))[i])   \
                                         : fpclassify(((const f32_alias *)source32(w, o->a))[i]);  \
            r[i] = kind;                                                                           \
        }                                                                                          \
        put_predicate(w, o->d, m, mask_of8(r), defined_of(w, o->a));                               \
    }
TESTP(testp_finite, class != FP_NAN && class != FP_INFINITE)
TESTP(testp_infinite, class == FP_INFINITE)
TESTP(testp_number, class != FP_NAN)
TESTP(testp_notanumber, class == FP_NAN)
TESTP(testp_normal, class == FP_NORMAL)
TESTP(testp_subnormal, class == FP_SUBNORMAL)
