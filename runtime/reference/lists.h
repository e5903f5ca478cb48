/*
 * Pages moved by lists ("rows_copy" of docs/kernels.md). Memory is the caller's;
 * nothing is allocated, nothing fails. Strides of arrays of int32 are in elements, of pages in
 * bytes.
 */
#ifndef KVF_REFERENCE_LISTS_H
#define KVF_REFERENCE_LISTS_H

#include "reference.h"

struct ref_rows_copy {
    uint64_t bytes; /* of each page */
    uint32_t count;
    uint64_t src_stride, dst_stride;
    const int32_t *src_ids, *dst_ids; /* [count]; -1 on either side copies nothing */
    const uint8_t *src;
    uint8_t *dst;
};

void ref_rows_copy(const struct ref_rows_copy *args);

#endif
