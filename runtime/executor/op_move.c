/* Moves: registers, special registers, packing, predicates, and address spaces. */
#include "exec.h"

OP_FUNCTION(mov) {
    uint32_t known = defined_of(w, o->a);
    if (o->wide == WIDE_64) {
        uint64_t r[LANES];
        memcpy(r, source64(w, o->a), sizeof r);
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES];
        memcpy(r, source32(w, o->a), sizeof r);
        put32(w, o->d, r, m);
    }
    define(w, o, o->d, m, known);
}

/* The address of a .local variable: its frame's base is known at run time only. */
OP_FUNCTION(mov_local) {
    uint64_t base = o->local_symbol == SPACE_LOCAL ? w->frame->local_base : 0;
    if (o->wide == WIDE_64) {
        uint64_t r[LANES];
        EACH_LANE r[i] = source64(w, o->a)[i] + base;
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES];
        EACH_LANE r[i] = source32(w, o->a)[i] + (uint32_t)base;
        put32(w, o->d, r, m);
    }
    define(w, o, o->d, m, ALL_LANES);
}

OP_FUNCTION(mov_pred) {
    put_predicate(w, o->d, m, predicate_of(w, o), w->predicates_defined[o->p]);
}

/* Parts of `mode` bits, the first one lowest. */
OP_FUNCTION(mov_pack) {
    uint64_t r[LANES] = {0};
    uint32_t known = ALL_LANES;
    for (unsigned k = 0; k < o->list_count; k++) {
        const uint32_t *a = source32(w, o->list[k]);
        uint64_t mask = ((uint64_t)1 << o->mode) - 1;
        EACH_LANE r[i] |= (a[i] & mask) << (k * o->mode);
        known &= defined_of(w, o->list[k]);
    }
    if (o->mode * o->list_count == 64) {
        put64(w, o->d, r, m);
    } else {
        uint32_t narrow[LANES];
        EACH_LANE narrow[i] = (uint32_t)r[i];
        put32(w, o->d, narrow, m);
    }
    define(w, o, o->d, m, known);
}

OP_FUNCTION(mov_unpack) {
    uint64_t v[LANES];
    if (o->mode * o->list_count == 64) {
        memcpy(v, source64(w, o->a), sizeof v);
    } else {
        EACH_LANE v[i] = source32(w, o->a)[i];
    }
    uint32_t known[8];
    for (unsigned k = 0; k < o->list_count; k++) {
        unsigned half = k * o->mode / 16;
        known[k] = undefined_half(w, o->a, half);
        if (o->mode == 32) known[k] &= undefined_half(w, o->a, half + 1);
    }
    uint64_t mask = ((uint64_t)1 << o->mode) - 1;
    for (unsigned k = 0; k < o->list_count; k++) {
        uint32_t part[LANES];
        EACH_LANE part[i] = (uint32_t)(v[i] >> (k * o->mode) & mask);
        put32(w, o->list[k], part, m);
        define(w, o, o->list[k], m, known[k]);
    }
}

/* ---- special registers ---- */

static uint32_t thread_index(const struct warp *w, int i) {
    return w->index * LANES + (uint32_t)i;
}

static uint64_t special_value(const struct warp *w, int which, int i) {
    const struct launch *l = w->block->launch;
    uint32_t t = thread_index(w, i), one = 1u << i;
    switch (which) {
    case SPECIAL_TID_X: return t % l->dimensions[0];
    case SPECIAL_TID_Y: return t / l->dimensions[0] % l->dimensions[1];
    case SPECIAL_TID_Z: return t / l->dimensions[0] / l->dimensions[1];
    case SPECIAL_NTID_X:
    case SPECIAL_NTID_Y:
    case SPECIAL_NTID_Z: return l->dimensions[which - SPECIAL_NTID_X];
    case SPECIAL_CTAID_X:
    case SPECIAL_CTAID_Y:
    case SPECIAL_CTAID_Z: return w->block->id[which - SPECIAL_CTAID_X];
    case SPECIAL_NCTAID_X:
    case SPECIAL_NCTAID_Y:
    case SPECIAL_NCTAID_Z: return l->grid[which - SPECIAL_NCTAID_X];
    case SPECIAL_LANEID: return (uint64_t)i;
    case SPECIAL_WARPID: return w->index;
    case SPECIAL_NWARPID: return w->block->warp_count;
    case SPECIAL_NSMID: return 132;
    case SPECIAL_SMID: return w->block->linear % 132;
    case SPECIAL_GRIDID: return l->number;
    case SPECIAL_LANEMASK_EQ: return one;
    case SPECIAL_LANEMASK_LT: return one - 1;
    case SPECIAL_LANEMASK_LE: return one | (one - 1);
    case SPECIAL_LANEMASK_GE: return ~(one - 1);
    case SPECIAL_LANEMASK_GT: return ~(one | (one - 1));
    case SPECIAL_CLOCK: return (uint32_t)w->ticks;
    case SPECIAL_CLOCK_HI: return w->ticks >> 32;
    case SPECIAL_CLOCK64:
    case SPECIAL_GLOBALTIMER: return w->ticks;
    case SPECIAL_GLOBALTIMER_LO: return (uint32_t)w->ticks;
    case SPECIAL_DYNAMIC_SMEM: return l->dynamic_shared;
    case SPECIAL_TOTAL_SMEM: return l->shared_bytes;
    case SPECIAL_CLUSTER_CTARANK: return 0;
    default: return 1; /* blocks in the cluster */
    }
}

OP_FUNCTION(mov_special) {
    if (o->wide == WIDE_64) {
        uint64_t r[LANES];
        EACH_LANE r[i] = special_value(w, (int)o->imm, i);
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES];
        EACH_LANE r[i] = (uint32_t)special_value(w, (int)o->imm, i);
        if (o->type == T_U16 || o->type == T_B16 || o->type == T_S16) {
            EACH_LANE r[i] &= 0xffff;
        }
        put32(w, o->d, r, m);
    }
    define(w, o, o->d, m, ALL_LANES);
}

/* ---- predicates ---- */

/* Known where both sides are, and where one alone decides. */
#define PREDICATES(name, expression, decided)                                                      \
    OP_FUNCTION(name) {                                                                            \
        uint32_t x = w->predicates[o->a], y = w->predicates[o->b];                                 \
        uint32_t kx = w->predicates_defined[o->a], ky = w->predicates_defined[o->b];               \
        (void)y;                                                                                   \
        put_predicate(w, o->d, m, expression, (kx & ky) | (decided));                              \
    }
PREDICATES(and_pred, x &y, (kx & ~x) | (ky & ~y))
PREDICATES(or_pred, x | y, (kx & x) | (ky & y))
PREDICATES(xor_pred, x ^ y, 0)
PREDICATES(not_pred, ~x, 0)

/* ---- address spaces: a generic address is an offset plus its window ---- */

static uint64_t window_of(int space) {
    switch (space) {
    case SPACE_SHARED: return WINDOW_SHARED;
    case SPACE_LOCAL: return WINDOW_LOCAL;
    case SPACE_PARAM: return WINDOW_PARAM;
    default: return 0;
    }
}

static void move_by(struct warp *w, const struct op *o, uint32_t m, uint64_t delta) {
    uint32_t known = defined_of(w, o->a);
    if (o->local_symbol == SPACE_LOCAL) delta += w->frame->local_base;
    if (ptx_type_bits((enum ptx_type)o->type) == 64) {
        uint64_t r[LANES];
        EACH_LANE r[i] = source64(w, o->a)[i] + delta;
        put64(w, o->d, r, m);
    } else {
        uint32_t r[LANES];
        EACH_LANE r[i] = source32(w, o->a)[i] + (uint32_t)delta;
        put32(w, o->d, r, m);
    }
    define(w, o, o->d, m, known);
}

OP_FUNCTION(cvta) {
    move_by(w, o, m, window_of(o->space));
}

OP_FUNCTION(cvta_to) {
    move_by(w, o, m, 0 - window_of(o->space));
}

OP_FUNCTION(isspacep) {
    const u64_alias *a = source64(w, o->a);
    uint32_t r = 0;
    EACH_LANE {
        bool in;
        if (o->space == SPACE_GLOBAL || o->space == SPACE_CONST)
            in = a[i] < WINDOW_SHARED || a[i] >= WINDOW_PARAM + WINDOW_BYTES;
        else
            in = a[i] - window_of(o->space) < WINDOW_BYTES;
        if (in && o->space == SPACE_CONST) {
            const struct region *region = memory_find(w->block->launch->memory, a[i]);
            in = region && region->space == SPACE_CONST;
        }
        r |= (uint32_t)in << i;
    }
    put_predicate(w, o->d, m, r, defined_of(w, o->a));
}
