/* workspace_fill: the rows before a chunk, from rings and from pages that may not be backed. */
#include "plans.h"
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>

#define SLOTS PLAN_SLOTS
#define PAGES 13

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    bool paged;
    uint32_t positions, table_stride;
    struct verify_place window, workspace;
    struct buffer table;
    struct batch batch;
    struct batch_device device;
};

static bool make_places(struct bench *b) {
    uint32_t rows = b->paged ? b->rules.block : b->rules.ring, pages = b->paged ? PAGES : SLOTS;
    if (!verify_place_create(b->verify, &b->call, "swa", &b->rules, rows, pages, &b->window) ||
        !verify_workspace_create(b->verify, &b->call, &b->rules, rows, &b->workspace))
        return false;
    for (uint32_t i = 0; i < rows * pages; i++)
        verify_place_store(b->verify, &b->window, INPUT_BITS, i);
    return verify_place_upload(b->verify, &b->window);
}

/* Pages at random; some blocks have none, some ids lie beyond the pool. */
static bool make_table(struct bench *b) {
    size_t count = (size_t)b->batch.requests * b->table_stride;
    if (!buffer_create(b->verify->session, "window_table", 4 * count, false, &b->table))
        return false;
    for (size_t i = 0; i < count; i++)
        buffer_ints(&b->table)[i] = (int32_t)input_below(&b->verify->random, PAGES + 2) - 1;
    return buffer_upload(b->verify->session, &b->table);
}

static bool launch(struct bench *b) {
    batch_set(&b->batch, &b->device, SLOTS, 0, &b->call);
    if (b->paged) {
        call_set(&b->call, "pages", PAGES);
        call_set(&b->call, "table_stride", b->table_stride);
        call_set(&b->call, "window_table", buffer_address(&b->table));
    }
    verify_place_bind(&b->window, &b->call);
    verify_place_bind(&b->workspace, &b->call);
    return call_launch(b->verify->session, &b->call);
}

static void reference(struct bench *b) {
    struct ref_workspace_fill args = {
        .batch = batch_reference(&b->batch, SLOTS, 0),
        .paged = b->paged,
        .table = {buffer_ints(&b->table), b->table_stride, PAGES},
        .window = verify_place_reference(&b->window),
        .workspace = verify_place_reference(&b->workspace),
    };
    ref_workspace_fill(&b->rules, &args);
}

static bool run_case(struct bench *b, const char *what) {
    struct session *session = b->verify->session;
    struct outputs outputs = {0};
    verify_place_outputs(&b->window, &outputs); /* only read */
    verify_place_outputs(&b->workspace, &outputs);
    verify_place_clear(&b->workspace);
    bool good = batch_upload(session, &b->batch, &b->device) && make_table(b) &&
                verify_place_upload(b->verify, &b->workspace) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    buffer_destroy(session, &b->table);
    batch_free(session, &b->device);
    return good && !b->verify->broken;
}

bool verify_workspace_fill(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->paged = verify->session->rules.paged;
    b->positions = 4 * (b->paged ? b->rules.block : b->rules.ring) + 64;
    b->table_stride = b->positions / b->rules.block; /* the last positions lie beyond it */
    const struct plan_space space = {b->rules.ring, b->positions, &verify->random};
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_places(b);
    for (size_t i = 0; good && i < plan_count(); i++) {
        plan_build(i, &space, &b->batch);
        good = run_case(b, plan_name(i));
    }
    verify_place_destroy(verify, &b->window);
    verify_place_destroy(verify, &b->workspace);
    free(b);
    return good;
}
