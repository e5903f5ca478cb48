/* Opening a stack: the pool, kernels of every type, weights, buffers. */
#include "step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */

/* Kernels a type has; the others stay without. */
static bool open_calls(struct step *step, struct step_type *type) {
    const struct rules *rules = &step->session->rules;
    type->calls = calloc(STEP_JOBS, sizeof *type->calls);
    for (int job = 0; type->calls && job < STEP_JOBS; job++) {
        bool has = false;
        for (size_t i = 0; i < rules->kernel_count && !has; i++)
            has = !strcmp(rules->kernels[i].type, type->info.name) &&
                  !strcmp(rules->kernels[i].name, step_jobs[job]);
        if (has && !call_open(step->session, type->info.name, step_jobs[job], &type->calls[job]))
            return false;
    }
    return type->calls != NULL;
}

static bool make_rope(struct step *step, struct step_type *type, uint32_t index) {
    kvf_error error;
    size_t bytes = 4 * (size_t)step->positions * type->info.rope_dim;
    if (!buffer_create(step->session, "rope", bytes, false, &type->rope)) return false;
    if (kvf_rope_table(step->session->bundle, index, step->positions, buffer_floats(&type->rope),
                       &error))
        return session_fail("rope table", &error);
    return buffer_upload(step->session, &type->rope);
}

/* Ring rows as ids for rows_copy: any run of `ratio` rows, the wrap included, is a part of it. */
static bool make_rings(struct step *step, struct step_type *type) {
    uint32_t count = 2 * type->tail_ring;
    if (!buffer_create(step->session, "rings", 4 * (size_t)count + 16, false, &type->rings))
        return false;
    for (uint32_t i = 0; i < count; i++)
        buffer_ints(&type->rings)[i] = (int32_t)(i % type->tail_ring);
    return buffer_upload(step->session, &type->rings);
}

static void size_lists(struct step *step, struct step_type *type) {
    const kvf_type_info *info = &type->info;
    uint32_t all = info->ratio ? step->positions / info->ratio : 0;
    uint32_t split_rows = step->session->rules.split_rows;
    type->entries = all ? all : 1;
    if (info->has_indexer && all > info->indexer_topk) all = info->indexer_topk;
    type->list_stride = info->window + all;
    type->splits = (type->list_stride + split_rows - 1) / split_rows;
}

static bool open_type(struct step *step, uint32_t index) {
    struct step_type *type = &step->type[index];
    if (kvf_bundle_type(step->session->bundle, index, &type->info) ||
        !rules_of_type(&step->session->rules, &type->info, &type->rules))
        return false;
    type->bundle = &step->session->bundle->types[index];
    type->columns = type->info.head_dim * (1 + type->info.overlap);
    type->index_columns = type->info.indexer_dim * (1 + type->info.overlap);
    type->tail_ring = type->info.ratio ? ref_tail_ring(&type->rules) : 0;
    if (step->options.pool.policy == KVF_POLICY_SHARED && type->info.ratio)
        type->table = step->tables++;
    size_lists(step, type);
    return open_calls(step, type) && make_rope(step, type, index) && make_rings(step, type);
}

/* ---- layers ---- */

static bool make_weights(struct step *step, struct step_layer *layer) {
    const kvf_type_info *info = &layer->type->info;
    const uint32_t counts[STEP_WEIGHTS] = {
        [STEP_NORM] = info->head_dim,
        [STEP_ENTRY_NORM] = info->head_dim,
        [STEP_INDEX_NORM] = info->indexer_dim,
        [STEP_APE] = info->ratio * layer->type->columns,
        [STEP_INDEX_APE] = info->ratio * layer->type->index_columns,
        [STEP_SINK] = step->session->model.heads,
    };
    for (int i = 0; i < STEP_WEIGHTS; i++) {
        struct buffer *b = &layer->weights[i];
        if (!buffer_create(step->session, "weights", 4 * (size_t)counts[i], false, b)) return false;
        step_weight_row((enum step_weight)i, layer->layer, counts[i], buffer_floats(b));
        if (!buffer_upload(step->session, b)) return false;
    }
    return true;
}

/* Bytes of a token's row of every input. */
static void input_bytes(const struct step *step, const struct step_type *type,
                        uint64_t out[STEP_INPUTS]) {
    const kvf_type_info *info = &type->info;
    uint64_t size = type->rules.input == REF_F32 ? 4 : 2;
    bool compressed = info->ratio > 0;
    out[STEP_LATENT] = size * info->head_dim;
    out[STEP_KV] = out[STEP_SCORE] = compressed ? size * type->columns : 0;
    out[STEP_INDEX_KV] = out[STEP_INDEX_SCORE] = size * type->index_columns;
    out[STEP_QUERY] = 2 * (uint64_t)step->session->model.heads * info->head_dim;
    out[STEP_INDEX_QUERY] = 2 * (uint64_t)info->indexer_heads * info->indexer_dim;
    out[STEP_INDEX_WEIGHT] = 4 * (uint64_t)info->indexer_heads;
}

uint64_t step_output_bytes(const struct step *step, const struct step_layer *layer) {
    return 2 * (uint64_t)step->session->model.heads * layer->type->info.head_dim;
}

static bool device(struct step *step, const char *name, uint64_t bytes, struct buffer *out) {
    return buffer_create(step->session, name, bytes, false, out);
}

static bool open_layer(struct step *step, struct step_layer *layer) {
    uint64_t bytes[STEP_INPUTS], tokens = step->options.batch_tokens;
    uint32_t topk = layer->type->info.indexer_topk;
    input_bytes(step, layer->type, bytes);
    for (int i = 0; i < STEP_INPUTS; i++)
        if (!device(step, "input", tokens * bytes[i], &layer->inputs[i])) return false;
    return make_weights(step, layer) &&
           device(step, "output", tokens * step_output_bytes(step, layer), &layer->output) &&
           device(step, "topk", tokens * topk * 4, &layer->chosen) &&
           device(step, "topk_count", tokens * 4, &layer->chosen_count);
}

static bool choose_layers(struct step *step) {
    uint32_t total = step->session->model.layers + step->session->model.draft_layers, type, index;
    for (uint32_t l = 0; l < total; l++) {
        if (kvf_bundle_layer(step->session->bundle, l, &type, &index)) return false;
        bool there = false;
        for (uint32_t i = 0; i < step->layers; i++)
            there = there || step->layer[i].type == &step->type[type];
        if (there && step->options.one_layer_each) continue;
        if (step->layers == STEP_LAYERS) {
            fprintf(stderr, "kvforge-run: more than %d layers to drive\n", STEP_LAYERS);
            return false;
        }
        step->layer[step->layers++] =
            (struct step_layer){.layer = l, .of_type = index, .type = &step->type[type]};
    }
    return true;
}

/* ---- buffers of a step ---- */

static bool open_workspace(struct step *step) {
    uint64_t tokens = step->options.batch_tokens;
    for (uint32_t t = 0; t < step->types; t++) {
        struct step_type *type = &step->type[t];
        const struct bundle_place *place = bundle_place(type->bundle, "window");
        uint64_t rows = tokens + (uint64_t)step->options.batch_requests * (type->info.window - 1);
        uint64_t pages = rows / place->rows + 1;
        for (uint32_t i = 0; i < place->plane_count; i++) {
            struct buffer *b = &step->workspace[t * REF_PLANES + i];
            if (!device(step, "workspace", pages * place->planes[i].page_bytes, b)) return false;
            type->workspace[i] =
                (struct step_array){buffer_address(b), place->planes[i].page_bytes};
        }
    }
    return true;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static bool open_scratch(struct step *step) {
    uint64_t tokens = step->options.batch_tokens, heads = step->session->model.heads;
    uint64_t dim = 0, index = 0, index_heads = 0, entries = 0, list = 0, splits = 0;
    for (uint32_t t = 0; t < step->types; t++) {
        const struct step_type *type = &step->type[t];
        dim = larger(dim, type->info.head_dim);
        index = larger(index, (uint64_t)type->info.indexer_heads * type->info.indexer_dim);
        index_heads = larger(index_heads, type->info.indexer_heads);
        if (type->info.has_indexer) entries = larger(entries, type->entries);
        list = larger(list, type->list_stride);
        splits = larger(splits, type->splits);
    }
    uint64_t parts = tokens * splits * heads;
    return device(step, "q", tokens * heads * dim * 2, &step->q) &&
           device(step, "index_q", tokens * index * 2, &step->index_q) &&
           device(step, "index_w", tokens * index_heads * 4, &step->index_w) &&
           device(step, "scores", tokens * entries * 4, &step->scores) &&
           device(step, "rows", tokens * list * 4, &step->rows) &&
           device(step, "window_count", tokens * 4, &step->window_count) &&
           device(step, "entry_count", tokens * 4, &step->entry_count) &&
           device(step, "part_o", parts * dim * 4, &step->part_o) &&
           device(step, "part_m", parts * 4, &step->part_m) &&
           device(step, "part_l", parts * 4, &step->part_l) &&
           device(step, "lse", tokens * heads * 4, &step->lse);
}

static bool open_tables(struct step *step) {
    uint64_t tokens = step->options.batch_tokens, requests = step->options.batch_requests;
    uint64_t cells = requests * step->columns;
    bool shared = step->options.pool.policy == KVF_POLICY_SHARED;
    bool good = device(step, "batch_id", 4 * tokens, &step->batch_id) &&
                device(step, "position", 4 * tokens, &step->position) &&
                device(step, "batch_id", 4 * tokens, &step->reader_id) &&
                device(step, "position", 4 * tokens, &step->reader_position) &&
                device(step, "cu_tokens", 4 * (requests + 1), &step->cu_tokens) &&
                device(step, "state_slot", 4 * requests * step->parts, &step->state_slot) &&
                device(step, "write_from", 4 * requests, &step->write_from) &&
                device(step, "window_from", 4 * requests, &step->window_from) &&
                device(step, "window_table", 4 * cells, &step->window_table) &&
                device(step, "ids", 16, &step->ids) &&
                device(step, "copy_from", sizeof(int32_t) * KVF_FORK_COPIES, &step->copy_from) &&
                device(step, "copy_to", sizeof(int32_t) * KVF_FORK_COPIES, &step->copy_to) &&
                (!shared || device(step, "index_table", 4 * cells, &step->index_table));
    for (uint32_t t = 0; good && t < (shared ? step->tables : 1); t++)
        good = device(step, "block_table", 4 * cells, &step->block_table[t]);
    return good;
}

/* The pool writes to the host; what is uploaded may name other places (see `permute`). */
static int32_t *host(size_t count) {
    return calloc(count ? count : 1, sizeof(int32_t));
}

static bool bind_tables(struct step *step) {
    kvf_batch_buffers *b = &step->tables_of;
    size_t requests = step->options.batch_requests, cells = requests * step->columns;
    bool shared = step->options.pool.policy == KVF_POLICY_SHARED, good;
    kvf_error error;
    *b = (kvf_batch_buffers){.max_tokens = step->options.batch_tokens,
                             .max_requests = (uint32_t)requests,
                             .max_blocks = step->columns,
                             .state_parts = step->parts,
                             .batch_id = host(step->options.batch_tokens),
                             .position = host(step->options.batch_tokens),
                             .cu_tokens = host(requests + 1),
                             .state_slot = host(requests * step->parts),
                             .write_from = host(requests),
                             .window_from = host(requests),
                             .index_table = shared ? host(cells) : NULL,
                             .window_table = host(cells)};
    good = b->batch_id && b->position && b->cu_tokens && b->state_slot && b->write_from &&
           b->window_from && b->window_table && (b->index_table || !shared);
    for (uint32_t t = 0; t < (shared ? step->tables : 1); t++)
        good = (b->block_table[t] = host(cells)) && good;
    if (!good) return false;
    if (!kvf_batch_create(step->pool, b, &step->batch, &error)) return true;
    return session_fail("batch", &error);
}

static bool open_host(struct step *step) {
    for (uint32_t l = 0; l < step->layers; l++) {
        struct step_layer *layer = &step->layer[l];
        size_t tokens = step->options.batch_tokens, topk = layer->type->info.indexer_topk;
        layer->host_output = malloc(tokens * step_output_bytes(step, layer));
        layer->host_chosen = host(tokens * topk);
        layer->host_chosen_count = host(tokens);
        if (!layer->host_output || !layer->host_chosen || !layer->host_chosen_count) return false;
    }
    return true;
}

/* ---- opening ---- */

static bool open_pool(struct step *step) {
    kvf_error error;
    if (kvf_pool_create(step->session->bundle, &step->options.pool, &step->pool, &error) ||
        kvf_pool_get_stats(step->pool, &step->shape, &error))
        return session_fail("pool", &error);
    step->columns = kvf_pool_max_blocks(step->pool);
    step->parts = kvf_pool_state_parts(step->pool);
    step->positions = step->options.pool.max_tokens;
    return true;
}

bool step_open(struct session *session, const struct step_options *options, struct step *out) {
    *out = (struct step){.session = session, .options = *options, .types = session->model.types};
    if (out->types > STEP_TYPES) {
        fprintf(stderr, "kvforge-run: more than %d layer types\n", STEP_TYPES);
        return false;
    }
    if (!open_pool(out) || !call_open(session, "common", "rows_copy", &out->copy)) return false;
    for (uint32_t t = 0; t < out->types; t++)
        if (!open_type(out, t)) return false;
    if (!choose_layers(out)) return false;
    for (uint32_t l = 0; l < out->layers; l++)
        if (!open_layer(out, &out->layer[l])) return false;
    return open_workspace(out) && open_scratch(out) && open_tables(out) && bind_tables(out) &&
           open_host(out) && step_memory_open(out) && session_wait(session);
}

static void close_layer(struct step *step, struct step_layer *layer) {
    for (int i = 0; i < STEP_WEIGHTS; i++) buffer_destroy(step->session, &layer->weights[i]);
    for (int i = 0; i < STEP_INPUTS; i++) buffer_destroy(step->session, &layer->inputs[i]);
    buffer_destroy(step->session, &layer->output);
    buffer_destroy(step->session, &layer->chosen);
    buffer_destroy(step->session, &layer->chosen_count);
    free(layer->host_output);
    free(layer->host_chosen);
    free(layer->host_chosen_count);
}

static void close_host(struct step *step) {
    kvf_batch_buffers *b = &step->tables_of;
    free(b->batch_id);
    free(b->position);
    free(b->cu_tokens);
    free(b->state_slot);
    free(b->write_from);
    free(b->window_from);
    free(b->index_table);
    free(b->window_table);
    for (uint32_t t = 0; t < STEP_TABLES; t++) free(b->block_table[t]);
    free(step->roles);
}

void step_close(struct step *step) {
    struct session *session = step->session;
    struct buffer *all[] = {&step->batch_id,     &step->position,
                            &step->cu_tokens,    &step->state_slot,
                            &step->write_from,   &step->window_from,
                            &step->index_table,  &step->window_table,
                            &step->reader_id,    &step->reader_position,
                            &step->ids,          &step->copy_from,
                            &step->copy_to,      &step->q,
                            &step->index_q,      &step->index_w,
                            &step->scores,       &step->rows,
                            &step->window_count, &step->entry_count,
                            &step->part_o,       &step->part_m,
                            &step->part_l,       &step->lse};
    if (!session) return;
    step_graph_close(step);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(session, all[i]);
    for (uint32_t t = 0; t < STEP_TABLES; t++) buffer_destroy(session, &step->block_table[t]);
    for (uint32_t i = 0; i < REF_PLANES * STEP_TYPES; i++)
        buffer_destroy(session, &step->workspace[i]);
    for (uint32_t l = 0; l < step->layers; l++) close_layer(step, &step->layer[l]);
    for (uint32_t t = 0; t < step->types; t++) {
        buffer_destroy(session, &step->type[t].rope);
        buffer_destroy(session, &step->type[t].rings);
        free(step->type[t].calls);
    }
    for (uint32_t i = 0; i < step->memory_count; i++) session_free(session, step->memory[i]);
    kvf_cache_destroy(step->cache);
    kvf_batch_destroy(step->batch);
    kvf_pool_destroy(step->pool);
    close_host(step);
    *step = (struct step){0};
}
