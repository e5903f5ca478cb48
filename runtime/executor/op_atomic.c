/* Atomic operations and reductions on memory. Lanes act one after the other, blocks concurrently.
 */
#include "access.h"
#include "fp.h"

struct atom {
    int mode;
    enum ptx_type type;
    bool flush; /* f32 sums in global memory flush subnormals (PTX ISA, atom) */
};

static uint64_t atom_combine_float(const struct atom *a, uint64_t old, uint64_t b) {
    switch (a->type) {
    case T_F32: {
        uint32_t x = (uint32_t)old, y = (uint32_t)b;
        if (a->flush) {
            x = f32_flush(x);
            y = f32_flush(y);
        }
        uint32_t r = f32_result(f32_of(x) + f32_of(y));
        return a->flush ? f32_flush(r) : r;
    }
    case T_F64: {
        double r = f64_of(old) + f64_of(b);
        return r != r ? 0x7ff8000000000000u : f64_bits(r);
    }
    default: {
        bool bf16 = a->type == T_BF16 || a->type == T_BF16X2;
        bool packed = a->type == T_F16X2 || a->type == T_BF16X2;
        uint64_t r = 0;
        for (int half = 0; half <= packed; half++) {
            uint32_t x = (uint32_t)(old >> (16 * half)) & 0xffff;
            uint32_t y = (uint32_t)(b >> (16 * half)) & 0xffff, sum;
            if (bf16)
                sum = bf16_round(f32_bits(bf16_value(x) + bf16_value(y)));
            else
                sum = fp_encode((double)f16_value(x) + f16_value(y), &fp_f16, ROUND_RN, false);
            r |= (uint64_t)sum << (16 * half);
        }
        return r;
    }
    }
}

static bool atom_lower(const struct atom *a, uint64_t x, uint64_t y) {
    switch (a->type) {
    case T_S32: return (int32_t)x < (int32_t)y;
    case T_S64: return (int64_t)x < (int64_t)y;
    default: return x < y;
    }
}

static uint64_t atom_combine(const struct atom *a, uint64_t old, uint64_t b, uint64_t c) {
    switch (a->mode) {
    case MODE_ADD: return ptx_type_float(a->type) ? atom_combine_float(a, old, b) : old + b;
    case MODE_MIN: return atom_lower(a, b, old) ? b : old;
    case MODE_MAX: return atom_lower(a, old, b) ? b : old;
    case MODE_AND: return old & b;
    case MODE_OR: return old | b;
    case MODE_XOR: return old ^ b;
    case MODE_INC: return (uint32_t)old >= (uint32_t)b ? 0 : old + 1;
    case MODE_DEC: return (uint32_t)old == 0 || (uint32_t)old > (uint32_t)b ? b : old - 1;
    case MODE_CAS: return old == b ? c : old;
    default: return b; /* exch */
    }
}

/* One lane's operation; returns the value before it. */
static uint64_t atom_act(const struct atom *a, uint8_t *at, unsigned bytes, uint64_t b,
                         uint64_t c) {
#define ACT(type)                                                                                  \
    do {                                                                                           \
        type *p = (type *)(void *)at;                                                              \
        type old = __atomic_load_n(p, __ATOMIC_RELAXED);                                           \
        while (!__atomic_compare_exchange_n(p, &old, (type)atom_combine(a, old, b, c), false,      \
                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {                 \
        }                                                                                          \
        return old;                                                                                \
    } while (0)
    switch (bytes) {
    case 2: ACT(uint16_t);
    case 4: ACT(uint32_t);
    default: ACT(uint64_t);
    }
#undef ACT
}

static uint64_t atom_operand(const struct warp *w, int32_t slot, uint32_t lane, unsigned bytes) {
    return bytes == 8 ? source64(w, slot)[lane] : source32(w, slot)[lane];
}

static void atom_run(struct warp *w, const struct op *o, uint32_t m, bool returns) {
    unsigned bytes = ptx_type_bits((enum ptx_type)o->type) / 8;
    struct access a;
    /* Operand order: address (a), value (b), and for cas the second value (c). */
    access_start(&a, w, o, m, o->a, o->imm, o->address64 & 1, (enum ptx_space)o->space, bytes,
                 ACCESS_READ | ACCESS_WRITE | ACCESS_ATOMIC);
    while (access_next(&a)) {
        struct atom atom = {o->mode, (enum ptx_type)o->type, a.in == SPACE_GLOBAL};
        uint32_t before = access_defined(&a, 0, bytes), operands = defined_of(w, o->b);
        if (o->mode == MODE_CAS) operands &= defined_of(w, o->c);
        uint32_t unknown = a.lanes & ~operands;
        if (__builtin_expect(unknown && a.in == SPACE_GLOBAL, 0) &&
            w->block->launch->config->check_uninitialised)
            access_undefined_store(&a, unknown, o->b, 0);
        uint64_t old[LANES] = {0};
        EACH_SET_LANE(i, a.lanes)
        old[i] = atom_act(&atom, a.region->host + a.at[i], bytes, atom_operand(w, o->b, i, bytes),
                          o->mode == MODE_CAS ? atom_operand(w, o->c, i, bytes) : 0);
        access_define(&a, 0, bytes, o->mode == MODE_EXCH ? operands : before & operands);
        if (!returns) continue;
        if (bytes == 8) {
            put64(w, o->d, old, a.lanes);
        } else {
            uint32_t narrow[LANES];
            EACH_LANE narrow[i] = (uint32_t)old[i];
            put32(w, o->d, narrow, a.lanes);
        }
        define(w, o, o->d, a.lanes, before);
    }
}

#define ATOM(name, returns)                                                                        \
    OP_FUNCTION(name) {                                                                            \
        atom_run(w, o, m, returns);                                                                \
    }
ATOM(atom_add, true)
ATOM(atom_integer, true)
ATOM(atom_bits, true)
ATOM(atom_count, true)
ATOM(atom_exch, true)
ATOM(atom_cas, true)
ATOM(atom_float, true)
ATOM(atom_half, true)
ATOM(red_add, false)
ATOM(red_integer, false)
ATOM(red_bits, false)
ATOM(red_count, false)
ATOM(red_float, false)
ATOM(red_half, false)
