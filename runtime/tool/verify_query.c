/* q_norm_rope and inverse_rope: heads of every number, positions of every kind. */
#include "call.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS 70

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    bool inverse;
    uint32_t tokens, heads;
    struct buffer q, out, position, rope;
    uint64_t q_stride, out_stride;
};

static bool make_positions(struct bench *b) {
    static const int32_t odd[] = {-1, INT32_MIN, POSITIONS, INT32_MAX, POSITIONS - 1, 0};
    struct session *session = b->verify->session;
    if (!buffer_create(session, "position", 4 * (size_t)b->tokens, false, &b->position))
        return false;
    int32_t *at = buffer_ints(&b->position);
    for (uint32_t t = 0; t < b->tokens; t++)
        at[t] = t % 3 == 2 ? odd[t / 3 % 6] : (int32_t)input_below(&b->verify->random, POSITIONS);
    return buffer_upload(session, &b->position);
}

static bool make_rope(struct bench *b) {
    size_t count = (size_t)POSITIONS * b->rules.rope_dim;
    if (!buffer_create(b->verify->session, "rope", 4 * count, false, &b->rope)) return false;
    input_rope(&b->verify->random, buffer_floats(&b->rope), count);
    return buffer_upload(b->verify->session, &b->rope);
}

/* What inverse_rope turns in place begins as numbers, not as a pattern. */
static bool make_out(struct bench *b, enum input_kind kind) {
    struct verify *verify = b->verify;
    uint32_t columns = b->heads * b->rules.head_dim;
    uint64_t align = verify_align(&b->call, "out");
    b->out_stride = 2 * (uint64_t)columns + 2 * align;
    if (!buffer_create(verify->session, "out", b->tokens * b->out_stride, true, &b->out))
        return false;
    for (uint32_t t = 0; t < b->tokens && b->inverse; t++)
        input_vector(&verify->random, kind, REF_BFLOAT, buffer_data(&b->out) + t * b->out_stride,
                     columns);
    return buffer_upload(verify->session, &b->out);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    call_set(call, "tokens", b->tokens);
    call_set(call, "heads", b->heads);
    call_set(call, "positions", POSITIONS);
    call_set(call, "position", buffer_address(&b->position));
    call_set(call, "rope", buffer_address(&b->rope));
    if (!b->inverse) verify_bind(call, "q", &b->q, b->q_stride);
    verify_bind(call, "out", &b->out, b->out_stride);
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_query args = {
        .tokens = b->tokens,
        .heads = b->heads,
        .positions = POSITIONS,
        .position = buffer_ints(&b->position),
        .rope = buffer_floats(&b->rope),
        .q = b->inverse ? NULL : buffer_data(&b->q),
        .out = buffer_data(&b->out),
        .q_stride = b->q_stride,
        .out_stride = b->out_stride,
    };
    if (b->inverse)
        ref_inverse_rope(&b->rules, &args);
    else
        ref_q_norm_rope(&b->rules, &args);
}

static bool run_case(struct bench *b, enum input_kind kind, const char *what) {
    struct verify *verify = b->verify;
    struct outputs outputs = {.list = {&b->out}, .count = 1};
    bool good =
        make_positions(b) && make_rope(b) && make_out(b, kind) &&
        (b->inverse || verify_matrix(verify, &b->call, "q", b->tokens, b->heads * b->rules.head_dim,
                                     REF_BFLOAT, kind, &b->q, &b->q_stride)) &&
        outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(verify, b->subject, &outputs, ran, what, b->tokens);
    }
    buffer_destroy(verify->session, &b->q);
    buffer_destroy(verify->session, &b->out);
    buffer_destroy(verify->session, &b->position);
    buffer_destroy(verify->session, &b->rope);
    return good && !verify->broken;
}

static bool run_all(struct bench *b) {
    static const uint32_t heads[] = {1, 3, 8, 64}, tokens[] = {0, 1, 19};
    char what[96];
    bool good = true;
    for (size_t i = 0; good && i < sizeof heads / sizeof *heads; i++) {
        b->heads = heads[i];
        b->tokens = 7;
        snprintf(what, sizeof what, "%u heads", heads[i]);
        good = run_case(b, INPUT_RANDOM, what);
    }
    b->heads = 2;
    for (size_t i = 0; good && i < sizeof tokens / sizeof *tokens; i++) {
        b->tokens = tokens[i];
        snprintf(what, sizeof what, "%u tokens", tokens[i]);
        good = run_case(b, INPUT_RANDOM, what);
    }
    b->tokens = 8;
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        snprintf(what, sizeof what, "heads: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, what);
    }
    return good;
}

bool verify_query(struct verify *verify, const struct subject *subject) {
    struct bench b = {.verify = verify, .subject = subject, .rules = subject->rules};
    b.inverse = !strcmp(subject->kernel, "inverse_rope");
    return call_open(verify->session, subject->info->name, subject->kernel, &b.call) && run_all(&b);
}
