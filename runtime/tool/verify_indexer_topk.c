/* indexer_topk: exact selections from scores with ties, NaN, infinities and zeros of both signs. */
#include "reference/convert.h"
#include "reference/indexer.h"
#include "verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 8

enum scores {
    SCORES_RANDOM,
    SCORES_FEW,
    SCORES_EQUAL,
    SCORES_RISING,
    SCORES_ODD,
    SCORES_NAN,
    SCORES_NEAR,
    SCORES_BITS,
    SCORES_KINDS
};

static const char *const score_names[SCORES_KINDS] = {"random",
                                                      "few values",
                                                      "all equal",
                                                      "rising",
                                                      "infinities, zeros, NaN",
                                                      "all NaN",
                                                      "in the last bits only",
                                                      "any bits"};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    uint32_t topk, tokens, scores_stride, topk_stride;
    int32_t position[TOKENS];
    struct buffer positions, scores, out, count;
};

static float score(uint64_t *random, enum scores kind, uint32_t i) {
    static const uint32_t odd[] = {0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0x80000000,
                                   0,          1,          0x80000001, 0x7f7fffff, 0xff7fffff};
    switch (kind) {
    case SCORES_FEW: return (float)input_below(random, 5) - 2;
    case SCORES_EQUAL: return -3;
    case SCORES_RISING: return (float)i;
    case SCORES_ODD: return ref_float(odd[input_below(random, 10)]);
    case SCORES_NAN: return NAN;
    case SCORES_NEAR: return ref_float(0xc2000000 + input_below(random, 7));
    case SCORES_BITS: return ref_float(input_next(random));
    default:
        return ref_float((input_next(random) & 0x807fffff) | (124 + input_below(random, 4)) << 23);
    }
}

static uint32_t visible(const struct bench *b, uint32_t t) {
    return b->position[t] < 0 ? 0 : ((uint32_t)b->position[t] + 1) / b->rules.ratio;
}

/* Behind the visible entries stands what would win. */
static bool make_inputs(struct bench *b, enum scores kind) {
    struct session *session = b->verify->session;
    size_t count = (size_t)b->tokens * b->scores_stride;
    if (!buffer_create(session, "scores", 4 * count, false, &b->scores) ||
        !buffer_create(session, "position", 4 * (size_t)b->tokens, false, &b->positions))
        return false;
    float *scores = buffer_floats(&b->scores);
    for (uint32_t t = 0; t < b->tokens; t++)
        for (uint32_t i = 0; i < b->scores_stride; i++)
            scores[(size_t)t * b->scores_stride + i] =
                i < visible(b, t) ? score(&b->verify->random, kind, i) : INFINITY;
    if (b->tokens) memcpy(buffer_data(&b->positions), b->position, 4 * (size_t)b->tokens);
    return buffer_upload(session, &b->scores) && buffer_upload(session, &b->positions);
}

static bool make_outputs(struct bench *b) {
    struct session *session = b->verify->session;
    return buffer_create(session, "topk", 4 * (size_t)b->tokens * b->topk_stride, true, &b->out) &&
           buffer_create(session, "topk_count", 4 * (size_t)b->tokens, true, &b->count) &&
           buffer_upload(session, &b->out) && buffer_upload(session, &b->count);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    call_set(call, "tokens", b->tokens);
    call_set(call, "topk_stride", b->topk_stride);
    call_set(call, "position", buffer_address(&b->positions));
    verify_bind_as(
        call, &(struct call_array){"scores", "", &b->scores, 4 * (uint64_t)b->scores_stride, 4});
    call_set(call, "topk", buffer_address(&b->out));
    call_set(call, "topk_count", buffer_address(&b->count));
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_indexer_topk args = {
        .tokens = b->tokens,
        .topk = b->topk,
        .scores_stride = b->scores_stride,
        .topk_stride = b->topk_stride,
        .position = b->position,
        .scores = buffer_floats(&b->scores),
        .out = buffer_ints(&b->out),
        .topk_count = buffer_ints(&b->count),
    };
    ref_indexer_topk(&b->rules, &args);
}

static bool run_case(struct bench *b, enum scores kind, const char *what) {
    struct session *session = b->verify->session;
    struct outputs outputs = {.list = {&b->out, &b->count}, .count = 2};
    bool good = make_inputs(b, kind) && make_outputs(b) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->tokens);
    }
    struct buffer *all[] = {&b->positions, &b->scores, &b->out, &b->count};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(session, all[i]);
    return good && !b->verify->broken;
}

/* ---- the cases ---- */

static void set(struct bench *b, uint32_t scores_stride, uint32_t count, const uint32_t *entries) {
    b->tokens = count;
    b->scores_stride = scores_stride;
    for (uint32_t t = 0; t < count; t++)
        b->position[t] = (int32_t)(entries[t] * b->rules.ratio + t % b->rules.ratio) - 1;
}

static bool kinds(struct bench *b) {
    uint32_t k = b->topk, stride = 3 * k + 300;
    const uint32_t entries[] = {0, 1, k - 1, k, k + 1, 2 * k + 3, 256, 3 * k + 257};
    char what[96];
    bool good = true;
    for (int kind = 0; good && kind < SCORES_KINDS; kind++) {
        set(b, stride, 8, entries);
        snprintf(what, sizeof what, "scores: %s", score_names[kind]);
        good = run_case(b, (enum scores)kind, what);
    }
    return good;
}

static bool shapes(struct bench *b) {
    const uint32_t more[] = {1000, 39, 40, 41}, many[] = {20011}, all[] = {1048573},
                   none[] = {0, 0};
    set(b, 40, 4, more);
    if (!run_case(b, SCORES_FEW, "more entries than scores")) return false;
    set(b, 20011, 1, many);
    if (!run_case(b, SCORES_FEW, "twenty thousand entries, ties")) return false;
    set(b, 20011, 1, many);
    if (!run_case(b, SCORES_BITS, "twenty thousand entries, any bits")) return false;
    set(b, 1048573, 1, all);
    if (b->topk >= 64 && !run_case(b, SCORES_BITS, "a million entries")) return false;
    set(b, 100, 4, more);
    b->topk_stride = b->topk / 2 + 1;
    bool good = run_case(b, SCORES_FEW, "less room than entries to choose");
    b->topk_stride = b->topk + 3;
    if (!good) return false;
    set(b, 10, 2, none);
    b->position[0] = -1;
    b->position[1] = INT32_MIN;
    if (!run_case(b, SCORES_RANDOM, "padding")) return false;
    set(b, 10, 0, none);
    return run_case(b, SCORES_RANDOM, "no token at all");
}

bool verify_indexer_topk(struct verify *verify, const struct subject *subject) {
    struct bench b = {.verify = verify, .subject = subject, .rules = subject->rules};
    b.topk = subject->info->indexer_topk;
    b.topk_stride = b.topk + 3;
    return call_open(verify->session, subject->info->name, subject->kernel, &b.call) && kinds(&b) &&
           shapes(&b);
}
