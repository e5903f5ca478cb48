/* What the projections would give, and weights: hashes, so that any two runs agree. */
#include "step.h"

#include "reference/convert.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Element i of a stream is the i-th 16 bits that follow from the start: a number in [-1, 1). */
static float number(uint64_t start, uint32_t i) {
    uint64_t bits = mix(start + (i / 4) * 0x9e3779b97f4a7c15u);
    return (float)(int16_t)(bits >> 16 * (i % 4)) * 0x1p-15f;
}

void step_input_row(enum step_input input, uint32_t layer, int32_t id, uint32_t position,
                    enum ref_dtype dtype, uint32_t count, void *out) {
    uint64_t start =
        mix(mix((uint64_t)(uint32_t)id << 32 | position) + (uint64_t)layer * 64 + input + 1);
    float size = input == STEP_SCORE || input == STEP_INDEX_SCORE ? 3 : 1;
    uint8_t *to = out;
    for (uint32_t i = 0; i < count; i++) {
        float value = size * number(start, i);
        uint16_t half = ref_bf16(value);
        if (dtype == REF_F32)
            memcpy(to + 4 * (size_t)i, &value, 4);
        else
            memcpy(to + 2 * (size_t)i, &half, 2);
    }
}

void step_weight_row(enum step_weight weight, uint32_t layer, uint32_t count, float *out) {
    uint64_t start = mix(0x5eed + layer * 64 + weight);
    bool norm = weight == STEP_NORM || weight == STEP_ENTRY_NORM || weight == STEP_INDEX_NORM;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = norm ? 1 + number(start, i) / 4 : number(start, i);
        if (weight == STEP_SINK && i == layer % count) out[i] = -INFINITY;
    }
}
