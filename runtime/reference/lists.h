/*
 * Lists of row numbers, and pages moved by lists: "row_lists", "translate_pack" and "rows_copy" of
 * docs/kernels.md. A row number is id * B + r; -1 stands where no page is backed.
 *
 * Memory is the caller's; nothing is allocated, nothing fails. Strides of arrays of int32 are in
 * elements, of pages in bytes.
 */
#ifndef KVF_REFERENCE_LISTS_H
#define KVF_REFERENCE_LISTS_H

#include "reference.h"

/* A table of page ids, one row a request; ids outside [0, pages) are not backed. */
struct ref_table {
    const int32_t *ids; /* [requests][stride] */
    uint32_t stride, pages;
};

struct ref_row_lists {
    uint32_t tokens, requests;
    const int32_t *batch_id, *position; /* [tokens] */
    bool paged;                         /* where window rows are found: */
    const int32_t *state_slot;          /* ring mode: [requests], */
    uint32_t slots;                     /* slots outside [0, slots) have no rows */
    struct ref_table window_table;      /* paged mode: pages of `block` rows */
    bool entries;                       /* list all visible entries, too */
    bool indexer;                 /* another kernel counts entries: entry_count is not written */
    struct ref_table block_table; /* pages of block / ratio entries */
    uint32_t list_stride;
    int32_t *rows;                       /* [tokens][list_stride] */
    int32_t *window_count, *entry_count; /* [tokens] */
};

void ref_row_lists(const struct ref_type *type, const struct ref_row_lists *args);

struct ref_translate_pack {
    uint32_t tokens, requests;
    const int32_t *batch_id, *position;
    const int32_t *topk, *topk_count; /* [tokens][topk_stride], [tokens] */
    uint32_t topk_stride;
    struct ref_table block_table;
    uint32_t list_stride;
    const int32_t *window_count;
    int32_t *rows, *entry_count;
};

void ref_translate_pack(const struct ref_type *type, const struct ref_translate_pack *args);

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
