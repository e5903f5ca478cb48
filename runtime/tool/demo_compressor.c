/* The demo's compressors: their pages, and compress and tail_append on the same inputs. */
#include "demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every block of every request of the demo has a page of its own, in an order of no meaning. */
static uint32_t table_columns(const struct ref_type *type) {
    return (SCHEDULE_POSITIONS + type->block - 1) / type->block;
}

static uint32_t page_count(const struct ref_type *type) {
    return SCHEDULE_REQUESTS * table_columns(type);
}

static int32_t page_of(const struct ref_type *type, uint32_t request, uint32_t column) {
    return (int32_t)((request * table_columns(type) + column) * 5 % page_count(type));
}

static void plane_name(const struct demo_compressor *compressor, uint32_t plane, char *out,
                       size_t bytes) {
    snprintf(out, bytes, "%s_%s", compressor->index ? "index" : "kv",
             ref_plane_name(compressor->stored.format, plane));
}

static bool make_pages(struct demo *demo, const struct demo_compressor *compressor,
                       struct demo_pages *out) {
    const struct ref_type *stored = &compressor->stored;
    for (uint32_t i = 0; i < ref_planes(stored->format); i++) {
        uint64_t bytes = ref_page_bytes(stored, i, stored->block / stored->ratio);
        out->stride[i] = (bytes + 255) / 256 * 256;
        if (!buffer_create(&demo->session, ref_plane_name(stored->format, i),
                           page_count(stored) * out->stride[i], true, &out->plane[i]) ||
            !buffer_upload(&demo->session, &out->plane[i]))
            return false;
    }
    return true;
}

bool demo_compressor_open(struct demo *demo, uint32_t type, bool index) {
    struct demo_type *at = &demo->types[type];
    struct demo_compressor *out = &at->compressors[index];
    if (!at->info.ratio || (index && !at->info.has_indexer)) return true;
    *out = (struct demo_compressor){.index = index, .stored = at->rules};
    out->dim = out->stored.head_dim = index ? at->info.indexer_dim : at->info.head_dim;
    out->columns = (1 + at->rules.overlap) * out->dim;
    if (index) out->stored.format = rules_index_format(&demo->session.rules, at->info.name);
    if (out->stored.format == REF_FORMATS) return false;
    for (uint32_t n = 0; n < at->driven; n++)
        if (!make_pages(demo, out, &out->pages[n])) return false;
    return demo_weights(demo, "ape", (size_t)at->info.ratio * out->columns, &out->ape) &&
           demo_weights(demo, "norm_weight", out->dim, &out->weight);
}

void demo_compressor_close(struct demo *demo, struct demo_compressor *compressor) {
    for (uint32_t n = 0; n < DEMO_LAYERS; n++)
        for (uint32_t i = 0; i < REF_PLANES; i++)
            buffer_destroy(&demo->session, &compressor->pages[n].plane[i]);
    buffer_destroy(&demo->session, &compressor->ape);
    buffer_destroy(&demo->session, &compressor->weight);
}

/* ---- a step ---- */

bool demo_step_open(struct demo *demo, struct demo_step *out) {
    const struct ref_type *type = &demo->types[0].rules; /* blocks are the model's */
    uint32_t requests = demo->batch.requests, columns = table_columns(type);
    memset(out, 0, sizeof *out);
    if (!batch_upload(&demo->session, &demo->batch, &out->batch) ||
        !buffer_create(&demo->session, "write_from", 4 * (size_t)requests, false,
                       &out->write_from) ||
        !buffer_create(&demo->session, "block_table", 4 * (size_t)requests * columns, false,
                       &out->table))
        return false;
    memset(buffer_data(&out->write_from), 0, buffer_bytes(&out->write_from));
    for (uint32_t b = 0; b < requests; b++)
        for (uint32_t c = 0; c < columns; c++)
            buffer_ints(&out->table)[b * columns + c] = page_of(type, demo->schedule.who[b], c);
    return buffer_upload(&demo->session, &out->write_from) &&
           buffer_upload(&demo->session, &out->table);
}

void demo_step_close(struct demo *demo, struct demo_step *step) {
    batch_free(&demo->session, &step->batch);
    buffer_destroy(&demo->session, &step->write_from);
    buffer_destroy(&demo->session, &step->table);
}

/* ---- launches ---- */

/* The values and scores of a step. */
struct inputs {
    struct buffer kv, score;
    uint64_t kv_stride, score_stride;
};

struct tails {
    struct ref_array ka, za, kb, zb, most, sum, total, len;
};

static void set_inputs(struct call *call, const struct inputs *inputs) {
    call_set(call, "kv", buffer_address(&inputs->kv));
    call_set(call, "kv_stride", inputs->kv_stride);
    call_set(call, "score", buffer_address(&inputs->score));
    call_set(call, "score_stride", inputs->score_stride);
}

/* The tails that a call has: there is no stream b without overlap, and compress takes no length. */
static bool bind_tails(struct demo *demo, struct call *call, uint32_t type, bool index,
                       uint32_t layer, struct tails *out) {
    const struct {
        const char *name;
        struct ref_array *array;
    } arrays[] = {{"tail_ka", &out->ka},     {"tail_za", &out->za},    {"tail_kb", &out->kb},
                  {"tail_zb", &out->zb},     {"tail_max", &out->most}, {"tail_sum", &out->sum},
                  {"tail_acc", &out->total}, {"tail_len", &out->len}};
    char name[32];
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        snprintf(name, sizeof name, "%s%s", index ? "idx_" : "", arrays[i].name);
        if (call_has(call, name) && !demo_bind(demo, call, type, layer, name, arrays[i].array))
            return false;
    }
    return true;
}

static void bind_pages(struct call *call, const struct demo_compressor *compressor,
                       const struct demo_pages *pages, struct ref_place *out) {
    char name[32], stride[40];
    out->rows = compressor->stored.block / compressor->stored.ratio;
    for (uint32_t i = 0; i < ref_planes(compressor->stored.format); i++) {
        plane_name(compressor, i, name, sizeof name);
        snprintf(stride, sizeof stride, "%s_stride", name);
        call_set(call, name, buffer_address(&pages->plane[i]));
        call_set(call, stride, pages->stride[i]);
        out->plane[i] = (struct ref_array){buffer_data(&pages->plane[i]), pages->stride[i]};
    }
}

static bool compress(struct demo *demo, uint32_t type, bool index, uint32_t n,
                     const struct demo_step *step, const struct inputs *inputs) {
    struct demo_type *at = &demo->types[type];
    struct demo_compressor *compressor = &at->compressors[index];
    struct demo_kernel *kernel = &at->kernels[index ? DEMO_INDEX_COMPRESS : DEMO_COMPRESS];
    struct tails tails = {0};
    if (!kernel->present) return true;
    struct ref_compress args = {
        .batch = demo_batch(demo),
        .dim = compressor->dim,
        .format = compressor->stored.format,
        .index = index,
        .kv = buffer_data(&inputs->kv),
        .score = buffer_data(&inputs->score),
        .kv_stride = inputs->kv_stride,
        .score_stride = inputs->score_stride,
        .ape = buffer_floats(&compressor->ape),
        .norm_weight = buffer_floats(&compressor->weight),
        .rope = buffer_floats(&at->rope),
        .write_from = buffer_ints(&step->write_from),
        .block_table = buffer_ints(&step->table),
        .pages = page_count(&at->rules),
        .table_stride = table_columns(&at->rules),
    };
    set_inputs(&kernel->call, inputs);
    call_set(&kernel->call, "pages", args.pages);
    call_set(&kernel->call, "table_stride", args.table_stride);
    call_set(&kernel->call, "ape", buffer_address(&compressor->ape));
    call_set(&kernel->call, "norm_weight", buffer_address(&compressor->weight));
    call_set(&kernel->call, "rope", buffer_address(&at->rope));
    call_set(&kernel->call, "write_from", buffer_address(&step->write_from));
    call_set(&kernel->call, "block_table", buffer_address(&step->table));
    bind_pages(&kernel->call, compressor, &compressor->pages[n], &args.place);
    if (!bind_tails(demo, &kernel->call, type, index, at->layers[n], &tails) ||
        !demo_launch(demo, kernel, step))
        return false;
    args.ka = tails.ka, args.za = tails.za, args.kb = tails.kb, args.zb = tails.zb;
    args.most = tails.most, args.sum = tails.sum, args.total = tails.total;
    ref_compress(&at->rules, &args);
    return true;
}

static bool tail_append(struct demo *demo, uint32_t type, bool index, uint32_t n,
                        const struct demo_step *step, const struct inputs *inputs) {
    struct demo_type *at = &demo->types[type];
    struct demo_compressor *compressor = &at->compressors[index];
    struct demo_kernel *kernel = &at->kernels[index ? DEMO_INDEX_TAIL_APPEND : DEMO_TAIL_APPEND];
    struct tails tails = {0};
    if (!kernel->present) return true;
    set_inputs(&kernel->call, inputs);
    if (call_has(&kernel->call, "ape"))
        call_set(&kernel->call, "ape", buffer_address(&compressor->ape));
    if (!bind_tails(demo, &kernel->call, type, index, at->layers[n], &tails) ||
        !demo_launch(demo, kernel, step))
        return false;
    struct ref_tail_append args = {
        .batch = demo_batch(demo),
        .dim = compressor->dim,
        .kv = buffer_data(&inputs->kv),
        .score = buffer_data(&inputs->score),
        .kv_stride = inputs->kv_stride,
        .score_stride = inputs->score_stride,
        .ape = buffer_floats(&compressor->ape),
        .ka = tails.ka,
        .za = tails.za,
        .kb = tails.kb,
        .zb = tails.zb,
        .most = tails.most,
        .sum = tails.sum,
        .total = tails.total,
        .len = tails.len,
    };
    ref_tail_append(&at->rules, &args);
    return true;
}

bool demo_compressor_run(struct demo *demo, uint32_t type, bool index, uint32_t n,
                         const struct demo_step *step) {
    struct demo_type *at = &demo->types[type];
    struct demo_compressor *compressor = &at->compressors[index];
    struct inputs inputs = {0};
    if (!compressor->dim) return true;
    bool good = demo_input(demo, "kv", at->rules.input, compressor->columns, &inputs.kv,
                           &inputs.kv_stride) &&
                demo_input(demo, "score", at->rules.input, compressor->columns, &inputs.score,
                           &inputs.score_stride) &&
                compress(demo, type, index, n, step, &inputs) &&
                tail_append(demo, type, index, n, step, &inputs);
    buffer_destroy(&demo->session, &inputs.kv);
    buffer_destroy(&demo->session, &inputs.score);
    return good;
}

bool demo_compressor_prove(struct demo *demo, uint32_t type, bool index) {
    struct demo_type *at = &demo->types[type];
    struct demo_compressor *compressor = &at->compressors[index];
    struct demo_kernel *kernel = &at->kernels[index ? DEMO_INDEX_COMPRESS : DEMO_COMPRESS];
    struct difference difference;
    for (uint32_t n = 0; compressor->dim && n < at->driven; n++)
        for (uint32_t i = 0; i < ref_planes(compressor->stored.format); i++) {
            const struct buffer *plane = &compressor->pages[n].plane[i];
            if (!buffer_compare(&demo->session, plane, &difference)) return false;
            kernel->compared += plane->total;
            if (!difference.count) continue;
            kernel->differs = true;
            printf("# %s layer %u of the type, %s: %zu bytes of pages differ, first at byte %zd\n",
                   at->info.name, at->layers[n], index ? "index rows" : "compressed rows",
                   difference.count, (ssize_t)difference.offset);
        }
    return true;
}
