/* The demo's launches: the kernel on the state cache's memory, its reference on the image. */
#include "demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const demo_job_names[DEMO_JOBS] = {"swa_write",   "compress",          "index_compress",
                                               "tail_append", "index_tail_append", "state_reset"};

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

bool demo_bind(struct demo *demo, struct call *call, uint32_t type, uint32_t layer,
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

/* Tokens of the batch that are not padding. */
static uint32_t real_tokens(const struct batch *batch) {
    uint32_t count = 0;
    for (uint32_t t = 0; t < batch->tokens; t++) count += batch->batch_id[t] >= 0;
    return count;
}

bool demo_launch(struct demo *demo, struct demo_kernel *kernel, const struct demo_step *step) {
    batch_set(&demo->batch, &step->batch, SCHEDULE_SLOTS, SCHEDULE_POSITIONS, &kernel->call);
    kernel->work += real_tokens(&demo->batch);
    return launch(demo, kernel);
}

struct ref_batch demo_batch(const struct demo *demo) {
    return batch_reference(&demo->batch, SCHEDULE_SLOTS, SCHEDULE_POSITIONS);
}

/* Ordinary numbers, and now and then a token of the difficult kinds. */
bool demo_input(struct demo *demo, const char *name, enum ref_dtype dtype, uint32_t columns,
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

bool demo_weights(struct demo *demo, const char *name, size_t count, struct buffer *out) {
    if (!buffer_create(&demo->session, name, 4 * count, false, out)) return false;
    input_weight(&demo->random, false, buffer_floats(out), (uint32_t)count);
    return buffer_upload(&demo->session, out);
}

/* ---- swa_write ---- */

static bool bind_window(struct demo *demo, uint32_t type, uint32_t layer,
                        struct ref_swa_write *args) {
    struct demo_type *at = &demo->types[type];
    struct call *call = &at->kernels[DEMO_SWA_WRITE].call;
    char name[32];
    for (uint32_t i = 0; i < ref_planes(at->rules.format); i++) {
        snprintf(name, sizeof name, "swa_%s", ref_plane_name(at->rules.format, i));
        if (!demo_bind(demo, call, type, layer, name, &args->window.plane[i])) return false;
    }
    return demo_bind(demo, call, type, layer, "swa_pos", &args->swa_pos) &&
           demo_bind(demo, call, type, layer, "swa_head", &args->swa_head);
}

bool demo_swa_write(struct demo *demo, uint32_t type, uint32_t n, const struct demo_step *step) {
    struct demo_type *at = &demo->types[type];
    struct demo_kernel *kernel = &at->kernels[DEMO_SWA_WRITE];
    struct buffer latent = {0};
    struct ref_swa_write args = {
        .batch = demo_batch(demo),
        .norm_weight = buffer_floats(&at->weight),
        .rope = buffer_floats(&at->rope),
        .window = {.rows = at->rules.ring},
    };
    bool good = demo_input(demo, "latent", at->rules.input, at->rules.head_dim, &latent,
                           &args.latent_stride) &&
                bind_window(demo, type, at->layers[n], &args);
    if (good) {
        call_set(&kernel->call, "latent", buffer_address(&latent));
        call_set(&kernel->call, "latent_stride", args.latent_stride);
        if (at->rules.kv_norm) call_set(&kernel->call, "norm_weight", buffer_address(&at->weight));
        call_set(&kernel->call, "rope", buffer_address(&at->rope));
        args.latent = buffer_data(&latent);
        good = demo_launch(demo, kernel, step);
        ref_swa_write(&at->rules, &args);
    }
    buffer_destroy(&demo->session, &latent);
    return good;
}

/* ---- state_reset ---- */

/* What a reset fills, if the type has it. */
static const struct {
    const char *name;
    int32_t value;
} resettable[] = {{"swa_pos", -1},     {"swa_head", 0},
                  {"tail_len", 0},     {"idx_tail_len", 0},
                  {"tail_max", 0},     {"tail_sum", 0},
                  {"tail_acc", 0},     /* f32, all bits zero */ {"idx_tail_max", 0},
                  {"idx_tail_sum", 0}, {"idx_tail_acc", 0}};

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
