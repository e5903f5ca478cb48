/* Groups of lanes: splitting, joining, waiting for each other. */
#include "groups.h"

#include "counters.h"

void warp_load_frame(struct warp *w, struct frame *f) {
    w->frame = f;
    w->code = f->function->ops;
    w->bank[0] = f->registers;
    w->defined = f->defined;
    w->predicates = f->predicates;
    w->predicates_defined = f->predicates_defined;
}

/* Put a ready group aside, joined with one at the same place. */
void warp_add_group(struct warp *w, struct group g) {
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
    warp_add_group(w,
                   (struct group){.pc = pc, .lanes = lanes, .frame = w->frame, .ticked = w->ticks});
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
    warp_add_group(w, (struct group){.pc = w->pc - 1,
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

void warp_again(struct warp *w, const struct op *o, uint32_t all, uint32_t lanes) {
    w->worker->lane_instructions -= (uint64_t)__builtin_popcount(lanes);
    if (w->worker->counters) {
        counter_undo(w->worker, w, all);
        counter_operation(w->worker, w, o, all & ~lanes);
    }
    w->mask &= ~lanes;
    warp_add_group(
        w, (struct group){.pc = w->pc - 1, .lanes = lanes, .frame = w->frame, .ticked = w->ticks});
    warp_yield(w);
}

const struct op *group_op(const struct group *g) {
    return &g->frame->function->ops[g->pc];
}

void warp_join_ready(struct warp *w) {
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
bool warp_release_sync(struct warp *w) {
    for (uint32_t i = 0; i < w->group_count; i++) {
        struct group *g = &w->groups[i];
        uint32_t need = g->need & w->alive;
        if (g->state != GROUP_WARP_SYNC || (g->lanes & need) != need) continue;
        g->state = GROUP_READY;
        return true;
    }
    return release_warp_barrier(w);
}

void warp_describe_waiting(const struct warp *w, char *text, size_t bytes) {
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
void warp_report_group(struct warp *w, const struct group *g, enum finding_kind kind,
                       const char *details, const char *text) {
    warp_load_frame(w, g->frame);
    report_lane(w, group_op(g), (uint32_t)__builtin_ctz(g->lanes), kind, 0, details, "%s", text);
}

void warp_report_stuck(struct warp *w) {
    char details[900];
    warp_describe_waiting(w, details, sizeof details);
    const struct group *g = &w->groups[0];
    for (uint32_t i = 0; i < w->group_count; i++)
        if (w->groups[i].state == GROUP_WARP_SYNC) g = &w->groups[i];
    char text[160];
    snprintf(text, sizeof text,
             "lanes 0x%08x of the mask 0x%08x never arrive (live lanes are 0x%08x)",
             g->need & w->alive & ~g->lanes, g->need, w->alive);
    warp_report_group(w, g, FINDING_DEADLOCK, details, text);
}
