/*
 * What a chip's tensor cores make of a bf16 dot product, bit for bit.
 *
 * A block of `block` products and the accumulator are added at once: every term is aligned to the
 * largest exponent among them (a product's is the sum of its factors' exponents, not normalised;
 * terms that are zero have none), cut off behind `fraction` bits, added exactly, and the sum is cut
 * off to a binary32. An infinite or NaN term decides as in IEEE arithmetic, a NaN is 0x7fffffff, a
 * sum beyond the largest number is infinite, an exact zero is +0.
 *
 * Source: published measurements of the chips (the model and the bits of each are reproduced over
 * recorded results by the tests). Chips that nobody has measured take the nearest one's numbers.
 */
#ifndef KVF_REFERENCE_TENSOR_CORE_H
#define KVF_REFERENCE_TENSOR_CORE_H

#include <stdint.h>

struct ref_tensor_core {
    uint32_t block; /* products that are added at once: 8 or 16 */
    int fraction;   /* bits kept behind the point of the largest exponent */
};

/* The numbers of a target, by its name: "sm_80", "sm_90a". */
struct ref_tensor_core ref_tensor_core_of(const char *target);

/*
 * c + sum of a[i] * b[i], i = 0 .. count - 1 in order, as a chain of mma.m16n8k16 computes one
 * element of its result. `a` and `b` are bf16; `count` is a multiple of 16, at most REF_MAX_DIM.
 */
float ref_mma_dot(struct ref_tensor_core core, const uint16_t *a, const uint16_t *b, uint32_t count,
                  float c);

#endif
