#include "batch.h"

#include <string.h>

bool ref_survives(const struct ref_batch *batch, uint32_t t, uint32_t ring, int32_t *request,
                  int32_t *slot) {
    int32_t b = batch->batch_id[t];
    if (b < 0 || (uint32_t)b >= batch->requests || batch->position[t] < 0) return false;
    *request = b;
    *slot = batch->state_slot[b];
    if (*slot < 0 || (uint32_t)*slot >= batch->slots) return false;
    return (int64_t)t >= (int64_t)batch->cu_tokens[b + 1] - ring;
}

bool ref_is_last(const struct ref_batch *batch, uint32_t t, int32_t request) {
    return (int64_t)t + 1 == batch->cu_tokens[request + 1];
}

void ref_put_i32(struct ref_array array, int32_t slot, uint32_t index, int32_t value) {
    memcpy(array.base + (uint64_t)slot * array.stride + 4 * (uint64_t)index, &value, 4);
}
