/*
 * Every form of arithmetic, comparison, selection and conversion, in every spelling, on hard and
 * random operands against the oracle; then each form once more with a fault planted, which must
 * show.
 */
#include <stdarg.h>

#include "executor_kernels.h"
#include "executor_oracle_float.h"
#include "executor_oracle_integer.h"
#include "executor_tools.h"
#include "mutate.h"

#define HEADER ".version 9.0\n.target sm_90\n.address_size 64\n"

static uint64_t inputs[LANES_TESTED][SOURCES], outputs[LANES_TESTED][RESULTS];
static CUdeviceptr device_in, device_out;

/* ---- operands ---- */

static uint64_t random64(void) {
    return (uint64_t)tools_random() << 40 ^ (uint64_t)tools_random() << 20 ^ tools_random();
}

static uint64_t hard_f32(uint32_t k) {
    static const uint32_t table[] = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000,
                                     0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x00000001,
                                     0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
                                     0x3f000000, 0x3fc00000, 0x40200000, 0x4b000001, 0x4f000000,
                                     0xcf000000, 0x5f000000, 0x7e800001, 0x43e00000, 0x477fe000,
                                     0x38800000, 0x33000000, 0x33000001, 0x3c000000, 0x3effffff};
    return table[k % (sizeof table / sizeof *table)];
}

static uint64_t hard_f16(uint32_t k) {
    static const uint16_t table[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00,
                                     0xfe01, 0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff,
                                     0x3800, 0x3e00, 0x4100, 0x3f80, 0xbf80, 0x7f80, 0xff80,
                                     0x7fc0, 0x007f, 0x0080, 0x7f7f, 0x3555, 0x5640, 0x1400};
    return table[k % (sizeof table / sizeof *table)];
}

static uint64_t hard_integer(uint32_t k, int bits) {
    uint64_t top = (uint64_t)1 << (bits - 1);
    const uint64_t table[] = {
        0,      1,        2,        31,      32,        33,         63,
        64,     65,       top,      top - 1, top + 1,   UINT64_MAX, UINT64_MAX - 1,
        7,      15,       16,       17,      0xff,      0x100,      0x8000,
        0x7fff, 0xffffff, 0x800000, 3,       0x55555555};
    return table[k % (sizeof table / sizeof *table)];
}

static uint64_t operand_of(const char *type, uint32_t i, int which) {
    int bits = q_bits(type);
    bool hard = (tools_random() & 3) != 0;
    uint32_t k = tools_random();
    (void)i;
    if (!strcmp(type, "f64")) {
        double x = hard ? (double)q_f32(hard_f32(k)) : 0;
        uint64_t u = 0;
        memcpy(&u, &x, 8);
        if (hard && (k >> 20 & 3) == 0) u ^= (uint64_t)1 << (k >> 8 & 31);
        return hard ? u : random64();
    }
    if (!strcmp(type, "f32") || !strcmp(type, "tf32")) {
        if (hard) return hard_f32(k) ^ ((k >> 20 & 3) == 0 ? 1u << (k >> 8 & 15) : 0);
        if (k & 1) return q_bits32((float)((double)(int32_t)tools_random() / 65536.0));
        return tools_random();
    }
    if (q_float(type)) {
        uint64_t one = hard ? hard_f16(k) : k & 0xffff, two = hard ? hard_f16(k >> 9) : k >> 8;
        return one | (two & 0xffff) << 16;
    }
    if (which > 0 && (k >> 24 & 1)) return k >> 8 & 127; /* amounts and positions */
    return hard ? hard_integer(k, bits ? bits : 32) : random64();
}

static void fill_inputs(const struct query *q, const char *signature) {
    const char *types[SOURCES];
    int n = 0;
    for (const char *s = signature; *s && n < SOURCES; s++) {
        if (*s == 's' || *s == 'S')
            types[n++] = q->type[0];
        else if (*s == 'u' || *s == 'r')
            types[n++] = q->type[1][0] ? q->type[1] : q->type[0];
        else if (strchr("248pk", *s))
            types[n++] = "u32";
    }
    while (n < SOURCES) types[n++] = "u32";
    for (int i = 0; i < LANES_TESTED; i++)
        for (int k = 0; k < SOURCES; k++) inputs[i][k] = operand_of(types[k], (uint32_t)i, k);
}

/* ---- running one spelling ---- */

static bool run_kernel(const char *text) {
    CUresult result;
    CUmodule module = tools_load(text, &result);
    if (!module) {
        printf("# refused: %s", tools_log);
        return false;
    }
    void *params[] = {&device_in, &device_out};
    cuMemcpyHtoD_v2(device_in, inputs, sizeof inputs);
    result = tools_launch(tools_function(module, "k"), LANES_TESTED / 64, 64, 0, params);
    cuMemcpyDtoH_v2(outputs, device_out, sizeof outputs);
    cuModuleUnload(module);
    if (result) printf("# launch: %d %s\n", result, kvfExecutorLastFinding());
    return result == 0;
}

static bool oracle(struct query *q) {
    if (q_is(q, "cvt")) return oracle_convert(q);
    if (q_is(q, "setp") || q_is(q, "set") || q_is(q, "selp") || q_is(q, "slct"))
        return oracle_compare(q);
    if (!strcmp(q->type[0], "pred")) {
        bool x = q->a & 1, y = q->b & 1;
        q->q = q_is(q, "and") ? x && y : q_is(q, "or") ? x || y : q_is(q, "xor") ? x != y : !x;
        return true;
    }
    if (q_float(q->type[0])) return oracle_float(q);
    return oracle_integer(q);
}

static bool near_enough(const struct query *q, uint64_t got, uint64_t want) {
    if (got == want) return true;
    if (q->relative == 0) return false;
    if (q->relative == 1) { /* 16-bit approximations: within one unit of each half */
        for (int h = 0; h < 32; h += 16) {
            int d = (int)(got >> h & 0xffff) - (int)(want >> h & 0xffff);
            if (d < -1 || d > 1) return false;
        }
        return true;
    }
    bool wide = !strcmp(q->type[0], "f64");
    double x = wide ? q_f64(got) : q_f32(got), y = wide ? q_f64(want) : q_f32(want);
    double error = fabs(x - y);
    return error <= q->absolute || error <= q->relative * fabs(y) ||
           (fabs(y) < 0x1p-126 && error <= 0x1p-148);
}

/* Registers wider than the destination type are sign- or zero-extended by it. */
static uint64_t extended(const struct query *q, uint64_t d, int register_bits, bool relaxed) {
    int bits = q_bits(q->type[0]);
    if (!relaxed || register_bits <= bits || !q_signed(q->type[0])) return d;
    return q_cut(q_value(d, bits, true), register_bits);
}

static int report_wrong(const char *opcode, int lane, int which, uint64_t got, uint64_t want) {
    static int shown;
    if (shown++ < 40)
        printf("# %s: a=%llx b=%llx c=%llx e=%llx: result %d is %llx, not %llx\n", opcode,
               (unsigned long long)inputs[lane][0], (unsigned long long)inputs[lane][1],
               (unsigned long long)inputs[lane][2], (unsigned long long)inputs[lane][3], which,
               (unsigned long long)got, (unsigned long long)want);
    return 1;
}

static bool quiet;

static int check_spelling(const char *opcode, const char *signature, bool relaxed_wide) {
    struct kernel_text k;
    struct query q = {0};
    int immediate = (int)(tools_random() & 255), wrong = 0;
    if (!kernel_build(&k, opcode, signature, HEADER, relaxed_wide, immediate)) return -1;
    q_parse(&q, opcode);
    fill_inputs(&q, signature);
    if (!run_kernel(k.text)) return 1;
    bool predicate = strchr("qQ", signature[0]) != NULL;
    bool relaxed = strchr(signature, 'e') || strchr(signature, 'r');
    for (int i = 0; i < LANES_TESTED; i++) {
        q.d = 0;
        q.relative = q.absolute = 0;
        q.a = inputs[i][0];
        q.b = inputs[i][1];
        q.c = inputs[i][2];
        q.e = inputs[i][3];
        q.immediate = immediate;
        q.carry = (uint32_t)inputs[i][4] != 0;
        int at = 0; /* predicates come after the other sources */
        for (const char *s = signature; *s; s++) {
            if (*s == 'p') q.p = (uint32_t)inputs[i][at] != 0;
            if (*s == 'k') {
                if (at == 0)
                    q.a = (uint32_t)inputs[i][0] != 0;
                else
                    q.b = (uint32_t)inputs[i][1] != 0;
            }
            if (strchr("sSur248pk", *s)) at++;
        }
        if (!oracle(&q)) return -1;
        if (predicate) {
            if (outputs[i][0] != q.q)
                wrong += quiet || report_wrong(opcode, i, 0, outputs[i][0], q.q);
            if (k.results > 1 && outputs[i][1] != q.q2)
                wrong += quiet || report_wrong(opcode, i, 1, outputs[i][1], q.q2);
            continue;
        }
        uint64_t want = extended(&q, q.d, k.result_bits[0], relaxed);
        if (!near_enough(&q, outputs[i][0], want))
            wrong += quiet || report_wrong(opcode, i, 0, outputs[i][0], want);
        if (k.results > 1 && outputs[i][1] != (uint64_t)q.q2)
            wrong += quiet || report_wrong(opcode, i, 1, outputs[i][1], q.q2);
    }
    return wrong;
}

struct tally {
    int form, spellings, wrong, untested;
    char first[128];
};

static bool is_refused(const char *opcode) {
    /* Saturation that cannot change anything is refused, as by ptxas. */
    struct query q;
    q_parse(&q, opcode);
    if (!q_is(&q, "cvt") || !q_has(&q, "sat") || q_float(q.type[0]) || q_float(q.type[1]))
        return false;
    int to = q_bits(q.type[0]), from = q_bits(q.type[1]);
    bool ts = q_signed(q.type[0]), fs = q_signed(q.type[1]);
    return ts == fs ? from <= to : !fs && from < to;
}

static bool each_spelling(void *context, const char *opcode) {
    struct tally *t = context;
    if (is_refused(opcode)) return true;
    const char *signature = form_table[t->form].signature;
    if (!t->first[0]) snprintf(t->first, sizeof t->first, "%s", opcode);
    int wrong = check_spelling(opcode, signature, false);
    if (wrong == 0 && strchr(signature, 'r')) wrong = check_spelling(opcode, signature, true);
    if (wrong < 0)
        t->untested++;
    else
        t->wrong += wrong;
    t->spellings++;
    return true;
}

static bool belongs_here(int form) {
    const struct form *f = &form_table[form];
    return f->class <= CLASS_MOVE && !strchr(f->signature, '*') && !strchr(f->signature, 'n') &&
           form != FORM_isspacep;
}

/* The fault is noticed: the same check on the same form fails. */
static bool mutant_dies(int form, const char *opcode) {
    form_mutate(form);
    quiet = true;
    int wrong = check_spelling(opcode, form_table[form].signature, false);
    quiet = false;
    form_mutate(-1);
    return wrong > 0;
}

/* Every form in every spelling, in the compilation for another instruction set. */
static void check_compilation(const char *name) {
    int wrong = 0;
    setenv("KVF_EXECUTOR_ISA", name, 1);
    for (int form = 0; form < FORM_COUNT; form++) {
        if (!belongs_here(form)) continue;
        struct tally t = {.form = form};
        form_spell(form, each_spelling, &t);
        wrong += t.wrong + t.untested;
    }
    unsetenv("KVF_EXECUTOR_ISA");
    is(wrong, 0, name);
}

int main(void) {
    int forms = 0;
    for (int form = 0; form < FORM_COUNT; form++) forms += belongs_here(form);
    tap_plan(2 * forms + 2);
    tools_start();
    device_in = tools_device(NULL, sizeof inputs);
    device_out = tools_device(NULL, sizeof outputs);
    for (int form = 0; form < FORM_COUNT; form++) {
        if (!belongs_here(form)) continue;
        struct tally t = {.form = form};
        form_spell(form, each_spelling, &t);
        ok(t.spellings > 0 && t.wrong == 0 && t.untested == 0, "%s: %d spellings%s",
           form_table[form].pattern, t.spellings, t.untested ? ", no oracle" : "");
        ok(mutant_dies(form, t.first), "%s: a planted fault shows", form_table[form].name);
    }
    check_compilation("base");
    check_compilation("avx2");
    return tap_done();
}
