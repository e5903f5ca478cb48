/*
 * One step. Tables and inputs go to the device, then every launch, then outputs come back. The
 * order of a layer is firm (docs/kernels.md): rows first, tails after the compressors have read
 * them, lists, attention.
 */
#include "step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- tables ---- */

static bool upload(struct step *step, const struct buffer *to, const void *from, size_t bytes) {
    return session_upload(step->session, buffer_address(to), from, bytes);
}

static bool upload_ids(struct step *step, struct buffer *to, const int32_t *ids, size_t count,
                       int32_t (*place)(const struct step *, int32_t)) {
    int32_t *image = buffer_ints(to);
    for (size_t i = 0; i < count; i++) image[i] = place ? place(step, ids[i]) : ids[i];
    return upload(step, to, image, 4 * count);
}

static bool upload_states(struct step *step) {
    size_t requests = step->options.batch_requests;
    bool elastic = step->options.pool.policy == KVF_POLICY_ELASTIC;
    int32_t *image = buffer_ints(&step->state_slot);
    for (uint32_t part = 0; part < step->parts; part++)
        for (size_t r = 0; r < requests; r++) {
            int32_t id = step->tables_of.state_slot[part * requests + r];
            if (elastic)
                id = part < step->session->bundle->elastic->state_chunks ? step_chunk(step, id)
                                                                         : step_envelope(step, id);
            image[part * requests + r] = id;
        }
    return upload(step, &step->state_slot, image, 4 * requests * step->parts);
}

/* Who attends, for the kernels that read. */
static bool upload_readers(struct step *step, const struct step_request *requests) {
    const kvf_batch_buffers *b = &step->tables_of;
    int32_t *ids = buffer_ints(&step->reader_id), *positions = buffer_ints(&step->reader_position);
    for (uint32_t t = 0; t < b->max_tokens; t++) {
        int32_t request = b->batch_id[t], position = b->position[t];
        bool attends = request >= 0 && (uint32_t)position >= requests[request].attend_from;
        ids[t] = attends ? request : -1;
        positions[t] = attends ? position : -1;
    }
    return upload(step, &step->reader_id, ids, 4 * (size_t)b->max_tokens) &&
           upload(step, &step->reader_position, positions, 4 * (size_t)b->max_tokens);
}

static bool upload_tables(struct step *step) {
    const kvf_batch_buffers *b = &step->tables_of;
    size_t cells = (size_t)b->max_requests * b->max_blocks;
    bool shared = step->options.pool.policy == KVF_POLICY_SHARED;
    bool good = upload_ids(step, &step->batch_id, b->batch_id, b->max_tokens, NULL) &&
                upload_ids(step, &step->position, b->position, b->max_tokens, NULL) &&
                upload_ids(step, &step->cu_tokens, b->cu_tokens, b->max_requests + 1u, NULL) &&
                upload_ids(step, &step->write_from, b->write_from, b->max_requests, NULL) &&
                upload_ids(step, &step->window_from, b->window_from, b->max_requests, NULL) &&
                upload_states(step) &&
                upload_ids(step, &step->window_table, b->window_table, cells, step_chunk);
    for (uint32_t t = 0; good && t < (shared ? step->tables : 1); t++)
        good = upload_ids(step, &step->block_table[t], b->block_table[t], cells, step_envelope);
    return good && (!shared || upload_ids(step, &step->index_table, b->index_table, cells, NULL));
}

/* ---- inputs ---- */

static bool upload_input(struct step *step, struct step_layer *layer, enum step_input input,
                         const int32_t *ids) {
    struct buffer *to = &layer->inputs[input];
    size_t row = buffer_bytes(to) / step->options.batch_tokens;
    enum ref_dtype dtype = layer->type->rules.input;
    if (input >= STEP_QUERY) dtype = input == STEP_INDEX_WEIGHT ? REF_F32 : REF_BFLOAT;
    uint32_t count = (uint32_t)(row / (dtype == REF_F32 ? 4 : 2));
    for (uint32_t t = 0; t < step->tokens; t++)
        step_input_row(input, layer->layer, ids[t], (uint32_t)step->tables_of.position[t], dtype,
                       count, buffer_data(to) + t * row);
    return upload(step, to, buffer_data(to), step->tokens * row);
}

static bool upload_inputs(struct step *step, const int32_t *ids, bool attend) {
    for (uint32_t l = 0; l < step->layers; l++)
        for (int i = 0; i < (attend ? STEP_INPUTS : STEP_QUERY); i++)
            if (!upload_input(step, &step->layer[l], (enum step_input)i, ids)) return false;
    return true;
}

/* ---- what kernels are told ---- */

static void bind_input(struct step_binding *b, const struct step *step,
                       const struct step_layer *layer, const char *name, enum step_input input) {
    const struct buffer *from = &layer->inputs[input];
    step_bind_array(
        b, "", name,
        (struct step_array){buffer_address(from), buffer_bytes(from) / step->options.batch_tokens});
}

static void bind_buffer(struct step_binding *b, const char *name, const struct buffer *buffer) {
    step_bind(b, name, buffer_address(buffer));
}

static void bind_batch(const struct step *step, const struct step_layer *layer,
                       struct step_binding *b) {
    uint64_t state = 4 * (uint64_t)layer->state_part * step->options.batch_requests;
    step_bind(b, "tokens", step->padded);
    step_bind(b, "requests", step->requests);
    step_bind(b, "positions", step->positions);
    step_bind(b, "table_stride", step->columns);
    step_bind(b, "slots", step_slots(step, layer->state_part));
    step_bind(b, "window_pages", step_pages(step, layer->type, "window"));
    step_bind(b, "block_pages", step_pages(step, layer->type, "compressed"));
    step_bind(b, "state_slot", buffer_address(&step->state_slot) + state);
    bind_buffer(b, "batch_id", &step->batch_id);
    bind_buffer(b, "position", &step->position);
    bind_buffer(b, "cu_tokens", &step->cu_tokens);
    bind_buffer(b, "window_table", &step->window_table);
    bind_buffer(b, "block_table", &step->block_table[layer->type->table]);
    bind_buffer(b, "rope", &layer->type->rope);
}

static void bind_memory(const struct step_layer *layer, struct step_binding *b) {
    const struct bundle_type *type = layer->type->bundle;
    step_bind_planes(b, "", bundle_place(type, "window"), layer->window);
    step_bind_planes(b, "ws_", bundle_place(type, "window"), layer->type->workspace);
    step_bind_planes(b, "", bundle_place(type, "compressed"), layer->compressed);
    step_bind_planes(b, "", bundle_place(type, "index"), &layer->index);
    for (uint32_t a = 0; a < type->array_count; a++) {
        char name[32];
        step_bind_array(b, "", type->arrays[a].name, layer->state[a]);
        snprintf(name, sizeof name, "%s_layer_stride", type->arrays[a].name);
        step_bind(b, name, 0);
    }
}

static void bind_attention(const struct step *step, const struct step_layer *layer,
                           struct step_binding *b) {
    const struct step_type *type = layer->type;
    float scale = 1 / sqrtf((float)type->info.head_dim);
    uint32_t bits;
    memcpy(&bits, &scale, 4);
    step_bind(b, "scale", bits);
    step_bind(b, "heads", step->session->model.heads);
    step_bind(b, "splits", type->splits);
    step_bind(b, "list_stride", type->list_stride);
    step_bind(b, "topk_stride", type->info.indexer_topk);
    step_bind(b, "scores_stride", type->entries);
    step_bind(b, "first", 0);
    bind_buffer(b, "scores", &step->scores);
    bind_buffer(b, "topk", &layer->chosen);
    bind_buffer(b, "topk_count", &layer->chosen_count);
    bind_buffer(b, "rows", &step->rows);
    bind_buffer(b, "window_count", &step->window_count);
    bind_buffer(b, "entry_count", &step->entry_count);
    bind_buffer(b, "part_o", &step->part_o);
    bind_buffer(b, "part_m", &step->part_m);
    bind_buffer(b, "part_l", &step->part_l);
    bind_buffer(b, "sink", &layer->weights[STEP_SINK]);
    bind_buffer(b, "lse", &step->lse);
    bind_buffer(b, "q_out", &step->index_q);
    bind_buffer(b, "w_out", &step->index_w);
    bind_buffer(b, "w", &step->index_w);
}

void step_bind_layer(const struct step *step, const struct step_layer *layer,
                     struct step_binding *out) {
    out->count = 0;
    bind_batch(step, layer, out);
    bind_memory(layer, out);
    bind_attention(step, layer, out);
}

/* Kernels that write rows and tails see every token, the others those that attend. */
static bool is_reader(enum step_job job) {
    return job >= STEP_NORM_ROPE && job <= STEP_INVERSE;
}

/* Names that mean something else in each kernel. */
static void bind_job(const struct step *step, const struct step_layer *layer, enum step_job job,
                     struct step_binding *b) {
    const struct step_type *type = layer->type;
    bool shared = step->options.pool.policy == KVF_POLICY_SHARED;
    bool index = job == STEP_INDEX_COMPRESS || job == STEP_INDEX_APPEND;
    struct step_array q = {buffer_address(&step->q), step_output_bytes(step, layer)};
    struct step_array output = {buffer_address(&layer->output), step_output_bytes(step, layer)};
    bool windows = job == STEP_FILL || job == STEP_WRITE || job == STEP_WRITE_LONG;
    step_bind(b, "pages",
              step_pages(step, type,
                         windows                       ? "window"
                         : index || job == STEP_SCORES ? "index"
                                                       : "compressed"));
    if (is_reader(job)) {
        bind_buffer(b, "batch_id", &step->reader_id);
        bind_buffer(b, "position", &step->reader_position);
    }
    bind_buffer(b, "write_from", windows ? &step->window_from : &step->write_from);
    bind_buffer(b, "norm_weight",
                &layer->weights[windows ? STEP_NORM
                                : index ? STEP_INDEX_NORM
                                        : STEP_ENTRY_NORM]);
    bind_buffer(b, "ape", &layer->weights[index ? STEP_INDEX_APE : STEP_APE]);
    bind_input(b, step, layer, "latent", STEP_LATENT);
    bind_input(b, step, layer, "kv", index ? STEP_INDEX_KV : STEP_KV);
    bind_input(b, step, layer, "score", index ? STEP_INDEX_SCORE : STEP_SCORE);
    bind_input(b, step, layer, "weights", STEP_INDEX_WEIGHT);
    if (shared && (job == STEP_INDEX_COMPRESS || job == STEP_SCORES))
        bind_buffer(b, "block_table", &step->index_table);
    step_bind_array(b, "", "out", job == STEP_NORM_ROPE ? q : output);
    if (job == STEP_NORM_ROPE) bind_input(b, step, layer, "q", STEP_QUERY);
    if (job == STEP_INDEX_QUERY_JOB) bind_input(b, step, layer, "q", STEP_INDEX_QUERY);
    if (job == STEP_SCORES) bind_buffer(b, "q", &step->index_q);
    if (job == STEP_ATTN) step_bind_array(b, "", "q", q);
    if (job == STEP_ATTN && step->longer)
        step_bind_planes(b, "", bundle_place(type->bundle, "window"), type->workspace);
}

/* ---- the order ---- */

enum when { ALWAYS, LONG, SHORT }; /* a chunk works in the workspace, or in the window's place */

static const struct {
    enum step_job job;
    enum when when;
    bool attends;
} order[] = {
    {STEP_FILL, LONG, true},
    {STEP_WRITE, SHORT, false},
    {STEP_WRITE_LONG, LONG, false},
    {STEP_COMPRESS, ALWAYS, false},
    {STEP_INDEX_COMPRESS, ALWAYS, false},
    {STEP_APPEND, ALWAYS, false},
    {STEP_INDEX_APPEND, ALWAYS, false},
    {STEP_NORM_ROPE, ALWAYS, true},
    {STEP_INDEX_QUERY_JOB, ALWAYS, true},
    {STEP_SCORES, ALWAYS, true},
    {STEP_TOPK, ALWAYS, true},
    {STEP_LISTS, SHORT, true},
    {STEP_LISTS_LONG, LONG, true},
    {STEP_PACK, ALWAYS, true},
    {STEP_ATTN, ALWAYS, true},
    {STEP_COMBINE, ALWAYS, true},
    {STEP_INVERSE, ALWAYS, true},
};

static bool run_layer(struct step *step, struct step_layer *layer, bool attend) {
    struct step_binding b;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (order[i].attends && !attend) continue;
        if (order[i].when != ALWAYS && (order[i].when == LONG) != step->longer) continue;
        step_bind_layer(step, layer, &b);
        bind_job(step, layer, order[i].job, &b);
        if (!step_launch(step, &layer->type->calls[order[i].job], &b)) return false;
    }
    return true;
}

bool step_layers(struct step *step, bool attend) {
    for (uint32_t l = 0; l < step->layers; l++)
        if (!run_layer(step, &step->layer[l], attend)) return false;
    return true;
}

/* ---- the step ---- */

static bool fill(struct step *step, const struct step_request *requests, uint32_t count,
                 bool attend) {
    kvf_sequence list[64];
    kvf_error error;
    if (count > 64) return false;
    for (uint32_t r = 0; r < count; r++) list[r] = requests[r].sequence;
    if (kvf_batch_fill(step->batch, list, count, &error)) return session_fail("batch", &error);
    const int32_t *cu = step->tables_of.cu_tokens;
    step->requests = count;
    step->tokens = (uint32_t)cu[count];
    /* Padding behind the tokens, as a captured graph has it. */
    step->padded = (step->tokens + 7) / 8 * 8;
    if (step->padded > step->options.batch_tokens) step->padded = step->options.batch_tokens;
    step->longer = false;
    for (uint32_t r = 0; r < count && attend; r++)
        if ((uint32_t)(cu[r + 1] - cu[r]) > step->session->model.drafts + 1) step->longer = true;
    return true;
}

static bool fetch(struct step *step) {
    for (uint32_t l = 0; l < step->layers; l++) {
        struct step_layer *layer = &step->layer[l];
        size_t topk = layer->type->info.indexer_topk;
        if (!session_download(step->session, layer->host_output, buffer_address(&layer->output),
                              step->tokens * step_output_bytes(step, layer)))
            return false;
        if (!topk) continue;
        if (!session_download(step->session, layer->host_chosen, buffer_address(&layer->chosen),
                              step->tokens * topk * 4) ||
            !session_download(step->session, layer->host_chosen_count,
                              buffer_address(&layer->chosen_count), sizeof(int32_t) * step->tokens))
            return false;
    }
    return true;
}

bool step_forward(struct step *step, const struct step_request *requests, uint32_t count,
                  const int32_t *ids, bool attend) {
    if (!fill(step, requests, count, attend) || !upload_tables(step) ||
        !upload_readers(step, requests) || !upload_inputs(step, ids, attend))
        return false;
    step_note_roles(step);
    for (uint32_t r = 0; r < count; r++)
        if (requests[r].fresh && !step_restore(step, r, &requests[r])) return false;
    if (!(attend && step_wants_graph(step) ? step_replay(step) : step_layers(step, attend)))
        return false;
    step->requests = count;
    for (uint32_t r = 0; r < count; r++)
        if (!step_save(step, r, requests[r].sequence)) return false;
    return session_wait(step->session) && (!attend || fetch(step));
}

const uint8_t *step_output(const struct step *step, const struct step_layer *layer,
                           uint32_t token) {
    return layer->host_output + token * step_output_bytes(step, layer);
}
