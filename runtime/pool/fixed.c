/*
 * The store of `static`: fixed numbers of window blocks, of envelopes and of request states, each
 * with its own ids from 0. Free ones queue up; the lowest was freed longest ago.
 */
#include "pool.h"

/* Is `need` more than `total - in use`? Says so. */
static bool enough(const char *resource, uint64_t need, uint64_t have, struct pool_short *what) {
    if (need <= have) return true;
    *what = (struct pool_short){resource, need - have};
    return false;
}

static bool fixed_fits(const kvf_pool *pool, const struct pool_need *need, enum pool_level level,
                       struct pool_short *what) {
    return enough("request states", need->states, pool->free_state_count, what) &&
           enough("window blocks", need->windows, pool->window_count - pool->counted_windows[level],
                  what) &&
           enough("block envelopes", need->envelopes,
                  pool->block_count - pool->counted_envelopes[level], what);
}

static bool fixed_room(const kvf_pool *pool, const struct pool_need *need) {
    return need->windows <= pool->free_windows.length &&
           need->envelopes <= pool->free_envelopes.length;
}

static void fixed_count_window(kvf_pool *pool, int32_t window, enum pool_level level, bool on) {
    (void)window;
    pool->counted_windows[level] += on ? 1 : UINT64_MAX;
}

static void fixed_count_envelope(kvf_pool *pool, int32_t envelope, enum pool_level level, bool on) {
    (void)envelope;
    pool->counted_envelopes[level] += on ? 1 : UINT64_MAX;
}

static int32_t fixed_take_window(kvf_pool *pool) {
    int32_t window = pool_list_pop_head(&pool->free_windows);
    if (!pool_holds(pool, window >= 0, "a free window is there when one is taken")) return 0;
    pool->counters.touched++;
    pool->windows[window].used = true;
    fixed_count_window(pool, window, POOL_REFERENCED, true);
    fixed_count_window(pool, window, POOL_HELD, true);
    return window;
}

static void fixed_give_window(kvf_pool *pool, int32_t window) {
    if (!pool_holds(pool, pool->windows[window].used, "a window is given back once")) return;
    pool->windows[window].used = false;
    pool->counters.touched++;
    pool_list_push_tail(&pool->free_windows, window);
}

static void set_use(kvf_pool *pool, int32_t envelope, enum pool_use use) {
    struct pool_block *block = &pool->blocks[envelope];
    *block = (struct pool_block){.parent = POOL_NONE,
                                 .window = POOL_NONE,
                                 .owner = POOL_NONE,
                                 .generation = block->generation + 1,
                                 .use = (uint8_t)use,
                                 .link = block->link};
}

static int32_t fixed_take_envelope(kvf_pool *pool, int32_t near, enum pool_use use) {
    (void)near;
    int32_t envelope = pool_list_pop_head(&pool->free_envelopes);
    if (!pool_holds(pool, envelope >= 0, "a free envelope is there when one is taken")) return 0;
    pool->counters.touched++;
    set_use(pool, envelope, use);
    fixed_count_envelope(pool, envelope, POOL_REFERENCED, true);
    fixed_count_envelope(pool, envelope, POOL_HELD, true);
    return envelope;
}

static void fixed_give_envelope(kvf_pool *pool, int32_t envelope) {
    if (!pool_holds(pool, pool->blocks[envelope].use != POOL_FREE, POOL_GIVEN_ONCE)) return;
    set_use(pool, envelope, POOL_FREE);
    pool->counters.touched++;
    pool_list_push_tail(&pool->free_envelopes, envelope);
}

static void fixed_take_state(kvf_pool *pool, int32_t *parts) {
    parts[0] = 0;
    if (!pool_holds(pool, pool->free_state_count > 0, POOL_STATES)) return;
    parts[0] = pool->free_states[--pool->free_state_count];
}

static void fixed_give_state(kvf_pool *pool, const int32_t *parts) {
    if (!pool_holds(pool, pool->free_state_count < pool->state_count, POOL_STATES)) return;
    pool->free_states[pool->free_state_count++] = parts[0];
}

static bool fixed_check(const kvf_pool *pool, kvf_error *error) {
    uint32_t windows = 0, envelopes = 0;
    for (uint32_t i = 0; i < pool->window_count; i++) windows += !pool->windows[i].used;
    for (uint32_t i = 0; i < pool->block_count; i++) envelopes += pool->blocks[i].use == POOL_FREE;
    uint32_t listed = 0;
    const struct pool_list *list = &pool->free_windows;
    for (int32_t at = list->head; at >= 0; at = pool_list_next(list, at))
        if (pool->windows[at].used || ++listed > windows)
            return pool_broken(error, "window %d is listed as free", at);
    if (listed != windows) return pool_broken(error, "%u free windows, %u listed", windows, listed);
    listed = 0;
    list = &pool->free_envelopes;
    for (int32_t at = list->head; at >= 0; at = pool_list_next(list, at))
        if (pool->blocks[at].use != POOL_FREE || ++listed > envelopes)
            return pool_broken(error, "envelope %d is listed as free", at);
    if (listed != envelopes)
        return pool_broken(error, "%u free envelopes, %u listed", envelopes, listed);
    if (pool->free_state_count + pool->running != pool->state_count)
        return pool_broken(error, "%u free states beside %u requests", pool->free_state_count,
                           pool->running);
    return true;
}

void pool_fixed_open(kvf_pool *pool) {
    pool_list_open(&pool->free_windows, &pool->windows[0].link, sizeof pool->windows[0]);
    for (uint32_t i = 0; i < pool->window_count; i++)
        pool_list_push_tail(&pool->free_windows, (int32_t)i);
    pool_list_open(&pool->free_envelopes, &pool->blocks[0].link, sizeof pool->blocks[0]);
    for (uint32_t i = 0; i < pool->block_count; i++)
        pool_list_push_tail(&pool->free_envelopes, (int32_t)i);
    for (uint32_t i = 0; i < pool->state_count; i++)
        pool->free_states[i] = (int32_t)(pool->state_count - 1 - i);
    pool->free_state_count = pool->state_count;
}

const struct pool_store pool_fixed = {
    .fits = fixed_fits,
    .room = fixed_room,
    .take_window = fixed_take_window,
    .give_window = fixed_give_window,
    .take_envelope = fixed_take_envelope,
    .give_envelope = fixed_give_envelope,
    .take_state = fixed_take_state,
    .give_state = fixed_give_state,
    .count_window = fixed_count_window,
    .count_envelope = fixed_count_envelope,
    .check = fixed_check,
};
