/*
 * The policy `shared` against what was recorded of the published pool: its traces id for id, the
 * intents of its ten tests, and what its neighbours test. Where the mended borrow order (own slots
 * before lent ones) gives another id, both are stated.
 *
 * The published pool made one coordinator for two compressed types of ratio 4 and 128; `slots` is
 * its counterpart here.
 */
#include "pool_model.h"

static int evictions, evicted_last;

static void on_evict(void *who, int32_t window) {
    (void)who;
    evictions++;
    evicted_last = window;
}

/* As the published coordinator(num_swa_base, n_csa, n_hca): slots in all per type. */
static void coordinator(struct slots *s, uint32_t windows, uint32_t csa, uint32_t hca) {
    uint32_t ratios[] = {4, 128}, own[] = {csa - windows, hca - windows};
    if (!slots_open(s, windows, ratios, own, 2, false)) exit(1);
    s->evicted = on_evict;
    evictions = 0;
    evicted_last = -1;
}

static bool takes(struct slots *s, uint32_t type, int32_t first, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (slots_take(s, type, true) != first + i) return false;
    return true;
}

static bool takes_windows(struct slots *s, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (slots_take_window(s) != i) return false;
    return true;
}

/* ---- traces ---- */

static void coordinator_trace(void) {
    struct slots s;
    coordinator(&s, 4, 8, 5);
    ok(takes_windows(&s, 4), "four windows are 0 to 3");
    ok(takes(&s, 0, 16, 6), "six csa blocks are 16 to 21");
    ok(takes(&s, 1, 512, 3), "three hca blocks are 512 to 514");
    slots_give_window(&s, 2, true);
    slots_give_window(&s, 0, true);
    is(s.free.length, 2, "after windows 2 and 0 are given back, two are free");
    is(slots_free(&s, 0), 18, "csa has room for 18");
    is(slots_free(&s, 1), 381, "hca has room for 381");
    ok(takes(&s, 0, 22, 10), "csa goes on at 22 to 31");
    ok(takes(&s, 0, 8, 4), "then 8 to 11, in the slot of window 2");
    ok(evictions == 1 && evicted_last == 2, "window 2 was evicted, once");
    ok(s.free.length == 1 && s.free.head == 0, "window 0 is the free one");
    is(slots_take_window(&s), 0, "and the next window");
    is(slots_check(&s) != NULL, 0, "every invariant holds");
    slots_close(&s);
}

static void borrow_trace(void) {
    struct slots s;
    coordinator(&s, 3, 5, 5);
    takes_windows(&s, 3);
    slots_give_window(&s, 1, true);
    /* Published: 4 (slot 1), evicting window 1, with two own slots free. Mended: own slot 3. */
    is(slots_take(&s, 0, true), 12, "a free own slot (block 12) goes before a lent one (block 4)");
    is(evictions, 0, "so no window is evicted");
    takes(&s, 0, 13, 7);
    is(slots_take(&s, 0, true), 4, "with no own slot left, block 4 in the slot of window 1");
    ok(evictions == 1 && evicted_last == 1, "which evicts window 1");
    slots_close(&s);
}

/* Ratios 4 and 128 in blocks of 128; no snapshots, as the published pool had none. */
static void flash_like(struct pool_geometry *g) {
    *g = (struct pool_geometry){.block = 128,
                                .window = 128,
                                .max_positions = 4096,
                                .checkpoint = 512,
                                .types = 3,
                                .window_bytes = 1,
                                .block_bytes = 1,
                                .state_bytes = 1};
    g->type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 32, .layers = 1, .planes = 1};
    g->type[1] = (struct pool_type){.name = "hca", .ratio = 128, .k = 1, .layers = 1, .planes = 1};
    g->type[2] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
}

static bool table_is(const int32_t *table, uint32_t count, int32_t first) {
    for (uint32_t i = 0; i < count; i++)
        if (table[i] != first + (int32_t)i) return false;
    return true;
}

static bool queue_is(const struct pool_list *list, const int32_t *ids, uint32_t count, bool head) {
    int32_t at = list->head;
    for (uint32_t skip = head ? 0 : list->length - count; skip > 0; skip--)
        at = pool_list_next(list, at);
    for (uint32_t i = 0; i < count; i++, at = pool_list_next(list, at))
        if (at != ids[i]) return false;
    return true;
}

static void manager_trace(void) {
    struct pool_geometry g;
    kvf_pool_options o = {.policy = KVF_POLICY_SHARED,
                          .max_requests = 4,
                          .windows = 8,
                          .blocks = 64,
                          .trailing = true,
                          .no_promise = true};
    int32_t tokens[1330];
    kvf_pool *pool;
    kvf_admission a;
    flash_like(&g);
    for (int32_t i = 0; i < 1330; i++) tokens[i] = i;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    kvf_sequence_admit(pool, tokens, 1330, 1330, &a, NULL);
    is(a.hit, 0, "a cold prompt of 1330 tokens hits nothing");
    kvf_sequence_prepare(pool, a.sequence, 1330, NULL);
    struct pool_sequence *s = pool_sequence_get(pool, a.sequence, NULL);
    const struct pool_shared *sh = pool->shared;
    ok(table_is(s->block_table, 11, 0), "its blocks are 0 to 10");
    bool bound = true;
    for (int32_t i = 0; i < 11; i++)
        bound = bound && sh->bound[0][i] == 32 + i && sh->bound[1][i] == 1024 + i;
    ok(bound, "csa 32 to 42, hca 1024 to 1034");
    bool windows = s->window_table[9] == 0 && s->window_table[10] == 1;
    for (int i = 0; i < 9; i++) windows = windows && s->window_table[i] == -1;
    ok(windows, "windows are -1 nine times, then 0 and 1");
    kvf_sequence_commit(pool, a.sequence, 1330, NULL, 0, NULL);
    kvf_sequence_release(pool, a.sequence, NULL);
    ok(queue_is(&sh->free, (int32_t[]){11, 12, 13}, 3, true), "free blocks begin 11, 12, 13");
    ok(queue_is(&sh->free, (int32_t[]){63, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, 12, false),
       "and end 63, 10, 9, ..., 0");
    ok(queue_is(&sh->slots.free, (int32_t[]){2, 3, 4, 5, 6, 7, 1, 0}, 8, true),
       "free windows are 2 to 7, 1, 0");
    ok(queue_is(&sh->slots.lendable, (int32_t[]){1, 0}, 2, true), "released ones are 1 and 0");

    kvf_sequence_admit(pool, tokens, 1330, 1330, &a, NULL);
    is(a.hit, 1280, "the same prompt again: 1280 tokens are cached");
    kvf_sequence_prepare(pool, a.sequence, 50, NULL);
    s = pool_sequence_get(pool, a.sequence, NULL);
    ok(table_is(s->block_table, 10, 0) && s->block_table[10] == 11, "blocks 0 to 9, then 11");
    ok(s->window_table[8] == -1 && s->window_table[9] == 0 && s->window_table[10] == 2,
       "windows -1 nine times, then 0 and 2");
    bound = sh->bound[0][11] == 43 && sh->bound[1][11] == 1035;
    for (int32_t i = 0; i < 10; i++)
        bound = bound && sh->bound[0][i] == 32 + i && sh->bound[1][i] == 1024 + i;
    ok(bound, "csa 32 to 41, then 43; hca 1024 to 1033, then 1035");
    is(slots_free(&sh->slots, 0), 56, "csa has room for 56");
    is(kvf_pool_check(pool, NULL), KVF_OK, "every invariant holds");
    kvf_pool_destroy(pool);
}

/* ---- the ten published tests, by intent ---- */

static void ten(void) {
    struct slots s;
    uint32_t none[1] = {0}, ratio[1] = {4}, own[1] = {2};
    slots_open(&s, 4, none, none, 0, false);
    ok(slots_take_window(&s) == 0 && slots_take_window(&s) == 1 && slots_give_window(&s, 0, true) &&
           slots_claim_window(&s, 0) && !slots_claim_window(&s, 0),
       "1 windows only: in order, given back, claimed once");
    slots_close(&s);
    slots_open(&s, 0, none, none, 0, false);
    ok(slots_missing(&s, 0, 1000000) == 0 && !slots_check(&s),
       "1 a model without compressed types is never short of blocks");
    slots_close(&s);

    slots_open(&s, 0, ratio, own, 1, false);
    ok(slots_missing(&s, 0, 8) == 0 && slots_missing(&s, 0, 9) > 0, "2 eight blocks fit, nine not");
    ok(slots_free(&s, 0) == 8 && takes(&s, 0, 0, 8) && slots_take(&s, 0, true) == -1,
       "2 two slots hold exactly the blocks 0 to 7");
    ok(slots_give(&s, 0, 2) && slots_free(&s, 0) == 1 && slots_take(&s, 0, true) == 2,
       "2 one freed block does not free its slot, and is taken again");
    for (int32_t i = 0; i < 4; i++) slots_give(&s, 0, i);
    is(s.type[0].own_free.length, 1, "2 all four free the slot");
    slots_close(&s);

    coordinator(&s, 3, 3, 3);
    takes_windows(&s, 3);
    slots_give_window(&s, 1, true);
    ok(takes(&s, 0, 4, 4) && slots_take_window(&s) == -1,
       "3 what a window gave back, compress takes");
    for (int32_t i = 4; i < 8; i++) slots_give(&s, 0, i);
    is(slots_take_window(&s), 1, "3 and a window can have it again");
    slots_close(&s);

    coordinator(&s, 4, 8, 5);
    takes_windows(&s, 4);
    is(slots_free(&s, 0), 16, "4 sixteen csa blocks fit");
    slots_give_window(&s, 1, true);
    is(slots_free(&s, 0), 20, "4 and four more after a window is given back");
    ok(takes(&s, 0, 16, 16) && takes(&s, 0, 4, 4), "4 those are 4 to 7");
    ok(!s.free.length && slots_take_window(&s) == -1, "5 a lent slot cannot be a window");
    ok(!slots_window_free(&s, 1) && evictions == 1 && evicted_last == 1,
       "7 its cached window was evicted, exactly once");
    is(s.free.length, 0, "9 windows count as short while it is lent");
    for (int32_t i = 4; i < 8; i++) slots_give(&s, 0, i);
    is(s.free.length, 1, "9 and as there when all four blocks are back");
    is(slots_take_window(&s), 1, "6 9 and it is that slot");
    slots_close(&s);

    coordinator(&s, 3, 4, 4);
    takes_windows(&s, 3);
    slots_give_window(&s, 1, true);
    ok(slots_claim_window(&s, 1) && takes(&s, 0, 12, 4) && slots_take(&s, 0, true) == -1 &&
           evictions == 0,
       "8 a hit before the loan keeps the slot: csa gets 12 to 15 only");
    slots_close(&s);

    ok(16 + slots_own(64, 4) == 32 && 16 + slots_own(64, 128) == 17 && slots_own(0, 4) == 0 &&
           4 + slots_own(1, 4) == 5 && 4 + slots_own(1, 128) == 5,
       "10 sizes: (16,64) is 32 and 17 slots, (0,0) none, (4,1) five each");
}

/* ---- neighbours ---- */

static kvf_status serve(kvf_pool *pool, const int32_t *tokens, uint32_t count, kvf_admission *a) {
    kvf_status status = kvf_sequence_admit(pool, tokens, count, count, a, NULL);
    if (!status) status = kvf_sequence_prepare(pool, a->sequence, count - a->hit, NULL);
    if (!status) status = kvf_sequence_commit(pool, a->sequence, count - a->hit, NULL, 0, NULL);
    return status;
}

static void neighbours(void) {
    struct pool_geometry g;
    kvf_pool_options o = {
        .policy = KVF_POLICY_SHARED, .max_requests = 4, .windows = 20, .blocks = 24};
    int32_t tokens[4096];
    kvf_pool *pool;
    kvf_admission a, b;
    flash_like(&g);
    for (int32_t i = 0; i < 4096; i++) tokens[i] = i * 7;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    uint64_t first = pool_hash(true, 0, tokens, 128),
             chained = pool_hash(false, first, tokens, 128);
    ok(first == pool_hash(true, 0, tokens, 128) && first != chained,
       "a block's hash is the same each time and depends on what is before it");
    serve(pool, tokens, 1024, &a);
    is(a.hit, 0, "nothing is cached at first");
    serve(pool, tokens, 1024, &b);
    is(b.hit, 512, "the last block is computed again: the hit is the checkpoint before it");
    kvf_sequence_release(pool, a.sequence, NULL);
    is(pool->blocks[0].refs, 1, "a shared block keeps the other's reference");
    kvf_sequence_release(pool, b.sequence, NULL);
    is(kvf_sequence_release(pool, b.sequence, NULL), KVF_ERROR_STATE, "and is not released twice");
    serve(pool, tokens, 1025, &a);
    is(a.hit, 1024, "a longer prompt takes all eight blocks");
    kvf_sequence_preempt(pool, a.sequence, NULL);
    serve(pool, tokens, 1025, &a);
    is(a.hit, 1024, "preempted and admitted again, it finds its blocks");
    kvf_sequence_release(pool, a.sequence, NULL);
    serve(pool, tokens + 1, 2900, &a);
    kvf_sequence_release(pool, a.sequence, NULL);
    serve(pool, tokens, 1025, &a);
    is(a.hit, 0, "blocks that were taken by another prompt are not found any more");
    kvf_sequence_release(pool, a.sequence, NULL);
    for (int32_t round = 0; round < 200; round++) {
        for (int32_t i = 0; i < 600; i++) tokens[i] = round * 1000 + i;
        serve(pool, tokens, 600, &a);
        kvf_sequence_release(pool, a.sequence, NULL);
    }
    uint32_t named = 0;
    for (uint32_t i = 0; i <= pool->index_mask; i++) named += pool->index[i].block >= 0;
    ok(named > 0 && named <= pool->block_count,
       "after 200 other prompts the index names %u of %u blocks", named, pool->block_count);
    is(kvf_pool_check(pool, NULL), KVF_OK, "every invariant holds");
    kvf_pool_destroy(pool);
}

/* Decode over block boundaries: windows slide, and the tables stay aligned. */
static void sliding(void) {
    struct pool_geometry g;
    kvf_pool_options o = {
        .policy = KVF_POLICY_SHARED, .max_requests = 1, .windows = 8, .blocks = 32};
    int32_t tokens[200];
    kvf_pool *pool;
    kvf_admission a;
    flash_like(&g);
    for (int32_t i = 0; i < 200; i++) tokens[i] = i;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    serve(pool, tokens, 200, &a);
    struct pool_sequence *s = pool_sequence_get(pool, a.sequence, NULL);
    bool aligned = true, bounded = true;
    int32_t id = 5;
    kvf_sequence_commit(pool, a.sequence, 0, &id, 1, NULL);
    for (int i = 0; i < 1000; i++) {
        if (kvf_sequence_prepare(pool, a.sequence, 1, NULL) ||
            kvf_sequence_commit(pool, a.sequence, 1, &id, 1, NULL))
            exit(1);
        uint32_t live = 0;
        for (uint32_t w = 0; w < s->window_to; w++) live += s->window_table[w] >= 0;
        aligned = aligned && s->window_to == pool_blocks_of(pool, s->computed);
        bounded = bounded && live <= 2;
    }
    ok(aligned, "the window table is as long as the block table");
    ok(bounded, "a decoding request holds at most two windows");
    is(pool->shared->slots.free.length, 8 - 2, "the others came back");
    is(kvf_pool_check(pool, NULL), KVF_OK, "every invariant holds");
    kvf_pool_destroy(pool);
}

/* Several tokens at once, over the end of a block: blocks and windows come in step. */
static void verify_steps(kvf_policy policy) {
    struct pool_geometry g;
    kvf_pool_options o = {
        .policy = policy, .max_requests = 1, .windows = 8, .blocks = 32, .chunks = 20};
    int32_t tokens[127], ids[4] = {1, 2, 3, 4};
    kvf_pool *pool;
    kvf_admission a;
    flash_like(&g);
    g.drafts = 3;
    g.per_chunk = 2;
    g.envelope_bytes = 1;
    g.chunk_bytes = 2;
    g.state_envelopes = 1;
    for (int32_t i = 0; i < 127; i++) tokens[i] = i;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    serve(pool, tokens, 126, &a);
    struct pool_sequence *s = pool_sequence_get(pool, a.sequence, NULL);
    kvf_sequence_commit(pool, a.sequence, 0, ids, 1, NULL);
    kvf_status status = kvf_sequence_prepare(pool, a.sequence, 4, NULL);
    ok(status == KVF_OK && s->blocks == 2 && s->window_table[0] >= 0 && s->window_table[1] >= 0,
       "policy %d: four tokens over a block's end get the next block and window", (int)policy);
    status = kvf_sequence_commit(pool, a.sequence, 4, ids, 4, NULL);
    ok(status == KVF_OK && s->published == 0, "the block is not published while drafts reach it");
    kvf_sequence_truncate(pool, a.sequence, 127, NULL);
    ok(s->blocks == 1 && s->window_table[1] == -1 && kvf_pool_check(pool, NULL) == KVF_OK,
       "three rejected: the second block and window are given back");
    kvf_sequence_commit(pool, a.sequence, 0, ids, 1, NULL);
    for (int i = 0; i < 4; i++) {
        kvf_sequence_prepare(pool, a.sequence, 1, NULL);
        kvf_sequence_commit(pool, a.sequence, 1, ids, 1, NULL);
    }
    ok(s->computed == 131 && s->published == 1, "published when no rejection can reach it");
    kvf_pool_destroy(pool);
}

/*
 * Long prompts and many short requests in turn, each of which evicts what the other left: no id is
 * lost, and no call looks at more than there is to evict.
 */
static void conserved(kvf_policy policy) {
    struct pool_geometry g;
    kvf_pool_options o = {.policy = policy,
                          .max_requests = 8,
                          .windows = 20,
                          .blocks = 40,
                          .lent_blocks = policy == KVF_POLICY_SHARED ? 24 : 0,
                          .chunks = 30};
    static int32_t tokens[4096];
    kvf_pool *pool;
    kvf_admission a[8];
    bool whole = true;
    uint64_t most = 0;
    uint32_t served = 0;
    flash_like(&g);
    g.per_chunk = 4;
    g.envelope_bytes = 1;
    g.chunk_bytes = 4;
    g.state_envelopes = 1;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    for (int32_t round = 0; round < 300; round++) {
        uint32_t requests = round % 2 ? 1 : 8, count = round % 2 ? 4000 : 140;
        for (uint32_t r = 0; r < requests; r++) {
            for (uint32_t i = 0; i < count; i++)
                tokens[i] = (round * 8 + (int32_t)r) * 5000 + (int32_t)i;
            uint64_t before = pool->counters.touched;
            if (serve(pool, tokens, count, &a[r])) a[r].sequence = 0;
            if (pool->counters.touched - before > most) most = pool->counters.touched - before;
        }
        for (uint32_t r = 0; r < requests; r++)
            if (a[r].sequence) served += !kvf_sequence_release(pool, a[r].sequence, NULL);
        whole = whole && !kvf_pool_check(pool, NULL) && !pool->running;
    }
    ok(whole && served == 150 * 9, "policy %d: %u requests in 300 turns, no id lost", (int)policy,
       served);
    ok(most < 4 * (pool->block_count + pool->window_count),
       "policy %d: %d operations at most for one request", (int)policy, (int)most);
    kvf_pool_destroy(pool);
}

/* Pins: a pinned window is never lent; the least recently used pin gives way to a new one. */
static void pins(void) {
    struct pool_geometry g;
    kvf_pool_options o = {
        .policy = KVF_POLICY_SHARED, .max_requests = 2, .windows = 6, .blocks = 16, .pins = 2};
    int32_t tokens[3][600];
    kvf_pool *pool;
    kvf_admission a;
    flash_like(&g);
    for (int32_t p = 0; p < 3; p++)
        for (int32_t i = 0; i < 600; i++) tokens[p][i] = p * 1000 + i;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    for (int p = 0; p < 3; p++) {
        serve(pool, tokens[p], 513, &a);
        kvf_sequence_release(pool, a.sequence, NULL);
        is(kvf_pool_check(pool, NULL), KVF_OK, "every invariant holds");
    }
    is(pool->shared->pins.length, 2, "no more windows are pinned than the capacity allows");
    is(pool->shared->pinned_idle, 2, "they stay without a request");
    bool lent = false;
    for (uint32_t i = 0; i < pool->window_count; i++)
        lent = lent || (pool->windows[i].pinned && pool->shared->slots.window[i].borrowers);
    ok(!lent, "a pinned window is not lent");
    kvf_pool_destroy(pool);
}

/* A window that a fork lists too is not given for an idle equal one: that would hold both. */
static void equal_of_a_fork(void) {
    struct pool_geometry g = {.block = 4,
                              .window = 10,
                              .max_positions = 64,
                              .checkpoint = 8,
                              .types = 2,
                              .window_bytes = 1,
                              .block_bytes = 1,
                              .state_bytes = 1};
    g.type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 1, .layers = 1, .planes = 1};
    g.type[1] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
    kvf_pool_options o = {
        .policy = KVF_POLICY_SHARED, .max_requests = 3, .windows = 20, .blocks = 40, .pins = 8};
    int32_t tokens[20];
    kvf_pool *pool;
    kvf_admission a, b;
    kvf_fork fork;
    for (int32_t i = 0; i < 20; i++) tokens[i] = i;
    if (pool_create(&g, &o, &pool, NULL)) exit(1);
    serve(pool, tokens, 7, &a);
    kvf_sequence_commit(pool, a.sequence, 0, &tokens[7], 1, NULL);
    for (int i = 7; i < 15; i++) {
        if (i == 14 && kvf_sequence_fork(pool, a.sequence, &fork, NULL)) exit(1);
        kvf_sequence_prepare(pool, a.sequence, 1, NULL);
        kvf_sequence_commit(pool, a.sequence, 1, &tokens[i + 1], 1, NULL);
    }
    serve(pool, tokens, 17, &b);
    kvf_sequence_release(pool, b.sequence, NULL);
    const struct pool_sequence *s = pool_sequence_get(pool, a.sequence, NULL);
    int32_t own = s->window_table[2], twin = pool->blocks[s->block_table[2]].window;
    ok(own >= 0 && pool->windows[own].refs == 2 && twin >= 0 && !pool->windows[twin].refs,
       "a window that a fork shares, and an idle one that is equal");
    kvf_sequence_prepare(pool, a.sequence, 1, NULL);
    uint64_t taken = pool->shared->slots.held - pool->shared->pinned_idle;
    kvf_sequence_commit(pool, a.sequence, 1, NULL, 0, NULL);
    ok(pool->shared->slots.held - pool->shared->pinned_idle <= taken &&
           kvf_pool_check(pool, NULL) == KVF_OK,
       "a commit takes no window slot");
    kvf_pool_destroy(pool);
}

int main(void) {
    tap_plan(2 + 12 + 4 + 14 + 19 + 9 + 4 + 12 + 6 + 6);
    coordinator_trace();
    borrow_trace();
    manager_trace();
    ten();
    neighbours();
    sliding();
    for (int policy = 0; policy < 3; policy++) verify_steps((kvf_policy)policy);
    for (int policy = 0; policy < 3; policy++) conserved((kvf_policy)policy);
    pins();
    equal_of_a_fork();
    return tap_done();
}
