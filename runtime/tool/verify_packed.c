/* row_lists_packed, row_lists_packed_prefill and translate_pack_packed: every token's slice,
 * whatever slices, tables and counts hold. */
#include "plans.h"
#include "reference/packed.h"
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
    bool packs, prefill;
    uint32_t positions, table_stride, pages, topk_stride;
    struct batch batch;
    struct batch_device device;
    struct buffer block, window; /* tables */
    struct buffer indptr, extend_indptr, topk, topk_count, skip;
    struct buffer rows, extend, window_count; /* outputs */
};

static bool make(struct bench *b, const char *name, size_t count, bool output, struct buffer *out) {
    return buffer_create(b->verify->session, name, 4 * count, output, out);
}

/* Pages at random: some blocks have none, some one beyond the pool. */
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

/* Slices as the rules have them, now and then longer, shorter or empty; padding has none. */
static bool make_slices(struct bench *b, const char *name, struct buffer *out, uint32_t *total) {
    uint32_t end = 3, entries;
    if (!make(b, name, b->batch.tokens + 1, false, out)) return false;
    for (uint32_t t = 0; t < b->batch.tokens; t++) {
        int32_t position = b->batch.position[t];
        uint32_t seen = position < 0 ? 0 : (uint32_t)position + 1, length;
        buffer_ints(out)[t] = (int32_t)end;
        entries = b->rules.ratio ? seen / b->rules.ratio : 0;
        if (b->subject->info->has_indexer && entries > b->topk_stride) entries = b->topk_stride;
        length = (seen < b->rules.window ? seen : b->rules.window) + entries;
        switch (input_below(&b->verify->random, 8)) {
        case 0: length += 5; break;
        case 1: length = input_below(&b->verify->random, length + 1); break;
        default: break;
        }
        end += length;
    }
    buffer_ints(out)[b->batch.tokens] = (int32_t)end;
    *total = end;
    return true;
}

/* A slice that ends before it begins or beyond the array is none. */
static void spoil(struct bench *b, struct buffer *slices, uint32_t *total) {
    uint32_t last = b->batch.tokens;
    if (last < 3) return;
    buffer_ints(slices)[last / 2] = -7;
    *total -= (uint32_t)(buffer_ints(slices)[last] - buffer_ints(slices)[last - 1]) / 2;
}

static bool make_chosen(struct bench *b) {
    uint64_t *random = &b->verify->random;
    uint32_t tokens = b->batch.tokens;
    struct session *session = b->verify->session;
    if (!make(b, "topk", (size_t)tokens * b->topk_stride, false, &b->topk) ||
        !make(b, "topk_count", tokens, false, &b->topk_count) ||
        !make(b, "window_count", tokens, false, &b->skip))
        return false;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < b->topk_stride; i++)
            buffer_ints(&b->topk)[t * b->topk_stride + i] =
                (int32_t)input_below(random, b->positions / b->rules.ratio + 40) - 1;
        buffer_ints(&b->topk_count)[t] = (int32_t)input_below(random, b->topk_stride + 1);
        int32_t seen = b->batch.position[t] + 1, window = (int32_t)b->rules.window;
        buffer_ints(&b->skip)[t] = seen < window ? seen : window;
    }
    return buffer_upload(session, &b->topk) && buffer_upload(session, &b->topk_count) &&
           buffer_upload(session, &b->skip);
}

static bool make_case(struct bench *b, bool spoiled) {
    struct session *session = b->verify->session;
    uint32_t rows = 0, extend = 0;
    if (!batch_upload(session, &b->batch, &b->device) ||
        !make_page_table(b, "block_table", &b->block) ||
        !make_page_table(b, "window_table", &b->window) ||
        !make_slices(b, "indptr", &b->indptr, &rows) ||
        !make_slices(b, "extend_indptr", &b->extend_indptr, &extend))
        return false;
    if (spoiled) spoil(b, &b->indptr, &rows);
    if (spoiled) spoil(b, &b->extend_indptr, &extend);
    return (!b->packs || make_chosen(b)) && buffer_upload(session, &b->indptr) &&
           buffer_upload(session, &b->extend_indptr) && make(b, "rows", rows, true, &b->rows) &&
           make(b, "extend", extend, true, &b->extend) &&
           make(b, "window_count", b->batch.tokens, true, &b->window_count) &&
           buffer_upload(session, &b->rows) && buffer_upload(session, &b->extend) &&
           buffer_upload(session, &b->window_count);
}

static void free_case(struct bench *b) {
    struct session *session = b->verify->session;
    struct buffer *all[] = {&b->block,  &b->window,      &b->indptr, &b->extend_indptr,
                            &b->topk,   &b->topk_count,  &b->skip,   &b->rows,
                            &b->extend, &b->window_count};
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
    set(call, "topk_stride", b->topk_stride);
    set(call, "list_rows", (uint32_t)buffer_bytes(&b->rows) / 4);
    set(call, "extend_rows", (uint32_t)buffer_bytes(&b->extend) / 4);
    set(call, "indptr", buffer_address(&b->indptr));
    set(call, "extend_indptr", buffer_address(&b->extend_indptr));
    set(call, "block_table", buffer_address(&b->block));
    set(call, "window_table", buffer_address(&b->window));
    if (b->packs) set(call, "topk", buffer_address(&b->topk));
    if (b->packs) set(call, "topk_count", buffer_address(&b->topk_count));
    set(call, "window_count", buffer_address(b->packs ? &b->skip : &b->window_count));
    set(call, "rows", buffer_address(&b->rows));
    set(call, "extend", buffer_address(&b->extend));
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_batch batch = batch_reference(&b->batch, SLOTS, 0);
    struct ref_table block = {buffer_ints(&b->block), b->table_stride, b->pages};
    struct ref_table window = {buffer_ints(&b->window), b->table_stride, b->pages};
    struct ref_ragged rows = {buffer_ints(&b->indptr), (uint32_t)buffer_bytes(&b->rows) / 4,
                              buffer_ints(&b->rows)};
    struct ref_ragged extend = {buffer_ints(&b->extend_indptr),
                                (uint32_t)buffer_bytes(&b->extend) / 4, buffer_ints(&b->extend)};
    struct ref_packed_lists lists = {
        batch, b->prefill, b->subject->info->has_indexer, window, block,
        rows,  extend,     buffer_ints(&b->window_count)};
    struct ref_packed_chosen chosen = {batch, block, b->topk_stride, NULL, NULL, NULL, rows};
    if (!b->packs) {
        ref_packed_lists(&b->rules, &lists);
        return;
    }
    chosen.topk = buffer_ints(&b->topk);
    chosen.topk_count = buffer_ints(&b->topk_count);
    chosen.skip = buffer_ints(&b->skip);
    ref_packed_chosen(&b->rules, &chosen);
}

static bool run_case(struct bench *b, bool spoiled, const char *what) {
    struct outputs outputs = {.list = {&b->rows, &b->extend, &b->window_count}, .count = 3};
    bool good = make_case(b, spoiled) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    free_case(b);
    return good && !b->verify->broken;
}

static bool run_all(struct bench *b) {
    const struct plan_space space = {b->rules.ring, b->positions, &b->verify->random};
    char what[96];
    bool good = true;
    for (int spoiled = 0; spoiled < 2; spoiled++)
        for (size_t i = 0; good && i < plan_count(); i++) {
            if (spoiled && i != PLAN_MANY) continue;
            plan_build(i, &space, &b->batch);
            snprintf(what, sizeof what, "%s%s", plan_name(i),
                     spoiled ? ", slices that are none" : "");
            good = run_case(b, spoiled, what);
        }
    return good;
}

bool verify_packed(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->packs = !strcmp(subject->kernel, "translate_pack_packed");
    b->prefill = !strcmp(subject->kernel, "row_lists_packed_prefill");
    b->positions = 4 * b->rules.ring + 1000;
    b->table_stride = b->positions / b->rules.block; /* the last positions lie beyond it */
    b->pages = 37;
    b->topk_stride = 24;
    bool good =
        call_open(verify->session, subject->info->name, subject->kernel, &b->call) && run_all(b);
    free(b);
    return good;
}
