/* workspace_fill: the rows before a long chunk, so that attention finds the window in one place. */
#include "reference.h"

/* The page of a request that holds a position, -1 if it is not backed. */
static int32_t find_page(const struct ref_type *type, const struct ref_workspace_fill *args,
                         uint32_t request, uint32_t position) {
    int32_t page = -1;
    uint32_t limit = args->paged ? args->table.pages : args->batch.slots;
    if (!args->paged)
        page = args->batch.state_slot[request];
    else if (position / type->block < args->table.stride)
        page =
            args->table.pages_of[(uint64_t)request * args->table.stride + position / type->block];
    return page >= 0 && (uint32_t)page < limit ? page : -1;
}

void ref_workspace_fill(const struct ref_type *type, const struct ref_workspace_fill *args) {
    uint32_t before = type->window - 1, rows = args->paged ? type->block : type->ring;
    for (uint32_t b = 0; b < args->batch.requests; b++) {
        int32_t first = args->batch.cu_tokens[b], end = args->batch.cu_tokens[b + 1];
        if (first >= end || args->batch.position[first] < 0) continue;
        for (uint32_t i = 0; i < before; i++) {
            int64_t position = (int64_t)args->batch.position[first] - before + i;
            if (position < 0) continue;
            int32_t page = find_page(type, args, b, (uint32_t)position);
            if (page < 0) continue;
            uint32_t number = (uint32_t)first + b * before + i;
            ref_row_copy(type, &args->window, (uint64_t)page, (uint32_t)(position % rows),
                         &args->workspace, number / args->workspace.rows,
                         number % args->workspace.rows);
        }
    }
}
