/* What can be asked of a pool and of a sequence. */
#include <string.h>

#include "pool.h"
#include "shared.h"

void pool_snapshot_ids(const kvf_pool *pool, int32_t window, kvf_snapshot *out) {
    out->parts = 0;
    if (pool->shared) {
        out->ids[out->parts++] = window;
        return;
    }
    int32_t at = pool->windows[window].snapshot;
    for (; at >= 0 && out->parts < KVF_SNAPSHOT_PARTS; at = pool->blocks[at].owner)
        out->ids[out->parts++] = at;
}

/* Windows that end inside the prepared tokens and have room for a snapshot. */
static kvf_status list_snapshots(const kvf_pool *pool, const struct pool_sequence *s,
                                 kvf_snapshot *out, uint32_t capacity, uint32_t *count,
                                 kvf_error *error) {
    uint32_t block = pool->geometry.block, found = 0;
    if (!count) return pool_fail(error, KVF_ERROR_ARGUMENT, "snapshots: count is null");
    for (int pass = 0; pass < 2; pass++) {
        found = 0;
        for (uint32_t i = s->computed / block; (i + 1) * block <= s->prepared; i++) {
            int32_t window = s->window_table[i];
            if (window < 0 || pool->windows[window].snapshot < 0) continue;
            if (pass) {
                memset(&out[found], 0, sizeof out[found]);
                pool_snapshot_ids(pool, window, &out[found]);
                out[found].position = (i + 1) * block;
            }
            found++;
        }
        *count = found;
        if (found > capacity || (found && !out))
            return pool_fail(error, KVF_ERROR_LIMIT, "snapshots: %u of them, room for %u", found,
                             capacity);
    }
    return KVF_OK;
}

kvf_status kvf_sequence_snapshots(kvf_pool *pool, kvf_sequence handle, kvf_snapshot *out,
                                  uint32_t capacity, uint32_t *count, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    const struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    return pool_leave(
        pool, s ? list_snapshots(pool, s, out, capacity, count, error) : KVF_ERROR_STATE, error);
}

kvf_status kvf_sequence_get_info(kvf_pool *pool, kvf_sequence handle, kvf_sequence_info *out,
                                 kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    const struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    if (!s) return pool_leave(pool, KVF_ERROR_STATE, error);
    if (!out)
        return pool_leave(pool, pool_fail(error, KVF_ERROR_ARGUMENT, "info: out is null"), error);
    *out = (kvf_sequence_info){.known = s->known,
                               .computed = s->computed,
                               .prepared = s->prepared,
                               .hit = s->hit,
                               .write_from = s->matched * pool->geometry.block,
                               .slot = (uint32_t)(s - pool->sequences),
                               .blocks = s->blocks};
    return pool_leave(pool, KVF_OK, error);
}

/* ---- statistics ---- */

static void count_uses(const kvf_pool *pool, kvf_pool_stats *out) {
    for (uint32_t i = 0; i < pool->block_count; i++) {
        const struct pool_block *b = &pool->blocks[i];
        out->blocks_used += b->refs > 0;
        out->blocks_cached += !b->refs && b->published;
        out->envelopes_state += b->use == POOL_STATE;
        out->envelopes_snapshot += b->use == POOL_SNAPSHOT;
    }
    out->envelopes_state += pool->running * pool->state_chunk_parts * pool->geometry.per_chunk;
    for (uint32_t i = 0; i < pool->window_count; i++) {
        out->windows_used += pool->windows[i].refs > 0;
        out->windows_cached += !pool->windows[i].refs && pool->windows[i].block >= 0;
    }
}

static void count_bytes(const kvf_pool *pool, kvf_pool_stats *out) {
    const struct pool_geometry *g = &pool->geometry;
    out->used_bytes = out->windows_used * pool_window_stride(pool) +
                      out->blocks_used * pool_block_stride(pool) + pool->running * g->state_bytes;
    if (pool->store == &pool_arena)
        out->bytes = pool->chunk_count * g->chunk_bytes;
    else if (pool->store)
        out->bytes = pool->window_count * pool_window_stride(pool) +
                     pool->block_count * pool_block_stride(pool) +
                     pool->state_count * g->state_bytes;
    else
        out->bytes = pool_shared_bytes(pool);
}

kvf_status kvf_pool_get_stats(kvf_pool *pool, kvf_pool_stats *out, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    if (!out)
        return pool_leave(pool, pool_fail(error, KVF_ERROR_ARGUMENT, "stats: out is null"), error);
    const struct pool_counters *c = &pool->counters;
    *out = (kvf_pool_stats){.requests = pool->running,
                            .chunks = pool->chunk_count,
                            .free_chunks = pool->free_chunks.length,
                            .windows = pool->window_count,
                            .blocks = pool->block_count,
                            .admitted = c->admitted,
                            .refused = c->refused,
                            .preempted = c->preempted,
                            .released = c->released,
                            .prompt_tokens = c->prompt_tokens,
                            .hit_tokens = c->hit_tokens,
                            .computed_tokens = c->computed_tokens,
                            .recomputed_tokens = c->recomputed_tokens,
                            .evicted_windows = c->evicted_windows,
                            .evicted_blocks = c->evicted_blocks,
                            .adopted_blocks = c->adopted_blocks,
                            .adopted_windows = c->adopted_windows,
                            .operations = c->touched};
    count_uses(pool, out);
    count_bytes(pool, out);
    return pool_leave(pool, KVF_OK, error);
}
