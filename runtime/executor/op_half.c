/* f16 and bf16, single and packed. */
#include "exec.h"
#include "fp.h"

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
