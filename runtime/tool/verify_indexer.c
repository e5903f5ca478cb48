/* indexer_query, indexer_scores and indexer_topk. */
#include "plans.h"
#include "verify.h"

#include "reference/indexer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS    9u
#define POSITIONS 70
#define PAGES     11

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type index; /* the type, with the format and the dim of index rows */
    uint32_t heads, topk;
    struct call call;
    struct buffer position, in[3], out[2]; /* in and out: each kernel's own */
    uint64_t stride[3];
};

static bool make(struct bench *b, const char *name, size_t bytes, bool output, struct buffer *out) {
    return buffer_create(b->verify->session, name, bytes, output, out) &&
           (!output || buffer_upload(b->verify->session, out));
}

static void free_case(struct bench *b) {
    struct session *session = b->verify->session;
    buffer_destroy(session, &b->position);
    for (int i = 0; i < 3; i++) buffer_destroy(session, &b->in[i]);
    for (int i = 0; i < 2; i++) buffer_destroy(session, &b->out[i]);
}

/* Positions below `limit`, some out of every range. */
static bool make_positions(struct bench *b, int32_t limit) {
    static const int32_t odd[] = {-1, INT32_MIN, 0};
    if (!make(b, "position", 4 * TOKENS, false, &b->position)) return false;
    for (uint32_t t = 0; t < TOKENS; t++)
        buffer_ints(&b->position)[t] =
            t % 3 == 2 ? odd[t / 3] : (int32_t)input_below(&b->verify->random, (uint32_t)limit);
    return buffer_upload(b->verify->session, &b->position);
}

static bool begin(struct verify *verify, const struct subject *subject, struct bench *b) {
    memset(b, 0, sizeof *b);
    b->verify = verify;
    b->subject = subject;
    b->index = subject->rules;
    b->index.format = rules_index_format(&verify->session->rules, subject->info->name);
    b->index.head_dim = subject->info->indexer_dim;
    b->heads = subject->info->indexer_heads;
    b->topk = subject->info->indexer_topk;
    return b->index.format != REF_FORMATS &&
           call_open(verify->session, subject->info->name, subject->kernel, &b->call);
}

/* ---- indexer_query ---- */

static bool make_query(struct bench *b, enum input_kind kind) {
    struct verify *verify = b->verify;
    uint32_t heads = b->heads, dim = b->index.head_dim;
    size_t rope = (size_t)POSITIONS * b->index.rope_dim;
    if (!make_positions(b, POSITIONS + 5) || !make(b, "rope", 4 * rope, false, &b->in[2]))
        return false;
    input_rope(&verify->random, buffer_floats(&b->in[2]), rope);
    return buffer_upload(verify->session, &b->in[2]) &&
           verify_matrix(verify, &b->call, "q", TOKENS, heads * dim, REF_BFLOAT, kind, &b->in[0],
                         &b->stride[0]) &&
           verify_matrix(verify, &b->call, "weights", TOKENS, heads, REF_F32, kind, &b->in[1],
                         &b->stride[1]) &&
           make(b, "q_out", 2 * (size_t)TOKENS * heads * dim, true, &b->out[0]) &&
           make(b, "w_out", 4 * (size_t)TOKENS * heads, true, &b->out[1]);
}

static bool launch_query(struct bench *b) {
    call_set(&b->call, "tokens", TOKENS);
    call_set(&b->call, "positions", POSITIONS);
    call_set(&b->call, "position", buffer_address(&b->position));
    call_set(&b->call, "rope", buffer_address(&b->in[2]));
    verify_bind(&b->call, "q", &b->in[0], b->stride[0]);
    verify_bind(&b->call, "weights", &b->in[1], b->stride[1]);
    call_set(&b->call, "q_out", buffer_address(&b->out[0]));
    call_set(&b->call, "w_out", buffer_address(&b->out[1]));
    return call_launch(b->verify->session, &b->call);
}

static bool run_query(struct bench *b, enum input_kind kind) {
    struct outputs outputs = {.list = {&b->out[0], &b->out[1]}, .count = 2};
    bool good = make_query(b, kind) && outputs_remember(&outputs);
    if (good) {
        struct ref_indexer_query args = {
            .tokens = TOKENS,
            .positions = POSITIONS,
            .heads = b->heads,
            .position = buffer_ints(&b->position),
            .rope = buffer_floats(&b->in[2]),
            .q = buffer_data(&b->in[0]),
            .weights = buffer_data(&b->in[1]),
            .q_stride = b->stride[0],
            .weights_stride = b->stride[1],
            .q_out = buffer_halves(&b->out[0]),
            .w_out = buffer_floats(&b->out[1]),
        };
        bool ran = launch_query(b);
        ref_indexer_query(&b->index, &args);
        char what[96];
        snprintf(what, sizeof what, "queries and weights: %s", input_names[kind]);
        verify_case(b->verify, b->subject, &outputs, ran, what, TOKENS);
    }
    free_case(b);
    return good && !b->verify->broken;
}

bool verify_indexer_query(struct verify *verify, const struct subject *subject) {
    struct bench b;
    bool good = begin(verify, subject, &b);
    for (int kind = 0; good && kind < INPUT_KINDS; kind++)
        good = run_query(&b, (enum input_kind)kind);
    return good;
}

/* ---- indexer_scores ---- */

struct scores_case {
    struct batch batch;
    struct batch_device device;
    struct buffer table, plane;
    uint64_t plane_stride;
    uint32_t table_stride, scores_stride, first;
};

static uint32_t page_rows(const struct bench *b) {
    return b->index.block / b->index.ratio;
}

/* Index rows of a kind in every page, as they are stored. */
static bool make_index(struct bench *b, struct scores_case *c, enum input_kind kind) {
    uint16_t key[REF_MAX_DIM];
    char name[32];
    snprintf(name, sizeof name, "index_%s", ref_plane_name(b->index.format, 0));
    if (!verify_output(b->verify, &b->call, name, PAGES, ref_page_bytes(&b->index, 0, page_rows(b)),
                       &c->plane, &c->plane_stride))
        return false;
    struct ref_place place = {.plane = {{buffer_data(&c->plane), c->plane_stride}},
                              .rows = page_rows(b)};
    for (uint32_t i = 0; i < PAGES * page_rows(b); i++) {
        input_vector(&b->verify->random, kind, REF_BFLOAT, key, b->index.head_dim);
        ref_row_store(&b->index, &place, i / page_rows(b), i % page_rows(b), key);
    }
    return buffer_upload(b->verify->session, &c->plane);
}

static bool make_scores(struct bench *b, struct scores_case *c, enum input_kind kind) {
    struct verify *verify = b->verify;
    uint32_t heads = b->heads, tokens = c->batch.tokens;
    size_t table = (size_t)c->batch.requests * c->table_stride;
    if (!batch_upload(verify->session, &c->batch, &c->device) || !make_index(b, c, kind) ||
        !make(b, "q", 2 * (size_t)tokens * heads * b->index.head_dim, false, &b->in[0]) ||
        !make(b, "w", 4 * (size_t)tokens * heads, false, &b->in[1]) ||
        !make(b, "block_table", 4 * table, false, &c->table) ||
        !make(b, "scores", 4 * (size_t)tokens * c->scores_stride, true, &b->out[0]))
        return false;
    input_vector(&verify->random, kind, REF_BFLOAT, buffer_data(&b->in[0]),
                 tokens * heads * b->index.head_dim);
    input_vector(&verify->random, kind, REF_F32, buffer_data(&b->in[1]), tokens * heads);
    for (size_t i = 0; i < table; i++)
        buffer_ints(&c->table)[i] = (int32_t)input_below(&verify->random, PAGES + 2) - 1;
    return buffer_upload(verify->session, &b->in[0]) && buffer_upload(verify->session, &b->in[1]) &&
           buffer_upload(verify->session, &c->table);
}

static bool launch_scores(struct bench *b, struct scores_case *c) {
    char name[32];
    batch_set(&c->batch, &c->device, 0, 0, &b->call);
    call_set(&b->call, "pages", PAGES);
    call_set(&b->call, "table_stride", c->table_stride);
    call_set(&b->call, "scores_stride", c->scores_stride);
    call_set(&b->call, "first", c->first);
    call_set(&b->call, "q", buffer_address(&b->in[0]));
    call_set(&b->call, "w", buffer_address(&b->in[1]));
    call_set(&b->call, "block_table", buffer_address(&c->table));
    snprintf(name, sizeof name, "index_%s", ref_plane_name(b->index.format, 0));
    verify_bind(&b->call, name, &c->plane, c->plane_stride);
    call_set(&b->call, "scores", buffer_address(&b->out[0]));
    return call_launch(b->verify->session, &b->call);
}

static bool run_scores(struct bench *b, struct scores_case *c, enum input_kind kind,
                       const char *what) {
    struct outputs outputs = {.list = {&b->out[0]}, .count = 1};
    bool good = make_scores(b, c, kind) && outputs_remember(&outputs);
    if (good) {
        struct ref_indexer_scores args = {
            .core = verify_core(b->verify),
            .tokens = c->batch.tokens,
            .requests = c->batch.requests,
            .heads = b->heads,
            .batch_id = c->batch.batch_id,
            .position = c->batch.position,
            .scores_stride = c->scores_stride,
            .first = c->first,
            .q = buffer_halves(&b->in[0]),
            .w = buffer_floats(&b->in[1]),
            .block_table = {buffer_ints(&c->table), c->table_stride, PAGES},
            .keys = {.plane = {{buffer_data(&c->plane), c->plane_stride}}, .rows = page_rows(b)},
            .scores = buffer_floats(&b->out[0]),
        };
        bool ran = launch_scores(b, c);
        ref_indexer_scores(&b->index, &args);
        verify_case(b->verify, b->subject, &outputs, ran, what, c->batch.tokens);
    }
    free_case(b);
    batch_free(b->verify->session, &c->device);
    buffer_destroy(b->verify->session, &c->table);
    buffer_destroy(b->verify->session, &c->plane);
    return good && !b->verify->broken;
}

/* Two requests, padding, and positions whose last entries lie beyond the table. */
static void scores_batch(const struct bench *b, struct scores_case *c) {
    int32_t ratio = (int32_t)b->index.ratio;
    c->table_stride = 3;
    c->scores_stride = 4 * page_rows(b) - 5;
    c->first = 0;
    batch_clear(&c->batch);
    batch_request(&c->batch, 0, ratio - 2, 2);
    batch_gap(&c->batch, 1);
    batch_request(&c->batch, 1, (int32_t)(3 * b->index.block) + 3 * ratio - 1, 1);
    batch_request(&c->batch, 2, (int32_t)b->index.block - 1, 1);
    batch_pad(&c->batch, 1);
}

bool verify_indexer_scores(struct verify *verify, const struct subject *subject) {
    struct bench b;
    struct scores_case *c = calloc(1, sizeof *c);
    char what[96];
    bool good = c && begin(verify, subject, &b);
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        scores_batch(&b, c);
        snprintf(what, sizeof what, "queries, weights and keys: %s", input_names[kind]);
        good = run_scores(&b, c, (enum input_kind)kind, what);
    }
    if (good) {
        scores_batch(&b, c);
        c->first = page_rows(&b) + 3;
        c->scores_stride = 70;
        good = run_scores(&b, c, INPUT_RANDOM, "a part of the entries");
    }
    free(c);
    return good;
}

/* ---- indexer_topk ---- */

/* Scores with few different values, so that there are ties, and the odd ones among them. */
static void fill_scores(struct bench *b, size_t count, bool odd) {
    static const float odds[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -1e-40f, 1e-40f, 3e38f};
    uint64_t *random = &b->verify->random;
    for (size_t i = 0; i < count; i++) {
        float value = (float)(int32_t)input_below(random, 200) / 8 - 10;
        if (odd && input_below(random, 3) == 0) value = odds[input_below(random, 8)];
        buffer_floats(&b->in[0])[i] = value;
    }
}

static bool run_topk(struct bench *b, uint32_t scores_stride, uint32_t topk_stride, bool odd) {
    struct verify *verify = b->verify;
    struct outputs outputs = {.list = {&b->out[0], &b->out[1]}, .count = 2};
    size_t count = (size_t)TOKENS * scores_stride;
    char what[96];
    bool good = make_positions(b, (int32_t)((scores_stride + 9) * b->index.ratio)) &&
                make(b, "scores", 4 * count, false, &b->in[0]) &&
                make(b, "topk", 4 * (size_t)TOKENS * topk_stride, true, &b->out[0]) &&
                make(b, "topk_count", 4 * TOKENS, true, &b->out[1]);
    if (good) fill_scores(b, count, odd);
    good = good && buffer_upload(verify->session, &b->in[0]) && outputs_remember(&outputs);
    if (good) {
        struct ref_indexer_topk args = {
            .tokens = TOKENS,
            .topk = b->topk,
            .scores_stride = scores_stride,
            .topk_stride = topk_stride,
            .position = buffer_ints(&b->position),
            .scores = buffer_floats(&b->in[0]),
            .out = buffer_ints(&b->out[0]),
            .topk_count = buffer_ints(&b->out[1]),
        };
        call_set(&b->call, "tokens", TOKENS);
        call_set(&b->call, "scores_stride", scores_stride);
        call_set(&b->call, "topk_stride", topk_stride);
        call_set(&b->call, "position", buffer_address(&b->position));
        call_set(&b->call, "scores", buffer_address(&b->in[0]));
        call_set(&b->call, "topk", buffer_address(&b->out[0]));
        call_set(&b->call, "topk_count", buffer_address(&b->out[1]));
        bool ran = call_launch(verify->session, &b->call);
        ref_indexer_topk(&b->index, &args);
        snprintf(what, sizeof what, "up to %u entries, room for %u%s", scores_stride, topk_stride,
                 odd ? ", odd numbers" : "");
        verify_case(verify, b->subject, &outputs, ran, what, TOKENS);
    }
    free_case(b);
    return good && !verify->broken;
}

bool verify_indexer_topk(struct verify *verify, const struct subject *subject) {
    struct bench b;
    if (!begin(verify, subject, &b)) return false;
    uint32_t topk = b.topk;
    return run_topk(&b, 4 * topk + 3, topk, false) && run_topk(&b, 3 * topk + 300, topk, true) &&
           run_topk(&b, topk, topk + 4, true) && run_topk(&b, topk + 1, topk, true) &&
           run_topk(&b, 2 * topk, topk / 2 + 1, false) && run_topk(&b, 1, topk, false);
}
