#include "schedule.h"

#include <stdlib.h>

#include "access.h"
#include "async.h"
#include "config.h"
#include "counters.h"
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

/* ---- groups of lanes ---- */

static void load_frame(struct warp *w, struct frame *f) {
    w->frame = f;
    w->code = f->function->ops;
    w->bank[0] = f->registers;
    w->defined = f->defined;
    w->predicates = f->predicates;
    w->predicates_defined = f->predicates_defined;
}

/* Put a ready group aside, joined with one at the same place. */
static void add_group(struct warp *w, struct group g) {
    for (uint32_t i = 0; i < w->group_count; i++) {
        struct group *other = &w->groups[i];
        if (other->pc != g.pc || other->frame != g.frame || other->state != g.state) continue;
        other->lanes |= g.lanes;
        return;
    }
    w->groups[w->group_count++] = g;
}

void warp_branch(struct warp *w, uint32_t lanes, uint32_t pc) {
    if (lanes == w->mask) {
        w->pc = pc;
        if (w->group_count) warp_yield(w);
        return;
    }
    w->mask &= ~lanes;
    add_group(w, (struct group){.pc = pc, .lanes = lanes, .frame = w->frame, .ticked = w->ticks});
    warp_yield(w);
}

void warp_park(struct warp *w, uint32_t lanes, enum group_state state, uint32_t need,
               uint32_t barrier, uint32_t count) {
    if (state == GROUP_WARP_SYNC) {
        /* It will be executed, and counted, again. */
        w->worker->warp_instructions--;
        w->worker->lane_instructions -= (uint64_t)__builtin_popcount(lanes);
        if (w->worker->counters) counter_undo(w->worker, w, lanes);
    }
    w->mask &= ~lanes;
    add_group(w, (struct group){.pc = w->pc - 1,
                                .lanes = lanes,
                                .frame = w->frame,
                                .state = state,
                                .need = need,
                                .barrier = barrier,
                                .count = count,
                                .ticked = w->ticks});
    warp_yield(w);
}

void warp_exit(struct warp *w, uint32_t lanes) {
    w->alive &= ~lanes;
    w->mask &= ~lanes;
    if (!w->mask) warp_yield(w);
}

bool warp_together(struct warp *w, const struct op *o, uint32_t m, uint32_t members) {
    (void)o;
    uint32_t need = members & w->alive;
    if ((m & need) == need) return true;
    warp_park(w, m, GROUP_WARP_SYNC, members, 0, 0);
    return false;
}

static const struct op *group_op(const struct group *g) {
    return &g->frame->function->ops[g->pc];
}

static void join_ready(struct warp *w) {
    for (uint32_t i = 0; i < w->group_count; i++)
        for (uint32_t j = i + 1; j < w->group_count;) {
            struct group *a = &w->groups[i], *b = &w->groups[j];
            if (a->state == GROUP_READY && b->state == GROUP_READY && a->pc == b->pc &&
                a->frame == b->frame) {
                a->lanes |= b->lanes;
                w->groups[j] = w->groups[--w->group_count];
            } else {
                j++;
            }
        }
}

/* bar.warp.sync may be reached at different places: all lanes of a mask go on together. */
static bool release_warp_barrier(struct warp *w) {
    for (uint32_t i = 0; i < w->group_count; i++) {
        struct group *g = &w->groups[i];
        if (g->state != GROUP_WARP_SYNC || group_op(g)->form != FORM_bar_warp_sync) continue;
        uint32_t here = 0;
        for (uint32_t j = 0; j < w->group_count; j++) {
            const struct group *other = &w->groups[j];
            if (other->state == GROUP_WARP_SYNC && other->need == g->need &&
                group_op(other)->form == FORM_bar_warp_sync)
                here |= other->lanes;
        }
        uint32_t need = g->need & w->alive, mask = g->need;
        if ((here & need) != need) continue;
        for (uint32_t j = 0; j < w->group_count; j++) {
            struct group *other = &w->groups[j];
            if (other->state != GROUP_WARP_SYNC || other->need != mask ||
                group_op(other)->form != FORM_bar_warp_sync)
                continue;
            other->state = GROUP_READY;
            other->pc++;
        }
        w->epoch++;
        return true;
    }
    return false;
}

/* No group is ready: a group whose lanes are complete (others may have exited) can go on. */
static bool release_warp_sync(struct warp *w) {
    for (uint32_t i = 0; i < w->group_count; i++) {
        struct group *g = &w->groups[i];
        uint32_t need = g->need & w->alive;
        if (g->state != GROUP_WARP_SYNC || (g->lanes & need) != need) continue;
        g->state = GROUP_READY;
        return true;
    }
    return release_warp_barrier(w);
}

static void describe_waiting(const struct warp *w, char *text, size_t bytes) {
    size_t used = 0;
    for (uint32_t i = 0; i < w->group_count && used + 1 < bytes; i++) {
        const struct group *g = &w->groups[i];
        char line[100];
        module_line(w->block->launch->module, group_op(g)->line, line, sizeof line);
        used += (size_t)snprintf(text + used, bytes - used,
                                 "%swarp %u lanes 0x%08x wait at line %u: %s", used ? "; " : "",
                                 w->index, g->lanes, group_op(g)->line, line);
    }
}

/* Report at the place of a waiting group. */
static void report_group(struct warp *w, const struct group *g, enum finding_kind kind,
                         const char *details, const char *text) {
    load_frame(w, g->frame);
    report_lane(w, group_op(g), (uint32_t)__builtin_ctz(g->lanes), kind, 0, details, "%s", text);
}

static void report_stuck_warp(struct warp *w) {
    char details[900];
    describe_waiting(w, details, sizeof details);
    const struct group *g = &w->groups[0];
    for (uint32_t i = 0; i < w->group_count; i++)
        if (w->groups[i].state == GROUP_WARP_SYNC) g = &w->groups[i];
    char text[160];
    snprintf(text, sizeof text,
             "lanes 0x%08x of the mask 0x%08x never arrive (live lanes are 0x%08x)",
             g->need & w->alive & ~g->lanes, g->need, w->alive);
    report_group(w, g, FINDING_DEADLOCK, details, text);
}

/* ---- barriers of the block ---- */

static bool is_unaligned_barrier(const struct op *o) {
    return o->form == FORM_barrier_sync || o->form == FORM_barrier_red ||
           o->form == FORM_barrier_red_popc;
}

static bool is_reduction(const struct op *o) {
    return o->form == FORM_bar_red || o->form == FORM_bar_red_popc || o->form == FORM_barrier_red ||
           o->form == FORM_barrier_red_popc;
}

static void barrier_finish(struct warp *w, struct group *g, const struct barrier *b) {
    const struct op *o = group_op(g);
    if (is_reduction(o)) {
        struct frame *f = g->frame;
        bool all = b->lanes_true == b->voters, any = b->lanes_true > 0;
        uint32_t lanes = g->lanes;
        if (o->mode == MODE_POPC) {
            EACH_SET_LANE(i, lanes) f->registers[(size_t)o->d * LANES + i] = b->lanes_true;
            f->defined[o->d] |= lanes;
        } else {
            bool r = o->mode == MODE_AND ? all : any;
            f->predicates[o->d] = (f->predicates[o->d] & ~lanes) | (r ? lanes : 0);
            f->predicates_defined[o->d] |= lanes;
        }
    }
    g->pc++;
    g->state = GROUP_READY;
    (void)w;
}

static bool barrier_complete(const struct block *block, const struct barrier *b) {
    if (!b->warps_waiting) return false;
    if (b->expected) return b->threads_arrived >= b->expected;
    for (uint32_t i = 0; i < block->warp_count; i++)
        if (block->warps[i].alive && !(b->warps_waiting >> i & 1)) return false;
    return true;
}

static void barrier_release(struct block *block, struct barrier *b) {
    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct warp *w = &block->warps[i];
        if (!(b->warps_waiting >> i & 1) || !w->waiting_barrier) continue;
        for (uint32_t k = 0; k < w->group_count; k++)
            if (w->groups[k].state == GROUP_BARRIER) barrier_finish(w, &w->groups[k], b);
        w->waiting_barrier = 0;
        w->epoch++;
        join_ready(w);
    }
    memset(b, 0, sizeof *b);
    block->epoch++;
}

static void check_barriers(struct block *block) {
    for (int i = 0; i < BARRIERS; i++)
        if (barrier_complete(block, &block->barriers[i]))
            barrier_release(block, &block->barriers[i]);
}

static bool same_count(struct warp *w, const struct group *g, const struct barrier *b) {
    if (!(b->warps_waiting || b->threads_arrived) || b->expected == g->count) return true;
    report_group(w, g, FINDING_BARRIER, NULL, "warps meet at one barrier with different counts");
    return false;
}

void warp_barrier_arrive(struct warp *w, const struct op *o, uint32_t id, uint32_t count) {
    struct barrier *b = &w->block->barriers[id];
    struct group here = {.pc = w->pc - 1, .lanes = w->mask, .frame = w->frame, .count = count};
    (void)o;
    if (!same_count(w, &here, b)) return;
    b->expected = count;
    b->threads_arrived += LANES;
    b->warps_waiting |= 1u << w->index;
    if (barrier_complete(w->block, b)) {
        barrier_release(w->block, b);
        warp_yield(w);
    }
}

static void count_votes(struct barrier *b, const struct group *g) {
    const struct op *o = group_op(g);
    uint32_t p = (g->frame->predicates[o->p] ^ (0u - (uint32_t)o->p_not)) & g->lanes;
    b->lanes_true += (uint32_t)__builtin_popcount(p);
    b->voters += (uint32_t)__builtin_popcount(g->lanes);
}

/* All live lanes wait at barriers: the warp arrives, if it is one barrier. */
static void warp_arrive(struct warp *w) {
    const struct group *g = &w->groups[0];
    for (uint32_t i = 1; i < w->group_count; i++) {
        const struct group *other = &w->groups[i];
        bool same_place = other->pc == g->pc && other->frame->function == g->frame->function;
        if (other->barrier == g->barrier && other->count == g->count &&
            (same_place ||
             (is_unaligned_barrier(group_op(g)) && is_unaligned_barrier(group_op(other)))))
            continue;
        char details[900];
        describe_waiting(w, details, sizeof details);
        report_group(w, g, FINDING_DIVERGENT_BARRIER, details,
                     "lanes of one warp wait at different barriers");
        return;
    }
    struct barrier *b = &w->block->barriers[g->barrier];
    if (!same_count(w, g, b)) return;
    b->expected = g->count;
    b->threads_arrived += LANES;
    b->warps_waiting |= 1u << w->index;
    for (uint32_t i = 0; i < w->group_count; i++) count_votes(b, &w->groups[i]);
    w->waiting_barrier = g->barrier + 1;
    if (barrier_complete(w->block, b)) barrier_release(w->block, b);
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
    join_ready(w);
    uint32_t chosen = choose_group(w);
    if (chosen == UINT32_MAX) return false;
    struct group g = w->groups[chosen];
    w->groups[chosen] = w->groups[--w->group_count];
    load_frame(w, g.frame);
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
            if (release_warp_sync(w)) continue;
            bool all_at_barrier = true;
            for (uint32_t i = 0; i < w->group_count; i++)
                all_at_barrier = all_at_barrier && w->groups[i].state == GROUP_BARRIER;
            if (!all_at_barrier) {
                report_stuck_warp(w);
                return WARP_WAITING;
            }
            warp_arrive(w);
            if (w->waiting_barrier || stopped(w)) return WARP_WAITING;
            continue;
        }
        run_group(w);
        if (w->mask)
            add_group(w, (struct group){
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
        load_frame(w, kernel);
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
            describe_waiting(w, details + used, sizeof details - used);
            used = strlen(details);
        }
    }
    if (first)
        report_group(first, &first->groups[0], FINDING_DEADLOCK, details,
                     "deadlock: no warp of the block can go on");
}

static void report_step_limit(struct block *b) {
    for (uint32_t i = 0; i < b->warp_count; i++) {
        struct warp *w = &b->warps[i];
        if (!w->alive || !w->group_count) continue;
        char details[900];
        describe_waiting(w, details, sizeof details);
        report_group(w, &w->groups[0], FINDING_STEPS, details,
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
                check_barriers(b);
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
