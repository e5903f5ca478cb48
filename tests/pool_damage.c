/*
 * A pool whose records somebody else wrote to. Each case breaks one invariant that the pool relies
 * on and makes the call that meets it: the call returns a status that names the invariant, and so
 * does every later call, but nothing aborts and nothing outside the pool's arrays is touched (build
 * with sanitizers to see that). Destroying the pool is all that is left.
 */
#include "pool_model.h"

static struct model m;
static struct model_sequence *live, *cached; /* one that runs, one that was released */
static kvf_error error;

static void fill_geometry(struct pool_geometry *g) {
    *g = (struct pool_geometry){.block = 8,
                                .window = 8,
                                .max_positions = 480,
                                .checkpoint = 16,
                                .types = 3,
                                .per_chunk = 4,
                                .envelope_bytes = 128,
                                .chunk_bytes = 512,
                                .state_chunks = 1,
                                .state_envelopes = 1,
                                .snapshot_envelopes = 1,
                                .window_bytes = 100,
                                .block_bytes = 120,
                                .state_bytes = 64,
                                .snapshot_bytes = 16};
    g->type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 2, .layers = 1, .planes = 1};
    g->type[1] = (struct pool_type){.name = "hca", .ratio = 8, .k = 1, .layers = 1, .planes = 1};
    g->type[2] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
}

static void serve(struct model_sequence *s, int32_t base, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) s->tokens[i] = base + (int32_t)i;
    if (model_admit(&m, s, count, count)) exit(1);
    for (uint32_t n; s->computed < count;) {
        struct model_sequence *list[] = {s};
        kvf_sequence_chunk(m.pool, s->handle, count - s->computed, &n, NULL);
        if (model_prepare(&m, s, n) || !model_forward(&m, list, 1) || !model_commit(&m, s, n, 7))
            exit(1);
    }
}

static void open_pool(kvf_policy policy) {
    struct pool_geometry g;
    fill_geometry(&g);
    kvf_pool_options o = {.policy = policy,
                          .max_requests = 4,
                          .chunks = 24,
                          .windows = 10,
                          .blocks = 40,
                          .pins = policy == KVF_POLICY_SHARED ? 2 : 0};
    if (!model_open(&m, &g, &o, 1)) exit(1);
    live = &m.s[0];
    cached = &m.s[1];
    serve(cached, 500, 44);
    kvf_sequence_release(m.pool, cached->handle, NULL);
    serve(live, 0, 60);
}

/* ---- the calls that meet the damage ---- */

static kvf_status release(void) {
    return kvf_sequence_release(m.pool, live->handle, &error);
}

static kvf_status admit(int32_t base, uint32_t count) {
    static int32_t tokens[480];
    kvf_admission a;
    for (uint32_t i = 0; i < count; i++) tokens[i] = base + (int32_t)i;
    return kvf_sequence_admit(m.pool, tokens, count, 16, &a, &error);
}

static kvf_status admit_new(void) {
    return admit(3000, 40);
}

/* What was released, and a little more: resumes where that ended. */
static kvf_status admit_cached(void) {
    return admit(500, 43);
}

/* The longest requests that fit, so that whatever is cached must be evicted. */
static kvf_status admit_many(void) {
    kvf_status status = KVF_OK;
    for (uint32_t count = 300; count > 8 && status != KVF_ERROR_STATE; count -= 4)
        status = admit(1000 * (int32_t)count, count);
    return status;
}

static kvf_status decode(void) {
    kvf_status status = KVF_OK;
    for (int32_t id = 0; id < 16 && !status; id++) {
        status = kvf_sequence_prepare(m.pool, live->handle, 1, &error);
        if (!status) status = kvf_sequence_commit(m.pool, live->handle, 1, &id, 1, &error);
    }
    return status;
}

static kvf_status do_fork(void) {
    kvf_fork fork;
    return kvf_sequence_fork(m.pool, live->handle, &fork, &error);
}

static kvf_status truncate_now(void) {
    return kvf_sequence_truncate(m.pool, live->handle, live->computed, &error);
}

/* Unreachable through the calls, each of which tests first. */
static kvf_status unpublish_twice(void) {
    struct pool_sequence *s = pool_sequence_get(m.pool, live->handle, NULL);
    pool_unpublish_block(m.pool, s->block_table[s->blocks - 1]);
    return kvf_pool_check(m.pool, &error);
}

static kvf_status publish_astray(void) {
    struct pool_sequence *s = pool_sequence_get(m.pool, live->handle, NULL);
    pool_publish_window(m.pool, s->block_table[s->blocks - 1], s->window_table[s->window_to - 1],
                        POOL_TAIL);
    return kvf_pool_check(m.pool, &error);
}

static kvf_status publish_twice(void) {
    int32_t window = m.pool->classes[POOL_DURABLE].head, block = m.pool->windows[window].block;
    m.pool->blocks[block].window = POOL_NONE;
    pool_publish_window(m.pool, block, window, POOL_TAIL);
    return kvf_pool_check(m.pool, &error);
}

/* ---- damage ---- */

static struct pool_sequence *inner(void) {
    return pool_sequence_get(m.pool, live->handle, NULL);
}

static int32_t last_block(void) {
    return inner()->block_table[inner()->blocks - 1];
}

static int32_t last_window(void) {
    return inner()->window_table[inner()->window_to - 1];
}

static int32_t oldest(void) {
    for (int class = 0; class < POOL_CLASSES; class ++)
        if (m.pool->classes[class].head >= 0) return m.pool->classes[class].head;
    return 0;
}

static int32_t open_chunk(void) {
    for (uint32_t used = 1; used < m.g.per_chunk; used++)
        if (m.pool->open_chunks[used].head >= 0) return m.pool->open_chunks[used].head;
    return 0;
}

static void no_free_chunk(void) {
    m.pool->free_chunks.head = POOL_NONE;
}
static void full_open_chunk(void) {
    m.pool->chunks[open_chunk()].used = (uint16_t)m.g.per_chunk;
}
static void full_masks(void) {
    for (uint32_t i = 0; i < m.pool->chunk_count; i++)
        if (m.pool->chunks[i].used && m.pool->chunks[i].used < m.g.per_chunk)
            m.pool->masks[i] = UINT64_MAX;
}
static void window_is_free(void) {
    m.pool->windows[last_window()].used = false;
}
static void envelope_is_free(void) {
    m.pool->blocks[last_block()].use = POOL_FREE;
}
static void state_is_free(void) {
    m.pool->chunks[inner()->state[0]].use = CHUNK_FREE;
}
static void block_unreferenced(void) {
    m.pool->blocks[last_block()].refs = 0;
}
static void window_unreferenced(void) {
    m.pool->windows[last_window()].refs = 0;
}
static void publishes_again(void) {
    struct pool_sequence *s = inner();
    s->published--;
    m.pool->blocks[s->block_table[s->published]].published = false;
}
static void other_window(void) {
    int32_t window = oldest();
    m.pool->blocks[m.pool->windows[window].block].window = last_window();
}
static void not_resumed(void) {
    inner()->resumed = oldest();
    inner()->resumed_generation = m.pool->windows[oldest()].generation;
}
static void in_no_list(void) {
    for (uint32_t i = 0; i < m.pool->window_count; i++)
        if (!m.pool->windows[i].refs) m.pool->windows[i].list = POOL_CLASSES;
}
static void oldest_is_referenced(void) {
    m.pool->windows[oldest()].refs = 1;
}
static void sums_too_large(void) {
    for (int level = 0; level < POOL_LEVELS; level++) {
        m.pool->unreferenced_chunks[level] += 100;
        m.pool->counted_envelopes[level] -= 1000;
        m.pool->counted_windows[level] -= 1000;
    }
    m.pool->free_chunks.length = 0;
    m.pool->open_envelopes = 0;
    m.pool->free_windows.length = m.pool->free_envelopes.length = 0;
    for (int class = 0; class < POOL_CLASSES; class ++) m.pool->classes[class].head = POOL_NONE;
}
static void sums_at_a_block_end(void) {
    while (live->computed % 8)
        if (model_prepare(&m, live, 1) || !model_commit(&m, live, 1, 5)) exit(1);
    sums_too_large();
}
static void known_too_far(void) {
    inner()->known += 400;
}
static void other_hash(void) {
    for (uint32_t i = 0; i < m.pool->block_count; i++)
        if (!m.pool->blocks[i].refs) m.pool->blocks[i].hash ^= UINT64_C(0x123456789);
}
static void no_free_window(void) {
    m.pool->free_windows.head = POOL_NONE;
}
static void no_free_envelope(void) {
    m.pool->free_envelopes.head = POOL_NONE;
}
static void states_all_free(void) {
    m.pool->free_state_count = m.pool->state_count;
}
static void unbound(void) {
    struct slots_type *t = &m.pool->shared->slots.type[0];
    for (uint32_t i = 0; i < m.pool->block_count; i++) {
        int32_t bound = m.pool->shared->bound[0][i];
        if (bound >= 0 && !m.pool->blocks[i].refs)
            t->masks[(size_t)bound / t->ratio * t->words] &=
                ~(UINT64_C(1) << bound % (int32_t)t->ratio);
    }
}
static void pins_miscounted(void) {
    m.pool->shared->cold.head = POOL_NONE;
    m.pool->shared->pins.head = POOL_NONE;
    m.pool->shared->pinned_idle = 50;
    m.pool->shared->slots.free.length = 0;
}
static void no_free_id(void) {
    m.pool->shared->free.head = POOL_NONE;
}
static void no_free_slot(void) {
    m.pool->shared->slots.free.head = POOL_NONE;
}
static void nothing_to_bind(void) {
    struct slots *s = &m.pool->shared->slots;
    for (uint32_t t = 0; t < s->types; t++) {
        s->type[t].own_free.head = s->type[t].joint.head = POOL_NONE;
        for (uint32_t i = 0; i <= s->type[t].ratio / 64; i++)
            s->type[t].own_bits[i] = s->type[t].lent_bits[i] = 0;
    }
    s->idle = 0;
    m.pool->shared->cold.head = POOL_NONE;
}
static void slot_taken(void) {
    for (uint32_t i = 0; i < m.pool->window_count; i++) {
        m.pool->windows[i].pinned = false;
        m.pool->shared->slots.window[i].free = false;
    }
}
static void slot_not_held(void) {
    m.pool->shared->slots.window[last_window()].held = false;
}
static void nothing(void) {}

static const struct damage {
    kvf_policy policy;
    void (*harm)(void);
    kvf_status (*call)(void);
    const char *invariant;
} cases[] = {
    {KVF_POLICY_ELASTIC, no_free_chunk, admit_new, "a free chunk is there"},
    {KVF_POLICY_ELASTIC, full_open_chunk, admit_new, "an open chunk is not full"},
    {KVF_POLICY_ELASTIC, full_masks, admit_new, "an open chunk has a free envelope"},
    {KVF_POLICY_ELASTIC, window_is_free, release, "a window is given back once"},
    {KVF_POLICY_ELASTIC, envelope_is_free, release, "an envelope is given back once"},
    {KVF_POLICY_ELASTIC, state_is_free, release, "state lies in chunks of its own"},
    {KVF_POLICY_ELASTIC, block_unreferenced, release, "a reference to a block"},
    {KVF_POLICY_ELASTIC, window_unreferenced, release, "a reference to a window"},
    {KVF_POLICY_ELASTIC, publishes_again, release, "a block is published once"},
    {KVF_POLICY_ELASTIC, nothing, unpublish_twice, "only published blocks are unpublished"},
    {KVF_POLICY_ELASTIC, nothing, publish_astray, "at a published block without one"},
    {KVF_POLICY_ELASTIC, nothing, publish_twice, "a window is published once, and whole"},
    {KVF_POLICY_ELASTIC, other_window, admit_many, "and its block name each other"},
    {KVF_POLICY_ELASTIC, not_resumed, release, "a resume ends once"},
    {KVF_POLICY_ELASTIC, in_no_list, admit_cached, "stands in a list"},
    {KVF_POLICY_ELASTIC, oldest_is_referenced, admit_many, "is cached and not referenced"},
    {KVF_POLICY_ELASTIC, sums_too_large, admit_many, "what fits can be made room for"},
    {KVF_POLICY_ELASTIC, sums_at_a_block_end, decode, "what fits can be made room for"},
    {KVF_POLICY_ELASTIC, sums_too_large, do_fork, "what fits can be made room for"},
    {KVF_POLICY_ELASTIC, known_too_far, truncate_now, "few tokens are known beyond"},
    {KVF_POLICY_ELASTIC, other_hash, admit_many, "a published block is in the index"},
    {KVF_POLICY_STATIC, no_free_window, decode, "a free window is there"},
    {KVF_POLICY_STATIC, no_free_envelope, admit_new, "a free envelope is there"},
    {KVF_POLICY_STATIC, window_is_free, release, "a window is given back once"},
    {KVF_POLICY_STATIC, envelope_is_free, release, "an envelope is given back once"},
    {KVF_POLICY_STATIC, states_all_free, release, "state is taken and given back once"},
    {KVF_POLICY_STATIC, sums_too_large, admit_many, "what fits can be made room for"},
    {KVF_POLICY_SHARED, unbound, admit_many, "a bound block is given back once"},
    {KVF_POLICY_SHARED, pins_miscounted, admit_many, "an idle pin is in the list"},
    {KVF_POLICY_SHARED, no_free_id, admit_new, "a free block is there"},
    {KVF_POLICY_SHARED, no_free_slot, decode, "a free window is there"},
    {KVF_POLICY_SHARED, nothing_to_bind, admit_new, "what fits can be made room for"},
    {KVF_POLICY_SHARED, slot_taken, admit_cached, "the slot of a cached window is free"},
    {KVF_POLICY_SHARED, slot_not_held, release, "a window's slot is given back once"},
    {KVF_POLICY_SHARED, states_all_free, release, "state is taken and given back once"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* Calls that are refused with this text, of all sixteen that take a pool. */
static int refused_with(const char *text) {
    int32_t tokens[8] = {0}, id = 0;
    uint32_t n;
    kvf_admission a;
    kvf_fork fork;
    kvf_snapshot snapshots[8];
    kvf_range ranges[8];
    kvf_sequence_info info;
    kvf_pool_stats stats;
    kvf_batch *batch;
    kvf_error e[16];
    kvf_sequence s = live->handle;
    memset(e, 0, sizeof e);
    kvf_status got[] = {
        kvf_sequence_admit(m.pool, tokens, 8, 8, &a, &e[0]),
        kvf_sequence_chunk(m.pool, s, 1, &n, &e[1]),
        kvf_sequence_prepare(m.pool, s, 1, &e[2]),
        kvf_sequence_snapshots(m.pool, s, snapshots, 8, &n, &e[3]),
        kvf_sequence_commit(m.pool, s, 1, tokens, 1, &e[4]),
        kvf_sequence_truncate(m.pool, s, 60, &e[5]),
        kvf_sequence_fork(m.pool, s, &fork, &e[6]),
        kvf_sequence_preempt(m.pool, s, &e[7]),
        kvf_sequence_release(m.pool, s, &e[8]),
        kvf_sequence_get_info(m.pool, s, &info, &e[9]),
        kvf_sequence_ranges(m.pool, s, ranges, 8, &n, &e[10]),
        kvf_pool_ranges(m.pool, KVF_COPY_BLOCK, &id, 1, ranges, 8, &n, &e[11]),
        kvf_batch_create(m.pool, &m.b, &batch, &e[12]),
        kvf_batch_fill(m.batch, &s, 1, &e[13]),
        kvf_pool_get_stats(m.pool, &stats, &e[14]),
        kvf_pool_check(m.pool, &e[15]),
    };
    int refused = 0;
    for (int i = 0; i < 16; i++)
        refused += got[i] == KVF_ERROR_STATE && strstr(e[i].text, text) != NULL;
    return refused;
}

int main(void) {
    tap_plan(2 * CASES + 3);
    open_pool(KVF_POLICY_ELASTIC);
    pool_enter(m.pool, NULL); /* as if another thread were inside */
    is(refused_with("two threads"), 16, "every call of a second thread is refused");
    pool_leave(m.pool, KVF_OK, NULL);
    is(kvf_pool_check(m.pool, NULL), KVF_OK, "and the pool is whole");
    model_close(&m);
    for (int i = 0; i < CASES; i++) {
        static const char *policies[] = {"elastic", "static", "shared"};
        const struct damage *d = &cases[i];
        open_pool(d->policy);
        if (i == 0) is(kvf_pool_check(m.pool, NULL), KVF_OK, "an undamaged pool");
        memset(&error, 0, sizeof error);
        d->harm();
        kvf_status status = d->call();
        ok(status == KVF_ERROR_STATE && strstr(error.text, d->invariant), "%s: %s",
           policies[d->policy], error.text);
        is(refused_with(d->invariant), 16, "no later call goes on");
        model_close(&m);
    }
    return tap_done();
}
