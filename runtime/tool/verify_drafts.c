/*
 * Rejected drafts and the tails: histories that are compressed in one launch give the same entries
 * as in decode steps of up to drafts + 1 tokens, of which only the first ones stay. A rejected
 * token's row in the tail ring, and the entry that it may have completed, are overwritten by what
 * comes in its place; no row that a later entry needs may be lost to it.
 */
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORIES 3
#define SHORTEST  64 /* tokens of a history, at least */

enum { KA, ZA, KB, ZB, MOST, SUM, TOTAL, LEN, TAILS };
static const char *const tail_names[TAILS] = {"tail_ka",  "tail_za",  "tail_kb",  "tail_zb",
                                              "tail_max", "tail_sum", "tail_acc", "tail_len"};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules, stored; /* `stored`: with the format and dim of the rows it writes */
    struct call compress, append;
    bool index;
    uint32_t dim, columns, length, table_stride;
    size_t row;                /* bytes of a token's values, and of its scores */
    uint8_t *values, *scores;  /* of the histories: [HISTORIES][length] rows */
    struct buffer tail[TAILS]; /* those the type lacks stay empty */
    uint64_t tail_stride[TAILS];
    char tail_name[TAILS][32];
    struct buffer ape, weight, rope, write_from, table;
    struct buffer kv, score;          /* of a step: room for all histories */
    struct verify_place whole, steps; /* the entries made either way */
    struct batch batch;
};

static bool make_table(struct bench *b, const char *name, size_t count, struct buffer *out) {
    return buffer_create(b->verify->session, name, 4 * count, false, out);
}

static bool make_tails(struct bench *b) {
    uint64_t ring = ref_tail_ring(&b->rules);
    uint64_t row = (uint64_t)b->dim * (b->rules.state == REF_F32 ? 4 : 2);
    for (int i = 0; i < TAILS; i++) {
        snprintf(b->tail_name[i], sizeof b->tail_name[i], "%s%s", b->index ? "idx_" : "",
                 tail_names[i]);
        if (call_has(&b->append, b->tail_name[i]) &&
            !verify_output(b->verify, &b->append, b->tail_name[i], HISTORIES,
                           i == LEN    ? 4
                           : i >= MOST ? 4 * (uint64_t)b->dim
                                       : ring * row,
                           &b->tail[i], &b->tail_stride[i]))
            return false;
    }
    return true;
}

static bool make_places(struct bench *b) {
    const char *prefix = b->index ? "index" : "kv";
    uint32_t rows = b->rules.block / b->rules.ratio, pages = HISTORIES * b->table_stride;
    return verify_place_create_output(b->verify, &b->compress, prefix, &b->stored, rows, pages,
                                      &b->whole) &&
           verify_place_create_output(b->verify, &b->compress, prefix, &b->stored, rows, pages,
                                      &b->steps);
}

static bool make_inputs(struct bench *b) {
    struct session *session = b->verify->session;
    uint64_t *random = &b->verify->random;
    size_t rope = (size_t)b->length * b->rules.rope_dim,
           all = (size_t)HISTORIES * b->length * b->row;
    uint32_t weights = b->rules.ratio * b->columns, pages = HISTORIES * b->table_stride;
    if (!make_table(b, "ape", weights, &b->ape) ||
        !make_table(b, "norm_weight", b->dim, &b->weight) ||
        !make_table(b, "rope", rope, &b->rope) ||
        !make_table(b, "write_from", HISTORIES, &b->write_from) ||
        !make_table(b, "block_table", pages, &b->table) ||
        !buffer_create(session, "kv", all, false, &b->kv) ||
        !buffer_create(session, "score", all, false, &b->score))
        return false;
    input_weight(random, false, buffer_floats(&b->ape), weights);
    input_weight(random, false, buffer_floats(&b->weight), b->dim);
    input_rope(random, buffer_floats(&b->rope), rope);
    memset(buffer_ints(&b->write_from), 0, buffer_bytes(&b->write_from));
    for (uint32_t i = 0; i < pages; i++) buffer_ints(&b->table)[i] = (int32_t)i;
    input_vector(random, INPUT_RANDOM, b->rules.input, b->values,
                 HISTORIES * b->length * b->columns);
    input_vector(random, INPUT_RANDOM, b->rules.input, b->scores,
                 HISTORIES * b->length * b->columns);
    return buffer_upload(session, &b->ape) && buffer_upload(session, &b->weight) &&
           buffer_upload(session, &b->rope) && buffer_upload(session, &b->write_from) &&
           buffer_upload(session, &b->table);
}

/* ---- a step ---- */

/* Request `history` with its row of the table; `count` tokens, of which the first `accepted` are
 * the history's and the others drafts that will be rejected. */
static void add_request(struct bench *b, uint32_t history, uint32_t position, uint32_t count,
                        uint32_t accepted) {
    size_t to = b->batch.tokens * b->row, kept = accepted * b->row;
    size_t from = ((size_t)history * b->length + position) * b->row;
    uint32_t drafts = (count - accepted) * b->columns;
    memcpy(buffer_data(&b->kv) + to, b->values + from, kept);
    memcpy(buffer_data(&b->score) + to, b->scores + from, kept);
    input_vector(&b->verify->random, INPUT_RANDOM, b->rules.input, buffer_data(&b->kv) + to + kept,
                 drafts);
    input_vector(&b->verify->random, INPUT_RANDOM, b->rules.input,
                 buffer_data(&b->score) + to + kept, drafts);
    for (uint32_t column = 0; column < b->table_stride; column++)
        buffer_ints(&b->table)[b->batch.requests * b->table_stride + column] =
            (int32_t)(history * b->table_stride + column);
    batch_request(&b->batch, (int32_t)((history + 1) % HISTORIES), (int32_t)position, count);
}

static void bind_tails(struct bench *b, struct call *call) {
    for (int i = 0; i < TAILS; i++)
        if (b->tail[i].image && call_has(call, b->tail_name[i]))
            verify_bind(call, b->tail_name[i], &b->tail[i], b->tail_stride[i]);
}

static bool launch_compress(struct bench *b, const struct batch_device *device,
                            const struct verify_place *place) {
    struct call *call = &b->compress;
    batch_set(&b->batch, device, HISTORIES, b->length, call);
    call_set(call, "pages", place->pages);
    call_set(call, "table_stride", b->table_stride);
    verify_bind(call, "kv", &b->kv, b->row);
    verify_bind(call, "score", &b->score, b->row);
    call_set(call, "ape", buffer_address(&b->ape));
    call_set(call, "norm_weight", buffer_address(&b->weight));
    call_set(call, "rope", buffer_address(&b->rope));
    call_set(call, "write_from", buffer_address(&b->write_from));
    call_set(call, "block_table", buffer_address(&b->table));
    bind_tails(b, call);
    verify_place_bind(place, call);
    return verify_launch(b->verify, call);
}

static bool launch_append(struct bench *b, const struct batch_device *device) {
    struct call *call = &b->append;
    batch_set(&b->batch, device, HISTORIES, 0, call);
    verify_bind(call, "kv", &b->kv, b->row);
    verify_bind(call, "score", &b->score, b->row);
    if (call_has(call, "ape")) call_set(call, "ape", buffer_address(&b->ape));
    bind_tails(b, call);
    return verify_launch(b->verify, call);
}

/* compress, then tail_append: the order of every step. */
static bool run_step(struct bench *b, const struct verify_place *place) {
    struct session *session = b->verify->session;
    struct batch_device device = {0};
    bool good = buffer_upload(session, &b->kv) && buffer_upload(session, &b->score) &&
                buffer_upload(session, &b->table) && batch_upload(session, &b->batch, &device) &&
                launch_compress(b, &device, place) && launch_append(b, &device);
    batch_free(session, &device);
    return good;
}

/* ---- both ways ---- */

static bool serve_whole(struct bench *b) {
    batch_clear(&b->batch);
    for (uint32_t h = 0; h < HISTORIES; h++) add_request(b, h, 0, b->length, b->length);
    return run_step(b, &b->whole);
}

/* Without a ring no token can be taken back, but a step may be of any length. */
static bool serve_steps(struct bench *b) {
    uint64_t *random = &b->verify->random;
    uint32_t position[HISTORIES] = {0}, left = HISTORIES;
    bool running = ref_keeps_running(&b->rules);
    uint32_t most = running ? 2 * b->rules.ratio : b->rules.drafts + 1;
    while (left) {
        uint32_t first = input_below(random, HISTORIES);
        batch_clear(&b->batch);
        for (uint32_t i = 0; i < HISTORIES; i++) {
            uint32_t h = (first + i) % HISTORIES, rest = b->length - position[h];
            if (!rest) continue;
            uint32_t count = 1 + input_below(random, running && input_below(random, 2) ? 1 : most);
            if (count > rest) count = rest;
            uint32_t accepted = running ? count : 1 + input_below(random, count);
            add_request(b, h, position[h], count, accepted);
            position[h] += accepted;
            left -= position[h] == b->length;
        }
        if (!run_step(b, &b->steps)) return false;
    }
    return true;
}

static void compare(struct bench *b) {
    uint64_t compared = 0;
    struct difference at[REF_PLANES] = {0};
    bool equal = true;
    for (uint32_t i = 0; i < b->whole.planes; i++) {
        const struct buffer *want = &b->whole.plane[i], *got = &b->steps.plane[i];
        at[i] = difference_of(got->name, got->image, want->image, want->total);
        equal = equal && !at[i].count;
        compared += want->total;
    }
    verify_property(b->verify, b->subject, equal,
                    ref_keeps_running(&b->rules)
                        ? "chunks of every length, as one launch"
                        : "decode steps with rejected drafts, as one launch",
                    HISTORIES * b->length, compared);
    for (uint32_t i = 0; i < b->whole.planes; i++)
        if (at[i].count) printf("#   %s: %zu bytes differ\n", at[i].name, at[i].count);
}

static void free_bench(struct bench *b) {
    struct session *session = b->verify->session;
    struct buffer *const buffers[] = {&b->ape,   &b->weight, &b->rope, &b->write_from,
                                      &b->table, &b->kv,     &b->score};
    for (int i = 0; i < TAILS; i++) buffer_destroy(session, &b->tail[i]);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_destroy(session, buffers[i]);
    verify_place_destroy(b->verify, &b->whole);
    verify_place_destroy(b->verify, &b->steps);
    free(b->values);
    free(b->scores);
    free(b);
}

static bool open_calls(struct bench *b) {
    const char *type = b->subject->info->name;
    return call_open(b->verify->session, type, b->subject->kernel, &b->compress) &&
           call_open(b->verify->session, type, b->index ? "index_tail_append" : "tail_append",
                     &b->append);
}

bool verify_drafts(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->index = !strncmp(subject->kernel, "index_", 6);
    b->stored = b->index ? verify_index(verify, subject) : subject->rules;
    b->dim = b->stored.head_dim;
    b->columns = (1 + b->rules.overlap) * b->dim;
    b->row = (size_t)b->columns * (b->rules.input == REF_F32 ? 4 : 2);
    b->length = 2 * ref_tail_ring(&b->rules) + b->rules.ratio + 3;
    if (b->length < SHORTEST) b->length = SHORTEST;
    b->table_stride = (b->length + b->rules.block - 1) / b->rules.block;
    b->values = malloc((size_t)HISTORIES * b->length * b->row);
    b->scores = malloc((size_t)HISTORIES * b->length * b->row);
    bool good = b->values && b->scores && open_calls(b) && make_tails(b) && make_places(b) &&
                make_inputs(b) && serve_whole(b) && serve_steps(b) &&
                verify_place_download(verify, &b->whole) &&
                verify_place_download(verify, &b->steps);
    if (good) compare(b);
    free_bench(b);
    return good;
}
