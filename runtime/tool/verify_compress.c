/* compress and index_compress: groups that complete from tails and launches of every shape. */
#include "plans.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS PLAN_SLOTS

/* The tails of a compressor, or its running softmax. */
enum { KA, ZA, KB, ZB, MOST, SUM, TOTAL, TAILS };
static const char *const tail_names[TAILS] = {"tail_ka",  "tail_za",  "tail_kb", "tail_zb",
                                              "tail_max", "tail_sum", "tail_acc"};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules, stored; /* `stored`: with the format and dim of the rows it writes */
    struct call call;
    bool index;
    uint32_t dim, columns, positions, table_stride, pages;
    struct buffer tail[TAILS], plane[REF_PLANES]; /* those the type lacks stay empty */
    uint64_t tail_stride[TAILS], plane_stride[REF_PLANES];
    char tail_name[TAILS][32], plane_name[REF_PLANES][32];
    struct buffer ape, weight, rope;
    struct batch batch;
};

/* What one case needs besides. */
struct inputs {
    struct batch_device batch;
    struct buffer kv, score, write_from, table;
    uint64_t kv_stride, score_stride;
};

static bool make_table(struct bench *b, const char *name, size_t count, struct buffer *out) {
    return buffer_create(b->verify->session, name, 4 * count, false, out);
}

static enum ref_dtype tail_dtype(const struct bench *b, int tail) {
    return tail >= MOST ? REF_F32 : b->rules.state;
}

static uint32_t tail_rows(const struct bench *b, int tail) {
    return tail >= MOST ? 1 : ref_tail_ring(&b->rules);
}

static bool make_tails(struct bench *b) {
    for (int i = 0; i < TAILS; i++) {
        snprintf(b->tail_name[i], sizeof b->tail_name[i], "%s%s", b->index ? "idx_" : "",
                 tail_names[i]);
        uint64_t bytes = (uint64_t)tail_rows(b, i) * b->dim * (tail_dtype(b, i) == REF_F32 ? 4 : 2);
        if (call_has(&b->call, b->tail_name[i]) &&
            !verify_output(b->verify, &b->call, b->tail_name[i], SLOTS, bytes, &b->tail[i],
                           &b->tail_stride[i]))
            return false;
    }
    return true;
}

static bool make_planes(struct bench *b) {
    uint32_t rows = b->rules.block / b->rules.ratio;
    for (uint32_t i = 0; i < ref_planes(b->stored.format); i++) {
        snprintf(b->plane_name[i], sizeof b->plane_name[i], "%s_%s", b->index ? "index" : "kv",
                 ref_plane_name(b->stored.format, i));
        if (!verify_output(b->verify, &b->call, b->plane_name[i], b->pages,
                           ref_page_bytes(&b->stored, i, rows), &b->plane[i], &b->plane_stride[i]))
            return false;
    }
    return true;
}

static bool make_all(struct bench *b) {
    size_t rope = (size_t)b->positions * b->rules.rope_dim;
    if (!make_tails(b) || !make_planes(b) ||
        !make_table(b, "ape", (size_t)b->rules.ratio * b->columns, &b->ape) ||
        !make_table(b, "norm_weight", b->dim, &b->weight) || !make_table(b, "rope", rope, &b->rope))
        return false;
    input_rope(&b->verify->random, buffer_floats(&b->rope), rope);
    return buffer_upload(b->verify->session, &b->rope);
}

static bool set_weights(struct bench *b, bool special) {
    uint64_t *random = &b->verify->random;
    input_weight(random, special, buffer_floats(&b->ape), b->rules.ratio * b->columns);
    input_weight(random, special, buffer_floats(&b->weight), b->dim);
    return buffer_upload(b->verify->session, &b->ape) &&
           buffer_upload(b->verify->session, &b->weight);
}

/* Older rows of every slot, of the same kind of numbers as the launch's. */
static bool refill_tails(struct bench *b, enum input_kind kind) {
    for (int i = 0; i < TAILS; i++) {
        if (!b->tail[i].image) continue;
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            input_vector(&b->verify->random, kind, tail_dtype(b, i),
                         buffer_data(&b->tail[i]) + slot * b->tail_stride[i],
                         tail_rows(b, i) * b->dim);
        if (!buffer_upload(b->verify->session, &b->tail[i])) return false;
    }
    return true;
}

/* Every block of every request a page of its own, some not backed, some beyond the pool. */
static void fill_table(struct bench *b, int32_t *table, int32_t *write_from) {
    uint64_t *random = &b->verify->random;
    uint32_t first = input_below(random, b->pages);
    for (uint32_t r = 0; r < b->batch.requests; r++) {
        write_from[r] = b->verify->far || input_below(random, 4)
                            ? 0
                            : (int32_t)input_below(random, b->positions);
        for (uint32_t column = 0; column < b->table_stride; column++) {
            uint32_t chance = input_below(random, 12), at = r * b->table_stride + column;
            if (b->verify->far) {
                table[at] = at == 0 ? (int32_t)b->verify->far_slot : -1;
                continue;
            }
            table[at] = chance == 0   ? -1
                        : chance == 1 ? (int32_t)b->pages
                                      : (int32_t)((first + at * (b->pages % 7 ? 7 : 1)) % b->pages);
        }
    }
}

static bool make_inputs(struct bench *b, enum input_kind kind, struct inputs *out) {
    struct verify *verify = b->verify;
    uint32_t tokens = b->batch.tokens, requests = b->batch.requests;
    if (!batch_upload(verify->session, &b->batch, &out->batch) ||
        !verify_matrix(verify, &b->call, "kv", tokens, b->columns, b->rules.input, kind, &out->kv,
                       &out->kv_stride) ||
        !verify_matrix(verify, &b->call, "score", tokens, b->columns, b->rules.input, kind,
                       &out->score, &out->score_stride) ||
        !make_table(b, "write_from", requests, &out->write_from) ||
        !make_table(b, "block_table", (size_t)requests * b->table_stride, &out->table))
        return false;
    fill_table(b, buffer_ints(&out->table), buffer_ints(&out->write_from));
    return buffer_upload(verify->session, &out->write_from) &&
           buffer_upload(verify->session, &out->table);
}

static void free_inputs(struct bench *b, struct inputs *inputs) {
    struct session *session = b->verify->session;
    batch_free(session, &inputs->batch);
    buffer_destroy(session, &inputs->kv);
    buffer_destroy(session, &inputs->score);
    buffer_destroy(session, &inputs->write_from);
    buffer_destroy(session, &inputs->table);
}

static bool launch(struct bench *b, const struct inputs *inputs) {
    struct call *call = &b->call;
    batch_set(&b->batch, &inputs->batch, SLOTS, b->positions, call);
    call_set(call, "pages", b->pages);
    call_set(call, "table_stride", b->table_stride);
    verify_bind(call, "kv", &inputs->kv, inputs->kv_stride);
    verify_bind(call, "score", &inputs->score, inputs->score_stride);
    call_set(call, "ape", buffer_address(&b->ape));
    call_set(call, "norm_weight", buffer_address(&b->weight));
    call_set(call, "rope", buffer_address(&b->rope));
    call_set(call, "write_from", buffer_address(&inputs->write_from));
    call_set(call, "block_table", buffer_address(&inputs->table));
    for (int i = 0; i < TAILS; i++)
        if (b->tail[i].image)
            verify_bind_far(b->verify, call, b->tail_name[i], &b->tail[i], b->tail_stride[i]);
    for (uint32_t i = 0; i < ref_planes(b->stored.format); i++)
        verify_bind_far(b->verify, call, b->plane_name[i], &b->plane[i], b->plane_stride[i]);
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b, const struct inputs *inputs) {
    struct ref_compress args = {
        .batch = batch_reference(&b->batch, SLOTS, b->positions),
        .dim = b->dim,
        .format = b->stored.format,
        .index = b->index,
        .kv = buffer_data(&inputs->kv),
        .score = buffer_data(&inputs->score),
        .kv_stride = inputs->kv_stride,
        .score_stride = inputs->score_stride,
        .ape = buffer_floats(&b->ape),
        .norm_weight = buffer_floats(&b->weight),
        .rope = buffer_floats(&b->rope),
        .write_from = buffer_ints(&inputs->write_from),
        .block_table = buffer_ints(&inputs->table),
        .pages = b->pages,
        .table_stride = b->table_stride,
        .place = {.rows = b->rules.block / b->rules.ratio},
    };
    struct ref_array *tails[TAILS] = {&args.ka,   &args.za,  &args.kb,   &args.zb,
                                      &args.most, &args.sum, &args.total};
    for (int i = 0; i < TAILS; i++)
        if (b->tail[i].image)
            *tails[i] = (struct ref_array){buffer_data(&b->tail[i]), b->tail_stride[i]};
    for (uint32_t i = 0; i < ref_planes(b->stored.format); i++)
        args.place.plane[i] = (struct ref_array){buffer_data(&b->plane[i]), b->plane_stride[i]};
    ref_compress(&b->rules, &args);
}

/* The tails are only read: they are compared as well. */
static struct outputs list_outputs(struct bench *b) {
    struct outputs outputs = {0};
    for (int i = 0; i < TAILS; i++)
        if (b->tail[i].image) outputs.list[outputs.count++] = &b->tail[i];
    for (uint32_t i = 0; i < ref_planes(b->stored.format); i++)
        outputs.list[outputs.count++] = &b->plane[i];
    return outputs;
}

static bool run_case(struct bench *b, enum input_kind kind, const char *what) {
    struct inputs inputs = {0};
    struct outputs outputs = list_outputs(b);
    bool good =
        refill_tails(b, kind) && make_inputs(b, kind, &inputs) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b, &inputs);
        reference(b, &inputs);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    free_inputs(b, &inputs);
    return good && !b->verify->broken;
}

/* Requests that do and do not complete a group with a single token, as in a decode step. */
static void decode_step(struct bench *b) {
    int32_t ratio = (int32_t)b->rules.ratio;
    batch_clear(&b->batch);
    for (int32_t i = 0; i < SLOTS; i++)
        batch_request(&b->batch, i, ratio * (1 + i / 2) - 1 - i % 2, 1);
    batch_pad(&b->batch, 3);
}

/* Launches that begin at every place of a group, and one with many groups. */
static void all_phases(struct bench *b) {
    int32_t ratio = (int32_t)b->rules.ratio;
    batch_clear(&b->batch);
    for (int32_t i = 0; i < 4; i++)
        batch_request(&b->batch, i, ratio + i * ratio / 4, (uint32_t)ratio + 1);
    batch_request(&b->batch, 7, 0, (uint32_t)ratio * 2 + 1);
}

/* One slot and one page, both gigabytes behind their bases. */
static bool far_slot(struct bench *b) {
    uint32_t ratio = b->rules.ratio;
    batch_clear(&b->batch);
    batch_request(&b->batch, SLOTS - 1, (int32_t)ratio - 1, ratio + 1); /* entries 0 and 1 */
    b->verify->far = VERIFY_FAR;
    b->verify->far_slot = SLOTS - 1;
    bool good = run_case(b, INPUT_RANDOM, "a slot and a page 35 GiB behind the first");
    b->verify->far = 0;
    return good;
}

static bool run_all(struct bench *b) {
    const struct plan_space space = {ref_tail_ring(&b->rules), b->positions, &b->verify->random};
    char what[96];
    bool good = set_weights(b, false);
    for (size_t i = 0; good && i < plan_count(); i++) {
        plan_build(i, &space, &b->batch);
        good = run_case(b, INPUT_RANDOM, plan_name(i));
    }
    decode_step(b);
    good = good && run_case(b, INPUT_RANDOM, "a decode step where some complete a group");
    all_phases(b);
    good = good && run_case(b, INPUT_RANDOM, "launches from every place of a group");
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        all_phases(b);
        snprintf(what, sizeof what, "values and scores: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, what);
    }
    good = good && far_slot(b);
    all_phases(b);
    return good && set_weights(b, true) &&
           run_case(b, INPUT_RANDOM, "ape and norm weights of every kind");
}

static void free_bench(struct bench *b) {
    struct session *session = b->verify->session;
    for (int i = 0; i < TAILS; i++) buffer_destroy(session, &b->tail[i]);
    for (int i = 0; i < REF_PLANES; i++) buffer_destroy(session, &b->plane[i]);
    buffer_destroy(session, &b->ape);
    buffer_destroy(session, &b->weight);
    buffer_destroy(session, &b->rope);
    free(b);
}

bool verify_compress(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = b->stored = subject->rules;
    b->index = !strncmp(subject->kernel, "index_", 6);
    b->dim = b->index ? subject->info->indexer_dim : subject->info->head_dim;
    b->columns = (1 + b->rules.overlap) * b->dim;
    b->positions = 4 * ref_tail_ring(&b->rules) + 64;
    b->table_stride = (b->positions + b->rules.block - 1) / b->rules.block;
    b->pages = 16 * b->table_stride;
    b->stored.head_dim = b->dim;
    if (b->index)
        b->stored.format = rules_index_format(&verify->session->rules, subject->info->name);
    bool good = b->stored.format != REF_FORMATS &&
                call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_all(b) && run_all(b) && verify_drafts(verify, subject);
    free_bench(b);
    return good;
}
