/*
 * What the checks say of accesses narrower than a word, of masks and barriers: each fault has a
 * twin without it.
 */
#include "executor_tools.h"

static const struct fault {
    const char *name, *body, *finding; /* null: none */
} faults[] = {
    {"halves of one word read and written each by its own thread",
     "ld.shared.u16 %h1, [%r2];\nadd.u16 %h1, %h1, 1;\nst.shared.u16 [%r2], %h1;", NULL},
    {"a half written after another thread read it",
     "ld.shared.u16 %h1, [%r3];\nst.shared.u16 [%r2], %h1;", "write after read"},
    {"the same with a barrier between",
     "ld.shared.u16 %h1, [%r3];\nbar.sync 0;\nst.shared.u16 [%r2], %h1;", NULL},
    {"a half written after others read the word",
     "ld.shared.u32 %r5, [sh];\nst.shared.u16 [%r2], %h2;", "write after read"},
    {"a word written after others read its halves",
     "ld.shared.u16 %h1, [%r3];\nst.shared.u32 [%r4], 0;", "write after read"},
    {"a half read after another thread wrote it",
     "st.shared.u16 [%r2], %h2;\nld.shared.u16 %h1, [%r3];", "read after write"},
    {"bytes of one half read and written each by its own thread",
     "ld.shared.u8 %h1, [%r6];\nadd.u16 %h1, %h1, 1;\nst.shared.u8 [%r6], %h1;", NULL},
    {"a mask without its own lane", "vote.sync.any.pred %p1, %p1, 0xfffffffe;", "does not name it"},
    {"masks that overlap",
     "shl.b32 %r7, 1, %r1;\nor.b32 %r7, %r7, 1;\nvote.sync.any.pred %p1, %p1, %r7;",
     "different masks"},
    {"every lane for itself", "shl.b32 %r7, 1, %r1;\nvote.sync.any.pred %p1, %p1, %r7;", NULL},
    {"a lane that has left is not waited for",
     "setp.eq.u32 %p2, %r1, 3;\n@%p2 exit;\nvote.sync.any.pred %p1, %p1, -1;", NULL},
    {"lanes that wait for a lane behind them in the text",
     "setp.eq.u32 %p2, %r1, 31;\n@%p2 bra set;\nwait:\nld.volatile.shared.u32 %r5, [sh];\n"
     "setp.eq.u32 %p3, %r5, 0;\n@%p3 bra wait;\nbra end;\nset:\nst.volatile.shared.u32 [sh], "
     "1;\nend:",
     NULL},
    {"a barrier's and: one of 64 threads is against",
     "mov.u32 %r5, %tid.x;\nsetp.ne.u32 %p2, %r5, 40;\nbar.red.and.pred %p3, 0, %p2;\n@%p3 trap;",
     NULL},
    {"a barrier's or: one of 64 threads is for",
     "mov.u32 %r5, %tid.x;\nsetp.eq.u32 %p2, %r5, 40;\nbar.red.or.pred %p3, 0, %p2;\n@!%p3 trap;",
     NULL},
    {"warps that meet at a barrier with different counts",
     "mov.u32 %r5, %tid.x;\nsetp.lt.u32 %p2, %r5, 32;\n@%p2 bra few;\nbar.sync 1, 64;\nbra "
     "out;\nfew:\nbar.sync 1, 96;\nout:",
     "different counts"},
    {"an exchange initialises",
     ".shared .b32 cell;\natom.shared.exch.b32 %r5, [cell], 1;\nbar.sync 0;\nld.shared.u32 %r5, "
     "[cell];\nsetp.eq.u32 %p2, %r5, 9;\n@%p2 exit;",
     NULL},
    {"a sum does not",
     ".shared .b32 cell;\natom.shared.add.u32 %r5, [cell], 1;\nbar.sync 0;\nld.shared.u32 %r5, "
     "[cell];\nsetp.eq.u32 %p2, %r5, 9;\n@%p2 exit;",
     "never initialised"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

/* 64 threads over 256 bytes that the first of them has set to 0; %r2 is the thread's own half, %r3
 * that of the one across, %r4 its own word, %r6 its own byte. */
static CUresult run(const struct fault *f) {
    char text[2000];
    snprintf(text, sizeof text,
             ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
             ".reg .b32 %%r<9>;\n.reg .b16 %%h<3>;\n.reg .pred %%p<4>;\n"
             ".shared .align 16 .b8 sh[256];\nmov.u32 %%r1, %%tid.x;\nmov.u16 %%h2, 7;\n"
             "mov.u32 %%r8, sh;\nmad.lo.u32 %%r2, %%r1, 2, %%r8;\nsub.u32 %%r3, 63, %%r1;\n"
             "mad.lo.u32 %%r3, %%r3, 2, %%r8;\nmad.lo.u32 %%r4, %%r1, 4, %%r8;\n"
             "add.u32 %%r6, %%r1, %%r8;\nst.shared.u32 [%%r4], 0;\nmov.u32 %%r1, %%laneid;\n"
             "setp.eq.u32 %%p1, %%r1, 5;\nbar.sync 0;\n%s\nret;\n}\n",
             f->body);
    CUmodule module = tools_load(text, NULL);
    if (!module) tap_note("%s", tools_log);
    CUresult result = tools_launch(tools_function(module, "k"), 1, 64, 0, NULL);
    if (module) cuModuleUnload(module);
    return result;
}

/* What nvcc makes of assert(). */
static void check_assert(void) {
    CUmodule module = tools_load(
        ".version 7.8\n.target sm_90\n.address_size 64\n"
        ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 w, "
        ".param .b64 c) .noreturn;\n"
        ".global .align 1 .b8 message[6] = {120, 32, 62, 32, 48};\n"
        ".global .align 1 .b8 where[2] = {107};\n"
        ".visible .entry k(.param .u32 x)\n{\n.reg .b32 %r<3>;\n.reg .b64 %rd<5>;\n.reg .pred "
        "%p1;\nld.param.u32 %r1, [x];\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra good;\n"
        "mov.u64 %rd1, message;\nmov.u64 %rd2, where;\n{\n.param .b64 p0;\n.param .b64 p1;\n"
        ".param .b32 p2;\n.param .b64 p3;\n.param .b64 p4;\nst.param.b64 [p0], "
        "%rd1;\nst.param.b64 [p1], %rd2;\nst.param.b32 [p2], 7;\nst.param.b64 [p3], "
        "%rd2;\nst.param.b64 [p4], 1;\ncall.uni __assertfail, (p0, p1, p2, p3, p4);\n}\n"
        "good:\nret;\n}\n",
        NULL);
    if (!module) tap_note("%s", tools_log);
    uint32_t x = 1;
    void *params[] = {&x};
    is(tools_launch(tools_function(module, "k"), 1, 32, 0, params), 0, "an assertion that holds");
    x = 0;
    is(tools_launch(tools_function(module, "k"), 1, 32, 0, params), 710, "one that fails");
    contains(kvfExecutorLastFinding(), "assertion failed: x > 0", "is told");
}

int main(void) {
    tap_plan(2 * FAULTS + 3);
    setenv("KVF_EXECUTOR_STEPS", "1000000", 1);
    tools_start();
    for (int i = 0; i < FAULTS; i++) {
        uint64_t before = tools_findings();
        is(run(&faults[i]), faults[i].finding ? 719 : 0, faults[i].name);
        if (faults[i].finding)
            contains(kvfExecutorLastFinding(), faults[i].finding, "which is what it says");
        else
            is(tools_findings(), before, "no finding");
    }
    check_assert();
    return tap_done();
}
