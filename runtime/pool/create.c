/* Creation: count what the budget buys, then make every array the pool will ever use. */
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "shared.h"

/* ---- counts ---- */

/* The published default: two windows a request and 64 more. */
static uint32_t default_windows(const struct pool_geometry *g, uint32_t max_requests) {
    uint64_t each = (g->window + g->drafts + g->block - 1) / g->block + 1;
    uint64_t all = each * max_requests + 64;
    return all > INT32_MAX ? INT32_MAX : (uint32_t)all;
}

static kvf_status check_options(const struct pool_geometry *g, kvf_pool_options *o,
                                kvf_error *error) {
    if (o->policy > KVF_POLICY_SHARED)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "no such policy: %d", (int)o->policy);
    if (!o->max_requests || o->max_requests > 1u << 20)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "max_requests is %u; allowed are 1 to %u",
                         o->max_requests, 1u << 20);
    if (!o->max_tokens) o->max_tokens = g->max_positions;
    if (o->max_tokens > g->max_positions)
        return pool_fail(error, KVF_ERROR_LIMIT, "max_tokens is %u; the model has %u positions",
                         o->max_tokens, g->max_positions);
    if (o->trailing && o->policy != KVF_POLICY_SHARED)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "trailing belongs to the policy shared");
    return KVF_OK;
}

static kvf_status too_many(uint64_t blocks, kvf_error *error) {
    if (blocks <= INT32_MAX / 2) return KVF_OK;
    return pool_fail(error, KVF_ERROR_LIMIT, "%llu blocks: ids are 32 bits",
                     (unsigned long long)blocks);
}

static kvf_status count_elastic(kvf_pool *pool, kvf_error *error) {
    const struct pool_geometry *g = &pool->geometry;
    if (!g->per_chunk || g->per_chunk > POOL_MAX_PER_CHUNK || !g->chunk_bytes ||
        g->chunk_bytes / g->per_chunk != g->envelope_bytes)
        return pool_fail(error, KVF_ERROR_BUNDLE, "the model has no arena");
    uint64_t chunks =
        pool->options.bytes ? pool->options.bytes / g->chunk_bytes : pool->options.chunks;
    kvf_status status = too_many(chunks > UINT32_MAX ? chunks : chunks * g->per_chunk, error);
    if (status) return status;
    pool->chunk_count = pool->window_count = (uint32_t)chunks;
    pool->block_count = (uint32_t)chunks * g->per_chunk;
    pool->mask_words = (g->per_chunk + 63) / 64;
    pool->parts = g->state_chunks + g->state_envelopes;
    pool->state_chunk_parts = g->state_chunks;
    if (pool->parts > POOL_MAX_PARTS)
        return pool_fail(error, KVF_ERROR_LIMIT, "a request's state takes %u parts of at most %d",
                         pool->parts, POOL_MAX_PARTS);
    pool->policy = &pool_tree;
    pool->store = &pool_arena;
    return KVF_OK;
}

static kvf_status count_static(kvf_pool *pool, uint32_t default_count, kvf_error *error) {
    const struct pool_geometry *g = &pool->geometry;
    const kvf_pool_options *o = &pool->options;
    uint64_t windows = o->windows ? o->windows : default_count;
    uint64_t blocks = o->blocks;
    pool->policy = &pool_tree;
    pool->store = &pool_fixed;
    if (o->bytes) {
        uint64_t fixed = o->max_requests * g->state_bytes + windows * pool_window_stride(pool);
        blocks = o->bytes > fixed ? (o->bytes - fixed) / pool_block_stride(pool) : 0;
    }
    kvf_status status = too_many(blocks > windows ? blocks : windows, error);
    if (status) return status;
    pool->window_count = (uint32_t)windows;
    pool->block_count = (uint32_t)blocks;
    pool->state_count = o->max_requests;
    pool->parts = 1;
    return KVF_OK;
}

/* Kernels number the rows of a place by int32: id times rows of a page, and the row in it. */
static kvf_status check_rows(const kvf_pool *pool, kvf_error *error) {
    const struct pool_geometry *g = &pool->geometry;
    uint64_t ids = pool->window_count, rows = ids * g->block;
    for (uint32_t i = 0; i < g->types; i++) {
        const struct pool_type *t = &g->type[i];
        uint64_t of_blocks = (uint64_t)pool->block_count * t->k;
        if (!pool->store && t->ratio) /* windows and blocks lie in one tensor */
            of_blocks = (ids + slots_own(pool->block_count, t->ratio)) * g->block;
        if (of_blocks > rows) rows = of_blocks;
    }
    if (rows <= INT32_MAX) return KVF_OK;
    return pool_fail(error, KVF_ERROR_LIMIT, "%llu rows: row numbers are 32 bits",
                     (unsigned long long)rows);
}

static kvf_status count_policy(kvf_pool *pool, kvf_error *error) {
    uint32_t windows = default_windows(&pool->geometry, pool->options.max_requests);
    switch (pool->options.policy) {
    case KVF_POLICY_ELASTIC: return count_elastic(pool, error);
    case KVF_POLICY_STATIC: return count_static(pool, windows, error);
    case KVF_POLICY_SHARED: return pool_shared_count(pool, windows, error);
    }
    return KVF_ERROR_ARGUMENT;
}

kvf_status pool_count(kvf_pool *pool, kvf_error *error) {
    kvf_status status = check_options(&pool->geometry, &pool->options, error);
    if (status) return status;
    pool->max_blocks = pool_blocks_of(pool, pool->options.max_tokens);
    pool->tail_blocks = pool_geometry_tail_blocks(&pool->geometry);
    pool->snapshots = pool->geometry.snapshot_bytes > 0;
    if (pool->options.policy != KVF_POLICY_SHARED &&
        pool->geometry.snapshot_envelopes > KVF_SNAPSHOT_PARTS)
        return pool_fail(error, KVF_ERROR_LIMIT, "a snapshot takes %u envelopes of at most %d",
                         pool->geometry.snapshot_envelopes, KVF_SNAPSHOT_PARTS);
    status = count_policy(pool, error);
    return status ? status : check_rows(pool, error);
}

/* ---- arrays ---- */

static uint32_t power_above(uint64_t value) {
    uint32_t power = 16;
    while (power < value && power < 1u << 31) power *= 2;
    return power;
}

static bool make(void *where, size_t count, size_t size) {
    void *made = calloc(count ? count : 1, size);
    memcpy(where, &made, sizeof made);
    return made != NULL;
}

static bool make_all(kvf_pool *pool) {
    const struct pool_geometry *g = &pool->geometry;
    size_t requests = pool->options.max_requests;
    pool->index_mask = power_above(2 * (uint64_t)pool->block_count) - 1;
    pool->ghost_mask = power_above(4 * (uint64_t)pool->block_count) - 1;
    size_t columns = pool->max_blocks;
    return make(&pool->blocks, pool->block_count, sizeof pool->blocks[0]) &&
           make(&pool->windows, pool->window_count, sizeof pool->windows[0]) &&
           make(&pool->chunks, pool->chunk_count, sizeof pool->chunks[0]) &&
           make(&pool->masks, (size_t)pool->chunk_count * pool->mask_words,
                sizeof pool->masks[0]) &&
           make(&pool->tokens, (size_t)pool->block_count * g->block, sizeof pool->tokens[0]) &&
           make(&pool->sequences, requests, sizeof pool->sequences[0]) &&
           make(&pool->tables, requests * (2 * columns + pool->parts), sizeof pool->tables[0]) &&
           make(&pool->claim_blocks, columns, sizeof pool->claim_blocks[0]) &&
           make(&pool->pending, requests * 64, sizeof pool->pending[0]) &&
           make(&pool->scratch, 2 * ((size_t)pool->block_count + pool->window_count),
                sizeof pool->scratch[0]) &&
           make(&pool->index, (size_t)pool->index_mask + 1, sizeof pool->index[0]) &&
           make(&pool->ghosts, (size_t)pool->ghost_mask + 1, sizeof pool->ghosts[0]) &&
           make(&pool->open_chunks, g->per_chunk + 1, sizeof pool->open_chunks[0]) &&
           make(&pool->open_words, g->per_chunk / 64 + 1, sizeof pool->open_words[0]) &&
           make(&pool->free_states, pool->state_count, sizeof pool->free_states[0]);
}

static void open_all(kvf_pool *pool) {
    for (uint32_t i = 0; i < pool->block_count; i++)
        pool->blocks[i].parent = pool->blocks[i].window = pool->blocks[i].owner = POOL_NONE;
    for (uint32_t i = 0; i < pool->window_count; i++) {
        pool->windows[i].block = pool->windows[i].snapshot = POOL_NONE;
        pool->windows[i].list = POOL_CLASSES;
    }
    for (uint32_t i = 0; i <= pool->index_mask; i++) pool->index[i].block = POOL_NONE;
    size_t columns = pool->max_blocks, each = 2 * columns + pool->parts;
    pool_list_open(&pool->free_sequences, &pool->sequences[0].link, sizeof pool->sequences[0]);
    for (uint32_t i = 0; i < pool->options.max_requests; i++) {
        struct pool_sequence *s = &pool->sequences[i];
        s->block_table = pool->tables + i * each;
        s->window_table = s->block_table + columns;
        s->state = s->window_table + columns;
        s->pending = pool->pending + (size_t)i * 64;
        s->generation = 1;
        for (size_t at = 0; at < each; at++) s->block_table[at] = POOL_NONE;
        pool_list_push_tail(&pool->free_sequences, (int32_t)i);
    }
    for (int class = 0; class < POOL_CLASSES; class ++)
        pool_list_open(&pool->classes[class], &pool->windows[0].link, sizeof pool->windows[0]);
}

/* The smallest request: one token. A budget below it is an error at creation. */
static kvf_status check_smallest(const kvf_pool *pool, kvf_error *error) {
    struct pool_need need = {.windows = 1, .envelopes = 1, .states = 1};
    struct pool_short what = {0};
    if (!pool->window_count || !pool->block_count)
        return pool_fail(error, KVF_ERROR_LIMIT, "the budget buys %u window blocks and %u blocks",
                         pool->window_count, pool->block_count);
    if (pool->policy->fits(pool, &need, POOL_REFERENCED, &what)) return KVF_OK;
    return pool_fail(error, KVF_ERROR_LIMIT, "the budget is below one request: %llu %s short",
                     (unsigned long long)what.missing, what.resource);
}

kvf_status pool_create(const struct pool_geometry *geometry, const kvf_pool_options *options,
                       kvf_pool **out, kvf_error *error) {
    if (!geometry || !options || !out)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "pool: null argument");
    kvf_status status = pool_geometry_check(geometry, error);
    if (status) return status;
    kvf_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return pool_fail(error, KVF_ERROR_MEMORY, "out of memory");
    pool->geometry = *geometry;
    pool->options = *options;
    status = pool_count(pool, error);
    if (!status && !make_all(pool)) status = pool_fail(error, KVF_ERROR_MEMORY, "out of memory");
    if (!status) {
        open_all(pool);
        if (pool->store == &pool_arena && pool->chunk_count) pool_arena_open(pool);
        if (pool->store == &pool_fixed) pool_fixed_open(pool);
        if (!pool->store) status = pool_shared_open(pool, error);
    }
    if (!status) status = check_smallest(pool, error);
    if (status) {
        kvf_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return KVF_OK;
}

void kvf_pool_destroy(kvf_pool *pool) {
    if (!pool) return;
    pool_shared_close(pool);
    free(pool->blocks);
    free(pool->windows);
    free(pool->chunks);
    free(pool->masks);
    free(pool->tokens);
    free(pool->sequences);
    free(pool->tables);
    free(pool->claim_blocks);
    free(pool->pending);
    free(pool->scratch);
    free(pool->index);
    free(pool->ghosts);
    free(pool->open_chunks);
    free(pool->open_words);
    free(pool->free_states);
    free(pool);
}
