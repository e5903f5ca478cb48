/* attn: lists of every length and content, heads of every count, numbers of every kind. */
#include "reference/attention.h"
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS       6 /* at most */
#define WINDOW_PAGES 5
#define PAGES        40

/* How long each token's list is, and what stands in it. */
struct lists {
    uint32_t tokens;
    uint32_t window[TOKENS], entries[TOKENS];
    uint32_t missing; /* one row of so many is -1; 0: none, 1: all */
};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct ref_tensor_core core;
    struct call call;
    struct verify_place window, compressed;
    bool has_entries;
    uint32_t heads, split_rows, splits, list_stride;
    float scale;
    struct lists lists;
    struct buffer q, rows, window_count, entry_count, part_o, part_m, part_l;
    uint64_t q_stride;
};

/* ---- one case ---- */

/* One list position: a random row of its place, which then holds numbers; or none. */
static int32_t choose_row(struct bench *b, struct verify_place *place, enum input_kind kind) {
    uint64_t *random = &b->verify->random;
    if (b->lists.missing && input_below(random, b->lists.missing) == 0) return -1;
    uint32_t number = verify_place_row(b->verify, place);
    verify_place_store(b->verify, place, kind, number);
    return (int32_t)number;
}

/* Behind a list stand numbers that nobody may take for rows. */
static void fill_lists(struct bench *b, enum input_kind kind) {
    verify_place_clear(&b->window);
    if (b->has_entries) verify_place_clear(&b->compressed);
    for (uint32_t t = 0; t < b->lists.tokens; t++) {
        int32_t *list = buffer_ints(&b->rows) + (size_t)t * b->list_stride;
        uint32_t window = b->lists.window[t], length = window + b->lists.entries[t];
        for (uint32_t i = 0; i < b->list_stride; i++)
            list[i] = i < window   ? choose_row(b, &b->window, kind)
                      : i < length ? choose_row(b, &b->compressed, kind)
                                   : INT32_MAX - (int32_t)i;
        buffer_ints(&b->window_count)[t] = (int32_t)window;
        buffer_ints(&b->entry_count)[t] = (int32_t)b->lists.entries[t];
    }
}

static bool make_lists(struct bench *b, enum input_kind kind) {
    struct session *session = b->verify->session;
    uint32_t tokens = b->lists.tokens, longest = 0;
    for (uint32_t t = 0; t < tokens; t++) {
        uint32_t length = b->lists.window[t] + b->lists.entries[t];
        if (length > longest) longest = length;
    }
    b->list_stride = longest + 3;
    b->splits = longest / b->split_rows + 1; /* the last one may be empty */
    if (!buffer_create(session, "rows", 4 * (size_t)tokens * b->list_stride, false, &b->rows) ||
        !buffer_create(session, "window_count", 4 * (size_t)tokens, false, &b->window_count) ||
        !buffer_create(session, "entry_count", 4 * (size_t)tokens, false, &b->entry_count))
        return false;
    fill_lists(b, kind);
    return buffer_upload(session, &b->rows) && buffer_upload(session, &b->window_count) &&
           buffer_upload(session, &b->entry_count) && verify_place_upload(b->verify, &b->window) &&
           (!b->has_entries || verify_place_upload(b->verify, &b->compressed));
}

static bool make_parts(struct bench *b) {
    struct session *session = b->verify->session;
    size_t parts = 4 * (size_t)b->lists.tokens * b->splits * b->heads;
    return buffer_create(session, "part_o", parts * b->rules.head_dim, true, &b->part_o) &&
           buffer_create(session, "part_m", parts, true, &b->part_m) &&
           buffer_create(session, "part_l", parts, true, &b->part_l) &&
           buffer_upload(session, &b->part_o) && buffer_upload(session, &b->part_m) &&
           buffer_upload(session, &b->part_l);
}

static bool launch(struct bench *b) {
    struct call *call = &b->call;
    uint32_t scale;
    memcpy(&scale, &b->scale, 4);
    call_set(call, "tokens", b->lists.tokens);
    call_set(call, "heads", b->heads);
    call_set(call, "splits", b->splits);
    call_set(call, "list_stride", b->list_stride);
    call_set(call, "scale", scale);
    verify_bind(call, "q", &b->q, b->q_stride);
    call_set(call, "rows", buffer_address(&b->rows));
    call_set(call, "window_count", buffer_address(&b->window_count));
    call_set(call, "entry_count", buffer_address(&b->entry_count));
    verify_place_bind(&b->window, call);
    if (b->has_entries) verify_place_bind(&b->compressed, call);
    call_set(call, "part_o", buffer_address(&b->part_o));
    call_set(call, "part_m", buffer_address(&b->part_m));
    call_set(call, "part_l", buffer_address(&b->part_l));
    return verify_launch(b->verify, call);
}

static void reference(struct bench *b) {
    struct ref_attn args = {
        .core = b->core,
        .tokens = b->lists.tokens,
        .heads = b->heads,
        .splits = b->splits,
        .split_rows = b->split_rows,
        .list_stride = b->list_stride,
        .scale = b->scale,
        .q = buffer_data(&b->q),
        .q_stride = b->q_stride,
        .rows = buffer_ints(&b->rows),
        .window_count = buffer_ints(&b->window_count),
        .entry_count = buffer_ints(&b->entry_count),
        .window = verify_place_reference(&b->window),
        .part_o = buffer_floats(&b->part_o),
        .part_m = buffer_floats(&b->part_m),
        .part_l = buffer_floats(&b->part_l),
    };
    if (b->has_entries) args.compressed = verify_place_reference(&b->compressed);
    ref_attn(&b->rules, &args);
}

static bool run_case(struct bench *b, enum input_kind q, enum input_kind rows, const char *what) {
    struct verify *verify = b->verify;
    struct outputs outputs = {.list = {&b->part_o, &b->part_m, &b->part_l}, .count = 3};
    bool good = make_lists(b, rows) && make_parts(b) &&
                verify_matrix(verify, &b->call, "q", b->lists.tokens, b->heads * b->rules.head_dim,
                              REF_BFLOAT, q, &b->q, &b->q_stride) &&
                outputs_remember(&outputs);
    if (good) {
        bool ran = launch(b);
        reference(b);
        verify_case(verify, b->subject, &outputs, ran, what, b->lists.tokens);
    }
    struct buffer *all[] = {&b->q,      &b->rows,   &b->window_count, &b->entry_count,
                            &b->part_o, &b->part_m, &b->part_l};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(verify->session, all[i]);
    return good && !verify->broken;
}

/* ---- the cases ---- */

/* Tokens with lists of these lengths, the window as far as it reaches, entries behind it. */
static void set_lists(struct bench *b, uint32_t missing, uint32_t count, const uint32_t *length) {
    b->lists = (struct lists){.tokens = count, .missing = missing};
    for (uint32_t t = 0; t < count; t++) {
        b->lists.window[t] = length[t] < b->rules.window ? length[t] : b->rules.window;
        if (b->has_entries) b->lists.entries[t] = length[t] - b->lists.window[t];
    }
}

static bool lengths(struct bench *b) {
    uint32_t window = b->rules.window, split = b->split_rows;
    const uint32_t one[] = {1}, tiles[] = {31, 32, 33, 0, 64, 2};
    const uint32_t windows[] = {window - 1, window, window + 1, window + 40};
    const uint32_t splits[] = {split - 1, split, split + 1, 2 * split + 33};
    const uint32_t none[] = {0, 0};
    set_lists(b, 0, 1, one);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "one token, one row")) return false;
    set_lists(b, 0, 6, tiles);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "lists around a tile's end")) return false;
    set_lists(b, 0, 4, windows);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "lists around the window's end")) return false;
    set_lists(b, 5, 4, windows);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "rows missing here and there")) return false;
    set_lists(b, 1, 4, windows);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "all rows missing")) return false;
    set_lists(b, 0, 2, none);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "empty lists")) return false;
    set_lists(b, 0, 0, none);
    if (!run_case(b, INPUT_RANDOM, INPUT_RANDOM, "no token at all")) return false;
    if (!b->has_entries) return true;
    set_lists(b, 9, 4, splits);
    return run_case(b, INPUT_RANDOM, INPUT_RANDOM, "lists around a split's end");
}

/* Entries without a window, as no model has them, but the kernel's parameters do. */
static bool entries_alone(struct bench *b) {
    b->lists = (struct lists){.tokens = 3, .entries = {1, 50, 70}, .window = {0, 0, 5}};
    return run_case(b, INPUT_RANDOM, INPUT_RANDOM, "entries without a window");
}

static bool head_counts(struct bench *b) {
    static const uint32_t heads[] = {1, 8, 17, 32, 64, 128};
    const uint32_t length[] = {40, 3};
    char what[96];
    bool good = true;
    for (size_t i = 0; good && i < sizeof heads / sizeof *heads; i++) {
        b->heads = heads[i];
        set_lists(b, 7, 2, length);
        snprintf(what, sizeof what, "%u heads", heads[i]);
        good = run_case(b, INPUT_RANDOM, INPUT_RANDOM, what);
    }
    b->heads = 5;
    return good;
}

static bool numbers(struct bench *b) {
    const uint32_t length[] = {40, 70, 1};
    char what[96];
    bool good = true;
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        set_lists(b, 11, 3, length);
        snprintf(what, sizeof what, "rows: %s", input_names[kind]);
        good = run_case(b, INPUT_RANDOM, (enum input_kind)kind, what);
        snprintf(what, sizeof what, "queries: %s", input_names[kind]);
        good = good && run_case(b, (enum input_kind)kind, INPUT_RANDOM, what);
        snprintf(what, sizeof what, "rows and queries: %s", input_names[kind]);
        good = good && run_case(b, (enum input_kind)kind, (enum input_kind)kind, what);
    }
    return good;
}

/* Large scores leave one weight, small ones all of them alike. */
static bool scales(struct bench *b) {
    static const float scale[] = {0, 8, 1e-6f, -.25f, 1e30f};
    const uint32_t length[] = {40, 70};
    char what[96];
    float usual = b->scale;
    bool good = true;
    for (size_t i = 0; good && i < sizeof scale / sizeof *scale; i++) {
        b->scale = scale[i];
        set_lists(b, 11, 2, length);
        snprintf(what, sizeof what, "scale %g", (double)scale[i]);
        good = run_case(b, INPUT_RANDOM, INPUT_RANDOM, what);
    }
    b->scale = usual;
    return good;
}

/* Row numbers up to 2^31: bytes far beyond what 32 bits can count. */
static bool far_pages(struct bench *b) {
    const uint32_t length[] = {40, 70, 33};
    verify_place_far(&b->window);
    if (b->has_entries) verify_place_far(&b->compressed);
    set_lists(b, 9, 3, length);
    bool good = run_case(b, INPUT_RANDOM, INPUT_RANDOM, "row numbers up to 2^31");
    b->window.first = b->compressed.first = 0;
    return good;
}

static bool make_places(struct bench *b) {
    uint32_t rows = b->verify->session->rules.paged ? b->rules.block : b->rules.ring;
    uint32_t k = b->rules.ratio ? b->rules.block / b->rules.ratio : 0;
    return verify_place_create(b->verify, &b->call, "swa", &b->rules, rows, WINDOW_PAGES,
                               &b->window) &&
           (!b->has_entries ||
            verify_place_create(b->verify, &b->call, "kv", &b->rules, k, PAGES, &b->compressed));
}

bool verify_attn(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->has_entries = b->rules.ratio > 0;
    b->heads = 5;
    b->split_rows = verify->session->rules.split_rows;
    b->scale = 0x1.6a09e6p-5f;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call);
    if (good) b->core = verify_core(verify);
    good = good && make_places(b) && lengths(b) && (!b->has_entries || entries_alone(b)) &&
           head_counts(b) && numbers(b) && scales(b) && far_pages(b);
    verify_place_destroy(verify, &b->window);
    verify_place_destroy(verify, &b->compressed);
    free(b);
    return good;
}
