/* tail_append: a token's compressor inputs into its row of the tail ring, for later groups. */
#include "batch.h"
#include "convert.h"
#include "reference.h"
#include "vector.h"

#include <string.h>

uint32_t ref_tail_ring(const struct ref_type *type) {
    return (1 + type->overlap) * type->ratio + type->drafts;
}

/* Store a number; where the dtype stays the same and nothing was added its bits are kept. */
static void store(const struct ref_type *type, uint8_t *to, uint32_t index, const uint8_t *from,
                  uint32_t column, const float *add) {
    size_t size = type->state == REF_F32 ? 4 : 2;
    if (type->state == type->input && !add) {
        memcpy(to + size * index, from + size * column, size);
        return;
    }
    float value = ref_element(type->input, from, column);
    if (add) value = ref_one_nan(value + add[column]);
    uint16_t half = ref_bf16(value);
    memcpy(to + size * index, type->state == REF_F32 ? (void *)&value : (void *)&half, size);
}

/* One stream of a token: `first` is its first column, `row` its row of the ring. */
static void append(const struct ref_type *type, const struct ref_tail_append *args, uint32_t t,
                   int32_t slot, uint32_t first, struct ref_array k, struct ref_array z) {
    uint32_t dim = args->dim, columns = (1 + type->overlap) * dim;
    uint32_t position = (uint32_t)args->batch.position[t];
    uint64_t row =
        (uint64_t)(position % ref_tail_ring(type)) * dim * (type->state == REF_F32 ? 4 : 2);
    const float *ape =
        type->ape_on_write ? args->ape + (size_t)(position % type->ratio) * columns : NULL;
    const uint8_t *kv = args->kv + t * args->kv_stride;
    const uint8_t *score = args->score + t * args->score_stride;
    for (uint32_t c = 0; c < dim; c++) {
        store(type, k.base + (uint64_t)slot * k.stride + row, c, kv, first + c, NULL);
        store(type, z.base + (uint64_t)slot * z.stride + row, c, score, first + c, ape);
    }
}

void ref_tail_append(const struct ref_type *type, const struct ref_tail_append *args) {
    if (ref_keeps_running(type)) {
        const struct ref_running running = {
            args->batch,        args->dim, args->kv,   args->score, args->kv_stride,
            args->score_stride, args->ape, args->most, args->sum,   args->total};
        ref_running_append(type, &running, args->len);
        return;
    }
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        int32_t request, slot;
        if (!ref_survives(&args->batch, t, ref_tail_ring(type), &request, &slot)) continue;
        if (type->overlap) append(type, args, t, slot, 0, args->kb, args->zb);
        append(type, args, t, slot, type->overlap ? args->dim : 0, args->ka, args->za);
        if (!ref_is_last(&args->batch, t, request)) continue;
        uint32_t position = (uint32_t)args->batch.position[t];
        ref_put_i32(args->len, slot, 0, (int32_t)((position + 1) % type->ratio));
    }
}
