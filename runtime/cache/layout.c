#include <stdlib.h>

#include "../error.h"
#include "cache.h"

enum { WIDEST_ALIGN = 256 }; /* what the manifest reader allows, and every allocation has */

static kvf_status too_large(uint32_t slots, kvf_error *error) {
    return error_set(error, KVF_ERROR_LIMIT, "a state cache of %u slots has more than 2^63 bytes",
                     slots);
}

static bool place_array(struct cache_layout *layout, const struct bundle_type *type, uint32_t index,
                        uint32_t array, uint32_t slots) {
    struct cache_array *out = &layout->arrays[layout->array_count++];
    *out =
        (struct cache_array){.from = &type->arrays[array], .type = index, .offset = layout->bytes};
    uint64_t layers = (uint64_t)type->info.layers + type->info.draft_layers;
    return !__builtin_mul_overflow(out->from->slot_bytes, slots, &out->layer_stride) &&
           !__builtin_mul_overflow(out->layer_stride, layers, &out->bytes) &&
           !__builtin_add_overflow(layout->bytes, out->bytes, &layout->bytes) &&
           layout->bytes <= INT64_MAX;
}

kvf_status cache_layout(const struct kvf_bundle *bundle, uint32_t slots, struct cache_layout *out,
                        kvf_error *error) {
    if (slots == 0 || slots > INT32_MAX)
        return error_set(error, KVF_ERROR_ARGUMENT, "a state cache has 1 to %d slots, not %u",
                         INT32_MAX, slots);
    size_t count = 0;
    for (uint32_t i = 0; i < bundle->info.types; i++) count += bundle->types[i].array_count;
    struct cache_layout layout = {.arrays = calloc(count + 1, sizeof *layout.arrays)};
    if (!layout.arrays) return error_memory(error, "laying out the state cache");
    for (uint32_t align = WIDEST_ALIGN; align > 0; align /= 2) {
        for (uint32_t i = 0; i < bundle->info.types; i++) {
            const struct bundle_type *type = &bundle->types[i];
            for (uint32_t j = 0; j < type->array_count; j++) {
                if (type->arrays[j].align != align) continue;
                if (place_array(&layout, type, i, j, slots)) continue;
                cache_layout_free(&layout);
                return too_large(slots, error);
            }
        }
    }
    *out = layout;
    return KVF_OK;
}

void cache_layout_free(struct cache_layout *layout) {
    free(layout->arrays);
    *layout = (struct cache_layout){0};
}

kvf_status kvf_layout_bytes(const kvf_bundle *bundle, uint32_t slots, uint64_t *out,
                            kvf_error *error) {
    if (!bundle || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_layout_bytes: %s is null",
                         bundle ? "out" : "bundle");
    struct cache_layout layout = {0};
    kvf_status status = cache_layout(bundle, slots, &layout, error);
    if (status != KVF_OK) return status;
    *out = layout.bytes;
    cache_layout_free(&layout);
    return KVF_OK;
}
