/* Loads and stores. */
#include "access.h"

/* ---- elements between memory and lanes ---- */

static void load_elements(const struct access *a, uint32_t skip, uint32_t bytes, uint64_t *v) {
    const uint8_t *host = a->region->host + skip;
    switch (bytes) {
    case 1: EACH_LANE v[i] = host[a->at[i]]; break;
    case 2:
        EACH_LANE {
            uint16_t x;
            memcpy(&x, host + a->at[i], 2);
            v[i] = x;
        }
        break;
    case 4:
        EACH_LANE {
            uint32_t x;
            memcpy(&x, host + a->at[i], 4);
            v[i] = x;
        }
        break;
    default: EACH_LANE memcpy(&v[i], host + a->at[i], 8); break;
    }
}

static void load_words(const struct access *a, uint32_t skip, uint32_t *v) {
    const uint8_t *host = a->region->host + skip;
    EACH_LANE memcpy(&v[i], host + a->at[i], 4);
}

/* Accesses by which threads of a kernel talk to each other: whole, and in order, on the host too.
 */
static bool is_strong(const struct op *o) {
    return (o->flags & FLAG_VOLATILE) || o->semantics;
}

static void load_strong(const struct access *a, uint32_t skip, uint32_t bytes, uint64_t *v) {
    EACH_SET_LANE(i, a->lanes) {
        const uint8_t *from = a->region->host + a->at[i] + skip;
        switch (bytes) {
        case 1: v[i] = __atomic_load_n(from, __ATOMIC_SEQ_CST); break;
        case 2: v[i] = __atomic_load_n((const uint16_t *)from, __ATOMIC_SEQ_CST); break;
        case 4: v[i] = __atomic_load_n((const uint32_t *)from, __ATOMIC_SEQ_CST); break;
        default: v[i] = __atomic_load_n((const uint64_t *)from, __ATOMIC_SEQ_CST); break;
        }
    }
}

static void store_strong(const struct access *a, uint32_t skip, uint32_t bytes, const uint32_t *v,
                         bool is64) {
    const u64_alias *wide = (const u64_alias *)v;
    EACH_SET_LANE(i, a->lanes) {
        uint64_t x = is64 ? wide[i] : v[i];
        uint8_t *to = a->region->host + a->at[i] + skip;
        switch (bytes) {
        case 1: __atomic_store_n(to, (uint8_t)x, __ATOMIC_SEQ_CST); break;
        case 2: __atomic_store_n((uint16_t *)to, (uint16_t)x, __ATOMIC_SEQ_CST); break;
        case 4: __atomic_store_n((uint32_t *)to, (uint32_t)x, __ATOMIC_SEQ_CST); break;
        default: __atomic_store_n((uint64_t *)to, x, __ATOMIC_SEQ_CST); break;
        }
    }
}

static void extend_signed(enum ptx_type type, uint64_t *v) {
    switch (type) {
    case T_S8: EACH_LANE v[i] = (uint64_t)(int64_t)(int8_t)v[i]; break;
    case T_S16: EACH_LANE v[i] = (uint64_t)(int64_t)(int16_t)v[i]; break;
    case T_S32: EACH_LANE v[i] = (uint64_t)(int64_t)(int32_t)v[i]; break;
    default: break;
    }
}

static void put_loaded(struct warp *w, const struct op *o, int32_t slot, uint32_t lanes,
                       uint64_t *v) {
    if (ptx_type_signed((enum ptx_type)o->type)) extend_signed((enum ptx_type)o->type, v);
    if (o->wide == WIDE_64) {
        put64(w, slot, v, lanes);
    } else {
        uint32_t narrow[LANES], mask = o->wide == WIDE_16 ? 0xffff : UINT32_MAX;
        EACH_LANE narrow[i] = (uint32_t)v[i] & mask;
        put32(w, slot, narrow, lanes);
    }
}

/* Some of an element's bytes are not defined; its halves may be. */
static void load_halves(const struct access *a, uint32_t k, uint32_t bytes, uint32_t lanes) {
    uint32_t known[4] = {0};
    for (uint32_t h = 0; h < bytes / 2; h++) known[h] = access_defined(a, k * bytes + 2 * h, 2);
    undefined_set_halves(a->w, a->o->list[k], lanes, known);
}

/* Registers hold the values before any is written, so that [%r1] may load over %r1. */
static void load_lanes(struct access *a) {
    struct warp *w = a->w;
    const struct op *o = a->o;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8;
    for (uint32_t k = 0; k < o->vector; k++) {
        uint32_t known = access_defined(a, k * bytes, bytes);
        if (is_strong(o)) {
            uint64_t v[LANES] = {0};
            load_strong(a, k * bytes, bytes, v);
            put_loaded(w, o, o->list[k], a->lanes, v);
        } else if (bytes == 4 && o->wide != WIDE_64) {
            uint32_t v[LANES];
            load_words(a, k * bytes, v);
            put32(w, o->list[k], v, a->lanes);
        } else {
            uint64_t v[LANES];
            load_elements(a, k * bytes, bytes, v);
            put_loaded(w, o, o->list[k], a->lanes, v);
        }
        define(w, o, o->list[k], a->lanes, known);
        if (__builtin_expect((a->lanes & ~known) != 0, 0) && bytes >= 4)
            load_halves(a, k, bytes, a->lanes & ~known);
    }
}

static void load_param_lanes(struct warp *w, const struct op *o, uint32_t m);

static void load(struct warp *w, const struct op *o, uint32_t m) {
    struct access a;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8 * o->vector;
    access_start(&a, w, o, m, o->a, o->imm, o->address64, (enum ptx_space)o->space, bytes,
                 ACCESS_READ | (o->semantics ? ACCESS_ATOMIC : 0));
    if (o->space == SPACE_GENERIC) {
        uint32_t param = 0;
        EACH_SET_LANE(i, a.rest)
        param |= (uint32_t)(a.address[i] - WINDOW_PARAM < WINDOW_BYTES) << i;
        if (param) load_param_lanes(w, o, param);
        a.rest &= ~param;
    }
    while (access_next(&a)) load_lanes(&a);
}

#define LOAD(name)                                                                                 \
    OP_FUNCTION(name) {                                                                            \
        load(w, o, m);                                                                             \
    }
LOAD(ld)
LOAD(ld_nc)
LOAD(ld_volatile)
LOAD(ld_order)
LOAD(ldu)

/* ---- stores ---- */

static void store_elements(const struct access *a, uint32_t skip, uint32_t bytes, const uint32_t *v,
                           bool is64) {
    uint8_t *host = a->region->host + skip;
    const u64_alias *wide = (const u64_alias *)v;
    EACH_SET_LANE(i, a->lanes) {
        uint64_t x = is64 ? wide[i] : v[i];
        uint8_t *to = host + a->at[i];
        switch (bytes) {
        case 1: *to = (uint8_t)x; break;
        case 2: memcpy(to, &x, 2); break;
        case 4: memcpy(to, &x, 4); break;
        default: memcpy(to, &x, 8); break;
        }
    }
}

static void store_words(const struct access *a, uint32_t skip, const uint32_t *v) {
    uint8_t *host = a->region->host + skip;
    if (a->lanes == ALL_LANES) {
        EACH_LANE memcpy(host + a->at[i], &v[i], 4);
    } else {
        EACH_SET_LANE(i, a->lanes) memcpy(host + a->at[i], &v[i], 4);
    }
}

static void store_lanes(struct access *a) {
    struct warp *w = a->w;
    const struct op *o = a->o;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8;
    for (uint32_t k = 0; k < o->vector; k++) {
        int32_t slot = o->list[k];
        uint32_t known = bytes > 2 ? defined_of(w, slot) : undefined_half(w, slot, 0);
        uint32_t unknown = a->lanes & ~known;
        if (__builtin_expect(unknown != 0, 0) && a->in == SPACE_GLOBAL &&
            w->block->launch->config->check_uninitialised)
            access_undefined_store(a, unknown, slot, k);
        if (is_strong(o))
            store_strong(a, k * bytes, bytes, source32(w, slot), o->wide == WIDE_64);
        else if (bytes == 4 && o->wide != WIDE_64)
            store_words(a, k * bytes, source32(w, slot));
        else
            store_elements(a, k * bytes, bytes, source32(w, slot), o->wide == WIDE_64);
        if (__builtin_expect(unknown != 0, 0) && bytes > 2)
            for (uint32_t h = 0; h < bytes / 2; h++)
                access_define(a, k * bytes + 2 * h, 2, undefined_half(w, slot, h));
        else
            access_define(a, k * bytes, bytes, known);
    }
}

static void store(struct warp *w, const struct op *o, uint32_t m) {
    struct access a;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8 * o->vector;
    access_start(&a, w, o, m, o->a, o->imm, o->address64, (enum ptx_space)o->space, bytes,
                 ACCESS_WRITE | (o->semantics ? ACCESS_ATOMIC : 0));
    while (access_next(&a)) store_lanes(&a);
}

OP_FUNCTION(st) {
    store(w, o, m);
}

OP_FUNCTION(st_volatile) {
    store(w, o, m);
}

OP_FUNCTION(st_order) {
    store(w, o, m);
}

/* ---- parameters ---- */

static bool lies_in(uint64_t offset, uint64_t bytes, uint64_t size) {
    return bytes <= size && offset <= size - bytes;
}

/* Where a lane's parameter byte lies: the launch's block, or the frame's own memory. */
static const uint8_t *param_bytes(const struct warp *w, uint64_t offset, uint32_t bytes, int lane,
                                  const uint8_t **defined) {
    const struct frame *f = w->frame;
    *defined = NULL;
    if (f->function->entry && lies_in(offset, bytes, f->function->param_bytes))
        return w->block->launch->params + offset;
    if (!f->params || !lies_in(offset, bytes, f->function->frame_param_bytes)) return NULL;
    size_t at = (size_t)lane * f->function->frame_param_bytes + offset;
    *defined = f->params_defined + at;
    return f->params + at;
}

static void bad_param(struct warp *w, const struct op *o, uint32_t lane, uint64_t offset) {
    report_lane(w, o, lane, FINDING_BOUNDS, 0, NULL,
                "access of a parameter outside of the parameters, at offset %llu",
                (unsigned long long)offset);
}

static uint64_t param_offset(const struct warp *w, const struct op *o, uint32_t lane) {
    uint64_t address = o->address64 ? source64(w, o->a)[lane] : source32(w, o->a)[lane];
    address += (uint64_t)o->imm;
    return o->space == SPACE_GENERIC ? address - WINDOW_PARAM : address;
}

static void load_param_lanes(struct warp *w, const struct op *o, uint32_t m) {
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8;
    uint64_t offsets[LANES];
    EACH_SET_LANE(i, m) offsets[i] = param_offset(w, o, i);
    for (uint32_t k = 0; k < o->vector; k++) {
        uint64_t v[LANES] = {0};
        uint32_t known = 0, halves[4] = {0};
        EACH_SET_LANE(i, m) {
            const uint8_t *defined;
            uint64_t offset = offsets[i] + k * bytes;
            const uint8_t *from = param_bytes(w, offset, bytes, (int)i, &defined);
            if (!from) {
                bad_param(w, o, i, offset);
                return;
            }
            memcpy(&v[i], from, bytes);
            bool good = true;
            for (uint32_t b = 0; defined && b < bytes; b++) {
                good = good && defined[b];
                if (b & 1) halves[b / 2] |= (uint32_t)(defined[b - 1] && defined[b]) << i;
            }
            known |= (uint32_t)good << i;
        }
        put_loaded(w, o, o->list[k], m, v);
        define(w, o, o->list[k], m, known);
        if (m & ~known) undefined_set_halves(w, o->list[k], m & ~known, halves);
    }
}

/* The usual case, a kernel's own parameter: the same for every lane. */
static bool load_uniform_param(struct warp *w, const struct op *o, uint32_t m) {
    const struct function *f = w->frame->function;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8;
    if (!f->entry || o->a >= 0) return false;
    uint64_t offset = source64(w, o->a)[0] + (uint64_t)o->imm;
    if (!lies_in(offset, (uint64_t)bytes * o->vector, f->param_bytes)) return false;
    for (uint32_t k = 0; k < o->vector; k++) {
        uint64_t x = 0, v[LANES];
        memcpy(&x, w->block->launch->params + offset + k * bytes, bytes);
        EACH_LANE v[i] = x;
        put_loaded(w, o, o->list[k], m, v);
        define(w, o, o->list[k], m, ALL_LANES);
    }
    return true;
}

OP_FUNCTION(ld_param) {
    if (!load_uniform_param(w, o, m)) load_param_lanes(w, o, m);
}

OP_FUNCTION(st_param) {
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8;
    const struct frame *f = w->frame;
    for (uint32_t k = 0; k < o->vector; k++) {
        const uint32_t *v = source32(w, o->list[k]);
        const u64_alias *wide = (const u64_alias *)v;
        EACH_SET_LANE(i, m) {
            uint64_t offset = param_offset(w, o, i) + k * bytes;
            uint64_t x = o->wide == WIDE_64 ? wide[i] : v[i];
            if (!f->params || !lies_in(offset, bytes, f->function->frame_param_bytes)) {
                bad_param(w, o, i, offset);
                return;
            }
            size_t at = i * f->function->frame_param_bytes + offset;
            memcpy(f->params + at, &x, bytes);
            for (uint32_t b = 0; b < bytes; b++)
                f->params_defined[at + b] = undefined_half(w, o->list[k], b / 2) >> i & 1;
        }
    }
}

/* A hint: there is no cache to fill. */
OP_FUNCTION(prefetch) {
    (void)w;
    (void)o;
    (void)m;
}

OP_FUNCTION(prefetchu) {
    (void)w;
    (void)o;
    (void)m;
}
