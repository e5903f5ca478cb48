/* attn_combine: splits of every kind put together, sinks of every size. */
#include "reference/attention.h"
#include "verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum sinks { SINK_USUAL, SINK_NONE, SINK_ALL, SINK_LARGE, SINK_NAN, SINK_MIXED };

static const char *const sink_names[] = {"usual", "-infinity", "+infinity",
                                         "large", "NaN",       "mixed"};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    uint32_t tokens, heads, splits;
    uint32_t empty; /* one split of so many has no rows; 0: none, 1: all */
    struct buffer part_o, part_m, part_l, sink, out, lse;
    uint64_t out_stride;
};

static float between(uint64_t *random, float low, float high) {
    return low + (high - low) * (float)input_below(random, 1 << 20) / (1 << 20);
}

static float sink_value(struct bench *b, enum sinks sinks) {
    uint64_t *random = &b->verify->random;
    if (sinks == SINK_MIXED) sinks = (enum sinks)input_below(random, SINK_MIXED);
    switch (sinks) {
    case SINK_NONE: return -INFINITY;
    case SINK_ALL: return INFINITY;
    case SINK_LARGE: return input_below(random, 2) ? 1e30f : 200;
    case SINK_NAN: return NAN;
    default: return between(random, -4, 4);
    }
}

/* What attn leaves: maxima near each other, sums of a few rows; an empty split's values are NaN. */
static void fill_parts(struct bench *b, enum input_kind kind) {
    uint64_t *random = &b->verify->random;
    uint32_t count = b->tokens * b->splits * b->heads, dim = b->rules.head_dim;
    for (uint32_t i = 0; i < count; i++) {
        bool empty = b->empty && input_below(random, b->empty) == 0;
        buffer_floats(&b->part_m)[i] = empty ? -INFINITY : between(random, -30, 30);
        buffer_floats(&b->part_l)[i] = empty ? 0 : between(random, 1, 100);
        float *o = buffer_floats(&b->part_o) + (size_t)i * dim;
        if (empty)
            memset(o, 0xff, 4 * (size_t)dim);
        else
            input_vector(random, kind, REF_F32, o, dim);
    }
}

static bool make_inputs(struct bench *b, enum input_kind kind, enum sinks sinks) {
    struct session *session = b->verify->session;
    size_t parts = 4 * (size_t)b->tokens * b->splits * b->heads;
    if (!buffer_create(session, "part_o", parts * b->rules.head_dim, false, &b->part_o) ||
        !buffer_create(session, "part_m", parts, false, &b->part_m) ||
        !buffer_create(session, "part_l", parts, false, &b->part_l) ||
        !buffer_create(session, "sink", 4 * (size_t)b->heads, false, &b->sink))
        return false;
    fill_parts(b, kind);
    for (uint32_t h = 0; h < b->heads; h++) buffer_floats(&b->sink)[h] = sink_value(b, sinks);
    return buffer_upload(session, &b->part_o) && buffer_upload(session, &b->part_m) &&
           buffer_upload(session, &b->part_l) && buffer_upload(session, &b->sink);
}

static bool make_outputs(struct bench *b) {
    struct session *session = b->verify->session;
    uint64_t row = 2 * (uint64_t)b->heads * b->rules.head_dim;
    b->out_stride = row + 2 * (uint64_t)verify_align(&b->call, "out");
    return buffer_create(session, "out", b->tokens * b->out_stride, true, &b->out) &&
           buffer_create(session, "lse", 4 * (size_t)b->tokens * b->heads, true, &b->lse) &&
           buffer_upload(session, &b->out) && buffer_upload(session, &b->lse);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    call_set(call, "tokens", b->tokens);
    call_set(call, "heads", b->heads);
    call_set(call, "splits", b->splits);
    call_set(call, "part_o", buffer_address(&b->part_o));
    call_set(call, "part_m", buffer_address(&b->part_m));
    call_set(call, "part_l", buffer_address(&b->part_l));
    call_set(call, "sink", buffer_address(&b->sink));
    verify_bind(call, "out", &b->out, b->out_stride);
    call_set(call, "lse", buffer_address(&b->lse));
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_attn_combine args = {
        .tokens = b->tokens,
        .heads = b->heads,
        .splits = b->splits,
        .part_o = buffer_floats(&b->part_o),
        .part_m = buffer_floats(&b->part_m),
        .part_l = buffer_floats(&b->part_l),
        .sink = buffer_floats(&b->sink),
        .out = buffer_data(&b->out),
        .out_stride = b->out_stride,
        .lse = buffer_floats(&b->lse),
    };
    ref_attn_combine(&b->rules, &args);
}

/* `edit`, if there is one, puts something into the filled inputs. */
static bool run_case(struct bench *b, enum input_kind kind, enum sinks sinks,
                     void (*edit)(struct bench *b), const char *what) {
    struct session *session = b->verify->session;
    struct outputs outputs = {.list = {&b->out, &b->lse}, .count = 2};
    bool good = make_inputs(b, kind, sinks) && make_outputs(b) && outputs_remember(&outputs);
    if (good && edit) {
        edit(b);
        good = buffer_upload(session, &b->part_m) && buffer_upload(session, &b->part_l);
    }
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->tokens);
    }
    struct buffer *all[] = {&b->part_o, &b->part_m, &b->part_l, &b->sink, &b->out, &b->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(session, all[i]);
    return good && !b->verify->broken;
}

/* ---- what attn leaves of infinite and NaN scores ---- */

static void odd_maxima(struct bench *b) {
    uint32_t count = b->tokens * b->splits * b->heads;
    for (uint32_t i = 0; i < count; i += 3) {
        buffer_floats(&b->part_m)[i] = i % 2 ? INFINITY : -INFINITY;
        buffer_floats(&b->part_l)[i] = NAN;
    }
}

static void odd_sums(struct bench *b) {
    static const float odd[] = {NAN, INFINITY, 0, 0x1p-149f, 0x1.fffffep127f, 1};
    uint32_t count = b->tokens * b->splits * b->heads;
    for (uint32_t i = 0; i < count; i++) buffer_floats(&b->part_l)[i] = odd[i % 6];
}

/* Maxima so far apart that only one split counts, and so near that all do. */
static void far_maxima(struct bench *b) {
    uint32_t count = b->tokens * b->splits * b->heads;
    for (uint32_t i = 0; i < count; i++)
        buffer_floats(&b->part_m)[i] = i % 5 == 0   ? 3e38f
                                       : i % 5 == 1 ? -3e38f
                                                    : (float)(i % 7) * 40;
}

static void zero_maxima(struct bench *b) {
    uint32_t count = b->tokens * b->splits * b->heads;
    for (uint32_t i = 0; i < count; i++) buffer_floats(&b->part_m)[i] = i % 2 ? -0.0f : 0.0f;
}

/* ---- the cases ---- */

static bool shapes(struct bench *b) {
    static const uint32_t list[][4] = {/* tokens, heads, splits, empty */
                                       {1, 1, 1, 0},  {3, 8, 1, 0}, {2, 128, 2, 0}, {5, 64, 3, 3},
                                       {4, 17, 7, 2}, {3, 8, 4, 1}, {0, 8, 2, 0},   {2, 3, 33, 4}};
    char what[96];
    bool good = true;
    for (size_t i = 0; good && i < sizeof list / sizeof *list; i++) {
        b->tokens = list[i][0];
        b->heads = list[i][1];
        b->splits = list[i][2];
        b->empty = list[i][3];
        snprintf(what, sizeof what, "%u heads, %u splits%s", b->heads, b->splits,
                 b->empty == 1 ? ", all empty"
                 : b->empty    ? ", some empty"
                               : "");
        good = run_case(b, INPUT_RANDOM, SINK_USUAL, NULL, what);
    }
    b->tokens = 3;
    b->heads = 6;
    b->splits = 3;
    b->empty = 4;
    return good;
}

static bool numbers(struct bench *b) {
    char what[96];
    bool good = true;
    for (int sinks = 0; good && sinks <= SINK_MIXED; sinks++) {
        snprintf(what, sizeof what, "sinks: %s", sink_names[sinks]);
        good = run_case(b, INPUT_RANDOM, (enum sinks)sinks, NULL, what);
    }
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        snprintf(what, sizeof what, "values: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, SINK_MIXED, NULL, what);
    }
    return good && run_case(b, INPUT_RANDOM, SINK_MIXED, odd_maxima, "infinite maxima, NaN sums") &&
           run_case(b, INPUT_RANDOM, SINK_MIXED, odd_sums, "sums of every kind") &&
           run_case(b, INPUT_RANDOM, SINK_USUAL, far_maxima, "maxima far apart") &&
           run_case(b, INPUT_RANDOM, SINK_NONE, zero_maxima, "maxima of both zeros");
}

bool verify_attn_combine(struct verify *verify, const struct subject *subject) {
    struct bench b = {.verify = verify, .subject = subject, .rules = subject->rules};
    return call_open(verify->session, subject->info->name, subject->kernel, &b.call) &&
           shapes(&b) && numbers(&b);
}
