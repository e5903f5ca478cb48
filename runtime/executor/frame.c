/* Call frames: registers, and the passing of arguments and results. */
#include "access.h"
#include "report.h"
#include "schedule.h"

enum { DEPTH_MAX = 512, STACK_MAX = 1 << 26 };

static size_t padded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

void frame_reset(struct frame *f) {
    const struct function *fn = f->function;
    memset(f->defined, 0, fn->slots * sizeof *f->defined);
    memset(f->origins, 0, fn->slots * sizeof *f->origins);
    if (f->halves_used) memset(f->halves, 0, 4 * fn->slots * sizeof *f->halves);
    f->halves_used = false;
    memset(f->predicates_defined, 0, fn->predicates * sizeof *f->predicates_defined);
    memset(f->predicate_origins, 0, fn->predicates * sizeof *f->predicate_origins);
    f->defined[SLOT_NONE] = ALL_LANES;
    f->predicates[PREDICATE_FALSE] = 0;
    f->predicates[PREDICATE_TRUE] = ALL_LANES;
    f->predicates_defined[PREDICATE_FALSE] = f->predicates_defined[PREDICATE_TRUE] = ALL_LANES;
    if (f->params) memset(f->params_defined, 0, fn->frame_param_bytes * LANES);
    f->caller = NULL;
    f->call = NULL;
    f->depth = 0;
    f->local_base = 0;
}

struct frame *frame_new(struct worker *worker, const struct function *fn) {
    struct frame **link = &worker->free_frames;
    for (struct frame *f = *link; f; link = &f->caller, f = *link) {
        if (f->function != fn) continue;
        *link = f->caller;
        frame_reset(f);
        return f;
    }
    size_t slots = (size_t)fn->slots, predicates = fn->predicates;
    size_t params =
        fn->frame_param_bytes > fn->param_bytes || !fn->entry ? fn->frame_param_bytes * LANES : 0;
    size_t bytes = padded(sizeof(struct frame)) + slots * SLOT_BYTES + 2 * padded(slots * 4) +
                   padded(slots * 16) + 3 * padded(predicates * 4) + 2 * padded(params);
    if (worker->arena.total + bytes > (size_t)1 << 32) return NULL;
    uint8_t *at = arena_alloc(&worker->arena, bytes);
    if (!at) return NULL;
    struct frame *f = (struct frame *)at;
    at += padded(sizeof *f);
    f->registers = (uint32_t *)at;
    at += slots * SLOT_BYTES;
    f->defined = (uint32_t *)at;
    at += padded(slots * 4);
    f->origins = (uint32_t *)at;
    at += padded(slots * 4);
    f->halves = (uint32_t *)at;
    at += padded(slots * 16);
    f->predicates = (uint32_t *)at;
    at += padded(predicates * 4);
    f->predicates_defined = (uint32_t *)at;
    at += padded(predicates * 4);
    f->predicate_origins = (uint32_t *)at;
    at += padded(predicates * 4);
    if (params) {
        f->params = at;
        f->params_defined = at + padded(params);
    }
    f->function = fn;
    frame_reset(f);
    return f;
}

void frame_free(struct worker *worker, struct frame *f) {
    f->caller = worker->free_frames;
    worker->free_frames = f;
}

/* The .param variables of a call are listed as offset and size in the caller's frame. */
static void copy_params(struct frame *to, uint64_t to_offset, const struct frame *from,
                        uint64_t from_offset, uint64_t bytes, uint32_t lanes) {
    EACH_SET_LANE(i, lanes) {
        size_t t = i * to->function->frame_param_bytes + to_offset;
        size_t f = i * from->function->frame_param_bytes + from_offset;
        memcpy(to->params + t, from->params + f, bytes);
        memcpy(to->params_defined + t, from->params_defined + f, bytes);
    }
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The text that a lane passes as argument k, cut to what fits; "?" where it cannot be read. */
static void text_argument(const struct warp *w, const struct op *o, uint32_t lane, uint32_t k,
                          char *out, size_t bytes) {
    const struct frame *f = w->frame;
    const int32_t *place = o->list + 2 * ((uint32_t)o->c + k);
    uint64_t address = 0;
    snprintf(out, bytes, "?");
    if (place[1] != 8 || !f->params) return;
    memcpy(&address, f->params + lane * f->function->frame_param_bytes + (size_t)place[0], 8);
    const struct region *r = memory_find(w->block->launch->memory, address);
    if (!r) return;
    uint64_t at = address - r->base, n = 0;
    while (n + 1 < bytes && at + n < r->bytes && r->host[at + n]) n++;
    memcpy(out, r->host + at, n);
    out[n] = 0;
}

static void report_assert(struct warp *w, const struct op *o, uint32_t lane) {
    char message[120], function[120], details[260];
    text_argument(w, o, lane, 0, message, sizeof message);
    text_argument(w, o, lane, 3, function, sizeof function);
    snprintf(details, sizeof details, "in %s", function);
    report_lane(w, o, lane, FINDING_ASSERT, 0, details, "assertion failed: %s", message);
}

void warp_call(struct warp *w, const struct op *o, uint32_t lanes, const struct function *callee) {
    struct frame *caller = w->frame;
    if ((uint32_t)o->e != callee->param_count || (uint32_t)o->c != callee->return_count) {
        report_lane(w, o, (uint32_t)__builtin_ctz(lanes), FINDING_CALL, 0, NULL,
                    "call of %s with another number of arguments or results", callee->name);
        return;
    }
    if (!callee->defined) {
        if (callee->param_count == 5)
            report_assert(w, o, (uint32_t)__builtin_ctz(lanes));
        else
            report_lane(w, o, (uint32_t)__builtin_ctz(lanes), FINDING_ASSERT, 0, NULL,
                        "assertion failed");
        return;
    }
    struct frame *f = caller->depth < DEPTH_MAX ? frame_new(w->worker, callee) : NULL;
    uint64_t local = caller->local_base + caller->function->local_bytes;
    if (!f || local - LOCAL_START + callee->local_bytes > w->local_stride) {
        if (f) frame_free(w->worker, f);
        report_lane(w, o, (uint32_t)__builtin_ctz(lanes), FINDING_STACK, 0, NULL,
                    "call stack overflow: %u calls deep, in %s", caller->depth, callee->name);
        return;
    }
    f->caller = caller;
    f->call = o;
    f->return_pc = w->pc;
    f->depth = caller->depth + 1;
    f->lanes = lanes;
    f->local_base = local;
    for (uint32_t i = 0; i < callee->param_count; i++) {
        const int32_t *place = o->list + 2 * ((uint32_t)o->c + i);
        copy_params(f, callee->params[i].offset, caller, (uint64_t)place[0],
                    least((uint64_t)place[1], callee->params[i].bytes), lanes);
    }
    w->groups[w->group_count++] = (struct group){.pc = 0, .lanes = lanes, .frame = f};
    w->mask &= ~lanes;
    warp_yield(w);
}

void warp_return(struct warp *w, uint32_t lanes) {
    struct frame *f = w->frame, *caller = f->caller;
    const struct op *o = f->call;
    const struct function *callee = f->function;
    for (uint32_t i = 0; i < callee->return_count; i++) {
        const int32_t *place = o->list + 2 * i;
        copy_params(caller, (uint64_t)place[0], f, callee->returns[i].offset,
                    least((uint64_t)place[1], callee->returns[i].bytes), lanes);
    }
    w->groups[w->group_count++] =
        (struct group){.pc = f->return_pc, .lanes = lanes, .frame = caller};
    f->lanes &= ~lanes;
    w->mask &= ~lanes;
    if (!f->lanes) frame_free(w->worker, f);
    warp_yield(w);
}
