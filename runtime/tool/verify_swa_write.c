/*
 * swa_write in ring mode: where rows go, which tokens survive, and every kind of number.
 * swa_write_workspace is the same with a second place to write.
 */
#include "plans.h"
#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS PLAN_SLOTS

/* The state a type's cases share: what one case wrote, the next one finds. */
struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    bool both;                             /* swa_write_workspace */
    struct verify_place window, workspace; /* the workspace is made for each case */
    struct buffer swa_pos, swa_head, weight, rope;
    uint64_t pos_stride, head_stride;
    uint32_t positions;
    struct batch batch;
};

static bool make_outputs(struct bench *b) {
    return verify_place_create_output(b->verify, &b->call, "swa", &b->rules, b->rules.ring, SLOTS,
                                      &b->window) &&
           verify_output(b->verify, &b->call, "swa_pos", SLOTS, 4 * (uint64_t)b->rules.ring,
                         &b->swa_pos, &b->pos_stride) &&
           verify_output(b->verify, &b->call, "swa_head", SLOTS, 4, &b->swa_head, &b->head_stride);
}

static bool make_inputs(struct bench *b) {
    struct session *session = b->verify->session;
    size_t rope = (size_t)b->positions * b->rules.rope_dim;
    if (!buffer_create(session, "rope", 4 * rope, false, &b->rope)) return false;
    if (!buffer_create(session, "norm_weight", 4 * (size_t)b->rules.head_dim, false, &b->weight))
        return false;
    input_rope(&b->verify->random, buffer_floats(&b->rope), rope);
    return buffer_upload(session, &b->rope);
}

static bool set_weight(struct bench *b, bool special) {
    input_weight(&b->verify->random, special, buffer_floats(&b->weight), b->rules.head_dim);
    return buffer_upload(b->verify->session, &b->weight);
}

static void set_params(struct bench *b, const struct batch_device *device,
                       const struct buffer *latent, uint64_t stride) {
    struct call *call = &b->call;
    batch_set(&b->batch, device, SLOTS, b->positions, call);
    verify_bind(call, "latent", latent, stride);
    if (b->rules.kv_norm) call_set(call, "norm_weight", buffer_address(&b->weight));
    call_set(call, "rope", buffer_address(&b->rope));
    for (uint32_t i = 0; i < ref_planes(b->rules.format); i++)
        verify_bind_far(b->verify, call, b->window.name[i], &b->window.plane[i],
                        b->window.stride[i]);
    verify_place_bind(&b->workspace, call);
    verify_bind_far(b->verify, call, "swa_pos", &b->swa_pos, b->pos_stride);
    verify_bind_far(b->verify, call, "swa_head", &b->swa_head, b->head_stride);
}

static void reference(struct bench *b, const struct buffer *latent, uint64_t stride) {
    struct ref_swa_write args = {
        .batch = batch_reference(&b->batch, SLOTS, b->positions),
        .latent = buffer_data(latent),
        .latent_stride = stride,
        .norm_weight = buffer_floats(&b->weight),
        .rope = buffer_floats(&b->rope),
        .window = verify_place_reference(&b->window),
        .swa_pos = {buffer_data(&b->swa_pos), b->pos_stride},
        .swa_head = {buffer_data(&b->swa_head), b->head_stride},
        .workspace = verify_place_reference(&b->workspace),
    };
    ref_swa_write(&b->rules, &args);
}

static struct outputs list_outputs(struct bench *b) {
    struct outputs outputs = {0};
    verify_place_outputs(&b->window, &outputs);
    verify_place_outputs(&b->workspace, &outputs);
    outputs.list[outputs.count++] = &b->swa_pos;
    outputs.list[outputs.count++] = &b->swa_head;
    return outputs;
}

static bool make_workspace(struct bench *b) {
    return !b->both || verify_place_create_workspace(b->verify, &b->call, &b->rules, b->rules.ring,
                                                     &b->batch, &b->workspace);
}

/* The batch has been built: run kernel and reference on it and report. */
static bool run_case(struct bench *b, enum input_kind kind, const char *what) {
    struct session *session = b->verify->session;
    struct batch_device device = {0};
    struct buffer latent = {0};
    struct outputs outputs = {0};
    uint64_t stride = 0;
    bool good = make_workspace(b);
    outputs = list_outputs(b);
    good = good && batch_upload(session, &b->batch, &device) &&
           verify_matrix(b->verify, &b->call, "latent", b->batch.tokens, b->rules.head_dim,
                         b->rules.input, kind, &latent, &stride) &&
           outputs_remember(&outputs);
    if (good) {
        set_params(b, &device, &latent, stride);
        bool ran = verify_launch(b->verify, &b->call);
        reference(b, &latent, stride);
        verify_case(b->verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    buffer_destroy(session, &latent);
    batch_free(session, &device);
    verify_place_destroy(b->verify, &b->workspace);
    return good && !b->verify->broken;
}

/* One slot whose rows lie gigabytes behind the base. */
static bool far_slot(struct bench *b) {
    batch_clear(&b->batch);
    batch_request(&b->batch, SLOTS - 1, 3, b->rules.ring + 2);
    b->verify->far = VERIFY_FAR;
    b->verify->far_slot = SLOTS - 1;
    bool good = run_case(b, INPUT_RANDOM, "a slot 35 GiB behind the first");
    b->verify->far = 0;
    return good;
}

static bool run_all(struct bench *b) {
    const struct plan_space space = {b->rules.ring, b->positions, &b->verify->random};
    char what[96];
    bool good = set_weight(b, false);
    for (size_t i = 0; good && i < plan_count(); i++) {
        plan_build(i, &space, &b->batch);
        good = run_case(b, INPUT_RANDOM, plan_name(i));
    }
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        plan_numbers(&space, &b->batch);
        snprintf(what, sizeof what, "latents: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, what);
    }
    if (!good || !far_slot(b)) return false;
    if (!b->rules.kv_norm) return true;
    plan_numbers(&space, &b->batch);
    return set_weight(b, true) && run_case(b, INPUT_RANDOM, "norm weights of every kind");
}

bool verify_swa_write(struct verify *verify, const struct subject *subject) {
    if (verify->session->rules.paged) return verify_swa_paged(verify, subject);
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->both = !strcmp(subject->kernel, "swa_write_workspace");
    b->positions = 4 * b->rules.ring + 64;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_outputs(b) && make_inputs(b) && run_all(b);
    verify_place_destroy(verify, &b->window);
    buffer_destroy(verify->session, &b->swa_pos);
    buffer_destroy(verify->session, &b->swa_head);
    buffer_destroy(verify->session, &b->weight);
    buffer_destroy(verify->session, &b->rope);
    free(b);
    return good;
}
