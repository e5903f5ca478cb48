/* The workspace of long chunks: where its rows lie, and the rows before the launch. */
#include "reference.h"

uint64_t ref_workspace_row(const struct ref_type *type, uint32_t t, int32_t request) {
    return t + ((uint64_t)request + 1) * (type->window - 1);
}

/* The page and the row of a request's position in the window place; false if it is not backed. */
static bool find(const struct ref_type *type, const struct ref_workspace_fill *args,
                 int32_t request, uint32_t position, uint64_t *page, uint32_t *row) {
    uint32_t rows = args->paged ? type->block : type->ring;
    int32_t id = args->paged ? ref_table_page(&args->table, request, position / rows)
                             : args->batch.state_slot[request];
    if (id < 0 || (!args->paged && (uint32_t)id >= args->batch.slots)) return false;
    *page = (uint64_t)id;
    *row = position % rows;
    return true;
}

void ref_workspace_fill(const struct ref_type *type, const struct ref_workspace_fill *args) {
    const struct ref_batch *batch = &args->batch;
    const struct ref_place *to = &args->workspace;
    for (int32_t b = 0; (uint32_t)b < batch->requests; b++) {
        uint32_t first = (uint32_t)batch->cu_tokens[b], row;
        if (batch->cu_tokens[b] >= batch->cu_tokens[b + 1]) continue;
        int32_t position = batch->position[first];
        for (uint32_t back = type->window - 1; back > 0; back--) {
            uint64_t number = ref_workspace_row(type, first, b) - back, page;
            if (position < 0 || (uint32_t)position < back) continue; /* before the sequence */
            if (!find(type, args, b, (uint32_t)position - back, &page, &row)) continue;
            ref_row_copy(type, &args->window, page, row, to, number / to->rows,
                         (uint32_t)(number % to->rows));
        }
    }
}
