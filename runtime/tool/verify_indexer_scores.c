/* indexer_scores: entries of every number, visible, hidden, and without a page. */
#include "reference/indexer.h"
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS   8
#define REQUESTS 3u
#define COLUMNS  5u /* of the block table */
#define PAGES    12

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type index; /* rules with the index format and indexer.dim */
    struct ref_tensor_core core;
    struct call call;
    struct verify_place keys;
    uint32_t heads, k; /* k: entries a page */
    uint32_t tokens, first, scores_stride;
    int32_t batch_id[TOKENS], position[TOKENS];
    struct buffer q, w, table, ids, positions, scores;
};

/* ---- one case ---- */

static bool make_ints(struct bench *b, const char *name, const int32_t *from, size_t count,
                      struct buffer *out) {
    if (!buffer_create(b->verify->session, name, 4 * count, false, out)) return false;
    if (count) memcpy(buffer_data(out), from, 4 * count);
    return buffer_upload(b->verify->session, out);
}

/* Pages in any order; some blocks have none, one lies beyond the pool. */
static void fill_table(struct bench *b, int32_t *table) {
    uint32_t start = input_below(&b->verify->random, PAGES);
    for (uint32_t i = 0; i < REQUESTS * COLUMNS; i++)
        table[i] = (int32_t)(b->keys.first + (start + 5 * i) % PAGES);
    table[2] = -1;
    table[COLUMNS + 1] = (int32_t)(b->keys.first + PAGES);
    table[COLUMNS + COLUMNS] = INT32_MIN;
}

/* Numbers into every row that some token may see; all others stay NaN. */
static void fill_keys(struct bench *b, enum input_kind kind) {
    verify_place_clear(&b->keys);
    for (uint32_t t = 0; t < b->tokens; t++) {
        int32_t request = b->batch_id[t], position = b->position[t];
        if (request < 0 || (uint32_t)request >= REQUESTS || position < 0) continue;
        uint32_t visible = ((uint32_t)position + 1) / b->index.ratio;
        for (uint32_t j = 0; j < visible && j / b->k < COLUMNS; j++) {
            int32_t page = buffer_ints(&b->table)[(uint32_t)request * COLUMNS + j / b->k];
            if (page >= 0 && (uint32_t)page < b->keys.first + PAGES)
                verify_place_store(b->verify, &b->keys, kind, (uint32_t)page * b->k + j % b->k);
        }
    }
}

static bool make_inputs(struct bench *b, enum input_kind q, enum input_kind w,
                        enum input_kind keys) {
    struct session *session = b->verify->session;
    uint64_t *random = &b->verify->random;
    int32_t table[REQUESTS * COLUMNS];
    size_t heads = (size_t)b->tokens * b->heads;
    fill_table(b, table);
    if (!make_ints(b, "batch_id", b->batch_id, b->tokens, &b->ids) ||
        !make_ints(b, "position", b->position, b->tokens, &b->positions) ||
        !make_ints(b, "block_table", table, sizeof table / 4, &b->table) ||
        !buffer_create(session, "q", 2 * heads * b->index.head_dim, false, &b->q) ||
        !buffer_create(session, "w", 4 * heads, false, &b->w))
        return false;
    for (size_t i = 0; i < heads; i++)
        input_vector(random, q, REF_BFLOAT, buffer_data(&b->q) + 2 * i * b->index.head_dim,
                     b->index.head_dim);
    input_vector(random, w, REF_F32, buffer_data(&b->w), (uint32_t)heads);
    fill_keys(b, keys);
    return buffer_upload(session, &b->q) && buffer_upload(session, &b->w) &&
           verify_place_upload(b->verify, &b->keys);
}

static bool make_scores(struct bench *b) {
    struct session *session = b->verify->session;
    return buffer_create(session, "scores", 4 * (size_t)b->tokens * b->scores_stride, true,
                         &b->scores) &&
           buffer_upload(session, &b->scores);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    call_set(call, "tokens", b->tokens);
    call_set(call, "requests", REQUESTS);
    call_set(call, "pages", b->keys.first + PAGES);
    call_set(call, "table_stride", COLUMNS);
    call_set(call, "scores_stride", b->scores_stride);
    call_set(call, "first", b->first);
    call_set(call, "batch_id", buffer_address(&b->ids));
    call_set(call, "position", buffer_address(&b->positions));
    call_set(call, "q", buffer_address(&b->q));
    call_set(call, "w", buffer_address(&b->w));
    call_set(call, "block_table", buffer_address(&b->table));
    verify_place_bind(&b->keys, call);
    call_set(call, "scores", buffer_address(&b->scores));
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_indexer_scores args = {
        .core = b->core,
        .tokens = b->tokens,
        .requests = REQUESTS,
        .heads = b->heads,
        .scores_stride = b->scores_stride,
        .first = b->first,
        .batch_id = b->batch_id,
        .position = b->position,
        .q = buffer_halves(&b->q),
        .w = buffer_floats(&b->w),
        .block_table = {buffer_ints(&b->table), COLUMNS, b->keys.first + PAGES},
        .keys = verify_place_reference(&b->keys),
        .scores = buffer_floats(&b->scores),
    };
    ref_indexer_scores(&b->index, &args);
}

static bool run_case(struct bench *b, enum input_kind q, enum input_kind w, enum input_kind keys,
                     const char *what) {
    struct verify *verify = b->verify;
    struct outputs outputs = {.list = {&b->scores}, .count = 1};
    bool good = make_inputs(b, q, w, keys) && make_scores(b) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(verify, b->subject, &outputs, ran, what, b->tokens);
    }
    struct buffer *all[] = {&b->q, &b->w, &b->table, &b->ids, &b->positions, &b->scores};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(verify->session, all[i]);
    return good && !verify->broken;
}

/* ---- the cases ---- */

/* A token that sees `visible` entries exactly. */
static void add_token(struct bench *b, int32_t request, uint32_t visible, uint32_t beyond) {
    b->batch_id[b->tokens] = request;
    b->position[b->tokens++] = (int32_t)(visible * b->index.ratio + beyond) - 1;
}

static void begin(struct bench *b, uint32_t first, uint32_t scores_stride) {
    b->tokens = 0;
    b->first = first;
    b->scores_stride = scores_stride;
}

static bool shapes(struct bench *b) {
    uint32_t all = COLUMNS * b->k;
    begin(b, 0, 64);
    add_token(b, 0, 1, 0);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "one token, one entry"))
        return false;
    begin(b, 0, 130);
    add_token(b, 0, 0, 1);
    add_token(b, 0, 1, b->index.ratio - 1);
    add_token(b, 1, 63, 0);
    add_token(b, 1, 64, 0);
    add_token(b, 2, 65, 0);
    add_token(b, 0, 129, 0);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "entries around a tile's end"))
        return false;
    begin(b, 0, all + 5);
    add_token(b, 0, all, 0);
    add_token(b, 1, all + 3, 0);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "the whole table, and beyond it"))
        return false;
    begin(b, b->k - 3, 70);
    add_token(b, 0, all, 0);
    add_token(b, 2, b->k - 3, 0);
    add_token(b, 2, b->k - 2, 0);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "a part of the entries"))
        return false;
    begin(b, 0, 40);
    add_token(b, -1, 20, 0);
    add_token(b, 1, 0, 0); /* position -1 */
    add_token(b, (int32_t)REQUESTS, 20, 0);
    add_token(b, INT32_MIN, 20, 0);
    add_token(b, 0, 33, 0);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "padding and indices out of range"))
        return false;
    begin(b, 0, 40);
    return run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "no token at all");
}

static bool numbers(struct bench *b) {
    char what[96];
    bool good = true;
    for (int i = 0; good && i < INPUT_KINDS; i++) {
        enum input_kind kind = (enum input_kind)i;
        begin(b, 0, 66);
        add_token(b, 0, 66, 0);
        add_token(b, 1, 30, 0);
        snprintf(what, sizeof what, "keys: %s", input_names[kind]);
        good = run_case(b, INPUT_RANDOM, INPUT_RANDOM, kind, what);
        snprintf(what, sizeof what, "queries: %s", input_names[kind]);
        good = good && run_case(b, kind, INPUT_RANDOM, INPUT_RANDOM, what);
        snprintf(what, sizeof what, "weights: %s", input_names[kind]);
        good = good && run_case(b, INPUT_RANDOM, kind, INPUT_RANDOM, what);
        snprintf(what, sizeof what, "all of them: %s", input_names[kind]);
        good = good && run_case(b, kind, kind, kind, what);
    }
    return good;
}

/* Page ids so high that 32 bits cannot count their bytes. */
static bool far_pages(struct bench *b) {
    verify_place_far(&b->keys);
    begin(b, 0, 66);
    add_token(b, 0, 66, 0);
    add_token(b, 1, 30, 0);
    return run_case(b, INPUT_RANDOM, INPUT_RANDOM, INPUT_RANDOM, "pages far away");
}

bool verify_indexer_scores(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->index = verify_index(verify, subject);
    b->heads = subject->info->indexer_heads;
    b->k = b->index.block / b->index.ratio;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call);
    if (good) b->core = verify_core(verify);
    good = good &&
           verify_place_create(verify, &b->call, "index", &b->index, b->k, PAGES, &b->keys) &&
           shapes(b) && numbers(b) && far_pages(b);
    verify_place_destroy(verify, &b->keys);
    free(b);
    return good;
}
