/* Barriers of the block: warps arrive whole, and are released together. */
#include "groups.h"

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
        warp_join_ready(w);
    }
    memset(b, 0, sizeof *b);
    block->epoch++;
}

void barrier_check_all(struct block *block) {
    for (int i = 0; i < BARRIERS; i++)
        if (barrier_complete(block, &block->barriers[i]))
            barrier_release(block, &block->barriers[i]);
}

static bool same_count(struct warp *w, const struct group *g, const struct barrier *b) {
    if (!(b->warps_waiting || b->threads_arrived) || b->expected == g->count) return true;
    warp_report_group(w, g, FINDING_BARRIER, NULL,
                      "warps meet at one barrier with different counts");
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
void barrier_warp_arrive(struct warp *w) {
    const struct group *g = &w->groups[0];
    for (uint32_t i = 1; i < w->group_count; i++) {
        const struct group *other = &w->groups[i];
        bool same_place = other->pc == g->pc && other->frame->function == g->frame->function;
        if (other->barrier == g->barrier && other->count == g->count &&
            (same_place ||
             (is_unaligned_barrier(group_op(g)) && is_unaligned_barrier(group_op(other)))))
            continue;
        char details[900];
        warp_describe_waiting(w, details, sizeof details);
        warp_report_group(w, g, FINDING_DIVERGENT_BARRIER, details,
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
