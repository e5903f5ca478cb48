/* The dense reference (reference/dense.h) over the whole history of a text, layer by layer. */
#include "decode.h"

#include "reference/convert.h"
#include "reference/dense.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct decode_history {
    struct ref_type type, index;
    kvf_type_info info;
    uint32_t layer, count, heads;
    const int32_t *ids;
    float *rope, *weights[STEP_WEIGHTS];
    uint8_t *inputs[STEP_INPUTS];
    uint64_t stride[STEP_INPUTS];
    struct ref_range *window, *entries, *keys, *scores;
    struct ref_dense_result result;
};

static uint32_t weight_count(const struct decode_history *h, enum step_weight weight) {
    uint32_t wide = 1 + h->info.overlap;
    switch (weight) {
    case STEP_INDEX_NORM: return h->info.indexer_dim;
    case STEP_APE: return h->info.ratio * wide * h->info.head_dim;
    case STEP_INDEX_APE: return h->info.ratio * wide * h->info.indexer_dim;
    case STEP_SINK: return h->heads;
    default: return h->info.head_dim;
    }
}

static uint32_t input_count(const struct decode_history *h, enum step_input input) {
    uint32_t wide = 1 + h->info.overlap;
    switch (input) {
    case STEP_LATENT: return h->info.head_dim;
    case STEP_KV:
    case STEP_SCORE: return h->info.ratio ? wide * h->info.head_dim : 0;
    case STEP_INDEX_KV:
    case STEP_INDEX_SCORE: return wide * h->info.indexer_dim;
    default: return 0; /* queries are made when a token is asked for */
    }
}

static bool make_inputs(struct decode_history *h) {
    uint64_t size = h->type.input == REF_F32 ? 4 : 2;
    for (int i = 0; i < STEP_WEIGHTS; i++) {
        uint32_t count = weight_count(h, (enum step_weight)i);
        h->weights[i] = malloc(4 * (size_t)count + 4);
        if (!h->weights[i]) return false;
        step_weight_row((enum step_weight)i, h->layer, count, h->weights[i]);
    }
    for (int i = 0; i < STEP_INPUTS; i++) {
        uint32_t count = input_count(h, (enum step_input)i);
        h->stride[i] = size * count;
        h->inputs[i] = malloc(h->count * h->stride[i] + 4);
        if (!h->inputs[i]) return false;
        for (uint32_t p = 0; p < h->count; p++)
            step_input_row((enum step_input)i, h->layer, h->ids[p], p, h->type.input, count,
                           h->inputs[i] + p * h->stride[i]);
    }
    return true;
}

static void make_rows(struct decode_history *h, uint32_t first_window) {
    uint32_t dim = h->info.head_dim, index = h->info.indexer_dim;
    struct ref_dense_compressor main = {.dim = dim,
                                        .format = h->type.format,
                                        .kv = h->inputs[STEP_KV],
                                        .score = h->inputs[STEP_SCORE],
                                        .kv_stride = h->stride[STEP_KV],
                                        .score_stride = h->stride[STEP_SCORE],
                                        .ape = h->weights[STEP_APE],
                                        .norm_weight = h->weights[STEP_ENTRY_NORM],
                                        .rope = h->rope};
    struct ref_dense_compressor keys = {.dim = index,
                                        .format = h->index.format,
                                        .index = true,
                                        .kv = h->inputs[STEP_INDEX_KV],
                                        .score = h->inputs[STEP_INDEX_SCORE],
                                        .kv_stride = h->stride[STEP_INDEX_KV],
                                        .score_stride = h->stride[STEP_INDEX_SCORE],
                                        .ape = h->weights[STEP_INDEX_APE],
                                        .norm_weight = h->weights[STEP_INDEX_NORM],
                                        .rope = h->rope};
    for (uint32_t p = first_window; p < h->count; p++)
        ref_dense_window_row(&h->type, h->inputs[STEP_LATENT] + p * h->stride[STEP_LATENT],
                             h->weights[STEP_NORM], h->rope + (size_t)p * h->type.rope_dim,
                             h->window + (size_t)p * dim);
    for (uint32_t j = 0; h->info.ratio && j < h->count / h->info.ratio; j++) {
        ref_dense_entry(&h->type, &main, j, h->entries + (size_t)j * dim);
        if (h->info.has_indexer) ref_dense_entry(&h->type, &keys, j, h->keys + (size_t)j * index);
    }
}

static bool make_all(struct decode_history *h, struct session *session, uint32_t type) {
    kvf_error error;
    size_t entries = h->info.ratio ? h->count / h->info.ratio : 0;
    size_t dim = h->info.head_dim, outputs = h->heads * dim;
    h->rope = malloc(4 * (size_t)h->count * h->info.rope_dim);
    h->window = malloc(h->count * dim * sizeof *h->window);
    h->entries = malloc((entries + 1) * dim * sizeof *h->entries);
    h->keys = malloc((entries + 1) * (h->info.indexer_dim + 1) * sizeof *h->keys);
    h->scores = malloc((entries + 1) * sizeof *h->scores);
    h->result.value = malloc(outputs * sizeof(double));
    h->result.radius = malloc(outputs * sizeof(double));
    h->result.noise = malloc(outputs * sizeof(double));
    if (!h->rope || !h->window || !h->entries || !h->keys || !h->scores || !h->result.value ||
        !h->result.radius || !h->result.noise)
        return false;
    if (kvf_rope_table(session->bundle, type, h->count, h->rope, &error))
        return session_fail("rope table", &error);
    return make_inputs(h);
}

struct decode_history *decode_history_open(struct session *session, uint32_t layer,
                                           const int32_t *ids, uint32_t count) {
    struct decode_history *h = calloc(1, sizeof *h);
    uint32_t type, of_type;
    if (!h) return NULL;
    *h = (struct decode_history){
        .layer = layer, .count = count, .heads = session->model.heads, .ids = ids};
    if (kvf_bundle_layer(session->bundle, layer, &type, &of_type) ||
        kvf_bundle_type(session->bundle, type, &h->info) ||
        !rules_of_type(&session->rules, &h->info, &h->type)) {
        free(h);
        return NULL;
    }
    h->index = h->type;
    h->index.head_dim = h->info.indexer_dim;
    h->index.format = rules_index_format(&session->rules, h->info.name);
    if (!make_all(h, session, type)) {
        decode_history_close(h);
        return NULL;
    }
    make_rows(h, 0);
    return h;
}

void decode_history_close(struct decode_history *h) {
    if (!h) return;
    for (int i = 0; i < STEP_WEIGHTS; i++) free(h->weights[i]);
    for (int i = 0; i < STEP_INPUTS; i++) free(h->inputs[i]);
    free(h->rope);
    free(h->window);
    free(h->entries);
    free(h->keys);
    free(h->scores);
    free(h->result.value);
    free(h->result.radius);
    free(h->result.noise);
    free(h);
}

/* What the indexer chose may stand only if no entry it left out has surely a larger score. */
static void check_selection(struct decode_history *h, uint32_t position, const int32_t *chosen,
                            uint32_t count, struct decode_dense *out) {
    uint32_t visible = (position + 1) / h->info.ratio, heads = h->info.indexer_heads;
    size_t numbers = (size_t)heads * h->info.indexer_dim;
    uint8_t *q = malloc(2 * numbers + 4 * (size_t)heads);
    float *weights = q ? (float *)(void *)(q + 2 * numbers) : NULL;
    out->selections++;
    if (!q) {
        out->bad_selections++;
        return;
    }
    step_input_row(STEP_INDEX_QUERY, h->layer, h->ids[position], position, REF_BFLOAT,
                   (uint32_t)numbers, q);
    step_input_row(STEP_INDEX_WEIGHT, h->layer, h->ids[position], position, REF_F32, heads,
                   weights);
    ref_dense_scores(&h->index, heads, q, weights, h->rope + (size_t)position * h->type.rope_dim,
                     h->keys, visible, h->scores);
    out->bad_selections +=
        ref_dense_check_selection(h->scores, visible, h->info.indexer_topk, chosen, count) >= 0;
    free(q);
}

void decode_history_check(struct decode_history *h, uint32_t position, const uint8_t *output,
                          const int32_t *chosen, uint32_t chosen_count, struct decode_dense *out) {
    uint32_t numbers = h->heads * h->info.head_dim;
    struct ref_dense dense = {h->window,
                              h->info.ratio ? h->entries : NULL,
                              h->heads,
                              1 / sqrtf((float)h->info.head_dim),
                              h->weights[STEP_SINK],
                              h->rope};
    uint8_t *q = malloc(2 * (size_t)numbers);
    out->tokens++;
    out->numbers += numbers;
    if (h->info.has_indexer) {
        uint64_t bad = out->bad_selections;
        check_selection(h, position, chosen, chosen_count, out);
        if (out->bad_selections > bad) chosen_count = 0; /* its entries may be anything */
    } else {
        chosen = NULL;
    }
    if (!q) {
        out->outside += numbers;
        return;
    }
    step_input_row(STEP_QUERY, h->layer, h->ids[position], position, REF_BFLOAT, numbers, q);
    ref_dense_attention(&h->type, &dense, position, q, chosen, chosen_count, &h->result);
    free(q);
    for (uint32_t i = 0; i < numbers; i++) {
        uint16_t bits;
        memcpy(&bits, output + 2 * (size_t)i, 2);
        double radius = h->result.radius[i], noise = h->result.noise[i];
        double off = fabs((double)ref_bf16_value(bits) - h->result.value[i]);
        out->outside += !(off <= radius);
        if (radius > 0) out->worst = fmax(out->worst, off / radius);
        out->mean += radius;
        if (noise > 0) out->squares += off * off / (noise * noise);
    }
}

void decode_dense_add(struct decode_dense *sum, const struct decode_dense *part) {
    sum->tokens += part->tokens;
    sum->numbers += part->numbers;
    sum->outside += part->outside;
    sum->selections += part->selections;
    sum->bad_selections += part->bad_selections;
    sum->worst = fmax(sum->worst, part->worst);
    sum->mean += part->mean;
    sum->squares += part->squares;
}

bool decode_dense_holds(const struct decode_dense *dense) {
    return dense->tokens && !dense->outside && !dense->bad_selections &&
           decode_dense_size(dense) < DECODE_DENSE_SIZE;
}

double decode_dense_size(const struct decode_dense *dense) {
    return dense->numbers ? sqrt(dense->squares / (double)dense->numbers) : 0;
}

/* Positions that stand at the edges of groups, blocks and windows, and every 67th. */
static bool is_sample(const struct decode_history *h, uint32_t position) {
    uint32_t edges[] = {h->type.block, h->info.window, 2 * h->type.block};
    for (int i = 0; i < 3; i++)
        if (position + 1 == edges[i] || position == edges[i]) return true;
    return position % 67 == 3 || position + 1 == h->count;
}

bool decode_check_dense(struct decode *decode, struct decode_dense *out) {
    const struct decode_store *store = &decode->store;
    uint32_t total = decode->session->model.layers + decode->session->model.draft_layers;
    *out = (struct decode_dense){0};
    for (uint32_t text = 0; text < DECODE_TEXTS; text += 4)
        for (uint32_t l = 0; l < total && l < store->layers; l++) {
            struct decode_history *h = decode_history_open(
                decode->session, l, decode->texts[text].ids, decode->texts[text].count);
            if (!h) return false;
            for (uint32_t p = 0; p < decode->texts[text].count; p++) {
                uint32_t at = store->first[text] + p, topk = store->topk[l];
                if (!is_sample(h, p)) continue;
                decode_history_check(
                    h, p, store->bytes + at * store->offset[store->layers] + store->offset[l],
                    topk ? store->chosen[l] + (size_t)at * topk : NULL,
                    topk ? (uint32_t)store->chosen_count[l][at] : 0, out);
            }
            decode_history_close(h);
        }
    return true;
}
