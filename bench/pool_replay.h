/*
 * The pools of the tables in docs/pool.md: DeepSeek-V4 Flash in the sizes that the simulation of
 * the rules assumed (pages rounded to 576 bytes, no draft layer, state in bf16 or smaller). No spec
 * has that shape, so it is made with an internal call; an engine calls kvf_pool_create with its
 * bundle.
 */
#ifndef POOL_REPLAY_H
#define POOL_REPLAY_H

#include "../examples/replay_cli.h"
#include "pool/pool.h"

/* Rows of two planes of 512 and 128 bytes: a format without page footers, for `shared`. */
static inline void replay_planes(struct pool_geometry *g) {
    for (uint32_t i = 0; i < g->types; i++) {
        g->type[i].footers = false;
        g->type[i].planes = 2;
        g->type[i].plane_row_bytes[0] = 512;
        g->type[i].plane_row_bytes[1] = 128;
    }
}

/*
 * `memory` in GB (10^9), request state included; `windows` the share of the rest that `static` and
 * `shared` give to windows, 0 for the published default. `lean`: 5.1 MB of state (one chunk and
 * four envelopes) and no snapshots.
 */
static inline kvf_pool *replay_pool(kvf_policy policy, double memory, double windows,
                                    uint32_t requests, bool lean, kvf_error *error) {
    struct pool_geometry g;
    kvf_pool *pool = NULL;
    pool_geometry_flash(&g);
    if (lean) {
        for (uint32_t i = 0; i < g.types; i++) g.type[i].snapshot_bytes = 0;
        g.type[1].state_bytes = 212000;
        if (pool_geometry_derive(&g, 576, error)) return NULL;
    }
    if (policy == KVF_POLICY_SHARED) replay_planes(&g);
    kvf_pool_options o = {
        .policy = policy, .bytes = (uint64_t)(memory * 1e9), .max_requests = requests};
    if (windows > 0 && policy != KVF_POLICY_ELASTIC) {
        double rest = (double)o.bytes - (double)requests * (double)g.state_bytes;
        o.windows = (uint32_t)(windows * rest / (double)g.chunk_bytes);
    }
    return pool_create(&g, &o, &pool, error) ? NULL : pool;
}

#endif
