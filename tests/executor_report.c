/* What a program's user sees: text, JSON, leaks, the summary, and a failing exit status. */
#include <sys/wait.h>

#include "executor_tools.h"

/* The program under test: this one, with an argument. */
static int inner(const char *what) {
    CUcontext context;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    if (strcmp(what, "quote") == 0 || strcmp(what, "stuck") == 0) {
        CUmodule module = tools_load(".version 7.8\n.target sm_90\n.address_size 64\n.entry "
                                     "k()\n{\n.reg .b32 %r1;\n.reg .b64 %rd1;\nmov.u64 %rd1, "
                                     "0;\n/* \"a\\b\" */ ld.global.u32 %r1, [%rd1];\n}\n",
                                     NULL);
        CUdeviceptr kept = tools_device(NULL, 4);
        cuLaunchKernel(tools_function(module, "k"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        cuCtxSynchronize();
        cuMemFree_v2(kept);
        return 0;
    }
    CUmodule module = tools_load_file("tests/kernels/basic.ptx");
    float zeros[64] = {0};
    CUdeviceptr a = tools_device(zeros, sizeof zeros), c = tools_device(zeros, sizeof zeros);
    int n = strcmp(what, "bad") ? 64 : 65;
    void *params[] = {&a, &a, &c, &n};
    tools_launch(tools_function(module, "vector_add"), 1, 128, 0, params);
    if (strcmp(what, "leak")) {
        cuMemFree_v2(a);
        cuMemFree_v2(c);
    }
    return 0;
}

static char output[8192];

static int run(const char *self, const char *environment, const char *what) {
    char command[600];
    snprintf(command, sizeof command, "%s %s %s 2>&1", environment, self, what);
    FILE *pipe = popen(command, "r");
    size_t n = pipe ? fread(output, 1, sizeof output - 1, pipe) : 0;
    output[n] = 0;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    if (argc > 1) return inner(argv[1]);
    static const char *const wrong[] = {"KVF_EXECUTOR_ISA=sse",
                                        "KVF_EXECUTOR_FAIL=typo",
                                        "KVF_EXECUTOR_FAIL=cuMemAlloc_v2:3",
                                        "KVF_EXECUTOR_FAIL=cuMemAlloc_v2:0:2",
                                        "KVF_EXECUTOR_FAIL=cuMemAlloc_v2:1:2,,",
                                        "KVF_EXECUTOR_REPORT=/nowhere/report",
                                        "KVF_EXECUTOR_COUNTERS=/nowhere/counters",
                                        "KVF_EXECUTOR_STEPS=1e6"};
    enum { WRONG = sizeof wrong / sizeof *wrong };
    tap_plan(15 + WRONG + 3);
    is(run(argv[0], "KVF_EXECUTOR_EXIT=9", "good"), 0, "a good program ends with its own status");
    is(strlen(output), 0, "and nothing is printed");
    is(run(argv[0], "", "bad"), 0, "a bad one too, unless asked otherwise");
    contains(output, "kvforge executor: out-of-bounds: read of 4 bytes", "but it is told");
    contains(output, "kernel vector_add, line ", "the kernel and line");
    contains(output, "block (0,0,0), thread (64,0,0)", "the thread");
    contains(output, "0 bytes after allocation 1", "what is near");
    is(run(argv[0], "KVF_EXECUTOR_EXIT=9", "bad"), 9, "KVF_EXECUTOR_EXIT makes it fail");
    run(argv[0], "KVF_EXECUTOR_FORMAT=json", "bad");
    contains(output, "{\"finding\": \"out-of-bounds\", \"text\": \"read of 4 bytes", "as JSON");
    contains(output, "\"thread\": [64, 0, 0]", "with fields");
    is(run(argv[0], "KVF_EXECUTOR_EXIT=9", "leak"), 9, "a leak is a finding");
    contains(output, "2 allocations with 512 bytes", "which says how much");
    is(run(argv[0], "KVF_EXECUTOR_EXIT=9 KVF_EXECUTOR_CHECKS=-leaks", "leak"), 0,
       "unless the check is off");
    run(argv[0], "KVF_EXECUTOR_SUMMARY=1", "good");
    contains(output, "1 launches, 1 blocks", "the summary says what ran");
    run(argv[0], "KVF_EXECUTOR_CHECKS=typo", "good");
    contains(output, "KVF_EXECUTOR_CHECKS does not know 'typo'", "a wrong setting is refused");
    for (int i = 0; i < WRONG; i++) {
        run(argv[0], wrong[i], "good");
        char variable[40];
        snprintf(variable, sizeof variable, "%.*s", (int)strcspn(wrong[i], "="), wrong[i]);
        contains(output, variable, wrong[i]);
    }
    run(argv[0], "KVF_EXECUTOR_FORMAT=json", "quote");
    contains(output, "\"instruction\": \"/* \\\"a\\\\b\\\" */",
             "quotes in the text stay in theirs");
    run(argv[0], "", "stuck");
    contains(output, "out-of-bounds", "after an error that stays");
    ok(!strstr(output, "leak"), "what cannot be freed is no leak");
    return tap_done();
}
