/* state_reset: the listed slots of all layers, whatever the list holds. */
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS  6
#define LAYERS 3

/* What a reset fills, if the type has it: design section 6. */
static const struct resettable {
    const char *name;
    int32_t value;
} resettable[] = {
    {"swa_pos", -1},     {"swa_head", 0},     {"tail_len", 0},     {"idx_tail_len", 0},
    {"tail_max", 0},     {"tail_sum", 0},     {"tail_acc", 0}, /* f32, all bits zero */
    {"idx_tail_max", 0}, {"idx_tail_sum", 0}, {"idx_tail_acc", 0},
};

#define ARRAYS (sizeof resettable / sizeof *resettable)

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct call call;
    struct buffer array[ARRAYS];
    struct ref_reset_array reference[ARRAYS];
    uint32_t count;
};

static const struct plan {
    const char *name;
    uint32_t layers, count;
    int32_t list[8];
} plans[] = {
    {"one slot", LAYERS, 1, {2}},
    {"all slots, in another order", LAYERS, 6, {5, 0, 3, 1, 4, 2}},
    {"entries out of range", LAYERS, 7, {-1, SLOTS, 1, INT32_MIN, INT32_MAX, SLOTS - 1, -2}},
    {"fewer layers than there are", 1, 2, {0, 5}},
    {"only entries out of range", LAYERS, 2, {-1, SLOTS}},
    {"an empty list", LAYERS, 0, {0}},
    {"no layer", 0, 2, {1, 2}},
};

static uint32_t elements_of(const struct bench *b, const char *name) {
    bool running = !strstr(name, "_len") && strstr(name, "tail_");
    if (running)
        return !strncmp(name, "idx_", 4) ? b->subject->info->indexer_dim
                                         : b->subject->info->head_dim;
    return strcmp(name, "swa_pos") ? 1 : b->subject->rules.ring;
}

static bool make_array(struct bench *b, const struct resettable *what) {
    struct buffer *buffer = &b->array[b->count];
    struct ref_reset_array *array = &b->reference[b->count];
    uint32_t elements = elements_of(b, what->name);
    uint64_t align = verify_align(&b->call, what->name);
    uint64_t stride = (4 * (uint64_t)elements + align - 1) / align * align + 2 * align;
    uint64_t layer_stride = SLOTS * stride + 3 * align;
    if (!buffer_create(b->verify->session, what->name, LAYERS * layer_stride, true, buffer))
        return false;
    *array =
        (struct ref_reset_array){buffer_data(buffer), stride, layer_stride, elements, what->value};
    b->count++;
    return true;
}

static void set_params(struct bench *b, const struct plan *plan, const struct buffer *list) {
    call_set(&b->call, "count", plan->count);
    call_set(&b->call, "slots", SLOTS);
    call_set(&b->call, "layers", plan->layers);
    call_set(&b->call, "slot_list", buffer_address(list));
    for (uint32_t i = 0; i < b->count; i++) {
        call_set_stride(&b->call, b->array[i].name, "", b->reference[i].stride);
        verify_bind_as(&b->call, &(struct call_array){b->array[i].name, "_layer", &b->array[i],
                                                      b->reference[i].layer_stride, 1});
    }
}

/* Every case starts from random contents, so that each write shows. */
static bool refill(struct bench *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        uint8_t *data = buffer_data(&b->array[i]);
        for (size_t at = 0; at < buffer_bytes(&b->array[i]); at++)
            data[at] = (uint8_t)input_next(&b->verify->random);
        if (!buffer_upload(b->verify->session, &b->array[i])) return false;
    }
    return true;
}

static bool run_case(struct bench *b, const struct plan *plan) {
    struct session *session = b->verify->session;
    struct buffer list = {0};
    struct outputs outputs = {.count = b->count};
    struct ref_state_reset args = {plan->count, SLOTS,        plan->layers,
                                   plan->list,  b->reference, b->count};
    for (uint32_t i = 0; i < b->count; i++) outputs.list[i] = &b->array[i];
    bool good = refill(b) && outputs_remember(&outputs) &&
                buffer_create(session, "slot_list", 4 * (size_t)plan->count, false, &list);
    if (good) {
        memcpy(buffer_data(&list), plan->list, 4 * (size_t)plan->count);
        good = buffer_upload(session, &list);
    }
    if (good) {
        set_params(b, plan, &list);
        bool ran = verify_launch(b->verify, &b->call);
        ref_state_reset(&args);
        verify_case(b->verify, b->subject, &outputs, ran, plan->name, 0);
    }
    buffer_destroy(session, &list);
    return good && !b->verify->broken;
}

bool verify_state_reset(struct verify *verify, const struct subject *subject) {
    struct bench b = {.verify = verify, .subject = subject};
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b.call);
    for (size_t i = 0; good && i < ARRAYS; i++)
        if (call_has(&b.call, resettable[i].name)) good = make_array(&b, &resettable[i]);
    for (size_t i = 0; good && i < sizeof plans / sizeof *plans; i++)
        good = run_case(&b, &plans[i]);
    for (uint32_t i = 0; i < b.count; i++) buffer_destroy(verify->session, &b.array[i]);
    return good;
}
