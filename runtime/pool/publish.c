/*
 * What every policy does alike: references, publishing, adopting, and counting resumes. A block is
 * published under its parent and tokens; a window block is published at the block that ends where
 * it ends. Published content stays after the last reference until the policy evicts it.
 */
#include "pool.h"

/* ---- references ---- */

void pool_block_ref(kvf_pool *pool, int32_t block) {
    if (pool->blocks[block].refs++ == 0) pool->policy->hold_block(pool, block);
}

void pool_block_unref(kvf_pool *pool, int32_t block) {
    bool held = pool->blocks[block].refs > 0;
    if (!pool_holds(pool, held, "a reference to a block is given back once")) return;
    if (--pool->blocks[block].refs == 0) pool->policy->idle_block(pool, block);
}

void pool_window_ref(kvf_pool *pool, int32_t window) {
    if (pool->windows[window].refs++ == 0) pool->policy->hold_window(pool, window);
}

void pool_window_unref(kvf_pool *pool, int32_t window, enum pool_leave why) {
    bool held = pool->windows[window].refs > 0;
    if (!pool_holds(pool, held, "a reference to a window is given back once")) return;
    if (--pool->windows[window].refs == 0) pool->policy->idle_window(pool, window, why);
}

/* ---- blocks ---- */

/* Evicted hashes are remembered in a direct-mapped table, to count tokens computed again. */
static void ghost_leave(kvf_pool *pool, uint64_t hash) {
    pool->ghosts[hash & pool->ghost_mask] = hash;
}

static void ghost_meet(kvf_pool *pool, uint64_t hash) {
    uint64_t *ghost = &pool->ghosts[hash & pool->ghost_mask];
    if (*ghost != hash) return;
    pool->counters.recomputed_tokens += pool->geometry.block;
    *ghost = 0;
}

int32_t pool_publish_block(kvf_pool *pool, int32_t parent, int32_t block, uint64_t hash) {
    int32_t twin = pool_index_find(pool, hash, parent, pool_block_tokens(pool, block));
    if (twin >= 0) {
        if (!pool_holds(pool, twin != block, "a block is published once")) return block;
        pool_block_ref(pool, twin);
        pool_block_unref(pool, block);
        pool->counters.adopted_blocks++;
        return twin;
    }
    struct pool_block *b = &pool->blocks[block];
    b->hash = hash;
    b->parent = parent;
    b->parent_generation = parent >= 0 ? pool->blocks[parent].generation : 0;
    b->published = true;
    if (parent >= 0) pool->blocks[parent].children++;
    pool_index_add(pool, block);
    ghost_meet(pool, hash);
    return block;
}

void pool_unpublish_block(kvf_pool *pool, int32_t block) {
    struct pool_block *b = &pool->blocks[block];
    if (!pool_holds(pool, b->published, "only published blocks are unpublished")) return;
    ghost_leave(pool, b->hash);
    pool_index_remove(pool, block);
    if (b->parent >= 0 && pool->blocks[b->parent].generation == b->parent_generation)
        pool->blocks[b->parent].children--;
    b->published = false;
    b->parent = POOL_NONE;
    b->children = 0;
    b->generation++;
    pool->counters.evicted_blocks++;
}

/* ---- windows ---- */

void pool_count_made(kvf_pool *pool, enum pool_kind kind) {
    if (++pool->made[kind] <= 256) return;
    pool->made[kind] /= 2;
    pool->first_hits[kind] /= 2;
}

double pool_kind_rate(const kvf_pool *pool, enum pool_kind kind) {
    return (pool->first_hits[kind] + 2.0) / (pool->made[kind] + 16.0);
}

void pool_publish_window(kvf_pool *pool, int32_t block, int32_t window, enum pool_kind kind) {
    struct pool_window *w = &pool->windows[window];
    bool place = pool->blocks[block].published && pool->blocks[block].window == POOL_NONE;
    bool whole = w->block == POOL_NONE && w->written == pool->geometry.block;
    if (!pool_holds(pool, place, "a window is published at a published block without one")) return;
    if (!pool_holds(pool, whole, "a window is published once, and whole")) return;
    pool->blocks[block].window = window;
    w->block = block;
    w->kind = (uint8_t)kind;
    w->hits = 0;
    w->resumed = 0;
    pool_count_made(pool, kind);
    pool->policy->published(pool, window);
}

/* The content is no longer to be found; the memory stays as it is. */
void pool_unpublish_window(kvf_pool *pool, int32_t window) {
    struct pool_window *w = &pool->windows[window];
    bool both = w->block >= 0 && pool->blocks[w->block].window == window;
    if (!pool_holds(pool, both, "a published window and its block name each other")) return;
    pool->blocks[w->block].window = POOL_NONE;
    w->block = POOL_NONE;
    w->hits = 0;
    w->resumed = 0;
    w->generation++;
    pool->counters.evicted_windows++;
}

/*
 * While two or more running requests resumed at a window it keeps a reference of its own, so that a
 * prefix that many share is not evicted between them.
 */
void pool_window_resume(kvf_pool *pool, int32_t window) {
    struct pool_window *w = &pool->windows[window];
    if (w->hits++ == 0) pool->first_hits[w->kind]++;
    if (++w->resumed < 2 || w->held) return;
    w->held = true;
    pool_window_ref(pool, window);
}

void pool_window_resume_end(kvf_pool *pool, int32_t window) {
    struct pool_window *w = &pool->windows[window];
    if (!pool_holds(pool, w->resumed > 0, "a resume ends once")) return;
    if (--w->resumed >= 2 || !w->held) return;
    w->held = false;
    pool_window_unref(pool, window, POOL_SLID);
}
