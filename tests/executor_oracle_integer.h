/* The integer half of the oracle. */
#ifndef EXECUTOR_ORACLE_INTEGER_H
#define EXECUTOR_ORACLE_INTEGER_H

#include "executor_oracle.h"

static bool oracle_halves(struct query *q) {
    bool sign = q_signed(q->type[0]);
    uint64_t out = 0;
    for (int h = 0; h < 2; h++) {
        wide_t x = q_value(q->a >> (16 * h), 16, sign), y = q_value(q->b >> (16 * h), 16, sign), r;
        if (q_is(q, "add"))
            r = x + y;
        else if (q_is(q, "min"))
            r = x < y ? x : y;
        else if (q_is(q, "max"))
            r = x > y ? x : y;
        else
            return false;
        if (q_has(q, "relu") && r < 0) r = 0;
        out |= q_cut(r, 16) << (16 * h);
    }
    q->d = out;
    return true;
}

static bool oracle_bits(struct query *q, int bits) {
    uint64_t x = q_cut((wide_t)q->a, bits), y = q_cut((wide_t)q->b, bits);
    if (q_is(q, "and"))
        q->d = x & y;
    else if (q_is(q, "or"))
        q->d = x | y;
    else if (q_is(q, "xor"))
        q->d = x ^ y;
    else if (q_is(q, "not"))
        q->d = q_cut(~(wide_t)x, bits);
    else if (q_is(q, "cnot"))
        q->d = x == 0;
    else if (q_is(q, "popc")) {
        q->d = 0;
        for (int i = 0; i < bits; i++) q->d += x >> i & 1;
    } else if (q_is(q, "clz")) {
        q->d = 0;
        for (int i = bits - 1; i >= 0 && !(x >> i & 1); i--) q->d++;
    } else if (q_is(q, "brev")) {
        q->d = 0;
        for (int i = 0; i < bits; i++) q->d |= (x >> i & 1) << (bits - 1 - i);
    } else if (q_is(q, "lop3")) {
        q->d = 0;
        for (int i = 0; i < 32; i++) {
            int index = (int)((q->a >> i & 1) << 2 | (q->b >> i & 1) << 1 | (q->c >> i & 1));
            q->d |= ((uint64_t)q->immediate >> index & 1) << i;
        }
    } else {
        return false;
    }
    return true;
}

static bool oracle_fields(struct query *q, int bits, bool sign) {
    uint64_t x = q_cut((wide_t)q->a, bits);
    if (q_is(q, "bfe")) {
        /* Bit by bit, as the ISA's own pseudo-code does. */
        uint32_t pos = q->b & 0xff, len = q->c & 0xff, msb = (uint32_t)bits - 1;
        bool sbit = false;
        if (sign && len) sbit = x >> (pos + len - 1 < msb ? pos + len - 1 : msb) & 1;
        q->d = 0;
        for (uint32_t i = 0; i <= msb; i++)
            q->d |= (uint64_t)(i < len && pos + i <= msb ? x >> (pos + i) & 1 : sbit) << i;
    } else if (q_is(q, "bfi")) {
        uint32_t pos = q->c & 0xff, len = q->e & 0xff;
        q->d = q_cut((wide_t)q->b, bits);
        for (uint32_t i = 0; i < len && pos + i < (uint32_t)bits; i++) {
            q->d &= ~((uint64_t)1 << (pos + i));
            q->d |= (x >> i & 1) << (pos + i);
        }
    } else if (q_is(q, "bfind")) {
        if (sign && x >> (bits - 1) & 1) x = q_cut(~(wide_t)x, bits);
        q->d = UINT32_MAX;
        for (int i = bits - 1; i >= 0; i--)
            if (x >> i & 1) {
                q->d = (uint64_t)(q_has(q, "shiftamt") ? bits - 1 - i : i);
                break;
            }
    } else if (q_is(q, "bmsk")) {
        uint32_t a = (uint32_t)q->a, b = (uint32_t)q->b;
        if (q_has(q, "wrap")) a &= 31, b &= 31;
        q->d = 0;
        for (uint32_t i = 0; i < 32; i++)
            q->d |= (uint64_t)(i >= a && (uint64_t)i < (uint64_t)a + b) << i;
    } else if (q_is(q, "szext")) {
        uint32_t n = (uint32_t)q->b;
        if (q_has(q, "wrap")) n &= 31;
        if (n > 32) n = 32;
        q->d = n ? q_cut(q_value(x, (int)n, sign), 32) : 0;
    } else if (q_is(q, "fns")) {
        uint32_t mask = (uint32_t)q->a, base = (uint32_t)q->b;
        int32_t n = (int32_t)q->c;
        q->d = UINT32_MAX;
        if (base > 31) return true;
        if (n == 0) {
            if (mask >> base & 1) q->d = base;
            return true;
        }
        int64_t seen = 0;
        for (int i = (int)base; i >= 0 && i<32; i += n> 0 ? 1 : -1) {
            seen += mask >> i & 1;
            if ((mask >> i & 1) && seen == (n > 0 ? (int64_t)n : -(int64_t)n)) {
                q->d = (uint64_t)i;
                break;
            }
        }
    } else {
        return false;
    }
    return true;
}

static bool oracle_shift(struct query *q, int bits, bool sign) {
    uint32_t n = (uint32_t)q->b;
    wide_t x = q_value(q->a, bits, sign);
    if (q_is(q, "shl") || q_is(q, "shr")) {
        if (n > (uint32_t)bits) n = (uint32_t)bits;
        q->d = q_cut(q_is(q, "shl") ? (wide_t)((uwide_t)x << n) : x >> n, bits);
        return true;
    }
    if (!q_is(q, "shf")) return false;
    n = (uint32_t)q->c;
    n = q_has(q, "wrap") ? n & 31 : n > 32 ? 32 : n;
    uwide_t both = (uwide_t)(q->b & UINT32_MAX) << 32 | (q->a & UINT32_MAX);
    q->d = (uint32_t)(q_has(q, "l") ? both << n >> 32 : both >> n);
    return true;
}

static bool oracle_permute(struct query *q) {
    uint8_t bytes[8];
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(q->a >> (8 * i));
        bytes[4 + i] = (uint8_t)(q->b >> (8 * i));
    }
    int n = (int)(q->c & 3);
    q->d = 0;
    for (int i = 0; i < 4; i++) {
        int pick;
        bool sign = false;
        if (q_has(q, "f4e"))
            pick = n + i;
        else if (q_has(q, "b4e"))
            pick = (n - i) & 7;
        else if (q_has(q, "rc8"))
            pick = n;
        else if (q_has(q, "ecl"))
            pick = i < n ? n : i;
        else if (q_has(q, "ecr"))
            pick = i > n ? n : i;
        else if (q_has(q, "rc16"))
            pick = (n & 1) * 2 + (i & 1);
        else {
            pick = (int)(q->c >> (4 * i) & 7);
            sign = q->c >> (4 * i + 3) & 1;
        }
        uint64_t byte = sign ? (bytes[pick] & 128 ? 255 : 0) : bytes[pick];
        q->d |= byte << (8 * i);
    }
    return true;
}

static bool oracle_dot(struct query *q) {
    bool xs = q_signed(q->type[0]), ys = q_signed(q->type[1]);
    wide_t sum = (wide_t)(q->c & UINT32_MAX);
    if (q_is(q, "dp4a")) {
        for (int i = 0; i < 4; i++)
            sum += q_value(q->a >> (8 * i), 8, xs) * q_value(q->b >> (8 * i), 8, ys);
    } else {
        int first = q_has(q, "hi") ? 2 : 0;
        for (int i = 0; i < 2; i++)
            sum += q_value(q->a >> (16 * i), 16, xs) * q_value(q->b >> (8 * (first + i)), 8, ys);
    }
    q->d = q_cut(sum, 32);
    return true;
}

static bool oracle_carry(struct query *q, int bits, bool sign) {
    uwide_t x = (uwide_t)q_value(q->a, bits, false), y = (uwide_t)q_value(q->b, bits, false);
    uwide_t one = (uwide_t)1, r;
    bool in = q_is(q, "addc") || q_is(q, "subc") || q_is(q, "madc");
    uwide_t c = in && q->carry;
    if (q_is(q, "add") || q_is(q, "addc")) {
        r = x + y + c;
        q->q2 = r >> bits & 1;
    } else if (q_is(q, "sub") || q_is(q, "subc")) {
        r = x - y - c;
        q->q2 = x < y + c;
    } else {
        uwide_t p = x * y; /* 64 by 64 bits without sign needs all 128 */
        if (sign) p = (uwide_t)(q_value(q->a, bits, true) * q_value(q->b, bits, true));
        uwide_t part = (uwide_t)q_cut((wide_t)(q_has(q, "hi") ? p >> bits : p), bits);
        r = part + (uwide_t)q_value(q->c, bits, false) + c;
        q->q2 = r >> bits & 1;
    }
    (void)one;
    q->d = q_cut((wide_t)r, bits);
    return true;
}

static bool oracle_product(struct query *q, int bits, bool sign) {
    wide_t x = q_value(q->a, bits, sign), y = q_value(q->b, bits, sign), product = x * y;
    if (!sign) product = (wide_t)((uwide_t)x * (uwide_t)y);
    bool wide = q_has(q, "wide"), mad = q_is(q, "mad") || q_is(q, "mad24");
    if (q_is(q, "mul24") || q_is(q, "mad24")) {
        product = q_value(q->a, 24, sign) * q_value(q->b, 24, sign);
        if (q_has(q, "hi")) product >>= 16;
    } else if (q_has(q, "hi")) {
        product = sign ? product >> bits : (wide_t)((uwide_t)product >> bits);
    }
    if (mad) product += q_value(q->c, wide ? 2 * bits : bits, sign);
    if (q_has(q, "sat")) product = q_clamp(q_is(q, "mad24") ? product : product, bits, sign);
    q->d = q_cut(product, wide ? 2 * bits : bits);
    return true;
}

static bool oracle_integer(struct query *q) {
    const char *type = q->type[0];
    int bits = q_bits(type);
    bool sign = q_signed(type);
    if (strstr(type, "x2")) return oracle_halves(q);
    if (q_has(q, "cc") || q_is(q, "addc") || q_is(q, "subc") || q_is(q, "madc"))
        return oracle_carry(q, bits, sign);
    if (q_is(q, "dp4a") || q_is(q, "dp2a")) return oracle_dot(q);
    if (q_is(q, "prmt")) return oracle_permute(q);
    if (q_is(q, "mul") || q_is(q, "mad") || q_is(q, "mul24") || q_is(q, "mad24"))
        return oracle_product(q, bits, sign);
    if (oracle_fields(q, bits, sign) || oracle_shift(q, bits, sign) || oracle_bits(q, bits))
        return true;
    wide_t x = q_value(q->a, bits, sign), y = q_value(q->b, bits, sign), r;
    wide_t z = q_value(q->c, bits, sign);
    if (q_is(q, "add"))
        r = x + y;
    else if (q_is(q, "sub"))
        r = x - y;
    else if (q_is(q, "sad"))
        r = (x < y ? y - x : x - y) + z;
    else if (q_is(q, "abs"))
        r = x < 0 ? -x : x;
    else if (q_is(q, "neg"))
        r = -x;
    else if (q_is(q, "min"))
        r = x < y ? x : y;
    else if (q_is(q, "max"))
        r = x > y ? x : y;
    else if (q_is(q, "div"))
        r = y ? x / y : -1; /* by zero: what chips give */
    else if (q_is(q, "rem"))
        r = y ? x % y : x;
    else
        return false;
    if (q_has(q, "sat")) r = q_clamp(r, bits, sign);
    if (q_has(q, "relu") && r < 0) r = 0;
    q->d = q_cut(r, bits);
    return true;
}

#endif
