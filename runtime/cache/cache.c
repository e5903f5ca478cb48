#include "cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../error.h"

enum { BOUND_ALIGN = 256 }; /* what the driver's own allocations have */

static kvf_status check_bound(const struct cache_layout *layout, const kvf_cache_options *options,
                              kvf_error *error) {
    if (options->memory % BOUND_ALIGN)
        return error_set(error, KVF_ERROR_ARGUMENT,
                         "the cache's memory is at 0x%" PRIx64 ", not a multiple of %d",
                         options->memory, BOUND_ALIGN);
    if (options->bytes < layout->bytes)
        return error_set(error, KVF_ERROR_ARGUMENT,
                         "the cache's memory has %" PRIu64 " bytes, %u slots take %" PRIu64,
                         options->bytes, options->slots, layout->bytes);
    return KVF_OK;
}

static kvf_status take_memory(struct kvf_cache *cache, const kvf_cache_options *options,
                              kvf_error *error) {
    if (options->memory) {
        cache->memory = options->memory;
        return check_bound(&cache->layout, options, error);
    }
    if (cache->layout.bytes == 0) return KVF_OK; /* no type has state */
    const struct kvf_driver *driver = cache->library->device->driver;
    CUresult code = driver->cuMemAlloc_v2(&cache->memory, cache->layout.bytes);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuMemAlloc", "allocating the state cache", error);
    cache->owned = true;
    return KVF_OK;
}

static CUresult fill(const struct kvf_driver *driver, CUdeviceptr to, uint64_t bytes,
                     struct dtype_fill value, kvf_stream stream) {
    switch (value.width) {
    case 4: return driver->cuMemsetD32Async(to, value.bits, bytes / 4, stream);
    case 2: return driver->cuMemsetD16Async(to, (unsigned short)value.bits, bytes / 2, stream);
    default: return driver->cuMemsetD8Async(to, (unsigned char)value.bits, bytes, stream);
    }
}

static kvf_status set_initial(const struct kvf_cache *cache, kvf_stream stream, kvf_error *error) {
    const struct kvf_driver *driver = cache->library->device->driver;
    for (uint32_t i = 0; i < cache->layout.array_count; i++) {
        const struct cache_array *array = &cache->layout.arrays[i];
        if (array->bytes == 0) continue; /* a type without layers */
        CUresult code =
            fill(driver, cache->memory + array->offset, array->bytes, array->from->fill, stream);
        if (code != CUDA_SUCCESS)
            return driver_fail(driver, code, "cuMemsetAsync",
                               "setting the state cache's initial values", error);
    }
    return KVF_OK;
}

/* Undo everything. In context. */
static void release(struct kvf_cache *cache) {
    if (cache->owned) (void)cache->library->device->driver->cuMemFree_v2(cache->memory);
    cache_layout_free(&cache->layout);
    slot_map_destroy(&cache->map);
    free(cache);
}

static kvf_status create(struct kvf_cache *cache, const kvf_cache_options *options,
                         kvf_stream stream, kvf_error *error) {
    kvf_status status =
        device_refuse_capture(cache->library->device, stream, "kvf_cache_create", error);
    if (status == KVF_OK)
        status = cache_layout(cache->library->bundle, options->slots, &cache->layout, error);
    if (status == KVF_OK && !slot_map_create(&cache->map, options->slots))
        status = error_memory(error, "creating the state cache");
    if (status == KVF_OK) status = take_memory(cache, options, error);
    if (status == KVF_OK) status = set_initial(cache, stream, error);
    return status;
}

kvf_status kvf_cache_create(const kvf_library *library, const kvf_cache_options *options,
                            kvf_stream stream, kvf_cache **out, kvf_error *error) {
    if (!library || !options || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_cache_create: %s is null",
                         !library   ? "library"
                         : !options ? "options"
                                    : "out");
    struct kvf_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return error_memory(error, "creating the state cache");
    cache->library = library;
    bool pushed;
    kvf_status status = device_enter(library->device, &pushed, error);
    if (status != KVF_OK) {
        free(cache);
        return status;
    }
    status = create(cache, options, stream, error);
    if (status == KVF_OK)
        *out = cache;
    else
        release(cache);
    device_leave(library->device, pushed);
    return status;
}

void kvf_cache_destroy(kvf_cache *cache) {
    if (!cache) return;
    const struct kvf_device *device = cache->library->device;
    bool pushed = false;
    (void)device_enter(device, &pushed, NULL);
    release(cache);
    device_leave(device, pushed);
}

uint64_t kvf_cache_bytes(const kvf_cache *cache) {
    return cache->layout.bytes;
}

static const struct cache_array *find_array(const struct kvf_cache *cache, uint32_t type,
                                            const char *name) {
    for (uint32_t i = 0; i < cache->layout.array_count; i++) {
        const struct cache_array *array = &cache->layout.arrays[i];
        if (array->type == type && strcmp(array->from->name, name) == 0) return array;
    }
    return NULL;
}

kvf_status kvf_cache_array(const kvf_cache *cache, uint32_t layer, const char *name, kvf_array *out,
                           kvf_error *error) {
    if (!cache || !name || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_cache_array: an argument is null");
    const struct kvf_bundle *bundle = cache->library->bundle;
    uint32_t type, layer_of_type;
    if (kvf_bundle_layer(bundle, layer, &type, &layer_of_type) != KVF_OK)
        return error_set(error, KVF_ERROR_NOT_FOUND, "there is no layer %u of %u", layer,
                         bundle->info.layers + bundle->info.draft_layers);
    const struct cache_array *array = find_array(cache, type, name);
    if (!array)
        return error_set(error, KVF_ERROR_NOT_FOUND, "layer %u (%s) has no state array \"%.60s\"",
                         layer, bundle->types[type].info.name, name);
    *out = (kvf_array){
        .name = array->from->name,
        .dtype = dtype_name(array->from->dtype),
        .base = cache->memory + array->offset + layer_of_type * array->layer_stride,
        .slot_stride = array->from->slot_bytes,
        .layer_stride = array->layer_stride,
        .bytes = array->layer_stride,
        .init = array->from->init,
    };
    return KVF_OK;
}
