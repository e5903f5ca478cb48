/*
 * Admission: find what is cached, test that everything fits, then take it; or change nothing.
 *
 * A hit at position B needs every block before B and the windows that end at B. Blocks beyond the
 * hit that are there too are claimed as well: their rows are computed again (the request needs the
 * tails and the window) but not written, and the memory is shared.
 */
#include <string.h>

#include "pool.h"

/* ---- handles ---- */

kvf_sequence pool_sequence_handle(const kvf_pool *pool, const struct pool_sequence *s) {
    return (kvf_sequence)s->generation << 32 | (uint64_t)(s - pool->sequences + 1);
}

struct pool_sequence *pool_sequence_get(kvf_pool *pool, kvf_sequence handle, kvf_error *error) {
    uint64_t slot = handle & UINT32_MAX;
    struct pool_sequence *s =
        slot && slot <= pool->options.max_requests ? &pool->sequences[slot - 1] : NULL;
    if (s && s->live && s->generation == handle >> 32) return s;
    pool_fail(error, KVF_ERROR_STATE,
              "no such sequence (%llx): never admitted, or released already",
              (unsigned long long)handle);
    return NULL;
}

/* ---- the hit ---- */

struct match {
    uint32_t blocks; /* leading blocks that are cached: pool->claim_blocks */
    uint32_t hit;    /* of those, how many can be resumed after */
    struct pool_claim claim;
    int32_t windows[64];
};

/* The longest cached prefix that leaves at least one token to compute. */
static void find_match(kvf_pool *pool, const int32_t *tokens, uint32_t count, struct match *m) {
    uint32_t block = pool->geometry.block, run = 0;
    uint64_t hash = 0;
    int32_t parent = POOL_NONE;
    *m = (struct match){0};
    if (pool->options.prefix_cache_off) return;
    for (uint32_t i = 0; (uint64_t)(i + 1) * block < count; i++) {
        const int32_t *text = tokens + (size_t)i * block;
        hash = pool_hash(!i, hash, text, block);
        parent = pool_index_find(pool, hash, parent, text);
        if (parent < 0) break;
        pool->claim_blocks[i] = parent;
        m->blocks = i + 1;
        run = pool->blocks[parent].window >= 0 ? run + 1 : 0;
        /* Windows of an unbroken run that begins at the first block suffice, however few. */
        if (run >= pool->tail_blocks || (run && run == i + 1)) m->hit = i + 1;
    }
}

/* With snapshots, a boundary counts only if its tails were saved. */
static void trim_to_snapshot(const kvf_pool *pool, struct match *m) {
    if (!pool->snapshots) return;
    for (; m->hit; m->hit--) {
        uint32_t need = m->hit < pool->tail_blocks ? m->hit : pool->tail_blocks, have = 0;
        while (have < need && pool->blocks[pool->claim_blocks[m->hit - 1 - have]].window >= 0)
            have++;
        int32_t last = pool->blocks[pool->claim_blocks[m->hit - 1]].window;
        if (have == need && pool->windows[last].snapshot >= 0) return;
    }
}

static void fill_claim(const kvf_pool *pool, struct match *m) {
    uint32_t need = m->hit < pool->tail_blocks ? m->hit : pool->tail_blocks;
    for (uint32_t i = 0; i < need; i++)
        m->windows[i] = pool->blocks[pool->claim_blocks[m->hit - need + i]].window;
    m->claim = (struct pool_claim){.blocks = pool->claim_blocks,
                                   .block_count = m->blocks,
                                   .windows = m->windows,
                                   .window_count = need};
}

/* ---- what an admission needs ---- */

struct demand {
    struct pool_need take;  /* now: blocks, state */
    struct pool_need first; /* set aside for the first chunk: windows, snapshots */
    uint32_t promise;       /* blocks set aside for half the mean output */
};

static struct demand demand_of(const kvf_pool *pool, struct pool_sequence *s, uint32_t chunk,
                               enum pool_back back) {
    uint32_t left = s->prompt - s->computed, end = s->computed + (chunk < left ? chunk : left);
    struct demand d = {0};
    d.take.envelopes = pool_blocks_of(pool, s->prompt) - s->matched;
    d.take.states = 1;
    d.first = pool_step_need(pool, s, pool_chunk_stop(pool, s, end), back);
    /* A shorter chunk may end inside a block and read one window more. Alone, the request must get
     * through its whole prompt: what one chunk leaves, and what the next one does. */
    uint32_t least = pool_reach_blocks(pool),
             blocks = pool_blocks_of(pool, end) - s->hit / pool->geometry.block;
    if (!pool->running) {
        least *= 2;
        blocks = pool_blocks_of(pool, s->prompt);
    }
    if (least > blocks) least = blocks;
    if (d.first.windows < least) d.first.windows = least;
    if (pool->running && !pool->options.no_promise) {
        uint64_t grown = (uint64_t)s->prompt + (uint64_t)(pool->mean_output / 2);
        if (grown > pool->options.max_tokens) grown = pool->options.max_tokens;
        d.promise = pool_blocks_of(pool, (uint32_t)grown) - pool_blocks_of(pool, s->prompt);
    }
    return d;
}

static bool demand_fits(kvf_pool *pool, const struct match *m, const struct demand *d,
                        enum pool_level level, struct pool_short *what) {
    struct pool_need need = d->take;
    pool->policy->claim_begin(pool, &m->claim, &need);
    need.windows += d->first.windows + pool->promised_windows;
    need.envelopes += d->first.envelopes + pool->promised_envelopes;
    need.envelopes += d->promise;
    if (pool->running) need.envelopes += pool->promised_blocks;
    bool fits = pool->policy->fits(pool, &need, level, what);
    pool->policy->claim_undo(pool, &m->claim);
    return fits;
}

/*
 * Attached windows are not touched for a new request, unless nothing runs. Checkpoints of the first
 * chunk are given up before the request is.
 */
static bool choose_demand(kvf_pool *pool, struct pool_sequence *s, uint32_t chunk,
                          const struct match *m, struct demand *out, enum pool_level *level,
                          struct pool_short *what) {
    *level = pool->running ? POOL_HELD : POOL_REFERENCED;
    *out = demand_of(pool, s, chunk, POOL_BACK_CHECKPOINTS);
    if (demand_fits(pool, m, out, *level, what)) return true;
    *out = demand_of(pool, s, chunk, POOL_BACK_LEAN);
    return !pool->running && demand_fits(pool, m, out, *level, what);
}

/* ---- taking it ---- */

static void open_sequence(kvf_pool *pool, struct pool_sequence *s, uint32_t count,
                          const struct match *m) {
    s->known = s->prompt = count;
    s->hit = s->final = s->computed = s->prepared = m->hit * pool->geometry.block;
    s->matched = m->blocks;
    s->published = m->hit;
    s->blocks = m->blocks;
    s->window_to = m->hit;
    s->window_from = m->hit - m->claim.window_count;
    s->promised = s->promised_windows = s->promised_envelopes = 0;
    s->near = s->resumed = POOL_NONE;
}

static void promise(kvf_pool *pool, struct pool_sequence *s, const struct demand *d) {
    s->promised = d->promise;
    s->promised_windows = (uint32_t)d->first.windows;
    s->promised_envelopes = (uint32_t)d->first.envelopes;
    pool->promised_blocks += d->promise;
    pool->promised_windows += d->first.windows;
    pool->promised_envelopes += d->first.envelopes;
}

static void take_all(kvf_pool *pool, struct pool_sequence *s, const int32_t *tokens,
                     const struct match *m, const struct demand *d, enum pool_level level) {
    uint32_t block = pool->geometry.block;
    pool_list_remove(&pool->free_sequences, (int32_t)(s - pool->sequences));
    pool->policy->claim_finish(pool, &m->claim);
    memcpy(s->block_table, m->claim.blocks, m->blocks * sizeof s->block_table[0]);
    for (uint32_t i = 0; i < m->claim.window_count; i++)
        s->window_table[s->window_from + i] = m->claim.windows[i];
    if (m->hit) {
        s->resumed = m->claim.windows[m->claim.window_count - 1];
        s->resumed_generation = pool->windows[s->resumed].generation;
        pool_window_resume(pool, s->resumed);
    }
    promise(pool, s, d);
    struct pool_need all = d->take; /* what is promised is kept free, see step.c */
    all.windows += pool->promised_windows;
    all.envelopes += pool->promised_envelopes;
    if (!pool_holds(pool, pool->policy->make_room(pool, &all, level), POOL_ROOM)) return;
    pool->policy->take_state(pool, s->state);
    s->known = s->blocks * block; /* nothing is pending while blocks are appended */
    pool_step_append(pool, s, pool_blocks_of(pool, s->prompt));
    s->known = s->prompt;
    for (uint32_t at = m->blocks * block; at < s->prompt; at += block) {
        uint32_t part = s->prompt - at < block ? s->prompt - at : block;
        memcpy(pool_sequence_token(pool, s, at), tokens + at, part * sizeof tokens[0]);
    }
    s->live = true;
    pool->running++;
    s->fill_batch = 0;
}

static void fill_snapshot(const kvf_pool *pool, const struct pool_sequence *s, kvf_snapshot *out) {
    memset(out, 0, sizeof *out);
    if (!s->hit || !pool->snapshots) return;
    pool_snapshot_ids(pool, s->window_table[s->window_to - 1], out);
    out->position = s->hit;
}

static kvf_status check_tokens(const kvf_pool *pool, const int32_t *tokens, uint32_t count,
                               uint32_t chunk, const kvf_admission *out, kvf_error *error) {
    if (!tokens || !count || !chunk || !out)
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "admit: no tokens, no chunk or nowhere to write the answer");
    if (count > pool->options.max_tokens)
        return pool_fail(error, KVF_ERROR_LIMIT, "admit: %u tokens; the longest sequence is %u",
                         count, pool->options.max_tokens);
    if (!pool->free_sequences.length)
        return pool_fail(error, KVF_ERROR_SHORT,
                         "admit: the pool is short of 1 request slot (of %u)",
                         pool->options.max_requests);
    return KVF_OK;
}

static kvf_status admit(kvf_pool *pool, const int32_t *tokens, uint32_t count, uint32_t chunk,
                        kvf_admission *out, kvf_error *error) {
    kvf_status status = check_tokens(pool, tokens, count, chunk, out, error);
    if (status) return status;
    struct match m;
    struct demand demand;
    struct pool_short what = {0};
    enum pool_level level;
    find_match(pool, tokens, count, &m);
    trim_to_snapshot(pool, &m);
    fill_claim(pool, &m);
    struct pool_sequence *s = &pool->sequences[pool->free_sequences.head];
    open_sequence(pool, s, count, &m);
    /* The claimed windows are not in the table yet, but no need of this request lies below them. */
    bool fits = choose_demand(pool, s, chunk, &m, &demand, &level, &what);
    if (!fits && !pool->running && m.blocks) {
        /* What is cached lies where the request itself has to: serve it as an empty pool would. */
        struct pool_need everything = {.windows = UINT32_MAX};
        m = (struct match){0};
        fill_claim(pool, &m);
        open_sequence(pool, s, count, &m);
        fits = choose_demand(pool, s, chunk, &m, &demand, &level, &what);
        if (fits) pool->policy->make_room(pool, &everything, POOL_REFERENCED);
    }
    if (!fits) {
        pool->counters.refused++;
        s->blocks = s->window_from = s->window_to = 0;
        if (!pool->running)
            return pool_fail(error, KVF_ERROR_LIMIT,
                             "admit: %u tokens never fit: alone, the pool lacks %llu %s", count,
                             (unsigned long long)what.missing, what.resource);
        return pool_fail_short(error, &what, "admit");
    }
    take_all(pool, s, tokens, &m, &demand, level);
    pool->counters.admitted++;
    pool->counters.hit_tokens += s->hit;
    pool->counters.prompt_tokens += count;
    out->sequence = pool_sequence_handle(pool, s);
    out->hit = s->hit;
    out->write_from = s->matched * pool->geometry.block;
    out->slot = (uint32_t)(s - pool->sequences);
    fill_snapshot(pool, s, &out->restore);
    return KVF_OK;
}

kvf_status kvf_sequence_admit(kvf_pool *pool, const int32_t *tokens, uint32_t count, uint32_t chunk,
                              kvf_admission *out, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    return pool_leave(pool, admit(pool, tokens, count, chunk, out, error), error);
}
