/* The lightning indexer: its queries, the scores of all visible entries, and the best of them. */
#include "convert.h"
#include "reference.h"
#include "tensor.h"
#include "vector.h"

#include <math.h>
#include <string.h>

/* A vector as its index row would be read back. */
static void requantise(const struct ref_type *type, const struct ref_indexer *indexer,
                       uint16_t *row) {
    uint8_t page[2 * REF_MAX_DIM];
    struct ref_type stored = *type;
    struct ref_place place = {.plane = {{page, 0}}, .rows = 1};
    stored.format = indexer->format;
    stored.head_dim = indexer->dim;
    ref_row_store(&stored, &place, 0, 0, row);
    ref_row_load(&stored, &place, 0, 0, row);
}

static void query_head(const struct ref_type *type, const struct ref_indexer *indexer,
                       const uint8_t *from, const float *table, uint16_t *row) {
    uint32_t dim = indexer->dim, nope = dim - type->rope_dim;
    float x[REF_MAX_DIM];
    memcpy(row, from, 2 * (size_t)dim);
    for (uint32_t i = 0; i < dim; i++) x[i] = ref_bf16_value(row[i]);
    ref_rotate(x + nope, type->rope_dim, table);
    for (uint32_t i = nope; i < dim; i++) row[i] = ref_bf16(x[i]);
    if (type->hadamard) {
        for (uint32_t i = 0; i < dim; i++) x[i] = ref_bf16_value(row[i]);
        ref_hadamard(x, dim);
        for (uint32_t i = 0; i < dim; i++) row[i] = ref_bf16(x[i]);
    }
    requantise(type, indexer, row);
}

void ref_indexer_query(const struct ref_type *type, const struct ref_indexer *indexer,
                       const struct ref_indexer_query *args) {
    uint32_t heads = indexer->heads;
    float factor = (float)(1 / sqrt((double)indexer->dim) / sqrt((double)heads));
    for (uint32_t t = 0; t < args->tokens; t++) {
        if (args->position[t] < 0 || (uint32_t)args->position[t] >= args->positions) continue;
        const float *table = args->rope + (uint64_t)args->position[t] * type->rope_dim;
        for (uint32_t h = 0; h < heads; h++) {
            uint64_t at = (uint64_t)t * heads + h;
            query_head(type, indexer, args->q + t * args->q_stride + (uint64_t)h * indexer->dim * 2,
                       table, args->q_out + at * indexer->dim);
            float weight = ref_element(REF_F32, args->weights + t * args->weights_stride, h);
            args->w_out[at] = ref_one_nan(weight * factor);
        }
    }
}

/* Heads 16 i + g and 16 i + 8 + g belong to group g; groups meet over g xor 4, 2, 1. */
static float score_entry(const struct ref_indexer *indexer, const uint16_t *q, const float *w,
                         const uint16_t *key) {
    float group[8] = {0}, other[8];
    for (uint32_t h = 0; h < indexer->heads; h++) {
        float dot = ref_mma(indexer->chip, q + (uint64_t)h * indexer->dim, key, 1, indexer->dim, 0);
        group[h % 8] += w[h] * ref_max(dot, 0);
    }
    for (uint32_t m = 4; m >= 1; m /= 2) {
        memcpy(other, group, sizeof other);
        for (uint32_t g = 0; g < 8; g++) group[g] += other[g ^ m];
    }
    return ref_one_nan(group[0]);
}

/* The page of an entry, -1 where it is not backed. */
static int32_t entry_page(const struct ref_table *table, int32_t request, uint32_t column) {
    if (column >= table->stride) return -1;
    int32_t page = table->pages_of[(uint64_t)request * table->stride + column];
    return page >= 0 && (uint32_t)page < table->pages ? page : -1;
}

void ref_indexer_scores(const struct ref_type *type, const struct ref_indexer *indexer,
                        const struct ref_indexer_scores *args) {
    struct ref_type stored = *type;
    uint16_t key[REF_MAX_DIM];
    stored.format = indexer->format;
    stored.head_dim = indexer->dim;
    for (uint32_t t = 0; t < args->batch.tokens; t++) {
        int32_t request = args->batch.batch_id[t], position = args->batch.position[t];
        if (request < 0 || (uint32_t)request >= args->batch.requests || position < 0) continue;
        uint32_t visible = ((uint32_t)position + 1) / type->ratio;
        for (uint32_t j = args->first; j < visible && j - args->first < args->scores_stride; j++) {
            uint32_t rows = args->place.rows;
            int32_t page = entry_page(&args->block, request, j / rows);
            float score = -INFINITY;
            if (page >= 0) {
                ref_row_load(&stored, &args->place, (uint64_t)page, j % rows, key);
                score = score_entry(indexer, args->q + (uint64_t)t * indexer->heads * indexer->dim,
                                    args->w + (uint64_t)t * indexer->heads, key);
            }
            args->scores[(uint64_t)t * args->scores_stride + j - args->first] = score;
        }
    }
}

/* Whether entry a goes before entry b: larger score, NaN last, ties to the lower entry. */
static bool before(const float *scores, uint32_t a, uint32_t b) {
    bool a_is_nan = isnan(scores[a]), b_is_nan = isnan(scores[b]);
    if (a_is_nan != b_is_nan) return b_is_nan;
    if (!a_is_nan && scores[a] != scores[b]) return scores[a] > scores[b];
    return a < b;
}

/* By definition: an entry is chosen if fewer than `count` others go before it. */
static uint32_t choose(const float *scores, uint32_t n, uint32_t count, int32_t *out) {
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ahead = 0;
        for (uint32_t j = 0; j < n && ahead < count; j++) ahead += before(scores, j, i);
        if (ahead < count) out[chosen++] = (int32_t)i;
    }
    return chosen;
}

void ref_indexer_topk(const struct ref_type *type, const struct ref_indexer *indexer,
                      const struct ref_indexer_topk *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        int32_t position = args->position[t];
        uint32_t n = position < 0 ? 0 : ((uint32_t)position + 1) / type->ratio;
        uint32_t count = indexer->topk < args->topk_stride ? indexer->topk : args->topk_stride;
        if (n > args->scores_stride) n = args->scores_stride;
        if (count > n) count = n;
        args->topk_count[t] = (int32_t)choose(args->scores + (uint64_t)t * args->scores_stride, n,
                                              count, args->topk + (uint64_t)t * args->topk_stride);
    }
}
