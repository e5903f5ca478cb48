/*
 * The rules of the policy elastic, one by one: what fits, where envelopes go, what is kept and what
 * is evicted first. The last test asks on random states whether the O(1) test of what fits agrees
 * with evicting everything and counting.
 */
#include "pool_model.h"

static struct model m;

static void open_model(uint32_t chunks, uint32_t snapshots, uint32_t per_chunk, bool promise) {
    struct pool_geometry g = {.block = 8,
                              .window = 8,
                              .max_positions = 480,
                              .checkpoint = 16,
                              .types = 2,
                              .per_chunk = per_chunk,
                              .envelope_bytes = 128,
                              .chunk_bytes = UINT64_C(128) * per_chunk,
                              .state_chunks = 1,
                              .state_envelopes = 1,
                              .snapshot_envelopes = snapshots,
                              .window_bytes = 100,
                              .block_bytes = 120,
                              .state_bytes = 64,
                              .snapshot_bytes = snapshots ? 16 : 0};
    g.type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 2, .layers = 1, .planes = 1};
    g.type[1] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
    kvf_pool_options o = {.max_requests = 8, .chunks = chunks, .no_promise = !promise};
    if (!model_open(&m, &g, &o, 1)) exit(1);
}

static bool compute(struct model_sequence *s, uint32_t count) {
    struct model_sequence *list[] = {s};
    while (count) {
        uint32_t take = count;
        kvf_sequence_chunk(m.pool, s->handle, count, &take, NULL);
        if (!take) take = count;
        if (model_prepare(&m, s, take) || !model_forward(&m, list, 1) ||
            !model_commit(&m, s, take, 7) || !model_check(&m))
            return false;
        count -= take;
    }
    return true;
}

/* Tokens base, base + 1, ...; from `fork` on other ones. */
static bool serve(struct model_sequence *s, int32_t base, uint32_t count, uint32_t fork) {
    for (uint32_t i = 0; i < count; i++)
        s->tokens[i] = base + (int32_t)i + (i >= fork ? 100000 + base : 0);
    return model_admit(&m, s, count, count) == KVF_OK && compute(s, count - s->computed);
}

static void end(struct model_sequence *s) {
    kvf_sequence_release(m.pool, s->handle, NULL);
    s->live = false;
}

static const struct pool_sequence *inner(const struct model_sequence *s) {
    return pool_sequence_get(m.pool, s->handle, NULL);
}

static uint32_t listed(enum pool_class class) {
    return m.pool->classes[class].length;
}

static enum pool_kind oldest(enum pool_class class) {
    return (enum pool_kind)m.pool->windows[m.pool->classes[class].head].kind;
}

/* ---- tests ---- */

static void state_in_parts(void) {
    open_model(20, 1, 6, false);
    serve(&m.s[0], 0, 20, 999);
    const int32_t *state = inner(&m.s[0])->state;
    is(kvf_pool_state_parts(m.pool), 2, "a state of a chunk and an envelope has two parts");
    is(m.pool->chunks[state[0]].use, CHUNK_STATE, "the first is a whole chunk");
    is(m.pool->blocks[state[1]].use, POOL_STATE, "the second an envelope");
    end(&m.s[0]);
    kvf_pool_stats stats;
    kvf_pool_get_stats(m.pool, &stats, NULL);
    is(stats.envelopes_state, 0, "a release gives both back");
    model_close(&m);
}

static void kinds(void) {
    open_model(60, 0, 6, false);
    serve(&m.s[0], 0, 60, 999); /* checkpoints at 16, 32; the tail at 48; the prompt's end at 56 */
    is(m.pool->made[POOL_TAIL], 1, "the last multiple of checkpoint in the prompt is a tail");
    is(m.pool->made[POOL_INTERIOR], 3, "other multiples and the prompt's end are interior");
    ok(listed(POOL_PROBATION) == 2 && listed(POOL_ATTACHED) == 1,
       "left behind, those are on probation and the tail is attached");
    compute(&m.s[0], 20);
    end(&m.s[0]);
    is(m.pool->made[POOL_END], 1, "the last whole block at the release is an end");
    is(listed(POOL_ATTACHED), 0, "after the release nothing is attached");
    ok(serve(&m.s[1], 0, 60, 50) && m.s[1].write_from == 48, "a prompt equal up to 50 hits 48");
    is(m.pool->first_hits[POOL_TAIL], 1, "which is the tail's first hit");
    end(&m.s[1]);
    ok(serve(&m.s[2], 0, 60, 42) && inner(&m.s[2])->hit == 32 && m.s[2].write_from == 40,
       "a prompt equal up to 42 resumes at 32 and shares the block up to 40");
    is(m.pool->made[POOL_BRANCH], 1, "where it branches off a window is made");
    end(&m.s[2]);
    ok(serve(&m.s[3], 0, 60, 43) && inner(&m.s[3])->hit == 40, "and the next such prompt hits 40");
    kvf_sequence_preempt(m.pool, m.s[3].handle, NULL);
    ok(m.pool->made[POOL_SAVED] == 1, "preemption saves the end");
    model_close(&m);
}

static void eviction_order(void) {
    open_model(40, 0, 6, false);
    serve(&m.s[0], 0, 60, 999);
    end(&m.s[0]);
    uint32_t probation = listed(POOL_PROBATION), durable = listed(POOL_DURABLE);
    ok(probation > 0 && durable > 0 && oldest(POOL_DURABLE) == POOL_END,
       "%u windows on probation, %u durable, the deepest of those first", probation, durable);
    struct pool_need one = {.windows = m.pool->free_chunks.length + 1u};
    m.pool->policy->make_room(m.pool, &one, POOL_REFERENCED);
    ok(listed(POOL_PROBATION) == probation - 1 && listed(POOL_DURABLE) == durable,
       "probation goes first");
    uint32_t blocks = 0, after = 0;
    for (uint32_t i = 0; i < m.pool->block_count; i++) blocks += m.pool->blocks[i].published;
    one.windows = m.pool->chunk_count;
    ok(m.pool->policy->make_room(m.pool, &one, POOL_REFERENCED), "everything unreferenced can go");
    for (uint32_t i = 0; i < m.pool->block_count; i++) after += m.pool->blocks[i].published;
    ok(blocks > 0 && after == 0, "with the windows, %u cached blocks went", blocks);
    is(model_check(&m), true, "the invariants hold");
    model_close(&m);
}

static void attached(void) {
    open_model(11, 0, 6, false);
    serve(&m.s[0], 0, 40,
          999); /* holds its state, windows, five blocks; the tail at 32 is attached */
    compute(&m.s[0], 20);
    int32_t window = m.pool->classes[POOL_ATTACHED].head;
    uint32_t admitted = 0;
    for (int i = 1; i < 8; i++) {
        for (int32_t t = 0; t < 9; t++) m.s[i].tokens[t] = i * 1000 + t;
        admitted += model_admit(&m, &m.s[i], 9, 9) == KVF_OK;
    }
    ok(window >= 0 && admitted > 0 && admitted < 7 && m.pool->windows[window].list == POOL_ATTACHED,
       "%u new requests of 7 are admitted, and leave the attached window alone", admitted);
    is(model_check(&m), true, "the invariants hold");
    struct pool_need growth = {.windows = (uint32_t)m.pool->unreferenced_chunks[POOL_REFERENCED]};
    struct pool_short what;
    ok(m.pool->policy->fits(m.pool, &growth, POOL_REFERENCED, &what) &&
           !m.pool->policy->fits(m.pool, &growth, POOL_HELD, &what),
       "what fits for growth does not for admission");
    ok(m.pool->policy->make_room(m.pool, &growth, POOL_REFERENCED) && !listed(POOL_ATTACHED),
       "growth takes attached windows");
    model_close(&m);
}

/* A window whose block another request goes on holding is not attached by a request that ends. */
static void released(void) {
    open_model(60, 0, 6, false);
    serve(&m.s[0], 0, 50, 999);
    serve(&m.s[1], 0, 50, 999);
    int32_t window = m.pool->blocks[inner(&m.s[0])->block_table[5]].window;
    ok(window >= 0 && m.pool->windows[window].refs == 2, "two requests list one window");
    compute(&m.s[1], 20); /* slides past it */
    end(&m.s[0]);
    is(m.pool->windows[window].list, POOL_DURABLE, "the other ends: it is durable");
    model_close(&m);
}

/* Equal hashes do not make equal blocks. */
static void collisions(void) {
    open_model(60, 0, 6, false);
    serve(&m.s[0], 0, 40, 999);
    const struct pool_sequence *s = inner(&m.s[0]);
    int32_t first = s->block_table[0], second = s->block_table[1], other[8] = {9, 9, 9};
    uint64_t hash = m.pool->blocks[second].hash;
    const int32_t *tokens = pool_block_tokens(m.pool, second);
    is(pool_index_find(m.pool, hash, first, tokens), second,
       "a block is found by hash, parent, tokens");
    is(pool_index_find(m.pool, hash, first, other), POOL_NONE, "not with other tokens");
    is(pool_index_find(m.pool, hash, second, tokens), POOL_NONE, "nor under another parent");
    m.pool->blocks[first].generation++;
    is(pool_index_find(m.pool, hash, first, tokens), POOL_NONE,
       "nor when the parent's content changed");
    m.pool->blocks[first].generation--;
    model_close(&m);
}

static void adoption(void) {
    open_model(60, 1, 6, false);
    struct model_sequence *a = &m.s[0], *b = &m.s[1];
    for (uint32_t i = 0; i < 60; i++) a->tokens[i] = b->tokens[i] = (int32_t)i;
    model_admit(&m, a, 60, 60);
    model_admit(&m, b, 60, 60); /* nothing is published yet: blocks of its own */
    ok(inner(a)->block_table[0] != inner(b)->block_table[0],
       "two cold twins have blocks of their own");
    compute(a, 60);
    compute(b, 60);
    ok(!memcmp(inner(a)->block_table, inner(b)->block_table, 7 * sizeof(int32_t)),
       "when both are computed they list the same blocks");
    ok(m.pool->counters.adopted_blocks == 7 && m.pool->counters.adopted_windows > 0,
       "seven blocks and %d windows were adopted", (int)m.pool->counters.adopted_windows);
    ok(compute(a, 5) && compute(b, 5), "and both go on reading the right rows");
    model_close(&m);
}

static void shared_resume(void) {
    open_model(60, 0, 6, false);
    serve(&m.s[0], 0, 40, 999);
    end(&m.s[0]);
    serve(&m.s[1], 0, 50, 34);
    serve(&m.s[2], 0, 50, 35);
    int32_t window = m.pool->blocks[inner(&m.s[1])->block_table[3]].window;
    ok(window >= 0 && m.pool->windows[window].held,
       "a window where two running requests resumed is held");
    end(&m.s[1]);
    ok(!m.pool->windows[window].held, "and let go when one of them ends");
    is(model_check(&m), true, "the invariants hold");
    model_close(&m);
}

/* A step that is prepared anew has what was asked for last, and saves tails only where it ends. */
static void prepared_twice(void) {
    struct model_sequence *a = &m.s[0];
    kvf_snapshot saves[4];
    kvf_sequence_info info;
    uint32_t count = 0;
    open_model(60, 1, 6, false);
    for (int32_t i = 0; i < 60; i++) a->tokens[i] = i;
    model_admit(&m, a, 60, 60);
    compute(a, 31);
    kvf_sequence_prepare(m.pool, a->handle, 1, NULL); /* to 32, a checkpoint */
    kvf_sequence_snapshots(m.pool, a->handle, saves, 4, &count, NULL);
    ok(count == 1 && saves[0].position == 32, "a step that ends at a checkpoint saves its tails");
    kvf_pool_stats before, after;
    kvf_pool_get_stats(m.pool, &before, NULL);
    kvf_sequence_prepare(m.pool, a->handle, 17, NULL); /* past it, to 48 */
    kvf_sequence_snapshots(m.pool, a->handle, saves, 4, &count, NULL);
    ok(count == 1 && saves[0].position == 48, "one that passes it has no tails of it to save");
    kvf_pool_get_stats(m.pool, &after, NULL);
    is(after.envelopes_snapshot, before.envelopes_snapshot, "and gives their envelope back");
    kvf_sequence_commit(m.pool, a->handle, 17, NULL, 0, NULL);
    int32_t passed = m.pool->blocks[inner(a)->block_table[3]].window;
    ok(passed == POOL_NONE, "nor can anybody resume there");
    kvf_sequence_prepare(m.pool, a->handle, 12, NULL);
    kvf_sequence_prepare(m.pool, a->handle, 3, NULL);
    kvf_sequence_get_info(m.pool, a->handle, &info, NULL);
    is(info.prepared, 51, "a step that is prepared shorter is shorter");
    is(model_check(&m), true, "the invariants hold");
    model_close(&m);
}

/* The last whole block of a request is a place to resume, also where no checkpoint is. */
static void next_turn(void) {
    struct model_sequence *a = &m.s[0], *b = &m.s[1];
    open_model(60, 1, 6, false);
    bool good = serve(a, 0, 20, 999);
    for (int i = 0; i < 8; i++) good = good && compute(a, 1); /* 28 tokens, and the next one */
    memcpy(b->tokens, a->tokens, 29 * sizeof a->tokens[0]);
    end(a);
    is(m.pool->made[POOL_END], 1, "a request that ends at 28 leaves an end");
    ok(good && !model_admit(&m, b, 29, 29) && inner(b)->hit == 24 && compute(b, 5),
       "the next turn resumes at 24, with the right rows and tails");
    model_close(&m);
}

/* Take chunks until `left` are free; nothing is cached that could be evicted. */
static void leave_free(uint32_t left) {
    while (m.pool->free_chunks.length > left) m.pool->policy->take_window(m.pool);
}

/* Tails that only the request itself holds go before its step is refused; others' do not. */
static void own_tails(void) {
    struct model_sequence *a = &m.s[0], *b = &m.s[1];
    for (int shared = 0; shared < 2; shared++) {
        open_model(60, 1, 1, false); /* an envelope is a chunk */
        serve(a, 0, 16, 999);
        int32_t window = inner(a)->window_table[1];
        for (int32_t i = 0; i < 20; i++) b->tokens[i] = i < 16 ? i : 50 + i;
        if (shared && (model_admit(&m, b, 20, 4) || inner(b)->hit != 16 || !compute(b, 4))) exit(1);
        leave_free(1); /* the next block and window take two; the saved tails are one */
        kvf_status status = kvf_sequence_prepare(m.pool, a->handle, 1, NULL);
        if (shared)
            ok(status == KVF_ERROR_SHORT && m.pool->windows[window].snapshot >= 0,
               "tails where another request resumed stay");
        else
            ok(status == KVF_OK && m.pool->windows[window].snapshot == POOL_NONE &&
                   m.pool->windows[window].block == POOL_NONE,
               "a request gives up its tails, and nobody can resume there");
        model_close(&m);
    }
    open_model(60, 1, 1, false);
    serve(a, 0, 16, 999);
    end(a);
    for (int32_t i = 0; i < 40; i++) b->tokens[i] = i < 16 ? i : 50 + i;
    kvf_status status = model_admit(&m, b, 40, 1);
    int32_t window = inner(b)->window_table[1];
    if (!status) status = kvf_sequence_prepare(m.pool, b->handle, 1, NULL);
    leave_free(0);
    ok(!status && kvf_sequence_prepare(m.pool, b->handle, 16, NULL) == KVF_ERROR_SHORT &&
           m.pool->windows[window].snapshot >= 0,
       "nor do those go that it is yet to restore");
    model_close(&m);
}

/* What the statistics count, against what was done. */
static void statistics(void) {
    kvf_pool_stats s;
    open_model(20, 0, 6, false);
    serve(&m.s[0], 0, 40, 999);
    kvf_pool_get_stats(m.pool, &s, NULL);
    ok(s.requests == 1 && s.admitted == 1 && s.blocks_used == 5 && !s.blocks_cached &&
           s.windows_used == 1 && s.prompt_tokens == 40 && !s.hit_tokens && s.computed_tokens == 40,
       "one request: its blocks, windows and tokens");
    is(s.used_bytes, 5 * 128 + 768 + 64, "and bytes");
    end(&m.s[0]);
    kvf_pool_get_stats(m.pool, &s, NULL);
    ok(!s.requests && s.released == 1 && !s.blocks_used && s.blocks_cached == 5 &&
           !s.windows_used && s.windows_cached == 3 && !s.used_bytes && !s.evicted_blocks,
       "released: all of it is cached, with the windows at 16, 32 and 40");
    serve(&m.s[0], 0, 41, 999);
    kvf_sequence_preempt(m.pool, m.s[0].handle, NULL);
    kvf_pool_get_stats(m.pool, &s, NULL);
    ok(s.admitted == 2 && s.preempted == 1 && s.prompt_tokens == 81 && s.hit_tokens == 40 &&
           s.computed_tokens == 41 && !s.recomputed_tokens,
       "again with one token more: 40 are hit, one is computed");
    struct pool_need all = {.windows = m.pool->chunk_count};
    m.pool->policy->make_room(m.pool, &all, POOL_REFERENCED);
    serve(&m.s[0], 0, 40, 999);
    kvf_pool_get_stats(m.pool, &s, NULL);
    ok(s.evicted_blocks == 5 && s.evicted_windows == 3 && s.recomputed_tokens == 40,
       "evicted and computed again: 40 tokens are told");
    for (int32_t i = 0; i < 480; i++) m.s[1].tokens[i] = -1 - i;
    model_admit(&m, &m.s[1], 480, 480);
    kvf_pool_get_stats(m.pool, &s, NULL);
    ok(!m.s[1].live && s.refused == 1 && s.admitted == 3, "a refusal is counted");
    model_close(&m);
}

static void promise(void) {
    open_model(30, 0, 6, true);
    serve(&m.s[0], 0, 20, 999);
    compute(&m.s[0], 60);
    end(&m.s[0]);
    ok(m.pool->mean_output > 59, "the mean output is learnt");
    serve(&m.s[1], 0, 20, 999);
    is(m.pool->promised_blocks, 0, "a request alone is promised nothing");
    serve(&m.s[2], 1000, 20, 999);
    is(m.pool->promised_blocks, 4, "one beside it is promised blocks for half the mean output");
    compute(&m.s[2], 20);
    is(m.pool->promised_blocks, 2, "which it uses up as it grows");
    kvf_sequence_preempt(m.pool, m.s[2].handle, NULL);
    is(m.pool->promised_blocks, 0, "and gives back when it ends");
    model_close(&m);
}

static void placement(void) {
    open_model(20, 0, 4, false);
    int32_t a = pool_arena.take_envelope(m.pool, -1, POOL_BLOCK), chunk = a / 4;
    int32_t b = pool_arena.take_envelope(m.pool, -1, POOL_BLOCK);
    is(b / 4, chunk, "an envelope goes to an open chunk");
    int32_t c = pool_arena.take_envelope(m.pool, -1, POOL_BLOCK);
    pool_arena.take_envelope(m.pool, -1, POOL_BLOCK); /* the chunk is full */
    int32_t other = pool_arena.take_envelope(m.pool, -1, POOL_BLOCK);
    ok(other / 4 != chunk, "a full chunk is left");
    int32_t freed[] = {b};
    pool_arena.count_envelope(m.pool, freed[0], POOL_REFERENCED, false);
    pool_arena.count_envelope(m.pool, freed[0], POOL_HELD, false);
    pool_arena.give_envelope(m.pool, freed[0]);
    is(pool_arena.take_envelope(m.pool, other, POOL_BLOCK) / 4, other / 4,
       "one's own open chunk first");
    is(pool_arena.take_envelope(m.pool, -1, POOL_BLOCK), b, "else the fullest");
    (void)c;
    model_close(&m);
}

/* fits() against evicting all that is not referenced and counting what is free. */
static void exactness(void) {
    bool good = true;
    uint32_t yes = 0, no = 0;
    for (uint32_t round = 0; round < 400 && good; round++) {
        open_model(14 + round % 9, round % 2, 2 + round % 5, false);
        m.random = round * 77 + 1;
        for (int i = 0; i < 60; i++) {
            struct model_sequence *s = &m.s[model_random(&m, 6)];
            if (s->live)
                end(s);
            else
                serve(s, (int32_t)model_random(&m, 3) * 1000, 1 + model_random(&m, 60),
                      model_random(&m, 60));
            if (s->live && inner(s)->prepared != inner(s)->computed)
                kvf_sequence_truncate(m.pool, s->handle, inner(s)->computed, NULL);
            s->live = s->live && s->handle;
        }
        struct pool_need need[40];
        bool fits[40];
        for (int i = 0; i < 40; i++) {
            struct pool_short what;
            need[i] = (struct pool_need){.windows = model_random(&m, m.pool->chunk_count),
                                         .envelopes = model_random(&m, m.pool->block_count)};
            fits[i] = m.pool->policy->fits(m.pool, &need[i], POOL_REFERENCED, &what);
        }
        struct pool_need all = {.windows = m.pool->chunk_count + 1u};
        m.pool->policy->make_room(m.pool, &all, POOL_REFERENCED); /* evicts everything, in vain */
        uint32_t n = m.pool->geometry.per_chunk, whole = 0, open = 0;
        for (uint32_t i = 0; i < m.pool->chunk_count; i++) {
            whole += m.pool->chunks[i].use == CHUNK_FREE;
            if (m.pool->chunks[i].use == CHUNK_ENVELOPES) open += n - m.pool->chunks[i].used;
        }
        for (int i = 0; i < 40; i++) {
            bool can = need[i].windows <= whole &&
                       need[i].envelopes <= open + (whole - need[i].windows) * n;
            good = good && can == fits[i];
            yes += can;
            no += !can;
        }
        model_close(&m);
    }
    ok(good && yes > 500 && no > 500, "the test of what fits is exact: %u times yes, %u times no",
       yes, no);
}

int main(void) {
    tap_plan(4 + 11 + 5 + 4 + 2 + 4 + 4 + 3 + 6 + 2 + 3 + 6 + 5 + 4 + 1);
    state_in_parts();
    kinds();
    eviction_order();
    attached();
    released();
    collisions();
    adoption();
    shared_resume();
    prepared_twice();
    next_turn();
    own_tails();
    statistics();
    promise();
    placement();
    exactness();
    return tap_done();
}
