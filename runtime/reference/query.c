/* q_norm_rope and inverse_rope: what happens to query heads before, and to outputs after attention.
 */
#include "convert.h"
#include "reference.h"
#include "vector.h"

#include <math.h>
#include <string.h>

static bool has_position(const struct ref_query *args, uint32_t t) {
    return args->position[t] >= 0 && (uint32_t)args->position[t] < args->positions;
}

static const float *table_row(const struct ref_type *type, const struct ref_query *args,
                              uint32_t t) {
    return args->rope + (uint64_t)args->position[t] * type->rope_dim;
}

/* Each element times 1 / sqrt(mean of squares + eps). */
static void normalise(const struct ref_type *type, float *x) {
    float mean = ref_sum_squares(x, type->head_dim) / (float)type->head_dim;
    float scale = 1 / sqrtf(mean + type->norm_eps);
    for (uint32_t i = 0; i < type->head_dim; i++) x[i] *= scale;
}

static void norm_head(const struct ref_type *type, const uint8_t *from, const float *table,
                      uint8_t *to) {
    uint32_t nope = type->head_dim - type->rope_dim;
    float x[REF_MAX_DIM];
    uint16_t out[REF_MAX_DIM];
    for (uint32_t i = 0; i < type->head_dim; i++) x[i] = ref_element(REF_BFLOAT, from, i);
    normalise(type, x);
    if (type->round_before_rope) ref_round_bf16(x + nope, type->rope_dim);
    ref_rotate(x + nope, type->rope_dim, table);
    for (uint32_t i = 0; i < type->head_dim; i++) out[i] = ref_bf16(x[i]);
    memcpy(to, out, 2 * (size_t)type->head_dim);
}

void ref_q_norm_rope(const struct ref_type *type, const struct ref_query *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        if (!has_position(args, t)) continue;
        for (uint32_t h = 0; h < args->heads; h++) {
            uint64_t at = (uint64_t)h * type->head_dim * 2;
            norm_head(type, args->q + t * args->q_stride + at, table_row(type, args, t),
                      args->out + t * args->out_stride + at);
        }
    }
}

/* (a, b) -> (a * cos + b * sin, b * cos - a * sin) on the rotated part. */
static void turn_back(const struct ref_type *type, const float *table, uint8_t *head) {
    uint32_t nope = type->head_dim - type->rope_dim, pairs = type->rope_dim / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        float a = ref_element(REF_BFLOAT, head, nope + 2 * i);
        float b = ref_element(REF_BFLOAT, head, nope + 2 * i + 1);
        float c = table[i], s = table[pairs + i];
        uint16_t pair[2] = {ref_bf16(a * c + b * s), ref_bf16(b * c - a * s)};
        memcpy(head + 2 * (size_t)(nope + 2 * i), pair, sizeof pair);
    }
}

void ref_inverse_rope(const struct ref_type *type, const struct ref_query *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        if (!has_position(args, t)) continue;
        for (uint32_t h = 0; h < args->heads; h++)
            turn_back(type, table_row(type, args, t),
                      args->out + t * args->out_stride + (uint64_t)h * type->head_dim * 2);
    }
}
