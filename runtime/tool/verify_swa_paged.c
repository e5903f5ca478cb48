/*
 * swa_write in paged mode: rows found through the window table, blocks that are not backed.
 * swa_write_workspace is the same with a second place to write.
 */
#include "plans.h"
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    bool both;                             /* swa_write_workspace */
    struct verify_place window, workspace; /* the workspace is made for each case */
    struct buffer weight, rope;
    uint32_t positions, table_stride, pages;
    struct batch batch;
    uint32_t edge_page;   /* not 0: the table names this page, */
    uint64_t edge_stride; /* of so many bytes, where the first one lies */
};

struct inputs {
    struct batch_device batch;
    struct buffer latent, write_from, table;
    uint64_t latent_stride;
};

static bool make_all(struct bench *b) {
    struct session *session = b->verify->session;
    size_t rope = (size_t)b->positions * b->rules.rope_dim;
    if (!verify_place_create_output(b->verify, &b->call, "swa", &b->rules, b->rules.block, b->pages,
                                    &b->window))
        return false;
    if (!buffer_create(session, "rope", 4 * rope, false, &b->rope) ||
        !buffer_create(session, "norm_weight", 4 * (size_t)b->rules.head_dim, false, &b->weight))
        return false;
    input_rope(&b->verify->random, buffer_floats(&b->rope), rope);
    return buffer_upload(session, &b->rope);
}

static bool set_weight(struct bench *b, bool special) {
    input_weight(&b->verify->random, special, buffer_floats(&b->weight), b->rules.head_dim);
    return buffer_upload(b->verify->session, &b->weight);
}

/* With far pages only the first request has one, for its first block. */
static int32_t far_page(const struct bench *b, uint32_t at) {
    return at == 0 ? (int32_t)b->verify->far_slot : -1;
}

/* Every block of every request a page of its own; in `holes` some have none. */
static void fill_table(struct bench *b, bool holes, int32_t *table, int32_t *write_from) {
    uint64_t *random = &b->verify->random;
    uint32_t first = input_below(random, b->pages);
    for (uint32_t r = 0; r < b->batch.requests; r++) {
        write_from[r] = holes && r % 3 == 1 ? (int32_t)input_below(random, b->positions) : 0;
        for (uint32_t column = 0; column < b->table_stride; column++) {
            uint32_t at = r * b->table_stride + column;
            uint32_t chance = holes ? input_below(random, 8) : 8;
            table[at] = b->verify->far ? far_page(b, at)
                        : chance == 0  ? -1
                        : chance == 1  ? (int32_t)b->pages
                        : chance == 2  ? INT32_MIN
                                       : (int32_t)((first + at) % b->pages);
        }
    }
}

/* The kernel's table names the edge page where the reference's names page 0. */
static bool upload_table(struct bench *b, const struct buffer *table) {
    int32_t *ids = buffer_ints(table), edge = (int32_t)b->edge_page;
    size_t count = buffer_bytes(table) / 4;
    for (size_t i = 0; i < count; i++) ids[i] += ids[i] < 0 ? 0 : edge;
    bool good = buffer_upload(b->verify->session, table);
    for (size_t i = 0; i < count; i++) ids[i] -= ids[i] < 0 ? 0 : edge;
    return good;
}

static bool make_inputs(struct bench *b, enum input_kind kind, bool holes, struct inputs *out) {
    struct session *session = b->verify->session;
    uint32_t requests = b->batch.requests;
    if (!batch_upload(session, &b->batch, &out->batch) ||
        !verify_matrix(b->verify, &b->call, "latent", b->batch.tokens, b->rules.head_dim,
                       b->rules.input, kind, &out->latent, &out->latent_stride) ||
        !buffer_create(session, "write_from", 4 * (size_t)requests, false, &out->write_from) ||
        !buffer_create(session, "window_table", 4 * (size_t)requests * b->table_stride, false,
                       &out->table))
        return false;
    if (b->both && !verify_place_create_workspace(b->verify, &b->call, &b->rules, b->rules.block,
                                                  &b->batch, &b->workspace))
        return false;
    fill_table(b, holes, buffer_ints(&out->table), buffer_ints(&out->write_from));
    return buffer_upload(session, &out->write_from) && upload_table(b, &out->table);
}

static void free_inputs(struct bench *b, struct inputs *inputs) {
    struct session *session = b->verify->session;
    batch_free(session, &inputs->batch);
    buffer_destroy(session, &inputs->latent);
    buffer_destroy(session, &inputs->write_from);
    buffer_destroy(session, &inputs->table);
    verify_place_destroy(b->verify, &b->workspace);
}

static bool launch(struct bench *b, const struct inputs *inputs) {
    struct call *call = &b->call;
    batch_set(&b->batch, &inputs->batch, 0, b->positions, call);
    call_set(call, "pages", b->pages + b->edge_page);
    call_set(call, "table_stride", b->table_stride);
    verify_bind(call, "latent", &inputs->latent, inputs->latent_stride);
    if (b->rules.kv_norm) call_set(call, "norm_weight", buffer_address(&b->weight));
    call_set(call, "rope", buffer_address(&b->rope));
    call_set(call, "write_from", buffer_address(&inputs->write_from));
    call_set(call, "window_table", buffer_address(&inputs->table));
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++)
        verify_bind_far(b->verify, call, b->window.name[i], &b->window.plane[i],
                        b->window.stride[i]);
    for (uint32_t i = 0; b->edge_page && i < ref_planes(b->rules.format); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_stride", b->window.name[i]);
        call_set(call, name, b->edge_stride);
        call_set(call, b->window.name[i],
                 buffer_address(&b->window.plane[i]) - b->edge_page * b->edge_stride);
    }
    verify_place_bind(&b->workspace, call);
    return call_launch(b->verify->session, call);
}

static void reference(struct bench *b, const struct inputs *inputs) {
    struct ref_swa_write_paged args = {
        .batch = batch_reference(&b->batch, 0, b->positions),
        .latent = buffer_data(&inputs->latent),
        .latent_stride = inputs->latent_stride,
        .norm_weight = buffer_floats(&b->weight),
        .rope = buffer_floats(&b->rope),
        .write_from = buffer_ints(&inputs->write_from),
        .window_table = buffer_ints(&inputs->table),
        .pages = b->pages,
        .table_stride = b->table_stride,
        .window = verify_place_reference(&b->window),
        .workspace = verify_place_reference(&b->workspace),
    };
    ref_swa_write_paged(&b->rules, &args);
}

static bool run_case(struct bench *b, enum input_kind kind, bool holes, const char *what) {
    struct inputs inputs = {0};
    struct outputs outputs = {0};
    bool good = make_inputs(b, kind, holes, &inputs);
    verify_place_outputs(&b->window, &outputs);
    verify_place_outputs(&b->workspace, &outputs);
    good = good && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b, &inputs);
        reference(b, &inputs);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    free_inputs(b, &inputs);
    return good && !b->verify->broken;
}

static bool far_pages(struct bench *b) {
    batch_clear(&b->batch);
    batch_request(&b->batch, 0, 3, b->rules.block + 2);
    b->verify->far = VERIFY_FAR;
    b->verify->far_slot = b->pages - 1;
    bool good = run_case(b, INPUT_RANDOM, false, "a page 5 GiB times its number behind the first");
    b->verify->far = 0;
    return good;
}

/* The last page that begins below 2^31 bytes and the next one, with strides of real pools. */
static bool edge_pages(struct bench *b) {
    static const struct {
        uint32_t page;
        uint64_t stride;
    } edges[] = {{14339, 149760}, {14340, 149760}, {57357, 37440}, {57358, 37440}, {114717, 37440}};
    bool good = true;
    char what[96];
    for (size_t i = 0; good && i < sizeof edges / sizeof *edges; i++) {
        if (b->window.stride[0] > edges[i].stride) continue;
        batch_clear(&b->batch);
        batch_request(&b->batch, 0, 3, b->rules.block + 2);
        b->edge_page = edges[i].page;
        b->edge_stride = edges[i].stride;
        b->verify->far = 1; /* one page only, the first */
        b->verify->far_slot = 0;
        snprintf(what, sizeof what, "page %u of %u bytes", edges[i].page,
                 (uint32_t)edges[i].stride);
        good = run_case(b, INPUT_RANDOM, false, what);
        b->verify->far = b->edge_page = 0;
    }
    return good;
}

static bool run_all(struct bench *b) {
    const struct plan_space space = {b->rules.block, b->positions, &b->verify->random};
    char what[96];
    bool good = set_weight(b, false);
    for (size_t i = 0; good && i < plan_count(); i++) {
        plan_build(i, &space, &b->batch);
        good = run_case(b, INPUT_RANDOM, false, plan_name(i));
    }
    for (int i = 0; good && i < 4; i++) {
        plan_build(PLAN_MANY, &space, &b->batch);
        good = run_case(b, INPUT_RANDOM, true, "blocks that are not backed, and write_from");
    }
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        plan_numbers(&space, &b->batch);
        snprintf(what, sizeof what, "latents: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, false, what);
    }
    if (!good || !edge_pages(b) || !far_pages(b)) return false;
    if (!b->rules.kv_norm) return true;
    plan_numbers(&space, &b->batch);
    return set_weight(b, true) && run_case(b, INPUT_RANDOM, false, "norm weights of every kind");
}

bool verify_swa_paged(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->both = !strcmp(subject->kernel, "swa_write_workspace");
    b->positions = 4 * b->rules.block + 64;
    b->table_stride = 4; /* the last positions lie beyond the table */
    b->pages = 16 * b->table_stride;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_all(b) && run_all(b);
    verify_place_destroy(verify, &b->window);
    buffer_destroy(verify->session, &b->weight);
    buffer_destroy(verify->session, &b->rope);
    free(b);
    return good;
}
