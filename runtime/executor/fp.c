#include "fp.h"

const struct fp_format fp_f16 = {10, -14, 0x7bff, 0x7c00, 0x7fff, 15};
const struct fp_format fp_bf16 = {7, -126, 0x7f7f, 0x7f80, 0x7fff, 15};
const struct fp_format fp_f32 = {23, -126, 0x7f7fffff, 0x7f800000, 0x7fffffff, 31};
const struct fp_format fp_tf32 = {10, -126, 0x3fbff, 0x3fc00, 0x3ffff, 18};
const struct fp_format fp_e4m3 = {3, -6, 0x7e, 0, 0x7f, 7};
const struct fp_format fp_e5m2 = {2, -14, 0x7b, 0x7c, 0x7f, 7};

/* Whether a magnitude with these dropped bits goes up; `half` is half a unit of them. */
static bool rounds_up(uint64_t kept, uint64_t dropped, uint64_t half, bool negative,
                      enum ptx_round round) {
    switch (round) {
    case ROUND_RZ: return false;
    case ROUND_RM: return negative && dropped;
    case ROUND_RP: return !negative && dropped;
    case ROUND_RNA: return dropped >= half;
    default: return dropped > half || (dropped == half && (kept & 1));
    }
}

static uint32_t beyond(const struct fp_format *f, bool negative, enum ptx_round round,
                       bool saturate) {
    bool down =
        round == ROUND_RZ || (round == ROUND_RM && !negative) || (round == ROUND_RP && negative);
    if (saturate || down) return f->largest;
    return f->infinity ? f->infinity : f->nan;
}

uint32_t fp_encode(double x, const struct fp_format *f, enum ptx_round round, bool saturate) {
    uint64_t u = f64_bits(x);
    bool negative = u >> 63;
    uint32_t sign = (uint32_t)negative << f->sign_shift;
    uint64_t magnitude = u & 0x7fffffffffffffffu;
    if (magnitude > 0x7ff0000000000000u) return f->nan;
    if (magnitude == 0x7ff0000000000000u)
        return sign | (saturate || !f->infinity ? (saturate ? f->largest : f->nan) : f->infinity);
    if (magnitude == 0) return sign;
    int exponent = (int)(magnitude >> 52) - 1023;
    uint64_t fraction = magnitude & 0xfffffffffffffu;
    if (exponent == -1023)
        exponent = -1022;
    else
        fraction |= (uint64_t)1 << 52;
    int unit = exponent > f->lowest ? exponent : f->lowest;
    int shift = 52 - f->mantissa + (unit - exponent);
    uint64_t kept, dropped, half;
    if (shift > 54) { /* below a quarter of the least number */
        kept = 0;
        dropped = 1;
        half = 2;
    } else {
        kept = fraction >> shift;
        dropped = fraction & (((uint64_t)1 << shift) - 1);
        half = (uint64_t)1 << (shift - 1);
    }
    uint64_t code = ((uint64_t)(unit - f->lowest) << f->mantissa) + kept;
    code += rounds_up(kept, dropped, half, negative, round);
    if (code > f->largest) return sign | beyond(f, negative, round, saturate);
    return sign | (uint32_t)code;
}

double fp_exact(enum fp_operation operation, double x, double y, double z) {
    switch (operation) {
    case FP_ADD: return fp_sum_odd(x, y);
    case FP_SUB: return fp_sum_odd(x, -y);
    case FP_MUL: return x * y; /* at most 24 bits each: exact */
    case FP_FMA: return fp_sum_odd(x * y, z);
    case FP_RCP: y = x; x = 1; /* fallthrough */
    case FP_DIV: {
        double q = x / y;
        if (!(fabs(q) < INFINITY) || q == 0 || !(fabs(y) < INFINITY)) return q;
        double rest = fma(-q, y, x);
        return fp_odd(q, y < 0 ? -rest : rest);
    }
    default: {
        double q = sqrt(x);
        if (!(q < INFINITY) || q == 0) return q;
        return fp_odd(q, fma(-q, q, x));
    }
    }
}

/* An exact zero from unlike signs is -0 when rounding down. */
static bool cancels(enum fp_operation operation, double x, double y, double z) {
    switch (operation) {
    case FP_ADD: return signbit(x) != signbit(y);
    case FP_SUB: return signbit(x) == signbit(y);
    case FP_FMA: return signbit(x * y) != signbit(z);
    default: return false;
    }
}

uint32_t fp_directed(enum fp_operation operation, uint32_t a, uint32_t b, uint32_t c,
                     enum ptx_round round) {
    double x = f32_of(a), y = f32_of(b), z = f32_of(c);
    double exact = fp_exact(operation, x, y, z);
    if (exact == 0 && round == ROUND_RM && cancels(operation, x, y, z)) return 0x80000000u;
    return fp_encode(exact, &fp_f32, round, false);
}
