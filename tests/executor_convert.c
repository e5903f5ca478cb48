/*
 * Conversions in every spelling on every input of 16 bits; of f32, two million patterns for the
 * usual ones and a quarter of a million for every other spelling: all exponents, every
 * neighbourhood of a rounding boundary of the narrow formats, and random bits.
 */
#include <stdarg.h>

#include "executor_kernels.h"
#include "executor_oracle_float.h"
#include "executor_tools.h"

enum { MANY = 1 << 16, CHUNKS = 32 };

static uint64_t (*inputs)[SOURCES], (*outputs)[RESULTS];
static CUdeviceptr device_in, device_out;

struct conversion {
    const char *opcode, *signature;
};

/* Approximations of 16-bit formats, which have as few inputs. */
static const struct conversion approximations[] = {
    {"ex2.approx.f16", "ds"},
    {"ex2.approx.ftz.bf16", "ds"},
    {"tanh.approx.f16", "ds"},
    {"tanh.approx.bf16", "ds"},
};

/* Those f32 conversions that see all the patterns; the other spellings see an eighth. */
static const char *const thorough[] = {
    "cvt.rn.f16.f32",
    "cvt.rz.f16.f32",
    "cvt.rn.bf16.f32",
    "cvt.rp.bf16.f32",
    "cvt.rn.bf16x2.f32",
    "cvt.rn.relu.f16x2.f32",
    "cvt.rn.satfinite.e4m3x2.f32",
    "cvt.rn.satfinite.e5m2x2.f32",
    "cvt.rn.satfinite.relu.e4m3x2.f32",
    "cvt.rna.tf32.f32",
    "cvt.rn.tf32.f32",
    "cvt.rni.s32.f32",
    "cvt.rzi.s32.f32",
    "cvt.rzi.u32.f32",
    "cvt.rzi.s64.f32",
    "cvt.rmi.u16.f32",
    "cvt.rpi.s8.f32",
    "cvt.rni.f32.f32",
};

static int compare_all(const struct conversion *c) {
    int wrong = 0;
    struct query q = {0};
    q_parse(&q, c->opcode);
    for (int i = 0; i < MANY; i++) {
        q.a = inputs[i][0];
        q.b = inputs[i][1];
        q.d = 0;
        q.relative = 0;
        bool known = q_is(&q, "cvt") ? oracle_convert(&q) : oracle_float(&q);
        uint64_t got = outputs[i][0], want = q.d;
        int bits = q_bits(q.type[0]);
        if (q_signed(q.type[0]) && bits < 16) want = q_cut(q_value(want, bits, true), 16);
        bool near = q.relative == 1 && (got > want ? got - want : want - got) <= 1;
        if (known && (got == want || near)) continue;
        if (!wrong++)
            printf("# %s of %llx, %llx is %llx, not %llx\n", c->opcode, (unsigned long long)q.a,
                   (unsigned long long)q.b, (unsigned long long)got, (unsigned long long)want);
    }
    return wrong;
}

static CUmodule load(const struct conversion *c) {
    static struct kernel_text k;
    if (!kernel_build(&k, c->opcode, c->signature,
                      ".version 9.0\n.target sm_90\n.address_size 64\n", false, 0))
        return NULL;
    CUmodule module = tools_load(k.text, NULL);
    if (!module) printf("# %s", tools_log);
    return module;
}

static int run_chunk(const struct conversion *c, CUmodule module) {
    void *params[] = {&device_in, &device_out};
    cuMemcpyHtoD_v2(device_in, inputs, MANY * sizeof *inputs);
    if (tools_launch(tools_function(module, "k"), MANY / 256, 256, 0, params)) {
        printf("# %s\n", kvfExecutorLastFinding());
        return MANY;
    }
    cuMemcpyDtoH_v2(outputs, device_out, MANY * sizeof *outputs);
    return compare_all(c);
}

static uint32_t pattern(uint32_t chunk, uint32_t i) {
    /* Sign and exponent from i; fractions near what 2, 3, 7 or 10 bits of them round at. */
    static const uint32_t ends[] = {0,        1,        0x7fffff, 0x400000, 0x3fffff, 0x400001,
                                    0x080000, 0x07ffff, 0x080001, 0x0fffff, 0x180000, 0x8000,
                                    0x7fff,   0x8001,   0x18000,  0x1000,   0xfff,    0x1001,
                                    0x3000,   0x100000, 0x300000, 0x2fffff, 0x200000, 0x600000};
    if (chunk == 0) return i << 16 | (i & 0xffff);
    if (chunk < 25) return (i & 511) << 23 | (ends[chunk - 1] ^ (i >> 9) << 16 >> (i >> 14));
    return tools_random();
}

static int check16(const struct conversion *c) {
    CUmodule module = load(c);
    for (uint32_t i = 0; i < MANY; i++) inputs[i][0] = i | (uint64_t)(MANY - 1 - i) << 16;
    int wrong = module ? run_chunk(c, module) : -1;
    if (module) cuModuleUnload(module);
    return wrong;
}

static int check32(const struct conversion *c) {
    /* Under a sanitizer one round of each will do. */
    const char *sanitizer = getenv("KVF_SANITIZE");
    bool is_slow = sanitizer && *sanitizer;
    uint32_t step = is_slow ? CHUNKS : 8;
    for (size_t i = 0; i < sizeof thorough / sizeof *thorough; i++)
        if (!strcmp(thorough[i], c->opcode)) step = is_slow ? CHUNKS / 2 : 1;
    CUmodule module = load(c);
    int wrong = module ? 0 : -1;
    for (uint32_t chunk = step - 1; chunk < CHUNKS && wrong == 0; chunk += step) {
        for (uint32_t i = 0; i < MANY; i++) {
            inputs[i][0] = pattern(chunk, i);
            inputs[i][1] = pattern(chunk, MANY - 1 - i);
        }
        wrong += run_chunk(c, module);
    }
    if (module) cuModuleUnload(module);
    return wrong;
}

struct tally {
    const char *signature;
    int spellings, wrong;
};

/* 64-bit sources and cvt.pack are left to executor_forms.c. */
static bool each_spelling(void *context, const char *opcode) {
    struct tally *t = context;
    struct conversion c = {opcode, t->signature};
    struct query q = {0};
    q_parse(&q, opcode);
    int to = q_bits(q.type[0]), from = q_bits(q.type[1]);
    bool halves = strstr(q.type[1], "16x2") != NULL;
    if ((from > 16 && !halves && strcmp(q.type[1], "f32")) || q_has(&q, "pack")) return true;
    if (q_has(&q, "sat") && !q_float(q.type[0]) && !q_float(q.type[1])) {
        bool to_signed = q_signed(q.type[0]), from_signed = q_signed(q.type[1]);
        if (to_signed == from_signed ? from <= to : !from_signed && from < to) return true;
    }
    t->spellings++;
    t->wrong += from <= 16 || halves ? check16(&c) : check32(&c);
    return true;
}

/* Forms of which some spelling is tested here. */
static bool converts(int form) {
    const char *pattern = form_table[form].pattern, *last = strrchr(pattern, '.');
    return form_table[form].class == CLASS_CONVERT && !strstr(pattern, "pack") &&
           strcmp(last, ".f64") != 0;
}

int main(void) {
    enum { APPROXIMATIONS = sizeof approximations / sizeof *approximations };
    int forms = 0;
    for (int form = 0; form < FORM_COUNT; form++) forms += converts(form);
    tap_plan(APPROXIMATIONS + forms);
    /* What is not under test here would only cost time. */
    setenv("KVF_EXECUTOR_CHECKS", "none", 1);
    tools_start();
    inputs = calloc(MANY, sizeof *inputs);
    outputs = calloc(MANY, sizeof *outputs);
    device_in = tools_device(NULL, MANY * sizeof *inputs);
    device_out = tools_device(NULL, MANY * sizeof *outputs);
    for (int i = 0; i < APPROXIMATIONS; i++)
        is(check16(&approximations[i]), 0, approximations[i].opcode);
    for (int form = 0; form < FORM_COUNT; form++) {
        if (!converts(form)) continue;
        struct tally t = {.signature = form_table[form].signature};
        form_spell(form, each_spelling, &t);
        ok(t.wrong == 0 && t.spellings > 0, "%s: %d spellings", form_table[form].pattern,
           t.spellings);
    }
    free(inputs);
    free(outputs);
    return tap_done();
}
