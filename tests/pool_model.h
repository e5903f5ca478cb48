/*
 * A naive model of an engine on a pool: plain arrays, no policy. Every cell of the model memory
 * holds who wrote it (a hash of all tokens up to the row's own). The model computes steps through
 * the tables of kvf_batch_fill, writes what kernels would write and reads what they would read; a
 * cell that is stale, unwritten or another sequence's shows as a difference.
 */
#ifndef KVF_TESTS_POOL_MODEL_H
#define KVF_TESTS_POOL_MODEL_H

#include <inttypes.h>

#include "pool/pool.h"
#include "pool/shared.h"
#include "tap.h"

enum { MODEL_SEQUENCES = 8, MODEL_TOKENS = 512 };

struct model_sequence {
    bool live;
    kvf_sequence handle;
    uint32_t known, computed, prepared, prompt, hit, write_from;
    uint32_t chunk; /* that admission set aside; 0 after the first step */
    uint32_t high;  /* the most that was ever committed */
    int32_t tokens[MODEL_TOKENS + 64];
    uint64_t content[MODEL_TOKENS + 64]; /* of position p: hash of tokens 0..p */
    uint64_t owner;                      /* what its state cells must hold */
};

struct model {
    kvf_pool *pool;
    struct pool_geometry g;
    uint64_t random, operations, serial;
    struct model_sequence s[MODEL_SEQUENCES];
    kvf_batch *batch;
    kvf_batch_buffers b;
    uint64_t *cells[POOL_MAX_TYPES + 4]; /* allocations of cells */
    uint64_t envelope_cells;
    uint64_t rows_read, rows_written, restored;
    char failure[400];
};

/* xorshift: the same on every machine. */
static inline uint32_t model_random(struct model *m, uint32_t below) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)((m->random >> 20) % below);
}

/* Note the first failure; returns false. */
__attribute__((format(printf, 2, 3))) static inline bool model_fail(struct model *m,
                                                                    const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!m->failure[0]) vsnprintf(m->failure, sizeof m->failure, format, args);
    va_end(args);
    return false;
}

static inline uint64_t model_mix(uint64_t hash, int32_t token) {
    hash ^= (uint64_t)(uint32_t)token + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
    return hash * 0xbf58476d1ce4e5b9u;
}

/* ---- memory ---- */

static inline int32_t *model_ints(size_t count) {
    return calloc(count, sizeof(int32_t));
}

static inline bool model_open(struct model *m, const struct pool_geometry *g,
                              const kvf_pool_options *options, uint64_t seed) {
    kvf_error error;
    memset(m, 0, sizeof *m);
    m->g = *g;
    m->random = seed * 0x9e3779b97f4a7c15u + 1;
    if (pool_create(g, options, &m->pool, &error)) return model_fail(m, "create: %s", error.text);
    uint32_t columns = kvf_pool_max_blocks(m->pool), parts = kvf_pool_state_parts(m->pool);
    uint32_t tables = m->pool->shared ? m->pool->shared->slots.types : 1;
    m->b = (kvf_batch_buffers){.max_tokens = 1024,
                               .max_requests = MODEL_SEQUENCES,
                               .max_blocks = columns,
                               .state_parts = parts,
                               .batch_id = model_ints(1024),
                               .position = model_ints(1024),
                               .cu_tokens = model_ints(MODEL_SEQUENCES + 1),
                               .state_slot = model_ints((size_t)parts * MODEL_SEQUENCES),
                               .write_from = model_ints(MODEL_SEQUENCES),
                               .window_from = model_ints(MODEL_SEQUENCES),
                               .window_table = model_ints((size_t)columns * MODEL_SEQUENCES)};
    for (uint32_t t = 0; t < tables; t++)
        m->b.block_table[t] = model_ints((size_t)columns * MODEL_SEQUENCES);
    if (m->pool->shared) m->b.index_table = model_ints((size_t)columns * MODEL_SEQUENCES);
    if (kvf_batch_create(m->pool, &m->b, &m->batch, &error))
        return model_fail(m, "batch: %s", error.text);
    uint64_t rows = 0; /* cells of an envelope: rows of every type, at least a share of a window */
    for (uint32_t t = 0; t < g->types; t++) rows += g->type[t].k;
    m->envelope_cells = rows + g->block;
    size_t blocks = m->pool->block_count, windows = m->pool->window_count;
    if (m->pool->shared) {
        for (uint32_t t = 0; t < tables; t++)
            m->cells[t] = calloc((size_t)m->pool->shared->slots.type[t].count * g->block, 8);
        m->cells[POOL_MAX_TYPES] = calloc(windows, 8);               /* snapshots */
        m->cells[POOL_MAX_TYPES + 2] = calloc(blocks * g->block, 8); /* index rows */
    } else {
        m->cells[0] = calloc(blocks * m->envelope_cells, 8);
        m->cells[1] = calloc(windows * g->block, 8);
    }
    m->cells[POOL_MAX_TYPES + 1] = calloc((size_t)MODEL_SEQUENCES * 4, 8); /* states, not elastic */
    return true;
}

static inline void model_close(struct model *m) {
    kvf_batch_destroy(m->batch);
    kvf_pool_destroy(m->pool);
    free(m->b.batch_id);
    free(m->b.position);
    free(m->b.cu_tokens);
    free(m->b.state_slot);
    free(m->b.write_from);
    free(m->b.window_from);
    free(m->b.window_table);
    free(m->b.index_table);
    for (int t = 0; t < 16; t++) free(m->b.block_table[t]);
    for (int t = 0; t < POOL_MAX_TYPES + 4; t++) free(m->cells[t]);
}

/* Row r of window block `id`; under `shared` of a compressed type's tensor. */
static inline uint64_t *model_window_cell(struct model *m, uint32_t type, int32_t id, uint32_t r) {
    if (m->pool->shared) return m->cells[type] + (size_t)id * m->g.block + r;
    if (m->pool->store == &pool_arena)
        return m->cells[0] + (size_t)id * m->g.per_chunk * m->envelope_cells + r;
    return m->cells[1] + (size_t)id * m->g.block + r;
}

/* Row r of block `id` for compressed type c (counted among the types with a ratio). */
static inline uint64_t *model_block_cell(struct model *m, uint32_t c, int32_t id, uint32_t r) {
    uint32_t before = 0, at = 0;
    for (uint32_t t = 0; t < m->g.types; t++) {
        if (!m->g.type[t].ratio) continue;
        if (at++ == c) {
            if (m->pool->shared) return m->cells[c] + (size_t)id * m->g.type[t].k + r;
            break;
        }
        before += m->g.type[t].k;
    }
    return m->cells[0] + (size_t)id * m->envelope_cells + before + r;
}

/* Under `shared` index rows lie apart, at the block's own id; elsewhere beside the block's rows. */
static inline uint64_t *model_index_cell(struct model *m, uint32_t row, uint32_t e) {
    uint32_t t = 0;
    while (!m->g.type[t].ratio) t++;
    int32_t id = m->b.index_table[(size_t)row * m->b.max_blocks + e / m->g.type[t].k];
    if (id < 0) return NULL;
    return m->cells[POOL_MAX_TYPES + 2] + (size_t)id * m->g.block + e % m->g.type[t].k;
}

static inline uint64_t *model_snapshot_cell(struct model *m, int32_t id) {
    if (m->pool->shared) return m->cells[POOL_MAX_TYPES] + id;
    return m->cells[0] + (size_t)id * m->envelope_cells;
}

static inline uint64_t *model_state_cell(struct model *m, uint32_t part, int32_t id) {
    if (m->pool->store != &pool_arena) return m->cells[POOL_MAX_TYPES + 1] + id;
    bool chunk = part < m->pool->state_chunk_parts;
    return m->cells[0] + (size_t)id * m->envelope_cells * (chunk ? m->g.per_chunk : 1);
}

/* ---- a step through the tables ---- */

static inline uint32_t model_compressed(const struct model *m, uint32_t c) {
    for (uint32_t t = 0, at = 0; t < m->g.types; t++)
        if (m->g.type[t].ratio && at++ == c) return t;
    return UINT32_MAX;
}

static inline bool model_read(struct model *m, const struct model_sequence *s, uint32_t row) {
    uint32_t block = m->g.block, columns = m->b.max_blocks;
    const int32_t *windows = m->b.window_table + (size_t)row * columns;
    uint32_t low = s->computed >= m->g.window - 1 ? s->computed - (m->g.window - 1) : 0;
    uint32_t types = m->pool->shared ? m->pool->shared->slots.types : 1;
    for (uint32_t p = low; p < s->computed; p++) {
        int32_t id = windows[p / block];
        if (id < 0) return model_fail(m, "position %u: its window is not backed", p);
        for (uint32_t t = 0; t < types; t++)
            if (*model_window_cell(m, t, id, p % block) != s->content[p])
                return model_fail(m, "position %u: window %d holds another row", p, id);
        m->rows_read++;
    }
    for (uint32_t c = 0; model_compressed(m, c) != UINT32_MAX; c++) {
        uint32_t ratio = m->g.type[model_compressed(m, c)].ratio, k = block / ratio;
        const int32_t *blocks = m->b.block_table[m->pool->shared ? c : 0] + (size_t)row * columns;
        for (uint32_t e = 0; (e + 1) * ratio <= s->computed; e++) {
            int32_t id = blocks[e / k];
            if (id < 0) return model_fail(m, "entry %u of ratio %u is not backed", e, ratio);
            if (*model_block_cell(m, c, id, e % k) != s->content[(e + 1) * ratio - 1])
                return model_fail(m, "entry %u of ratio %u: block %d holds another row", e, ratio,
                                  id);
            const uint64_t *index = m->pool->shared && !c ? model_index_cell(m, row, e) : NULL;
            if (m->pool->shared && !c && (!index || *index != s->content[(e + 1) * ratio - 1]))
                return model_fail(m, "entry %u: another index row, or none", e);
            m->rows_read++;
        }
    }
    for (uint32_t part = 0; part < m->b.state_parts; part++) {
        int32_t id = m->b.state_slot[(size_t)part * m->b.max_requests + row];
        if (*model_state_cell(m, part, id) != s->owner)
            return model_fail(m, "state part %u (%d) holds another request's", part, id);
    }
    return true;
}

static inline bool model_write(struct model *m, const struct model_sequence *s, uint32_t row) {
    uint32_t block = m->g.block, columns = m->b.max_blocks;
    const int32_t *windows = m->b.window_table + (size_t)row * columns;
    uint32_t types = m->pool->shared ? m->pool->shared->slots.types : 1;
    for (uint32_t p = s->computed; p < s->prepared; p++) {
        int32_t id = windows[p / block];
        for (uint32_t t = 0; id >= 0 && t < types; t++)
            *model_window_cell(m, t, id, p % block) = s->content[p];
        for (uint32_t c = 0; model_compressed(m, c) != UINT32_MAX; c++) {
            uint32_t ratio = m->g.type[model_compressed(m, c)].ratio, k = block / ratio;
            if ((p + 1) % ratio) continue;
            const int32_t *blocks = m->b.block_table[m->pool->shared ? c : 0];
            int32_t to = blocks[(size_t)row * columns + p / block];
            if (to < 0) return model_fail(m, "position %u has no block to write to", p);
            uint64_t *cell = model_block_cell(m, c, to, p / ratio % k);
            if (p >= (uint32_t)m->b.write_from[row])
                *cell = s->content[p];
            else if (*cell != s->content[p])
                return model_fail(m, "position %u: the shared row in block %d is another", p, to);
            if (m->pool->shared && !c && p >= (uint32_t)m->b.write_from[row])
                *model_index_cell(m, row, p / ratio) = s->content[p];
            m->rows_written++;
        }
    }
    return true;
}

static inline bool model_save(struct model *m, const struct model_sequence *s) {
    kvf_snapshot saves[64];
    uint32_t count = 0;
    kvf_error error;
    if (kvf_sequence_snapshots(m->pool, s->handle, saves, 64, &count, &error))
        return model_fail(m, "snapshots: %s", error.text);
    /* The tails hold the step's end, and the last few tokens before it: no other place of a chunk.
     */
    bool decode = s->prepared - s->computed <= m->g.drafts + 1;
    for (uint32_t i = 0; i < count; i++)
        if (saves[i].position <= s->computed || saves[i].position > s->prepared ||
            (!decode && saves[i].position != s->prepared))
            return model_fail(m, "tails at %u to save in a step from %u to %u", saves[i].position,
                              s->computed, s->prepared);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t part = 0; part < saves[i].parts; part++)
            *model_snapshot_cell(m, saves[i].ids[part]) = s->content[saves[i].position - 1] + part;
    return true;
}

/* Contents of positions from `from` on, from the tokens; drafts get tokens of their own. */
static inline void model_contents(struct model_sequence *s, uint32_t from, uint32_t to) {
    for (uint32_t p = from; p < to; p++)
        s->content[p] = model_mix(p ? s->content[p - 1] : 1, s->tokens[p]);
}

/* Run the prepared tokens of some sequences through one batch. */
static inline bool model_forward(struct model *m, struct model_sequence *const *list,
                                 uint32_t count) {
    kvf_sequence handles[MODEL_SEQUENCES];
    kvf_error error;
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) handles[i] = list[i]->handle;
    if (kvf_batch_fill(m->batch, handles, count, &error))
        return model_fail(m, "fill: %s", error.text);
    for (uint32_t i = 0; i < count; i++) {
        struct model_sequence *s = list[i];
        for (uint32_t p = s->computed; p < s->prepared; p++, at++)
            if (m->b.batch_id[at] != (int32_t)i || m->b.position[at] != (int32_t)p)
                return model_fail(m, "token %u: request %d, position %d", at, m->b.batch_id[at],
                                  m->b.position[at]);
        if (m->b.cu_tokens[i + 1] != (int32_t)at) return model_fail(m, "cu_tokens is wrong");
        if (m->b.write_from[i] != (int32_t)s->write_from)
            return model_fail(m, "write_from is wrong");
        if (m->b.window_from[i] != (int32_t)s->hit) return model_fail(m, "window_from is wrong");
        if (!model_read(m, s, i)) return false;
    }
    if (m->b.batch_id[at] != -1) return model_fail(m, "no padding behind the step's tokens");
    for (uint32_t i = 0; i < count; i++)
        if (!model_write(m, list[i], i) || !model_save(m, list[i])) return false;
    return true;
}

/* ---- operations: false only if something is wrong; SHORT and LIMIT are fine ---- */

static inline bool model_check(struct model *m) {
    kvf_error error;
    m->operations++;
    if (kvf_pool_check(m->pool, &error)) return model_fail(m, "check: %s", error.text);
    return true;
}

static inline void model_stamp_state(struct model *m, struct model_sequence *s) {
    const struct pool_sequence *inner = pool_sequence_get(m->pool, s->handle, NULL);
    s->owner = ++m->serial << 32;
    for (uint32_t part = 0; part < m->pool->parts; part++)
        *model_state_cell(m, part, inner->state[part]) = s->owner;
}

/* Admit `count` tokens of s->tokens. */
static inline kvf_status model_admit(struct model *m, struct model_sequence *s, uint32_t count,
                                     uint32_t chunk) {
    kvf_admission a;
    kvf_error error;
    kvf_status status = kvf_sequence_admit(m->pool, s->tokens, count, chunk, &a, &error);
    if (status) return status;
    s->live = true;
    s->handle = a.sequence;
    s->known = s->prompt = count;
    s->computed = s->prepared = s->hit = a.hit;
    s->high = a.hit;
    s->chunk = chunk;
    s->write_from = a.write_from;
    model_contents(s, 0, count);
    if (a.hit && m->pool->snapshots) {
        if (a.restore.position != a.hit || !a.restore.parts) {
            model_fail(m, "a hit at %u restores position %u", a.hit, a.restore.position);
            return KVF_ERROR_STATE;
        }
        for (uint32_t part = 0; part < a.restore.parts; part++)
            if (*model_snapshot_cell(m, a.restore.ids[part]) != s->content[a.hit - 1] + part) {
                model_fail(m, "the snapshot at %u holds another position's tails", a.hit);
                return KVF_ERROR_STATE;
            }
        m->restored++;
    }
    model_stamp_state(m, s);
    return KVF_OK;
}

static inline kvf_status model_prepare(struct model *m, struct model_sequence *s, uint32_t count) {
    kvf_status status = kvf_sequence_prepare(m->pool, s->handle, count, NULL);
    if (status) return status;
    s->prepared = s->computed + count;
    for (uint32_t p = s->known; p < s->prepared; p++)
        s->tokens[p] = 1000 + (int32_t)model_random(m, 3);
    model_contents(s, s->known, s->prepared);
    return KVF_OK;
}

/* Commit `count` prepared tokens; positions beyond what was known become known, and one more. */
static inline bool model_commit(struct model *m, struct model_sequence *s, uint32_t count,
                                int32_t sampled) {
    uint32_t end = s->computed + count, fresh = 0;
    kvf_error error;
    if (end >= s->known) {
        s->tokens[end] = sampled;
        fresh = end + 1 - s->known;
    }
    if (kvf_sequence_commit(m->pool, s->handle, count, s->tokens + s->known, fresh, &error))
        return model_fail(m, "commit %u of %u..%u: %s", count, s->computed, s->prepared,
                          error.text);
    s->known += fresh;
    s->computed = end;
    if (end > s->high) s->high = end;
    model_contents(s, end, s->prepared > end ? s->prepared : end + fresh);
    return true;
}

static inline bool model_truncate(struct model *m, struct model_sequence *s, uint32_t length) {
    kvf_error error;
    if (kvf_sequence_truncate(m->pool, s->handle, length, &error))
        return model_fail(m, "truncate to %u: %s", length, error.text);
    if (length < s->computed) s->computed = s->known = length;
    s->prepared = length;
    return true;
}

/* The copy's ids as cells of a request's state: elastic has two kinds of parts, the others one. */
static inline void model_copy_state(struct model *m, kvf_copy c) {
    uint32_t part = c.kind == KVF_COPY_STATE_CHUNK ? 0 : m->pool->state_chunk_parts;
    *model_state_cell(m, part, c.to) = *model_state_cell(m, part, c.from);
}

/* After the copies the child's state and saved tails are the parent's. */
static inline bool model_forked(struct model *m, kvf_sequence parent, kvf_sequence child) {
    const struct pool_sequence *a = pool_sequence_get(m->pool, parent, NULL);
    const struct pool_sequence *b = pool_sequence_get(m->pool, child, NULL);
    for (uint32_t part = 0; part < m->pool->parts; part++)
        if (*model_state_cell(m, part, a->state[part]) !=
            *model_state_cell(m, part, b->state[part]))
            return model_fail(m, "part %u of a fork's state is not its parent's", part);
    for (uint32_t i = 0; i < a->window_to; i++) {
        kvf_snapshot from = {0}, to = {0};
        if ((a->window_table[i] < 0) != (b->window_table[i] < 0))
            return model_fail(m, "window %u is the parent's or the fork's alone", i);
        if (a->window_table[i] < 0 || m->pool->windows[a->window_table[i]].snapshot < 0) continue;
        pool_snapshot_ids(m->pool, a->window_table[i], &from);
        pool_snapshot_ids(m->pool, b->window_table[i], &to);
        for (uint32_t part = 0; part < from.parts; part++)
            if (*model_snapshot_cell(m, from.ids[part]) != *model_snapshot_cell(m, to.ids[part]))
                return model_fail(m, "tails saved at window %u did not come along", i);
    }
    return true;
}

/* Make the copies that a fork asks for. */
static inline void model_copies(struct model *m, const kvf_fork *fork) {
    for (uint32_t i = 0; i < fork->count; i++) {
        kvf_copy c = fork->copies[i];
        uint32_t types = m->pool->shared ? m->pool->shared->slots.types : 1;
        if (c.kind == KVF_COPY_WINDOW)
            for (uint32_t t = 0; t < types; t++)
                memcpy(model_window_cell(m, t, c.to, 0), model_window_cell(m, t, c.from, 0),
                       m->g.block * sizeof(uint64_t));
        if (c.kind == KVF_COPY_SNAPSHOT)
            *model_snapshot_cell(m, c.to) = *model_snapshot_cell(m, c.from);
        if (c.kind == KVF_COPY_STATE || c.kind == KVF_COPY_STATE_CHUNK) model_copy_state(m, c);
        if (c.kind != KVF_COPY_BLOCK) continue;
        if (m->pool->shared)
            memcpy(m->cells[POOL_MAX_TYPES + 2] + (size_t)c.to * m->g.block,
                   m->cells[POOL_MAX_TYPES + 2] + (size_t)c.from * m->g.block,
                   m->g.block * sizeof(uint64_t));
        for (uint32_t at = 0; model_compressed(m, at) != UINT32_MAX; at++) {
            const int32_t *bound = m->pool->shared ? m->pool->shared->bound[at] : NULL;
            memcpy(model_block_cell(m, at, bound ? bound[c.to] : c.to, 0),
                   model_block_cell(m, at, bound ? bound[c.from] : c.from, 0),
                   m->g.type[model_compressed(m, at)].k * sizeof(uint64_t));
        }
    }
}

#endif
