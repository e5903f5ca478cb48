/* Operations among the lanes of a warp. */
#include "access.h"

/*
 * Lanes of m whose mask is that of the first. The others must be of other masks altogether, such as
 * the other half of the warp; 0 when that is not so, which is reported.
 */
static uint32_t lanes_of_mask(struct warp *w, const struct op *o, uint32_t m,
                              const uint32_t *mask) {
    uint32_t members = mask[__builtin_ctz(m)], alike = 0;
    EACH_SET_LANE(i, m) {
        if (!(mask[i] >> i & 1)) {
            report_lane(w, o, i, FINDING_WARP_MASK, 0, NULL,
                        "a lane executes this with a mask 0x%08x that does not name it", mask[i]);
            return 0;
        }
        alike |= (uint32_t)(mask[i] == members) << i;
        if (mask[i] != members && (mask[i] & members)) {
            report_lane(w, o, i, FINDING_WARP_MASK, 1, NULL,
                        "lanes that must take part together have different masks 0x%08x and 0x%08x",
                        members, mask[i]);
            return 0;
        }
    }
    return alike;
}

/*
 * True when the lanes of *m that have the first one's mask are all here; they then act as one, and
 * are what is left in *m. Lanes of other masks execute the operation after them.
 */
static bool gather(struct warp *w, const struct op *o, uint32_t *m, int32_t slot) {
    const uint32_t *mask = source32(w, slot);
    uint32_t members = mask[__builtin_ctz(*m)], others = *m & ~members;
    EACH_SET_LANE(i, *m) others |= (uint32_t)(mask[i] != members) << i;
    if (__builtin_expect(others != 0, 0)) {
        uint32_t alike = lanes_of_mask(w, o, *m, mask);
        if (!alike) return false;
        warp_again(w, o, *m, *m & ~alike);
        *m = alike;
    }
    if (!warp_together(w, o, *m, members)) return false;
    w->epoch++; /* it orders the accesses of its lanes */
    return true;
}

static void source_lane(int mode, int lane, uint32_t b, uint32_t c, int *from, bool *valid) {
    int distance = (int)(b & 31), bound = (int)(c & 31), segment = (int)(c >> 8 & 31);
    int highest = (lane & segment) | (bound & ~segment), lowest = lane & segment;
    int j;
    switch (mode) {
    case MODE_UP:
        j = lane - distance;
        *valid = j >= highest;
        break;
    case MODE_DOWN:
        j = lane + distance;
        *valid = j <= highest;
        break;
    case MODE_BFLY:
        j = lane ^ distance;
        *valid = j <= highest;
        break;
    default:
        j = lowest | (distance & ~segment);
        *valid = j <= highest;
        break;
    }
    *from = *valid ? j : lane;
}

OP_FUNCTION(shfl) {
    if (!gather(w, o, &m, o->e)) return;
    const uint32_t *a = source32(w, o->a), *b = source32(w, o->b), *c = source32(w, o->c);
    uint32_t known_a = defined_of(w, o->a), known = 0, r[LANES] = {0}, in = 0, bad = 0;
    EACH_SET_LANE(i, m) {
        int from;
        bool valid;
        source_lane(o->mode, (int)i, b[i], c[i], &from, &valid);
        r[i] = a[from];
        in |= (uint32_t)valid << i;
        if (m >> from & 1)
            known |= (known_a >> from & 1) << i;
        else
            bad |= 1u << i;
    }
    if (bad && w->block->launch->config->check_warp) {
        uint32_t lane = (uint32_t)__builtin_ctz(bad);
        int from;
        bool valid;
        source_lane(o->mode, (int)lane, b[lane], c[lane], &from, &valid);
        report_lane(w, o, lane, FINDING_SHUFFLE, 0, NULL,
                    "lane %u reads lane %d, which %s; executing lanes are 0x%08x", lane, from,
                    w->alive >> from & 1 ? "does not execute this" : "has exited", m);
    }
    uint32_t operands = defined_of(w, o->b) & defined_of(w, o->c);
    put32(w, o->d, r, m);
    define(w, o, o->d, m, known & operands);
    put_predicate(w, o->d2, m, in, operands);
}

OP_FUNCTION(vote) {
    if (!gather(w, o, &m, o->a)) return;
    uint32_t p = predicate_of(w, o) & m, known = w->predicates_defined[o->p];
    bool all_known = (m & ~known) == 0, r;
    switch (o->mode) {
    case MODE_ALL: r = p == m; break;
    case MODE_ANY: r = p != 0; break;
    default: r = p == m || p == 0; break;
    }
    put_predicate(w, o->d, m, r ? ALL_LANES : 0, all_known ? ALL_LANES : 0);
}

OP_FUNCTION(vote_ballot) {
    if (!gather(w, o, &m, o->a)) return;
    uint32_t p = predicate_of(w, o) & m, known = w->predicates_defined[o->p], r[LANES];
    EACH_LANE r[i] = p;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, (m & ~known) == 0 ? ALL_LANES : 0);
}

OP_FUNCTION(activemask) {
    uint32_t r[LANES];
    EACH_LANE r[i] = m;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, ALL_LANES);
}

/* Which lanes hold the same value; match.all also says whether all do. */
static uint64_t match_value(const struct warp *w, const struct op *o, uint32_t lane) {
    return ptx_type_bits((enum ptx_type)o->type) == 64 ? source64(w, o->a)[lane]
                                                       : source32(w, o->a)[lane];
}

OP_FUNCTION(match_any) {
    if (!gather(w, o, &m, o->b)) return;
    uint32_t r[LANES] = {0}, known = defined_of(w, o->a);
    EACH_SET_LANE(i, m)
    EACH_SET_LANE(j, m)
    r[i] |= (uint32_t)(match_value(w, o, i) == match_value(w, o, j)) << j;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, (m & ~known) == 0 ? ALL_LANES : 0);
}

OP_FUNCTION(match_all) {
    if (!gather(w, o, &m, o->b)) return;
    uint32_t r[LANES], known = defined_of(w, o->a);
    uint64_t first = match_value(w, o, (uint32_t)__builtin_ctz(m));
    bool same = true;
    EACH_SET_LANE(i, m) same = same && match_value(w, o, i) == first;
    EACH_LANE r[i] = same ? m : 0;
    uint32_t all_known = (m & ~known) == 0 ? ALL_LANES : 0;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, all_known);
    put_predicate(w, o->d2, m, same ? ALL_LANES : 0, all_known);
}

static uint32_t reduce_two(const struct op *o, uint32_t x, uint32_t y) {
    bool is_signed = o->type == T_S32;
    switch (o->mode) {
    case MODE_ADD: return x + y;
    case MODE_MIN: return (is_signed ? (int32_t)x < (int32_t)y : x < y) ? x : y;
    case MODE_MAX: return (is_signed ? (int32_t)x > (int32_t)y : x > y) ? x : y;
    case MODE_AND: return x & y;
    case MODE_OR: return x | y;
    default: return x ^ y;
    }
}

static void reduce_lanes(struct warp *w, const struct op *o, uint32_t m) {
    if (!gather(w, o, &m, o->b)) return;
    const uint32_t *a = source32(w, o->a);
    uint32_t known = defined_of(w, o->a), r[LANES], first = (uint32_t)__builtin_ctz(m);
    uint32_t total = a[first];
    EACH_SET_LANE(i, m & (m - 1)) total = reduce_two(o, total, a[i]);
    EACH_LANE r[i] = total;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, (m & ~known) == 0 ? ALL_LANES : 0);
}

OP_FUNCTION(redux) {
    reduce_lanes(w, o, m);
}

OP_FUNCTION(redux_bits) {
    reduce_lanes(w, o, m);
}

/* The leader is the lowest lane that takes part. */
OP_FUNCTION(elect) {
    if (!gather(w, o, &m, o->a)) return;
    uint32_t r[LANES], leader = (uint32_t)__builtin_ctz(m);
    EACH_LANE r[i] = leader;
    put32(w, o->d, r, m);
    define(w, o, o->d, m, ALL_LANES);
    put_predicate(w, o->d2, m, 1u << leader, ALL_LANES);
}

OP_FUNCTION(bar_warp_sync) {
    gather(w, o, &m, o->a);
}
