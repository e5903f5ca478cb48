/* Comparison, selection, and the class of a number. */
#include "exec.h"
#include "fp.h"

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

/* What stands for true: 1 of a floating-point type, all ones of an integer. */
static uint32_t set_true(int type) {
    switch (type) {
    case T_F32: return 0x3f800000;
    case T_F16: return 0x3c00;
    case T_BF16: return 0x3f80;
    case T_F16X2: return 0x3c003c00;
    case T_BF16X2: return 0x3f803f80;
    case T_U16:
    case T_S16: return 0xffff;
    default: return UINT32_MAX;
    }
}

/* Of pairs each half is compared, and each half of the result set, by itself. */
static void set_value(struct warp *w, const struct op *o, uint32_t m) {
    bool pair = o->type2 == T_F16X2 || o->type2 == T_BF16X2;
    uint32_t p = predicate_of(w, o), yes = set_true(o->type), v[LANES];
    uint32_t low = combine(o->mode, compare_any(w, o, (enum ptx_type)o->type2), p), high = low;
    if (pair)
        high = combine(o->mode,
                       compare_half(o->compare, source32(w, o->a), source32(w, o->b),
                                    o->type2 == T_BF16X2, o->flags & FLAG_FTZ, 16),
                       p);
    EACH_LANE v[i] = (low >> i & 1 ? yes & 0xffff : 0) | (high >> i & 1 ? yes & 0xffff0000 : 0);
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
SET(set_b_to_f16)
SET(set_b_to_f16_combine)
SET(set_b_to_bf16)
SET(set_b_to_bf16_combine)
SET(set_s_to_f16)
SET(set_s_to_f16_combine)
SET(set_s_to_bf16)
SET(set_s_to_bf16_combine)
SET(set_u_to_f16)
SET(set_u_to_f16_combine)
SET(set_u_to_bf16)
SET(set_u_to_bf16_combine)
SET(set_f32_to_f16)
SET(set_f32_to_f16_combine)
SET(set_f32_to_bf16)
SET(set_f32_to_bf16_combine)
SET(set_f64_to_f16)
SET(set_f64_to_f16_combine)
SET(set_f64_to_bf16)
SET(set_f64_to_bf16_combine)
SET(set_f16x2)
SET(set_f16x2_combine)
SET(set_bf16x2)
SET(set_bf16x2_combine)

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
