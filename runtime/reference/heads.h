/*
 * Query heads before attention and output heads after it: "q_norm_rope" and "inverse_rope" of
 * docs/kernels.md. Tokens whose position is negative or beyond the table are left untouched.
 */
#ifndef KVF_REFERENCE_HEADS_H
#define KVF_REFERENCE_HEADS_H

#include "reference.h"

struct ref_heads {
    uint32_t tokens, heads, positions;
    const uint8_t *q; /* bf16[heads][head_dim] a token; q_norm_rope only */
    uint64_t q_stride;
    const float *rope;       /* [positions][rope_dim]: cosines of the pairs, then sines */
    const int32_t *position; /* [tokens] */
    uint8_t *out;            /* bf16[heads][head_dim] a token */
    uint64_t out_stride;
};

/* Each head of `q` over its root mean square, its last rope_dim elements rotated, into `out`. */
void ref_q_norm_rope(const struct ref_type *type, const struct ref_heads *args);

/* The conjugate rotation of the last rope_dim elements of each head, in place. */
void ref_inverse_rope(const struct ref_type *type, const struct ref_heads *args);

#endif
