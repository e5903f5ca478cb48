/* The lightning indexer: queries, scores of every visible entry, and the largest of them. */
#include "indexer.h"

#include "convert.h"
#include "fp32.h"
#include "vector.h"

#include <math.h>
#include <string.h>

/* ---- indexer_query ---- */

/* What a row of the index format would hold of `x`: quantised and read back. */
static void through_format(const struct ref_type *index, uint16_t *x) {
    uint8_t page[2 * REF_MAX_DIM];
    struct ref_place place = {.plane = {{page, 0}}, .rows = 1};
    ref_row_store(index, &place, 0, 0, x);
    ref_row_load(index, &place, 0, 0, x);
}

static void query_head(const struct ref_type *index, const uint8_t *from, const float *table,
                       uint16_t *out) {
    uint32_t dim = index->head_dim;
    float x[REF_MAX_DIM];
    for (uint32_t i = 0; i < dim; i++) x[i] = ref_element(REF_BFLOAT, from, i);
    ref_rotate(x + dim - index->rope_dim, index->rope_dim, table);
    ref_round_bf16(x, dim);
    if (index->hadamard) ref_hadamard(x, dim);
    for (uint32_t i = 0; i < dim; i++) out[i] = ref_bf16(x[i]);
    through_format(index, out);
}

void ref_indexer_query(const struct ref_type *index, const struct ref_indexer_query *args) {
    uint32_t dim = index->head_dim, heads = args->heads;
    float factor = (float)(pow(dim, -.5) * pow(heads, -.5));
    for (uint32_t t = 0; t < args->tokens; t++) {
        int32_t position = args->position[t];
        if (position < 0 || (uint32_t)position >= args->positions) continue;
        const float *table = args->rope + (uint64_t)position * index->rope_dim;
        for (uint32_t h = 0; h < heads; h++) {
            uint64_t at = (uint64_t)t * heads + h;
            float weight = ref_element(REF_F32, args->weights + t * args->weights_stride, h);
            query_head(index, args->q + t * args->q_stride + 2 * (uint64_t)h * dim, table,
                       args->q_out + at * dim);
            args->w_out[at] = ref_one_nan(weight * factor);
        }
    }
}

/* ---- indexer_scores ---- */

/*
 * Eight lane groups share the heads: group g takes rows g and g + 8 of every tile of 16. Then each
 * adds the groups that differ from it in the highest, the middle, the lowest bit.
 */
static float score(const struct ref_type *index, const struct ref_indexer_scores *args, uint32_t t,
                   const uint16_t *key) {
    const uint16_t *q = args->q + (uint64_t)t * args->heads * index->head_dim;
    const float *w = args->w + (uint64_t)t * args->heads;
    float group[8] = {0}, other[8];
    for (uint32_t h = 0; h < args->heads; h++) {
        const uint16_t *head = q + (uint64_t)h * index->head_dim;
        float dot = ref_mma_dot(args->core, head, key, index->head_dim, 0);
        group[h % 8] += w[h] * ref_max(dot, 0);
    }
    for (uint32_t m = 4; m >= 1; m /= 2) {
        memcpy(other, group, sizeof other);
        for (uint32_t g = 0; g < 8; g++) group[g] += other[g ^ m];
    }
    return ref_one_nan(group[0]);
}

static uint32_t visible(const struct ref_type *index, int32_t position) {
    return position < 0 ? 0 : ((uint32_t)position + 1) / index->ratio;
}

void ref_indexer_scores(const struct ref_type *index, const struct ref_indexer_scores *args) {
    uint32_t k = index->block / index->ratio;
    uint16_t key[REF_MAX_DIM];
    for (uint32_t t = 0; t < args->tokens; t++) {
        int32_t b = args->batch_id[t];
        if (b < 0 || (uint32_t)b >= args->requests) continue;
        uint32_t end = visible(index, args->position[t]);
        float *out = args->scores + (uint64_t)t * args->scores_stride;
        for (uint32_t j = args->first; j < end && j - args->first < args->scores_stride; j++) {
            const struct ref_table *table = &args->block_table;
            bool inside = j / k < table->stride;
            int32_t id = inside ? table->pages_of[(uint64_t)b * table->stride + j / k] : -1;
            bool backed = id >= 0 && (uint32_t)id < table->pages;
            if (backed) ref_row_load(index, &args->keys, (uint64_t)id, j % k, key);
            out[j - args->first] = backed ? score(index, args, t, key) : -INFINITY;
        }
    }
}

/* ---- indexer_topk ---- */

/* Unsigned numbers in the order of the scores: NaN, -infinity, ..., both zeros, ..., +infinity. */
static uint32_t order_of(float x) {
    uint32_t bits = ref_bits(x);
    if (isnan(x)) return 0;
    if (x == 0) return 0x80000000;
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

static uint32_t count_from(const float *scores, uint32_t n, uint32_t least) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += order_of(scores[i]) >= least;
    return count;
}

/* The order of the k-th largest of n scores, bit by bit from the top. */
static uint32_t kth_largest(const float *scores, uint32_t n, uint32_t k) {
    uint32_t kth = 0;
    for (uint32_t bit = 0x80000000; bit; bit >>= 1)
        if (count_from(scores, n, kth | bit) >= k) kth |= bit;
    return kth;
}

static void choose(const float *scores, uint32_t n, uint32_t k, int32_t *out) {
    uint32_t kth = k ? kth_largest(scores, n, k) : 0, taken = 0;
    uint32_t above = kth == UINT32_MAX ? 0 : count_from(scores, n, kth + 1);
    uint32_t ties = k - above; /* how many of those equal to the k-th are still wanted */
    for (uint32_t i = 0; i < n && taken < k; i++) {
        uint32_t order = order_of(scores[i]);
        if (order < kth || (order == kth && ties == 0)) continue;
        ties -= order == kth;
        out[taken++] = (int32_t)i;
    }
}

void ref_indexer_topk(const struct ref_type *index, const struct ref_indexer_topk *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        uint32_t n = visible(index, args->position[t]);
        if (n > args->scores_stride) n = args->scores_stride;
        uint32_t k = n < args->topk ? n : args->topk;
        if (k > args->topk_stride) k = args->topk_stride;
        choose(args->scores + (uint64_t)t * args->scores_stride, n, k,
               args->out + (uint64_t)t * args->topk_stride);
        args->topk_count[t] = (int32_t)k;
    }
}
