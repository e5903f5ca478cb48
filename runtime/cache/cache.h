/*
 * The state cache: one piece of device memory that holds every array of every layer, and the
 * request slots. Internal.
 *
 * Layout: arrays lie one after the other without padding, those of wider alignment first and among
 * equals in the order of types and of `state[]`, so that every array is aligned whatever the number
 * of slots. Inside an array layers follow each other, inside a layer slots do.
 */
#ifndef KVF_CACHE_H
#define KVF_CACHE_H

#include "../library.h"

struct cache_array {
    const struct bundle_array *from;
    uint32_t type;
    uint64_t offset;       /* of layer 0, slot 0, in the cache's memory */
    uint64_t layer_stride; /* slots * slot_bytes */
    uint64_t bytes;        /* all layers */
};

struct cache_layout {
    uint32_t array_count;
    uint64_t bytes;
    struct cache_array *arrays; /* malloc'ed; in the order they lie in memory */
};

/* Work out where everything lies for `slots` request slots. cache_layout_free ends it. */
kvf_status cache_layout(const struct kvf_bundle *bundle, uint32_t slots, struct cache_layout *out,
                        kvf_error *error);
void cache_layout_free(struct cache_layout *layout);

/* Which request slots are taken: one bit each, 1 is free. */
struct slot_map {
    uint32_t slots, free;
    uint32_t first;  /* no word before this one has a free slot */
    uint64_t *words; /* malloc'ed */
};

/* False if memory is short. All slots are free. */
bool slot_map_create(struct slot_map *map, uint32_t slots);
void slot_map_destroy(struct slot_map *map);
/* The lowest free slot, now taken; -1 if there is none. */
int32_t slot_map_take(struct slot_map *map);
bool slot_map_is_taken(const struct slot_map *map, int32_t slot);
void slot_map_give(struct slot_map *map, int32_t slot); /* a taken one */

struct kvf_cache {
    const struct kvf_library *library;
    struct cache_layout layout;
    struct slot_map map;
    CUdeviceptr memory;
    bool owned; /* the memory is ours to free */
};

#endif
