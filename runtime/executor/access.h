/*
 * One memory operation of a warp: from addresses in a register to offsets in a region, every check
 * done. Lanes that fall into different regions are handled region by region:
 *
 *     struct access a;
 *     access_start(&a, w, o, m, ...);
 *     while (access_next(&a)) ... a.lanes use a.region->host + a.at[lane] ...
 *
 * In lanes that take no part, `at` is a valid offset too, so that loops may read all 32.
 */
#ifndef EXECUTOR_ACCESS_H
#define EXECUTOR_ACCESS_H

#include "config.h"
#include "exec.h"
#include "report.h"

enum access_kind { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_ATOMIC = 4, ACCESS_ASYNC = 8 };

struct access {
    struct warp *w;
    const struct op *o;
    uint32_t lanes, rest, bytes;
    enum access_kind kind;
    enum ptx_space space; /* as the instruction says; generic is resolved into `in` */
    enum ptx_space in;
    struct region *region;
    uint64_t address[LANES];
    uint64_t at[LANES];
};

enum { LOCAL_START = 256 };

/* access.c: the slow ways, all of which report. */
struct region *access_find(struct access *a, uint64_t address);
void access_bad(struct access *a, uint32_t lanes, enum finding_kind kind);
void access_undefined_address(struct access *a, uint32_t lanes, int32_t slot);
void access_undefined_store(struct access *a, uint32_t lanes, int32_t slot, uint32_t element);
/* races.c, counters.c, async.c: called when the check or the counters are on. */
void race_access(struct access *a);
void counter_access(struct access *a);
void async_access(struct access *a);
void race_async(struct warp *w, const struct op *o, uint32_t lane, uint64_t at, uint32_t bytes);

static inline void access_start(struct access *a, struct warp *w, const struct op *o, uint32_t m,
                                int32_t slot, int64_t offset, bool is64, enum ptx_space space,
                                uint32_t bytes, enum access_kind kind) {
    a->w = w;
    a->o = o;
    a->rest = m;
    a->bytes = bytes;
    a->kind = kind;
    a->space = space;
    if (o->local_symbol == SPACE_LOCAL) offset += (int64_t)w->frame->local_base;
    if (is64) {
        const u64_alias *base = source64(w, slot);
        EACH_LANE a->address[i] = base[i] + (uint64_t)offset;
    } else {
        const uint32_t *base = source32(w, slot);
        EACH_LANE a->address[i] = base[i] + (uint64_t)offset;
    }
    uint32_t unknown = m & ~defined_of(w, slot);
    if (__builtin_expect(unknown && w->block->launch->config->check_uninitialised, 0)) {
        access_undefined_address(a, unknown, slot);
        a->rest &= ~unknown;
    }
}

/* Which space a generic address lies in. */
static inline enum ptx_space generic_space(uint64_t address) {
    if (address - WINDOW_SHARED < WINDOW_BYTES) return SPACE_SHARED;
    if (address - WINDOW_LOCAL < WINDOW_BYTES) return SPACE_LOCAL;
    if (address - WINDOW_PARAM < WINDOW_BYTES) return SPACE_PARAM;
    return SPACE_GLOBAL;
}

static inline uint64_t generic_window(enum ptx_space space) {
    return space == SPACE_SHARED  ? WINDOW_SHARED
           : space == SPACE_LOCAL ? WINDOW_LOCAL
                                  : WINDOW_PARAM;
}

/* Lanes of `lanes` whose address is not a multiple of the access's size. */
static inline uint32_t access_misaligned(const struct access *a, uint32_t lanes) {
    uint64_t all = 0;
    EACH_LANE all |= a->at[i];
    if (__builtin_expect((all & (a->bytes - 1)) == 0, 1)) return 0;
    uint32_t bad = 0;
    EACH_SET_LANE(i, lanes) bad |= (uint32_t)((a->address[i] & (a->bytes - 1)) != 0) << i;
    return bad;
}

static inline bool access_next(struct access *a) {
    struct warp *w = a->w;
    while (a->rest) {
        uint32_t first = (uint32_t)__builtin_ctz(a->rest);
        uint32_t lanes = a->rest;
        uint64_t window = 0;
        a->in = a->space;
        if (a->space == SPACE_GENERIC) {
            a->in = generic_space(a->address[first]);
            if (a->in != SPACE_GLOBAL) window = generic_window(a->in);
            EACH_SET_LANE(i, a->rest)
            if (generic_space(a->address[i]) != a->in) lanes &= ~(1u << i);
        }
        struct region *r;
        uint64_t stride = 0;
        if (a->in == SPACE_SHARED)
            r = &w->block->shared;
        else if (a->in == SPACE_LOCAL)
            r = &w->local, stride = w->local_stride;
        else
            r = access_find(a, a->address[first]);
        if (__builtin_expect(!r, 0)) {
            a->rest &= ~(1u << first);
            access_bad(a, 1u << first, FINDING_BOUNDS);
            continue;
        }
        uint64_t base = r->base + window, limit = stride ? stride : r->bytes;
        uint64_t last = limit - a->bytes, in = 0;
        if (__builtin_expect(limit < a->bytes, 0)) {
            a->rest &= ~lanes;
            access_bad(a, lanes, FINDING_BOUNDS);
            continue;
        }
        uint64_t start = a->address[first] - base;
        EACH_LANE {
            uint64_t offset = (lanes >> i & 1) ? a->address[i] - base : start;
            in |= (uint64_t)(offset > last);
            a->at[i] = offset;
        }
        if (__builtin_expect(in != 0, 0)) {
            uint32_t outside = 0;
            EACH_SET_LANE(i, lanes) outside |= (uint32_t)(a->at[i] > last) << i;
            lanes &= ~outside;
            /* In global memory another region may hold the others; elsewhere there is none. */
            if (a->in == SPACE_SHARED || a->in == SPACE_LOCAL || (outside >> first & 1)) {
                uint32_t bad =
                    a->in == SPACE_SHARED || a->in == SPACE_LOCAL ? outside : 1u << first;
                a->rest &= ~bad;
                access_bad(a, bad, FINDING_BOUNDS);
                if (!lanes || (bad >> first & 1)) continue;
            }
            EACH_LANE a->at[i] = (lanes >> i & 1) ? a->at[i] : start;
        }
        a->rest &= ~lanes;
        uint32_t misaligned = access_misaligned(a, lanes);
        if (__builtin_expect(misaligned != 0, 0)) {
            access_bad(a, misaligned, FINDING_MISALIGNED);
            lanes &= ~misaligned;
            if (!lanes) continue;
            uint64_t good = a->at[__builtin_ctz(lanes)];
            EACH_LANE a->at[i] = (lanes >> i & 1) ? a->at[i] : good;
        }
        if (__builtin_expect(r->read_only && (a->kind & ACCESS_WRITE), 0)) {
            access_bad(a, lanes, FINDING_READ_ONLY);
            continue;
        }
        a->lanes = lanes;
        a->region = r;
        if (stride)
            EACH_LANE a->at[i] += stride * (uint64_t)((lanes >> i & 1) ? i : __builtin_ctz(lanes));
        const struct config *config = w->block->launch->config;
        if (w->block->pending_count && config->check_async) async_access(a);
        if (config->check_races && !stride) race_access(a);
        if (w->worker->counters) counter_access(a);
        return true;
    }
    return false;
}

/* Lanes whose bytes [at, at + bytes) + skip are all defined. */
static inline uint32_t access_defined(const struct access *a, uint32_t skip, uint32_t bytes) {
    const struct region *r = a->region;
    if (!r->defined || r->all_defined) return ALL_LANES;
    uint32_t mask = 0;
    if (bytes == 16) {
        EACH_SET_LANE(i, a->lanes) {
            uint64_t at = a->at[i] + skip;
            mask |= (uint32_t)(r->defined[at >> 3] == 0xff && r->defined[(at >> 3) + 1] == 0xff)
                    << i;
        }
        return mask;
    }
    uint32_t want = (1u << bytes) - 1;
    uint8_t good[LANES];
    EACH_LANE {
        uint64_t at = a->at[i] + skip;
        good[i] = ((uint32_t)r->defined[at >> 3] >> (at & 7) & want) == want;
    }
    for (int k = 0; k < 4; k++) {
        uint64_t eight;
        memcpy(&eight, good + 8 * k, 8);
        mask |= (uint32_t)(eight * 0x0102040810204080u >> 56) << (8 * k);
    }
    return mask;
}

/* Mark the bytes that the lanes wrote as defined or not, lane by lane. */
static inline void access_define(struct access *a, uint32_t skip, uint32_t bytes, uint32_t known) {
    struct region *r = a->region;
    if (!r->defined) return;
    uint32_t lanes = a->lanes;
    if (r->all_defined) {
        if (__builtin_expect((lanes & ~known) == 0, 1)) return;
        r->all_defined = false;
    }
    uint8_t want = (uint8_t)((1u << bytes) - 1);
    if ((lanes & ~known) == 0 && bytes == 8) {
        EACH_SET_LANE(i, lanes) r->defined[(a->at[i] + skip) >> 3] = 0xff;
        return;
    }
    EACH_SET_LANE(i, lanes) {
        uint64_t at = a->at[i] + skip;
        uint8_t bits = (uint8_t)(want << (at & 7));
        uint8_t *byte = &r->defined[at >> 3];
        if (known >> i & 1) {
            if ((__atomic_load_n(byte, __ATOMIC_RELAXED) & bits) != bits)
                __atomic_fetch_or(byte, bits, __ATOMIC_RELAXED);
        } else {
            __atomic_fetch_and(byte, (uint8_t)~bits, __ATOMIC_RELAXED);
        }
    }
}

#endif
