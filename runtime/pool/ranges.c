/*
 * Byte ranges for engines that move rows (checkpoint, offload, transfer): ascending, merged, each
 * byte once. Ids are sorted in the pool's scratch; nothing is allocated.
 */
#include <string.h>

#include "pool.h"
#include "shared.h"

/* ---- where ranges go ---- */

struct sink {
    kvf_range *out;
    uint32_t capacity, count;
    kvf_range last;
};

static void emit(struct sink *sink, uint32_t allocation, uint64_t offset, uint64_t bytes) {
    if (!bytes) return;
    bool joins = sink->count && sink->last.allocation == allocation &&
                 sink->last.offset + sink->last.bytes == offset;
    if (joins)
        sink->last.bytes += bytes;
    else {
        sink->last = (kvf_range){allocation, offset, bytes};
        sink->count++;
    }
    if (sink->out && sink->count <= sink->capacity) sink->out[sink->count - 1] = sink->last;
}

/* ---- sorting in place ---- */

static void sift(int32_t *ids, uint32_t root, uint32_t count) {
    for (uint32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && ids[child + 1] > ids[child]) child++;
        if (ids[root] >= ids[child]) return;
        int32_t swap = ids[root];
        ids[root] = ids[child];
        ids[child] = swap;
    }
}

/* Sort ascending and drop repetitions; returns how many are left. */
static uint32_t sort_ids(int32_t *ids, uint32_t count) {
    for (uint32_t i = count / 2; i-- > 0;) sift(ids, i, count);
    for (uint32_t end = count; end > 1; end--) {
        int32_t swap = ids[0];
        ids[0] = ids[end - 1];
        ids[end - 1] = swap;
        sift(ids, 0, end - 1);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!kept || ids[kept - 1] != ids[i]) ids[kept++] = ids[i];
    return kept;
}

/* ---- what is asked for ---- */

/* Ids in scratch: blocks (and snapshot or state envelopes) first, windows behind them, then the
 * windows whose saved tails are wanted (`shared`; elsewhere tails lie in envelopes). */
struct wanted {
    int32_t *blocks, *windows, *tails;
    uint32_t block_count, window_count, tail_count;
    int32_t state; /* not elastic: the state, or POOL_NONE */
};

static void want_block(struct wanted *w, int32_t id) {
    w->blocks[w->block_count++] = id;
}

static void want_snapshot(const kvf_pool *pool, struct wanted *w, int32_t window) {
    if (pool->shared) { /* their place is known by the window's id */
        if (pool->windows[window].snapshot >= 0) w->tails[w->tail_count++] = window;
        return;
    }
    for (int32_t at = pool->windows[window].snapshot; at >= 0; at = pool->blocks[at].owner)
        want_block(w, at);
}

static void want_sequence(const kvf_pool *pool, struct wanted *w, const struct pool_sequence *s) {
    for (uint32_t i = 0; i < s->blocks; i++) want_block(w, s->block_table[i]);
    for (uint32_t i = s->window_from; i < s->window_to; i++) {
        if (s->window_table[i] < 0) continue;
        w->windows[w->window_count++] = s->window_table[i];
        want_snapshot(pool, w, s->window_table[i]);
    }
    if (pool->store != &pool_arena) {
        w->state = s->state[0];
        return;
    }
    int32_t n = (int32_t)pool->geometry.per_chunk;
    for (uint32_t part = 0; part < pool->parts; part++)
        for (int32_t i = 0; i < (part < pool->state_chunk_parts ? n : 1); i++)
            want_block(w, part < pool->state_chunk_parts ? s->state[part] * n + i : s->state[part]);
}

/* ---- the layouts ---- */

static void emit_elastic(const kvf_pool *pool, struct wanted *w, struct sink *sink) {
    const struct pool_geometry *g = &pool->geometry;
    uint32_t block = 0, window = 0;
    while (block < w->block_count || window < w->window_count) {
        uint64_t at =
            block < w->block_count ? (uint64_t)w->blocks[block] * g->envelope_bytes : UINT64_MAX;
        uint64_t chunk =
            window < w->window_count ? (uint64_t)w->windows[window] * g->chunk_bytes : UINT64_MAX;
        if (at < chunk) {
            emit(sink, 0, at, g->envelope_bytes);
            block++;
        } else {
            emit(sink, 0, chunk, g->chunk_bytes);
            window++;
        }
    }
}

static void emit_static(const kvf_pool *pool, struct wanted *w, struct sink *sink) {
    const struct pool_geometry *g = &pool->geometry;
    uint64_t window = pool_window_stride(pool), block = pool_block_stride(pool);
    for (uint32_t i = 0; i < w->window_count; i++)
        emit(sink, 0, (uint64_t)w->windows[i] * window, window);
    for (uint32_t i = 0; i < w->block_count; i++)
        emit(sink, 1, (uint64_t)w->blocks[i] * block, block);
    if (w->state >= 0) emit(sink, 2, (uint64_t)w->state * g->state_bytes, g->state_bytes);
}

/* Rows of one plane of one layer: windows and physical blocks, both ascending, never overlapping.
 */
static void emit_rows(const kvf_pool *pool, const struct wanted *w, const int32_t *physical,
                      uint32_t k, uint32_t allocation, uint64_t base, uint64_t row,
                      struct sink *sink) {
    uint32_t block = 0, window = 0, blocks = k ? w->block_count : 0, rows = pool->geometry.block;
    while (block < blocks || window < w->window_count) {
        uint64_t at = block < blocks ? (uint64_t)physical[block] * k : UINT64_MAX;
        uint64_t slot = window < w->window_count ? (uint64_t)w->windows[window] * rows : UINT64_MAX;
        if (at < slot) {
            emit(sink, allocation, base + at * row, k * row);
            block++;
        } else {
            emit(sink, allocation, base + slot * row, rows * row);
            window++;
        }
    }
}

/* The layer type's place among the compressed ones, or -1. */
static int compressed_type(const struct pool_shared *sh, uint32_t type) {
    for (uint32_t t = 0; t < sh->slots.types; t++)
        if (sh->type_of[t] == type) return (int)t;
    return -1;
}

static void emit_shared(const kvf_pool *pool, struct wanted *w, int32_t *physical,
                        struct sink *sink) {
    const struct pool_geometry *g = &pool->geometry;
    const struct pool_shared *sh = pool->shared;
    uint32_t allocation = 0;
    for (uint32_t i = 0; i < g->types; i++) {
        const struct pool_type *t = &g->type[i];
        int c = compressed_type(sh, i);
        uint64_t slots = c < 0 ? pool->window_count : sh->slots.type[c].count;
        if (c >= 0) {
            for (uint32_t b = 0; b < w->block_count; b++) physical[b] = sh->bound[c][w->blocks[b]];
            sort_ids(physical, w->block_count);
        }
        for (uint32_t plane = 0; plane < t->planes; plane++, allocation++)
            for (uint32_t layer = 0; layer < t->layers; layer++)
                emit_rows(pool, w, physical, c < 0 ? 0 : t->k, allocation,
                          layer * slots * g->block * t->plane_row_bytes[plane],
                          t->plane_row_bytes[plane], sink);
        if (!t->index_page_bytes) continue;
        for (uint32_t layer = 0; layer < t->layers; layer++)
            for (uint32_t b = 0; b < w->block_count; b++)
                emit(sink, allocation,
                     ((uint64_t)layer * pool->block_count + (uint64_t)w->blocks[b]) *
                         t->index_page_bytes,
                     t->index_page_bytes);
        allocation++;
    }
    if (w->state >= 0) emit(sink, allocation, (uint64_t)w->state * g->state_bytes, g->state_bytes);
    for (uint32_t i = 0; i < w->tail_count; i++)
        emit(sink, allocation + 1, (uint64_t)w->tails[i] * g->snapshot_bytes, g->snapshot_bytes);
}

static void emit_all(const kvf_pool *pool, struct wanted *w, struct sink *sink) {
    if (pool->store == &pool_arena)
        emit_elastic(pool, w, sink);
    else if (pool->store)
        emit_static(pool, w, sink);
    else
        emit_shared(pool, w, w->blocks + w->block_count, sink);
}

/* Count first; write only if all of it fits. */
static kvf_status answer(const kvf_pool *pool, struct wanted *w, kvf_range *out, uint32_t capacity,
                         uint32_t *count, kvf_error *error) {
    w->block_count = sort_ids(w->blocks, w->block_count);
    w->window_count = sort_ids(w->windows, w->window_count);
    w->tail_count = sort_ids(w->tails, w->tail_count);
    struct sink sink = {0};
    emit_all(pool, w, &sink);
    *count = sink.count;
    if (sink.count > capacity || (sink.count && !out))
        return pool_fail(error, KVF_ERROR_LIMIT, "ranges: %u of them, room for %u", sink.count,
                         capacity);
    sink = (struct sink){.out = out, .capacity = capacity};
    emit_all(pool, w, &sink);
    return KVF_OK;
}

static struct wanted nothing(const kvf_pool *pool) {
    int32_t *windows = pool->scratch + 2 * (size_t)pool->block_count;
    return (struct wanted){.blocks = pool->scratch,
                           .windows = windows,
                           .tails = windows + pool->window_count,
                           .state = POOL_NONE};
}

/* ---- public ---- */

kvf_status kvf_sequence_ranges(kvf_pool *pool, kvf_sequence handle, kvf_range *out,
                               uint32_t capacity, uint32_t *count, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    const struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    if (!s) return pool_leave(pool, KVF_ERROR_STATE, error);
    if (!count)
        return pool_leave(pool, pool_fail(error, KVF_ERROR_ARGUMENT, "ranges: count is null"),
                          error);
    struct wanted w = nothing(pool);
    want_sequence(pool, &w, s);
    return pool_leave(pool, answer(pool, &w, out, capacity, count, error), error);
}

static kvf_status want_ids(const kvf_pool *pool, kvf_copy_kind kind, const int32_t *ids,
                           uint32_t id_count, struct wanted *w, kvf_error *error) {
    bool window = kind == KVF_COPY_WINDOW, chunk = kind == KVF_COPY_STATE_CHUNK;
    bool elastic = pool->store == &pool_arena, state = kind == KVF_COPY_STATE && !elastic;
    bool tails = kind == KVF_COPY_SNAPSHOT && pool->shared; /* named by their window */
    uint32_t limit = window || tails ? pool->window_count
                     : chunk         ? pool->chunk_count
                     : state         ? pool->state_count
                                     : pool->block_count;
    if (id_count > limit || (state && id_count > 1) || (chunk && !elastic))
        return pool_fail(error, KVF_ERROR_ARGUMENT, "ranges: %u ids of kind %d", id_count,
                         (int)kind);
    for (uint32_t i = 0; i < id_count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= limit)
            return pool_fail(error, KVF_ERROR_ARGUMENT, "ranges: id %d of kind %d is beyond %u",
                             ids[i], (int)kind, limit);
        if (state)
            w->state = ids[i];
        else if (tails)
            w->tails[w->tail_count++] = ids[i];
        else if (window || chunk)
            w->windows[w->window_count++] = ids[i];
        else if (pool->shared && pool->shared->bound[0][ids[i]] < 0)
            return pool_fail(error, KVF_ERROR_STATE, "ranges: block %d has no memory", ids[i]);
        else
            want_block(w, ids[i]);
    }
    return KVF_OK;
}

kvf_status kvf_pool_ranges(kvf_pool *pool, kvf_copy_kind kind, const int32_t *ids,
                           uint32_t id_count, kvf_range *out, uint32_t capacity, uint32_t *count,
                           kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct wanted w = nothing(pool);
    if (!count || (id_count && !ids) || kind > KVF_COPY_SNAPSHOT) {
        pool_fail(error, KVF_ERROR_ARGUMENT, "ranges: null argument or unknown kind");
        return pool_leave(pool, KVF_ERROR_ARGUMENT, error);
    }
    status = want_ids(pool, kind, ids, id_count, &w, error);
    if (!status) status = answer(pool, &w, out, capacity, count, error);
    return pool_leave(pool, status, error);
}
