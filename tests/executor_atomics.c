/*
 * Every spelling of every atomic operation and reduction, against its definition: each thread has a
 * cell of its own, so that what it gets and leaves does not depend on an order. In global memory,
 * in shared memory, and in both by generic addresses.
 */
#include "executor_oracle.h"
#include "executor_tools.h"
#include "forms.h"

enum { THREADS = 256 };

static uint64_t inputs[THREADS][4], outputs[THREADS][2]; /* cell, b, c; got, left */
static CUdeviceptr device_in, device_out;

static uint64_t pick(int bits) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     UINT64_MAX,
                                     INT64_MAX,
                                     (uint64_t)INT64_MIN,
                                     0x7fffffff,
                                     0x80000000,
                                     0x3ff0000000000000,
                                     0xbff0000000000000,
                                     0x3f8000003f800000,
                                     0x0000000100000001,
                                     0x8000000180000001,
                                     0x007fffff007fffff,
                                     0x7f8000007f800000,
                                     0xff800000ff800000,
                                     0x7c003c007c003c00,
                                     0x7f807fc0fc000001,
                                     0x00800000008fffff,
                                     0x8080000080a00000};
    enum { EDGES = sizeof edges / sizeof *edges };
    uint64_t x = (uint64_t)tools_random() << 32 | tools_random();
    switch (tools_random() % 4) {
    case 0: x = edges[x % EDGES]; break;
    case 1: x &= 7; break; /* so that values meet */
    default: break;
    }
    return bits == 64 ? x : x & (((uint64_t)1 << bits) - 1);
}

/* ---- the definitions ---- */

static uint64_t sum_of(const char *type, uint64_t x, uint64_t y, bool flush) {
    if (!strcmp(type, "f64")) {
        double r = q_f64(x) + q_f64(y);
        return isnan(r) ? 0x7ff8000000000000u : q_bits64(r);
    }
    if (!strcmp(type, "f32")) {
        if (flush) x = q_flush(x), y = q_flush(y);
        float r = q_f32(x) + q_f32(y);
        uint64_t u = isnan(r) ? 0x7fffffff : q_bits32(r);
        return flush ? q_flush(u) : u;
    }
    if (strstr(type, "x2")) {
        const char *half = type[0] == 'b' ? "bf16" : "f16";
        return sum_of(half, x & 0xffff, y & 0xffff, flush) |
               sum_of(half, x >> 16 & 0xffff, y >> 16 & 0xffff, flush) << 16;
    }
    if (q_float(type))
        return oracle_encode(
            type, oracle_decode(type, (uint32_t)x) + oracle_decode(type, (uint32_t)y), 'n', false);
    return x + y;
}

static bool less(const char *type, uint64_t x, uint64_t y) {
    int bits = q_bits(type);
    return q_value(x, bits, q_signed(type)) < q_value(y, bits, q_signed(type));
}

static uint64_t defined_as(const struct query *q, uint64_t old, uint64_t b, uint64_t c,
                           bool global) {
    const char *type = q->word[q->words - 1];
    if (q_has(q, "add")) return sum_of(type, old, b, global);
    if (q_has(q, "min")) return less(type, b, old) ? b : old;
    if (q_has(q, "max")) return less(type, old, b) ? b : old;
    if (q_has(q, "and")) return old & b;
    if (q_has(q, "or")) return old | b;
    if (q_has(q, "xor")) return old ^ b;
    if (q_has(q, "exch")) return b;
    if (q_has(q, "cas")) return old == b ? c : old;
    if (q_has(q, "inc")) return old >= b ? 0 : old + 1;
    if (q_has(q, "dec")) return old == 0 || old > b ? b : old - 1;
    return ~old; /* nothing gives this */
}

/* ---- a kernel around one of them ---- */

static const char *register_of(int bits) {
    return bits == 64 ? "%rd" : bits == 32 ? "%r" : "%h";
}

static void kernel_of(char *text, size_t size, const char *opcode, const struct query *q,
                      bool shared) {
    int bits = q_bits(q->word[q->words - 1]);
    const char *r = register_of(bits);
    bool generic = !q_has(q, "global") && !strstr(opcode, ".shared");
    char got[40] = "", keep[80] = "", last[40] = "";
    if (q_is(q, "atom")) {
        snprintf(got, sizeof got, "%s14, ", r);
        snprintf(keep, sizeof keep, "st.global.b%d [%%rd4], %s14;\n", bits, r);
    }
    if (q_has(q, "cas")) snprintf(last, sizeof last, ", %s13", r);
    const char *address = generic ? "%rd6" : shared ? "%r9" : "%rd10";
    snprintf(
        text, size,
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 p, .param .u64 q)\n{\n.reg .b64 %%rd<20>;\n.reg .b32 "
        "%%r<20>;\n.reg .b16 %%h<20>;\n.shared .align 8 .b8 sh[2048];\n"
        "ld.param.u64 %%rd1, [p];\nld.param.u64 %%rd2, [q];\nmov.u32 %%r1, %%tid.x;\n"
        "mul.wide.u32 %%rd3, %%r1, 32;\nadd.u64 %%rd3, %%rd1, %%rd3;\n"
        "mul.wide.u32 %%rd4, %%r1, 16;\nadd.u64 %%rd4, %%rd2, %%rd4;\nadd.u64 %%rd10, %%rd4, 8;\n"
        "ld.global.b64 %%rd5, [%%rd3];\nld.global.b%d %s12, [%%rd3+8];\n"
        "ld.global.b%d %s13, [%%rd3+16];\nmov.u32 %%r9, sh;\nmad.lo.u32 %%r9, %%r1, 8, %%r9;\n"
        "st.global.b64 [%%rd10], %%rd5;\nst.shared.b64 [%%r9], %%rd5;\n%s"
        "%s %s[%s], %s12%s;\n%s%sret;\n}\n",
        bits, r, bits, r,
        shared ? "cvt.u64.u32 %rd6, %r9;\ncvta.shared.u64 %rd6, %rd6;\n" : "mov.u64 %rd6, %rd10;\n",
        opcode, got, address, r, last, keep,
        shared ? "ld.shared.b64 %rd5, [%r9];\nst.global.b64 [%rd10], %rd5;\n" : "");
}

static int run(const char *opcode, const struct query *q, bool shared) {
    char text[3000];
    kernel_of(text, sizeof text, opcode, q, shared);
    CUmodule module = tools_load(text, NULL);
    if (!module) {
        tap_note("%s: %s", opcode, tools_log);
        return 1;
    }
    int bits = q_bits(q->word[q->words - 1]), wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        inputs[i][0] = pick(64);
        for (int k = 1; k < 3; k++) inputs[i][k] = pick(bits);
        if (tools_random() % 2) inputs[i][1] = inputs[i][0]; /* for cas to succeed */
    }
    memset(outputs, 0, sizeof outputs);
    cuMemcpyHtoD_v2(device_in, inputs, sizeof inputs);
    cuMemcpyHtoD_v2(device_out, outputs, sizeof outputs);
    void *params[] = {&device_in, &device_out};
    if (tools_launch(tools_function(module, "k"), 1, THREADS, 0, params)) wrong++;
    cuMemcpyDtoH_v2(outputs, device_out, sizeof outputs);
    cuModuleUnload(module);
    uint64_t mask = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    for (int i = 0; i < THREADS; i++) {
        uint64_t cell = inputs[i][0], old = cell & mask, b = inputs[i][1] & mask;
        uint64_t r = defined_as(q, old, b, inputs[i][2] & mask, !shared);
        uint64_t left = (cell & ~mask) | (r & mask), got = q_is(q, "atom") ? old : 0;
        if (outputs[i][0] == got && outputs[i][1] == left) continue;
        if (!wrong++)
            tap_note("%s, %s memory: %llx with %llx left %llx and gave %llx, not %llx and %llx",
                     opcode, shared ? "shared" : "global", (unsigned long long)old,
                     (unsigned long long)b, (unsigned long long)outputs[i][1],
                     (unsigned long long)outputs[i][0], (unsigned long long)left,
                     (unsigned long long)got);
    }
    return wrong;
}

struct tally {
    int spellings, wrong;
};

static bool each_spelling(void *context, const char *opcode) {
    struct tally *t = context;
    struct query q;
    q_parse(&q, opcode);
    if (!strstr(opcode, ".shared")) t->wrong += run(opcode, &q, false);
    if (!q_has(&q, "global")) t->wrong += run(opcode, &q, true);
    t->spellings++;
    return true;
}

int main(void) {
    int forms = 0;
    for (int form = 0; form < FORM_COUNT; form++) forms += form_table[form].class == CLASS_ATOMIC;
    tap_plan(forms);
    tools_start();
    device_in = tools_device(NULL, sizeof inputs);
    device_out = tools_device(NULL, sizeof outputs);
    for (int form = 0; form < FORM_COUNT; form++) {
        if (form_table[form].class != CLASS_ATOMIC) continue;
        struct tally t = {0};
        form_spell(form, each_spelling, &t);
        ok(t.spellings > 0 && !t.wrong, "%s: %d spellings", form_table[form].pattern, t.spellings);
    }
    return tap_done();
}
