/*
 * swa_write: a token's latent becomes its window row. One token after the other; the kernel does
 * them in parallel, which is the same because tokens that are written never share a row.
 */
#include "batch.h"
#include "convert.h"
#include "reference.h"
#include "vector.h"

#include <string.h>

/* The row as bf16 values, rope part rotated. Latents in bf16 without a norm keep their bits. */
static void make_row(const struct ref_type *type, const uint8_t *latent, const float *weight,
                     const float *table, uint16_t *row) {
    uint32_t nope = type->head_dim - type->rope_dim;
    bool computed = type->kv_norm || type->input == REF_F32;
    float x[REF_MAX_DIM];
    for (uint32_t i = 0; i < type->head_dim; i++) x[i] = ref_element(type->input, latent, i);
    if (type->kv_norm) ref_rms_norm(x, type->head_dim, weight, type->norm_eps);
    if (computed) {
        for (uint32_t i = 0; i < nope; i++) row[i] = ref_bf16(x[i]);
        if (type->round_before_rope) ref_round_bf16(x + nope, type->rope_dim);
    } else {
        memcpy(row, latent, 2 * (size_t)nope);
    }
    ref_rotate(x + nope, type->rope_dim, table);
    for (uint32_t i = nope; i < type->head_dim; i++) row[i] = ref_bf16(x[i]);
}

/* Store a token's row in the workspace, if there is one. */
static void store_workspace(const struct ref_type *type, const struct ref_place *workspace,
                            uint32_t t, int32_t request, const uint16_t *row) {
    if (!workspace->rows) return;
    uint32_t number = t + ((uint32_t)request + 1) * (type->window - 1);
    ref_row_store(type, workspace, number / workspace->rows, number % workspace->rows, row);
}

/* A token that is no padding and has a row in the rope table. */
static bool is_real(const struct ref_batch *batch, uint32_t t) {
    int32_t request = batch->batch_id[t], position = batch->position[t];
    return request >= 0 && (uint32_t)request < batch->requests && position >= 0 &&
           (uint32_t)position < batch->positions;
}

void ref_swa_write(const struct ref_type *type, const struct ref_swa_write *args) {
    const struct ref_batch *batch = &args->batch;
    uint16_t row[REF_MAX_DIM];
    for (uint32_t t = 0; t < batch->tokens; t++) {
        int32_t position = batch->position[t], request, slot;
        if (!is_real(batch, t)) continue;
        make_row(type, args->latent + t * args->latent_stride, args->norm_weight,
                 args->rope + (uint64_t)position * type->rope_dim, row);
        store_workspace(type, &args->workspace, t, batch->batch_id[t], row);
        if (!ref_survives(batch, t, type->ring, &request, &slot)) continue;
        uint32_t ring_row = (uint32_t)position % type->ring;
        ref_row_store(type, &args->window, (uint64_t)slot, ring_row, row);
        ref_put_i32(args->swa_pos, slot, ring_row, position);
        if (ref_is_last(batch, t, request))
            ref_put_i32(args->swa_head, slot, 0, (int32_t)(((uint32_t)position + 1) % type->ring));
    }
}

/* The page that holds a position, -1 if the table has none. */
static int32_t find_page(const struct ref_type *type, const struct ref_swa_write_paged *args,
                         int32_t request, int32_t position) {
    uint32_t column = (uint32_t)position / type->block;
    if (column >= args->table_stride) return -1;
    int32_t page = args->window_table[(uint64_t)request * args->table_stride + column];
    return page >= 0 && (uint32_t)page < args->pages ? page : -1;
}

void ref_swa_write_paged(const struct ref_type *type, const struct ref_swa_write_paged *args) {
    const struct ref_batch *batch = &args->batch;
    uint16_t row[REF_MAX_DIM];
    for (uint32_t t = 0; t < batch->tokens; t++) {
        int32_t request = batch->batch_id[t], position = batch->position[t];
        if (!is_real(batch, t)) continue;
        make_row(type, args->latent + t * args->latent_stride, args->norm_weight,
                 args->rope + (uint64_t)position * type->rope_dim, row);
        store_workspace(type, &args->workspace, t, request, row);
        int32_t page = find_page(type, args, request, position);
        if (page < 0 || position < args->write_from[request]) continue;
        ref_row_store(type, &args->window, (uint64_t)page, (uint32_t)position % type->block, row);
    }
}
