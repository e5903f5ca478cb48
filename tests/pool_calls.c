/*
 * The public calls: bad input is a status and a message and leaves the pool whole; creation
 * survives a failing allocator; tables have the shapes kernels read; plans agree with what a pool
 * takes; a bundle's geometry is the one its types give.
 */
#include <pthread.h>

#include "pool_model.h"

/* ---- a calloc and a malloc that fail when told to ---- */

static long allocations_left = -1;

/* A sanitizer's own allocator cannot be replaced. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_ALLOCATOR 0
#endif
#endif
#ifndef OWN_ALLOCATOR
#define OWN_ALLOCATOR 1
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_malloc(size_t size);

static bool refuse(void) {
    if (allocations_left < 0) return false;
    allocations_left--;
    return allocations_left < 0;
}

void *calloc(size_t count, size_t size) {
    return refuse() ? NULL : __libc_calloc(count, size);
}

void *malloc(size_t size) {
    return refuse() ? NULL : __libc_malloc(size);
}
#endif

/* ---- shapes ---- */

static void small(struct pool_geometry *g) {
    *g = (struct pool_geometry){
        .block = 8, .window = 8, .drafts = 1, .max_positions = 480, .checkpoint = 16, .types = 3};
    g->type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 2, .layers = 2, .planes = 1};
    g->type[1] = (struct pool_type){.name = "hca", .ratio = 8, .k = 1, .layers = 2, .planes = 1};
    g->type[2] = (struct pool_type){.name = "swa", .ratio = 0, .k = 0, .layers = 1, .planes = 1};
    for (int i = 0; i < 3; i++) {
        g->type[i].plane_row_bytes[0] = 64;
        g->type[i].window_page_bytes = UINT64_C(512);
        g->type[i].block_page_bytes = g->type[i].k * UINT64_C(64);
    }
    g->type[0].state_bytes = 640;
    g->type[0].snapshot_bytes = 128;
    g->type[0].index_page_bytes = 64;
    kvf_error error;
    if (pool_geometry_derive(g, 32, &error)) {
        printf("Bail out! %s\n", error.text);
        exit(1);
    }
}

/* ---- creation ---- */

static void refuses(const char *what, const struct pool_geometry *g, const kvf_pool_options *o,
                    kvf_status status, const char *text) {
    kvf_pool *pool = NULL;
    kvf_error error = {0};
    kvf_status got = pool_create(g, o, &pool, &error);
    ok(got == status && !pool && strstr(error.text, text), "%s: %s", what, error.text);
    if (pool) kvf_pool_destroy(pool);
}

static void bad_creation(void) {
    struct pool_geometry g, none;
    small(&g);
    kvf_pool_options good = {.bytes = 1 << 20, .max_requests = 4}, o = good;
    refuses("no options", &g, NULL, KVF_ERROR_ARGUMENT, "null");
    o.max_requests = 0;
    refuses("no requests", &g, &o, KVF_ERROR_ARGUMENT, "max_requests is 0");
    o.max_requests = UINT32_MAX;
    refuses("too many requests", &g, &o, KVF_ERROR_ARGUMENT, "max_requests is 4294967295");
    o = good;
    o.max_tokens = 481;
    refuses("more tokens than positions", &g, &o, KVF_ERROR_LIMIT, "max_tokens is 481");
    o = good;
    o.policy = (kvf_policy)7;
    refuses("an unknown policy", &g, &o, KVF_ERROR_ARGUMENT, "no such policy: 7");
    o = good;
    o.trailing = true;
    refuses("an option of another policy", &g, &o, KVF_ERROR_ARGUMENT, "trailing");
    for (int policy = 0; policy < 3; policy++) {
        o = (kvf_pool_options){.policy = (kvf_policy)policy, .bytes = 1000, .max_requests = 4};
        refuses("a budget below one request", &g, &o, KVF_ERROR_LIMIT, "budget");
        o.bytes = UINT64_MAX;
        refuses("a budget beyond 32-bit ids", &g, &o, KVF_ERROR_LIMIT, "32 bits");
        o.bytes = 0;
        refuses("no budget and no counts", &g, &o, KVF_ERROR_LIMIT, "budget");
        o.chunks = o.windows = o.blocks = UINT32_MAX;
        refuses("counts beyond 32-bit ids", &g, &o, KVF_ERROR_LIMIT, "32 bits");
        o.chunks = o.windows = o.blocks = 1 << 28;
        refuses("counts beyond 32-bit row numbers", &g, &o, KVF_ERROR_LIMIT, "32 bits");
        o.chunks = o.windows = o.blocks = 2;
        if (policy != KVF_POLICY_ELASTIC) o.blocks = 0;
        refuses("counts below one request", &g, &o, KVF_ERROR_LIMIT, "budget");
    }
    o = (kvf_pool_options){.policy = KVF_POLICY_SHARED,
                           .max_requests = 4,
                           .windows = 8,
                           .blocks = 8,
                           .lent_blocks = UINT32_MAX};
    refuses("more lent blocks than ids", &g, &o, KVF_ERROR_LIMIT, "32 bits");
    o = good;
    kvf_plan plan;
    kvf_error e = {0};
    ok(pool_plan(&g, &o, 0, &plan, &e) == KVF_ERROR_ARGUMENT && strstr(e.text, "context of 0"),
       "a plan for no tokens: %s", e.text);
    ok(pool_plan(&g, &o, 481, &plan, &e) == KVF_ERROR_ARGUMENT && strstr(e.text, "context of 481"),
       "a plan for more tokens than positions: %s", e.text);
    none = g;
    none.type[0].ratio = none.type[1].ratio = none.type[0].k = none.type[1].k = 0;
    refuses("no compressed layers", &none, &good, KVF_ERROR_LIMIT, "no compressed layers");
    g.type[0].footers = true;
    o = good;
    o.policy = KVF_POLICY_SHARED;
    refuses("shared with footers", &g, &o, KVF_ERROR_ARGUMENT, "footers");
    is(kvf_pool_create(NULL, &good, NULL, NULL), KVF_ERROR_ARGUMENT, "no bundle");
}

/* Every allocation of a creation fails once. */
static void failing_allocator(void) {
    struct pool_geometry g;
    small(&g);
    if (!OWN_ALLOCATOR) {
        tap_skip(6, "a sanitizer's allocator does not fail");
        return;
    }
    for (int policy = 0; policy < 3; policy++) {
        kvf_pool_options o = {.policy = (kvf_policy)policy,
                              .max_requests = 2,
                              .chunks = 20,
                              .windows = 8,
                              .blocks = 30};
        kvf_pool *pool = NULL;
        kvf_status status = KVF_ERROR_MEMORY;
        long failed = 0;
        for (; failed < 200 && status == KVF_ERROR_MEMORY && !pool; failed++) {
            kvf_error error;
            allocations_left = failed;
            status = pool_create(&g, &o, &pool, &error);
            allocations_left = -1;
        }
        ok(status == KVF_OK && pool && failed > 10,
           "policy %d: %ld failing allocations, each a status", policy, failed - 1);
        uint64_t before = 0;
        kvf_admission a;
        int32_t tokens[40] = {0};
        allocations_left = 0; /* from here on nothing may allocate */
        status = kvf_sequence_admit(pool, tokens, 40, 40, &a, NULL);
        uint32_t take = 0;
        if (!status) status = kvf_sequence_chunk(pool, a.sequence, 40, &take, NULL);
        if (!status) status = kvf_sequence_prepare(pool, a.sequence, take, NULL);
        if (!status) status = kvf_sequence_commit(pool, a.sequence, take, NULL, 0, NULL);
        if (!status) status = kvf_sequence_release(pool, a.sequence, NULL);
        if (!status) status = kvf_pool_check(pool, NULL);
        ok(status == KVF_OK && allocations_left == 0, "policy %d: after creation nothing allocates",
           policy);
        allocations_left = -1;
        (void)before;
        kvf_pool_destroy(pool);
    }
}

/* ---- calls ---- */

static kvf_pool *said_by; /* the pool that refuses, if there is one: it must stay whole */

static void says(kvf_status got, kvf_status want, const kvf_error *error, const char *text,
                 const char *what) {
    bool whole = !said_by || kvf_pool_check(said_by, NULL) == KVF_OK;
    ok(got == want && strstr(error->text, text) && whole, "%s: %s", what, error->text);
}

static void bad_calls(void) {
    struct pool_geometry g;
    kvf_pool_options o = {.max_requests = 2, .chunks = 24, .max_tokens = 200, .no_promise = true};
    kvf_pool *pool;
    kvf_error e;
    kvf_admission a, b, c;
    int32_t tokens[240] = {0};
    uint32_t n;
    kvf_fork fork;
    small(&g);
    if (pool_create(&g, &o, &pool, &e)) exit(1);
    said_by = pool;
    says(kvf_sequence_admit(pool, tokens, 5, 5, NULL, &e), KVF_ERROR_ARGUMENT, &e, "nowhere",
         "admit to nowhere");
    says(kvf_sequence_admit(pool, tokens, UINT32_MAX, 5, &a, &e), KVF_ERROR_LIMIT, &e,
         "longest sequence is 200", "four billion tokens");
    says(kvf_sequence_admit(pool, NULL, 5, 5, &a, &e), KVF_ERROR_ARGUMENT, &e, "no tokens",
         "admit null");
    says(kvf_sequence_admit(pool, tokens, 0, 5, &a, &e), KVF_ERROR_ARGUMENT, &e, "no tokens",
         "admit none");
    says(kvf_sequence_admit(pool, tokens, 5, 0, &a, &e), KVF_ERROR_ARGUMENT, &e, "no chunk",
         "no chunk");
    says(kvf_sequence_admit(pool, tokens, 201, 5, &a, &e), KVF_ERROR_LIMIT, &e,
         "longest sequence is 200", "too long");
    is(kvf_sequence_admit(pool, tokens, 30, 30, &a, &e), KVF_OK, "a request");
    is(kvf_sequence_admit(pool, tokens, 30, 30, &b, &e), KVF_OK,
       "the same tokens again: another request");
    says(kvf_sequence_admit(pool, tokens, 30, 30, &c, &e), KVF_ERROR_SHORT, &e, "1 request slot",
         "no slot left");
    says(kvf_sequence_commit(pool, a.sequence, 1, NULL, 0, &e), KVF_ERROR_STATE, &e,
         "only 0 are prepared", "commit without prepare");
    says(kvf_sequence_prepare(pool, a.sequence, 0, &e), KVF_ERROR_ARGUMENT, &e, "zero tokens",
         "prepare 0");
    says(kvf_sequence_prepare(pool, a.sequence, 201, &e), KVF_ERROR_LIMIT, &e,
         "longest sequence is 200", "prepare beyond the longest sequence");
    says(kvf_sequence_prepare(pool, a.sequence, UINT32_MAX, &e), KVF_ERROR_LIMIT, &e,
         "longest sequence is 200", "prepare four billion tokens");
    says(kvf_sequence_chunk(pool, a.sequence, 30, NULL, &e), KVF_ERROR_ARGUMENT, &e, "out is null",
         "a chunk's length to nowhere");
    says(kvf_sequence_prepare(pool, a.sequence, 32, &e), KVF_ERROR_ARGUMENT, &e,
         "only 30 are known", "prepare beyond what is known and drafts");
    says(kvf_sequence_prepare(pool, a.sequence, 30, &e), KVF_ERROR_ARGUMENT, &e, "checkpoint at 16",
         "a chunk over a checkpoint");
    is(kvf_sequence_chunk(pool, a.sequence, 30, &n, &e), KVF_OK, "how long may it be?");
    is(n, 16, "16");
    is(kvf_sequence_prepare(pool, a.sequence, 16, &e), KVF_OK, "prepare 16");
    says(kvf_sequence_commit(pool, a.sequence, 17, NULL, 0, &e), KVF_ERROR_STATE, &e,
         "only 16 are prepared", "commit beyond prepare");
    says(kvf_sequence_commit(pool, a.sequence, 7, NULL, 0, &e), KVF_ERROR_ARGUMENT, &e,
         "committed whole", "commit a part of a chunk");
    says(kvf_sequence_commit(pool, a.sequence, 16, tokens, 3, &e), KVF_ERROR_ARGUMENT, &e,
         "run more than 2 ahead", "ids beyond what drafts allow");
    says(kvf_sequence_commit(pool, a.sequence, 16, tokens, UINT32_MAX, &e), KVF_ERROR_ARGUMENT, &e,
         "2 ahead", "four billion ids");
    says(kvf_sequence_commit(pool, b.sequence, UINT32_MAX, NULL, 0, &e), KVF_ERROR_STATE, &e,
         "only 0 are prepared", "commit four billion tokens");
    says(kvf_sequence_snapshots(pool, a.sequence, NULL, 0, NULL, &e), KVF_ERROR_ARGUMENT, &e,
         "count is null", "snapshots to nowhere");
    says(kvf_sequence_snapshots(pool, a.sequence, NULL, 0, &n, &e), KVF_ERROR_LIMIT, &e,
         "room for 0", "no room for the snapshots");
    says(kvf_sequence_truncate(pool, a.sequence, 17, &e), KVF_ERROR_ARGUMENT, &e, "17 tokens of 16",
         "truncate to more than is prepared");
    says(kvf_sequence_truncate(pool, a.sequence, 7, &e), KVF_ERROR_ARGUMENT, &e, "given back whole",
         "truncate a chunk");
    says(kvf_sequence_fork(pool, a.sequence, &fork, &e), KVF_ERROR_STATE, &e,
         "16 tokens are prepared", "fork in the middle of a step");
    is(kvf_sequence_commit(pool, a.sequence, 16, NULL, 0, &e), KVF_OK, "commit 16");
    says(kvf_sequence_truncate(pool, a.sequence, 15, &e), KVF_ERROR_ARGUMENT, &e, "16 are final",
         "truncate into the prompt");
    says(kvf_sequence_fork(pool, a.sequence, NULL, &e), KVF_ERROR_ARGUMENT, &e, "nowhere",
         "fork to nowhere");
    says(kvf_sequence_fork(pool, a.sequence, &fork, &e), KVF_ERROR_SHORT, &e, "1 request slot",
         "fork without a slot");
    is(kvf_sequence_release(pool, a.sequence, &e), KVF_OK, "release");
    says(kvf_sequence_release(pool, a.sequence, &e), KVF_ERROR_STATE, &e, "released already",
         "twice");
    says(kvf_sequence_preempt(pool, a.sequence, &e), KVF_ERROR_STATE, &e, "released already",
         "preempt after the release");
    is(kvf_sequence_admit(pool, tokens, 30, UINT32_MAX, &c, &e), KVF_OK,
       "its slot again, resumed, with chunks of any length");
    ok(c.slot == a.slot && c.hit == 16 && !kvf_sequence_prepare(pool, c.sequence, 14, &e),
       "the first chunk is there");
    says(kvf_sequence_commit(pool, a.sequence, 14, NULL, 0, &e), KVF_ERROR_STATE, &e,
         "no such sequence", "the old handle does not reach the new request");
    is(kvf_sequence_preempt(pool, c.sequence, &e), KVF_OK, "preempt");
    says(kvf_sequence_preempt(pool, c.sequence, &e), KVF_ERROR_STATE, &e, "released already",
         "twice");
    says(kvf_sequence_fork(pool, c.sequence, &fork, &e), KVF_ERROR_STATE, &e, "no such sequence",
         "fork what has ended");
    says(kvf_sequence_get_info(pool, b.sequence, NULL, &e), KVF_ERROR_ARGUMENT, &e, "out is null",
         "info to nowhere");
    says(kvf_sequence_ranges(pool, b.sequence, NULL, 0, &n, &e), KVF_ERROR_LIMIT, &e, "room for 0",
         "no room for the ranges");
    says(kvf_pool_ranges(pool, (kvf_copy_kind)9, NULL, 0, NULL, 0, &n, &e), KVF_ERROR_ARGUMENT, &e,
         "unknown kind", "ranges of an unknown kind");
    says(kvf_sequence_prepare(pool, a.sequence, 1, &e), KVF_ERROR_STATE, &e, "no such sequence",
         "prepare after the release");
    says(kvf_sequence_release(pool, 0, &e), KVF_ERROR_STATE, &e, "no such sequence", "handle 0");
    says(kvf_sequence_release(pool, UINT64_MAX, &e), KVF_ERROR_STATE, &e, "no such sequence",
         "a wild handle");
    is(kvf_sequence_release(NULL, b.sequence, &e), KVF_ERROR_ARGUMENT, "no pool");
    int32_t id = 99999;
    says(kvf_pool_ranges(pool, KVF_COPY_BLOCK, &id, 1, NULL, 0, &n, &e), KVF_ERROR_ARGUMENT, &e,
         "beyond", "ranges of an id beyond");
    is(kvf_pool_get_stats(pool, NULL, &e), KVF_ERROR_ARGUMENT, "stats to nowhere");
    is(kvf_pool_check(pool, &e), KVF_OK, "after all that every invariant holds");
    said_by = NULL;
    kvf_pool_destroy(pool);
}

/* A shape whose forks would need more copies than kvf_fork holds. */
static void many_parts(void) {
    struct pool_geometry g = {.block = 4,
                              .window = 4,
                              .drafts = 31,
                              .max_positions = 400,
                              .checkpoint = 4,
                              .types = 1,
                              .per_chunk = 8,
                              .envelope_bytes = 8,
                              .chunk_bytes = 64,
                              .state_envelopes = 60,
                              .snapshot_envelopes = 8,
                              .window_bytes = 60,
                              .block_bytes = 4,
                              .state_bytes = 400,
                              .snapshot_bytes = 64};
    g.type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 1, .layers = 1, .planes = 1};
    kvf_pool_options o = {.max_requests = 2, .chunks = 200, .blocks = 200};
    kvf_pool *pool;
    kvf_admission a;
    kvf_fork fork;
    kvf_error e = {0};
    int32_t tokens[4] = {0}, id = 1;
    if (pool_create(&g, &o, &pool, &e)) exit(1);
    said_by = pool;
    kvf_status status = kvf_sequence_admit(pool, tokens, 1, 4, &a, &e);
    for (int i = 0; i < 36 && !status; i++) {
        status = kvf_sequence_prepare(pool, a.sequence, 1, &e);
        if (!status) status = kvf_sequence_commit(pool, a.sequence, 1, &id, 1, &e);
    }
    is(status, KVF_OK, "a request of 37 tokens, 31 of which may be drafts");
    says(kvf_sequence_fork(pool, a.sequence, &fork, &e), KVF_ERROR_LIMIT, &e, "at most 136",
         "a fork of too many copies");
    said_by = NULL;
    kvf_pool_destroy(pool);
    for (int policy = 0; policy < 2; policy++) {
        g.snapshot_envelopes = 9;
        o.policy = (kvf_policy)policy;
        refuses("a snapshot of too many parts", &g, &o, KVF_ERROR_LIMIT, "9 envelopes of at most");
    }
}

/* A request that can never be served is told so, and one that can is served alone. */
static void never(void) {
    struct pool_geometry g;
    kvf_pool_options o = {.max_requests = 2, .chunks = 12};
    kvf_pool *pool;
    kvf_error e;
    kvf_admission a;
    static int32_t tokens[480];
    uint32_t longest = 0;
    small(&g);
    if (pool_create(&g, &o, &pool, &e)) exit(1);
    says(kvf_sequence_admit(pool, tokens, 480, 16, &a, &e), KVF_ERROR_LIMIT, &e, "never fit",
         "480 tokens");
    bool whole = true;
    for (uint32_t count = 8; count < 480 && whole; count++) {
        for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)(count * 1000 + i);
        if (kvf_sequence_admit(pool, tokens, count, 16, &a, &e)) continue;
        for (uint32_t at = 0, n; at < count && whole; at += n)
            whole = !kvf_sequence_chunk(pool, a.sequence, 16, &n, &e) &&
                    !kvf_sequence_prepare(pool, a.sequence, n ? n : 1, &e) &&
                    !kvf_sequence_commit(pool, a.sequence, n, NULL, 0, &e);
        kvf_sequence_release(pool, a.sequence, NULL);
        longest = count;
    }
    ok(whole && longest > 100,
       "every request that was admitted alone was computed; the longest had %u tokens%s", longest,
       whole ? "" : e.text);
    kvf_pool_destroy(pool);
}

/* ---- tables ---- */

static void tables(void) {
    struct pool_geometry g;
    kvf_pool_options o = {.policy = KVF_POLICY_SHARED,
                          .max_requests = 4,
                          .windows = 20,
                          .blocks = 80,
                          .max_tokens = 160,
                          .no_promise = true};
    kvf_pool *pool;
    kvf_batch *batch;
    kvf_admission a[3];
    kvf_error e;
    int32_t tokens[40], batch_id[32], position[32], cu[5], slot[4], from[4];
    int32_t csa[4 * 20], hca[4 * 20], index[4 * 20], window[4 * 20];
    small(&g);
    if (pool_create(&g, &o, &pool, &e)) exit(1);
    kvf_batch_buffers b = {.max_tokens = 32,
                           .max_requests = 4,
                           .max_blocks = 20,
                           .state_parts = 1,
                           .batch_id = batch_id,
                           .position = position,
                           .cu_tokens = cu,
                           .state_slot = slot,
                           .write_from = from,
                           .block_table = {csa, hca},
                           .index_table = index,
                           .window_table = window};
    kvf_batch_buffers narrow = b;
    narrow.max_blocks = 19;
    says(kvf_batch_create(pool, &narrow, &batch, &e), KVF_ERROR_ARGUMENT, &e, "needs 20",
         "too few columns");
    narrow = b;
    narrow.block_table[1] = NULL;
    says(kvf_batch_create(pool, &narrow, &batch, &e), KVF_ERROR_ARGUMENT, &e, "missing",
         "a table is missing");
    is(kvf_batch_create(pool, &b, &batch, &e), KVF_OK, "a batch");
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 40; i++) tokens[i] = r * 100 + i;
        kvf_sequence_admit(pool, tokens, 20, 8, &a[r], NULL);
    }
    kvf_sequence s[] = {a[1].sequence, a[0].sequence, a[1].sequence};
    says(kvf_batch_fill(batch, s, 1, &e), KVF_ERROR_STATE, &e, "nothing prepared",
         "nothing prepared");
    kvf_sequence_prepare(pool, a[0].sequence, 8, NULL);
    kvf_sequence_prepare(pool, a[1].sequence, 5, NULL);
    says(kvf_batch_fill(batch, s, 3, &e), KVF_ERROR_ARGUMENT, &e, "stands there twice",
         "a sequence twice");
    is(kvf_batch_fill(batch, s, 2, &e), KVF_OK, "a step of two");
    const int32_t want_id[] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, -1};
    const int32_t want_position[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, -1};
    same(batch_id, want_id, sizeof want_id, "batch_id, and -1 behind");
    same(position, want_position, sizeof want_position, "position, and -1 behind");
    same(cu, ((int32_t[]){0, 5, 13, 13, 13}), sizeof cu, "cu_tokens, padded with the total");
    ok(slot[0] != slot[1] && slot[0] >= 0 && slot[1] >= 0 && slot[2] == -1 && slot[3] == -1,
       "state slots, and -1 behind");
    const struct pool_sequence *first = pool_sequence_get(pool, a[1].sequence, NULL);
    bool good = true;
    for (int i = 0; i < 20; i++) {
        int32_t id = i < 3 ? first->block_table[i] : -1;
        good = good && index[i] == id && csa[i] == (id < 0 ? -1 : pool->shared->bound[0][id]) &&
               hca[i] == (id < 0 ? -1 : pool->shared->bound[1][id]) &&
               window[i] == (i == 0 ? first->window_table[0] : -1);
    }
    ok(good, "physical tables per compressed type, block ids for the index, windows; -1 elsewhere");
    ok(csa[40] == -1 && window[79] == -1, "rows beyond the step are -1");
    kvf_sequence many[5] = {0};
    says(kvf_batch_fill(batch, many, 5, &e), KVF_ERROR_ARGUMENT, &e, "made for 4",
         "too many sequences");
    is(kvf_batch_fill(batch, NULL, 0, &e), KVF_OK, "an empty step");
    ok(batch_id[0] == -1 && cu[4] == 0 && csa[0] == -1 && window[0] == -1 && slot[0] == -1,
       "has the same buffers, all padding");
    kvf_batch_destroy(batch);
    kvf_pool_destroy(pool);
}

/* ---- plans ---- */

/* As many requests of `context` tokens as a policy serves at once, against the plan. */
static void plan_of(const struct pool_geometry *g, kvf_policy policy, uint32_t context) {
    kvf_pool_options o = {.policy = policy,
                          .max_requests = 200,
                          .chunks = 160,
                          .windows = 90,
                          .blocks = 400,
                          .no_promise = true,
                          .prefix_cache_off = true};
    static int32_t tokens[480];
    kvf_pool *pool;
    kvf_plan plan;
    kvf_error e;
    kvf_status status = pool_plan(g, &o, context, &plan, &e);
    if (status || pool_create(g, &o, &pool, &e)) exit(1);
    uint32_t served = 0;
    for (; served < 200; served++) {
        kvf_admission a;
        tokens[0] = (int32_t)served;
        if (kvf_sequence_admit(pool, tokens, context, context, &a, &e)) break;
        uint32_t at = 0, n = 0;
        for (; at < context; at += n)
            if (kvf_sequence_chunk(pool, a.sequence, context - at, &n, &e) || !n ||
                kvf_sequence_prepare(pool, a.sequence, n, &e) ||
                kvf_sequence_commit(pool, a.sequence, n, NULL, 0, &e))
                break;
        if (at < context) break;
    }
    ok(plan.requests > 5 && served >= plan.requests && served <= plan.requests * 5 / 4,
       "policy %d: %u requests of %u tokens planned, %u served at once", policy, plan.requests,
       context, served);
    ok(plan.tokens == plan.requests * (uint64_t)context && plan.longest >= 100 &&
           plan.state_bytes + plan.window_bytes + plan.snapshot_bytes + plan.block_bytes +
                   plan.unused_bytes ==
               plan.bytes,
       "policy %d: the plan's bytes add up", policy);
    kvf_pool_destroy(pool);
}

static void plans(void) {
    struct pool_geometry g;
    small(&g);
    for (int policy = 0; policy < 3; policy++) {
        plan_of(&g, (kvf_policy)policy, 100);
        plan_of(&g, (kvf_policy)policy, 1);
    }
}

/* ---- geometry ---- */

static void geometry(void) {
    struct pool_geometry g;
    pool_geometry_flash(&g);
    ok(g.envelope_bytes == 536832 && g.chunk_bytes == 3220992 && g.per_chunk == 6,
       "the reference shape: envelopes of 536,832 bytes, six a chunk");
    ok(g.window_bytes == 3219840 && g.snapshot_bytes == 430080 && g.snapshot_envelopes == 1,
       "a window block of 3,219,840 bytes, a snapshot of 430,080 in one envelope");
    is(pool_geometry_tail_blocks(&g), 1, "one window block to resume");
    small(&g);
    is(g.chunk_bytes, g.per_chunk * g.envelope_bytes, "a chunk is n envelopes");
    ok(g.envelope_bytes % 128 == 0 && g.chunk_bytes >= g.window_bytes &&
           g.envelope_bytes >= g.block_bytes,
       "which hold a block, and a window block");
    g.type[0].state_bytes = 1 << 20;
    is(pool_geometry_derive(&g, 32, NULL), KVF_ERROR_LIMIT,
       "a layer's state larger than a chunk: no arena");
}

/* A spec after `edit` (sed) as a bundle, or null. */
static kvf_bundle *build_bundle(const char *spec, const char *edit, kvf_error *e) {
    char command[1024], dir[] = "/tmp/kvforge-pool-XXXXXX";
    const char *build = getenv("KVF_BUILD") ? getenv("KVF_BUILD") : "build";
    kvf_bundle *bundle = NULL;
    if (!mkdtemp(dir)) exit(1);
    snprintf(command, sizeof command,
             "sed '%s' %s > %s/s.lua && %s/bin/kvforge build %s/s.lua -o %s/b > /dev/null", edit,
             spec, dir, build, dir, dir);
    int built = system(command);
    snprintf(command, sizeof command, "%s/b", dir);
    if (!built) kvf_bundle_open(command, &bundle, e);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command)) exit(1);
    return bundle;
}

/* The bundle of a paged spec against the arithmetic on its own types. */
static void from_bundle(const char *spec, const char *edit, uint32_t page_align) {
    kvf_error e = {0};
    struct pool_geometry g = {0};
    kvf_bundle *bundle = build_bundle(spec, edit, &e);
    kvf_status status = bundle ? pool_geometry_from_bundle(bundle, &g, &e) : KVF_ERROR_IO;
    ok(status == KVF_OK, "%s %s: a geometry %s", spec, edit, e.text);
    struct pool_geometry own = g;
    bool derived = !status && !pool_geometry_derive(&own, page_align, &e);
    ok(derived && own.per_chunk == g.per_chunk && own.envelope_bytes == g.envelope_bytes &&
           own.chunk_bytes == g.chunk_bytes && own.state_chunks == g.state_chunks &&
           own.state_envelopes == g.state_envelopes &&
           own.snapshot_envelopes == g.snapshot_envelopes &&
           own.snapshot_bytes == g.snapshot_bytes && own.state_bytes == g.state_bytes,
       "the manifest's arena is what the arithmetic gives: n %u and %u, envelopes %llu and %llu, "
       "state %u + %u and %u + %u",
       g.per_chunk, own.per_chunk, (unsigned long long)g.envelope_bytes,
       (unsigned long long)own.envelope_bytes, g.state_chunks, g.state_envelopes, own.state_chunks,
       own.state_envelopes);
    kvf_pool_options o = {.bytes = UINT64_C(4) << 30, .max_requests = 8};
    kvf_pool *pool = NULL;
    ok(!status && kvf_pool_create(bundle, &o, &pool, &e) == KVF_OK &&
           kvf_pool_check(pool, &e) == KVF_OK,
       "and a pool of 4 GiB");
    kvf_pool_destroy(pool);
    kvf_bundle_close(bundle);
}

/* Bundles that no pool can serve. */
static void no_pool(const char *what, const char *edit, kvf_status status, const char *text) {
    kvf_error e = {0}, opened = {0};
    kvf_pool_options o = {.bytes = UINT64_C(4) << 30, .max_requests = 8};
    kvf_pool *pool = NULL;
    kvf_plan plan;
    kvf_bundle *bundle = build_bundle("examples/tiny.lua", edit, &opened);
    ok(bundle && kvf_pool_create(bundle, &o, &pool, &e) == status && !pool &&
           strstr(e.text, text) && kvf_pool_plan(bundle, &o, 100, &plan, NULL) == status,
       "%s: %s%s", what, e.text, opened.text);
    kvf_bundle_close(bundle);
}

/* ---- threads ---- */

struct worker {
    kvf_pool *pool;
    int32_t base;
    uint32_t served, refused, wrong;
    pthread_barrier_t *start;
};

/* Call until it is this thread's turn; anything but "two threads" is an answer. */
#define in_turn(call)                                                                              \
    while ((status = (call)) == KVF_ERROR_STATE && strstr(e.text, "two threads")) w->refused++

static void *serve_requests(void *argument) {
    struct worker *w = argument;
    kvf_error e;
    kvf_status status;
    int32_t tokens[24];
    pthread_barrier_wait(w->start);
    for (int32_t round = 0; round < 20000; round++) {
        kvf_admission a;
        for (int32_t i = 0; i < 24; i++) tokens[i] = w->base + round % 3 * 100 + i;
        in_turn(kvf_sequence_admit(w->pool, tokens, 10, 10, &a, &e));
        w->wrong += status != KVF_OK;
        if (status) continue;
        in_turn(kvf_sequence_prepare(w->pool, a.sequence, 10 - a.hit, &e));
        w->wrong += status != KVF_OK;
        in_turn(kvf_sequence_commit(w->pool, a.sequence, 10 - a.hit, NULL, 0, &e));
        w->wrong += status != KVF_OK;
        in_turn(kvf_sequence_release(w->pool, a.sequence, &e));
        w->wrong += status != KVF_OK;
        w->served++;
    }
    return NULL;
}

static void threads(void) {
    struct pool_geometry g;
    kvf_pool_options o = {.max_requests = 4, .chunks = 40};
    kvf_pool *pool;
    kvf_error e;
    pthread_t thread[2];
    small(&g);
    if (pool_create(&g, &o, &pool, &e)) exit(1);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 2);
    struct worker w[2] = {{.pool = pool, .base = 0, .start = &start},
                          {.pool = pool, .base = 1000, .start = &start}};
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, serve_requests, &w[i])) exit(1);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
    ok(w[0].served == 20000 && w[1].served == 20000 && !w[0].wrong && !w[1].wrong &&
           kvf_pool_check(pool, &e) == KVF_OK,
       "two threads that try again until it is their turn: %u and %u calls refused, the pool whole",
       w[0].refused, w[1].refused);
    kvf_pool_destroy(pool);
}

int main(void) {
    tap_plan(139);
    bad_creation();
    failing_allocator();
    bad_calls();
    many_parts();
    never();
    tables();
    plans();
    geometry();
    from_bundle("examples/deepseek-v4-flash.lua", "", 32);
    from_bundle("examples/deepseek-v4-flash.lua", "s/fp8_ds_mla/fp8_two_plane/", 32);
    from_bundle("examples/tiny.lua", "s/fp8_ds_mla/bf16/", 32);
    no_pool("a bundle without compressed layers",
            "s/layers = { \"swa\", \"csa\", \"hca\" }/layers = { \"swa\", \"swa\" }/",
            KVF_ERROR_LIMIT, "no compressed layers");
    no_pool("a bundle with rings", "s/window_mode = \"paged\"/window_mode = \"ring\"/",
            KVF_ERROR_BUNDLE, "needs window_mode");
    threads();
    return tap_done();
}
