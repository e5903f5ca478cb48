/* indexer_query: heads and weights of every number, positions of every kind. */
#include "reference/indexer.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS 60

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type index; /* rules with the index format and indexer.dim */
    struct call call;
    uint32_t tokens, heads;
    struct buffer q, weights, rope, position, q_out, w_out;
    uint64_t q_stride, weights_stride;
};

static bool make_positions(struct bench *b) {
    static const int32_t odd[] = {-1, POSITIONS, INT32_MIN, 0, POSITIONS - 1, INT32_MAX};
    struct session *session = b->verify->session;
    if (!buffer_create(session, "position", 4 * (size_t)b->tokens, false, &b->position))
        return false;
    int32_t *at = buffer_ints(&b->position);
    for (uint32_t t = 0; t < b->tokens; t++)
        at[t] = t % 4 == 3 ? odd[t / 4 % 6] : (int32_t)input_below(&b->verify->random, POSITIONS);
    return buffer_upload(session, &b->position);
}

static bool make_rope(struct bench *b) {
    size_t count = (size_t)POSITIONS * b->index.rope_dim;
    if (!buffer_create(b->verify->session, "rope", 4 * count, false, &b->rope)) return false;
    input_rope(&b->verify->random, buffer_floats(&b->rope), count);
    return buffer_upload(b->verify->session, &b->rope);
}

static bool make_outputs(struct bench *b) {
    struct session *session = b->verify->session;
    size_t heads = (size_t)b->tokens * b->heads;
    return buffer_create(session, "q_out", 2 * heads * b->index.head_dim, true, &b->q_out) &&
           buffer_create(session, "w_out", 4 * heads, true, &b->w_out) &&
           buffer_upload(session, &b->q_out) && buffer_upload(session, &b->w_out);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    call_set(call, "tokens", b->tokens);
    call_set(call, "positions", POSITIONS);
    verify_bind(call, "q", &b->q, b->q_stride);
    verify_bind(call, "weights", &b->weights, b->weights_stride);
    call_set(call, "rope", buffer_address(&b->rope));
    call_set(call, "position", buffer_address(&b->position));
    call_set(call, "q_out", buffer_address(&b->q_out));
    call_set(call, "w_out", buffer_address(&b->w_out));
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_indexer_query args = {
        .tokens = b->tokens,
        .positions = POSITIONS,
        .heads = b->heads,
        .q = buffer_data(&b->q),
        .q_stride = b->q_stride,
        .weights = buffer_data(&b->weights),
        .weights_stride = b->weights_stride,
        .rope = buffer_floats(&b->rope),
        .position = buffer_ints(&b->position),
        .q_out = buffer_halves(&b->q_out),
        .w_out = buffer_floats(&b->w_out),
    };
    ref_indexer_query(&b->index, &args);
}

static bool run_case(struct bench *b, enum input_kind q, enum input_kind weights,
                     const char *what) {
    struct verify *verify = b->verify;
    struct outputs outputs = {.list = {&b->q_out, &b->w_out}, .count = 2};
    bool good = make_positions(b) && make_rope(b) && make_outputs(b) &&
                verify_matrix(verify, &b->call, "q", b->tokens, b->heads * b->index.head_dim,
                              REF_BFLOAT, q, &b->q, &b->q_stride) &&
                verify_matrix(verify, &b->call, "weights", b->tokens, b->heads, REF_F32, weights,
                              &b->weights, &b->weights_stride) &&
                outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(verify, b->subject, &outputs, ran, what, b->tokens);
    }
    struct buffer *all[] = {&b->q, &b->weights, &b->rope, &b->position, &b->q_out, &b->w_out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(verify->session, all[i]);
    return good && !verify->broken;
}

static bool run_all(struct bench *b) {
    static const uint32_t tokens[] = {0, 1, 25};
    char what[96];
    bool good = true;
    for (size_t i = 0; good && i < sizeof tokens / sizeof *tokens; i++) {
        b->tokens = tokens[i];
        snprintf(what, sizeof what, "%u tokens", tokens[i]);
        good = run_case(b, INPUT_RANDOM, INPUT_RANDOM, what);
    }
    b->tokens = 6;
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        snprintf(what, sizeof what, "heads and weights: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, (enum input_kind)kind, what);
    }
    return good;
}

bool verify_indexer_query(struct verify *verify, const struct subject *subject) {
    struct bench b = {.verify = verify, .subject = subject, .index = verify_index(verify, subject)};
    b.heads = subject->info->indexer_heads;
    return call_open(verify->session, subject->info->name, subject->kernel, &b.call) && run_all(&b);
}
