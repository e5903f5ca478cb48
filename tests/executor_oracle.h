/*
 * What one instruction should yield, from the ISA's description: 128-bit integers, the host's own
 * rounding modes and inexact flag, and tables of all numbers of a small format. Shares no code with
 * the executor.
 */
#ifndef EXECUTOR_ORACLE_H
#define EXECUTOR_ORACLE_H

#include <fenv.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide_t;
typedef unsigned __int128 uwide_t;

struct query {
    char text[128];
    const char *word[24];
    int words;
    const char *type[4]; /* type words in order, "" where there is none */
    uint64_t a, b, c, e; /* operand bits */
    bool p, carry;       /* source predicate; carry in */
    int64_t immediate;
    /* answers */
    uint64_t d;
    bool q, q2;      /* predicate results; carry out in q2 for the cc forms */
    double relative; /* tolerance of an approximation, else 0 */
    double absolute;
};

static inline bool q_has(const struct query *q, const char *word) {
    for (int i = 1; i < q->words; i++)
        if (!strcmp(q->word[i], word)) return true;
    return false;
}

static inline bool q_is(const struct query *q, const char *base) {
    return !strcmp(q->word[0], base);
}

static inline int q_bits(const char *type) {
    static const struct {
        const char *name;
        int bits;
    } table[] = {{"b8", 8},      {"u8", 8},      {"s8", 8},     {"b16", 16},   {"u16", 16},
                 {"s16", 16},    {"f16", 16},    {"bf16", 16},  {"b32", 32},   {"u32", 32},
                 {"s32", 32},    {"f32", 32},    {"b64", 64},   {"u64", 64},   {"s64", 64},
                 {"f64", 64},    {"u16x2", 32},  {"s16x2", 32}, {"f16x2", 32}, {"bf16x2", 32},
                 {"e4m3x2", 16}, {"e5m2x2", 16}, {"tf32", 32},  {"pred", 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, type)) return table[i].bits;
    return 0;
}

static inline void q_parse(struct query *q, const char *opcode) {
    snprintf(q->text, sizeof q->text, "%s", opcode);
    q->words = 0;
    for (int i = 0; i < 4; i++) q->type[i] = "";
    int types = 0;
    for (char *w = strtok(q->text, "."); w; w = strtok(NULL, ".")) {
        q->word[q->words] = w;
        if (q->words++ && q_bits(w) && types < 4) q->type[types++] = w;
    }
}

static inline bool q_signed(const char *type) {
    return type[0] == 's';
}

static inline bool q_float(const char *type) {
    return type[0] == 'f' || !strncmp(type, "bf", 2);
}

static inline wide_t q_value(uint64_t x, int bits, bool is_signed) {
    if (bits < 64) x &= ((uint64_t)1 << bits) - 1;
    if (is_signed)
        return bits == 64
                   ? (wide_t)(int64_t)x
                   : (wide_t)(x ^ (uint64_t)1 << (bits - 1)) - (wide_t)((uint64_t)1 << (bits - 1));
    return (wide_t)x;
}

static inline uint64_t q_cut(wide_t x, int bits) {
    return bits == 64 ? (uint64_t)x : (uint64_t)x & (((uint64_t)1 << bits) - 1);
}

static inline wide_t q_clamp(wide_t x, int bits, bool is_signed) {
    wide_t high = is_signed ? ((wide_t)1 << (bits - 1)) - 1 : ((wide_t)1 << bits) - 1;
    wide_t low = is_signed ? -((wide_t)1 << (bits - 1)) : 0;
    return x > high ? high : x < low ? low : x;
}

/* ---- small formats: every number, found by its definition ---- */

struct format_table {
    const char *name;
    int mantissa, exponent_bits, bias, count; /* count: codes without sign that are finite */
    uint32_t infinity, nan, largest;
    double value[1 << 15];
};

static struct format_table oracle_formats[] = {{.name = "f16",
                                                .mantissa = 10,
                                                .exponent_bits = 5,
                                                .bias = 15,
                                                .infinity = 0x7c00,
                                                .nan = 0x7fff,
                                                .largest = 0x7bff},
                                               {.name = "bf16",
                                                .mantissa = 7,
                                                .exponent_bits = 8,
                                                .bias = 127,
                                                .infinity = 0x7f80,
                                                .nan = 0x7fff,
                                                .largest = 0x7f7f},
                                               {.name = "e4m3",
                                                .mantissa = 3,
                                                .exponent_bits = 4,
                                                .bias = 7,
                                                .infinity = 0,
                                                .nan = 0x7f,
                                                .largest = 0x7e},
                                               {.name = "e5m2",
                                                .mantissa = 2,
                                                .exponent_bits = 5,
                                                .bias = 15,
                                                .infinity = 0x7c,
                                                .nan = 0x7f,
                                                .largest = 0x7b}};

static inline struct format_table *oracle_format(const char *name) {
    for (int i = 0; i < 4; i++) {
        struct format_table *t = &oracle_formats[i];
        if (strncmp(name, t->name, strlen(t->name))) continue;
        if (t->count) return t;
        for (uint32_t code = 0; code <= t->largest; code++) {
            uint32_t e = code >> t->mantissa, m = code & ((1u << t->mantissa) - 1);
            double fraction = (double)m / (double)(1 << t->mantissa) + (e ? 1 : 0);
            t->value[code] = ldexp(fraction, (int)(e ? e : 1) - t->bias);
        }
        t->count = (int)t->largest + 1;
        return t;
    }
    return NULL;
}

static inline double oracle_decode(const char *format, uint32_t code) {
    struct format_table *t = oracle_format(format);
    uint32_t sign_bit = t->mantissa + t->exponent_bits == 7 ? 0x80 : 0x8000;
    uint32_t magnitude = code & (sign_bit - 1);
    double x = magnitude <= t->largest                   ? t->value[magnitude]
               : t->infinity && magnitude == t->infinity ? (double)INFINITY
                                                         : (double)NAN;
    return code & sign_bit ? -x : x;
}

/* The nearest number by mode ('n' even, 'z', 'm', 'p'); `x` exact or rounded to odd. */
static inline uint32_t oracle_encode(const char *format, double x, char mode, bool saturate) {
    struct format_table *t = oracle_format(format);
    uint32_t sign = signbit(x) ? (t->mantissa + t->exponent_bits == 7 ? 0x80u : 0x8000u) : 0;
    if (isnan(x)) return t->nan;
    double m = fabs(x);
    if (isinf(x)) return sign | (saturate ? t->largest : t->infinity ? t->infinity : t->nan);
    uint32_t low = 0, high = t->largest;
    if (m >= t->value[high]) {
        low = high;
    } else {
        while (high - low > 1) {
            uint32_t middle = (low + high) / 2;
            if (t->value[middle] <= m)
                low = middle;
            else
                high = middle;
        }
    }
    if (t->value[low] == m) return sign | low;
    bool up = false;
    double next = low == t->largest ? 2 * t->value[low] - t->value[low - 1] : t->value[low + 1];
    if (mode == 'n') {
        double half = t->value[low] + (next - t->value[low]) / 2;
        up = m > half || (m == half && (low & 1));
    } else if (mode == 'm') {
        up = signbit(x);
    } else if (mode == 'p') {
        up = !signbit(x);
    }
    if (!up) return sign | low;
    if (low < t->largest) return sign | (low + 1);
    return sign | (saturate ? t->largest : t->infinity ? t->infinity : t->nan);
}

/* ---- f32 by the host, in its rounding modes ---- */

static inline float q_f32(uint64_t u) {
    uint32_t v = (uint32_t)u;
    float x;
    memcpy(&x, &v, 4);
    return x;
}

static inline uint32_t q_bits32(float x) {
    uint32_t v;
    memcpy(&v, &x, 4);
    return isnan(x) ? 0x7fffffff : v;
}

static inline double q_f64(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

static inline uint64_t q_bits64(double x) {
    uint64_t v;
    memcpy(&v, &x, 8);
    return isnan(x) ? 0x7ff8000000000000u : v;
}

static inline uint64_t q_flush(uint64_t u) {
    return (u & 0x7f800000) == 0 ? u & 0x80000000u : u;
}

static inline void oracle_rounding(const struct query *q) {
    fesetround(q_has(q, "rz")   ? FE_TOWARDZERO
               : q_has(q, "rm") ? FE_DOWNWARD
               : q_has(q, "rp") ? FE_UPWARD
                                : FE_TONEAREST);
}

/* An operation in binary64, cut towards zero and made odd when it was inexact. */
static inline double oracle_odd(char operation, double x, double y, double z) {
    volatile double a = x, b = y, c = z, r;
    fesetround(FE_TOWARDZERO);
    feclearexcept(FE_ALL_EXCEPT);
    switch (operation) {
    case '+': r = a + b; break;
    case '-': r = a - b; break;
    case '*': r = a * b; break;
    default: r = fma(a, b, c); break;
    }
    bool inexact = fetestexcept(FE_INEXACT) != 0;
    fesetround(FE_TONEAREST);
    /* An exact zero of unlike signs is +0 to nearest. */
    if (r == 0 && !inexact) {
        switch (operation) {
        case '+': r = a + b; break;
        case '-': r = a - b; break;
        case '*': r = a * b; break;
        default: r = fma(a, b, c); break;
        }
    }
    double out = r;
    if (inexact && isfinite(out)) {
        uint64_t u;
        memcpy(&u, &out, 8);
        u |= 1;
        memcpy(&out, &u, 8);
    }
    return out;
}

#endif
