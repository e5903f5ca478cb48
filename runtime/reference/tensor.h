/*
 * A chip's mma.sync on bf16 with binary32 accumulators, one dot product at a time.
 *
 * Model (measured on chips by others, reproduced bit for bit): products keep all their bits; they
 * and the accumulator are aligned to the largest exponent among them (of a product: the sum of its
 * factors' exponents), cut toward zero to `bits` fraction bits, summed exactly, and the sum is cut
 * toward zero to binary32. An instruction of k = 16 is one block of 16 (compute capability 9.0:
 * 25 bits), or two of 8 one after the other (8.0 and 8.9: 24 bits).
 *
 * Not measured, chosen here: zeros do not take part in the alignment; a NaN, an infinity times
 * zero, or infinities of both signs give 0x7fffffff; an overflow gives an infinity.
 */
#ifndef KVF_REFERENCE_TENSOR_H
#define KVF_REFERENCE_TENSOR_H

#include "reference.h"

/* The chip of a compute capability times ten: 80, 89, 90. */
struct ref_chip ref_chip_of(int capability);

/*
 * c + sum of a[i] * b[i * b_step] for i < k; k is a multiple of 16. Elements are bf16, taken 16 at
 * a time in ascending order.
 */
float ref_mma(struct ref_chip chip, const uint16_t *a, const uint16_t *b, size_t b_step, uint32_t k,
              float c);

#endif
