/* row_lists and translate_pack: which rows a token attends to, as row numbers page * rows + row. */
#include "reference.h"

int32_t ref_table_page(const struct ref_table *table, int32_t request, uint32_t column) {
    if (column >= table->stride) return -1;
    int32_t page = table->pages_of[(uint64_t)request * table->stride + column];
    return page >= 0 && (uint32_t)page < table->pages ? page : -1;
}

/* The row number of row `index` of a request's pages of `rows` rows, -1 where it is not backed. */
static int32_t row_number(const struct ref_table *table, int32_t request, uint32_t index,
                          uint32_t rows) {
    int32_t page = ref_table_page(table, request, index / rows);
    return page < 0 ? -1 : (int32_t)((uint32_t)page * rows + index % rows);
}

/* The row of a position that token t sees, `back` positions before its own. */
static int32_t window_row(const struct ref_type *type, const struct ref_row_lists *args, uint32_t t,
                          uint32_t back) {
    int32_t request = args->batch.batch_id[t];
    uint32_t position = (uint32_t)args->batch.position[t] - back;
    if (args->workspace) return (int32_t)(ref_workspace_row(type, t, request) - back);
    if (args->paged) return row_number(&args->window, request, position, type->block);
    int32_t slot = args->batch.state_slot[request];
    if (slot < 0 || (uint32_t)slot >= args->batch.slots) return -1;
    return (int32_t)((uint32_t)slot * type->ring + position % type->ring);
}

static bool is_real(const struct ref_batch *batch, uint32_t t) {
    int32_t request = batch->batch_id[t];
    return request >= 0 && (uint32_t)request < batch->requests && batch->position[t] >= 0;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* One token's list; a list that is too short for all keeps what comes first. */
static void list_token(const struct ref_type *type, const struct ref_row_lists *args, uint32_t t) {
    int32_t request = args->batch.batch_id[t];
    int32_t *rows = args->rows + (uint64_t)t * args->list_stride;
    uint32_t seen = (uint32_t)args->batch.position[t] + 1, visible = least(seen, type->window);
    uint32_t count = least(visible, args->list_stride), entries = 0;
    for (uint32_t i = 0; i < count; i++) rows[i] = window_row(type, args, t, visible - 1 - i);
    if (type->ratio && !args->indexer)
        entries = least(seen / type->ratio, args->list_stride - count);
    for (uint32_t j = 0; j < entries; j++)
        rows[count + j] = row_number(&args->block, request, j, type->block / type->ratio);
    args->window_count[t] = (int32_t)count;
    if (!args->indexer) args->entry_count[t] = (int32_t)entries;
}

void ref_row_lists(const struct ref_type *type, const struct ref_row_lists *args) {
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        if (is_real(&args->batch, t)) {
            list_token(type, args, t);
        } else {
            args->window_count[t] = 0;
            if (!args->indexer) args->entry_count[t] = 0;
        }
    }
}

void ref_translate_pack(const struct ref_type *type, const struct ref_translate_pack *args) {
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        args->entry_count[t] = 0;
        if (!is_real(&args->batch, t)) continue;
        uint32_t window = (uint32_t)args->window_count[t];
        uint32_t count = least((uint32_t)args->topk_count[t], args->list_stride - window);
        const int32_t *entries = args->topk + (uint64_t)t * args->topk_stride;
        int32_t *rows = args->rows + (uint64_t)t * args->list_stride + window;
        for (uint32_t j = 0; j < count; j++)
            rows[j] = row_number(&args->block, args->batch.batch_id[t], (uint32_t)entries[j],
                                 type->block / type->ratio);
        args->entry_count[t] = (int32_t)count;
    }
}
