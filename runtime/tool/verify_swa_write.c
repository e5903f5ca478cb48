/* swa_write in ring mode: where rows go, which tokens survive, and every kind of number. */
#include "verify.h"

#include "batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8

/* The state a type's cases share: what one case wrote, the next one finds. */
struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    struct buffer plane[REF_PLANES], swa_pos, swa_head, weight, rope;
    uint64_t plane_stride[REF_PLANES], pos_stride, head_stride;
    char plane_name[REF_PLANES][16];
    uint32_t positions;
    struct batch batch;
};

/* ---- cases ---- */

static void one_token(struct bench *b) {
    batch_request(&b->batch, 0, 0, 1);
}

/* Around the ring's end, each position in a slot of its own. */
static void wrap_single(struct bench *b) {
    int32_t ring = (int32_t)b->rules.ring;
    const int32_t at[] = {ring - 2, ring - 1, ring, 2 * ring - 1, 2 * ring};
    for (int32_t i = 0; i < 5; i++) batch_request(&b->batch, SLOTS - 1 - i, at[i], 1);
}

static void wrap_chunk(struct bench *b) {
    int32_t ring = (int32_t)b->rules.ring;
    batch_request(&b->batch, 1, ring - 3, 7);
    batch_request(&b->batch, 2, 2 * ring - 1, 2);
}

static void exactly_ring(struct bench *b) {
    batch_request(&b->batch, 3, 5, b->rules.ring);
}

static void ring_and_one(struct bench *b) {
    batch_request(&b->batch, 4, 0, b->rules.ring + 1);
}

static void long_chunk(struct bench *b) {
    batch_gap(&b->batch, 3);
    batch_request(&b->batch, 5, 7, 2 * b->rules.ring + 3);
    batch_request(&b->batch, 6, 1, 2);
}

/* All slots, in another order, with empty requests and padding among and behind them. */
static void many_requests(struct bench *b) {
    uint64_t *random = &b->verify->random;
    uint32_t first = input_below(random, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t count = input_below(random, 12);
        int32_t from = (int32_t)input_below(random, b->positions - 12);
        batch_request(&b->batch, (int32_t)((first + 3 * i) % SLOTS), from, count);
        if (i % 3 == 0) batch_gap(&b->batch, input_below(random, 4));
    }
    batch_pad(&b->batch, 5);
}

/* A slot that has been used starts again at 0. */
static void reuse(struct bench *b) {
    batch_request(&b->batch, 5, 0, 4);
    batch_request(&b->batch, 3, 0, 1);
}

static void last_position(struct bench *b) {
    batch_request(&b->batch, 2, (int32_t)b->positions - 1, 3);
    batch_request(&b->batch, 1, (int32_t)b->positions - 5, 5);
}

/* Nothing of this may be written but the last request. */
static void bad_indices(struct bench *b) {
    batch_request(&b->batch, -1, 3, 2);
    batch_request(&b->batch, SLOTS, 3, 2);
    batch_request(&b->batch, INT32_MAX, 3, 1);
    batch_request(&b->batch, INT32_MIN, 3, 1);
    batch_gap(&b->batch, 6);
    b->batch.batch_id[6] = (int32_t)b->batch.requests + 1;
    b->batch.position[6] = 1;
    b->batch.batch_id[7] = INT32_MAX;
    b->batch.position[7] = 1;
    b->batch.batch_id[8] = INT32_MIN;
    b->batch.position[8] = 1;
    batch_request(&b->batch, 7, 9, 2);
    b->batch.position[b->batch.tokens - 2] = INT32_MIN;
}

static void only_padding(struct bench *b) {
    batch_gap(&b->batch, 2);
    batch_pad(&b->batch, 9);
}

static void no_tokens(struct bench *b) {
    batch_request(&b->batch, 0, 0, 0);
}

static void numbers(struct bench *b) {
    batch_request(&b->batch, 0, 40, 9);
    batch_request(&b->batch, 6, (int32_t)b->rules.ring - 4, 9);
}

static const struct plan {
    const char *name;
    void (*build)(struct bench *b);
} plans[] = {
    {"one token", one_token},
    {"single tokens around the ring's end", wrap_single},
    {"chunks around the ring's end", wrap_chunk},
    {"a chunk as long as the ring", exactly_ring},
    {"a chunk one longer than the ring", ring_and_one},
    {"a chunk of twice the ring", long_chunk},
    {"many requests with padding", many_requests},
    {"many requests in other slots", many_requests},
    {"used slots start again", reuse},
    {"positions up to the end of the rope table and beyond", last_position},
    {"slots, requests and positions out of range", bad_indices},
    {"only padding", only_padding},
    {"no token at all", no_tokens},
};

/* ---- running them ---- */

static bool make_output(struct bench *b, const char *name, uint64_t bytes, struct buffer *buffer,
                        uint64_t *stride) {
    uint64_t align = verify_align(&b->call, name);
    *stride = verify_round_up(bytes, align) + 3 * align; /* a gap that nothing may touch */
    return buffer_create(b->verify->session, name, SLOTS * *stride, true, buffer) &&
           buffer_upload(b->verify->session, buffer);
}

static bool make_outputs(struct bench *b) {
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++) {
        snprintf(b->plane_name[i], sizeof b->plane_name[i], "swa_%s",
                 ref_plane_name(b->rules.format, i));
        uint64_t bytes = ref_page_bytes(&b->rules, i, b->rules.ring);
        if (!make_output(b, b->plane_name[i], bytes, &b->plane[i], &b->plane_stride[i]))
            return false;
    }
    return make_output(b, "swa_pos", 4 * (uint64_t)b->rules.ring, &b->swa_pos, &b->pos_stride) &&
           make_output(b, "swa_head", 4, &b->swa_head, &b->head_stride);
}

static bool make_inputs(struct bench *b) {
    struct session *session = b->verify->session;
    size_t rope = (size_t)b->positions * b->rules.rope_dim;
    if (!buffer_create(session, "rope", 4 * rope, false, &b->rope)) return false;
    if (!buffer_create(session, "norm_weight", 4 * (size_t)b->rules.head_dim, false, &b->weight))
        return false;
    input_rope(&b->verify->random, (float *)(void *)buffer_data(&b->rope), rope);
    return buffer_upload(session, &b->rope);
}

static bool set_weight(struct bench *b, bool special) {
    input_weight(&b->verify->random, special, (float *)(void *)buffer_data(&b->weight),
                 b->rules.head_dim);
    return buffer_upload(b->verify->session, &b->weight);
}

static void set_params(struct bench *b, const struct batch_device *device,
                       const struct buffer *latent, uint64_t stride) {
    struct call *call = &b->call;
    char name[32];
    batch_set(&b->batch, device, SLOTS, b->positions, call);
    call_set(call, "latent", buffer_address(latent));
    call_set(call, "latent_stride", stride);
    if (b->rules.kv_norm) call_set(call, "norm_weight", buffer_address(&b->weight));
    call_set(call, "rope", buffer_address(&b->rope));
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++) {
        call_set(call, b->plane_name[i], buffer_address(&b->plane[i]));
        snprintf(name, sizeof name, "%s_stride", b->plane_name[i]);
        call_set(call, name, b->plane_stride[i]);
    }
    call_set(call, "swa_pos", buffer_address(&b->swa_pos));
    call_set(call, "swa_pos_stride", b->pos_stride);
    call_set(call, "swa_head", buffer_address(&b->swa_head));
    call_set(call, "swa_head_stride", b->head_stride);
}

static void reference(struct bench *b, const struct buffer *latent, uint64_t stride) {
    struct ref_swa_write args = {
        .batch = batch_reference(&b->batch, SLOTS, b->positions),
        .latent = buffer_data(latent),
        .latent_stride = stride,
        .norm_weight = (const float *)(const void *)buffer_data(&b->weight),
        .rope = (const float *)(const void *)buffer_data(&b->rope),
        .window = {.rows = b->rules.ring},
        .swa_pos = {buffer_data(&b->swa_pos), b->pos_stride},
        .swa_head = {buffer_data(&b->swa_head), b->head_stride},
    };
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++)
        args.window.plane[i] = (struct ref_array){buffer_data(&b->plane[i]), b->plane_stride[i]};
    ref_swa_write(&b->rules, &args);
}

static struct outputs list_outputs(struct bench *b) {
    struct outputs outputs = {0};
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++)
        outputs.list[outputs.count++] = &b->plane[i];
    outputs.list[outputs.count++] = &b->swa_pos;
    outputs.list[outputs.count++] = &b->swa_head;
    return outputs;
}

/* Latents as wide as they are, or with some bytes between the tokens. */
static bool make_latent(struct bench *b, enum input_kind kind, bool gap, struct buffer *latent,
                        uint64_t *stride) {
    uint64_t row = (uint64_t)b->rules.head_dim * (b->rules.input == REF_F32 ? 4 : 2);
    uint32_t tokens = b->batch.tokens;
    *stride = row + (gap ? verify_align(&b->call, "latent") : 0);
    uint64_t bytes = tokens ? (tokens - 1) * *stride + row : 0;
    if (!buffer_create(b->verify->session, "latent", bytes, false, latent)) return false;
    for (uint32_t t = 0; t < tokens; t++)
        input_vector(&b->verify->random, kind, b->rules.input, buffer_data(latent) + t * *stride,
                     b->rules.head_dim);
    return buffer_upload(b->verify->session, latent);
}

/* The batch has been built: run kernel and reference on it and report. */
static bool run_case(struct bench *b, enum input_kind kind, const char *what) {
    struct session *session = b->verify->session;
    struct batch_device device = {0};
    struct buffer latent = {0};
    struct outputs outputs = list_outputs(b);
    uint64_t stride = 0;
    bool good = batch_upload(session, &b->batch, &device) &&
                make_latent(b, kind, b->verify->cases % 2, &latent, &stride) &&
                outputs_remember(&outputs);
    if (good) {
        set_params(b, &device, &latent, stride);
        bool ran = call_launch(session, &b->call);
        reference(b, &latent, stride);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    buffer_destroy(session, &latent);
    batch_free(session, &device);
    return good && !b->verify->broken;
}

static bool run_all(struct bench *b) {
    char what[96];
    bool good = set_weight(b, false);
    for (size_t i = 0; good && i < sizeof plans / sizeof *plans; i++) {
        batch_clear(&b->batch);
        plans[i].build(b);
        good = run_case(b, INPUT_RANDOM, plans[i].name);
    }
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        batch_clear(&b->batch);
        numbers(b);
        snprintf(what, sizeof what, "latents: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, what);
    }
    if (!good || !b->rules.kv_norm) return good;
    batch_clear(&b->batch);
    numbers(b);
    return set_weight(b, true) && run_case(b, INPUT_RANDOM, "norm weights of every kind");
}

bool verify_swa_write(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->positions = 4 * b->rules.ring + 64;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_outputs(b) && make_inputs(b) && run_all(b);
    for (uint32_t i = 0; i < REF_PLANES; i++) buffer_destroy(verify->session, &b->plane[i]);
    buffer_destroy(verify->session, &b->swa_pos);
    buffer_destroy(verify->session, &b->swa_head);
    buffer_destroy(verify->session, &b->weight);
    buffer_destroy(verify->session, &b->rope);
    free(b);
    return good;
}
