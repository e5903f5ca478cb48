/* row_lists and translate_pack: what a token attends to, by row number. */
#include "lists.h"

/* The row number of item `i`, when a page holds `per_page` of them. */
static int32_t table_row(const struct ref_table *table, int32_t request, uint32_t i,
                         uint32_t per_page) {
    uint32_t column = i / per_page;
    if (column >= table->stride) return -1;
    int32_t id = table->ids[(uint64_t)request * table->stride + column];
    if (id < 0 || (uint32_t)id >= table->pages) return -1;
    return (int32_t)((int64_t)id * per_page + i % per_page);
}

static bool is_padding(int32_t request, int32_t position, uint32_t requests) {
    return request < 0 || (uint32_t)request >= requests || position < 0;
}

static int32_t window_row(const struct ref_type *type, const struct ref_row_lists *args,
                          int32_t request, uint32_t position) {
    if (args->paged) return table_row(&args->window_table, request, position, type->block);
    int32_t slot = args->state_slot[request];
    if (slot < 0 || (uint32_t)slot >= args->slots) return -1;
    return (int32_t)((int64_t)slot * type->ring + position % type->ring);
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static void list_token(const struct ref_type *type, const struct ref_row_lists *args, uint32_t t) {
    int32_t request = args->batch_id[t], position = args->position[t];
    int32_t *rows = args->rows + (uint64_t)t * args->list_stride;
    uint32_t window = 0, entries = 0;
    if (!is_padding(request, position, args->requests)) {
        uint32_t seen = (uint32_t)position + 1, reach = least(seen, type->window);
        window = least(reach, args->list_stride);
        for (uint32_t i = 0; i < window; i++)
            rows[i] = window_row(type, args, request, seen - reach + i);
        if (args->entries) entries = least(seen / type->ratio, args->list_stride - window);
        for (uint32_t j = 0; j < entries; j++)
            rows[window + j] = table_row(&args->block_table, request, j, type->block / type->ratio);
    }
    args->window_count[t] = (int32_t)window;
    if (!args->indexer) args->entry_count[t] = (int32_t)entries;
}

void ref_row_lists(const struct ref_type *type, const struct ref_row_lists *args) {
    for (uint32_t t = 0; t < args->tokens; t++) list_token(type, args, t);
}

void ref_translate_pack(const struct ref_type *type, const struct ref_translate_pack *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        int32_t request = args->batch_id[t];
        const int32_t *topk = args->topk + (uint64_t)t * args->topk_stride;
        args->entry_count[t] = 0;
        if (is_padding(request, args->position[t], args->requests)) continue;
        uint32_t window = (uint32_t)args->window_count[t];
        uint32_t count = least((uint32_t)args->topk_count[t], args->list_stride - window);
        int32_t *rows = args->rows + (uint64_t)t * args->list_stride + window;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = table_row(&args->block_table, request, (uint32_t)topk[i],
                                type->block / type->ratio);
        args->entry_count[t] = (int32_t)count;
    }
}
