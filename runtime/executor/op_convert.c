/* cvt among integers and floating-point formats. */
#include "exec.h"
#include "fp.h"

/* ---- reading a source, writing a destination of another width ---- */

/* The source as 64-bit integers, extended by its type (not by the register that holds it). */
static void read_integers(const struct warp *w, const struct op *o, int64_t *v) {
    if (o->wide2 == WIDE_64) {
        const u64_alias *a = source64(w, o->a);
        EACH_LANE v[i] = (int64_t)a[i];
    } else {
        const uint32_t *a = source32(w, o->a);
        EACH_LANE v[i] = a[i];
    }
    switch (o->type2) {
    case T_U8: EACH_LANE v[i] = (uint8_t)v[i]; break;
    case T_S8: EACH_LANE v[i] = (int8_t)v[i]; break;
    case T_U16: EACH_LANE v[i] = (uint16_t)v[i]; break;
    case T_S16: EACH_LANE v[i] = (int16_t)v[i]; break;
    case T_U32: EACH_LANE v[i] = (uint32_t)v[i]; break;
    case T_S32: EACH_LANE v[i] = (int32_t)v[i]; break;
    default: break;
    }
}

/* Keep the bits of the destination's type, extend them by it, and store to its register. */
static void write_integers(struct warp *w, const struct op *o, uint32_t m, int64_t *v) {
    switch (o->type) {
    case T_U8: EACH_LANE v[i] = (uint8_t)v[i]; break;
    case T_S8: EACH_LANE v[i] = (int8_t)v[i]; break;
    case T_U16: EACH_LANE v[i] = (uint16_t)v[i]; break;
    case T_S16: EACH_LANE v[i] = (int16_t)v[i]; break;
    case T_U32: EACH_LANE v[i] = (uint32_t)v[i]; break;
    case T_S32: EACH_LANE v[i] = (int32_t)v[i]; break;
    default: break;
    }
    if (o->wide == WIDE_64) {
        uint64_t r[LANES];
        EACH_LANE r[i] = (uint64_t)v[i];
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES], mask = o->wide == WIDE_16 ? 0xffff : UINT32_MAX;
        EACH_LANE r[i] = (uint32_t)v[i] & mask;
        put32(w, o->d, r, m);
    }
}

static void write_codes(struct warp *w, const struct op *o, uint32_t m, const uint32_t *code) {
    if (o->wide == WIDE_64) {
        uint64_t r[LANES];
        EACH_LANE r[i] = code[i];
        put64(w, o->d, r, m);
    } else {
        put32(w, o->d, code, m);
    }
}

static void integer_range(enum ptx_type type, int64_t *low, uint64_t *high) {
    unsigned bits = ptx_type_bits(type);
    if (ptx_type_signed(type)) {
        *high = ((uint64_t)1 << (bits - 1)) - 1;
        *low = -(int64_t)*high - 1;
    } else {
        *high = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
        *low = 0;
    }
}

static uint64_t clamp_integer(int64_t v, bool is_unsigned, int64_t low, uint64_t high) {
    if (is_unsigned) return (uint64_t)v > high ? high : (uint64_t)v;
    if (v < low) return (uint64_t)low;
    return v > 0 && (uint64_t)v > high ? high : (uint64_t)v;
}

OP_FUNCTION(cvt_integer) {
    int64_t v[LANES];
    read_integers(w, o, v);
    if (o->flags & FLAG_SAT) {
        int64_t low;
        uint64_t high;
        integer_range((enum ptx_type)o->type, &low, &high);
        EACH_LANE v[i] = (int64_t)clamp_integer(v[i], o->type2 == T_U64, low, high);
    }
    write_integers(w, o, m, v);
    define(w, o, o->d, m, defined_of(w, o->a));
}

/* ---- floating-point sources ---- */

static inline double read_float(const struct warp *w, const struct op *o, int32_t slot, int i) {
    uint32_t u = source32(w, slot)[o->wide2 == WIDE_64 && o->type2 != T_F64 ? 2 * i : i];
    switch (o->type2) {
    case T_F16: return f16_value((o->flags & FLAG_FTZ) && !(u & 0x7c00) ? u & 0x8000 : u & 0xffff);
    case T_BF16: return bf16_value(u & 0xffff);
    case T_F64: return f64_of(source64(w, slot)[i]);
    default: return f32_of(o->flags & FLAG_FTZ ? f32_flush(u) : u);
    }
}

static double round_integral(double x, enum ptx_round round) {
    switch (round) {
    case ROUND_RZ: return trunc(x);
    case ROUND_RM: return floor(x);
    case ROUND_RP: return ceil(x);
    default: return rint(x);
    }
}

/* Out of range goes to the nearest end; NaN to 0, or to 0x80.. where 64 bits are involved. */
static uint64_t to_integer(double x, enum ptx_type to, enum ptx_type from, enum ptx_round round) {
    int64_t low;
    uint64_t high;
    integer_range(to, &low, &high);
    if (x != x)
        return from == T_F64 || ptx_type_bits(to) == 64 ? (uint64_t)1 << (ptx_type_bits(to) - 1)
                                                        : 0;
    x = round_integral(x, round);
    if (x <= (double)low) return (uint64_t)low;
    if (x >= (double)high) return high;
    return x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
}

static void to_integers(struct warp *w, const struct op *o, uint32_t m) {
    int64_t v[LANES] = {0};
    if (o->type2 == T_F32 && o->type == T_S32 && o->round == ROUND_RZ && !(o->flags & FLAG_FTZ) &&
        o->wide2 == WIDE_32) {
        const f32_alias *a = (const f32_alias *)source32(w, o->a);
        EACH_LANE {
            float x = a[i];
            double clamped = x != x ? 0 : x < -0x1p31f ? -0x1p31 : x > 0x1p31f ? 0x1p31 : x;
            v[i] = clamped >= 0x1p31 ? INT32_MAX : (int32_t)clamped;
        }
    } else {
        EACH_SET_LANE(i, m)
        v[i] = (int64_t)to_integer(read_float(w, o, o->a, (int)i), (enum ptx_type)o->type,
                                   (enum ptx_type)o->type2, o->round);
    }
    write_integers(w, o, m, v);
    define(w, o, o->d, m, defined_of(w, o->a));
}

#define CVT_TO_INTEGER(name)                                                                       \
    OP_FUNCTION(name) {                                                                            \
        to_integers(w, o, m);                                                                      \
    }
CVT_TO_INTEGER(cvt_to_integer)
CVT_TO_INTEGER(cvt_to_integer_f32)
CVT_TO_INTEGER(cvt_to_integer_bf16)

/* ---- integers to floating point ---- */

/* v as binary64, rounded to odd beyond 53 bits so that it can round once more. */
static double integer_odd(int64_t v, bool is_unsigned) {
    bool negative = !is_unsigned && v < 0;
    uint64_t u = negative ? 0 - (uint64_t)v : (uint64_t)v;
    double x = u >> 53 ? (double)(u >> 11 | ((u & 0x7ff) != 0)) * 2048.0 : (double)u;
    return negative ? -x : x;
}

static const struct fp_format *format_of(enum ptx_type type) {
    switch (type) {
    case T_F16:
    case T_F16X2: return &fp_f16;
    case T_BF16:
    case T_BF16X2: return &fp_bf16;
    case T_E4M3X2: return &fp_e4m3;
    case T_E5M2X2: return &fp_e5m2;
    default: return &fp_f32;
    }
}

static void from_integer(struct warp *w, const struct op *o, uint32_t m) {
    int64_t v[LANES];
    read_integers(w, o, v);
    bool is_unsigned = o->type2 == T_U64;
    if (o->type == T_F64) {
        uint64_t r[LANES];
        EACH_LANE {
            double x = is_unsigned ? (double)(uint64_t)v[i] : (double)v[i];
            if (o->flags & FLAG_SAT) x = x < 0 ? 0 : x > 1 ? 1 : x;
            r[i] = f64_bits(x);
        }
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES] = {0};
        const struct fp_format *format = format_of((enum ptx_type)o->type);
        if (o->type == T_F32 && o->round <= ROUND_RN && !is_unsigned && !(o->flags & FLAG_SAT)) {
            EACH_LANE r[i] = f32_bits((float)v[i]);
        } else {
            EACH_SET_LANE(i, m) {
                double x = integer_odd(v[i], is_unsigned);
                if (o->flags & FLAG_SAT) x = x < 0 ? 0 : x > 1 ? 1 : x;
                r[i] = fp_encode(x, format, o->round, false);
            }
        }
        write_codes(w, o, m, r);
    }
    define(w, o, o->d, m, defined_of(w, o->a));
}

OP_FUNCTION(cvt_from_integer) {
    from_integer(w, o, m);
}

OP_FUNCTION(cvt_from_integer_ftz) {
    from_integer(w, o, m);
}

OP_FUNCTION(cvt_bf16_integer) {
    from_integer(w, o, m);
}

OP_FUNCTION(cvt_f64_integer) {
    from_integer(w, o, m);
}

/* ---- among floating-point formats ---- */

static double saturate_float(double x) {
    if (!(x > 0)) return 0;
    return x > 1 ? 1 : x;
}

/* Flags of the destination: relu turns negatives and -0 into 0 but keeps NaN; ftz flushes f32. */
static uint32_t encode_with(const struct op *o, double x, const struct fp_format *format) {
    if ((o->flags & FLAG_RELU) && !(x > 0) && x == x) x = 0;
    uint32_t code = fp_encode(x, format, o->round, o->flags & FLAG_SATFINITE);
    if ((o->flags & FLAG_FTZ) && format == &fp_f32) code = f32_flush(code);
    return code;
}

static void float_to_float(struct warp *w, const struct op *o, uint32_t m) {
    const struct fp_format *format = format_of((enum ptx_type)o->type);
    if (o->type == T_F64) {
        uint64_t r[LANES];
        EACH_LANE {
            double x = read_float(w, o, o->a, i);
            if (o->flags & FLAG_ROUND_INTEGER) x = round_integral(x, o->round);
            if (o->flags & FLAG_SAT) x = saturate_float(x);
            r[i] = x != x ? 0x7ff8000000000000u : f64_bits(x);
        }
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES] = {0};
        EACH_SET_LANE(i, m) {
            double x = read_float(w, o, o->a, (int)i);
            if (o->flags & FLAG_ROUND_INTEGER) x = round_integral(x, o->round);
            if (o->flags & FLAG_SAT) x = saturate_float(x);
            r[i] = encode_with(o, x, format);
        }
        write_codes(w, o, m, r);
    }
    define(w, o, o->d, m, defined_of(w, o->a));
}

#define CVT_FLOAT(name)                                                                            \
    OP_FUNCTION(name) {                                                                            \
        float_to_float(w, o, m);                                                                   \
    }
CVT_FLOAT(cvt_widen)
CVT_FLOAT(cvt_widen_sat)
CVT_FLOAT(cvt_widen_f64)
CVT_FLOAT(cvt_widen_bf16)
CVT_FLOAT(cvt_f64_f16)
CVT_FLOAT(cvt_f64_bf16)
CVT_FLOAT(cvt_narrow)
CVT_FLOAT(cvt_narrow_f64)
CVT_FLOAT(cvt_f32_f64)
CVT_FLOAT(cvt_narrow_bf16)
CVT_FLOAT(cvt_bf16_f64)
CVT_FLOAT(cvt_relu)
CVT_FLOAT(cvt_widen_rounded)
CVT_FLOAT(cvt_bf16_ftz)
CVT_FLOAT(cvt_f16_bf16)
CVT_FLOAT(cvt_bf16_f16)
CVT_FLOAT(cvt_finite)
CVT_FLOAT(cvt_same_f16)
CVT_FLOAT(cvt_same_bf16)
CVT_FLOAT(cvt_same_f32)
CVT_FLOAT(cvt_same_f64)

/* The frequent ones, written to be vectorised. */
OP_FUNCTION(cvt_f32_bf16) {
    if (o->wide == WIDE_64 || o->wide2 == WIDE_64) {
        float_to_float(w, o, m);
        return;
    }
    const uint32_t *a = source32(w, o->a);
    uint32_t r[LANES];
    EACH_LANE r[i] = (a[i] & 0x7fff) > 0x7f80 ? F32_NAN : a[i] << 16;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a));
}

OP_FUNCTION(cvt_f32_f16) {
    if (o->wide == WIDE_64 || o->wide2 == WIDE_64) {
        float_to_float(w, o, m);
        return;
    }
    const uint32_t *a = source32(w, o->a);
    uint32_t r[LANES];
    EACH_LANE {
        uint32_t u = f32_bits(f16_value(a[i] & 0xffff));
        r[i] = (u & 0x7fffffff) > 0x7f800000 ? F32_NAN : u;
    }
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a));
}

OP_FUNCTION(cvt_bf16_f32) {
    if (o->wide == WIDE_64 || o->wide2 == WIDE_64) {
        float_to_float(w, o, m);
        return;
    }
    const uint32_t *a = source32(w, o->a);
    uint32_t r[LANES];
    EACH_LANE r[i] = bf16_round(a[i]);
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a));
}

OP_FUNCTION(cvt_bf16x2_f32) {
    const uint32_t *a = source32(w, o->a), *b = source32(w, o->b);
    uint32_t r[LANES];
    EACH_LANE r[i] = bf16_round(a[i]) << 16 | bf16_round(b[i]);
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));
}

/* Two values into one register: a to the high half, b to the low. */
static void convert_pair(struct warp *w, const struct op *o, uint32_t m) {
    const struct fp_format *format = format_of((enum ptx_type)o->type);
    unsigned shift = ptx_type_bits((enum ptx_type)o->type) / 2;
    const f32_alias *a = (const f32_alias *)source32(w, o->a);
    const f32_alias *b = (const f32_alias *)source32(w, o->b);
    uint32_t r[LANES] = {0};
    EACH_SET_LANE(i, m)
    r[i] = encode_with(o, a[i], format) << shift | encode_with(o, b[i], format);
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a) & defined_of(w, o->b));
}

OP_FUNCTION(cvt_pair) {
    convert_pair(w, o, m);
}

OP_FUNCTION(cvt_pair_finite) {
    convert_pair(w, o, m);
}

OP_FUNCTION(cvt_fp8_f32) {
    convert_pair(w, o, m);
}

/* f16x2 to two 8-bit codes: the high half to the high byte. */
OP_FUNCTION(cvt_fp8_f16x2) {
    const struct fp_format *format = format_of((enum ptx_type)o->type);
    const uint32_t *a = source32(w, o->a);
    uint32_t r[LANES] = {0};
    EACH_SET_LANE(i, m)
    r[i] = encode_with(o, f16_value(a[i] >> 16), format) << 8 |
           encode_with(o, f16_value(a[i] & 0xffff), format);
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a));
}

OP_FUNCTION(cvt_f16x2_fp8) {
    const uint32_t *a = source32(w, o->a);
    uint32_t r[LANES] = {0};
    bool e5m2 = o->type2 == T_E5M2X2;
    EACH_SET_LANE(i, m) {
        for (int k = 0; k < 2; k++) {
            uint32_t code = a[i] >> (8 * k) & 0xff;
            double x = e5m2 ? e5m2_value(code) : e4m3_value(code);
            r[i] |= encode_with(o, x, &fp_f16) << (16 * k);
        }
    }
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a));
}

/* An f32 whose low 13 bits are zero. */
static void to_tf32(struct warp *w, const struct op *o, uint32_t m) {
    const f32_alias *a = (const f32_alias *)source32(w, o->a);
    uint32_t r[LANES] = {0};
    EACH_SET_LANE(i, m) {
        uint32_t code = encode_with(o, a[i], &fp_tf32);
        r[i] = code == fp_tf32.nan ? F32_NAN : code << 13;
    }
    put32(w, o->d, r, m);
    define(w, o, o->d, m, defined_of(w, o->a));
}

OP_FUNCTION(cvt_tf32_finite) {
    to_tf32(w, o, m);
}

OP_FUNCTION(cvt_tf32_f32) {
    to_tf32(w, o, m);
}

OP_FUNCTION(cvt_tf32_relu) {
    to_tf32(w, o, m);
}

/* cvt.pack: a and b saturated to the type, in the low bits; c shifted up above them for 8 bits. */
static void pack_saturated(struct warp *w, const struct op *o, uint32_t m) {
    const uint32_t *a = source32(w, o->a), *b = source32(w, o->b), *c = source32(w, o->c);
    unsigned bits = ptx_type_bits((enum ptx_type)o->type);
    int64_t low;
    uint64_t high;
    integer_range((enum ptx_type)o->type, &low, &high);
    uint32_t mask = (1u << bits) - 1, r[LANES];
    EACH_LANE {
        uint32_t x = (uint32_t)clamp_integer((int32_t)a[i], false, low, high) & mask;
        uint32_t y = (uint32_t)clamp_integer((int32_t)b[i], false, low, high) & mask;
        r[i] = x << bits | y | (bits == 8 ? c[i] << 16 : 0);
    }
    put32(w, o->d, r, m);
    define(w, o, o->d, m,
           defined_of(w, o->a) & defined_of(w, o->b) &
               (bits == 8 ? defined_of(w, o->c) : ALL_LANES));
}

OP_FUNCTION(cvt_pack16) {
    pack_saturated(w, o, m);
}

OP_FUNCTION(cvt_pack8) {
    pack_saturated(w, o, m);
}
