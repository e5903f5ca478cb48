/*
 * The number formats a row is stored in, by plain integer code.
 *
 * Every conversion rounds to nearest, ties to even, and saturates where the format has no infinity.
 * Sources: the OCP 8-bit and microscaling format papers (e4m3, e2m1, e8m0), and bfloat16 as the
 * upper half of a binary32. NaN becomes the one NaN of the format, as the chip's conversions do it;
 * e2m1 has none and takes its largest positive number. All functions are pure.
 */
#ifndef KVF_REFERENCE_CONVERT_H
#define KVF_REFERENCE_CONVERT_H

#include <stdint.h>

/* The bits of a binary32, and back. */
uint32_t ref_bits(float value);
float ref_float(uint32_t bits);

/* bfloat16: NaN becomes 0x7fff, infinities stay. */
uint16_t ref_bf16(float value);
float ref_bf16_value(uint16_t bits);

/* e4m3 (bias 7, no infinity): beyond 448 saturates to 0x7e, NaN becomes 0x7f. */
uint8_t ref_e4m3(float value);
float ref_e4m3_value(uint8_t code);

/* e2m1 (0, .5, 1, 1.5, 2, 3, 4, 6; sign is bit 3): beyond 6 saturates, NaN becomes +6. */
uint8_t ref_e2m1(float value);
float ref_e2m1_value(uint8_t code);

/*
 * ue8m0: the byte of the least power of two that is not below `value`, by the exponent field plus
 * one when the mantissa is not zero; at most 254 (255 is the format's NaN). `value` is a positive
 * normal number.
 */
uint8_t ref_ue8m0_ceil(float value);
/* 2^(byte - 127), NaN for 255. */
float ref_ue8m0_value(uint8_t byte);

#endif
