#include "convert.h"

#include <string.h>

#define SIGN     0x80000000u
#define INFINITE 0x7f800000u

uint32_t ref_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float ref_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t ref_bf16(float value) {
    uint32_t bits = ref_bits(value);
    if ((bits & ~SIGN) > INFINITE) return 0x7fff;
    /* Half a unit, less one unless the kept part is odd: a tie then moves to the even neighbour. */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float ref_bf16_value(uint16_t bits) {
    return ref_float((uint32_t)bits << 16);
}

/*
 * Round a finite or infinite magnitude to a small float with `mantissa` explicit mantissa bits and
 * smallest normal number 2^lowest; codes count up from zero, `largest` is the last one. A mantissa
 * that rounds up to the next power of two carries into the exponent by itself.
 */
static uint32_t small_float(uint32_t magnitude, int mantissa, int lowest, uint32_t largest) {
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent < lowest - mantissa - 1) return 0; /* below half of the smallest number */
    if (exponent == 128) return largest;
    uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    int steps = exponent > lowest ? exponent - lowest : 0; /* binades above the lowest */
    int drop = 23 - mantissa + (exponent < lowest ? lowest - exponent : 0);
    uint32_t kept = significand >> drop;
    uint32_t rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    uint32_t code = ((uint32_t)steps << mantissa) + kept;
    return code < largest ? code : largest;
}

/* The value of such a code: kept * 2^(lowest - mantissa + steps). */
static float small_float_value(uint32_t code, int mantissa, int lowest) {
    uint32_t field = code >> mantissa, kept = code & ((1u << mantissa) - 1);
    int scale = lowest - mantissa;
    if (field > 0) {
        kept |= 1u << mantissa;
        scale += (int)field - 1;
    }
    return (float)kept * ref_float((uint32_t)(scale + 127) << 23);
}

uint8_t ref_e4m3(float value) {
    uint32_t bits = ref_bits(value), magnitude = bits & ~SIGN;
    if (magnitude > INFINITE) return 0x7f;
    return (uint8_t)(bits >> 31 << 7 | small_float(magnitude, 3, -6, 0x7e));
}

float ref_e4m3_value(uint8_t code) {
    if ((code & 0x7f) == 0x7f) return ref_float(0x7fffffff);
    float magnitude = small_float_value(code & 0x7f, 3, -6);
    return code & 0x80 ? -magnitude : magnitude;
}

uint8_t ref_e2m1(float value) {
    uint32_t bits = ref_bits(value), magnitude = bits & ~SIGN;
    if (magnitude > INFINITE) return 7;
    return (uint8_t)(bits >> 31 << 3 | small_float(magnitude, 1, 0, 7));
}

float ref_e2m1_value(uint8_t code) {
    float magnitude = small_float_value(code & 7, 1, 0);
    return code & 8 ? -magnitude : magnitude;
}

uint8_t ref_ue8m0_ceil(float value) {
    uint32_t bits = ref_bits(value) & ~SIGN;
    uint32_t byte = (bits >> 23) + ((bits & 0x7fffff) != 0);
    return (uint8_t)(byte < 254 ? byte : 254);
}

float ref_ue8m0_value(uint8_t byte) {
    if (byte == 255) return ref_float(0x7fffffff);
    if (byte == 0) return ref_float(0x400000); /* 2^-127 is subnormal */
    return ref_float((uint32_t)byte << 23);
}
