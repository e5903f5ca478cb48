/*
 * The lightning indexer: "indexer_query", "indexer_scores" and "indexer_topk" of docs/kernels.md.
 *
 * Where a function takes `index`, that is the layer type's ref_type with head_dim = indexer.dim and
 * the index format. Memory is the caller's; nothing is allocated, nothing fails.
 */
#ifndef KVF_REFERENCE_INDEXER_H
#define KVF_REFERENCE_INDEXER_H

#include "lists.h"
#include "tensor_core.h"

struct ref_indexer_query {
    uint32_t tokens, positions, heads;
    const uint8_t *q; /* bf16[heads][dim] a token */
    uint64_t q_stride;
    const uint8_t *weights; /* f32[heads] a token */
    uint64_t weights_stride;
    const float *rope;       /* [positions][rope_dim] */
    const int32_t *position; /* [tokens]; outside the table: the token is left untouched */
    uint16_t *q_out;         /* bf16[tokens][heads][dim], as the index format would keep them */
    float *w_out;            /* [tokens][heads] */
};

void ref_indexer_query(const struct ref_type *index, const struct ref_indexer_query *args);

struct ref_indexer_scores {
    struct ref_tensor_core core;
    uint32_t tokens, requests, heads;
    uint32_t scores_stride;             /* entries a row of `scores` holds */
    uint32_t first;                     /* the entry in column 0 */
    const int32_t *batch_id, *position; /* [tokens] */
    const uint16_t *q;                  /* bf16[tokens][heads][dim] */
    const float *w;                     /* [tokens][heads] */
    struct ref_table block_table;       /* an entry without a page scores -infinity */
    struct ref_place keys;              /* pages of block / ratio rows */
    float *scores;                      /* [tokens][scores_stride]; visible entries are written */
};

void ref_indexer_scores(const struct ref_type *index, const struct ref_indexer_scores *args);

struct ref_indexer_topk {
    uint32_t tokens, topk; /* entries to choose */
    uint32_t scores_stride, topk_stride;
    const int32_t *position;   /* [tokens]; below 0: nothing is chosen */
    const float *scores;       /* [tokens][scores_stride] */
    int32_t *out, *topk_count; /* [tokens][topk_stride]: ascending; [tokens] */
};

/*
 * The largest scores, of equal ones the lower entries; a NaN is below every number. At most
 * topk_stride of them are chosen.
 */
void ref_indexer_topk(const struct ref_type *index, const struct ref_indexer_topk *args);

#endif
