/*
 * The cache of `elastic` and `static`. Published blocks form a tree by their parents; published
 * windows hang on them. Cached windows stand in three lists and are evicted oldest first:
 *
 *   probation  nothing speaks for them
 *   durable    ends of prompts, branches, ends of requests, anything that was hit
 *   attached   durable ones whose blocks a running request still holds: they cost only themselves,
 *              and the next turn is likely; only a running request's growth may take them
 *
 * Evicting a window also frees, from its block upwards, what no reference, window or child keeps.
 * So every cached leaf has a window, and all that is not referenced can be reached by eviction.
 */
#include "pool.h"

/* ---- lists ---- */

static void count_snapshot(kvf_pool *pool, int32_t first, enum pool_level level, bool on) {
    for (int32_t at = first; at >= 0; at = pool->blocks[at].owner)
        pool->store->count_envelope(pool, at, level, on);
}

static void count_window(kvf_pool *pool, int32_t window, enum pool_level level, bool on) {
    pool->store->count_window(pool, window, level, on);
    count_snapshot(pool, pool->windows[window].snapshot, level, on);
}

/* A window without references enters a list. Attached ones still count as held. */
static void list_add(kvf_pool *pool, int32_t window, enum pool_class class) {
    pool->counters.touched++;
    count_window(pool, window, POOL_REFERENCED, false);
    if (class != POOL_ATTACHED) count_window(pool, window, POOL_HELD, false);
    pool->windows[window].list = (uint8_t) class;
    pool_list_push_tail(&pool->classes[class], window);
}

static void list_drop(kvf_pool *pool, int32_t window) {
    bool listed = pool->windows[window].list < POOL_CLASSES;
    if (!pool_holds(pool, listed, "a cached window stands in a list")) return;
    pool->counters.touched++;
    pool_list_remove(&pool->classes[pool->windows[window].list], window);
    pool->windows[window].list = POOL_CLASSES;
}

/* An attached window whose block nobody references any more. */
static void detach(kvf_pool *pool, int32_t window) {
    list_drop(pool, window);
    count_window(pool, window, POOL_HELD, false);
    pool->windows[window].list = POOL_DURABLE;
    pool_list_push_tail(&pool->classes[POOL_DURABLE], window);
}

/* ---- freeing ---- */

static void free_snapshot(kvf_pool *pool, int32_t first) {
    while (first >= 0) {
        int32_t next = pool->blocks[first].owner;
        pool->store->give_envelope(pool, first);
        first = next;
    }
}

static void free_window(kvf_pool *pool, int32_t window) {
    struct pool_window *w = &pool->windows[window];
    free_snapshot(pool, w->snapshot);
    w->snapshot = POOL_NONE;
    pool->store->give_window(pool, window);
}

/* From a block towards the root: free what nothing keeps. */
static void walk(kvf_pool *pool, int32_t block) {
    while (block >= 0) {
        struct pool_block *b = &pool->blocks[block];
        if (b->refs || b->children || b->window >= 0) return;
        int32_t parent = b->parent;
        if (b->published) pool_unpublish_block(pool, block);
        pool->store->give_envelope(pool, block);
        block = parent;
    }
}

static bool evict(kvf_pool *pool, int32_t window) {
    struct pool_window *w = &pool->windows[window];
    int32_t block = w->block;
    bool attached = w->list == POOL_ATTACHED;
    if (!pool_holds(pool, !w->refs && block >= 0, "a listed window is cached and not referenced"))
        return false;
    list_drop(pool, window);
    if (attached) count_window(pool, window, POOL_HELD, false);
    pool_unpublish_window(pool, window);
    free_window(pool, window);
    walk(pool, block);
    return !pool->damage;
}

static bool evict_oldest(kvf_pool *pool, enum pool_level level) {
    int classes = level == POOL_HELD ? POOL_ATTACHED : POOL_CLASSES;
    for (int class = 0; class < classes; class ++)
        if (pool->classes[class].head >= 0) return evict(pool, pool->classes[class].head);
    return false;
}

/* ---- the policy ---- */

static bool tree_fits(const kvf_pool *pool, const struct pool_need *need, enum pool_level level,
                      struct pool_short *what) {
    return pool->store->fits(pool, need, level, what);
}

static bool tree_make_room(kvf_pool *pool, const struct pool_need *need, enum pool_level level) {
    while (!pool->store->room(pool, need))
        if (!evict_oldest(pool, level)) return false;
    return true;
}

static int32_t tree_take_block(kvf_pool *pool, int32_t near) {
    int32_t block = pool->store->take_envelope(pool, near, POOL_BLOCK);
    pool->blocks[block].refs = 1;
    return block;
}

static int32_t tree_take_window(kvf_pool *pool) {
    int32_t window = pool->store->take_window(pool);
    struct pool_window *w = &pool->windows[window];
    *w = (struct pool_window){.refs = 1,
                              .block = POOL_NONE,
                              .snapshot = POOL_NONE,
                              .generation = w->generation + 1,
                              .list = POOL_CLASSES,
                              .used = true,
                              .link = w->link};
    return window;
}

static int32_t tree_take_snapshot(kvf_pool *pool, int32_t window) {
    (void)window;
    int32_t first = POOL_NONE, at = POOL_NONE;
    for (uint32_t i = 0; i < pool->geometry.snapshot_envelopes; i++) {
        int32_t next = pool->store->take_envelope(pool, at, POOL_SNAPSHOT);
        if (at >= 0)
            pool->blocks[at].owner = next;
        else
            first = next;
        at = next;
    }
    return first;
}

static void tree_count_snapshot(kvf_pool *pool, int32_t window, bool on) {
    for (int level = 0; level < POOL_LEVELS; level++)
        count_snapshot(pool, pool->windows[window].snapshot, (enum pool_level)level, on);
}

static void tree_drop_snapshot(kvf_pool *pool, int32_t window) {
    free_snapshot(pool, pool->windows[window].snapshot);
    pool->windows[window].snapshot = POOL_NONE;
}

static void tree_take_state(kvf_pool *pool, int32_t *parts) {
    pool->store->take_state(pool, parts);
}

static void tree_give_state(kvf_pool *pool, const int32_t *parts) {
    pool->store->give_state(pool, parts);
}

static void tree_hold_block(kvf_pool *pool, int32_t block) {
    pool->store->count_envelope(pool, block, POOL_REFERENCED, true);
    pool->store->count_envelope(pool, block, POOL_HELD, true);
}

static void tree_idle_block(kvf_pool *pool, int32_t block) {
    pool->store->count_envelope(pool, block, POOL_REFERENCED, false);
    pool->store->count_envelope(pool, block, POOL_HELD, false);
    int32_t window = pool->blocks[block].window;
    if (window >= 0 && pool->windows[window].list == POOL_ATTACHED) detach(pool, window);
    walk(pool, block);
}

static void tree_hold_window(kvf_pool *pool, int32_t window) {
    bool attached = pool->windows[window].list == POOL_ATTACHED;
    list_drop(pool, window);
    count_window(pool, window, POOL_REFERENCED, true);
    if (!attached) count_window(pool, window, POOL_HELD, true);
}

/* The list for a published window that was just left. */
static enum pool_class class_of(const kvf_pool *pool, const struct pool_window *w,
                                enum pool_leave why) {
    bool end =
        w->kind == POOL_END && pool_kind_rate(pool, POOL_END) >= pool_kind_rate(pool, POOL_TAIL);
    bool durable =
        w->hits || end || w->kind == POOL_TAIL || w->kind == POOL_BRANCH || w->kind == POOL_SAVED;
    if (!durable) return POOL_PROBATION;
    if (why == POOL_RELEASED || !pool->blocks[w->block].refs) return POOL_DURABLE;
    if (w->kind == POOL_BRANCH || w->kind == POOL_SAVED || w->hits >= 2) return POOL_ATTACHED;
    if (w->hits == 1) return POOL_DURABLE;
    return pool_kind_rate(pool, (enum pool_kind)w->kind) >= 0.02 ? POOL_ATTACHED : POOL_DURABLE;
}

static void tree_idle_window(kvf_pool *pool, int32_t window, enum pool_leave why) {
    struct pool_window *w = &pool->windows[window];
    if (w->block >= 0) {
        list_add(pool, window, class_of(pool, w, why));
        return;
    }
    count_window(pool, window, POOL_REFERENCED, false);
    count_window(pool, window, POOL_HELD, false);
    free_window(pool, window);
}

/* Claims count at once, so that the test sees them; lists change only when the claim is kept. */
static void tree_claim_count(kvf_pool *pool, const struct pool_claim *claim, bool on) {
    for (uint32_t i = 0; i < claim->block_count; i++)
        if (!pool->blocks[claim->blocks[i]].refs)
            for (int level = 0; level < POOL_LEVELS; level++)
                pool->store->count_envelope(pool, claim->blocks[i], (enum pool_level)level, on);
    for (uint32_t i = 0; i < claim->window_count; i++) {
        const struct pool_window *w = &pool->windows[claim->windows[i]];
        if (w->refs) continue;
        count_window(pool, claim->windows[i], POOL_REFERENCED, on);
        if (w->list != POOL_ATTACHED) count_window(pool, claim->windows[i], POOL_HELD, on);
    }
}

static void tree_claim_begin(kvf_pool *pool, const struct pool_claim *claim,
                             struct pool_need *need) {
    (void)need;
    tree_claim_count(pool, claim, true);
}

static void tree_claim_undo(kvf_pool *pool, const struct pool_claim *claim) {
    tree_claim_count(pool, claim, false);
}

static void tree_claim_finish(kvf_pool *pool, const struct pool_claim *claim) {
    tree_claim_count(pool, claim, true);
    for (uint32_t i = 0; i < claim->block_count; i++) pool->blocks[claim->blocks[i]].refs++;
    for (uint32_t i = 0; i < claim->window_count; i++)
        if (pool->windows[claim->windows[i]].refs++ == 0) list_drop(pool, claim->windows[i]);
}

static void tree_published(kvf_pool *pool, int32_t window) {
    (void)pool;
    (void)window;
}

const struct pool_policy pool_tree = {
    .fits = tree_fits,
    .make_room = tree_make_room,
    .take_block = tree_take_block,
    .take_window = tree_take_window,
    .take_snapshot = tree_take_snapshot,
    .count_snapshot = tree_count_snapshot,
    .drop_snapshot = tree_drop_snapshot,
    .take_state = tree_take_state,
    .give_state = tree_give_state,
    .claim_begin = tree_claim_begin,
    .claim_undo = tree_claim_undo,
    .claim_finish = tree_claim_finish,
    .hold_block = tree_hold_block,
    .idle_block = tree_idle_block,
    .hold_window = tree_hold_window,
    .idle_window = tree_idle_window,
    .published = tree_published,
    .check = pool_tree_check,
};
