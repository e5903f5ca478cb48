#include "input.h"

#include "reference/convert.h"

#include <math.h>
#include <string.h>

const char *const input_names[INPUT_KINDS] = {"random",     "zeros",         "NaN",
                                              "infinities", "ties",          "subnormal",
                                              "huge",       "scaled blocks", "any bits"};

uint32_t input_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (uint32_t)(x * 0x2545f4914f6cdd1du >> 32);
}

uint32_t input_below(uint64_t *state, uint32_t limit) {
    return (uint32_t)((uint64_t)input_next(state) * limit >> 32);
}

/* A random sign and mantissa with an exponent field of low..low+span-1. */
static uint32_t pattern(uint64_t *state, uint32_t low, uint32_t span) {
    return (input_next(state) & 0x807fffff) | (low + input_below(state, span)) << 23;
}

/* Half way between two e4m3 codes, once the block's largest value, 448, has made its scale 1. */
static uint32_t tie(uint64_t *state, enum ref_dtype dtype, uint32_t element) {
    if (element % 64 == 0) return ref_bits(448);
    uint32_t code = input_below(state, 0x7e), sign = input_next(state) & 0x80000000;
    float middle = (ref_e4m3_value((uint8_t)code) + ref_e4m3_value((uint8_t)(code + 1))) / 2;
    if (dtype == REF_F32 && element % 2) return (pattern(state, 120, 9) & 0xffff0000) | 0x8000;
    return ref_bits(middle) | sign;
}

/* The bits of one element as binary32; those of bf16 are the upper half. */
static uint32_t element_bits(uint64_t *state, enum input_kind kind, enum ref_dtype dtype,
                             uint32_t element) {
    uint32_t chance = input_below(state, 8);
    switch (kind) {
    case INPUT_ZERO: return input_next(state) & 0x80000000;
    case INPUT_NAN:
        if (chance == 0) return (input_next(state) & 0x807fffff) | 0x7f810000;
        break;
    case INPUT_INFINITY:
        if (chance == 0) return (input_next(state) & 0x80000000) | 0x7f800000;
        break;
    case INPUT_TIES: return tie(state, dtype, element);
    case INPUT_SUBNORMAL: return pattern(state, 0, 2);
    case INPUT_HUGE: return pattern(state, 240, 15);
    case INPUT_BLOCKS: return pattern(state, 90 + element / 64 * 8 % 64, 3);
    case INPUT_BITS: return input_next(state);
    default: break;
    }
    return pattern(state, 121, 9);
}

void input_vector(uint64_t *state, enum input_kind kind, enum ref_dtype dtype, void *out,
                  uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = element_bits(state, kind, dtype, i);
        uint16_t half = (uint16_t)(bits >> 16);
        if (dtype == REF_F32)
            memcpy((uint8_t *)out + 4 * (size_t)i, &bits, 4);
        else
            memcpy((uint8_t *)out + 2 * (size_t)i, &half, 2);
    }
}

void input_weight(uint64_t *state, bool special, float *out, uint32_t count) {
    static const uint32_t odd[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                   0x7f7fffff, 0x00000001, 0x00800000, 0xff7fffff};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = pattern(state, 126, 2);
        if (special && input_below(state, 4) == 0)
            bits = odd[input_below(state, sizeof odd / sizeof *odd)];
        out[i] = ref_float(bits);
    }
}

void input_rope(uint64_t *state, float *out, size_t count) {
    static const float exact[] = {0.0f, -0.0f, 1.0f, -1.0f};
    static const float none[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < count; i++)
        out[i] = input_below(state, 16)   ? ref_float(pattern(state, 118, 9))
                 : input_below(state, 32) ? exact[input_below(state, 4)]
                                          : none[input_below(state, 4)];
}
