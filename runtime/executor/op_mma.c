/* mma.sync, ldmatrix and stmatrix: whole warps only. Fragment layouts are the ISA's. */
#include "access.h"
#include "tensor_lanes.h"

enum { ROWS = 16, COLUMNS = 8, DEPTH_MAX = 32 };

/* Every lane of the warp must take part: the operation has no meaning else. */
static bool whole_warp(struct warp *w, const struct op *o, uint32_t m) {
    if (m == ALL_LANES) return true;
    if (w->alive == ALL_LANES) return warp_together(w, o, m, ALL_LANES);
    report_lane(w, o, (uint32_t)__builtin_ctz(m), FINDING_WARP_MASK, 2, NULL,
                "a whole warp must execute this; executing lanes are 0x%08x", m);
    return false;
}

/* Shape of one form: registers of A, B and C a lane, elements a register, depth. */
struct shape {
    int rows, depth, a, b, c, per; /* per: elements in one 32-bit register */
};

static struct shape shape_of(const struct op *o) {
    switch (o->form) {
    case FORM_mma_m16n8k8_half:
    case FORM_mma_m16n8k8_half_f16: return (struct shape){16, 8, 2, 1, 4, 2};
    case FORM_mma_m16n8k16_half:
    case FORM_mma_m16n8k16_half_f16: return (struct shape){16, 16, 4, 2, 4, 2};
    case FORM_mma_m16n8k4_tf32: return (struct shape){16, 4, 2, 1, 4, 1};
    case FORM_mma_m16n8k8_tf32: return (struct shape){16, 8, 4, 2, 4, 1};
    case FORM_mma_m16n8k16_fp8:
    case FORM_mma_m16n8k16_int8: return (struct shape){16, 16, 2, 1, 4, 4};
    case FORM_mma_m8n8k16_int8: return (struct shape){8, 16, 1, 1, 2, 4};
    default: return (struct shape){16, 32, 4, 2, 4, 4};
    }
}

/*
 * Element e of register r in a lane. A: rows g and g+8 alternate by register, columns go on after
 * two of them (after one where there are 8 rows). B: k goes on by register, column g.
 */
static int a_row(const struct shape *s, int lane, int r) {
    return (lane >> 2) + (s->rows == 16 ? 8 * (r & 1) : 0);
}

static int a_column(const struct shape *s, int lane, int r, int e) {
    int group = s->rows == 16 ? r >> 1 : r;
    return (lane & 3) * s->per + e + 4 * s->per * group;
}

static int b_row(const struct shape *s, int lane, int r, int e) {
    return (lane & 3) * s->per + e + 4 * s->per * r;
}

static uint32_t element(uint32_t word, const struct shape *s, int e) {
    int bits = 32 / s->per;
    return bits == 32 ? word : word >> (e * bits) & ((1u << bits) - 1);
}

/* Which rows of A and columns of B are defined in full, for the definedness of D. */
static void operand_definedness(const struct warp *w, const struct op *o, const struct shape *s,
                                int c_registers, uint32_t *rows, uint32_t *columns, bool *all) {
    uint32_t known = ALL_LANES;
    *rows = *columns = 0;
    for (int i = 0; i < s->a + s->b + c_registers; i++)
        known &= defined_of(w, o->list[c_registers + i]);
    *all = known == ALL_LANES;
    if (*all) return;
    *rows = (1u << s->rows) - 1;
    *columns = (1u << COLUMNS) - 1;
    for (int lane = 0; lane < LANES; lane++) {
        for (int r = 0; r < s->a; r++)
            if (!(defined_of(w, o->list[c_registers + r]) >> lane & 1))
                *rows &= ~(1u << a_row(s, lane, r));
        for (int r = 0; r < s->b; r++)
            if (!(defined_of(w, o->list[c_registers + s->a + r]) >> lane & 1))
                *columns &= ~(1u << (lane >> 2));
    }
}

/* Operands in `list`: D, A, B, C in that order. */
struct mma {
    struct shape s;
    int c_registers;
    const int32_t *d, *a, *b, *c;
};

static struct mma mma_of(const struct op *o, bool half_accumulator) {
    struct mma x = {.s = shape_of(o)};
    x.c_registers = half_accumulator ? x.s.c / 2 : x.s.c;
    x.d = o->list;
    x.a = x.d + x.c_registers;
    x.b = x.a + x.s.a;
    x.c = x.b + x.s.b;
    return x;
}

static void define_result(struct warp *w, const struct op *o, const struct mma *x) {
    uint32_t rows, columns;
    bool all;
    operand_definedness(w, o, &x->s, x->c_registers, &rows, &columns, &all);
    for (int i = 0; i < x->c_registers; i++) {
        uint32_t known = defined_of(w, x->c[i]);
        int row_part = x->c_registers == x->s.c ? i >> 1 : i;
        if (!all)
            for (int lane = 0; lane < LANES; lane++) {
                bool row = rows >> ((lane >> 2) + 8 * row_part) & 1;
                bool column = x->c_registers == x->s.c
                                  ? (columns >> (2 * (lane & 3) + (i & 1)) & 1) == 1
                                  : (columns >> (2 * (lane & 3)) & 3) == 3;
                if (!row || !column) known &= ~(1u << lane);
            }
        define(w, o, x->d[i], ALL_LANES, known);
    }
}

/* ---- floating point ---- */

struct matrices {
    struct tensor_factor a[ROWS][DEPTH_MAX], b[DEPTH_MAX][COLUMNS];
    int32_t as[ROWS][DEPTH_MAX], ae[ROWS][DEPTH_MAX];
    int32_t bs[DEPTH_MAX][TENSOR_COLUMNS], be[DEPTH_MAX][TENSOR_COLUMNS];
    uint32_t c[ROWS][COLUMNS];
    bool special;
};

static uint32_t code_of(uint32_t raw, enum ptx_type type) {
    return type == T_TF32 ? raw >> 13 : raw;
}

static void unpack_factors(const struct warp *w, const struct op *o, const struct mma *x,
                           struct matrices *m) {
    enum ptx_type ta = (enum ptx_type)o->type2, tb = (enum ptx_type)o->type3;
    struct tensor_format fa = tensor_format(ta), fb = tensor_format(tb);
    uint32_t special = 0;
    for (int r = 0; r < x->s.a; r++) {
        const uint32_t *v = source32(w, x->a[r]);
        for (int lane = 0; lane < LANES; lane++)
            for (int e = 0; e < x->s.per; e++) {
                int row = a_row(&x->s, lane, r), k = a_column(&x->s, lane, r, e);
                struct tensor_factor f =
                    tensor_unpack(&fa, code_of(element(v[lane], &x->s, e), ta));
                m->a[row][k] = f;
                m->as[row][k] = f.significand;
                m->ae[row][k] = f.exponent;
                special |= f.special;
            }
    }
    for (int r = 0; r < x->s.b; r++) {
        const uint32_t *v = source32(w, x->b[r]);
        for (int lane = 0; lane < LANES; lane++)
            for (int e = 0; e < x->s.per; e++) {
                int k = b_row(&x->s, lane, r, e), n = lane >> 2;
                struct tensor_factor f =
                    tensor_unpack(&fb, code_of(element(v[lane], &x->s, e), tb));
                m->b[k][n] = f;
                m->bs[k][n] = f.significand;
                m->be[k][n] = f.exponent;
                special |= f.special;
            }
    }
    m->special = special != 0;
}

static void set_accumulator(struct matrices *m, int row, int column, uint32_t bits) {
    m->c[row][column] = bits;
    m->special = m->special || (bits & 0x7f800000) == 0x7f800000;
}

static void read_accumulator(const struct warp *w, const struct mma *x, bool half,
                             struct matrices *m) {
    for (int i = 0; i < x->c_registers; i++) {
        const uint32_t *v = source32(w, x->c[i]);
        for (int lane = 0; lane < LANES; lane++) {
            int row = (lane >> 2) + 8 * (half ? i : i >> 1), column = 2 * (lane & 3);
            if (half) {
                set_accumulator(m, row, column, f32_bits(f16_value(v[lane] & 0xffff)));
                set_accumulator(m, row, column + 1, f32_bits(f16_value(v[lane] >> 16)));
            } else {
                set_accumulator(m, row, column + (i & 1), v[lane]);
            }
        }
    }
}

static void multiply(const struct mma *x, const struct tensor_rule *rule, int product_fraction,
                     struct matrices *m) {
    for (int row = 0; row < x->s.rows; row++) {
        uint32_t acc[TENSOR_COLUMNS];
        /* The accumulator's registers of all lanes fill every row of the shape.
           NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
        for (int n = 0; n < COLUMNS; n++) acc[n] = rule->add_after ? 0 : m->c[row][n];
        for (int k = 0; k < x->s.depth; k += rule->block) {
            int left = x->s.depth - k, step = left < rule->block ? left : rule->block;
            uint32_t special[TENSOR_COLUMNS] = {0};
            /* An earlier block may have overflowed. */
            bool look = m->special;
            for (int n = 0; n < COLUMNS; n++) look = look || (acc[n] & 0x7f800000) == 0x7f800000;
            for (int n = 0; n < COLUMNS && look; n++)
                special[n] = tensor_special(&m->a[row][k], &m->b[k][n], COLUMNS, step, acc[n]);
            tensor_step(&m->as[row][k], &m->ae[row][k], (const int32_t(*)[TENSOR_COLUMNS])m->bs + k,
                        (const int32_t(*)[TENSOR_COLUMNS])m->be + k, step, product_fraction,
                        rule->fraction, rule->result, acc);
            for (int n = 0; n < COLUMNS; n++) acc[n] = special[n] ? special[n] : acc[n];
        }
        for (int n = 0; n < COLUMNS; n++)
            m->c[row][n] =
                rule->add_after ? f32_result(f32_of(acc[n]) + f32_of(m->c[row][n])) : acc[n];
    }
}

static void write_accumulator(struct warp *w, const struct mma *x, bool half,
                              const struct matrices *m) {
    for (int i = 0; i < x->c_registers; i++) {
        uint32_t v[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int row = (lane >> 2) + 8 * (half ? i : i >> 1), column = 2 * (lane & 3);
            if (half) {
                uint32_t low = fp_encode(f32_of(m->c[row][column]), &fp_f16, ROUND_RN, false);
                uint32_t high = fp_encode(f32_of(m->c[row][column + 1]), &fp_f16, ROUND_RN, false);
                v[lane] = low | high << 16;
            } else {
                v[lane] = m->c[row][column + (i & 1)];
            }
        }
        put32(w, x->d[i], v, ALL_LANES);
    }
}

static void mma_float(struct warp *w, const struct op *o, uint32_t lanes, bool half) {
    if (!whole_warp(w, o, lanes)) return;
    struct mma x = mma_of(o, half);
    const struct launch *l = w->block->launch;
    /* The chip decides, whatever the module was compiled for. */
    unsigned chip = (unsigned)(10 * l->config->capability_major + l->config->capability_minor);
    struct tensor_rule rule = tensor_rule((enum ptx_type)o->type2, l->config->tensor, chip);
    struct matrices m;
    /* D may be one of the sources: its definedness is found out first. */
    define_result(w, o, &x);
    unpack_factors(w, o, &x, &m);
    read_accumulator(w, &x, half, &m);
    struct tensor_format fa = tensor_format((enum ptx_type)o->type2);
    struct tensor_format fb = tensor_format((enum ptx_type)o->type3);
    multiply(&x, &rule, fa.fraction + fb.fraction, &m);
    write_accumulator(w, &x, half, &m);
}

#define MMA_FLOAT(name, half)                                                                      \
    OP_FUNCTION(name) {                                                                            \
        mma_float(w, o, m, half);                                                                  \
    }
MMA_FLOAT(mma_m16n8k8_half, false)
MMA_FLOAT(mma_m16n8k8_half_f16, true)
MMA_FLOAT(mma_m16n8k16_half, false)
MMA_FLOAT(mma_m16n8k16_half_f16, true)
MMA_FLOAT(mma_m16n8k4_tf32, false)
MMA_FLOAT(mma_m16n8k8_tf32, false)
MMA_FLOAT(mma_m16n8k16_fp8, false)
MMA_FLOAT(mma_m16n8k32_fp8, false)

/* ---- integers: exact, the sum modulo 2^32 or (satfinite) clamped ---- */

static int32_t byte_value(uint32_t byte, enum ptx_type type) {
    return type == T_S8 ? (int8_t)byte : (int32_t)byte;
}

static void mma_integer(struct warp *w, const struct op *o, uint32_t lanes) {
    if (!whole_warp(w, o, lanes)) return;
    struct mma x = mma_of(o, false);
    int32_t a[ROWS][DEPTH_MAX], b[DEPTH_MAX][COLUMNS];
    uint32_t d[4][LANES];
    for (int lane = 0; lane < LANES; lane++)
        for (int e = 0; e < x.s.per; e++) {
            for (int r = 0; r < x.s.a; r++)
                a[a_row(&x.s, lane, r)][a_column(&x.s, lane, r, e)] = byte_value(
                    element(source32(w, x.a[r])[lane], &x.s, e), (enum ptx_type)o->type2);
            for (int r = 0; r < x.s.b; r++)
                b[b_row(&x.s, lane, r, e)][lane >> 2] = byte_value(
                    element(source32(w, x.b[r])[lane], &x.s, e), (enum ptx_type)o->type3);
        }
    for (int i = 0; i < x.s.c; i++)
        for (int lane = 0; lane < LANES; lane++) {
            int row = (lane >> 2) + 8 * (i >> 1), n = 2 * (lane & 3) + (i & 1);
            int64_t sum = (int32_t)source32(w, x.c[i])[lane];
            for (int k = 0; k < x.s.depth; k++) sum += (int64_t)a[row][k] * b[k][n];
            if (o->flags & FLAG_SATFINITE)
                sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            d[i][lane] = (uint32_t)sum;
        }
    define_result(w, o, &x);
    for (int i = 0; i < x.s.c; i++) put32(w, x.d[i], d[i], ALL_LANES);
}

#define MMA_INTEGER(name)                                                                          \
    OP_FUNCTION(name) {                                                                            \
        mma_integer(w, o, m);                                                                      \
    }
MMA_INTEGER(mma_m8n8k16_int8)
MMA_INTEGER(mma_m16n8k16_int8)
MMA_INTEGER(mma_m16n8k32_int8)

/* ---- matrices between shared memory and registers ---- */

/*
 * Lanes 8i..8i+7 hold the addresses of the 8 rows of matrix i, 16 bytes each. Lane l gets elements
 * 2(l%4) and 2(l%4)+1 of row l/4; with .trans of column l/4.
 */
OP_FUNCTION(ldmatrix) {
    if (!whole_warp(w, o, m)) return;
    uint8_t rows[LANES][16] = {{0}};
    uint8_t known[LANES] = {0}; /* one bit an element */
    struct access a;
    uint32_t givers = o->vector == 4 ? ALL_LANES : (1u << (8 * o->vector)) - 1;
    access_start(&a, w, o, givers, o->a, o->imm, o->address64 & 1, (enum ptx_space)o->space, 16,
                 ACCESS_READ);
    while (access_next(&a)) {
        uint32_t defined[8];
        for (int e = 0; e < 8; e++) defined[e] = access_defined(&a, (uint32_t)(2 * e), 2);
        EACH_SET_LANE(i, a.lanes) {
            memcpy(rows[i], a.region->host + a.at[i], 16);
            for (int e = 0; e < 8; e++) known[i] |= (uint8_t)((defined[e] >> i & 1) << e);
        }
    }
    for (int k = 0; k < o->vector; k++) {
        uint32_t v[LANES], mask = 0;
        for (int lane = 0; lane < LANES; lane++) {
            uint16_t half[2];
            bool good = true;
            for (int h = 0; h < 2; h++) {
                int row = o->flags & FLAG_TRANS ? 2 * (lane & 3) + h : lane >> 2;
                int column = o->flags & FLAG_TRANS ? lane >> 2 : 2 * (lane & 3) + h;
                memcpy(&half[h], &rows[8 * k + row][2 * column], 2);
                good = good && (known[8 * k + row] >> column & 1);
            }
            v[lane] = half[0] | (uint32_t)half[1] << 16;
            mask |= (uint32_t)good << lane;
        }
        put32(w, o->list[k], v, ALL_LANES);
        define(w, o, o->list[k], ALL_LANES, mask);
    }
}

OP_FUNCTION(stmatrix) {
    if (!whole_warp(w, o, m)) return;
    uint8_t rows[LANES][16] = {{0}};
    uint8_t known[LANES];
    memset(known, 0xff, sizeof known);
    for (int k = 0; k < o->vector; k++) {
        const uint32_t *v = source32(w, o->list[k]);
        uint32_t defined = defined_of(w, o->list[k]);
        for (int lane = 0; lane < LANES; lane++)
            for (int h = 0; h < 2; h++) {
                int row = o->flags & FLAG_TRANS ? 2 * (lane & 3) + h : lane >> 2;
                int column = o->flags & FLAG_TRANS ? lane >> 2 : 2 * (lane & 3) + h;
                uint16_t half = (uint16_t)(v[lane] >> (16 * h));
                memcpy(&rows[8 * k + row][2 * column], &half, 2);
                if (!(defined >> lane & 1)) known[8 * k + row] &= (uint8_t) ~(1u << column);
            }
    }
    struct access a;
    uint32_t takers = o->vector == 4 ? ALL_LANES : (1u << (8 * o->vector)) - 1;
    access_start(&a, w, o, takers, o->a, o->imm, o->address64 & 1, (enum ptx_space)o->space, 16,
                 ACCESS_WRITE);
    while (access_next(&a)) {
        EACH_SET_LANE(i, a.lanes) memcpy(a.region->host + a.at[i], rows[i], 16);
        for (int e = 0; e < 8; e++) {
            uint32_t good = 0;
            EACH_SET_LANE(i, a.lanes) good |= (uint32_t)(known[i] >> e & 1) << i;
            access_define(&a, (uint32_t)(2 * e), 2, good);
        }
    }
}
