/*
 * Undefined values in registers: which halves of one are defined all the same, and where it came
 * from. A register's bit in `defined` says that all of it is. Where it is not, its 16-bit halves
 * are kept apart, so that a pair of which one half was never written may be packed, moved, computed
 * with and unpacked again; only operations that are known to keep halves apart do so, after all
 * others all of the result is undefined. What is here runs only when something is undefined.
 */
#include "exec.h"
#include "report.h"

/* ---- where they come from ---- */

static int32_t first_undefined(const struct warp *w, const struct op *o, uint32_t lanes) {
    const int32_t sources[4] = {o->a, o->b, o->c, o->e};
    for (int k = 0; k < 4; k++)
        if (sources[k] > 0 && (uint32_t)sources[k] < w->frame->function->slots &&
            (lanes & ~w->defined[sources[k]]))
            return sources[k];
    for (unsigned k = 0; k < o->list_count; k++)
        if (o->list[k] > 0 && (uint32_t)o->list[k] < w->frame->function->slots &&
            (lanes & ~w->defined[o->list[k]]))
            return o->list[k];
    return 0;
}

static bool brings_from_memory(const struct op *o) {
    enum form_class class = form_table[o->form].class;
    return class == CLASS_LOAD || class == CLASS_ATOMIC || class == CLASS_TENSOR;
}

static void remember_origin(struct warp *w, const struct op *o, int32_t slot) {
    struct frame *f = w->frame;
    if (brings_from_memory(o)) {
        f->origins[slot] = op_number(w, o) + 1;
        return;
    }
    int32_t from = first_undefined(w, o, ALL_LANES);
    if (!from && o->p > PREDICATE_SINK) f->origins[slot] = f->predicate_origins[o->p];
    /* The destination may be its own source: its origin then stays. */
    if (from && from != slot) f->origins[slot] = f->origins[from];
}

/* ---- halves ---- */

struct halves {
    uint32_t known[4]; /* lanes in which bits 16k..16k+15 are defined */
};

/* What the running operation changes: its destination as it was before. */
struct flow {
    struct warp *w;
    const struct op *o;
    int32_t slot;
    uint32_t old; /* its definedness */
};

uint32_t undefined_half(const struct warp *w, int32_t slot, unsigned k) {
    uint32_t whole = defined_of(w, slot);
    return slot <= 0 || !w->frame->halves_used ? whole
                                               : whole | w->frame->halves[4 * slot + (int)k];
}

static uint32_t half_of(const struct flow *f, int32_t slot, unsigned k) {
    if (slot != f->slot) return undefined_half(f->w, slot, k);
    return f->old | (f->w->frame->halves_used ? f->w->frame->halves[4 * slot + (int)k] : 0);
}

static void both(const struct flow *f, struct halves *h, unsigned count) {
    for (unsigned k = 0; k < count; k++)
        h->known[k] = half_of(f, f->o->a, k) & half_of(f, f->o->b, k) & half_of(f, f->o->c, k) &
                      f->w->predicates_defined[f->o->p];
}

static void copy(const struct flow *f, struct halves *h, int32_t slot) {
    for (unsigned k = 0; k < 4; k++) h->known[k] = half_of(f, slot, k);
}

/* Parts of 8, 16 or 32 bits side by side, the first one lowest. */
static void pack(const struct flow *f, struct halves *h) {
    unsigned bits = f->o->mode;
    for (unsigned k = 0; k < 4; k++) {
        h->known[k] = ALL_LANES;
        for (unsigned part = 0; part < f->o->list_count; part++)
            if (part * bits < 16 * (k + 1) && (part + 1) * bits > 16 * k)
                h->known[k] &= half_of(f, f->o->list[part], bits == 32 ? k & 1 : 0);
    }
}

/* Shifts by 16 and masks, as constants: the ways to take a half without a vector. */
static uint32_t constant_of(const struct flow *f, int32_t slot) {
    return slot < 0 ? source32(f->w, slot)[0] : UINT32_MAX;
}

static void mask(const struct flow *f, struct halves *h) {
    uint32_t x = constant_of(f, f->o->a), y = constant_of(f, f->o->b);
    both(f, h, 2);
    for (unsigned k = 0; k < 2; k++)
        if (!(x >> (16 * k) & 0xffff) || !(y >> (16 * k) & 0xffff)) h->known[k] = ALL_LANES;
}

static void shift(const struct flow *f, struct halves *h, bool left, bool fill) {
    if (constant_of(f, f->o->b) != 16) return;
    h->known[left] = half_of(f, f->o->a, !left);
    h->known[!left] = fill ? h->known[left] : ALL_LANES;
}

/* prmt: byte i of the result is the byte of {b, a} that nibble i names. */
static void permute(const struct flow *f, struct halves *h) {
    if (f->o->c >= 0) return;
    uint32_t selector = constant_of(f, f->o->c);
    for (unsigned k = 0; k < 2; k++) {
        h->known[k] = ALL_LANES;
        for (unsigned i = 2 * k; i < 2 * k + 2; i++) {
            unsigned from = selector >> (4 * i) & 7;
            h->known[k] &= half_of(f, from & 4 ? f->o->b : f->o->a, from >> 1 & 1);
        }
    }
}

/* Integers by their value: what lies above the narrower type does not matter. */
static void convert(const struct flow *f, struct halves *h) {
    unsigned from = ptx_type_bits((enum ptx_type)f->o->type2);
    unsigned to = ptx_type_bits((enum ptx_type)f->o->type);
    unsigned least = from < to ? from : to, used = (least + 15) / 16;
    if (f->o->flags & FLAG_SAT) return;
    for (unsigned k = 0; k < 4; k++) h->known[k] = half_of(f, f->o->a, k < used ? k : used - 1);
}

static void unpack(const struct flow *f, struct halves *h) {
    unsigned part = 0;
    while (part + 1 < f->o->list_count && f->o->list[part] != f->slot) part++;
    if (f->o->mode != 32) return;
    for (unsigned k = 0; k < 2; k++) h->known[k] = half_of(f, f->o->a, 2 * part + k);
}

static void select_one(const struct flow *f, struct halves *h) {
    uint32_t p = predicate_of(f->w, f->o), sure = f->w->predicates_defined[f->o->p];
    for (unsigned k = 0; k < 4; k++)
        h->known[k] = sure & ((p & half_of(f, f->o->a, k)) | (~p & half_of(f, f->o->b, k)));
}

static bool is_pair(int type) {
    return type == T_F16X2 || type == T_BF16X2 || type == T_U16X2 || type == T_S16X2;
}

static void find_halves(const struct flow *f, struct halves *h) {
    memset(h, 0, sizeof *h);
    const struct op *o = f->o;
    switch (o->form) {
    case FORM_mov: copy(f, h, o->a); return;
    case FORM_mov_pack: pack(f, h); return;
    case FORM_mov_unpack: unpack(f, h); return;
    case FORM_selp_b16:
    case FORM_selp_b32:
    case FORM_selp_b64: select_one(f, h); return;
    case FORM_and_b32: mask(f, h); return;
    case FORM_or_b32:
    case FORM_xor_b32:
    case FORM_not_b32: both(f, h, 2); return;
    case FORM_and_b64:
    case FORM_or_b64:
    case FORM_xor_b64: both(f, h, 4); return;
    case FORM_shl_b32: shift(f, h, true, false); return;
    case FORM_shr_u32: shift(f, h, false, false); return;
    case FORM_shr_s32: shift(f, h, false, true); return;
    case FORM_prmt_b32: permute(f, h); return;
    case FORM_cvt_integer: convert(f, h); return;
    case FORM_cvt_bf16x2_f32:
    case FORM_cvt_pair:
    case FORM_cvt_pair_finite:
        h->known[0] = half_of(f, o->b, 0) & half_of(f, o->b, 1);
        h->known[1] = half_of(f, o->a, 0) & half_of(f, o->a, 1);
        return;
    default:
        if ((is_pair(o->type) || is_pair(o->type2)) && form_table[o->form].class <= CLASS_FLOAT)
            both(f, h, 2);
    }
}

static unsigned halves_of_result(const struct op *o) {
    unsigned bits = ptx_type_bits((enum ptx_type)o->type);
    if (o->form == FORM_mov_pack) bits = o->mode * o->list_count;
    if (o->form == FORM_mov_unpack) bits = o->mode;
    if (o->form == FORM_cvt_integer) bits = o->wide == WIDE_64 ? 64 : o->wide == WIDE_16 ? 16 : 32;
    return bits <= 16 ? 1 : bits / 16;
}

void undefined_flow(struct warp *w, const struct op *o, int32_t slot, uint32_t lanes,
                    uint32_t old) {
    struct frame *f = w->frame;
    if (!f->origins || (uint32_t)slot >= f->function->slots) return;
    struct flow flow = {w, o, slot, old};
    struct halves h;
    find_halves(&flow, &h);
    uint32_t whole = lanes;
    for (unsigned k = 0; k < halves_of_result(o); k++) whole &= h.known[k];
    w->defined[slot] |= whole;
    undefined_set_halves(w, slot, lanes, h.known);
    if (lanes & ~whole) remember_origin(w, o, slot);
}

void undefined_set_halves(struct warp *w, int32_t slot, uint32_t lanes, const uint32_t known[4]) {
    struct frame *f = w->frame;
    uint32_t any = (known[0] | known[1] | known[2] | known[3]) & lanes;
    if (!any && !f->halves_used) return;
    f->halves_used = true;
    uint32_t *to = f->halves + 4 * (size_t)slot;
    for (unsigned k = 0; k < 4; k++) to[k] = (to[k] & ~lanes) | (known[k] & lanes);
}

/* ---- predicates ---- */

void undefined_predicate(struct warp *w, int32_t index) {
    struct frame *f = w->frame;
    if (!w->pc || (uint32_t)index >= f->function->predicates) return;
    const struct op *o = &w->code[w->pc - 1];
    int32_t from = first_undefined(w, o, ALL_LANES);
    if (from)
        f->predicate_origins[index] = f->origins[from];
    else if (o->p > PREDICATE_SINK)
        f->predicate_origins[index] = f->predicate_origins[o->p];
}

static void describe_origin(const struct warp *w, uint32_t origin, char *text, size_t bytes) {
    const struct frame *f = w->frame;
    if (!origin || origin > f->function->op_count) {
        snprintf(text, bytes, "it comes from a register that was never written");
        return;
    }
    char line[120];
    const struct op *o = &f->function->ops[origin - 1];
    module_line(w->block->launch->module, o->line, line, sizeof line);
    snprintf(text, bytes, "it was loaded, never having been written, at line %u: %s", o->line,
             line);
}

void undefined_origin(const struct warp *w, int32_t slot, char *text, size_t bytes) {
    const struct frame *f = w->frame;
    describe_origin(w, f->origins && slot > 0 ? f->origins[slot] : 0, text, bytes);
}

void undefined_predicate_origin(const struct warp *w, int32_t index, char *text, size_t bytes) {
    describe_origin(w, w->frame->predicate_origins[index], text, bytes);
}
