/* rows_copy: pages from one array to another, by two lists of ids. */
#include "lists.h"

#include <string.h>

void ref_rows_copy(const struct ref_rows_copy *args) {
    for (uint32_t i = 0; i < args->count; i++) {
        int32_t from = args->src_ids[i], to = args->dst_ids[i];
        if (from < 0 || to < 0) continue;
        memcpy(args->dst + (uint64_t)to * args->dst_stride,
               args->src + (uint64_t)from * args->src_stride, args->bytes);
    }
}
