#include "dtype.h"

#include <math.h>
#include <string.h>

enum kind { UNSIGNED, SIGNED, FLOAT, CODE };

static const struct row {
    const char *name;
    unsigned bits;
    enum kind kind;
} rows[DTYPE_COUNT] = {
    [DTYPE_U8] = {"u8", 8, UNSIGNED},   [DTYPE_I8] = {"i8", 8, SIGNED},
    [DTYPE_E4M3] = {"e4m3", 8, CODE},   [DTYPE_E5M2] = {"e5m2", 8, CODE},
    [DTYPE_UE8M0] = {"ue8m0", 8, CODE}, [DTYPE_E2M1] = {"e2m1", 4, CODE},
    [DTYPE_PAD] = {"pad", 8, CODE},     [DTYPE_U16] = {"u16", 16, UNSIGNED},
    [DTYPE_I16] = {"i16", 16, SIGNED},  [DTYPE_BF16] = {"bf16", 16, FLOAT},
    [DTYPE_F16] = {"f16", 16, FLOAT},   [DTYPE_U32] = {"u32", 32, UNSIGNED},
    [DTYPE_I32] = {"i32", 32, SIGNED},  [DTYPE_F32] = {"f32", 32, FLOAT},
};

enum dtype dtype_find(const char *name) {
    unsigned type = 0;
    while (type < DTYPE_COUNT && strcmp(rows[type].name, name) != 0) type++;
    return (enum dtype)type;
}

const char *dtype_name(enum dtype type) {
    return rows[type].name;
}

unsigned dtype_bits(enum dtype type) {
    return rows[type].bits;
}

uint64_t dtype_bytes(enum dtype type, uint64_t count) {
    return (count * rows[type].bits + 7) / 8;
}

/* binary16 of a value that must be exact: sign, then the value scaled to an integer of 11 bits. */
static bool f16_exact(double value, uint32_t *bits) {
    uint32_t sign = signbit(value) ? 0x8000u : 0;
    double size = fabs(value);
    int exponent = 0;
    if (size == 0) return *bits = sign, true;
    (void)frexp(size, &exponent); /* size = [0.5, 1) * 2^exponent */
    int unit = exponent - 11 < -24 ? -24 : exponent - 11;
    double code = ldexp(size, -unit);
    if (exponent > 16 || code != floor(code)) return false;
    /* Subnormals (unit -24, code below 1024) fall out of the same sum. */
    *bits = sign | (uint32_t)((int)code + (unit + 24) * 1024);
    return true;
}

static bool float_exact(enum dtype type, double value, uint32_t *bits) {
    if (type == DTYPE_F16) return f16_exact(value, bits);
    if (fabs(value) > 3.4028234663852886e38) return false;
    float single = (float)value;
    if ((double)single != value) return false;
    memcpy(bits, &single, sizeof single);
    if (type == DTYPE_F32) return true;
    bool exact = (*bits & 0xffff) == 0;
    *bits >>= 16;
    return exact;
}

static bool integer_exact(unsigned width, bool negative_too, double value, uint32_t *bits) {
    double least = negative_too ? -ldexp(1, (int)width - 1) : 0;
    double most = ldexp(1, (int)width - (negative_too ? 1 : 0)) - 1;
    if (!(value >= least && value <= most) || value != floor(value)) return false;
    *bits = (uint32_t)(int64_t)value;
    if (width < 32) *bits &= (1u << width) - 1;
    return true;
}

bool dtype_fill(enum dtype type, double value, struct dtype_fill *out) {
    uint32_t bits = 0;
    bool exact = false;
    switch (rows[type].kind) {
    case UNSIGNED: exact = integer_exact(rows[type].bits, false, value, &bits); break;
    case SIGNED: exact = integer_exact(rows[type].bits, true, value, &bits); break;
    case FLOAT: exact = float_exact(type, value, &bits); break;
    case CODE: exact = value == 0; break;
    }
    if (exact) *out = (struct dtype_fill){.bits = bits, .width = (rows[type].bits + 7) / 8};
    return exact;
}
