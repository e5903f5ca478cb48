/* What several references do with one vector of binary32 values; orders of summation are fixed. */
#ifndef KVF_REFERENCE_VECTOR_H
#define KVF_REFERENCE_VECTOR_H

#include <stdint.h>

#define REF_MAX_DIM 4096 /* elements of the longest vector a reference takes */

/*
 * The sum of squares as a warp forms it: vectors of 8 elements, lane l holds vectors l, l + 32, ...
 * and adds their squares in order to +0; then for m = 16, 8, 4, 2, 1 each lane adds lane l xor m.
 */
float ref_sum_squares(const float *x, uint32_t count);

/* x <- (x * (1 / sqrt(mean of squares + eps))) * weight, in place. */
void ref_rms_norm(float *x, uint32_t count, const float *weight, float eps);

/*
 * Rotate interleaved pairs: (a, b) -> (a * cos - b * sin, a * sin + b * cos). `table` holds
 * rope_dim / 2 cosines, then as many sines.
 */
void ref_rotate(float *x, uint32_t rope_dim, const float *table);

/* The chip's arithmetic has one NaN, 0x7fffffff; what is stored as binary32 must have its bits. */
float ref_one_nan(float x);

/* Every element to bfloat16 and back. */
void ref_round_bf16(float *x, uint32_t count);

#endif
