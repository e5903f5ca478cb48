/*
 * Tensor-core arithmetic, bit for bit as measured on chips. One step adds the products of `block`
 * pairs and the accumulator: every term is aligned to the largest exponent (of a product: the sum
 * of its factors' exponents, not normalised), cut towards zero to `fraction` bits, added exactly,
 * and the sum is normalised and cut to `result` fraction bits of an f32. Steps are chained over k.
 *
 *   chip             type          block fraction result
 *   sm_80, sm_89     bf16          8     24       23      measured (f16: assumed)
 *   sm_90            bf16, f16     16    25       23      measured (sm_100: assumed)
 *   sm_89            e4m3          16    13       13      measured (e5m2: assumed)
 *   sm_90, sm_100    e4m3          16    25       23      measured on sm_100: from 0, then + C (rn)
 *   any              tf32          4, 8  24, 25   23      assumed, as bf16 with half the block
 */
#ifndef EXECUTOR_TENSOR_H
#define EXECUTOR_TENSOR_H

#include "config.h"
#include "ptx.h"

struct tensor_rule {
    int block, fraction, result;
    bool add_after; /* accumulate from zero and add C by add.rn.f32 at the end */
};

/* The rule for a type on the chip that `model` names, or that the module's target stands for. */
struct tensor_rule tensor_rule(enum ptx_type type, enum tensor_model model, unsigned target);

/* Factors of a dot product as sign-magnitude integers: value = significand * 2^(exponent - shift).
 */
struct tensor_format {
    int fraction; /* bits after the point of a significand */
    int bias, exponent_bits;
    bool infinities; /* all exponent bits set: infinity or NaN; else only all ones is NaN */
};

struct tensor_format tensor_format(enum ptx_type type);

/*
 * One dot product, for tests: k values of the type, codes in a[] and b[], accumulator c as f32
 * bits. Returns the f32 bits.
 */
uint32_t tensor_dot(struct tensor_rule rule, enum ptx_type type, const uint32_t *a,
                    const uint32_t *b, int k, uint32_t c);

#endif
