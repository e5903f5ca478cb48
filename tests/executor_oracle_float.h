/* The floating-point half of the oracle: arithmetic, comparison, conversion. */
#ifndef EXECUTOR_ORACLE_FLOAT_H
#define EXECUTOR_ORACLE_FLOAT_H

#include "executor_oracle.h"

static uint64_t oracle_sat32(uint64_t u) {
    float x = q_f32(u);
    return isnan(x) || x <= 0 ? 0 : x > 1 ? 0x3f800000 : u;
}

static bool oracle_f32(struct query *q) {
    bool flush = q_has(q, "ftz");
    uint64_t a = flush ? q_flush(q->a) : q->a, b = flush ? q_flush(q->b) : q->b;
    uint64_t c = flush ? q_flush(q->c) : q->c;
    volatile float x = q_f32(a), y = q_f32(b), z = q_f32(c), r;
    if (q_has(q, "approx") || q_has(q, "full")) {
        long double v = x, w;
        q->relative = 0x1p-21;
        if (q_is(q, "rsqrt"))
            w = 1 / sqrtl(v);
        else if (q_is(q, "ex2"))
            w = exp2l(v);
        else if (q_is(q, "lg2"))
            w = log2l(v), q->absolute = 0x1p-22;
        else if (q_is(q, "sin"))
            w = sinl(v), q->absolute = 0x1p-20;
        else if (q_is(q, "cos"))
            w = cosl(v), q->absolute = 0x1p-20;
        else if (q_is(q, "tanh"))
            w = tanhl(v), q->relative = 0x1p-10;
        else if (q_is(q, "sqrt"))
            w = sqrtl(v);
        else if (q_is(q, "rcp"))
            w = 1 / v;
        else if (q_is(q, "div")) {
            w = v / y;
            float m = fabsf(y);
            if (q_has(q, "approx") && m > 0x1p126f && isfinite(m))
                w = isinf(x) || isnan(x) ? (long double)NAN : (long double)copysignf(0, x) * y;
        } else
            return false;
        r = (float)w;
        q->d = flush ? q_flush(q_bits32(r)) : q_bits32(r);
        return true;
    }
    oracle_rounding(q);
    if (q_is(q, "add"))
        r = x + y;
    else if (q_is(q, "sub"))
        r = x - y;
    else if (q_is(q, "mul"))
        r = x * y;
    else if (q_is(q, "fma") || q_is(q, "mad"))
        r = fmaf(x, y, z);
    else if (q_is(q, "div"))
        r = x / y;
    else if (q_is(q, "rcp"))
        r = 1 / x;
    else if (q_is(q, "sqrt"))
        r = sqrtf(x);
    else {
        fesetround(FE_TONEAREST);
        return false;
    }
    fesetround(FE_TONEAREST);
    q->d = q_bits32(r);
    if (flush) q->d = q_flush(q->d);
    if (q_has(q, "sat")) q->d = oracle_sat32(q->d);
    return true;
}

/* The upper word of a double alone, subnormals as zero. */
static uint64_t oracle_upper(uint64_t u) {
    return (u >> 52 & 0x7ff) ? u >> 32 << 32 : u >> 63 << 63;
}

static bool oracle_gross_f64(struct query *q) {
    bool flush = q_has(q, "ftz");
    long double v = q_f64(flush ? oracle_upper(q->a) : q->a);
    if (q_is(q, "rsqrt")) v = sqrtl(v);
    q->d = q_bits64((double)(1 / v));
    if (flush)
        q->d = oracle_upper(q->d);
    else
        q->relative = 0x1p-50;
    if (isnan(q_f64(q->d))) q->d = 0x7ff8000000000000u;
    return true;
}

static bool oracle_f64(struct query *q) {
    if (q_has(q, "approx")) return oracle_gross_f64(q);
    double x = q_f64(q->a), y = q_f64(q->b), z = q_f64(q->c), r;
    if (q_is(q, "add"))
        r = x + y;
    else if (q_is(q, "sub"))
        r = x - y;
    else if (q_is(q, "mul"))
        r = x * y;
    else if (q_is(q, "fma") || q_is(q, "mad"))
        r = fma(x, y, z);
    else if (q_is(q, "div"))
        r = x / y;
    else if (q_is(q, "rcp"))
        r = 1 / x;
    else if (q_is(q, "sqrt"))
        r = sqrt(x);
    else
        return false;
    q->d = q_bits64(r);
    return true;
}

/* Sign operations and order by the value of one element of any format. */
static double oracle_number(const char *type, uint64_t bits) {
    if (!strcmp(type, "f64")) return q_f64(bits);
    if (!strcmp(type, "f32")) return q_f32(bits);
    return oracle_decode(type, (uint32_t)bits & 0xffff);
}

static bool oracle_sign(struct query *q, const char *type, int bits, uint64_t a, uint64_t b,
                        uint64_t *out) {
    uint64_t top = (uint64_t)1 << (bits - 1), rest = top - 1;
    bool half = bits == 16, flush = q_has(q, "ftz");
    if (flush && bits == 32) a = q_flush(a), b = q_flush(b);
    if (flush && half && !(a & 0x7c00)) a &= 0x8000;
    if (flush && half && !(b & 0x7c00)) b &= 0x8000;
    if (q_is(q, "abs"))
        *out = a & rest;
    else if (q_is(q, "neg"))
        *out = (a ^ top) & (top | rest);
    else if (q_is(q, "copysign"))
        *out = (a & top) | (b & rest);
    else if (q_is(q, "min") || q_is(q, "max")) {
        double x = oracle_number(type, a), y = oracle_number(type, b);
        uint64_t nan = bits == 64 ? 0x7ff8000000000000u : bits == 32 ? 0x7fffffff : 0x7fff;
        if ((isnan(x) && isnan(y)) || (q_has(q, "NaN") && (isnan(x) || isnan(y)))) {
            *out = nan;
            return true;
        }
        uint64_t sign = 0;
        bool crossed = q_has(q, "xorsign");
        if (crossed) {
            sign = (a ^ b) & top;
            a &= rest;
            b &= rest;
            x = fabs(x);
            y = fabs(y);
        }
        bool first;
        if (isnan(x))
            first = false;
        else if (isnan(y))
            first = true;
        else if (x == y)
            first = q_is(q, "min") ? (a & top) != 0 : (a & top) == 0;
        else
            first = q_is(q, "min") ? x < y : x > y;
        *out = (first ? a : b) | sign;
    } else {
        return false;
    }
    return true;
}

static uint64_t oracle_half_one(struct query *q, const char *type, uint64_t a, uint64_t b,
                                uint64_t c) {
    bool f16 = type[0] == 'f', flush = q_has(q, "ftz") && f16;
    if (flush && !(a & 0x7c00)) a &= 0x8000;
    if (flush && !(b & 0x7c00)) b &= 0x8000;
    if (flush && !(c & 0x7c00)) c &= 0x8000;
    double x = oracle_decode(type, (uint32_t)a), y = oracle_decode(type, (uint32_t)b);
    double z = oracle_decode(type, (uint32_t)c);
    char operation = q_is(q, "add") ? '+' : q_is(q, "sub") ? '-' : q_is(q, "mul") ? '*' : 'f';
    uint32_t r = oracle_encode(type, oracle_odd(operation, x, y, z), 'n', false);
    if (flush && !(r & 0x7c00)) r &= 0x8000;
    double v = oracle_decode(type, r);
    if (q_has(q, "sat"))
        r = isnan(v) || v <= 0 ? 0 : v > 1 ? oracle_encode(type, 1, 'n', false) : r;
    if (q_has(q, "relu") && !isnan(v) && signbit(v)) r = 0;
    return r;
}

static bool oracle_half(struct query *q) {
    const char *type = q->type[0];
    int parts = strstr(type, "x2") ? 2 : 1;
    q->d = 0;
    for (int h = 0; h < parts; h++) {
        uint64_t a = q->a >> (16 * h) & 0xffff, b = q->b >> (16 * h) & 0xffff;
        uint64_t c = q->c >> (16 * h) & 0xffff, r;
        if (q_has(q, "approx")) {
            q->relative = 1; /* compared by value elsewhere: one unit of the format */
            double x = oracle_decode(type, (uint32_t)a);
            r = oracle_encode(type, q_is(q, "tanh") ? tanh(x) : exp2(x), 'n', false);
            if (q_has(q, "ftz") && !(r & 0x7f80)) r &= 0x8000;
        } else if (!oracle_sign(q, type, 16, a, b, &r)) {
            r = oracle_half_one(q, type, a, b, c);
        }
        q->d |= r << (16 * h);
    }
    return true;
}

static inline bool oracle_float(struct query *q) {
    const char *type = q->type[0];
    int bits = q_bits(type);
    if (q_is(q, "testp")) {
        int class = bits == 64 ? fpclassify(q_f64(q->a)) : fpclassify(q_f32(q->a));
        q->q = q_has(q, "finite")       ? class != FP_NAN && class != FP_INFINITE
               : q_has(q, "infinite")   ? class == FP_INFINITE
               : q_has(q, "number")     ? class != FP_NAN
               : q_has(q, "notanumber") ? class == FP_NAN
               : q_has(q, "normal")     ? class == FP_NORMAL
                                        : class == FP_SUBNORMAL;
        return true;
    }
    if (bits == 16 || strstr(type, "x2")) return oracle_half(q);
    if (oracle_sign(q, type, bits, q->a, q->b, &q->d)) return true;
    return bits == 64 ? oracle_f64(q) : oracle_f32(q);
}

/* ---- comparison and selection ---- */

static bool oracle_holds(struct query *q, const char *type, uint64_t a, uint64_t b) {
    const char *c = q->word[1];
    if (q_float(type)) {
        bool flush = q_has(q, "ftz");
        if (flush && q_bits(type) == 32 && !strstr(type, "x2")) a = q_flush(a), b = q_flush(b);
        if (flush && !strncmp(type, "f16", 3)) {
            if (!(a & 0x7c00)) a &= 0x8000;
            if (!(b & 0x7c00)) b &= 0x8000;
        }
        double x = oracle_number(type, a), y = oracle_number(type, b);
        bool un = isunordered(x, y), or_u = strlen(c) == 3 && c[2] == 'u';
        if (!strcmp(c, "num")) return !un;
        if (!strcmp(c, "nan")) return un;
        if (un) return or_u;
        if (!strncmp(c, "eq", 2)) return x == y;
        if (!strncmp(c, "ne", 2)) return x != y;
        if (!strncmp(c, "lt", 2)) return x < y;
        if (!strncmp(c, "le", 2)) return x <= y;
        if (!strncmp(c, "gt", 2)) return x > y;
        return x >= y;
    }
    int bits = q_bits(type);
    wide_t x = q_value(a, bits, q_signed(type)), y = q_value(b, bits, q_signed(type));
    if (!strcmp(c, "eq")) return x == y;
    if (!strcmp(c, "ne")) return x != y;
    if (!strcmp(c, "lt") || !strcmp(c, "lo")) return x < y;
    if (!strcmp(c, "le") || !strcmp(c, "ls")) return x <= y;
    if (!strcmp(c, "gt") || !strcmp(c, "hi")) return x > y;
    return x >= y;
}

static bool oracle_joined(struct query *q, bool r) {
    if (q_has(q, "and")) return r && q->p;
    if (q_has(q, "or")) return r || q->p;
    if (q_has(q, "xor")) return r != q->p;
    return r;
}

static inline bool oracle_compare(struct query *q) {
    if (q_is(q, "selp")) {
        q->d = q_cut((wide_t)(q->p ? q->a : q->b), q_bits(q->type[0]));
        return true;
    }
    if (q_is(q, "slct")) {
        bool first = !strcmp(q->type[1], "f32") ? q_f32(q_has(q, "ftz") ? q_flush(q->c) : q->c) >= 0
                                                : (int32_t)q->c >= 0;
        q->d = q_cut((wide_t)(first ? q->a : q->b), q_bits(q->type[0]));
        return true;
    }
    if (q_is(q, "set")) {
        const char *to = q->type[0];
        uint64_t one = !strcmp(to, "f32")                             ? 0x3f800000
                       : !strncmp(to, "f16", 3)                       ? 0x3c00
                       : !strncmp(to, "bf16", 4)                      ? 0x3f80
                       : q_bits(to) == 16 || strstr(q->type[1], "x2") ? 0xffff
                                                                      : UINT32_MAX;
        q->d = oracle_joined(q, oracle_holds(q, q->type[1], q->a, q->b)) ? one : 0;
        if (strstr(q->type[1], "x2") &&
            oracle_joined(q, oracle_holds(q, q->type[1], q->a >> 16, q->b >> 16)))
            q->d |= one << 16;
        return true;
    }
    if (!q_is(q, "setp")) return false;
    const char *type = q->type[0];
    bool r = oracle_holds(q, type, q->a, q->b), second = !r;
    if (strstr(type, "x2")) second = oracle_holds(q, type, q->a >> 16, q->b >> 16);
    q->q = oracle_joined(q, r);
    q->q2 = oracle_joined(q, second);
    return true;
}

/* ---- conversion ---- */

static char oracle_mode(const struct query *q) {
    return q_has(q, "rz") || q_has(q, "rzi")   ? 'z'
           : q_has(q, "rm") || q_has(q, "rmi") ? 'm'
           : q_has(q, "rp") || q_has(q, "rpi") ? 'p'
                                               : 'n';
}

static double oracle_whole(double x, char mode) {
    switch (mode) {
    case 'z': return x < 0 ? ceil(x) : floor(x);
    case 'm': return floor(x);
    case 'p': return ceil(x);
    default: {
        double low = floor(x), part = x - low;
        double r = part > 0.5 || (part == 0.5 && fmod(low, 2) != 0) ? low + 1 : low;
        return r == 0 ? copysign(0, x) : r;
    }
    }
}

/* A value into an f32, f64 or small format by the opcode's rounding. */
static uint64_t oracle_store(struct query *q, const char *type, double x) {
    if (q_has(q, "sat")) x = isnan(x) || x <= 0 ? 0 : x > 1 ? 1 : x;
    if (q_has(q, "relu") && !isnan(x) && signbit(x)) x = 0;
    if (!strcmp(type, "f64")) return q_bits64(x);
    if (!strcmp(type, "f32")) {
        oracle_rounding(q);
        volatile double v = x;
        volatile float r = (float)v;
        fesetround(FE_TONEAREST);
        uint64_t u = q_bits32(r);
        return q_has(q, "ftz") ? q_flush(u) : u;
    }
    return oracle_encode(type, x, oracle_mode(q), q_has(q, "satfinite"));
}

static double oracle_read(struct query *q, const char *type, uint64_t a) {
    if (q_has(q, "ftz") && !strcmp(type, "f32")) a = q_flush(a);
    if (q_has(q, "ftz") && !strcmp(type, "f16") && !(a & 0x7c00)) a &= 0x8000;
    return oracle_number(type, a);
}

static bool oracle_pairs(struct query *q, const char *to, const char *from) {
    int half = q_bits(to) / 2;
    if (!strcmp(from, "f32")) {
        q->d = oracle_store(q, to, q_f32(q->a)) << half | oracle_store(q, to, q_f32(q->b));
        return true;
    }
    int step = q_bits(from) / 2;
    for (int h = 0; h < 2; h++)
        q->d |= oracle_store(
                    q, to, oracle_decode(from, (uint32_t)(q->a >> (step * h)) & ((1u << step) - 1)))
                << (half * h);
    return true;
}

static bool oracle_tf32(struct query *q) {
    float x = q_f32(q->a);
    if (isnan(x)) {
        q->d = 0x7fffffff;
        return true;
    }
    if (q_has(q, "relu") && signbit(x)) x = 0;
    uint64_t u = q_bits32(x), kept = u & ~(uint64_t)0x1fff, rest = u & 0x1fff;
    bool up = q_has(q, "rna")  ? rest >= 0x1000
              : q_has(q, "rn") ? rest > 0x1000 || (rest == 0x1000 && (kept & 0x2000))
                               : false;
    q->d = isinf(x) ? u : kept + (up ? 0x2000 : 0);
    if (q_has(q, "satfinite") && (q->d & 0x7f800000) == 0x7f800000)
        q->d = (q->d & 0x80000000) | 0x7f7fe000;
    return true;
}

static inline bool oracle_convert(struct query *q) {
    const char *to = q->type[0], *from = q->type[1];
    int bits = q_bits(to);
    q->d = 0;
    if (q_has(q, "pack")) {
        wide_t x = q_clamp((int32_t)q->a, bits, q_signed(to));
        wide_t y = q_clamp((int32_t)q->b, bits, q_signed(to));
        q->d = q_cut(x, bits) << bits | q_cut(y, bits);
        if (bits == 8) q->d |= (q->c & 0xffff) << 16;
        return true;
    }
    if (!strcmp(to, "tf32")) return oracle_tf32(q);
    if (strstr(to, "x2")) return oracle_pairs(q, to, from);
    if (!q_float(to) && !q_float(from)) {
        wide_t x = q_value(q->a, q_bits(from), q_signed(from));
        if (q_has(q, "sat")) x = q_clamp(x, bits, q_signed(to));
        q->d = q_cut(x, bits);
        return true;
    }
    if (!q_float(from)) {
        wide_t x = q_value(q->a, q_bits(from), q_signed(from));
        if (!strcmp(to, "f64") || !strcmp(to, "f32")) {
            oracle_rounding(q);
            volatile int64_t s = (int64_t)x;
            volatile uint64_t u = (uint64_t)x;
            if (!strcmp(to, "f64")) {
                volatile double r = x < 0 ? (double)s : (double)u;
                fesetround(FE_TONEAREST);
                q->d = q_bits64(q_has(q, "sat") ? r <= 0 ? 0 : r > 1 ? 1 : r : r);
            } else {
                volatile float r = x < 0 ? (float)s : (float)u;
                fesetround(FE_TONEAREST);
                q->d = q_bits32(r);
                if (q_has(q, "sat")) q->d = oracle_sat32(q->d);
            }
            return true;
        }
        /* Into 16 bits: beyond 2^20 all that counts is the size, so a cut to odd is enough. */
        long double exact = (long double)x;
        double near = (double)exact;
        if ((long double)near != exact) {
            fesetround(FE_TOWARDZERO);
            volatile long double v = exact;
            near = (double)v;
            fesetround(FE_TONEAREST);
            near = q_f64(q_bits64(near) | 1);
        }
        q->d = oracle_store(q, to, near);
        return true;
    }
    double x = oracle_read(q, from, q->a);
    if (!q_float(to)) {
        if (isnan(x)) {
            q->d = bits == 64 || !strcmp(from, "f64") ? (uint64_t)1 << (bits - 1) : 0;
            return true;
        }
        x = oracle_whole(x, oracle_mode(q));
        double low = q_signed(to) ? -ldexp(1, bits - 1) : 0;
        double high = ldexp(1, q_signed(to) ? bits - 1 : bits);
        wide_t r = x >= high ? q_clamp((wide_t)1 << 100, bits, q_signed(to))
                   : x < low ? q_clamp(-((wide_t)1 << 100), bits, q_signed(to))
                             : (wide_t)x;
        q->d = q_cut(r, bits);
        return true;
    }
    bool whole = q_has(q, "rni") || q_has(q, "rzi") || q_has(q, "rmi") || q_has(q, "rpi");
    if (whole && isfinite(x)) x = oracle_whole(x, oracle_mode(q));
    if (!strcmp(to, from) && bits == 16) {
        if (q_has(q, "sat")) x = isnan(x) || x <= 0 ? 0 : x > 1 ? 1 : x;
        q->d = oracle_encode(to, x, 'n', false);
        return true;
    }
    q->d = oracle_store(q, to, x);
    return true;
}

#endif
