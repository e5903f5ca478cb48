/*
 * A step's tables in the caller's buffers. A batch remembers what it wrote to each row, a sequence
 * remembers from which entry on its tables changed since it was filled last; so a decode step in
 * which nothing changed writes a few words per request.
 */
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "shared.h"

struct batch_row {
    kvf_sequence sequence;
    uint32_t blocks, windows; /* entries below may be other than -1 */
};

struct kvf_batch {
    kvf_pool *pool;
    kvf_batch_buffers buffers;
    uint64_t serial, step;
    uint32_t tables;       /* block tables in use */
    uint32_t rows, tokens; /* of the last fill */
    struct batch_row *row;
};

void pool_mark_blocks(struct pool_sequence *s, uint32_t from) {
    if (from < s->dirty_block) s->dirty_block = from;
}

void pool_mark_windows(struct pool_sequence *s, uint32_t from) {
    if (from < s->dirty_window) s->dirty_window = from;
}

uint32_t kvf_pool_state_parts(const kvf_pool *pool) {
    return pool ? pool->parts : 0;
}

uint32_t kvf_pool_max_blocks(const kvf_pool *pool) {
    return pool ? pool->max_blocks : 0;
}

/* ---- creation ---- */

static void blank(int32_t *at, size_t count) {
    for (size_t i = 0; i < count; i++) at[i] = -1;
}

static void blank_all(struct kvf_batch *batch) {
    const kvf_batch_buffers *b = &batch->buffers;
    size_t cells = (size_t)b->max_requests * b->max_blocks;
    blank(b->batch_id, b->max_tokens);
    blank(b->position, b->max_tokens);
    blank(b->state_slot, (size_t)b->state_parts * b->max_requests);
    memset(b->cu_tokens, 0, ((size_t)b->max_requests + 1) * sizeof b->cu_tokens[0]);
    memset(b->write_from, 0, (size_t)b->max_requests * sizeof b->write_from[0]);
    if (b->window_from)
        memset(b->window_from, 0, (size_t)b->max_requests * sizeof b->window_from[0]);
    for (uint32_t t = 0; t < batch->tables; t++) blank(b->block_table[t], cells);
    if (b->index_table) blank(b->index_table, cells);
    blank(b->window_table, cells);
}

static kvf_status check_buffers(const kvf_pool *pool, const kvf_batch_buffers *b, uint32_t tables,
                                kvf_error *error) {
    bool all = b->batch_id && b->position && b->cu_tokens && b->state_slot && b->write_from &&
               b->window_table;
    for (uint32_t t = 0; t < tables; t++) all = all && b->block_table[t];
    if (!all || !b->max_tokens || !b->max_requests || b->max_tokens > INT32_MAX)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "batch: a buffer or a size is missing");
    if (b->max_blocks < pool->max_blocks || b->state_parts != pool->parts)
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "batch: %u columns and %u state parts; the pool needs %u and %u",
                         b->max_blocks, b->state_parts, pool->max_blocks, pool->parts);
    return KVF_OK;
}

static kvf_status create(kvf_pool *pool, const kvf_batch_buffers *buffers, kvf_batch **out,
                         kvf_error *error) {
    uint32_t tables = pool->shared ? pool->shared->slots.types : 1;
    kvf_status status = check_buffers(pool, buffers, tables, error);
    if (status) return status;
    kvf_batch *batch = calloc(1, sizeof *batch);
    struct batch_row *row = calloc(buffers->max_requests, sizeof *row);
    if (!batch || !row) {
        free(batch);
        free(row);
        return pool_fail(error, KVF_ERROR_MEMORY, "out of memory");
    }
    *batch = (struct kvf_batch){.pool = pool, .buffers = *buffers, .tables = tables, .row = row};
    batch->serial = ++pool->batches;
    blank_all(batch);
    *out = batch;
    return KVF_OK;
}

kvf_status kvf_batch_create(kvf_pool *pool, const kvf_batch_buffers *buffers, kvf_batch **out,
                            kvf_error *error) {
    if (!pool || !buffers || !out)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "batch: null argument");
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    return pool_leave(pool, create(pool, buffers, out, error), error);
}

void kvf_batch_destroy(kvf_batch *batch) {
    if (!batch) return;
    free(batch->row);
    free(batch);
}

/* ---- filling ---- */

/* Entries [from, to) of a row: what the sequence has, -1 beyond its `have`. */
static void copy_entries(int32_t *row, const int32_t *ids, const int32_t *map, uint32_t from,
                         uint32_t have, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
        int32_t id = i < have ? ids[i] : -1;
        row[i] = map && id >= 0 ? map[id] : id;
    }
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static void fill_tables(struct kvf_batch *batch, uint32_t r, struct pool_sequence *s,
                        kvf_sequence handle) {
    const kvf_batch_buffers *b = &batch->buffers;
    const struct pool_shared *sh = batch->pool->shared;
    struct batch_row *row = &batch->row[r];
    bool known = row->sequence == handle && s->fill_batch == batch->serial && s->fill_row == r;
    uint32_t from = known ? s->dirty_block : 0, to = larger(s->blocks, row->blocks);
    size_t base = (size_t)r * b->max_blocks;
    for (uint32_t t = 0; t < batch->tables; t++)
        copy_entries(b->block_table[t] + base, s->block_table, sh ? sh->bound[t] : NULL, from,
                     s->blocks, to);
    if (b->index_table)
        copy_entries(b->index_table + base, s->block_table, NULL, from, s->blocks, to);
    from = known ? s->dirty_window : 0;
    copy_entries(b->window_table + base, s->window_table, NULL, from, s->window_to,
                 larger(s->window_to, row->windows));
    *row = (struct batch_row){handle, s->blocks, s->window_to};
    s->fill_batch = batch->serial;
    s->fill_row = r;
    s->dirty_block = s->dirty_window = UINT32_MAX;
}

static void clear_row(struct kvf_batch *batch, uint32_t r) {
    const kvf_batch_buffers *b = &batch->buffers;
    size_t base = (size_t)r * b->max_blocks;
    for (uint32_t t = 0; t < batch->tables; t++)
        blank(b->block_table[t] + base, batch->row[r].blocks);
    if (b->index_table) blank(b->index_table + base, batch->row[r].blocks);
    blank(b->window_table + base, batch->row[r].windows);
    for (uint32_t part = 0; part < b->state_parts; part++)
        b->state_slot[(size_t)part * b->max_requests + r] = -1;
    b->write_from[r] = 0;
    if (b->window_from) b->window_from[r] = 0;
    batch->row[r] = (struct batch_row){0};
}

static uint32_t fill_row(struct kvf_batch *batch, uint32_t r, kvf_sequence handle, uint32_t at) {
    const kvf_batch_buffers *b = &batch->buffers;
    struct pool_sequence *s = pool_sequence_get(batch->pool, handle, NULL);
    uint32_t count = s->prepared - s->computed;
    fill_tables(batch, r, s, handle);
    for (uint32_t part = 0; part < b->state_parts; part++)
        b->state_slot[(size_t)part * b->max_requests + r] = s->state[part];
    b->write_from[r] = (int32_t)(s->matched * batch->pool->geometry.block);
    if (b->window_from) b->window_from[r] = (int32_t)s->hit;
    for (uint32_t i = 0; i < count; i++) {
        b->batch_id[at + i] = (int32_t)r;
        b->position[at + i] = (int32_t)(s->computed + i);
    }
    b->cu_tokens[r + 1] = (int32_t)(at + count);
    return at + count;
}

/* Everything that could go wrong, before a word is written. */
static kvf_status check_step(struct kvf_batch *batch, const kvf_sequence *sequences, uint32_t count,
                             kvf_error *error) {
    uint64_t tokens = 0;
    if (count > batch->buffers.max_requests || (count && !sequences))
        return pool_fail(error, KVF_ERROR_ARGUMENT, "batch: %u sequences; it was made for %u",
                         count, batch->buffers.max_requests);
    batch->step++;
    for (uint32_t r = 0; r < count; r++) {
        struct pool_sequence *s = pool_sequence_get(batch->pool, sequences[r], error);
        if (!s) return KVF_ERROR_STATE;
        if (s->fill_step == (batch->serial << 40 | batch->step))
            return pool_fail(error, KVF_ERROR_ARGUMENT, "batch: sequence %u stands there twice", r);
        s->fill_step = batch->serial << 40 | batch->step;
        if (s->prepared == s->computed)
            return pool_fail(error, KVF_ERROR_STATE, "batch: sequence %u has nothing prepared", r);
        tokens += s->prepared - s->computed;
    }
    if (tokens > batch->buffers.max_tokens)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "batch: %llu tokens; it was made for %u",
                         (unsigned long long)tokens, batch->buffers.max_tokens);
    return KVF_OK;
}

static kvf_status fill(struct kvf_batch *batch, const kvf_sequence *sequences, uint32_t count,
                       kvf_error *error) {
    const kvf_batch_buffers *b = &batch->buffers;
    kvf_status status = check_step(batch, sequences, count, error);
    if (status) return status;
    uint32_t at = 0;
    for (uint32_t r = 0; r < count; r++) at = fill_row(batch, r, sequences[r], at);
    for (uint32_t r = count; r < batch->rows; r++) clear_row(batch, r);
    for (uint32_t r = count; r < b->max_requests; r++) b->cu_tokens[r + 1] = (int32_t)at;
    if (at < batch->tokens) {
        blank(b->batch_id + at, batch->tokens - at);
        blank(b->position + at, batch->tokens - at);
    }
    batch->rows = count;
    batch->tokens = at;
    return KVF_OK;
}

kvf_status kvf_batch_fill(kvf_batch *batch, const kvf_sequence *sequences, uint32_t count,
                          kvf_error *error) {
    if (!batch) return pool_fail(error, KVF_ERROR_ARGUMENT, "the batch is null");
    kvf_status status = pool_enter(batch->pool, error);
    if (status) return status;
    return pool_leave(batch->pool, fill(batch, sequences, count, error), error);
}
