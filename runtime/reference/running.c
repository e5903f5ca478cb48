/*
 * The running softmax of compressors without overlap: of a group that is not complete, per channel
 * the largest score so far, the sum of the weights relative to it and the weighted sum of the
 * values.
 */
#include "batch.h"
#include "convert.h"
#include "reference.h"
#include "vector.h"

#include <math.h>
#include <string.h>

#define LOG2E 0x1.715476p+0f

bool ref_keeps_running(const struct ref_type *type) {
    return type->online && !type->overlap;
}

struct state {
    float most, sum, total;
};

static void join(struct state *s, float score, float value) {
    if (score > s->most) {
        /* What was summed shrinks; the new row weighs 1. */
        float shrink = ref_exp2((s->most - score) * LOG2E);
        s->sum = s->sum * shrink + 1;
        s->total = s->total * shrink + value;
        s->most = score;
        return;
    }
    float weight = ref_exp2((score - (s->most == -INFINITY ? 0 : s->most)) * LOG2E);
    s->sum = s->sum + weight;
    s->total = s->total + weight * value;
}

static float get(struct ref_array array, int32_t slot, uint32_t channel) {
    return ref_element(REF_F32, array.base + (uint64_t)slot * array.stride, channel);
}

static void put(struct ref_array array, int32_t slot, uint32_t channel, float value) {
    memcpy(array.base + (uint64_t)slot * array.stride + 4 * (uint64_t)channel, &value, 4);
}

/* The state of one channel after token t, counted from its group's first token. */
static struct state after(const struct ref_type *type, const struct ref_running *in, uint32_t t,
                          uint32_t channel) {
    const struct ref_batch *batch = &in->batch;
    int32_t request = batch->batch_id[t], slot = batch->state_slot[request];
    uint32_t before = (uint32_t)batch->position[t] % type->ratio; /* tokens of the group before t */
    uint32_t launched = t - (uint32_t)batch->cu_tokens[request];
    struct state s = {-INFINITY, 0, 0};
    if (before > launched)
        s = (struct state){get(in->most, slot, channel), get(in->sum, slot, channel),
                           get(in->total, slot, channel)};
    uint32_t count = before > launched ? launched : before;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t token = t - count + i;
        const float *ape = in->ape + (size_t)(before - count + i) * in->dim;
        float score = ref_element(type->input, in->score + token * in->score_stride, channel);
        float value = ref_element(type->input, in->kv + token * in->kv_stride, channel);
        join(&s, score + ape[channel], value);
    }
    return s;
}

void ref_running_pool(const struct ref_type *type, const struct ref_running *in, uint32_t t,
                      float *pooled) {
    for (uint32_t c = 0; c < in->dim; c++) {
        struct state s = after(type, in, t, c);
        pooled[c] = s.sum == 0 ? 0 : s.total / s.sum;
    }
}

void ref_running_append(const struct ref_type *type, const struct ref_running *in,
                        struct ref_array len) {
    for (uint32_t t = 0; t < in->batch.tokens; t++) {
        int32_t request, slot;
        if (!ref_survives(&in->batch, t, 1, &request, &slot)) continue;
        for (uint32_t c = 0; c < in->dim; c++) {
            struct state s = after(type, in, t, c);
            put(in->most, slot, c, s.most); /* copied: never computed, so never a new NaN */
            put(in->sum, slot, c, ref_one_nan(s.sum));
            put(in->total, slot, c, ref_one_nan(s.total));
        }
        ref_put_i32(len, slot, 0, (int32_t)(((uint32_t)in->batch.position[t] + 1) % type->ratio));
    }
}
