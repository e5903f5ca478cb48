/* q_norm_rope and inverse_rope, one head after the other. */
#include "heads.h"

#include "convert.h"
#include "vector.h"

#include <math.h>
#include <string.h>

static void load(const uint8_t *from, float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) x[i] = ref_element(REF_BFLOAT, from, i);
}

static void store(uint8_t *to, const float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint16_t value = ref_bf16(x[i]);
        memcpy(to + 2 * (size_t)i, &value, 2);
    }
}

static void norm_and_rotate(const struct ref_type *type, const uint8_t *from, const float *table,
                            uint8_t *to) {
    uint32_t nope = type->head_dim - type->rope_dim;
    float x[REF_MAX_DIM];
    load(from, x, type->head_dim);
    float mean = ref_sum_squares(x, type->head_dim) / (float)type->head_dim;
    float r = 1 / sqrtf(mean + type->norm_eps);
    for (uint32_t i = 0; i < type->head_dim; i++) x[i] *= r;
    if (type->round_before_rope) ref_round_bf16(x, type->head_dim);
    ref_rotate(x + nope, type->rope_dim, table);
    store(to, x, type->head_dim);
}

static void rotate_back(const struct ref_type *type, const float *table, uint8_t *head) {
    uint32_t rope = type->rope_dim;
    const float *cosine = table, *sine = table + rope / 2;
    uint8_t *at = head + 2 * (size_t)(type->head_dim - rope);
    float x[REF_MAX_DIM];
    load(at, x, rope);
    for (uint32_t i = 0; i < rope; i += 2) {
        float a = x[i], b = x[i + 1], c = cosine[i / 2], s = sine[i / 2];
        x[i] = a * c + b * s;
        x[i + 1] = b * c - a * s;
    }
    store(at, x, rope);
}

/* The table's row for a token, or null where there is none. */
static const float *table_row(const struct ref_type *type, const struct ref_heads *args,
                              uint32_t t) {
    int32_t position = args->position[t];
    if (position < 0 || (uint32_t)position >= args->positions) return NULL;
    return args->rope + (uint64_t)position * type->rope_dim;
}

void ref_q_norm_rope(const struct ref_type *type, const struct ref_heads *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        const float *table = table_row(type, args, t);
        for (uint32_t h = 0; h < args->heads && table; h++) {
            uint64_t head = 2 * (uint64_t)h * type->head_dim;
            norm_and_rotate(type, args->q + t * args->q_stride + head, table,
                            args->out + t * args->out_stride + head);
        }
    }
}

void ref_inverse_rope(const struct ref_type *type, const struct ref_heads *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        const float *table = table_row(type, args, t);
        for (uint32_t h = 0; h < args->heads && table; h++)
            rotate_back(type, table,
                        args->out + t * args->out_stride + 2 * (uint64_t)h * type->head_dim);
    }
}
