/* Branches, calls, exits, and barriers of the block. */
#include "access.h"
#include "races.h"

OP_FUNCTION(bra) {
    warp_branch(w, m, (uint32_t)o->imm);
}

OP_FUNCTION(brx) {
    const uint32_t *index = source32(w, o->a);
    uint32_t unknown = m & ~defined_of(w, o->a);
    if (unknown && w->block->launch->config->check_uninitialised) {
        char details[256];
        undefined_origin(w, o->a, details, sizeof details);
        report_lane(w, o, (uint32_t)__builtin_ctz(unknown), FINDING_UNINITIALISED_BRANCH, 0,
                    details, "branch by an index that was never initialised");
    }
    while (m) {
        uint32_t lane = (uint32_t)__builtin_ctz(m), same = 0;
        EACH_SET_LANE(i, m) same |= (uint32_t)(index[i] == index[lane]) << i;
        if (index[lane] >= o->list_count) {
            report_lane(w, o, lane, FINDING_CALL, 0, NULL,
                        "branch index %u is beyond the list of %u targets", index[lane],
                        o->list_count);
            return;
        }
        warp_branch(w, same, (uint32_t)o->list[index[lane]]);
        m &= ~same;
    }
}

OP_FUNCTION(exit) {
    (void)o;
    warp_exit(w, m);
}

OP_FUNCTION(ret) {
    (void)o;
    if (w->frame->caller)
        warp_return(w, m);
    else
        warp_exit(w, m);
}

static void report_trap(struct warp *w, const struct op *o, uint32_t m, const char *name) {
    report_lane(w, o, (uint32_t)__builtin_ctz(m), FINDING_CALL, 0, NULL, "the kernel executed %s",
                name);
}

OP_FUNCTION(trap) {
    report_trap(w, o, m, "trap");
}

OP_FUNCTION(brkpt) {
    report_trap(w, o, m, "brkpt");
}

/* Timing, register budgets and profiling events change no value. */
#define NO_EFFECT(name)                                                                            \
    OP_FUNCTION(name) {                                                                            \
        (void)w;                                                                                   \
        (void)o;                                                                                   \
        (void)m;                                                                                   \
    }
NO_EFFECT(nop)
NO_EFFECT(setmaxnreg)
NO_EFFECT(pmevent)

OP_FUNCTION(call) {
    const struct module *module = w->block->launch->module;
    while (m) {
        uint32_t lane = (uint32_t)__builtin_ctz(m), same = m;
        uint64_t index = (uint64_t)o->imm;
        if (!index) {
            const u64_alias *a = source64(w, o->a);
            index = a[lane];
            same = 0;
            EACH_SET_LANE(i, m) same |= (uint32_t)(a[i] == index) << i;
        }
        const struct function *callee =
            index && index <= module->function_count ? module->by_index[index] : NULL;
        if (!callee || callee->entry) {
            report_lane(w, o, lane, FINDING_CALL, 0, NULL, "call of %s",
                        callee ? callee->name : "an address that is no function");
            return;
        }
        warp_call(w, o, same, callee);
        m &= ~same;
    }
}

/* ---- barriers ---- */

static bool barrier_operands(struct warp *w, const struct op *o, uint32_t m, int32_t id_slot,
                             int32_t count_slot, uint32_t *id, uint32_t *count) {
    uint32_t lane = (uint32_t)__builtin_ctz(m);
    *id = id_slot ? source32(w, id_slot)[lane] : 0;
    *count = count_slot ? source32(w, count_slot)[lane] : 0;
    if (*id < BARRIERS && *count % LANES == 0) return true;
    report_lane(w, o, lane, FINDING_BARRIER, 0, NULL,
                *id >= BARRIERS ? "barrier number %u is not below 16"
                                : "a barrier's thread count %u is no multiple of 32",
                *id >= BARRIERS ? *id : *count);
    return false;
}

/* The lanes wait here; the scheduler releases them when the barrier is complete. */
#define BARRIER_WAIT(name)                                                                         \
    OP_FUNCTION(name) {                                                                            \
        uint32_t id, count;                                                                        \
        if (barrier_operands(w, o, m, o->a, o->b, &id, &count))                                    \
            warp_park(w, m, GROUP_BARRIER, 0, id, count);                                          \
    }
BARRIER_WAIT(bar_sync)
BARRIER_WAIT(bar_red)
BARRIER_WAIT(bar_red_popc)
BARRIER_WAIT(barrier_sync)
BARRIER_WAIT(barrier_sync_aligned)
BARRIER_WAIT(barrier_red)
BARRIER_WAIT(barrier_red_popc)

static void arrive(struct warp *w, const struct op *o, uint32_t m) {
    uint32_t id, count;
    if (!barrier_operands(w, o, m, o->a, o->b, &id, &count)) return;
    if (!warp_together(w, o, m, w->alive)) return;
    warp_barrier_arrive(w, o, id, count);
}

OP_FUNCTION(bar_arrive) {
    arrive(w, o, m);
}

OP_FUNCTION(barrier_arrive) {
    arrive(w, o, m);
}

/* Clusters have one block, so its barrier holds nobody up. Memory is always coherent here. */
NO_EFFECT(barrier_cluster)
#define FENCE(name)                                                                                \
    OP_FUNCTION(name) {                                                                            \
        (void)m;                                                                                   \
        if (o->scope != SCOPE_CTA) race_fence(w);                                                  \
    }
FENCE(membar)
FENCE(fence)
NO_EFFECT(fence_proxy)
NO_EFFECT(fence_proxy_async)
