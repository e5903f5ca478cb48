/*
 * The prefix index: chained hash -> published block. Open addressing with linear probing; removal
 * shifts entries back, so that the table never fills with tombstones. A hash only nominates: a
 * block is equal if its parent is the same block (and still the same content) and its tokens are.
 */
#include <string.h>
#include <xxhash.h>

#include "pool.h"

/* xxh64 of the tokens as int32 in memory order, seeded with the parent's hash (0 for the first). */
uint64_t pool_hash(bool first, uint64_t parent, const int32_t *tokens, uint32_t count) {
    return XXH64(tokens, (size_t)count * sizeof tokens[0], first ? 0 : parent);
}

int32_t *pool_block_tokens(const kvf_pool *pool, int32_t block) {
    return pool->tokens + (size_t)block * pool->geometry.block;
}

static uint32_t tag_of(uint64_t hash) {
    return (uint32_t)(hash ^ hash >> 32);
}

static bool equal(const kvf_pool *pool, int32_t at, uint64_t hash, int32_t parent,
                  const int32_t *tokens) {
    const struct pool_block *block = &pool->blocks[at];
    if (block->hash != hash || block->parent != parent) return false;
    if (parent >= 0 && block->parent_generation != pool->blocks[parent].generation) return false;
    return !memcmp(pool_block_tokens(pool, at), tokens, pool->geometry.block * sizeof tokens[0]);
}

int32_t pool_index_find(kvf_pool *pool, uint64_t hash, int32_t parent, const int32_t *tokens) {
    uint32_t tag = tag_of(hash), at = tag & pool->index_mask;
    pool->counters.touched++;
    for (; pool->index[at].block >= 0; at = (at + 1) & pool->index_mask) {
        if (pool->index[at].tag != tag) continue;
        if (equal(pool, pool->index[at].block, hash, parent, tokens)) return pool->index[at].block;
    }
    return POOL_NONE;
}

void pool_index_add(kvf_pool *pool, int32_t block) {
    uint32_t tag = tag_of(pool->blocks[block].hash), at = tag & pool->index_mask;
    pool->counters.touched++;
    while (pool->index[at].block >= 0) at = (at + 1) & pool->index_mask;
    pool->index[at] = (struct pool_index_entry){tag, block};
}

void pool_index_remove(kvf_pool *pool, int32_t block) {
    uint32_t mask = pool->index_mask, hole = tag_of(pool->blocks[block].hash) & mask;
    pool->counters.touched++;
    while (pool->index[hole].block != block) {
        if (!pool_holds(pool, pool->index[hole].block >= 0, "a published block is in the index"))
            return;
        hole = (hole + 1) & mask;
    }
    for (uint32_t at = (hole + 1) & mask; pool->index[at].block >= 0; at = (at + 1) & mask) {
        uint32_t home = pool->index[at].tag & mask;
        /* An entry may move back to the hole unless its home lies behind the hole. */
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        pool->index[hole] = pool->index[at];
        hole = at;
    }
    pool->index[hole].block = POOL_NONE;
}

bool pool_index_check(const kvf_pool *pool, kvf_error *error) {
    uint32_t entries = 0, published = 0;
    for (uint32_t i = 0; i < pool->block_count; i++) published += pool->blocks[i].published;
    for (uint32_t i = 0; i <= pool->index_mask; i++) {
        int32_t block = pool->index[i].block;
        if (block < 0) continue;
        entries++;
        if ((uint32_t)block >= pool->block_count || !pool->blocks[block].published)
            return pool_broken(error, "the index names block %d, which is not published", block);
        if (pool->index[i].tag != tag_of(pool->blocks[block].hash))
            return pool_broken(error, "the index has block %d under another hash", block);
        for (uint32_t at = pool->index[i].tag & pool->index_mask; at != i;
             at = (at + 1) & pool->index_mask)
            if (pool->index[at].block < 0)
                return pool_broken(error, "block %d cannot be reached from its home", block);
    }
    if (entries != published)
        return pool_broken(error, "%u published blocks, %u in the index", published, entries);
    return true;
}
