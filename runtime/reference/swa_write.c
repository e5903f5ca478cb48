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
    float x[REF_MAX_DIM] = {0};
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

/* Whether token t is real and has a row in the rope table. */
static bool is_real(const struct ref_batch *batch, uint32_t t) {
    int32_t request = batch->batch_id[t], position = batch->position[t];
    return request >= 0 && (uint32_t)request < batch->requests && position >= 0 &&
           (uint32_t)position < batch->positions;
}

/* Every real token has a row in the workspace, wherever else it is kept. */
static void store_workspace(const struct ref_type *type, const struct ref_place *workspace,
                            uint32_t t, int32_t request, const uint16_t *row) {
    if (!workspace->rows) return;
    uint64_t number = ref_workspace_row(type, t, request);
    ref_row_store(type, workspace, number / workspace->rows, (uint32_t)(number % workspace->rows),
                  row);
}

void ref_swa_write(const struct ref_type *type, const struct ref_swa_write *args) {
    const struct ref_batch *batch = &args->batch;
    uint16_t row[REF_MAX_DIM];
    for (uint32_t t = 0; t < batch->tokens; t++) {
        if (!is_real(batch, t)) continue;
        int32_t position = batch->position[t], request, slot;
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

void ref_swa_write_paged(const struct ref_type *type, const struct ref_swa_write_paged *args) {
    const struct ref_batch *batch = &args->batch;
    const struct ref_table table = {args->window_table, args->table_stride, args->pages};
    uint16_t row[REF_MAX_DIM];
    for (uint32_t t = 0; t < batch->tokens; t++) {
        if (!is_real(batch, t)) continue;
        int32_t request = batch->batch_id[t], position = batch->position[t];
        make_row(type, args->latent + t * args->latent_stride, args->norm_weight,
                 args->rope + (uint64_t)position * type->rope_dim, row);
        store_workspace(type, &args->workspace, t, request, row);
        if (position < args->write_from[request]) continue;
        int32_t page = ref_table_page(&table, request, (uint32_t)position / type->block);
        if (page < 0) continue;
        ref_row_store(type, &args->window, (uint64_t)page, (uint32_t)position % type->block, row);
    }
}
