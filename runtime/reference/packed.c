/* The packed form of lists, element by element: each place of a slice is asked what belongs there.
 */
#include "packed.h"

static bool is_token(const struct ref_batch *batch, uint32_t t) {
    return batch->batch_id[t] >= 0 && (uint32_t)batch->batch_id[t] < batch->requests &&
           batch->position[t] >= 0;
}

static int64_t slice_length(const struct ref_ragged *ragged, uint32_t t) {
    int64_t from = ragged->indptr[t], to = ragged->indptr[t + 1];
    return from >= 0 && from <= to && to <= (int64_t)ragged->count ? to - from : 0;
}

/* phys * k + r: the row of item i, of `k` a page. */
static int32_t row_of(const struct ref_table *table, int32_t request, int64_t i, uint32_t k) {
    int32_t page = ref_table_page(table, request, (uint32_t)(i / k));
    return page < 0 ? -1 : (int32_t)(page * (int64_t)k + i % k);
}

/* A slice has window rows and entries; which of the two is in front? */
struct slice {
    int64_t length, window, entries; /* window rows and entries that there are */
    int64_t last;                    /* the youngest window row's position */
    bool window_first;
};

static int32_t element(const struct ref_type *type, const struct ref_packed_lists *args,
                       int32_t request, const struct slice *s, int64_t at) {
    int64_t window_at = s->window_first ? at : at - (s->length - s->window);
    if (window_at >= 0 && window_at < s->window)
        return row_of(&args->window, request, s->last - s->window + 1 + window_at, type->block);
    int64_t entry = s->window_first ? at - s->window : at;
    if (entry >= s->entries) return -1;
    return row_of(&args->block, request, entry, type->block / type->ratio);
}

static void list_token(const struct ref_type *type, const struct ref_packed_lists *args,
                       uint32_t t) {
    int32_t request = args->batch.batch_id[t];
    int64_t position = args->batch.position[t], low = position - type->window + 1, extend = 0;
    if (low < 0) low = 0;
    struct slice s = {.length = slice_length(&args->rows, t),
                      .window_first = args->prefill && !args->indexer};
    if (args->prefill) {
        extend = (int64_t)t - args->batch.cu_tokens[request] + 1; /* = position - start + 1 */
        if (extend > type->window) extend = type->window;
        if (extend > position + 1) extend = position + 1;
    }
    s.last = position - extend;
    s.window = s.last - low + 1;
    if (s.window > s.length) s.window = s.length;
    args->window_count[t] = (int32_t)s.window;
    bool all = type->ratio && !args->indexer;
    if (all) s.entries = (position + 1) / type->ratio;
    int32_t *list = args->rows.list + args->rows.indptr[t];
    for (int64_t at = 0; at < s.length; at++) {
        bool is_window = at >= s.length - s.window;
        if (args->indexer && !is_window) continue; /* for the entries that are chosen */
        list[at] = element(type, args, request, &s, at);
    }
    if (!args->prefill) return;
    int64_t most = slice_length(&args->extend, t), count = extend < most ? extend : most;
    for (int64_t i = 0; i < most; i++)
        args->extend.list[args->extend.indptr[t] + i] =
            i < count ? (int32_t)(t - count + 1 + i) : -1;
}

void ref_packed_lists(const struct ref_type *type, const struct ref_packed_lists *args) {
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        args->window_count[t] = 0;
        if (is_token(&args->batch, t)) list_token(type, args, t);
    }
}

void ref_packed_chosen(const struct ref_type *type, const struct ref_packed_chosen *args) {
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        if (!is_token(&args->batch, t)) continue;
        int64_t room = slice_length(&args->rows, t) - args->skip[t];
        const int32_t *chosen = args->topk + (uint64_t)t * args->topk_stride;
        for (int64_t j = 0; j < room; j++) {
            bool is_chosen = j < args->topk_count[t] && j < (int64_t)args->topk_stride;
            args->rows.list[args->rows.indptr[t] + j] =
                is_chosen ? row_of(&args->block, args->batch.batch_id[t], (uint32_t)chosen[j],
                                   type->block / type->ratio)
                          : -1;
        }
    }
}
