/* The policy `shared`; see shared.h. */
#include "shared.h"

#include <stdlib.h>

/* ---- counts and bytes ---- */

static uint64_t row_bytes(const struct pool_type *t) {
    uint64_t bytes = 0;
    for (uint32_t plane = 0; plane < t->planes; plane++) bytes += t->plane_row_bytes[plane];
    return bytes;
}

static uint64_t bytes_of(const struct pool_geometry *g, const kvf_pool_options *o, uint64_t windows,
                         uint64_t blocks) {
    uint64_t bytes = o->max_requests * g->state_bytes + windows * g->snapshot_bytes;
    for (uint32_t i = 0; i < g->types; i++) {
        const struct pool_type *t = &g->type[i];
        uint64_t own = t->ratio ? (blocks + t->ratio - 1) / t->ratio : 0;
        bytes += t->layers * (windows + own) * g->block * row_bytes(t);
        bytes += t->layers * (blocks + o->lent_blocks) * t->index_page_bytes;
    }
    return bytes;
}

uint64_t pool_shared_bytes(const kvf_pool *pool) {
    return bytes_of(&pool->geometry, &pool->options, pool->window_count,
                    pool->block_count - pool->options.lent_blocks);
}

/* The largest number of blocks that the budget pays. */
static uint64_t blocks_for(const struct pool_geometry *g, const kvf_pool_options *o,
                           uint64_t windows) {
    uint64_t low = 0, high = INT32_MAX;
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        if (bytes_of(g, o, windows, middle) <= o->bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

kvf_status pool_shared_count(kvf_pool *pool, uint32_t default_windows, kvf_error *error) {
    const struct pool_geometry *g = &pool->geometry;
    const kvf_pool_options *o = &pool->options;
    for (uint32_t i = 0; i < g->types; i++)
        if (g->type[i].footers)
            return pool_fail(error, KVF_ERROR_ARGUMENT,
                             "type %s: the policy shared needs a row format without page footers",
                             g->type[i].name);
    uint64_t windows = o->windows ? o->windows : default_windows;
    uint64_t blocks = o->bytes ? blocks_for(g, o, windows) : o->blocks;
    uint64_t ids = blocks + o->lent_blocks;
    if (ids > INT32_MAX / 2 || windows > INT32_MAX / 2)
        return pool_fail(error, KVF_ERROR_LIMIT, "%llu blocks: ids are 32 bits",
                         (unsigned long long)ids);
    pool->window_count = (uint32_t)windows;
    pool->block_count = (uint32_t)(blocks ? blocks + o->lent_blocks : 0);
    pool->state_count = o->max_requests;
    pool->parts = 1;
    pool->policy = &pool_shared_policy;
    return KVF_OK;
}

/* ---- bindings ---- */

static bool is_bound(const struct pool_shared *sh, int32_t block) {
    return sh->bound[0][block] >= 0;
}

static void set_live(struct pool_shared *sh, int32_t block, bool live) {
    for (uint32_t t = 0; t < sh->slots.types; t++)
        if (sh->bound[t][block] >= 0) slots_live(&sh->slots, t, sh->bound[t][block], live);
}

static void forget_content(kvf_pool *pool, int32_t block);

/* A cold block loses its content and its memory; its id stays free where it was in the queue. */
static void unbind(kvf_pool *pool, int32_t block) {
    struct pool_shared *sh = pool->shared;
    pool->counters.touched++;
    forget_content(pool, block);
    pool_list_remove(&sh->cold, block);
    for (uint32_t t = 0; t < sh->slots.types; t++) {
        bool given = slots_give(&sh->slots, t, sh->bound[t][block]);
        pool_holds(pool, given, "a bound block is given back once");
        sh->bound[t][block] = POOL_NONE;
    }
}

static void unpin(kvf_pool *pool, int32_t window) {
    struct pool_shared *sh = pool->shared;
    struct pool_window *w = &pool->windows[window];
    pool_list_remove(&sh->pins, window);
    w->pinned = false;
    if (w->refs) return;
    sh->pinned_idle--;
    w->used = false;
    bool given = slots_give_window(&sh->slots, window, w->block >= 0);
    pool_holds(pool, given, POOL_SLOT_GIVEN_ONCE);
}

static bool unpin_oldest_idle(kvf_pool *pool) {
    struct pool_shared *sh = pool->shared;
    if (!sh->pinned_idle) return false;
    int32_t at = sh->pins.head;
    while (at >= 0 && pool->windows[at].refs) at = pool_list_next(&sh->pins, at);
    if (!pool_holds(pool, at >= 0, "an idle pin is in the list of pins")) return false;
    unpin(pool, at);
    return true;
}

/* Something that is cached gives way: cold blocks first, pins last. */
static bool give_way(kvf_pool *pool) {
    struct pool_shared *sh = pool->shared;
    if (sh->cold.head >= 0) {
        unbind(pool, sh->cold.head);
        return true;
    }
    return unpin_oldest_idle(pool);
}

static void forget_content(kvf_pool *pool, int32_t block) {
    struct pool_block *b = &pool->blocks[block];
    if (b->window >= 0) {
        int32_t window = b->window;
        pool_unpublish_window(pool, window);
        if (pool->windows[window].pinned) unpin(pool, window);
    }
    if (b->published) pool_unpublish_block(pool, block);
}

/* Called before compress or another window gets the slot. */
static void window_evicted(void *who, int32_t window) {
    kvf_pool *pool = who;
    if (pool->windows[window].block >= 0) pool_unpublish_window(pool, window);
}

/* ---- the policy ---- */

static bool shared_fits(const kvf_pool *pool, const struct pool_need *need, enum pool_level level,
                        struct pool_short *what) {
    const struct pool_shared *sh = pool->shared;
    (void)level;
    *what = (struct pool_short){"request states", need->states - pool->free_state_count};
    if (need->states > pool->free_state_count) return false;
    uint64_t ids = sh->free.length - need->idle_blocks;
    *what = (struct pool_short){"blocks", need->envelopes - ids};
    if (need->envelopes > ids) return false;
    uint64_t missing = slots_missing(&sh->slots, need->windows, need->envelopes);
    uint64_t pinned = sh->pinned_idle - need->idle_windows;
    *what = (struct pool_short){"window slots", missing - pinned};
    return missing <= pinned;
}

static bool shared_make_room(kvf_pool *pool, const struct pool_need *need, enum pool_level level) {
    (void)level;
    while (pool->shared->slots.free.length < need->windows)
        if (!give_way(pool)) return false;
    return true;
}

/* Window slots that running requests, and one more, are likely to need besides those they hold. */
static uint64_t reserve(const kvf_pool *pool) {
    const struct slots *slots = &pool->shared->slots;
    uint64_t wanted = (pool->running + UINT64_C(1)) * pool_reach_blocks(pool);
    uint64_t rest = wanted > slots->held ? wanted - slots->held : 0;
    return rest > pool->promised_windows ? rest : pool->promised_windows;
}

/*
 * One physical block. While few window slots are left cold blocks are unbound first; those that
 * were promised are never lent.
 */
static int32_t bind(kvf_pool *pool, uint32_t type) {
    struct pool_shared *sh = pool->shared;
    for (;;) {
        bool borrow =
            sh->slots.idle > (sh->cold.head >= 0 ? reserve(pool) : pool->promised_windows);
        int32_t block = slots_take(&sh->slots, type, borrow);
        if (block >= 0) return block;
        if (!pool_holds(pool, give_way(pool), POOL_ROOM)) return 0;
    }
}

static int32_t shared_take_block(kvf_pool *pool, int32_t near) {
    struct pool_shared *sh = pool->shared;
    (void)near;
    int32_t block = pool_list_pop_head(&sh->free);
    if (!pool_holds(pool, block >= 0, "a free block is there when one is taken")) return 0;
    pool->counters.touched++;
    if (is_bound(sh, block)) {
        unbind(pool, block);
    } else {
        forget_content(pool, block);
    }
    struct pool_block *b = &pool->blocks[block];
    b->generation++;
    b->use = POOL_BLOCK;
    for (uint32_t t = 0; t < sh->slots.types; t++) sh->bound[t][block] = bind(pool, t);
    b->refs = 1;
    return block;
}

static int32_t shared_take_window(kvf_pool *pool) {
    int32_t window = slots_take_window(&pool->shared->slots);
    if (!pool_holds(pool, window >= 0, "a free window is there when one is taken")) return 0;
    pool->counters.touched++;
    struct pool_window *w = &pool->windows[window];
    *w = (struct pool_window){.refs = 1,
                              .block = POOL_NONE,
                              .snapshot = POOL_NONE,
                              .generation = w->generation + 1,
                              .list = POOL_CLASSES,
                              .used = true};
    return window;
}

/* Snapshots have a place of their own per window. */
static int32_t shared_take_snapshot(kvf_pool *pool, int32_t window) {
    (void)pool;
    return window;
}

static void shared_count_snapshot(kvf_pool *pool, int32_t window, bool on) {
    (void)pool, (void)window, (void)on;
}

static void shared_drop_snapshot(kvf_pool *pool, int32_t window) {
    pool->windows[window].snapshot = POOL_NONE;
}

static void shared_take_state(kvf_pool *pool, int32_t *parts) {
    parts[0] = 0;
    if (!pool_holds(pool, pool->free_state_count > 0, POOL_STATES)) return;
    parts[0] = pool->free_states[--pool->free_state_count];
}

static void shared_give_state(kvf_pool *pool, const int32_t *parts) {
    if (!pool_holds(pool, pool->free_state_count < pool->state_count, POOL_STATES)) return;
    pool->free_states[pool->free_state_count++] = parts[0];
}

static void claim_live(kvf_pool *pool, const struct pool_claim *claim, bool live) {
    for (uint32_t i = 0; i < claim->block_count; i++)
        if (!pool->blocks[claim->blocks[i]].refs) set_live(pool->shared, claim->blocks[i], live);
}

static void shared_claim_begin(kvf_pool *pool, const struct pool_claim *claim,
                               struct pool_need *need) {
    claim_live(pool, claim, true);
    for (uint32_t i = 0; i < claim->block_count; i++)
        need->idle_blocks += !pool->blocks[claim->blocks[i]].refs;
    for (uint32_t i = 0; i < claim->window_count; i++) {
        const struct pool_window *w = &pool->windows[claim->windows[i]];
        if (w->refs) continue;
        if (w->pinned)
            need->idle_windows++;
        else
            need->windows++; /* its slot is free, and will not be */
    }
}

static void shared_claim_undo(kvf_pool *pool, const struct pool_claim *claim) {
    claim_live(pool, claim, false);
}

static void shared_hold_block(kvf_pool *pool, int32_t block) {
    struct pool_shared *sh = pool->shared;
    pool->counters.touched++;
    pool_list_remove(&sh->free, block);
    pool_list_remove(&sh->cold, block);
    set_live(sh, block, true);
}

static void shared_idle_block(kvf_pool *pool, int32_t block) {
    struct pool_shared *sh = pool->shared;
    pool->counters.touched++;
    pool_list_push_tail(&sh->free, block);
    pool_list_push_tail(&sh->cold, block);
    set_live(sh, block, false);
}

static void shared_hold_window(kvf_pool *pool, int32_t window) {
    struct pool_shared *sh = pool->shared;
    pool->counters.touched++;
    if (pool->windows[window].pinned) {
        sh->pinned_idle--;
        pool_list_remove(&sh->pins, window);
        pool_list_push_tail(&sh->pins, window);
        return;
    }
    bool claimed = slots_claim_window(&sh->slots, window);
    if (!pool_holds(pool, claimed, "the slot of a cached window is free")) return;
    pool->windows[window].used = true;
}

static void shared_idle_window(kvf_pool *pool, int32_t window, enum pool_leave why) {
    struct pool_shared *sh = pool->shared;
    (void)why;
    pool->counters.touched++;
    if (pool->windows[window].pinned) {
        sh->pinned_idle++;
        return;
    }
    pool->windows[window].used = false;
    bool given = slots_give_window(&sh->slots, window, pool->windows[window].block >= 0);
    pool_holds(pool, given, POOL_SLOT_GIVEN_ONCE);
}

static void shared_claim_finish(kvf_pool *pool, const struct pool_claim *claim) {
    for (uint32_t i = 0; i < claim->block_count; i++) pool_block_ref(pool, claim->blocks[i]);
    for (uint32_t i = 0; i < claim->window_count; i++) pool_window_ref(pool, claim->windows[i]);
}

/* Checkpoints are pinned up to the capacity; the least recently used pin is given up for a new one.
 */
static void shared_published(kvf_pool *pool, int32_t window) {
    struct pool_shared *sh = pool->shared;
    if (!pool->options.pins || pool->windows[window].pinned) return;
    if (sh->pins.length == pool->options.pins) unpin(pool, sh->pins.head);
    pool->windows[window].pinned = true;
    pool_list_push_tail(&sh->pins, window);
}

/* ---- opening ---- */

kvf_status pool_shared_open(kvf_pool *pool, kvf_error *error) {
    const struct pool_geometry *g = &pool->geometry;
    struct pool_shared *sh = calloc(1, sizeof *sh);
    if (!sh) return pool_fail(error, KVF_ERROR_MEMORY, "out of memory");
    pool->shared = sh;
    uint32_t ratios[SLOTS_MAX_TYPES], own[SLOTS_MAX_TYPES], types = 0;
    uint32_t own_blocks = pool->block_count - (pool->block_count ? pool->options.lent_blocks : 0);
    size_t each = pool->block_count + 1u;
    bool made = (sh->cold_links = calloc(each, sizeof sh->cold_links[0])) != NULL;
    for (uint32_t i = 0; i < g->types; i++) {
        if (!g->type[i].ratio || !g->type[i].layers) continue;
        ratios[types] = g->type[i].ratio;
        own[types] = slots_own(own_blocks, g->type[i].ratio);
        sh->type_of[types] = i;
        made = (sh->bound[types] = malloc(each * sizeof(int32_t))) != NULL && made;
        for (uint32_t b = 0; made && b < pool->block_count; b++) sh->bound[types][b] = POOL_NONE;
        types++;
    }
    made = made &&
           slots_open(&sh->slots, pool->window_count, ratios, own, types, !pool->options.trailing);
    if (!made) return pool_fail(error, KVF_ERROR_MEMORY, "out of memory");
    sh->slots.evicted = window_evicted;
    sh->slots.who = pool;
    pool_list_open(&sh->free, &pool->blocks[0].link, sizeof pool->blocks[0]);
    pool_list_open(&sh->cold, sh->cold_links, sizeof sh->cold_links[0]);
    pool_list_open(&sh->pins, &pool->windows[0].link, sizeof pool->windows[0]);
    for (uint32_t i = 0; i < pool->block_count; i++) pool_list_push_tail(&sh->free, (int32_t)i);
    for (uint32_t i = 0; i < pool->state_count; i++)
        pool->free_states[i] = (int32_t)(pool->state_count - 1 - i);
    pool->free_state_count = pool->state_count;
    return KVF_OK;
}

void pool_shared_close(kvf_pool *pool) {
    struct pool_shared *sh = pool->shared;
    if (!sh) return;
    slots_close(&sh->slots);
    for (uint32_t t = 0; t < SLOTS_MAX_TYPES; t++) free(sh->bound[t]);
    free(sh->cold_links);
    free(sh);
    pool->shared = NULL;
}

/* ---- checking ---- */

bool pool_shared_check(const kvf_pool *pool, kvf_error *error) {
    const struct pool_shared *sh = pool->shared;
    const char *broken = slots_check(&sh->slots);
    if (broken) return pool_broken(error, "slots: %s", broken);
    uint32_t idle = 0, cold = 0, bound = 0, pins = 0, pinned_idle = 0;
    for (uint32_t i = 0; i < pool->block_count; i++) {
        bool refs = pool->blocks[i].refs > 0, has = is_bound(sh, (int32_t)i);
        idle += !refs;
        cold += !refs && has;
        bound += has;
        if ((refs || pool->blocks[i].published) && !has)
            return pool_broken(error, "block %u is in use or cached without memory", i);
    }
    if (idle != sh->free.length || cold != sh->cold.length)
        return pool_broken(error, "%u idle blocks, %u queued; %u cold, %u queued", idle,
                           sh->free.length, cold, sh->cold.length);
    for (uint32_t t = 0; t < sh->slots.types; t++) {
        uint64_t used = 0, live = 0;
        for (uint32_t i = 0; i < sh->slots.type[t].count; i++) {
            used += sh->slots.type[t].slots[i].used;
            live += sh->slots.type[t].slots[i].live;
        }
        if (used != bound || live != pool->block_count - idle)
            return pool_broken(error, "type %u: %llu blocks bound, %llu live", t,
                               (unsigned long long)used, (unsigned long long)live);
    }
    for (uint32_t i = 0; i < pool->window_count; i++) {
        const struct pool_window *w = &pool->windows[i];
        pins += w->pinned;
        pinned_idle += w->pinned && !w->refs;
        if (w->pinned && w->block < 0)
            return pool_broken(error, "window %u is pinned and holds nothing", i);
        if (w->used != sh->slots.window[i].held || w->used != (w->refs || w->pinned))
            return pool_broken(error, "window %u: used %d, held %d, %d references", i, w->used,
                               sh->slots.window[i].held, w->refs);
        if (w->block >= 0 && !w->used && !sh->slots.window[i].cached)
            return pool_broken(error, "window %u is published and its slot is lent", i);
    }
    if (pins != sh->pins.length || pinned_idle != sh->pinned_idle)
        return pool_broken(error, "pins are miscounted");
    return true;
}

const struct pool_policy pool_shared_policy = {
    .fits = shared_fits,
    .make_room = shared_make_room,
    .take_block = shared_take_block,
    .take_window = shared_take_window,
    .take_snapshot = shared_take_snapshot,
    .count_snapshot = shared_count_snapshot,
    .drop_snapshot = shared_drop_snapshot,
    .take_state = shared_take_state,
    .give_state = shared_give_state,
    .claim_begin = shared_claim_begin,
    .claim_undo = shared_claim_undo,
    .claim_finish = shared_claim_finish,
    .hold_block = shared_hold_block,
    .idle_block = shared_idle_block,
    .hold_window = shared_hold_window,
    .idle_window = shared_idle_window,
    .published = shared_published,
    .check = pool_shared_check,
};
