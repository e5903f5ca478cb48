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

/*
 * The gross approximations of doubles: only the upper 32 bits of the operand are looked at, and of
 * the result only they are given, with subnormals flushed.
 */
static double upper64(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    u &= 0xffffffff00000000u;
    if (!(u & 0x7ff0000000000000u)) u &= 0x8000000000000000u;
    memcpy(&x, &u, sizeof x);
    return x;
}
static double reciprocal_root(bool gross, double x) {
    return gross ? upper64(1.0 / sqrt(upper64(x))) : (double)(1.0L / sqrtl(x));
}

F64_N(rcp_approx_f64, 1, upper64(1.0 / upper64(x)))
F64_N(rsqrt_approx_f64, 1, reciprocal_root(o->flags &FLAG_FTZ, x))

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
