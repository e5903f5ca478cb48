/*
 * The policy `shared`: the second seed's pool. Block ids are logical; each is bound to one physical
 * block per compressed type. Free blocks and free windows queue up oldest first and keep their
 * content until they are taken again (evict on reuse), so the queues are the cache.
 */
#ifndef KVF_POOL_SHARED_H
#define KVF_POOL_SHARED_H

#include "pool.h"
#include "type_slots.h"

struct pool_shared {
    struct slots slots;
    uint32_t type_of[SLOTS_MAX_TYPES]; /* compressed type -> layer type */
    int32_t *bound[SLOTS_MAX_TYPES];   /* [block_count]: physical block or POOL_NONE */
    struct pool_list free;             /* blocks without references, oldest first */
    struct pool_list cold;             /* those of them that are bound */
    struct pool_link *cold_links;
    struct pool_list pins; /* pinned windows, least recently used first */
    uint32_t pinned_idle;  /* of them, without references */
};

kvf_status pool_shared_count(kvf_pool *pool, uint32_t default_windows, kvf_error *error);
kvf_status pool_shared_open(kvf_pool *pool, kvf_error *error);
void pool_shared_close(kvf_pool *pool);

/* Bytes of all allocations, and their layout (see kvf_range in kvforge.h). */
uint64_t pool_shared_bytes(const kvf_pool *pool);

#endif
