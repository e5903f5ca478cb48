/* The demo's launches: the kernel on the state cache's memory, its reference on the image. */
#include "demo.h"

#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const demo_job_names[DEMO_JOBS] = {"swa_write", "tail_append", "index_tail_append",
                                               "state_reset"};

/* Where an array of one layer lies, on the device and in the image. */
struct place {
    kvf_address address;
    uint8_t *image;
    uint64_t slot_stride;
};

static bool place_of(struct demo *demo, uint32_t type, uint32_t layer, const char *name,
                     struct place *out) {
    const struct mirror_array *array = mirror_find(&demo->mirror, type, name);
    if (!array) {
        fprintf(stderr, "kvforge-run: the state cache has no array %s\n", name);
        return false;
    }
    uint64_t offset = layer * array->layer_stride;
    *out = (struct place){array->base + offset, array->image + offset, array->slot_stride};
    return true;
}

/* Set "<name>" and "<name>_stride" of a call, and give back the image for the reference. */
static bool bind(struct demo *demo, struct call *call, uint32_t type, uint32_t layer,
                 const char *name, struct ref_array *out) {
    struct place place;
    char stride[48];
    if (!place_of(demo, type, layer, name, &place)) return false;
    snprintf(stride, sizeof stride, "%s_stride", name);
    call_set(call, name, place.address);
    call_set(call, stride, place.slot_stride);
    *out = (struct ref_array){place.image, place.slot_stride};
    return true;
}

static bool launch(struct demo *demo, struct demo_kernel *kernel) {
    int64_t before = session_executed(&demo->session);
    if (!call_launch(&demo->session, &kernel->call)) return false;
    kernel->executed =
        before < 0 ? -1 : kernel->executed + session_executed(&demo->session) - before;
    return true;
}

/* Inputs of a step: ordinary numbers, and now and then a token of the difficult kinds. */
static bool make_input(struct demo *demo, const char *name, enum ref_dtype dtype, uint32_t columns,
                       struct buffer *out, uint64_t *stride) {
    *stride = (uint64_t)columns * (dtype == REF_F32 ? 4 : 2);
    if (!buffer_create(&demo->session, name, demo->batch.tokens * *stride, false, out))
        return false;
    for (uint32_t t = 0; t < demo->batch.tokens; t++) {
        uint32_t kind = input_below(&demo->random, 40);
        input_vector(&demo->random, kind < INPUT_KINDS ? (enum input_kind)kind : INPUT_RANDOM,
                     dtype, buffer_data(out) + t * *stride, columns);
    }
    return buffer_upload(&demo->session, out);
}

/* Tokens of the batch that are not padding. */
static uint32_t real_tokens(const struct batch *batch) {
    uint32_t count = 0;
    for (uint32_t t = 0; t < batch->tokens; t++) count += batch->batch_id[t] >= 0;
    return count;
}

/* ---- swa_write ---- */

static bool bind_window(struct demo *demo, struct demo_type *at, uint32_t type, uint32_t layer,
                        struct ref_swa_write *args) {
    struct call *call = &at->kernels[DEMO_SWA_WRITE].call;
    char name[32];
    for (uint32_t i = 0; i < ref_planes(at->rules.format); i++) {
        snprintf(name, sizeof name, "swa_%s", ref_plane_name(at->rules.format, i));
        if (!bind(demo, call, type, layer, name, &args->window.plane[i])) return false;
    }
    return bind(demo, call, type, layer, "swa_pos", &args->swa_pos) &&
           bind(demo, call, type, layer, "swa_head", &args->swa_head);
}

static bool swa_write(struct demo *demo, uint32_t type, uint32_t layer) {
    struct demo_type *at = &demo->types[type];
    struct demo_kernel *kernel = &at->kernels[DEMO_SWA_WRITE];
    struct buffer latent = {0};
    struct ref_swa_write args = {
        .batch = batch_reference(&demo->batch, SCHEDULE_SLOTS, SCHEDULE_POSITIONS),
        .norm_weight = buffer_floats(&at->weight),
        .rope = buffer_floats(&at->rope),
        .window = {.rows = at->rules.ring},
    };
    bool good = make_input(demo, "latent", at->rules.input, at->rules.head_dim, &latent,
                           &args.latent_stride) &&
                bind_window(demo, at, type, layer, &args);
    if (good) {
        call_set(&kernel->call, "latent", buffer_address(&latent));
        call_set(&kernel->call, "latent_stride", args.latent_stride);
        if (at->rules.kv_norm) call_set(&kernel->call, "norm_weight", buffer_address(&at->weight));
        call_set(&kernel->call, "rope", buffer_address(&at->rope));
        args.latent = buffer_data(&latent);
        good = launch(demo, kernel);
        ref_swa_write(&at->rules, &args);
    }
    buffer_destroy(&demo->session, &latent);
    return good;
}

/* ---- tail_append ---- */

static bool bind_tails(struct demo *demo, uint32_t type, enum demo_job job, uint32_t layer,
                       struct ref_tail_append *args) {
    const struct {
        const char *name;
        struct ref_array *array;
    } arrays[] = {{"tail_ka", &args->ka},
                  {"tail_za", &args->za},
                  {"tail_kb", &args->kb},
                  {"tail_zb", &args->zb},
                  {"tail_len", &args->len}};
    struct call *call = &demo->types[type].kernels[job].call;
    char name[32];
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        snprintf(name, sizeof name, "%s%s", job == DEMO_INDEX_TAIL_APPEND ? "idx_" : "",
                 arrays[i].name);
        if (!mirror_find(&demo->mirror, type, name)) continue; /* no stream b without overlap */
        if (!bind(demo, call, type, layer, name, arrays[i].array)) return false;
    }
    return true;
}

static bool tail_append(struct demo *demo, uint32_t type, enum demo_job job, uint32_t layer) {
    struct demo_type *at = &demo->types[type];
    struct demo_kernel *kernel = &at->kernels[job];
    bool index = job == DEMO_INDEX_TAIL_APPEND;
    const struct buffer *ape = index ? &at->index_ape : &at->ape;
    struct buffer kv = {0}, score = {0};
    struct ref_tail_append args = {
        .batch = batch_reference(&demo->batch, SCHEDULE_SLOTS, SCHEDULE_POSITIONS),
        .dim = index ? at->info.indexer_dim : at->rules.head_dim,
        .ape = buffer_floats(ape),
    };
    uint32_t columns = (1 + at->rules.overlap) * args.dim;
    bool good = make_input(demo, "kv", at->rules.input, columns, &kv, &args.kv_stride) &&
                make_input(demo, "score", at->rules.input, columns, &score, &args.score_stride) &&
                bind_tails(demo, type, job, layer, &args);
    if (good) {
        call_set(&kernel->call, "kv", buffer_address(&kv));
        call_set(&kernel->call, "kv_stride", args.kv_stride);
        call_set(&kernel->call, "score", buffer_address(&score));
        call_set(&kernel->call, "score_stride", args.score_stride);
        if (at->rules.ape_on_write) call_set(&kernel->call, "ape", buffer_address(ape));
        args.kv = buffer_data(&kv);
        args.score = buffer_data(&score);
        good = launch(demo, kernel);
        ref_tail_append(&at->rules, &args);
    }
    buffer_destroy(&demo->session, &kv);
    buffer_destroy(&demo->session, &score);
    return good;
}

bool demo_run(struct demo *demo, uint32_t type, enum demo_job job, uint32_t layer,
              const struct batch_device *device) {
    struct demo_kernel *kernel = &demo->types[type].kernels[job];
    batch_set(&demo->batch, device, SCHEDULE_SLOTS, SCHEDULE_POSITIONS, &kernel->call);
    kernel->work += real_tokens(&demo->batch);
    return job == DEMO_SWA_WRITE ? swa_write(demo, type, layer)
                                 : tail_append(demo, type, job, layer);
}

/* ---- state_reset ---- */

/* What a reset fills, if the type has it. */
static const struct {
    const char *name;
    int32_t value;
} resettable[] = {{"swa_pos", -1}, {"swa_head", 0}, {"tail_len", 0}, {"idx_tail_len", 0}};

#define RESETTABLE (sizeof resettable / sizeof *resettable)

static uint32_t bind_reset(struct demo *demo, uint32_t type, struct ref_reset_array *arrays) {
    struct call *call = &demo->types[type].kernels[DEMO_STATE_RESET].call;
    char name[48];
    uint32_t count = 0;
    for (size_t i = 0; i < RESETTABLE; i++) {
        const struct mirror_array *array = mirror_find(&demo->mirror, type, resettable[i].name);
        if (!array) continue;
        call_set(call, array->name, array->base);
        snprintf(name, sizeof name, "%s_stride", array->name);
        call_set(call, name, array->slot_stride);
        snprintf(name, sizeof name, "%s_layer_stride", array->name);
        call_set(call, name, array->layer_stride);
        arrays[count++] =
            (struct ref_reset_array){array->image, array->slot_stride, array->layer_stride,
                                     (uint32_t)(array->slot_stride / 4), resettable[i].value};
    }
    return count;
}

/* Compare the arrays of a reset in all layers at once: later writes would hide a difference. */
static bool check_reset(struct demo *demo, uint32_t type) {
    struct demo_type *at = &demo->types[type];
    struct difference difference;
    for (size_t i = 0; i < RESETTABLE; i++) {
        const struct mirror_array *array = mirror_find(&demo->mirror, type, resettable[i].name);
        for (uint32_t layer = 0; array && layer < at->info.layers + at->info.draft_layers;
             layer++) {
            if (!mirror_compare(&demo->mirror, array, layer, &difference)) return false;
            at->kernels[DEMO_STATE_RESET].compared += array->layer_stride;
            at->kernels[DEMO_STATE_RESET].differs =
                at->kernels[DEMO_STATE_RESET].differs || difference.count;
        }
    }
    return true;
}

bool demo_state_reset(struct demo *demo, uint32_t type, const int32_t *slots, uint32_t count) {
    struct demo_type *at = &demo->types[type];
    struct call *call = &at->kernels[DEMO_STATE_RESET].call;
    struct buffer list = {0};
    struct ref_reset_array arrays[RESETTABLE];
    struct ref_state_reset args = {count, SCHEDULE_SLOTS, at->info.layers + at->info.draft_layers,
                                   slots, arrays,         0};
    if (!buffer_create(&demo->session, "slot_list", 4 * (size_t)count, false, &list)) return false;
    memcpy(buffer_data(&list), slots, 4 * (size_t)count);
    args.array_count = bind_reset(demo, type, arrays);
    call_set(call, "count", count);
    call_set(call, "slots", SCHEDULE_SLOTS);
    call_set(call, "layers", args.layers);
    call_set(call, "slot_list", buffer_address(&list));
    bool good =
        buffer_upload(&demo->session, &list) && launch(demo, &at->kernels[DEMO_STATE_RESET]);
    ref_state_reset(&args);
    at->kernels[DEMO_STATE_RESET].work += (uint64_t)count * args.layers;
    good = good && check_reset(demo, type);
    buffer_destroy(&demo->session, &list);
    return good;
}
