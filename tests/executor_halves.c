/*
 * Pairs of which one half was never written: packing, moving, computing with and storing them is
 * no fault as long as that half is not used; each case has a twin that uses it.
 */
#include "executor_tools.h"

/*
 * %h1 is defined, %h2 never written; %r1 = {%h1, %h2}; %r2 = {%h2, %h1}. A case leaves in %h9 what
 * comes of the defined half; its twin what comes of the other, which the store then finds.
 */
static const struct half_case {
    const char *name, *good, *bad;
} cases[] = {
    {"unpacked", "mov.b32 {%h9,%h8}, %r1;", "mov.b32 {%h8,%h9}, %r1;"},
    {"the high half", "mov.b32 {%h8,%h9}, %r2;", "mov.b32 {%h9,%h8}, %r2;"},
    {"copied", "mov.b32 %r3, %r1;\nmov.b32 {%h9,%h8}, %r3;",
     "mov.b32 %r3, %r1;\nmov.b32 {%h8,%h9}, %r3;"},
    {"truncated", "cvt.u16.u32 %h9, %r1;", "cvt.u16.u32 %h9, %r2;"},
    {"masked", "and.b32 %r3, %r1, 0xffff;\ncvt.u16.u32 %h9, %r3;\nst.global.u32 [%rd1], %r3;",
     "and.b32 %r3, %r1, 0xffff0000;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;"},
    {"shifted down", "shr.u32 %r3, %r2, 16;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;",
     "shr.u32 %r3, %r1, 16;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;"},
    {"shifted down with sign", "shr.s32 %r3, %r2, 16;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;",
     "shr.s32 %r3, %r1, 16;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;"},
    {"shifted up", "shl.b32 %r3, %r1, 16;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;",
     "shl.b32 %r3, %r2, 16;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;"},
    {"put together again",
     "mov.b32 {%h3,%h4}, %r1;\nmov.b32 %r3, {%h3,%h3};\nst.global.u32 [%rd1], "
     "%r3;\nmov.u16 %h9, 0;",
     "mov.b32 {%h3,%h4}, %r1;\nmov.b32 %r3, {%h3,%h4};\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, "
     "0;"},
    {"permuted", "prmt.b32 %r3, %r1, %r2, 0x7610;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;",
     "prmt.b32 %r3, %r1, %r2, 0x5410;\nst.global.u32 [%rd1], %r3;\nmov.u16 %h9, 0;"},
    {"chosen", "setp.eq.u32 %p1, %r7, %r7;\nselp.b32 %r3, %r1, %r2, %p1;\nmov.b32 {%h9,%h8}, %r3;",
     "setp.eq.u32 %p1, %r7, %r7;\nselp.b32 %r3, %r2, %r1, %p1;\nmov.b32 {%h9,%h8}, %r3;"},
    {"added to itself, half by half",
     "add.f16x2 %r3, %r1, %r1;\nadd.f16x2 %r3, %r3, %r1;\nmov.b32 {%h9,%h8}, %r3;",
     "add.f16x2 %r3, %r1, %r1;\nadd.f16x2 %r3, %r3, %r2;\nmov.b32 {%h9,%h8}, %r3;"},
    {"an accumulator",
     "mov.b32 %r3, 0;\nfma.rn.f16x2 %r3, %r1, %r1, %r3;\nfma.rn.f16x2 %r3, %r1, "
     "%r1, %r3;\nmov.b32 {%h9,%h8}, %r3;",
     "mov.b32 %r3, 0;\nfma.rn.f16x2 %r3, %r1, %r1, %r3;\nfma.rn.f16x2 %r3, %r2, %r1, "
     "%r3;\nmov.b32 {%h9,%h8}, %r3;"},
    {"added as one number", "mov.b32 {%h9,%h8}, %r1;",
     "add.u32 %r3, %r1, 1;\nmov.b32 {%h9,%h8}, %r3;"},
    {"compared half by half", "set.eq.f16x2.f16x2 %r3, %r1, %r1;\nmov.b32 {%h9,%h8}, %r3;",
     "set.eq.u32.f16x2 %r3, %r1, %r1;\nmov.b32 {%h8,%h9}, %r3;"},
    {"narrowed from f32", "cvt.rn.f16x2.f32 %r3, %f2, %f1;\nmov.b32 {%h9,%h8}, %r3;",
     "cvt.rn.f16x2.f32 %r3, %f1, %f2;\nmov.b32 {%h9,%h8}, %r3;"},
    {"through 64 bits",
     "mov.b64 %rd5, {%r1,%r2};\nmov.b64 {%r3,%r4}, %rd5;\nmov.b32 {%h8,%h9}, %r4;",
     "mov.b64 %rd5, {%r1,%r2};\nmov.b64 {%r3,%r4}, %rd5;\nmov.b32 {%h9,%h8}, %r4;"},
    {"four in 64 bits", "mov.b64 %rd5, {%h1,%h2,%h2,%h1};\nmov.b64 {%h8,%h7,%h6,%h9}, %rd5;",
     "mov.b64 %rd5, {%h1,%h2,%h2,%h1};\nmov.b64 {%h8,%h7,%h9,%h6}, %rd5;"},
    {"through shared memory", "st.shared.b32 [sh], %r1;\nld.shared.u16 %h9, [sh];",
     "st.shared.b32 [sh], %r1;\nld.shared.u16 %h9, [sh+2];"},
    {"of shared memory half written",
     "st.shared.b16 [sh], %h1;\nld.shared.b32 %r3, [sh];\nmov.b32 {%h9,%h8}, %r3;",
     "st.shared.b16 [sh], %h1;\nld.shared.b32 %r3, [sh];\nmov.b32 {%h8,%h9}, %r3;"},
    {"through a call",
     "{ .param .b32 b; .param .b32 c; st.param.b32 [b], %r1; call (c), same, (b); ld.param.b32 "
     "%r3, "
     "[c]; }\nmov.b32 {%h9,%h8}, %r3;",
     "{ .param .b32 b; .param .b32 c; st.param.b32 [b], %r1; call (c), same, (b); ld.param.b32 "
     "%r3, "
     "[c]; }\nmov.b32 {%h8,%h9}, %r3;"},
    {"defined first, in halves later",
     "mov.u32 %r3, 5;\nadd.u32 %r3, %r3, %r6;\nmov.b32 %r3, %r1;\nmov.b32 {%h9,%h8}, %r3;",
     "mov.b32 %r3, %r1;\nadd.u32 %r3, %r3, %r6;\nmov.b32 {%h9,%h8}, %r3;"},
    {"a decision", "setp.eq.u16 %p1, %h1, 3;\n@%p1 bra on;\non:\nmov.u16 %h9, 0;",
     "mov.b32 {%h3,%h4}, %r1;\nsetp.eq.u16 %p1, %h4, 3;\n@%p1 bra on;\non:\nmov.u16 %h9, 0;"},
};
enum { CASES = sizeof cases / sizeof *cases };

static CUresult run(const char *body, CUdeviceptr out) {
    char text[3000];
    snprintf(
        text, sizeof text,
        ".version 7.8\n.target sm_90\n.address_size 64\n"
        ".func (.param .b32 q) same(.param .b32 p)\n{\n.reg .b32 %%r;\nld.param.b32 %%r, [p];\n"
        "st.param.b32 [q], %%r;\nret;\n}\n"
        ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %%rd<9>;\n.reg .b32 %%r<9>;\n"
        ".reg .f32 %%f<3>;\n.reg .b16 %%h<12>;\n.reg .pred %%p<3>;\n"
        ".shared .align 8 .b8 sh[8];\nld.param.u64 %%rd1, [out];\nmov.u32 %%r7, %%tid.x;\n"
        "mov.b16 %%h1, 0x3c00;\nmov.f32 %%f1, 0f3F800000;\nmov.b32 %%r1, {%%h1,%%h2};\n"
        "mov.b32 %%r2, {%%h2,%%h1};\n%s\nst.global.u16 [%%rd1+8], %%h9;\nret;\n}\n",
        body);
    CUmodule module = tools_load(text, NULL);
    if (!module) {
        tap_note("%s", tools_log);
        return -1;
    }
    void *params[] = {&out};
    CUresult result = tools_launch(tools_function(module, "k"), 1, 1, 0, params);
    cuModuleUnload(module);
    return result;
}

int main(void) {
    tap_plan(3 * CASES);
    tools_start();
    CUdeviceptr out = tools_device(NULL, 64);
    for (int i = 0; i < CASES; i++) {
        uint64_t before = tools_findings();
        is(run(cases[i].good, out), 0, cases[i].name);
        is(tools_findings(), before, "no finding");
        if (tools_findings() != before) tap_note("%s", kvfExecutorLastFinding());
        is(run(cases[i].bad, out), 719, "but one where the other half is used");
    }
    return tap_done();
}
