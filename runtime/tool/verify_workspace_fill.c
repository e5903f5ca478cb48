/* workspace_fill: the rows before each request's chunk, byte for byte, wherever the chunk begins.
 */
#include "plans.h"
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_STRIDE 5
#define PAGES        17 /* several requests may share one: the kernel only reads */

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    bool paged;
    uint32_t rows, slots, positions; /* rows a page; slots in ring mode */
    struct verify_place window;
    struct batch batch;
};

struct inputs {
    struct batch_device batch;
    struct buffer table;
    struct verify_place workspace;
};

/* Pages at random; in `holes` some blocks have none. */
static void fill_table(struct bench *b, bool holes, int32_t *table) {
    uint64_t *random = &b->verify->random;
    for (uint32_t i = 0; i < b->batch.requests * TABLE_STRIDE; i++) {
        uint32_t chance = holes ? input_below(random, 8) : 8;
        table[i] = chance == 0   ? -1
                   : chance == 1 ? PAGES
                   : chance == 2 ? INT32_MIN
                                 : (int32_t)input_below(random, PAGES);
    }
}

static bool make_inputs(struct bench *b, bool holes, struct inputs *out) {
    struct session *session = b->verify->session;
    size_t columns = (size_t)b->batch.requests * TABLE_STRIDE;
    if (!batch_upload(session, &b->batch, &out->batch) ||
        !verify_place_create_workspace(b->verify, &b->call, &b->rules, b->rows, &b->batch,
                                       &out->workspace) ||
        !buffer_create(session, "window_table", 4 * columns, false, &out->table))
        return false;
    fill_table(b, holes, buffer_ints(&out->table));
    return buffer_upload(session, &out->table);
}

static void free_inputs(struct bench *b, struct inputs *inputs) {
    batch_free(b->verify->session, &inputs->batch);
    verify_place_destroy(b->verify, &inputs->workspace);
    buffer_destroy(b->verify->session, &inputs->table);
}

static bool launch(struct bench *b, const struct inputs *inputs) {
    struct call *call = &b->call;
    batch_set(&b->batch, &inputs->batch, b->slots, 0, call);
    if (b->paged) {
        call_set(call, "pages", PAGES);
        call_set(call, "table_stride", TABLE_STRIDE);
        call_set(call, "window_table", buffer_address(&inputs->table));
    }
    verify_place_bind(&b->window, call);
    verify_place_bind(&inputs->workspace, call);
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b, const struct inputs *inputs) {
    struct ref_workspace_fill args = {
        .batch = batch_reference(&b->batch, b->slots, 0),
        .paged = b->paged,
        .table = {buffer_ints(&inputs->table), TABLE_STRIDE, PAGES},
        .window = verify_place_reference(&b->window),
        .workspace = verify_place_reference(&inputs->workspace),
    };
    ref_workspace_fill(&b->rules, &args);
}

/* The window place is compared too: nothing may be written there. */
static bool run_case(struct bench *b, bool holes, const char *what) {
    struct inputs inputs = {0};
    struct outputs outputs = {0};
    bool good = make_inputs(b, holes, &inputs);
    verify_place_outputs(&b->window, &outputs);
    verify_place_outputs(&inputs.workspace, &outputs);
    good = good && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b, &inputs);
        reference(b, &inputs);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    free_inputs(b, &inputs);
    return good && !b->verify->broken;
}

/* Chunks that begin where the window before them is empty, short, whole, and across ends of pages.
 */
static void first_positions(struct bench *b) {
    uint32_t window = b->rules.window, rows = b->rows;
    const uint32_t at[] = {0, 1, window - 1, window, window + 1, rows, rows + window / 2, 2 * rows};
    batch_clear(&b->batch);
    for (uint32_t i = 0; i < sizeof at / sizeof *at; i++) {
        batch_request(&b->batch, (int32_t)i % PLAN_SLOTS, (int32_t)at[i], 1 + i % 3);
        if (i % 3 == 1) batch_request(&b->batch, 0, (int32_t)at[i], 0);
    }
}

/* No chunk begins at these. */
static void bad_positions(struct bench *b) {
    batch_clear(&b->batch);
    for (int i = 0; i < 4; i++) batch_request(&b->batch, i, 0, 2);
    b->batch.position[0] = INT32_MIN;
    b->batch.position[2] = INT32_MIN + 5;
    b->batch.position[4] = -1;
    b->batch.position[6] = INT32_MAX; /* beyond every table; in a ring it has a row */
}

static bool run_all(struct bench *b) {
    const struct plan_space space = {b->rows, b->positions, &b->verify->random};
    first_positions(b);
    bool good = run_case(b, false, "chunks from the first position on and after");
    bad_positions(b);
    good = good && run_case(b, false, "first positions that are none");
    for (size_t i = 0; good && i < plan_count(); i++) {
        plan_build(i, &space, &b->batch);
        good = run_case(b, false, plan_name(i));
    }
    for (int i = 0; good && b->paged && i < 4; i++) {
        plan_build(PLAN_MANY, &space, &b->batch);
        good = run_case(b, true, "blocks that are not backed");
    }
    return good;
}

bool verify_workspace_fill(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->paged = verify->session->rules.paged;
    b->rows = b->paged ? b->rules.block : b->rules.ring;
    b->slots = PLAN_SLOTS;
    b->positions = 6 * b->rows; /* the last ones lie beyond the table */
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                verify_place_create_output(verify, &b->call, "swa", &b->rules, b->rows,
                                           b->paged ? PAGES : b->slots, &b->window);
    if (good) verify_place_scramble(verify, &b->window);
    good = good && verify_place_upload(verify, &b->window) && run_all(b);
    verify_place_destroy(verify, &b->window);
    free(b);
    return good && verify_history(verify, subject);
}
