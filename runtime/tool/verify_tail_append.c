/* tail_append of the main compressor and of the indexer's. */
#include "plans.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS PLAN_SLOTS

enum { KA, ZA, KB, ZB, MOST, SUM, TOTAL, LEN, ARRAYS };
static const char *const array_names[ARRAYS] = {"tail_ka",  "tail_za",  "tail_kb",  "tail_zb",
                                                "tail_max", "tail_sum", "tail_acc", "tail_len"};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct ref_type rules;
    struct call call;
    uint32_t dim, columns;
    struct buffer array[ARRAYS], ape; /* arrays the type lacks stay empty */
    uint64_t stride[ARRAYS];
    char name[ARRAYS][32];
    struct batch batch;
};

static bool make_arrays(struct bench *b) {
    bool index = !strncmp(b->subject->kernel, "index_", 6);
    uint32_t ring = ref_tail_ring(&b->rules);
    uint64_t row = (uint64_t)b->dim * (b->rules.state == REF_F32 ? 4 : 2);
    uint64_t running = 4 * (uint64_t)b->dim;
    for (int i = 0; i < ARRAYS; i++) {
        snprintf(b->name[i], sizeof b->name[i], "%s%s", index ? "idx_" : "", array_names[i]);
        if (!call_has(&b->call, b->name[i])) continue;
        uint64_t bytes = i == LEN ? 4 : i >= MOST ? running : ring * row;
        if (!verify_output(b->verify, &b->call, b->name[i], SLOTS, bytes, &b->array[i],
                           &b->stride[i]))
            return false;
    }
    size_t ape = 4 * (size_t)b->rules.ratio * b->columns;
    return buffer_create(b->verify->session, "ape", ape, false, &b->ape);
}

static bool set_ape(struct bench *b, bool special) {
    input_weight(&b->verify->random, special, buffer_floats(&b->ape), b->rules.ratio * b->columns);
    return buffer_upload(b->verify->session, &b->ape);
}

static struct ref_array image(struct bench *b, int array) {
    return (struct ref_array){b->array[array].image ? buffer_data(&b->array[array]) : NULL,
                              b->stride[array]};
}

static void reference(struct bench *b, const struct buffer *kv, uint64_t kv_stride,
                      const struct buffer *score, uint64_t score_stride) {
    struct ref_tail_append args = {
        .batch = batch_reference(&b->batch, SLOTS, 0),
        .dim = b->dim,
        .kv = buffer_data(kv),
        .score = buffer_data(score),
        .kv_stride = kv_stride,
        .score_stride = score_stride,
        .ape = buffer_floats(&b->ape),
        .ka = image(b, KA),
        .za = image(b, ZA),
        .kb = image(b, KB),
        .zb = image(b, ZB),
        .most = image(b, MOST),
        .sum = image(b, SUM),
        .total = image(b, TOTAL),
        .len = image(b, LEN),
    };
    ref_tail_append(&b->rules, &args);
}

static bool launch(struct bench *b, const struct batch_device *device) {
    batch_set(&b->batch, device, SLOTS, 0, &b->call);
    if (call_has(&b->call, "ape")) call_set(&b->call, "ape", buffer_address(&b->ape));
    for (int i = 0; i < ARRAYS; i++)
        if (b->array[i].image)
            verify_bind_far(b->verify, &b->call, b->name[i], &b->array[i], b->stride[i]);
    return verify_launch(b->verify, &b->call);
}

/* A running softmax of the same kind of numbers as the launch's. */
static bool refill_running(struct bench *b, enum input_kind kind) {
    for (int i = MOST; i <= TOTAL; i++) {
        if (!b->array[i].image) continue;
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            input_vector(&b->verify->random, kind, REF_F32,
                         buffer_data(&b->array[i]) + slot * b->stride[i], b->dim);
        if (!buffer_upload(b->verify->session, &b->array[i])) return false;
    }
    return true;
}

static bool run_case(struct bench *b, enum input_kind kind, const char *what) {
    struct verify *verify = b->verify;
    struct batch_device device = {0};
    struct buffer kv = {0}, score = {0};
    struct outputs outputs = {0};
    uint64_t kv_stride = 0, score_stride = 0;
    for (int i = 0; i < ARRAYS; i++)
        if (b->array[i].image) outputs.list[outputs.count++] = &b->array[i];
    bool good = refill_running(b, kind) && batch_upload(verify->session, &b->batch, &device) &&
                verify_matrix(verify, &b->call, "kv", b->batch.tokens, b->columns, b->rules.input,
                              kind, &kv, &kv_stride) &&
                verify_matrix(verify, &b->call, "score", b->batch.tokens, b->columns,
                              b->rules.input, kind, &score, &score_stride) &&
                outputs_remember(&outputs);
    if (good) {
        verify_bind(&b->call, "kv", &kv, kv_stride);
        verify_bind(&b->call, "score", &score, score_stride);
        bool ran = launch(b, &device);
        reference(b, &kv, kv_stride, &score, score_stride);
        verify_case(verify, b->subject, &outputs, ran, what, b->batch.tokens);
    }
    buffer_destroy(verify->session, &kv);
    buffer_destroy(verify->session, &score);
    batch_free(verify->session, &device);
    return good && !verify->broken;
}

/* One slot whose tails lie gigabytes behind the base. */
static bool far_slot(struct bench *b) {
    batch_clear(&b->batch);
    batch_request(&b->batch, SLOTS - 1, 3, ref_tail_ring(&b->rules) + 2);
    b->verify->far = VERIFY_FAR;
    b->verify->far_slot = SLOTS - 1;
    bool good = run_case(b, INPUT_RANDOM, "a slot 35 GiB behind the first");
    b->verify->far = 0;
    return good;
}

static bool run_all(struct bench *b) {
    const struct plan_space space = {ref_tail_ring(&b->rules), 1 << 20, &b->verify->random};
    char what[96];
    bool good = set_ape(b, false);
    for (size_t i = 0; good && i < plan_count(); i++) {
        plan_build(i, &space, &b->batch);
        good = run_case(b, INPUT_RANDOM, plan_name(i));
    }
    for (int kind = 0; good && kind < INPUT_KINDS; kind++) {
        plan_numbers(&space, &b->batch);
        snprintf(what, sizeof what, "values and scores: %s", input_names[kind]);
        good = run_case(b, (enum input_kind)kind, what);
    }
    if (!good || !far_slot(b)) return false;
    if (!call_has(&b->call, "ape")) return true;
    plan_numbers(&space, &b->batch);
    return set_ape(b, true) && run_case(b, INPUT_RANDOM, "ape of every kind");
}

bool verify_tail_append(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    bool index = !strncmp(subject->kernel, "index_", 6);
    b->verify = verify;
    b->subject = subject;
    b->rules = subject->rules;
    b->dim = index ? subject->info->indexer_dim : subject->info->head_dim;
    b->columns = (1 + b->rules.overlap) * b->dim;
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b->call) &&
                make_arrays(b) && run_all(b);
    for (int i = 0; i < ARRAYS; i++) buffer_destroy(verify->session, &b->array[i]);
    buffer_destroy(verify->session, &b->ape);
    free(b);
    return good;
}
