#include <stdlib.h>

#include "../error.h"
#include "cache.h"

bool slot_map_create(struct slot_map *map, uint32_t slots) {
    uint32_t words = slots / 64 + (slots % 64 != 0);
    *map = (struct slot_map){.slots = slots, .free = slots};
    map->words = malloc(words * sizeof *map->words);
    if (!map->words) return false;
    for (uint32_t i = 0; i < words; i++) map->words[i] = UINT64_MAX;
    if (slots % 64) map->words[words - 1] = ((uint64_t)1 << slots % 64) - 1;
    return true;
}

void slot_map_destroy(struct slot_map *map) {
    free(map->words);
    *map = (struct slot_map){0};
}

int32_t slot_map_take(struct slot_map *map) {
    if (map->free == 0) return -1;
    while (map->words[map->first] == 0) map->first++;
    uint32_t bit = (uint32_t)__builtin_ctzll(map->words[map->first]);
    map->words[map->first] &= map->words[map->first] - 1;
    map->free--;
    return (int32_t)(map->first * 64 + bit);
}

bool slot_map_is_taken(const struct slot_map *map, int32_t slot) {
    if (slot < 0 || (uint32_t)slot >= map->slots) return false;
    return !(map->words[slot / 64] >> slot % 64 & 1);
}

void slot_map_give(struct slot_map *map, int32_t slot) {
    uint32_t word = (uint32_t)slot / 64;
    map->words[word] |= (uint64_t)1 << slot % 64;
    if (word < map->first) map->first = word;
    map->free++;
}

kvf_status kvf_slot_acquire(kvf_cache *cache, int32_t *slot, kvf_error *error) {
    if (!cache || !slot)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_slot_acquire: %s is null",
                         cache ? "slot" : "cache");
    int32_t taken = slot_map_take(&cache->map);
    if (taken < 0)
        return error_set(error, KVF_ERROR_SLOTS, "all %u request slots are taken",
                         cache->map.slots);
    *slot = taken;
    return KVF_OK;
}

kvf_status kvf_slot_release(kvf_cache *cache, int32_t slot, kvf_error *error) {
    if (!cache) return error_set(error, KVF_ERROR_ARGUMENT, "kvf_slot_release: cache is null");
    if (slot < 0 || (uint32_t)slot >= cache->map.slots)
        return error_set(error, KVF_ERROR_ARGUMENT, "slot %d is not one of 0 to %u", slot,
                         cache->map.slots - 1);
    if (!slot_map_is_taken(&cache->map, slot))
        return error_set(error, KVF_ERROR_STATE, "slot %d is not taken: released twice?", slot);
    slot_map_give(&cache->map, slot);
    return KVF_OK;
}

uint32_t kvf_slots_free(const kvf_cache *cache) {
    return cache->map.free;
}

kvf_status kvf_slots_check(const kvf_cache *cache, const int32_t *slots, uint32_t count,
                           kvf_error *error) {
    if (!cache || (!slots && count))
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_slots_check: %s is null",
                         cache ? "slots" : "cache");
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i] == -1 || slot_map_is_taken(&cache->map, slots[i])) continue;
        if (slots[i] < 0 || (uint32_t)slots[i] >= cache->map.slots)
            return error_set(error, KVF_ERROR_ARGUMENT, "entry %u: slot %d is not one of 0 to %u",
                             i, slots[i], cache->map.slots - 1);
        return error_set(error, KVF_ERROR_STATE, "entry %u: slot %d is not taken", i, slots[i]);
    }
    return KVF_OK;
}
