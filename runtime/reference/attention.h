/*
 * Attention over a token's list of rows, as docs/kernels.md states it ("attn", "attn_combine"):
 * tiles of 32 list positions, an online softmax in base 2, products by the tensor core's model.
 *
 * As everywhere in the references: memory is the caller's, nothing is allocated, calls on
 * different memory may run in parallel. NaNs in results are 0x7fffffff, in bf16 0x7fff.
 */
#ifndef KVF_REFERENCE_ATTENTION_H
#define KVF_REFERENCE_ATTENTION_H

#include "reference.h"
#include "tensor_core.h"

struct ref_attn {
    struct ref_tensor_core core;
    uint32_t tokens, heads, splits;
    uint32_t split_rows;  /* list positions in a split */
    uint32_t list_stride; /* elements of `rows` from token to token */
    float scale;
    const uint8_t *q; /* bf16[heads][head_dim] a token */
    uint64_t q_stride;
    const int32_t *rows; /* row numbers; below 0: no row */
    const int32_t *window_count, *entry_count;
    struct ref_place window;     /* of the first window_count row numbers */
    struct ref_place compressed; /* of the entry_count that follow */
    float *part_o;               /* [tokens][splits][heads][head_dim] */
    float *part_m, *part_l;      /* [tokens][splits][heads] */
};

/* head_dim is a multiple of 16, at most REF_MAX_DIM. Empty splits leave part_o untouched. */
void ref_attn(const struct ref_type *type, const struct ref_attn *args);

struct ref_attn_combine {
    uint32_t tokens, heads, splits;
    const float *part_o, *part_m, *part_l; /* as ref_attn wrote them */
    const float *sink;                     /* [heads] */
    uint8_t *out;                          /* bf16[heads][head_dim] a token */
    uint64_t out_stride;
    float *lse; /* [tokens][heads], natural, of the rows alone */
};

void ref_attn_combine(const struct ref_type *type, const struct ref_attn_combine *args);

#endif
