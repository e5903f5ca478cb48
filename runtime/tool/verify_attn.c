/* attn and attn_combine: lists of every length over rows of every number. */
#include "verify.h"

#include "reference/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGES  5
#define TOKENS 6

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    struct ref_tensor_core core;
    uint32_t heads, splits, split_rows, list_stride, window_rows, entry_rows; /* rows: a page's */
    struct buffer window[REF_PLANES], compressed[REF_PLANES];
    uint64_t window_stride[REF_PLANES], compressed_stride[REF_PLANES];
    struct buffer q, rows, window_count, entry_count;
    struct buffer part_o, part_m, part_l; /* outputs of attn, inputs of attn_combine */
    struct buffer sink, out, lse;         /* attn_combine's */
    uint64_t q_stride, out_stride;
};

static bool make(struct bench *b, const char *name, size_t count, bool output, struct buffer *out) {
    return buffer_create(b->verify->session, name, 4 * count, output, out);
}

static void free_buffers(struct bench *b, struct buffer *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) buffer_destroy(b->verify->session, list[i]);
}

static size_t partials(const struct bench *b) {
    return (size_t)TOKENS * b->splits * b->heads;
}

/* ---- attn ---- */

static bool make_planes(struct bench *b, const char *prefix, uint32_t rows, struct buffer *planes,
                        uint64_t *strides) {
    char name[32];
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++) {
        snprintf(name, sizeof name, "%s_%s", prefix, ref_plane_name(b->rules.format, i));
        if (!verify_output(b->verify, &b->call, name, PAGES, ref_page_bytes(&b->rules, i, rows),
                           &planes[i], &strides[i]))
            return false;
    }
    return true;
}

static struct ref_place place_of(const struct bench *b, const struct buffer *planes,
                                 const uint64_t *strides, uint32_t rows) {
    struct ref_place place = {.rows = rows};
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++)
        place.plane[i] = (struct ref_array){buffer_data(&planes[i]), strides[i]};
    return place;
}

/* Every row of a place holds numbers of a kind, as they are stored. */
static bool fill_rows(struct bench *b, enum input_kind kind, struct buffer *planes,
                      const uint64_t *strides, uint32_t rows) {
    struct ref_place place = place_of(b, planes, strides, rows);
    uint16_t value[REF_MAX_DIM];
    for (uint32_t page = 0; page < PAGES; page++)
        for (uint32_t row = 0; row < rows; row++) {
            input_vector(&b->verify->random, kind, REF_BFLOAT, value, b->rules.head_dim);
            ref_row_store(&b->rules, &place, page, row, value);
        }
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++)
        if (!buffer_upload(b->verify->session, &planes[i])) return false;
    return true;
}

/* Lists of `window` and `entries` rows for the first token, others shorter, one empty. */
static bool make_lists(struct bench *b, uint32_t window, uint32_t entries, bool holes) {
    struct session *session = b->verify->session;
    uint64_t *random = &b->verify->random;
    if (!make(b, "rows", (size_t)TOKENS * b->list_stride, false, &b->rows) ||
        !make(b, "window_count", TOKENS, false, &b->window_count) ||
        !make(b, "entry_count", TOKENS, false, &b->entry_count))
        return false;
    for (uint32_t t = 0; t < TOKENS; t++) {
        uint32_t of_window = t == 4 ? 0 : window >> t, of_entries = t == 4 ? 0 : entries >> t;
        for (uint32_t i = 0; i < b->list_stride; i++) {
            uint32_t limit = PAGES * (i < of_window ? b->window_rows : b->entry_rows);
            bool hole = holes && input_below(random, 5) == 0;
            buffer_ints(&b->rows)[t * b->list_stride + i] =
                hole ? -1 : (int32_t)input_below(random, limit);
        }
        buffer_ints(&b->window_count)[t] = (int32_t)of_window;
        buffer_ints(&b->entry_count)[t] = (int32_t)of_entries;
    }
    return buffer_upload(session, &b->rows) && buffer_upload(session, &b->window_count) &&
           buffer_upload(session, &b->entry_count);
}

static bool make_partials(struct bench *b, bool output) {
    struct session *session = b->verify->session;
    size_t count = partials(b);
    return make(b, "part_o", count * b->rules.head_dim, output, &b->part_o) &&
           make(b, "part_m", count, output, &b->part_m) &&
           make(b, "part_l", count, output, &b->part_l) &&
           (!output || (buffer_upload(session, &b->part_o) && buffer_upload(session, &b->part_m) &&
                        buffer_upload(session, &b->part_l)));
}

static void set_partials(struct bench *b) {
    call_set(&b->call, "tokens", TOKENS);
    call_set(&b->call, "heads", b->heads);
    call_set(&b->call, "splits", b->splits);
    call_set(&b->call, "part_o", buffer_address(&b->part_o));
    call_set(&b->call, "part_m", buffer_address(&b->part_m));
    call_set(&b->call, "part_l", buffer_address(&b->part_l));
}

static bool launch_attn(struct bench *b, float scale) {
    struct call *call = &b->call;
    char name[32];
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    set_partials(b);
    call_set(call, "list_stride", b->list_stride);
    call_set(call, "scale", bits);
    verify_bind(call, "q", &b->q, b->q_stride);
    call_set(call, "rows", buffer_address(&b->rows));
    call_set(call, "window_count", buffer_address(&b->window_count));
    call_set(call, "entry_count", buffer_address(&b->entry_count));
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++) {
        snprintf(name, sizeof name, "swa_%s", ref_plane_name(b->rules.format, i));
        verify_bind(call, name, &b->window[i], b->window_stride[i]);
        if (!b->rules.ratio) continue;
        snprintf(name, sizeof name, "kv_%s", ref_plane_name(b->rules.format, i));
        verify_bind(call, name, &b->compressed[i], b->compressed_stride[i]);
    }
    return call_launch(b->verify->session, call);
}

static void reference_attn(struct bench *b, float scale) {
    struct ref_attn args = {
        .tokens = TOKENS,
        .heads = b->heads,
        .splits = b->splits,
        .split_rows = b->split_rows,
        .list_stride = b->list_stride,
        .scale = scale,
        .core = b->core,
        .q = buffer_data(&b->q),
        .q_stride = b->q_stride,
        .rows = buffer_ints(&b->rows),
        .window_count = buffer_ints(&b->window_count),
        .entry_count = buffer_ints(&b->entry_count),
        .window = place_of(b, b->window, b->window_stride, b->window_rows),
        .part_o = buffer_floats(&b->part_o),
        .part_m = buffer_floats(&b->part_m),
        .part_l = buffer_floats(&b->part_l),
    };
    if (b->rules.ratio)
        args.compressed = place_of(b, b->compressed, b->compressed_stride, b->entry_rows);
    ref_attn(&b->rules, &args);
}

static const struct attn_plan {
    const char *name;
    uint32_t window, entries, heads; /* entries are left out for types without */
    bool holes;
    enum input_kind q, rows;
} attn_plans[] = {
    {"one row", 1, 0, 3, false, INPUT_RANDOM, INPUT_RANDOM},
    {"a tile's end", 33, 31, 16, false, INPUT_RANDOM, INPUT_RANDOM},
    {"window and entries", 20, 50, 17, false, INPUT_RANDOM, INPUT_RANDOM},
    {"rows that are not there", 24, 40, 5, true, INPUT_RANDOM, INPUT_RANDOM},
    {"rows of zeros", 12, 20, 4, false, INPUT_RANDOM, INPUT_ZERO},
    {"rows with NaN", 6, 4, 4, false, INPUT_RANDOM, INPUT_NAN},
    {"rows with infinities", 40, 4, 4, false, INPUT_RANDOM, INPUT_INFINITY},
    {"rows of subnormal numbers", 12, 20, 4, false, INPUT_SUBNORMAL, INPUT_SUBNORMAL},
    {"huge rows and queries", 12, 20, 4, false, INPUT_HUGE, INPUT_HUGE},
    {"queries with NaN", 9, 9, 4, false, INPUT_NAN, INPUT_RANDOM},
    {"queries with infinities", 9, 9, 4, false, INPUT_INFINITY, INPUT_RANDOM},
    {"rows of scaled blocks", 12, 20, 4, false, INPUT_RANDOM, INPUT_BLOCKS},
};

static bool run_attn(struct bench *b, const struct attn_plan *plan, uint32_t heads) {
    struct verify *verify = b->verify;
    struct outputs outputs = {.list = {&b->part_o, &b->part_m, &b->part_l}, .count = 3};
    uint32_t entries = b->rules.ratio ? plan->entries : 0;
    float scale = (float)(1 / sqrt((double)b->rules.head_dim));
    char what[96];
    b->heads = heads;
    b->list_stride = plan->window + entries + 3;
    b->splits = (plan->window + entries) / b->split_rows + 2; /* the last one is empty */
    bool good = fill_rows(b, plan->rows, b->window, b->window_stride, b->window_rows) &&
                (!b->rules.ratio ||
                 fill_rows(b, plan->rows, b->compressed, b->compressed_stride, b->entry_rows)) &&
                make_lists(b, plan->window, entries, plan->holes) &&
                verify_matrix(verify, &b->call, "q", TOKENS, heads * b->rules.head_dim, REF_BFLOAT,
                              plan->q, &b->q, &b->q_stride) &&
                make_partials(b, true) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch_attn(b, scale);
        reference_attn(b, scale);
        snprintf(what, sizeof what, "%s, %u heads", plan->name, heads);
        verify_case(verify, b->subject, &outputs, ran, what, TOKENS);
    }
    free_buffers(b,
                 (struct buffer *const[]){&b->q, &b->rows, &b->window_count, &b->entry_count,
                                          &b->part_o, &b->part_m, &b->part_l},
                 7);
    return good && !verify->broken;
}

static bool run_all_attn(struct bench *b) {
    const struct attn_plan longest = {"a list of several splits",
                                      b->rules.window,
                                      2 * b->split_rows,
                                      0,
                                      false,
                                      INPUT_RANDOM,
                                      INPUT_RANDOM};
    bool good = true;
    for (size_t i = 0; good && i < sizeof attn_plans / sizeof *attn_plans; i++)
        good = run_attn(b, &attn_plans[i], attn_plans[i].heads);
    return good && run_attn(b, &longest, 2) &&
           run_attn(b, &attn_plans[2], b->verify->session->model.heads);
}

bool verify_attn(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->core = verify_core(verify);
    b->split_rows = verify->session->rules.split_rows;
    b->window_rows = verify->session->rules.paged ? b->rules.block : b->rules.ring;
    b->entry_rows = b->rules.ratio ? b->rules.block / b->rules.ratio : 1;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_planes(b, "swa", b->window_rows, b->window, b->window_stride) &&
                (!b->rules.ratio ||
                 make_planes(b, "kv", b->entry_rows, b->compressed, b->compressed_stride)) &&
                run_all_attn(b);
    for (int i = 0; i < REF_PLANES; i++) {
        buffer_destroy(verify->session, &b->window[i]);
        buffer_destroy(verify->session, &b->compressed[i]);
    }
    free(b);
    return good;
}

/* ---- attn_combine ---- */

/* Splits that are empty, alike, far apart, and with numbers of a kind in their outputs. */
static bool fill_partials(struct bench *b, enum input_kind kind) {
    uint64_t *random = &b->verify->random;
    struct session *session = b->verify->session;
    input_vector(random, kind, REF_F32, buffer_data(&b->part_o),
                 (uint32_t)partials(b) * b->rules.head_dim);
    for (size_t i = 0; i < partials(b); i++) {
        bool empty = input_below(random, 3) == 0;
        float m = (float)(int32_t)input_below(random, 4000) / 100 - 20;
        buffer_floats(&b->part_m)[i] = empty ? -INFINITY : m;
        buffer_floats(&b->part_l)[i] = empty ? 0 : 1 + (float)input_below(random, 1000) / 50;
    }
    return buffer_upload(session, &b->part_o) && buffer_upload(session, &b->part_m) &&
           buffer_upload(session, &b->part_l);
}

static bool make_combine(struct bench *b, enum input_kind kind) {
    static const float odd[] = {-INFINITY, INFINITY, 0, NAN, -1e30f, 1e30f, -3.5f, 2};
    struct session *session = b->verify->session;
    uint32_t columns = b->heads * b->rules.head_dim;
    uint64_t align = verify_align(&b->call, "out");
    b->out_stride = 2 * (uint64_t)columns + 2 * align;
    if (!make_partials(b, false) || !fill_partials(b, kind) ||
        !make(b, "sink", b->heads, false, &b->sink) ||
        !buffer_create(session, "out", TOKENS * b->out_stride, true, &b->out) ||
        !make(b, "lse", (size_t)TOKENS * b->heads, true, &b->lse))
        return false;
    for (uint32_t h = 0; h < b->heads; h++)
        buffer_floats(&b->sink)[h] = odd[input_below(&b->verify->random, 8)];
    return buffer_upload(session, &b->sink) && buffer_upload(session, &b->out) &&
           buffer_upload(session, &b->lse);
}

static bool launch_combine(struct bench *b) {
    set_partials(b);
    call_set(&b->call, "sink", buffer_address(&b->sink));
    verify_bind(&b->call, "out", &b->out, b->out_stride);
    call_set(&b->call, "lse", buffer_address(&b->lse));
    return call_launch(b->verify->session, &b->call);
}

static void reference_combine(struct bench *b) {
    struct ref_attn_combine args = {
        .tokens = TOKENS,
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

static bool run_combine(struct bench *b, enum input_kind kind) {
    struct outputs outputs = {.list = {&b->out, &b->lse}, .count = 2};
    char what[96];
    bool good = make_combine(b, kind) && outputs_remember(&outputs);
    if (good) {
        bool ran = launch_combine(b);
        reference_combine(b);
        snprintf(what, sizeof what, "%u splits, %u heads, outputs: %s", b->splits, b->heads,
                 input_names[kind]);
        verify_case(b->verify, b->subject, &outputs, ran, what, TOKENS);
    }
    free_buffers(
        b, (struct buffer *const[]){&b->part_o, &b->part_m, &b->part_l, &b->sink, &b->out, &b->lse},
        6);
    return good && !b->verify->broken;
}

bool verify_attn_combine(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call);
    for (uint32_t splits = 1; good && splits <= 4; splits++) {
        b->splits = splits;
        b->heads = 2 * splits + 1;
        good = run_combine(b, INPUT_RANDOM);
    }
    for (int kind = 0; good && kind < INPUT_KINDS; kind++)
        good = run_combine(b, (enum input_kind)kind);
    free(b);
    return good;
}
