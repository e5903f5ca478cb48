/*
 * How much a budget holds, by the same counts that the pool works with. A running request holds its
 * state, its blocks, the windows that one token reads at most, and the tails saved with them.
 */
#include <stdlib.h>

#include "pool.h"
#include "shared.h"

/* Ids that one request of `tokens` tokens holds. */
struct holding {
    uint64_t windows, snapshots, blocks;
};

static struct holding holding_of(const kvf_pool *pool, uint32_t tokens) {
    struct holding h = {.blocks = pool_blocks_of(pool, tokens)};
    uint64_t most = pool_reach_blocks(pool);
    h.windows = most < h.blocks ? most : h.blocks;
    h.snapshots = !pool->snapshots ? 0 : h.windows > 1 ? h.windows - 1 : 1;
    return h;
}

/* Do `requests` of them fit, and the windows that one chunk of one of them makes besides? */
static bool fits(const kvf_pool *pool, const struct holding *h, uint64_t requests) {
    const struct pool_geometry *g = &pool->geometry;
    uint64_t windows = requests ? (requests + 1) * h->windows : 0;
    uint64_t snapshots =
        requests && pool->store ? (requests + 1) * h->snapshots * g->snapshot_envelopes : 0;
    uint64_t envelopes = requests * h->blocks + snapshots;
    if (pool->store == &pool_arena) {
        envelopes += requests * g->state_envelopes;
        return windows + requests * g->state_chunks +
                   (envelopes + g->per_chunk - 1) / g->per_chunk <=
               pool->chunk_count;
    }
    return requests <= pool->state_count && windows <= pool->window_count &&
           envelopes <= pool->block_count;
}

static uint64_t most_requests(const kvf_pool *pool, const struct holding *h) {
    uint64_t low = 0, high = UINT32_MAX;
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        if (fits(pool, h, middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static uint32_t longest_request(const kvf_pool *pool) {
    uint32_t low = 0, high = pool->geometry.max_positions;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        struct holding h = holding_of(pool, middle);
        if (fits(pool, &h, 1))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Bytes of one id of each kind: what it takes in the allocations. */
static void add_bytes(const kvf_pool *pool, const struct holding *h, kvf_plan *out) {
    const struct pool_geometry *g = &pool->geometry;
    uint64_t window = pool_window_stride(pool), block = pool_block_stride(pool);
    uint64_t state = g->state_bytes;
    uint64_t snapshot = g->snapshot_bytes;
    if (pool->store == &pool_arena) {
        state = g->state_chunks * g->chunk_bytes + g->state_envelopes * g->envelope_bytes;
    }
    if (pool->store) snapshot = g->snapshot_envelopes * block;
    out->state_bytes = out->requests * state;
    out->window_bytes = out->requests * h->windows * window;
    out->snapshot_bytes = out->requests * h->snapshots * snapshot;
    out->block_bytes = out->requests * h->blocks * block;
    out->request_bytes = state + h->windows * window + h->snapshots * snapshot + h->blocks * block;
}

static uint64_t total_bytes(const kvf_pool *pool) {
    const struct pool_geometry *g = &pool->geometry;
    if (pool->store == &pool_arena) return pool->chunk_count * g->chunk_bytes;
    if (!pool->store) return pool_shared_bytes(pool);
    return pool->window_count * pool_window_stride(pool) +
           pool->block_count * pool_block_stride(pool) + pool->state_count * g->state_bytes;
}

kvf_status pool_plan(const struct pool_geometry *geometry, const kvf_pool_options *options,
                     uint32_t context, kvf_plan *out, kvf_error *error) {
    kvf_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return pool_fail(error, KVF_ERROR_MEMORY, "out of memory");
    pool->geometry = *geometry;
    pool->options = *options;
    kvf_status status = pool_count(pool, error);
    if (!status && (!context || context > geometry->max_positions))
        status = pool_fail(error, KVF_ERROR_ARGUMENT, "plan: a context of %u tokens; 1 to %u",
                           context, geometry->max_positions);
    if (!status) {
        struct holding h = holding_of(pool, context);
        *out = (kvf_plan){.chunks = pool->chunk_count,
                          .windows = pool->window_count,
                          .blocks = pool->block_count,
                          .states = pool->state_count,
                          .bytes = total_bytes(pool),
                          .requests = (uint32_t)most_requests(pool, &h),
                          .longest = longest_request(pool)};
        out->tokens = (uint64_t)out->requests * context;
        add_bytes(pool, &h, out);
        uint64_t held =
            out->state_bytes + out->window_bytes + out->snapshot_bytes + out->block_bytes;
        out->unused_bytes = out->bytes > held ? out->bytes - held : 0;
    }
    free(pool);
    return status;
}
