/* row_lists, row_lists_workspace and translate_pack: every token's list, whatever the tables and
 * counts hold. */
#include "plans.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 9

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    bool packs, paged, workspace; /* translate_pack; window in pages; row_lists_workspace */
    uint32_t positions, table_stride, pages;
    uint32_t list_stride, topk_stride; /* elements */
    struct batch batch;
    struct batch_device device;
    struct buffer block, window;           /* tables */
    struct buffer topk, topk_count, given; /* translate_pack's inputs; `given`: window_count */
    struct buffer rows, window_count, entry_count; /* outputs */
};

static bool make(struct bench *b, const char *name, size_t count, bool output, struct buffer *out) {
    return buffer_create(b->verify->session, name, 4 * count, output, out);
}

/* Pages at random: several requests may share one, some blocks have none. */
static bool make_page_table(struct bench *b, const char *name, struct buffer *out) {
    size_t count = (size_t)b->batch.requests * b->table_stride;
    uint64_t *random = &b->verify->random;
    if (!make(b, name, count, false, out)) return false;
    for (size_t i = 0; i < count; i++) {
        uint32_t chance = input_below(random, 12);
        buffer_ints(out)[i] = chance == 0   ? -1
                              : chance == 1 ? (int32_t)b->pages
                                            : (int32_t)input_below(random, b->pages);
    }
    return buffer_upload(b->verify->session, out);
}

/* Chosen entries, ascending or not, some beyond what the table can name. */
static bool make_topk(struct bench *b) {
    uint64_t *random = &b->verify->random;
    uint32_t tokens = b->batch.tokens;
    if (!make(b, "topk", (size_t)tokens * b->topk_stride, false, &b->topk) ||
        !make(b, "topk_count", tokens, false, &b->topk_count) ||
        !make(b, "window_count", tokens, false, &b->given))
        return false;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < b->topk_stride; i++)
            buffer_ints(&b->topk)[t * b->topk_stride + i] =
                (int32_t)input_below(random, b->positions / b->rules.ratio + 40);
        buffer_ints(&b->topk_count)[t] = (int32_t)input_below(random, b->topk_stride + 1);
        buffer_ints(&b->given)[t] = (int32_t)input_below(random, b->list_stride + 1);
    }
    struct session *session = b->verify->session;
    return buffer_upload(session, &b->topk) && buffer_upload(session, &b->topk_count) &&
           buffer_upload(session, &b->given);
}

static bool make_outputs(struct bench *b) {
    struct session *session = b->verify->session;
    uint32_t tokens = b->batch.tokens;
    return make(b, "rows", (size_t)tokens * b->list_stride, true, &b->rows) &&
           make(b, "window_count", tokens, true, &b->window_count) &&
           make(b, "entry_count", tokens, true, &b->entry_count) &&
           buffer_upload(session, &b->rows) && buffer_upload(session, &b->window_count) &&
           buffer_upload(session, &b->entry_count);
}

static bool make_case(struct bench *b) {
    return batch_upload(b->verify->session, &b->batch, &b->device) &&
           make_page_table(b, "block_table", &b->block) &&
           make_page_table(b, "window_table", &b->window) && (!b->packs || make_topk(b)) &&
           make_outputs(b);
}

static void free_case(struct bench *b) {
    struct session *session = b->verify->session;
    struct buffer *all[] = {&b->block, &b->window, &b->topk,         &b->topk_count,
                            &b->given, &b->rows,   &b->window_count, &b->entry_count};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(session, all[i]);
    batch_free(session, &b->device);
}

static void set(struct call *call, const char *name, uint64_t value) {
    if (call_has(call, name)) call_set(call, name, value);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    batch_set(&b->batch, &b->device, SLOTS, 0, call);
    set(call, "window_pages", b->pages);
    set(call, "block_pages", b->pages);
    set(call, "table_stride", b->table_stride);
    set(call, "list_stride", b->list_stride);
    set(call, "topk_stride", b->topk_stride);
    set(call, "block_table", buffer_address(&b->block));
    set(call, "window_table", buffer_address(&b->window));
    if (b->packs) {
        call_set(call, "topk", buffer_address(&b->topk));
        call_set(call, "topk_count", buffer_address(&b->topk_count));
    }
    call_set(call, "window_count", buffer_address(b->packs ? &b->given : &b->window_count));
    call_set(call, "rows", buffer_address(&b->rows));
    call_set(call, "entry_count", buffer_address(&b->entry_count));
    return verify_launch(b->verify, call);
}

static struct ref_table table(const struct bench *b, const struct buffer *buffer) {
    return (struct ref_table){buffer_ints(buffer), b->table_stride, b->pages};
}

static void reference_lists(struct bench *b) {
    struct ref_row_lists args = {
        .batch = batch_reference(&b->batch, SLOTS, 0),
        .paged = b->paged,
        .workspace = b->workspace,
        .window = table(b, &b->window),
        .block = table(b, &b->block),
        .indexer = b->subject->info->has_indexer,
        .list_stride = b->list_stride,
        .rows = buffer_ints(&b->rows),
        .window_count = buffer_ints(&b->window_count),
        .entry_count = buffer_ints(&b->entry_count),
    };
    ref_row_lists(&b->rules, &args);
}

static void reference_pack(struct bench *b) {
    struct ref_translate_pack args = {
        .batch = batch_reference(&b->batch, SLOTS, 0),
        .block = table(b, &b->block),
        .list_stride = b->list_stride,
        .topk_stride = b->topk_stride,
        .topk = buffer_ints(&b->topk),
        .topk_count = buffer_ints(&b->topk_count),
        .window_count = buffer_ints(&b->given),
        .rows = buffer_ints(&b->rows),
        .entry_count = buffer_ints(&b->entry_count),
    };
    ref_translate_pack(&b->rules, &args);
}

static bool run_case(struct bench *b, const char *what) {
    struct outputs outputs = {.list = {&b->rows, &b->window_count, &b->entry_count}, .count = 3};
    bool good = make_case(b) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        if (b->packs)
            reference_pack(b);
        else
            reference_lists(b);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    free_case(b);
    return good && !b->verify->broken;
}

/* With room for everything, and with lists too short for the entries or even for the window. */
static bool run_all(struct bench *b) {
    const struct plan_space space = {b->rules.ring, b->positions, &b->verify->random};
    uint32_t entries = b->rules.ratio ? b->positions / b->rules.ratio : 0;
    const uint32_t strides[] = {b->rules.window + entries + 5, b->rules.window + 2,
                                b->rules.window - 1};
    char what[96];
    bool good = true;
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++)
        for (size_t i = 0; good && i < plan_count(); i++) {
            if (s && i != PLAN_MANY) continue;
            b->list_stride = strides[s];
            plan_build(i, &space, &b->batch);
            snprintf(what, sizeof what, "%s, lists of %u", plan_name(i), strides[s]);
            good = run_case(b, what);
        }
    return good;
}

bool verify_lists(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->packs = !strcmp(subject->kernel, "translate_pack");
    b->workspace = !strcmp(subject->kernel, "row_lists_workspace");
    b->paged = verify->session->rules.paged;
    b->positions = 4 * b->rules.ring + 1000;
    b->table_stride = b->positions / b->rules.block; /* the last positions lie beyond it */
    b->pages = 37;
    b->topk_stride = 24;
    bool good =
        call_open(verify->session, subject->info->name, subject->kernel, &b->call) && run_all(b);
    free(b);
    return good;
}
