/*
 * Conversions on every input of 16 bits, and on two million f32 patterns each: all exponents, every
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

static const struct conversion from16[] = {
    {"cvt.f32.f16", "er"},     {"cvt.f32.bf16", "er"},        {"cvt.f64.f16", "er"},
    {"cvt.f64.bf16", "er"},    {"cvt.rn.f16x2.e4m3x2", "du"}, {"cvt.rn.f16x2.e5m2x2", "du"},
    {"cvt.rni.s32.f16", "er"}, {"cvt.rzi.u8.f16", "er"},      {"cvt.rmi.s64.f16", "er"},
    {"cvt.rpi.u16.f16", "er"}, {"cvt.rni.s32.bf16", "er"},    {"cvt.rzi.u64.bf16", "er"},
    {"cvt.rni.f16.f16", "du"}, {"cvt.rmi.bf16.bf16", "du"},   {"cvt.rn.f16.s16", "er"},
    {"cvt.rz.f16.u16", "er"},  {"cvt.rn.bf16.s16", "er"},     {"cvt.rp.bf16.u16", "er"},
    {"cvt.rn.f32.s16", "er"},  {"cvt.sat.u8.s16", "er"},      {"cvt.s32.s16", "er"},
    {"cvt.u64.u16", "er"},     {"ex2.approx.f16", "ds"},      {"ex2.approx.ftz.bf16", "ds"},
    {"tanh.approx.f16", "ds"}, {"tanh.approx.bf16", "ds"},
};

static const struct conversion from32[] = {
    {"cvt.rn.f16.f32", "er"},
    {"cvt.rz.f16.f32", "er"},
    {"cvt.rn.bf16.f32", "er"},
    {"cvt.rp.bf16.f32", "er"},
    {"cvt.rn.bf16x2.f32", "duu"},
    {"cvt.rn.relu.f16x2.f32", "duu"},
    {"cvt.rn.satfinite.e4m3x2.f32", "duu"},
    {"cvt.rn.satfinite.e5m2x2.f32", "duu"},
    {"cvt.rn.satfinite.relu.e4m3x2.f32", "duu"},
    {"cvt.rna.tf32.f32", "du"},
    {"cvt.rn.tf32.f32", "du"},
    {"cvt.rni.s32.f32", "er"},
    {"cvt.rzi.s32.f32", "er"},
    {"cvt.rzi.u32.f32", "er"},
    {"cvt.rzi.s64.f32", "er"},
    {"cvt.rmi.u16.f32", "er"},
    {"cvt.rpi.s8.f32", "er"},
    {"cvt.rni.f32.f32", "du"},
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

int main(void) {
    enum { FROM16 = sizeof from16 / sizeof *from16, FROM32 = sizeof from32 / sizeof *from32 };
    tap_plan(FROM16 + FROM32);
    /* What is not under test here would only cost time. */
    setenv("KVF_EXECUTOR_CHECKS", "none", 1);
    tools_start();
    inputs = calloc(MANY, sizeof *inputs);
    outputs = calloc(MANY, sizeof *outputs);
    device_in = tools_device(NULL, MANY * sizeof *inputs);
    device_out = tools_device(NULL, MANY * sizeof *outputs);
    for (int c = 0; c < FROM16; c++) {
        CUmodule module = load(&from16[c]);
        for (uint32_t i = 0; i < MANY; i++) inputs[i][0] = i;
        is(module ? run_chunk(&from16[c], module) : -1, 0, from16[c].opcode);
    }
    for (int c = 0; c < FROM32; c++) {
        CUmodule module = load(&from32[c]);
        int wrong = module ? 0 : -1;
        for (uint32_t chunk = 0; chunk < CHUNKS && wrong == 0; chunk++) {
            for (uint32_t i = 0; i < MANY; i++) {
                inputs[i][0] = pattern(chunk, i);
                inputs[i][1] = pattern(chunk, MANY - 1 - i);
            }
            wrong += run_chunk(&from32[c], module);
        }
        is(wrong, 0, from32[c].opcode);
    }
    free(inputs);
    free(outputs);
    return tap_done();
}
