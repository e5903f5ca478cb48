/* What several references do with one vector of binary32 values; orders of summation are fixed. */
#ifndef KVF_REFERENCE_VECTOR_H
#define KVF_REFERENCE_VECTOR_H

#include "fp32.h"
#include "reference.h"

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

/*
 * The Walsh-Hadamard transform in Sylvester's order of `count` elements (a power of two), in place:
 * butterflies of stride 1, 2, 4, ..., then times fl(count^-1/2). Nothing is rounded to bf16.
 */
void ref_hadamard(float *x, uint32_t count);

/* Element `column` of a row of numbers, widened. */
float ref_element(enum ref_dtype dtype, const uint8_t *row, uint32_t column);

/* Every element to bfloat16 and back. */
void ref_round_bf16(float *x, uint32_t count);

#endif
