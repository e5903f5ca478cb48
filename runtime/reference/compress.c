/*
 * compress: the rows of each group that completes become one entry. Per channel a softmax over the
 * scores weighs the values; then norm, rotation at the group's first position, and the row format.
 */
#include "convert.h"
#include "reference.h"
#include "vector.h"

#include <math.h>
#include <string.h>

#define LOG2E 0x1.715476p+0f

/* The token that completes a group, and what its rows need. */
struct group {
    uint32_t token;
    int32_t request, position, slot;
};

/* One row of the group: where its value and score come from. */
struct source {
    bool present;         /* the position is not before the sequence */
    bool launched;        /* from this launch; else from the tail ring */
    const uint8_t *k, *z; /* the row's first element of its stream */
    const float *ape;     /* for its columns */
};

static uint32_t columns(const struct ref_type *type, const struct ref_compress *args) {
    return (1 + type->overlap) * args->dim;
}

static uint32_t group_rows(const struct ref_type *type) {
    return (1 + type->overlap) * type->ratio;
}

static struct source find_row(const struct ref_type *type, const struct ref_compress *args,
                              const struct group *group, uint32_t q) {
    int64_t before = (int64_t)group_rows(type) - 1 - q; /* tokens before the group's last */
    int64_t position = group->position - before, token = (int64_t)group->token - before;
    bool stream_b = type->overlap && q < type->ratio;
    uint32_t first = type->overlap && !stream_b ? args->dim : 0; /* column */
    struct source out = {.present = position >= 0};
    if (!out.present) return out;
    out.ape = args->ape + (uint64_t)(position % type->ratio) * columns(type, args) + first;
    out.launched = token >= args->batch.cu_tokens[group->request];
    if (out.launched) {
        uint64_t at = (uint64_t)first * (type->input == REF_F32 ? 4 : 2);
        out.k = args->kv + (uint64_t)token * args->kv_stride + at;
        out.z = args->score + (uint64_t)token * args->score_stride + at;
        return out;
    }
    const struct ref_array *k = stream_b ? &args->kb : &args->ka;
    const struct ref_array *z = stream_b ? &args->zb : &args->za;
    uint64_t at =
        (uint64_t)(position % ref_tail_ring(type)) * args->dim * (type->state == REF_F32 ? 4 : 2);
    out.k = k->base + (uint64_t)group->slot * k->stride + at;
    out.z = z->base + (uint64_t)group->slot * z->stride + at;
    return out;
}

/* What a number becomes when it is stored in the tail and read back. */
static float through(const struct ref_type *type, float x) {
    return type->state == REF_F32 ? x : ref_bf16_value(ref_bf16(x));
}

static float row_value(const struct ref_type *type, const struct source *row, uint32_t channel) {
    if (!row->launched) return ref_element(type->state, row->k, channel);
    return through(type, ref_element(type->input, row->k, channel));
}

static float row_score(const struct ref_type *type, const struct source *row, uint32_t channel) {
    float ape = row->ape[channel];
    if (!row->launched) {
        float stored = ref_element(type->state, row->z, channel);
        return type->ape_on_write ? stored : stored + ape;
    }
    float score = ref_element(type->input, row->z, channel);
    return type->ape_on_write ? through(type, score + ape) : through(type, score) + ape;
}

static float pool_channel(const struct ref_type *type, const struct source *rows,
                          uint32_t channel) {
    float most = -INFINITY, sum = 0, total = 0;
    for (uint32_t q = 0; q < group_rows(type); q++) {
        float score = rows[q].present ? row_score(type, &rows[q], channel) : -INFINITY;
        if (score > most) most = score;
    }
    if (most == -INFINITY) most = 0;
    for (uint32_t q = 0; q < group_rows(type); q++) {
        if (!rows[q].present) continue;
        float weight = ref_exp2((row_score(type, &rows[q], channel) - most) * LOG2E);
        sum += weight;
        total += weight * row_value(type, &rows[q], channel);
    }
    return sum == 0 ? 0 : total / sum;
}

static struct group group_of(const struct ref_compress *args, uint32_t t) {
    int32_t request = args->batch.batch_id[t];
    return (struct group){t, request, args->batch.position[t], args->batch.state_slot[request]};
}

void ref_compress_pool(const struct ref_type *type, const struct ref_compress *args, uint32_t t,
                       float *pooled) {
    if (ref_keeps_running(type)) {
        const struct ref_running running = {
            args->batch,        args->dim, args->kv,   args->score, args->kv_stride,
            args->score_stride, args->ape, args->most, args->sum,   args->total};
        ref_running_pool(type, &running, t, pooled);
        return;
    }
    struct source rows[2 * REF_MAX_RATIO];
    struct group group = group_of(args, t);
    for (uint32_t q = 0; q < group_rows(type); q++) rows[q] = find_row(type, args, &group, q);
    for (uint32_t c = 0; c < args->dim; c++) pooled[c] = pool_channel(type, rows, c);
}

/* From the pooled values to the bf16 row that is stored. */
static void finish_row(const struct ref_type *type, const struct ref_compress *args,
                       const float *table, float *x, uint16_t *row) {
    uint32_t nope = args->dim - type->rope_dim;
    if (type->round_before_norm) ref_round_bf16(x, args->dim);
    ref_rms_norm(x, args->dim, args->norm_weight, type->norm_eps);
    for (uint32_t i = 0; i < nope; i++) x[i] = ref_bf16_value(ref_bf16(x[i]));
    if (type->round_before_rope) ref_round_bf16(x + nope, type->rope_dim);
    ref_rotate(x + nope, type->rope_dim, table);
    ref_round_bf16(x, args->dim);
    if (args->index && type->hadamard) ref_hadamard(x, args->dim);
    for (uint32_t i = 0; i < args->dim; i++) row[i] = ref_bf16(x[i]);
}

/* Whether token t completes a group that is to be written, and to which page. */
static bool completes(const struct ref_type *type, const struct ref_compress *args, uint32_t t,
                      int32_t *page) {
    const struct ref_batch *batch = &args->batch;
    int32_t request = batch->batch_id[t], position = batch->position[t];
    if (request < 0 || (uint32_t)request >= batch->requests) return false;
    if (position < 0 || (uint32_t)position >= batch->positions) return false;
    if (((uint32_t)position + 1) % type->ratio || position < args->write_from[request])
        return false;
    int32_t slot = batch->state_slot[request];
    uint32_t column = (uint32_t)position / type->block;
    if (slot < 0 || (uint32_t)slot >= batch->slots || column >= args->table_stride) return false;
    *page = args->block_table[(uint64_t)request * args->table_stride + column];
    return *page >= 0 && (uint32_t)*page < args->pages;
}

void ref_compress(const struct ref_type *type, const struct ref_compress *args) {
    struct ref_type stored = *type;
    float x[REF_MAX_DIM];
    uint16_t row[REF_MAX_DIM];
    stored.format = args->format;
    stored.head_dim = args->dim;
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        int32_t page;
        if (!completes(type, args, t, &page)) continue;
        uint32_t position = (uint32_t)args->batch.position[t];
        uint64_t first = position + 1 - type->ratio;
        ref_compress_pool(type, args, t, x);
        finish_row(type, args, args->rope + first * type->rope_dim, x, row);
        ref_row_store(&stored, &args->place, (uint64_t)page, position % type->block / type->ratio,
                      row);
    }
}
