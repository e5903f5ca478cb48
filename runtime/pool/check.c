/*
 * kvf_pool_check: every invariant, counted afresh from the records. The first that does not hold is
 * named. It reads what the rest of the pool maintains, and trusts none of its sums.
 */
#include <string.h>

#include "pool.h"

/* ---- references ---- */

static bool check_table(const kvf_pool *pool, const struct pool_sequence *s, int32_t *block_refs,
                        int32_t *window_refs, kvf_error *error) {
    for (uint32_t i = 0; i < pool->max_blocks; i++) {
        int32_t block = s->block_table[i], window = s->window_table[i];
        if ((block >= 0) != (i < s->blocks))
            return pool_broken(error, "block table: entry %u is %d of %u", i, block, s->blocks);
        if (block >= (int32_t)pool->block_count || window >= (int32_t)pool->window_count)
            return pool_broken(error, "entry %u is out of range", i);
        if (window >= 0 && (i < s->window_from || i >= s->window_to))
            return pool_broken(error, "window %d at %u, outside %u..%u", window, i, s->window_from,
                               s->window_to);
        if (block >= 0) block_refs[block]++;
        if (window >= 0) window_refs[window]++;
    }
    return true;
}

static bool check_sequence(const kvf_pool *pool, const struct pool_sequence *s, kvf_error *error) {
    uint32_t block = pool->geometry.block;
    if (s->computed > s->prepared || s->computed > s->known || s->hit > s->computed)
        return pool_broken(error, "hit %u, computed %u, prepared %u, known %u", s->hit, s->computed,
                           s->prepared, s->known);
    if (s->prepared > s->blocks * block) return pool_broken(error, "prepared without blocks");
    if (s->published * block > s->computed) return pool_broken(error, "published beyond computed");
    uint32_t reach = pool->geometry.window - 1, low = s->computed > reach ? s->computed - reach : 0;
    for (uint32_t i = low / block; i * block < s->computed; i++)
        if (s->window_table[i] < 0)
            return pool_broken(error, "the next token reads window %u, which is not backed", i);
    for (uint32_t i = 0; i < s->published && !pool->options.prefix_cache_off; i++)
        if (!pool->blocks[s->block_table[i]].published)
            return pool_broken(error, "block %d is not published", s->block_table[i]);
    return true;
}

static bool check_references(kvf_pool *pool, kvf_error *error) {
    int32_t *block_refs = pool->scratch, *window_refs = pool->scratch + pool->block_count;
    uint64_t blocks = 0, windows = 0, envelopes = 0;
    uint32_t running = 0;
    memset(pool->scratch, 0,
           ((size_t)pool->block_count + pool->window_count) * sizeof pool->scratch[0]);
    for (uint32_t i = 0; i < pool->options.max_requests; i++) {
        const struct pool_sequence *s = &pool->sequences[i];
        if (!check_table(pool, s, block_refs, window_refs, error)) return false;
        if (!s->live && s->blocks) return pool_broken(error, "slot %u is free and has blocks", i);
        if (!s->live) continue;
        if (!check_sequence(pool, s, error)) return false;
        running++;
        blocks += s->promised;
        windows += s->promised_windows;
        envelopes += s->promised_envelopes;
    }
    if (running != pool->running ||
        pool->free_sequences.length + running != pool->options.max_requests)
        return pool_broken(error, "%u sequences live, counted %u", running, pool->running);
    if (blocks != pool->promised_blocks || windows != pool->promised_windows ||
        envelopes != pool->promised_envelopes)
        return pool_broken(error, "promises are miscounted");
    for (uint32_t i = 0; i < pool->block_count; i++)
        if (block_refs[i] != pool->blocks[i].refs)
            return pool_broken(error, "block %u has %d references, counted %d", i, block_refs[i],
                               pool->blocks[i].refs);
    for (uint32_t i = 0; i < pool->window_count; i++)
        if (window_refs[i] + pool->windows[i].held != pool->windows[i].refs)
            return pool_broken(error, "window %u has %d references, counted %d", i,
                               window_refs[i] + pool->windows[i].held, pool->windows[i].refs);
    return true;
}

/* ---- what is published ---- */

static bool check_published(kvf_pool *pool, kvf_error *error) {
    int32_t *children = pool->scratch;
    memset(children, 0, pool->block_count * sizeof children[0]);
    for (uint32_t i = 0; i < pool->block_count; i++) {
        const struct pool_block *b = &pool->blocks[i];
        if (b->window >= 0 && (!b->published || pool->windows[b->window].block != (int32_t)i))
            return pool_broken(error, "block %u names window %d, which is elsewhere", i, b->window);
        if (!b->published || b->parent < 0) continue;
        bool same = pool->blocks[b->parent].generation == b->parent_generation;
        if (same) children[b->parent]++;
        if (!pool->shared && (!same || !pool->blocks[b->parent].published))
            return pool_broken(error, "block %u is cached and its parent %d is not", i, b->parent);
    }
    for (uint32_t i = 0; i < pool->block_count; i++)
        if (children[i] != pool->blocks[i].children)
            return pool_broken(error, "block %u has %d children, counted %d", i, children[i],
                               pool->blocks[i].children);
    for (uint32_t i = 0; i < pool->window_count; i++) {
        const struct pool_window *w = &pool->windows[i];
        if (w->block < 0) continue;
        if (pool->blocks[w->block].window != (int32_t)i)
            return pool_broken(error, "window %u is published at block %d, which has %d", i,
                               w->block, pool->blocks[w->block].window);
        if (w->written != pool->geometry.block)
            return pool_broken(error, "window %u is published with %u rows", i, w->written);
    }
    return pool_index_check(pool, error);
}

/* ---- the tree's own invariants ---- */

static bool check_lists(const kvf_pool *pool, kvf_error *error) {
    uint32_t cached = 0, listed = 0;
    for (uint32_t i = 0; i < pool->window_count; i++) {
        const struct pool_window *w = &pool->windows[i];
        bool idle = w->used && !w->refs;
        cached += idle;
        if (idle != (w->list < POOL_CLASSES) || (idle && w->block < 0))
            return pool_broken(error, "window %u: %d references, list %d, block %d", i, w->refs,
                               w->list, w->block);
        if (w->list == POOL_ATTACHED && !pool->blocks[w->block].refs)
            return pool_broken(error, "window %u is attached to an idle block", i);
    }
    for (int class = 0; class < POOL_CLASSES; class ++)
        for (int32_t at = pool->classes[class].head; at >= 0;
             at = pool_list_next(&pool->classes[class], at))
            if (pool->windows[at].list != class || ++listed > cached)
                return pool_broken(error, "window %d stands in list %d", at, class);
    if (listed != cached) return pool_broken(error, "%u cached windows, %u listed", cached, listed);
    for (uint32_t i = 0; i < pool->block_count; i++) {
        const struct pool_block *b = &pool->blocks[i];
        if (b->use == POOL_BLOCK && !b->refs && !b->children && b->window < 0)
            return pool_broken(error, "block %u is idle and cannot be reached by eviction", i);
        if (b->use != POOL_BLOCK && (b->published || b->refs))
            return pool_broken(error, "envelope %u of use %d is referenced", i, b->use);
    }
    return true;
}

/* Who owns each envelope: at most one. Marks in scratch: 1 + bits of the levels it counts at. */
static bool own(const kvf_pool *pool, int32_t envelope, enum pool_use use, int levels,
                kvf_error *error) {
    int32_t *mark = &pool->scratch[envelope];
    if (*mark) return pool_broken(error, "envelope %d has two owners", envelope);
    if (pool->blocks[envelope].use != use)
        return pool_broken(error, "envelope %d is of use %d, not %d", envelope,
                           pool->blocks[envelope].use, use);
    *mark = 1 + levels;
    return true;
}

static bool own_chunk(const kvf_pool *pool, int32_t chunk, kvf_error *error) {
    uint32_t n = pool->geometry.per_chunk;
    if (pool->chunks[chunk].use != CHUNK_STATE)
        return pool_broken(error, "chunk %d is a state's and of use %d", chunk,
                           pool->chunks[chunk].use);
    for (uint32_t i = 0; i < n; i++) {
        int32_t *mark = &pool->scratch[(size_t)chunk * n + i];
        if (*mark) return pool_broken(error, "chunk %d has two owners", chunk);
        *mark = 1 + 6;
    }
    return true;
}

static bool own_state(const kvf_pool *pool, const struct pool_sequence *s, kvf_error *error) {
    for (uint32_t part = 0; pool->store == &pool_arena && part < pool->parts; part++) {
        bool good = part < pool->state_chunk_parts
                        ? own_chunk(pool, s->state[part], error)
                        : own(pool, s->state[part], POOL_STATE, 6, error);
        if (!good) return false;
    }
    return true;
}

static bool own_all(const kvf_pool *pool, kvf_error *error) {
    uint32_t states = 0;
    for (uint32_t i = 0; i < pool->chunk_count; i++) states += pool->chunks[i].use == CHUNK_STATE;
    if (states != pool->running * pool->state_chunk_parts)
        return pool_broken(error, "%u chunks hold state, for %u requests", states, pool->running);
    memset(pool->scratch, 0, pool->block_count * sizeof pool->scratch[0]);
    for (uint32_t i = 0; i < pool->options.max_requests; i++)
        if (pool->sequences[i].live && !own_state(pool, &pool->sequences[i], error)) return false;
    for (uint32_t i = 0; i < pool->window_count; i++) {
        const struct pool_window *w = &pool->windows[i];
        if (!w->used && w->snapshot >= 0) return pool_broken(error, "window %u: stray snapshot", i);
        int levels = w->refs ? 6 : w->list == POOL_ATTACHED ? 4 : 0;
        for (int32_t at = w->snapshot; at >= 0; at = pool->blocks[at].owner)
            if (!own(pool, at, POOL_SNAPSHOT, levels, error)) return false;
    }
    for (uint32_t i = 0; i < pool->block_count; i++) {
        const struct pool_block *b = &pool->blocks[i];
        if (b->use == POOL_BLOCK && !own(pool, (int32_t)i, POOL_BLOCK, b->refs ? 6 : 0, error))
            return false;
        if (!pool->scratch[i] && b->use != POOL_FREE)
            return pool_broken(error, "envelope %u of use %d has no owner", i, b->use);
    }
    return true;
}

/* Counts per chunk and level, from the owners found above. */
static bool check_counts(const kvf_pool *pool, kvf_error *error) {
    uint64_t total[POOL_LEVELS] = {0}, windows[POOL_LEVELS] = {0};
    for (int level = 0; level < POOL_LEVELS; level++) {
        for (uint32_t i = 0; i < pool->block_count; i++)
            total[level] += pool->scratch[i] && (pool->scratch[i] - 1) >> (level + 1) & 1;
        for (uint32_t i = 0; i < pool->window_count; i++) {
            const struct pool_window *w = &pool->windows[i];
            windows[level] += w->refs || (level == POOL_HELD && w->list == POOL_ATTACHED);
        }
    }
    if (pool->store == &pool_fixed) {
        for (int level = 0; level < POOL_LEVELS; level++)
            if (total[level] != pool->counted_envelopes[level] ||
                windows[level] != pool->counted_windows[level])
                return pool_broken(error, "level %d: sums differ from the owners", level);
        return true;
    }
    uint32_t n = pool->geometry.per_chunk;
    for (uint32_t chunk = 0; chunk < pool->chunk_count; chunk++)
        for (int level = 0; level < POOL_LEVELS; level++) {
            const struct pool_window *w = &pool->windows[chunk];
            uint32_t count = 0;
            for (uint32_t i = 0; i < n; i++) {
                int32_t mark = pool->scratch[(size_t)chunk * n + i];
                count += mark && (mark - 1) >> (level + 1) & 1;
            }
            if (w->used && (w->refs || (level == POOL_HELD && w->list == POOL_ATTACHED))) count = n;
            if (count != pool->chunks[chunk].count[level])
                return pool_broken(error, "chunk %u, level %d: %u in use, counted %u", chunk, level,
                                   count, pool->chunks[chunk].count[level]);
        }
    return true;
}

bool pool_tree_check(const kvf_pool *pool, kvf_error *error) {
    return check_lists(pool, error) && own_all(pool, error) && check_counts(pool, error) &&
           pool->store->check(pool, error);
}

kvf_status kvf_pool_check(kvf_pool *pool, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    bool good = check_references(pool, error) && check_published(pool, error) &&
                pool->policy->check(pool, error);
    return pool_leave(pool, good ? KVF_OK : KVF_ERROR_STATE, error);
}
