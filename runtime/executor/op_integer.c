/* Integer, logic, shift and bit-field operations, comparison and selection of integers. */
#include "exec.h"

/* In every body x, y, z are the operands of a lane, `result` is what it yields. */
#define BODY1(T, source, put, expression)                                                          \
    const T *a = source(w, o->a);                                                                  \
    T_##T r[LANES];                                                                                \
    EACH_LANE {                                                                                    \
        T_##T x = a[i];                                                                            \
        r[i] = (T_##T)(expression);                                                                \
    }                                                                                              \
    put(w, o->d, r, m);                                                                            \
    define(w, o, o->d, m, defined_of(w, o->a));

#define BODY2(T, source, put, expression)                                                          \
    const T *a = source(w, o->a), *b = source(w, o->b);                                            \
    T_##T r[LANES];                                                                                \
    EACH_LANE {                                                                                    \
        T_##T x = a[i], y = b[i];                                                                  \
        r[i] = (T_##T)(expression);                                                                \
    }                                                                                              \
    put(w, o->d, r, m);                                                                            \
    define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));

#define BODY3(T, source, put, expression)                                                          \
    const T *a = source(w, o->a), *b = source(w, o->b), *c = source(w, o->c);                      \
    T_##T r[LANES];                                                                                \
    EACH_LANE {                                                                                    \
        T_##T x = a[i], y = b[i], z = c[i];                                                        \
        r[i] = (T_##T)(expression);                                                                \
    }                                                                                              \
    put(w, o->d, r, m);                                                                            \
    define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c));

#define T_uint32_t  uint32_t
#define T_u64_alias uint64_t

#define INT16_1(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY1(uint32_t, source32, put32, (e)&0xffff)                                               \
    }
#define INT16_2(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY2(uint32_t, source32, put32, (e)&0xffff)                                               \
    }
#define INT16_3(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY3(uint32_t, source32, put32, (e)&0xffff)                                               \
    }
#define INT32_1(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY1(uint32_t, source32, put32, e)                                                        \
    }
#define INT32_2(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY2(uint32_t, source32, put32, e)                                                        \
    }
#define INT32_3(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY3(uint32_t, source32, put32, e)                                                        \
    }
#define INT64_1(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY1(u64_alias, source64, put64, e)                                                       \
    }
#define INT64_2(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY2(u64_alias, source64, put64, e)                                                       \
    }
#define INT64_3(name, e)                                                                           \
    OP_FUNCTION(name) {                                                                            \
        BODY3(u64_alias, source64, put64, e)                                                       \
    }

/* Reading a value as signed. */
#define H(v) ((int32_t)(int16_t)(v))
#define I(v) ((int32_t)(v))
#define Q(v) ((int64_t)(v))

/* ---- add, subtract, multiply ---- */

INT16_2(add_b16, x + y)
INT32_2(add_b32, x + y)
INT64_2(add_b64, x + y)
INT16_2(sub_b16, x - y)
INT32_2(sub_b32, x - y)
INT64_2(sub_b64, x - y)

static inline uint32_t clamp_s32(int64_t v) {
    return (uint32_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}

INT32_2(add_sat_s32, clamp_s32((int64_t)I(x) + I(y)))
INT32_2(sub_sat_s32, clamp_s32((int64_t)I(x) - I(y)))

#define HALVES(low, high) (((low)&0xffff) | (uint32_t)(high) << 16)
INT32_2(add_b16x2, HALVES(x + y, (x >> 16) + (y >> 16)))

INT16_2(mul_lo_b16, x *y)
INT32_2(mul_lo_b32, x *y)
INT64_2(mul_lo_b64, x *y)
INT16_2(mul_hi_u16, (x * y) >> 16)
INT16_2(mul_hi_s16, (uint32_t)(H(x) * H(y)) >> 16)
INT32_2(mul_hi_u32, (uint64_t)x *y >> 32)
INT32_2(mul_hi_s32, (uint64_t)((int64_t)I(x) * I(y)) >> 32)
INT64_2(mul_hi_u64, (unsigned __int128)x *y >> 64)
INT64_2(mul_hi_s64, (unsigned __int128)((__int128)Q(x) * Q(y)) >> 64)
INT32_2(mul_wide_u16, (x & 0xffff) * (y & 0xffff))
INT32_2(mul_wide_s16, H(x) * H(y))

INT16_3(mad_lo_b16, x *y + z)
INT32_3(mad_lo_b32, x *y + z)
INT64_3(mad_lo_b64, x *y + z)
INT16_3(mad_hi_u16, ((x * y) >> 16) + z)
INT16_3(mad_hi_s16, ((uint32_t)(H(x) * H(y)) >> 16) + z)
INT32_3(mad_hi_u32, (uint32_t)((uint64_t)x *y >> 32) + z)
INT32_3(mad_hi_s32, (uint32_t)((uint64_t)((int64_t)I(x) * I(y)) >> 32) + z)
INT32_3(mad_hi_sat_s32, clamp_s32(((int64_t)I(x) * I(y) >> 32) + I(z)))
INT64_3(mad_hi_u64, (uint64_t)((unsigned __int128)x *y >> 64) + z)
INT64_3(mad_hi_s64, (uint64_t)((unsigned __int128)((__int128)Q(x) * Q(y)) >> 64) + z)
INT32_3(mad_wide_u16, (x & 0xffff) * (y & 0xffff) + z)
INT32_3(mad_wide_s16, (uint32_t)(H(x) * H(y)) + z)

#define WIDE2(name, product)                                                                       \
    OP_FUNCTION(name) {                                                                            \
        const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);                             \
        uint64_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            uint32_t x = a[i], y = b[i];                                                           \
            r[i] = (uint64_t)(product);                                                            \
        }                                                                                          \
        put64(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
    }
WIDE2(mul_wide_u32, (uint64_t)x *y)
WIDE2(mul_wide_s32, (int64_t)I(x) * I(y))

#define WIDE3(name, product)                                                                       \
    OP_FUNCTION(name) {                                                                            \
        const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);                             \
        const u64_alias *c = source64(w, o->c);                                                    \
        uint64_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            uint32_t x = a[i], y = b[i];                                                           \
            r[i] = (uint64_t)(product) + c[i];                                                     \
        }                                                                                          \
        put64(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c));    \
    }
WIDE3(mad_wide_u32, (uint64_t)x *y)
WIDE3(mad_wide_s32, (int64_t)I(x) * I(y))

static inline int32_t low24(uint32_t v) {
    return (int32_t)(v << 8) >> 8;
}

INT32_2(mul24_lo_u32, (x & 0xffffff) * (y & 0xffffff))
INT32_2(mul24_hi_u32, (uint64_t)(x & 0xffffff) * (y & 0xffffff) >> 16)
INT32_2(mul24_lo_s32, (int64_t)low24(x) * low24(y))
INT32_2(mul24_hi_s32, (int64_t)low24(x) * low24(y) >> 16)
INT32_3(mad24_lo_u32, (x & 0xffffff) * (y & 0xffffff) + z)
INT32_3(mad24_hi_u32, (uint32_t)((uint64_t)(x & 0xffffff) * (y & 0xffffff) >> 16) + z)
INT32_3(mad24_lo_s32, (uint32_t)((int64_t)low24(x) * low24(y)) + z)
INT32_3(mad24_hi_s32, (uint32_t)((int64_t)low24(x) * low24(y) >> 16) + z)
INT32_3(mad24_hi_sat_s32, clamp_s32(((int64_t)low24(x) * low24(y) >> 16) + I(z)))

INT16_3(sad_u16, (x > y ? x - y : y - x) + z)
INT16_3(sad_s16, (uint32_t)(H(x) > H(y) ? H(x) - H(y) : H(y) - H(x)) + z)
INT32_3(sad_u32, (x > y ? x - y : y - x) + z)
INT32_3(sad_s32, (I(x) > I(y) ? x - y : y - x) + z)
INT64_3(sad_u64, (x > y ? x - y : y - x) + z)
INT64_3(sad_s64, (Q(x) > Q(y) ? x - y : y - x) + z)

/* ---- divide: by zero gives all ones and the dividend, as the chips do ---- */

INT16_2(div_u16, y ? x / y : 0xffff)
INT16_2(div_s16, H(y) ? (uint32_t)(H(x) / H(y)) : 0xffff)
INT32_2(div_u32, y ? x / y : UINT32_MAX)
INT32_2(div_s32, !y ? UINT32_MAX : I(y) == -1 ? 0 - x : (uint32_t)(I(x) / I(y)))
INT64_2(div_u64, y ? x / y : UINT64_MAX)
INT64_2(div_s64, !y ? UINT64_MAX : Q(y) == -1 ? 0 - x : (uint64_t)(Q(x) / Q(y)))
INT16_2(rem_u16, y ? x % y : x)
INT16_2(rem_s16, H(y) ? (uint32_t)(H(x) % H(y)) : x)
INT32_2(rem_u32, y ? x % y : x)
INT32_2(rem_s32, !y ? x : I(y) == -1 ? 0 : (uint32_t)(I(x) % I(y)))
INT64_2(rem_u64, y ? x % y : x)
INT64_2(rem_s64, !y ? x : Q(y) == -1 ? 0 : (uint64_t)(Q(x) % Q(y)))

/* ---- sign, minimum, maximum ---- */

INT16_1(abs_s16, H(x) < 0 ? 0 - x : x)
INT32_1(abs_s32, I(x) < 0 ? 0 - x : x)
INT64_1(abs_s64, Q(x) < 0 ? 0 - x : x)
INT16_1(neg_s16, 0 - x)
INT32_1(neg_s32, 0 - x)
INT64_1(neg_s64, 0 - x)

INT16_2(min_u16, x < y ? x : y)
INT16_2(min_s16, H(x) < H(y) ? x : y)
INT32_2(min_u32, x < y ? x : y)
INT32_2(min_s32, I(x) < I(y) ? x : y)
INT64_2(min_u64, x < y ? x : y)
INT64_2(min_s64, Q(x) < Q(y) ? x : y)
INT16_2(max_u16, x > y ? x : y)
INT16_2(max_s16, H(x) > H(y) ? x : y)
INT32_2(max_u32, x > y ? x : y)
INT32_2(max_s32, I(x) > I(y) ? x : y)
INT64_2(max_u64, x > y ? x : y)
INT64_2(max_s64, Q(x) > Q(y) ? x : y)

static inline int32_t least(int32_t x, int32_t y) {
    return x < y ? x : y;
}

static inline int32_t most(int32_t x, int32_t y) {
    return x > y ? x : y;
}

#define LOW(v)  ((v)&0xffff)
#define HIGH(v) ((v) >> 16)
INT32_2(min_relu_s32, most(least(I(x), I(y)), 0))
INT32_2(max_relu_s32, most(most(I(x), I(y)), 0))
INT32_2(min_u16x2, HALVES(LOW(x) < LOW(y) ? LOW(x) : LOW(y), HIGH(x) < HIGH(y) ? HIGH(x) : HIGH(y)))
INT32_2(max_u16x2, HALVES(LOW(x) > LOW(y) ? LOW(x) : LOW(y), HIGH(x) > HIGH(y) ? HIGH(x) : HIGH(y)))
INT32_2(min_s16x2, HALVES((uint32_t)least(H(x), H(y)), (uint32_t)least(H(x >> 16), H(y >> 16))))
INT32_2(max_s16x2, HALVES((uint32_t)most(H(x), H(y)), (uint32_t)most(H(x >> 16), H(y >> 16))))
INT32_2(min_relu_s16x2, HALVES((uint32_t)most(least(H(x), H(y)), 0),
                               (uint32_t)most(least(H(x >> 16), H(y >> 16)), 0)))
INT32_2(max_relu_s16x2, HALVES((uint32_t)most(most(H(x), H(y)), 0),
                               (uint32_t)most(most(H(x >> 16), H(y >> 16)), 0)))

/* ---- logic ---- */

INT16_2(and_b16, x &y)
INT32_2(and_b32, x &y)
INT64_2(and_b64, x &y)
INT16_2(or_b16, x | y)
INT32_2(or_b32, x | y)
INT64_2(or_b64, x | y)
INT16_2(xor_b16, x ^ y)
INT32_2(xor_b32, x ^ y)
INT64_2(xor_b64, x ^ y)
INT16_1(not_b16, ~x)
INT32_1(not_b32, ~x)
INT64_1(not_b64, ~x)
INT16_1(cnot_b16, x == 0)
INT32_1(cnot_b32, x == 0)
INT64_1(cnot_b64, x == 0)

static inline uint32_t lop3(uint32_t x, uint32_t y, uint32_t z, uint32_t table) {
    uint32_t r = 0;
    if (table & 0x01) r |= ~x & ~y & ~z;
    if (table & 0x02) r |= ~x & ~y & z;
    if (table & 0x04) r |= ~x & y & ~z;
    if (table & 0x08) r |= ~x & y & z;
    if (table & 0x10) r |= x & ~y & ~z;
    if (table & 0x20) r |= x & ~y & z;
    if (table & 0x40) r |= x & y & ~z;
    if (table & 0x80) r |= x & y & z;
    return r;
}
INT32_3(lop3_b32, lop3(x, y, z, (uint32_t)o->imm))

/* ---- shifts: an amount beyond the width counts as the width ---- */

#define SHIFT(name, T, source, put, bits, expression)                                              \
    OP_FUNCTION(name) {                                                                            \
        const T *a = source(w, o->a);                                                              \
        const uint32_t *b = source32(w, o->b);                                                     \
        T_##T r[LANES];                                                                            \
        EACH_LANE {                                                                                \
            T_##T x = a[i];                                                                        \
            uint32_t n = b[i] < (bits) ? b[i] : (bits)-1;                                          \
            bool over = b[i] >= (bits);                                                            \
            r[i] = (T_##T)(expression);                                                            \
        }                                                                                          \
        put(w, o->d, r, m);                                                                        \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
    }
SHIFT(shl_b16, uint32_t, source32, put32, 16u, over ? 0 : (x << n) & 0xffff)
SHIFT(shl_b32, uint32_t, source32, put32, 32u, over ? 0 : x << n)
SHIFT(shl_b64, u64_alias, source64, put64, 64u, over ? 0 : x << n)
SHIFT(shr_u16, uint32_t, source32, put32, 16u, over ? 0 : x >> n)
SHIFT(shr_u32, uint32_t, source32, put32, 32u, over ? 0 : x >> n)
SHIFT(shr_u64, u64_alias, source64, put64, 64u, over ? 0 : x >> n)
SHIFT(shr_s16, uint32_t, source32, put32, 16u, ((void)over, (H(x) >> n) & 0xffff))
SHIFT(shr_s32, uint32_t, source32, put32, 32u, ((void)over, I(x) >> n))
SHIFT(shr_s64, u64_alias, source64, put64, 64u, ((void)over, Q(x) >> n))

static inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t n) {
    return (uint32_t)(((uint64_t)high << 32 | low) << n >> 32);
}

static inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t n) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> n);
}

INT32_3(shf_l_clamp, z >= 32 ? x : funnel_left(x, y, z))
INT32_3(shf_l_wrap, funnel_left(x, y, z & 31))
INT32_3(shf_r_clamp, z >= 32 ? y : funnel_right(x, y, z))
INT32_3(shf_r_wrap, funnel_right(x, y, z & 31))

/* ---- bits ---- */

#define COUNT64(name, expression)                                                                  \
    OP_FUNCTION(name) {                                                                            \
        const u64_alias *a = source64(w, o->a);                                                    \
        uint32_t r[LANES];                                                                         \
        EACH_LANE {                                                                                \
            uint64_t x = a[i];                                                                     \
            r[i] = (uint32_t)(expression);                                                         \
        }                                                                                          \
        put32(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a));                                                \
    }
INT32_1(popc_b32, __builtin_popcount(x))
COUNT64(popc_b64, __builtin_popcountll(x))
INT32_1(clz_b32, x ? __builtin_clz(x) : 32)
COUNT64(clz_b64, x ? __builtin_clzll(x) : 64)

static inline uint32_t find_bit(uint64_t x, bool from_top, int bits) {
    if (!x) return UINT32_MAX;
    int at = 63 - __builtin_clzll(x);
    return (uint32_t)(from_top ? bits - 1 - at : at);
}

INT32_1(bfind_u32, find_bit(x, o->mode, 32))
INT32_1(bfind_s32, find_bit(I(x) < 0 ? ~x : x, o->mode, 32))
COUNT64(bfind_u64, find_bit(x, o->mode, 64))
COUNT64(bfind_s64, find_bit(Q(x) < 0 ? ~x : x, o->mode, 64))
INT32_1(bfind_shift_u32, find_bit(x, true, 32))
INT32_1(bfind_shift_s32, find_bit(I(x) < 0 ? ~x : x, true, 32))
COUNT64(bfind_shift_u64, find_bit(x, true, 64))
COUNT64(bfind_shift_s64, find_bit(Q(x) < 0 ? ~x : x, true, 64))

static inline uint64_t reverse64(uint64_t x) {
    x = (x >> 1 & 0x5555555555555555u) | (x & 0x5555555555555555u) << 1;
    x = (x >> 2 & 0x3333333333333333u) | (x & 0x3333333333333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0fu) | (x & 0x0f0f0f0f0f0f0f0fu) << 4;
    return __builtin_bswap64(x);
}

INT32_1(brev_b32, reverse64(x) >> 32)
INT64_1(brev_b64, reverse64(x))

/* Bits [position, position + length) of x, sign-filled from the field's top bit or bit 31/63. */
static inline uint64_t extract(uint64_t x, uint32_t position, uint32_t length, int bits,
                               bool is_signed) {
    position &= 255;
    length &= 255;
    uint64_t top = (uint64_t)bits - 1;
    uint64_t last = (uint64_t)position + length - 1;
    uint64_t sign = !is_signed || !length ? 0 : x >> (last < top ? last : top) & 1;
    uint64_t r = 0;
    if (position < (uint32_t)bits) r = x >> position;
    uint64_t kept = position < (uint32_t)bits ? (uint64_t)bits - position : 0;
    if (length < kept) kept = length;
    uint64_t mask = kept >= 64 ? UINT64_MAX : ((uint64_t)1 << kept) - 1;
    return (r & mask) | (sign ? ~mask : 0);
}

#define EXTRACT64(name, is_signed)                                                                 \
    OP_FUNCTION(name) {                                                                            \
        const u64_alias *a = source64(w, o->a);                                                    \
        const uint32_t *b = source32(w, o->b), *c = source32(w, o->c);                             \
        uint64_t r[LANES];                                                                         \
        EACH_LANE r[i] = extract(a[i], b[i], c[i], 64, is_signed);                                 \
        put64(w, o->d, r, m);                                                                      \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c));    \
    }
INT32_3(bfe_u32, extract(x, y, z, 32, false))
INT32_3(bfe_s32, extract(x, y, z, 32, true))
EXTRACT64(bfe_u64, false)
EXTRACT64(bfe_s64, true)

/* b with `length` low bits of a at `position`. */
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t position, uint32_t length,
                              uint32_t bits) {
    position &= 255;
    length &= 255;
    if (position >= bits || !length) return b;
    if (length > bits - position) length = bits - position;
    uint64_t mask = (length >= 64 ? UINT64_MAX : ((uint64_t)1 << length) - 1) << position;
    return (b & ~mask) | (a << position & mask);
}

#define INSERT(name, T, source, put, bits)                                                         \
    OP_FUNCTION(name) {                                                                            \
        const T *a = source(w, o->a), *b = source(w, o->b);                                        \
        const uint32_t *c = source32(w, o->c), *e = source32(w, o->e);                             \
        T_##T r[LANES];                                                                            \
        EACH_LANE r[i] = (T_##T)insert(a[i], b[i], c[i], e[i], bits);                              \
        put(w, o->d, r, m);                                                                        \
        define(w, o, o->d, m,                                                                      \
               defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c) &                   \
                   defined_of(w, o->e));                                                           \
    }
INSERT(bfi_b32, uint32_t, source32, put32, 32)
INSERT(bfi_b64, u64_alias, source64, put64, 64)

static inline uint32_t bit_mask(uint32_t position, uint32_t width, bool wrap) {
    if (wrap) {
        position &= 31;
        width &= 31;
    }
    if (position >= 32) return 0;
    uint32_t field = width >= 32 ? UINT32_MAX : (1u << width) - 1;
    return field << position;
}
INT32_2(bmsk_clamp, bit_mask(x, y, false))
INT32_2(bmsk_wrap, bit_mask(x, y, true))

/* Keep the low n bits; the rest become bit n-1 (signed) or 0. */
static inline uint32_t extend(uint32_t x, uint32_t n, bool wrap, bool is_signed) {
    if (wrap) n &= 31;
    if (n >= 32) return x;
    if (n == 0) return 0;
    uint32_t r = x << (32 - n);
    return is_signed ? (uint32_t)(I(r) >> (32 - n)) : r >> (32 - n);
}
INT32_2(szext_clamp_u32, extend(x, y, false, false))
INT32_2(szext_clamp_s32, extend(x, y, false, true))
INT32_2(szext_wrap_u32, extend(x, y, true, false))
INT32_2(szext_wrap_s32, extend(x, y, true, true))

/* The n-th set bit from `base` on, upward for n > 0, downward for n < 0, base itself for 0. */
static inline uint32_t nth_set(uint32_t mask, uint32_t base, int32_t n) {
    if (base > 31) return UINT32_MAX;
    if (n == 0) return mask >> base & 1 ? base : UINT32_MAX;
    int step = n > 0 ? 1 : -1;
    int64_t left = n > 0 ? n : -(int64_t)n;
    for (int at = (int)base; at >= 0 && at < 32; at += step)
        if ((mask >> at & 1) && --left == 0) return (uint32_t)at;
    return UINT32_MAX;
}
INT32_3(fns_b32, nth_set(x, y, I(z)))

static inline uint32_t byte_of(uint64_t both, uint32_t selector) {
    uint32_t value = (uint32_t)(both >> ((selector & 7) * 8)) & 255;
    return selector & 8 ? (value & 128 ? 255 : 0) : value;
}

static inline uint32_t permute(uint32_t x, uint32_t y, uint32_t selector) {
    uint64_t both = (uint64_t)y << 32 | x;
    return byte_of(both, selector) | byte_of(both, selector >> 4) << 8 |
           byte_of(both, selector >> 8) << 16 | byte_of(both, selector >> 12) << 24;
}

/* Selectors of the named modes of prmt, by the two low bits of the selector operand. */
static inline uint32_t permute_mode(uint32_t mode, uint32_t n) {
    static const uint16_t table[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
        {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
        {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
    return table[mode - MODE_F4E][n & 3];
}
INT32_3(prmt_b32, permute(x, y, z))
INT32_3(prmt_mode_b32, permute(x, y, permute_mode(o->mode, z)))

/* ---- dot products of bytes ---- */

static inline int32_t part(uint32_t v, int k, int bits, bool is_signed) {
    uint32_t field = v >> (k * bits) & ((1u << bits) - 1);
    return is_signed ? (int32_t)(field << (32 - bits)) >> (32 - bits) : (int32_t)field;
}

static inline uint32_t dot4(uint32_t x, uint32_t y, uint32_t z, bool xs, bool ys) {
    for (int k = 0; k < 4; k++) z += (uint32_t)(part(x, k, 8, xs) * part(y, k, 8, ys));
    return z;
}

static inline uint32_t dot2(uint32_t x, uint32_t y, uint32_t z, bool xs, bool ys, int first) {
    for (int k = 0; k < 2; k++) z += (uint32_t)(part(x, k, 16, xs) * part(y, first + k, 8, ys));
    return z;
}
INT32_3(dp4a, dot4(x, y, z, o->type == T_S32, o->type2 == T_S32))
INT32_3(dp2a_lo, dot2(x, y, z, o->type == T_S32, o->type2 == T_S32, 0))
INT32_3(dp2a_hi, dot2(x, y, z, o->type == T_S32, o->type2 == T_S32, 2))

/* ---- carry ---- */

#define CARRY(name, T, source, put, expression, carries)                                           \
    OP_FUNCTION(name) {                                                                            \
        const T *a = source(w, o->a), *b = source(w, o->b);                                        \
        T_##T r[LANES];                                                                            \
        uint32_t out = 0;                                                                          \
        EACH_LANE {                                                                                \
            T_##T x = a[i], y = b[i], c = w->carry >> i & 1;                                       \
            (void)c;                                                                               \
            r[i] = (T_##T)(expression);                                                            \
            out |= (uint32_t)(carries) << i;                                                       \
        }                                                                                          \
        put(w, o->d, r, m);                                                                        \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));                          \
        w->carry = (w->carry & ~m) | (out & m);                                                    \
    }
#define KEEPS (w->carry >> i & 1)
#define CARRIES(bits, T, source, put)                                                              \
    CARRY(add_cc_b##bits, T, source, put, x + y, r[i] < x)                                         \
    CARRY(addc_b##bits, T, source, put, x + y + c, KEEPS)                                          \
    CARRY(addc_cc_b##bits, T, source, put, x + y + c, r[i] < x || (c && r[i] == x))                \
    CARRY(sub_cc_b##bits, T, source, put, x - y, x < y)                                            \
    CARRY(subc_b##bits, T, source, put, x - y - c, KEEPS)                                          \
    CARRY(subc_cc_b##bits, T, source, put, x - y - c, x < y || (c && x == y))
CARRIES(32, uint32_t, source32, put32)
CARRIES(64, u64_alias, source64, put64)

static inline uint64_t product_part(uint64_t x, uint64_t y, int bits, bool high, bool is_signed) {
    if (bits == 32)
        return high ? (is_signed ? (uint64_t)((int64_t)I(x) * I(y)) >> 32
                                 : (uint64_t)(uint32_t)x * (uint32_t)y >> 32) &
                          UINT32_MAX
                    : (uint32_t)x * (uint32_t)y;
    if (!high) return x * y;
    return is_signed ? (uint64_t)((unsigned __int128)((__int128)Q(x) * Q(y)) >> 64)
                     : (uint64_t)((unsigned __int128)x * y >> 64);
}

/* mad with carry out (cc) and carry in (madc). */
#define CARRY_MAD(name, T, source, put, bits, in, out_too)                                         \
    OP_FUNCTION(name) {                                                                            \
        const T *a = source(w, o->a), *b = source(w, o->b), *c = source(w, o->c);                  \
        T_##T r[LANES];                                                                            \
        uint32_t out = 0;                                                                          \
        bool high = o->mode == MODE_HI, is_signed = ptx_type_signed((enum ptx_type)o->type);       \
        EACH_LANE {                                                                                \
            T_##T p = (T_##T)product_part(a[i], b[i], bits, high, is_signed);                      \
            T_##T k = (in) ? w->carry >> i & 1 : 0;                                                \
            r[i] = (T_##T)(p + c[i] + k);                                                          \
            out |= (uint32_t)(r[i] < p || (k && r[i] == p)) << i;                                  \
        }                                                                                          \
        put(w, o->d, r, m);                                                                        \
        define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b) & defined_of(w, o->c));    \
        if (out_too) w->carry = (w->carry & ~m) | (out & m);                                       \
    }
CARRY_MAD(mad_cc_b32, uint32_t, source32, put32, 32, false, true)
CARRY_MAD(mad_cc_b64, u64_alias, source64, put64, 64, false, true)
CARRY_MAD(madc_b32, uint32_t, source32, put32, 32, true, false)
CARRY_MAD(madc_b64, u64_alias, source64, put64, 64, true, false)
CARRY_MAD(madc_cc_b32, uint32_t, source32, put32, 32, true, true)
CARRY_MAD(madc_cc_b64, u64_alias, source64, put64, 64, true, true)
