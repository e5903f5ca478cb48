/*
 * Lists in the published pool's packed form ("Packed lists" of docs/kernels.md), written from the
 * description of that pool alone: one ragged array, token t's slice between indptr[t] and
 * indptr[t + 1]. Memory is the caller's; nothing is allocated, nothing fails.
 */
#ifndef KVF_REFERENCE_PACKED_H
#define KVF_REFERENCE_PACKED_H

#include "reference.h"

/* A ragged array of `count` elements; slices that do not lie in it are empty. */
struct ref_ragged {
    const int32_t *indptr; /* [tokens + 1] */
    uint32_t count;
    int32_t *list;
};

struct ref_packed_lists {
    struct ref_batch batch; /* positions, slots and state_slot are not read */
    bool prefill, indexer;
    struct ref_table window, block;
    struct ref_ragged rows, extend; /* extend: in prefill */
    int32_t *window_count;          /* [tokens] */
};
void ref_packed_lists(const struct ref_type *type, const struct ref_packed_lists *args);

struct ref_packed_chosen {
    struct ref_batch batch;
    struct ref_table block;
    uint32_t topk_stride;
    const int32_t *topk, *topk_count;
    const int32_t *skip; /* [tokens]: rows at the slice's tail */
    struct ref_ragged rows;
};
void ref_packed_chosen(const struct ref_type *type, const struct ref_packed_chosen *args);

#endif
