/*
 * The store of `elastic`: one arena of chunks. A chunk is free, one window block, or envelopes.
 *
 * Two sums answer "does it fit" exactly and in O(1), per level of counting:
 *   unreferenced_chunks = chunks in which nothing counts as in use (free ones included)
 *   spare               = envelopes that are not in use, in envelope chunks where something is
 * What is not in use is free or can be evicted, so w windows and e envelopes fit if and only if
 *   w + ceil(max(0, e - spare) / n) <= unreferenced_chunks,
 * provided that whole chunks are taken before envelopes.
 */
#include "pool.h"

static uint32_t per_chunk(const kvf_pool *pool) {
    return pool->geometry.per_chunk;
}

/* Chunks that `whole` chunks and `envelopes` envelopes need when `spare` envelopes are at hand. */
static uint64_t chunks_for(const kvf_pool *pool, uint64_t whole, uint64_t envelopes,
                           uint64_t spare) {
    uint64_t rest = envelopes > spare ? envelopes - spare : 0;
    return whole + (rest + per_chunk(pool) - 1) / per_chunk(pool);
}

static uint64_t need_chunks(const kvf_pool *pool, const struct pool_need *need, uint64_t spare) {
    const struct pool_geometry *g = &pool->geometry;
    return chunks_for(pool, need->windows + need->states * g->state_chunks,
                      need->envelopes + need->states * g->state_envelopes, spare);
}

static bool arena_fits(const kvf_pool *pool, const struct pool_need *need, enum pool_level level,
                       struct pool_short *what) {
    uint64_t chunks = need_chunks(pool, need, pool->spare[level]);
    if (chunks <= pool->unreferenced_chunks[level]) return true;
    *what = (struct pool_short){"chunks", chunks - pool->unreferenced_chunks[level]};
    return false;
}

static bool arena_room(const kvf_pool *pool, const struct pool_need *need) {
    return need_chunks(pool, need, pool->open_envelopes) <= pool->free_chunks.length;
}

/* ---- counting ---- */

static void set_count(kvf_pool *pool, int32_t chunk, enum pool_level level, uint32_t now) {
    uint32_t n = per_chunk(pool), before = pool->chunks[chunk].count[level];
    if (before) pool->spare[level] -= n - before;
    if (now) pool->spare[level] += n - now;
    if (before && !now) pool->unreferenced_chunks[level]++;
    if (!before && now) pool->unreferenced_chunks[level]--;
    pool->chunks[chunk].count[level] = (uint16_t)now;
}

static void arena_count_window(kvf_pool *pool, int32_t window, enum pool_level level, bool on) {
    set_count(pool, window, level, on ? per_chunk(pool) : 0);
}

static void arena_count_envelope(kvf_pool *pool, int32_t envelope, enum pool_level level, bool on) {
    int32_t chunk = envelope / (int32_t)per_chunk(pool);
    uint32_t before = pool->chunks[chunk].count[level];
    set_count(pool, chunk, level, on ? before + 1 : before - 1);
}

/* ---- chunks ---- */

/* Open chunks (some envelopes free, some not) hang in one list per occupancy. */
static void open_link(kvf_pool *pool, int32_t chunk) {
    uint32_t used = pool->chunks[chunk].used;
    pool->counters.touched++;
    if (!used || used == per_chunk(pool)) return;
    pool_list_push_tail(&pool->open_chunks[used], chunk);
    pool->open_words[used / 64] |= UINT64_C(1) << (used % 64);
    pool->open_envelopes += per_chunk(pool) - used;
}

static void open_unlink(kvf_pool *pool, int32_t chunk) {
    uint32_t used = pool->chunks[chunk].used;
    if (!used || used == per_chunk(pool)) return;
    pool_list_remove(&pool->open_chunks[used], chunk);
    if (!pool->open_chunks[used].length)
        pool->open_words[used / 64] &= ~(UINT64_C(1) << (used % 64));
    pool->open_envelopes -= per_chunk(pool) - used;
}

static int32_t fullest_open(const kvf_pool *pool) {
    for (uint32_t word = per_chunk(pool) / 64 + 1; word-- > 0;) {
        uint64_t bits = pool->open_words[word];
        if (bits) return pool->open_chunks[word * 64 + 63 - (uint32_t)__builtin_clzll(bits)].head;
    }
    return POOL_NONE;
}

static int32_t take_chunk(kvf_pool *pool, enum pool_chunk_use use) {
    int32_t chunk = pool_list_pop_head(&pool->free_chunks);
    if (!pool_holds(pool, chunk >= 0, "a free chunk is there when one is taken")) return POOL_NONE;
    pool->counters.touched++;
    pool->chunks[chunk].use = (uint8_t)use;
    return chunk;
}

static void give_chunk(kvf_pool *pool, int32_t chunk) {
    pool->counters.touched++;
    pool->chunks[chunk].use = CHUNK_FREE;
    pool_list_push_head(&pool->free_chunks, chunk);
}

static int32_t arena_take_window(kvf_pool *pool) {
    int32_t window = take_chunk(pool, CHUNK_WINDOW);
    if (window < 0) return 0;
    pool->windows[window].used = true;
    arena_count_window(pool, window, POOL_REFERENCED, true);
    arena_count_window(pool, window, POOL_HELD, true);
    return window;
}

static void arena_give_window(kvf_pool *pool, int32_t window) {
    if (!pool_holds(pool, pool->windows[window].used, "a window is given back once")) return;
    pool->windows[window].used = false;
    give_chunk(pool, window);
}

/* ---- envelopes ---- */

static int32_t lowest_free(kvf_pool *pool, int32_t chunk) {
    uint64_t *mask = pool->masks + (size_t)chunk * pool->mask_words;
    for (uint32_t word = 0; word < pool->mask_words; word++) {
        if (mask[word] == UINT64_MAX) continue;
        uint32_t bit = (uint32_t)__builtin_ctzll(~mask[word]);
        mask[word] |= UINT64_C(1) << bit;
        return (int32_t)(word * 64 + bit);
    }
    return POOL_NONE;
}

static void set_use(kvf_pool *pool, int32_t envelope, enum pool_use use) {
    struct pool_block *block = &pool->blocks[envelope];
    *block = (struct pool_block){.parent = POOL_NONE,
                                 .window = POOL_NONE,
                                 .owner = POOL_NONE,
                                 .generation = block->generation + 1,
                                 .use = (uint8_t)use};
}

/* The chunk the owner filled last, the fullest open one, or a free one; out of the open lists. */
static int32_t choose_chunk(kvf_pool *pool, int32_t near) {
    uint32_t n = per_chunk(pool);
    int32_t chunk = near >= 0 ? (int32_t)((uint32_t)near / n) : POOL_NONE;
    bool open =
        chunk >= 0 && pool->chunks[chunk].use == CHUNK_ENVELOPES && pool->chunks[chunk].used < n;
    if (!open) chunk = fullest_open(pool);
    if (chunk < 0) return take_chunk(pool, CHUNK_ENVELOPES);
    if (!pool_holds(pool, pool->chunks[chunk].used < n, "an open chunk is not full"))
        return POOL_NONE;
    open_unlink(pool, chunk);
    return chunk;
}

/* The pool is damaged: ids that are no use, and no harm. */
static void take_none(int32_t *out, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) out[i] = 0;
}

/* Take `count` envelopes; those of one chunk in one go. */
static void take_envelopes(kvf_pool *pool, int32_t near, enum pool_use use, uint32_t count,
                           int32_t *out) {
    uint32_t n = per_chunk(pool);
    while (count) {
        int32_t chunk = choose_chunk(pool, near);
        if (chunk < 0) return take_none(out, count);
        struct pool_chunk *c = &pool->chunks[chunk];
        uint32_t take = n - c->used < count ? n - c->used : count;
        for (uint32_t i = 0; i < take; i++) {
            int32_t at = lowest_free(pool, chunk);
            if (!pool_holds(pool, at >= 0, "an open chunk has a free envelope"))
                return take_none(out, count);
            out[i] = chunk * (int32_t)n + at;
            set_use(pool, out[i], use);
        }
        c->used = (uint16_t)(c->used + take);
        open_link(pool, chunk);
        for (int level = 0; level < POOL_LEVELS; level++)
            set_count(pool, chunk, (enum pool_level)level, c->count[level] + take);
        near = POOL_NONE;
        out += take;
        count -= take;
    }
}

static int32_t arena_take_envelope(kvf_pool *pool, int32_t near, enum pool_use use) {
    int32_t envelope;
    take_envelopes(pool, near, use, 1, &envelope);
    return envelope;
}

/* Give back some envelopes of one chunk; they must not count as in use. */
static void give_envelopes(kvf_pool *pool, int32_t chunk, const int32_t *ids, uint32_t count) {
    uint64_t *mask = pool->masks + (size_t)chunk * pool->mask_words;
    for (uint32_t i = 0; i < count; i++)
        if (!pool_holds(pool, pool->blocks[ids[i]].use != POOL_FREE, POOL_GIVEN_ONCE)) return;
    open_unlink(pool, chunk);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)ids[i] - (uint32_t)chunk * per_chunk(pool);
        set_use(pool, ids[i], POOL_FREE);
        mask[at / 64] &= ~(UINT64_C(1) << (at % 64));
    }
    pool->chunks[chunk].used = (uint16_t)(pool->chunks[chunk].used - count);
    if (pool->chunks[chunk].used)
        open_link(pool, chunk);
    else
        give_chunk(pool, chunk);
}

static void arena_give_envelope(kvf_pool *pool, int32_t envelope) {
    give_envelopes(pool, (int32_t)((uint32_t)envelope / per_chunk(pool)), &envelope, 1);
}

/* ---- request state: whole chunks, then envelopes ---- */

static void arena_take_state(kvf_pool *pool, int32_t *parts) {
    const struct pool_geometry *g = &pool->geometry;
    for (uint32_t part = 0; part < g->state_chunks; part++) {
        int32_t chunk = take_chunk(pool, CHUNK_STATE);
        parts[part] = chunk < 0 ? 0 : chunk;
        if (chunk < 0) continue;
        set_count(pool, chunk, POOL_REFERENCED, g->per_chunk);
        set_count(pool, chunk, POOL_HELD, g->per_chunk);
    }
    take_envelopes(pool, POOL_NONE, POOL_STATE, g->state_envelopes, parts + g->state_chunks);
}

static void arena_give_state(kvf_pool *pool, const int32_t *parts) {
    const struct pool_geometry *g = &pool->geometry;
    for (uint32_t part = 0; part < g->state_chunks; part++) {
        bool state = pool->chunks[parts[part]].use == CHUNK_STATE;
        if (!pool_holds(pool, state, "a request's state lies in chunks of its own")) return;
        set_count(pool, parts[part], POOL_REFERENCED, 0);
        set_count(pool, parts[part], POOL_HELD, 0);
        give_chunk(pool, parts[part]);
    }
    const int32_t *ids = parts + g->state_chunks;
    for (uint32_t i = 0, run; i < g->state_envelopes; i += run) {
        int32_t chunk = (int32_t)((uint32_t)ids[i] / g->per_chunk);
        for (run = 1; i + run < g->state_envelopes; run++)
            if ((int32_t)((uint32_t)ids[i + run] / g->per_chunk) != chunk) break;
        for (int level = 0; level < POOL_LEVELS; level++)
            set_count(pool, chunk, (enum pool_level)level, pool->chunks[chunk].count[level] - run);
        give_envelopes(pool, chunk, ids + i, run);
    }
}

/* ---- the invariants of the arena itself; what counts as in use is checked by tree.c ---- */

static bool check_chunk(const kvf_pool *pool, int32_t chunk, uint64_t *open, kvf_error *error) {
    const struct pool_chunk *c = &pool->chunks[chunk];
    uint32_t n = per_chunk(pool), used = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool bit = pool->masks[(size_t)chunk * pool->mask_words + i / 64] >> (i % 64) & 1;
        bool use = pool->blocks[(size_t)chunk * n + i].use != POOL_FREE;
        if (bit != use)
            return pool_broken(error, "envelope %u of chunk %d: mask and use differ", i, chunk);
        used += bit;
    }
    if (used != c->used)
        return pool_broken(error, "chunk %d: %u envelopes, counted %u", chunk, used, c->used);
    if ((c->use == CHUNK_ENVELOPES) != (used > 0))
        return pool_broken(error, "chunk %d: %u envelopes in a chunk of use %d", chunk, used,
                           c->use);
    if ((c->use == CHUNK_WINDOW) != pool->windows[chunk].used)
        return pool_broken(error, "chunk %d: use %d, window used %d", chunk, c->use,
                           pool->windows[chunk].used);
    if (used && used < n) *open += n - used;
    return true;
}

static bool check_lists(const kvf_pool *pool, kvf_error *error) {
    uint32_t seen = 0;
    for (int32_t at = pool->free_chunks.head; at >= 0;
         at = pool_list_next(&pool->free_chunks, at)) {
        if (pool->chunks[at].use != CHUNK_FREE || ++seen > pool->chunk_count)
            return pool_broken(error, "chunk %d is listed as free", at);
    }
    uint32_t free_chunks = 0, open_chunks = 0, listed = 0;
    for (uint32_t i = 0; i < pool->chunk_count; i++) {
        free_chunks += pool->chunks[i].use == CHUNK_FREE;
        open_chunks += pool->chunks[i].used && pool->chunks[i].used < per_chunk(pool);
    }
    if (seen != free_chunks)
        return pool_broken(error, "%u free chunks, %u listed", free_chunks, seen);
    for (uint32_t used = 1; used < per_chunk(pool); used++) {
        const struct pool_list *list = &pool->open_chunks[used];
        bool bit = pool->open_words[used / 64] >> (used % 64) & 1;
        if (bit != (list->length > 0)) return pool_broken(error, "open list %u: wrong bit", used);
        for (int32_t at = list->head; at >= 0; at = pool_list_next(list, at))
            if (pool->chunks[at].used != used || ++listed > pool->chunk_count)
                return pool_broken(error, "chunk %d is in the open list %u", at, used);
    }
    if (listed != open_chunks)
        return pool_broken(error, "%u open chunks, %u listed", open_chunks, listed);
    return true;
}

static bool arena_check(const kvf_pool *pool, kvf_error *error) {
    uint64_t open = 0, none[POOL_LEVELS] = {0}, spare[POOL_LEVELS] = {0};
    for (uint32_t i = 0; i < pool->chunk_count; i++) {
        if (!check_chunk(pool, (int32_t)i, &open, error)) return false;
        for (int level = 0; level < POOL_LEVELS; level++) {
            uint32_t count = pool->chunks[i].count[level];
            if (count)
                spare[level] += per_chunk(pool) - count;
            else
                none[level]++;
        }
    }
    if (open != pool->open_envelopes) return pool_broken(error, "open envelopes miscounted");
    for (int level = 0; level < POOL_LEVELS; level++)
        if (none[level] != pool->unreferenced_chunks[level] || spare[level] != pool->spare[level])
            return pool_broken(error, "level %d: sums differ from the chunks", level);
    return check_lists(pool, error);
}

void pool_arena_open(kvf_pool *pool) {
    pool_list_open(&pool->free_chunks, &pool->chunks[0].link, sizeof pool->chunks[0]);
    for (uint32_t i = 0; i < pool->chunk_count; i++) {
        pool_list_push_tail(&pool->free_chunks, (int32_t)i);
        uint32_t tail = per_chunk(pool) % 64; /* bits beyond the last envelope are never free */
        if (tail) pool->masks[(size_t)(i + 1) * pool->mask_words - 1] = UINT64_MAX << tail;
    }
    for (uint32_t used = 0; used <= per_chunk(pool); used++)
        pool_list_open(&pool->open_chunks[used], &pool->chunks[0].link, sizeof pool->chunks[0]);
    for (int level = 0; level < POOL_LEVELS; level++) {
        pool->unreferenced_chunks[level] = pool->chunk_count;
        pool->spare[level] = 0;
    }
}

const struct pool_store pool_arena = {
    .fits = arena_fits,
    .room = arena_room,
    .take_window = arena_take_window,
    .give_window = arena_give_window,
    .take_envelope = arena_take_envelope,
    .give_envelope = arena_give_envelope,
    .take_state = arena_take_state,
    .give_state = arena_give_state,
    .count_window = arena_count_window,
    .count_envelope = arena_count_envelope,
    .check = arena_check,
};
