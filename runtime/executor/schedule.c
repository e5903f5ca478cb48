#include "schedule.h"

#include <stdlib.h>

#include "access.h"
#include "async.h"
#include "config.h"
#include "counters.h"
#include "groups.h"
#include "races.h"
#include "report.h"

uint64_t worker_random(struct worker *worker) {
    uint64_t x = worker->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    worker->random = x;
    return x * 0x2545f4914f6cdd1du >> 16;
}

/* ---- one warp ---- */

enum warp_result { WARP_DONE, WARP_WAITING, WARP_RUNNABLE };

static uint32_t choose_group(struct warp *w) {
    uint32_t best = UINT32_MAX, ready = 0;
    for (uint32_t i = 0; i < w->group_count; i++) {
        const struct group *g = &w->groups[i];
        if (g->state != GROUP_READY) continue;
        ready++;
        if (best == UINT32_MAX) {
            best = i;
            continue;
        }
        const struct group *b = &w->groups[best];
        if (g->frame->depth != b->frame->depth ? g->frame->depth > b->frame->depth : g->pc < b->pc)
            best = i;
    }
    if (ready < 2) {
        w->spin = 0;
        return best;
    }
    bool random = w->block->launch->config->seed && (worker_random(w->worker) & 3) == 0;
    if (random) {
        uint32_t skip = (uint32_t)(worker_random(w->worker) % ready);
        for (uint32_t i = 0; i < w->group_count; i++)
            if (w->groups[i].state == GROUP_READY && skip-- == 0) return i;
    }
    /* A group that spins on what another must do would starve it: now and then the oldest runs. */
    if (++w->spin % 64 == 0)
        for (uint32_t i = 0; i < w->group_count; i++)
            if (w->groups[i].state == GROUP_READY && w->groups[i].ticked < w->groups[best].ticked)
                best = i;
    return best;
}

static bool pick_group(struct warp *w) {
    warp_join_ready(w);
    uint32_t chosen = choose_group(w);
    if (chosen == UINT32_MAX) return false;
    struct group g = w->groups[chosen];
    w->groups[chosen] = w->groups[--w->group_count];
    warp_load_frame(w, g.frame);
    w->pc = g.pc;
    w->mask = g.lanes;
    w->limit = UINT32_MAX;
    for (uint32_t i = 0; i < w->group_count; i++) {
        const struct group *other = &w->groups[i];
        if (other->state == GROUP_READY && other->frame == g.frame && other->pc > g.pc &&
            other->pc < w->limit)
            w->limit = other->pc;
    }
    return true;
}

static void report_undefined_guard(struct warp *w, const struct op *o, uint32_t lanes) {
    char details[256];
    undefined_predicate_origin(w, o->guard, details, sizeof details);
    report_lane(w, o, (uint32_t)__builtin_ctz(lanes), FINDING_UNINITIALISED_BRANCH, 0, details,
                "the predicate that decides this depends on a value that was never initialised");
}

static void run_group(struct warp *w) {
    struct worker *worker = w->worker;
    bool check = w->block->launch->config->check_uninitialised;
    uint64_t fuel = w->fuel, warps = 0, lanes = 0;
    struct counters *counters = worker->counters;
    while (w->pc < w->limit && fuel) {
        const struct op *o = &w->code[w->pc++];
        uint32_t m = w->mask;
        fuel--;
        if (o->guard >= 0) {
            uint32_t unknown = m & ~w->predicates_defined[o->guard];
            if (__builtin_expect(unknown && check, 0)) {
                w->ticks += warps;
                report_undefined_guard(w, o, unknown);
                w->ticks -= warps;
            }
            m &= w->predicates[o->guard] ^ (0u - (uint32_t)o->guard_not);
            if (!m) {
                warps++;
                if (counters) counter_operation(worker, w, o, 0);
                continue;
            }
        }
        warps++;
        lanes += (uint64_t)__builtin_popcount(m);
        if (counters) counter_operation(worker, w, o, m);
        o->run(w, o, m);
    }
    w->fuel = fuel;
    w->ticks += warps;
    w->block->steps += warps;
    worker->warp_instructions += warps;
    worker->lane_instructions += lanes;
}

static bool stopped(const struct warp *w) {
    return __atomic_load_n((const int *)&w->block->launch->stop, __ATOMIC_RELAXED) != 0;
}

static enum warp_result run_warp(struct warp *w, uint64_t fuel) {
    w->fuel = fuel;
    while (w->fuel && !stopped(w)) {
        if (!w->alive) return WARP_DONE;
        if (!pick_group(w)) {
            if (warp_release_sync(w)) continue;
            bool all_at_barrier = true;
            for (uint32_t i = 0; i < w->group_count; i++)
                all_at_barrier = all_at_barrier && w->groups[i].state == GROUP_BARRIER;
            if (!all_at_barrier) {
                warp_report_stuck(w);
                return WARP_WAITING;
            }
            barrier_warp_arrive(w);
            if (w->waiting_barrier || stopped(w)) return WARP_WAITING;
            continue;
        }
        run_group(w);
        if (w->mask)
            warp_add_group(
                w, (struct group){
                       .pc = w->pc, .lanes = w->mask, .frame = w->frame, .ticked = w->ticks});
    }
    return w->alive ? WARP_RUNNABLE : WARP_DONE;
}

/* ---- one block ---- */

static bool allocate_local(struct worker *worker, struct warp *w, const struct function *f) {
    uint64_t bytes = f->local_bytes;
    if (f->calls) bytes += 1 << 14; /* what its callees may use, all together */
    w->local_stride = (bytes + 15) & ~(uint64_t)15;
    w->local.space = SPACE_LOCAL;
    w->local.base = LOCAL_START;
    w->local.bytes = w->local_stride * LANES;
    if (!bytes) return true;
    w->local.host = arena_alloc(&worker->arena, w->local.bytes);
    w->local.defined = arena_alloc(&worker->arena, w->local.bytes / 8 + 16);
    return w->local.host && w->local.defined;
}

struct block *block_new(struct worker *worker) {
    struct launch *l = worker->launch;
    struct block *b = arena_alloc(&worker->arena, sizeof *b);
    if (!b) return NULL;
    b->launch = l;
    b->worker = worker;
    uint64_t threads = (uint64_t)l->dimensions[0] * l->dimensions[1] * l->dimensions[2];
    b->warp_count = (uint32_t)((threads + LANES - 1) / LANES);
    b->warps = arena_alloc(&worker->arena, b->warp_count * sizeof *b->warps);
    if (!b->warps) return NULL;
    for (uint32_t i = 0; i < b->warp_count; i++) {
        struct warp *w = &b->warps[i];
        w->block = b;
        w->worker = worker;
        w->index = i;
        w->bank[1] = l->module->constants;
        uint64_t left = threads - (uint64_t)i * LANES;
        w->started = left >= LANES ? ALL_LANES : (1u << left) - 1;
        w->kernel = frame_new(worker, l->function);
        if (!w->kernel || !allocate_local(worker, w, l->function)) return NULL;
    }
    b->shared.space = SPACE_SHARED;
    b->shared.base = SHARED_START;
    b->shared.bytes = l->shared_bytes;
    b->shared.host = arena_alloc(&worker->arena, l->shared_bytes + 64);
    b->shared.defined = arena_alloc(&worker->arena, l->shared_bytes / 8 + 64);
    if (!b->shared.host || !b->shared.defined) return NULL;
    if (l->config->check_races && !race_block_new(b)) return NULL;
    return b;
}

void block_start(struct block *b, uint64_t linear) {
    struct launch *l = b->launch;
    b->linear = linear;
    b->id[0] = (uint32_t)(linear % l->grid[0]);
    b->id[1] = (uint32_t)(linear / l->grid[0] % l->grid[1]);
    b->id[2] = (uint32_t)(linear / l->grid[0] / l->grid[1]);
    b->steps = 0;
    /* Epochs go on from block to block, so that what the last one left counts as past. */
    b->epoch++;
    b->fenced = false;
    b->acquired = 0;
    b->acquires = false;
    memset(b->barriers, 0, sizeof b->barriers);
    memset(b->shared.defined, 0, (b->shared.bytes + 7) / 8);
    async_reset(b);
    for (uint32_t i = 0; i < b->warp_count; i++) {
        struct warp *w = &b->warps[i];
        struct frame *kernel = w->kernel;
        frame_reset(kernel);
        kernel->lanes = w->started;
        kernel->local_base = LOCAL_START;
        warp_load_frame(w, kernel);
        w->alive = w->started;
        w->mask = 0;
        w->carry = 0;
        w->ticks = 0;
        w->spin = 0;
        w->epoch++;
        w->waiting_barrier = 0;
        w->groups[0] = (struct group){.pc = 0, .lanes = w->started, .frame = kernel};
        w->group_count = 1;
        if (w->local.defined) memset(w->local.defined, 0, w->local.bytes / 8 + 1);
    }
    b->started = true;
}

static void report_deadlock(struct block *b) {
    char details[1800];
    size_t used = 0;
    struct warp *first = NULL;
    details[0] = 0;
    for (uint32_t i = 0; i < b->warp_count; i++) {
        struct warp *w = &b->warps[i];
        if (!w->alive) continue;
        if (!first) first = w;
        if (used + 200 < sizeof details) {
            if (used) used += (size_t)snprintf(details + used, sizeof details - used, "; ");
            warp_describe_waiting(w, details + used, sizeof details - used);
            used = strlen(details);
        }
    }
    if (first)
        warp_report_group(first, &first->groups[0], FINDING_DEADLOCK, details,
                          "deadlock: no warp of the block can go on");
}

static void report_step_limit(struct block *b) {
    for (uint32_t i = 0; i < b->warp_count; i++) {
        struct warp *w = &b->warps[i];
        if (!w->alive || !w->group_count) continue;
        char details[900];
        warp_describe_waiting(w, details, sizeof details);
        warp_report_group(w, &w->groups[0], FINDING_STEPS, details,
                          "the block executed more operations than KVF_EXECUTOR_STEPS allows");
        return;
    }
}

enum block_state block_run(struct block *b, uint64_t fuel) {
    const struct config *config = b->launch->config;
    uint64_t end = b->steps + fuel;
    uint32_t turn = config->seed ? (uint32_t)worker_random(b->worker) : 0;
    while (b->steps < end) {
        uint32_t live = 0, moved = 0;
        for (uint32_t i = 0; i < b->warp_count; i++) {
            struct warp *w = &b->warps[(i + turn) % b->warp_count];
            if (!w->alive) continue;
            if (w->waiting_barrier) {
                live++;
                continue;
            }
            uint64_t share = config->seed ? 1 + worker_random(b->worker) % 512 : 1 << 14;
            uint64_t before = b->steps;
            enum warp_result r = run_warp(w, share);
            moved += r != WARP_WAITING || b->steps != before;
            if (stopped(w)) return BLOCK_STOPPED;
            if (r == WARP_DONE)
                barrier_check_all(b);
            else
                live++;
        }
        if (!live) return BLOCK_DONE;
        if (!moved) {
            report_deadlock(b);
            return BLOCK_STOPPED;
        }
        if (config->step_limit && b->steps > config->step_limit) {
            report_step_limit(b);
            return BLOCK_STOPPED;
        }
        if (config->seed) turn = (uint32_t)worker_random(b->worker);
    }
    return BLOCK_BUSY;
}
