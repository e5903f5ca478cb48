/* nvcc's vector add and block reduction; what is refused at load; what the first checks find. */
#include "executor_tools.h"

static void check_vector_add(CUmodule module) {
    enum { N = 1000 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) a[i] = (float)i * 0.5f, b[i] = 100.0f - (float)i;
    CUdeviceptr da = tools_device(a, sizeof a), db = tools_device(b, sizeof b);
    CUdeviceptr dc = tools_device(NULL, sizeof c);
    int n = N;
    void *params[] = {&da, &db, &dc, &n};
    is(tools_launch(tools_function(module, "vector_add"), 8, 128, 0, params), 0, "vector add runs");
    cuMemcpyDtoH_v2(c, dc, sizeof c);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += c[i] != (float)i * 0.5f + (100.0f - (float)i);
    is(wrong, 0, "and every sum is right");
    n = N + 1;
    is(tools_launch(tools_function(module, "vector_add"), 8, 128, 0, params), 700,
       "one element too many is an illegal address");
    contains(kvfExecutorLastFinding(), "read of 4 bytes out of bounds", "the finding says so");
    cuMemFree_v2(da);
    n = N;
    is(tools_launch(tools_function(module, "vector_add"), 8, 128, 0, params), 700,
       "reading freed memory is an illegal address");
    contains(kvfExecutorLastFinding(), "freed", "the finding says that it was freed");
    cuMemFree_v2(db);
    cuMemFree_v2(dc);
}

static void check_block_sum(CUmodule module) {
    enum { N = 5000, BLOCKS = 5, THREADS = 256 };
    float a[N], want[BLOCKS], got[BLOCKS];
    for (int i = 0; i < N; i++) a[i] = (float)(tools_random() % 1000);
    for (int b = 0; b < BLOCKS; b++) {
        want[b] = 0;
        for (int i = 0; i < N; i++)
            if (i / THREADS % BLOCKS == b) want[b] += a[i];
    }
    CUdeviceptr da = tools_device(a, sizeof a), out = tools_device(NULL, sizeof got);
    int n = N;
    void *params[] = {&da, &out, &n};
    is(tools_launch(tools_function(module, "block_sum"), BLOCKS, THREADS, 0, params), 0,
       "block reduction runs");
    cuMemcpyDtoH_v2(got, out, sizeof got);
    same(got, want, sizeof got, "and its sums are right");
    cuMemFree_v2(da);
    cuMemFree_v2(out);
}

#define HEADER       ".version 7.8\n.target sm_90\n.address_size 64\n"
#define KERNEL(body) HEADER ".visible .entry k(.param .u64 p)\n{\n" body "\nret;\n}\n"

static void check_refusals(void) {
    static const struct {
        const char *text, *reason, *what;
        int code;
    } cases[] = {
        {KERNEL(".reg .b32 %r<3>;\nfrobnicate.u32 %r1, %r2;"), "unknown instruction 'frobnicate'",
         "an unknown instruction", 218},
        {KERNEL(".reg .b32 %r<3>;\nadd.sat.u32 %r1, %r2, %r2;"), "'.u32' of 'add'",
         "a modifier that does not belong", 218},
        {KERNEL(".reg .b32 %r<3>;\nadd.u32 %r1, %r2;"), "takes more operands", "a missing operand",
         218},
        {KERNEL(".reg .b32 %r<3>;\nadd.u32 %r1, %r2, %r9;"), "unknown register '%r9'",
         "an undeclared register", 218},
        {KERNEL(".reg .b64 %rd<3>;\nadd.u32 %rd1, %rd2, 1;"), "32-bit register",
         "a register of the wrong size", 218},
        {KERNEL("bra nowhere;"), "label 'nowhere' is not defined", "a missing label", 218},
        {HEADER ".surprise 1;", "unknown directive '.surprise'", "an unknown directive", 218},
        {".version 9.9\n.target sm_90\n", "newer", "a PTX version newer than the driver", 222},
        {".version 7.8\n.target sm_100\n", "sm_100", "a target above the device", 209},
        {".version 8.6\n.target sm_100a\n", "sm_100a", "another chip's own target", 209},
        {"\x7f"
         "ELF....",
         "no PTX text", "machine code", 209},
        {"hello", "starts with .version", "no PTX at all", 218},
        {".version 7.8\n.target sm_80\n.entry k()\n{\n.reg .b16 %h<3>;\nadd.rn.bf16 %h1, %h1, "
         "%h2;\nret;\n}",
         "needs .target sm_90", "an instruction the target lacks", 218},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUresult result;
        CUmodule module = tools_load(cases[i].text, &result);
        is(result, cases[i].code, cases[i].what);
        contains(tools_log, cases[i].reason, "its reason is in the log");
        if (module) cuModuleUnload(module);
    }
    tools_load(KERNEL(".reg .b32 %r<3>;\nfrobnicate.u32 %r1, %r2;"), NULL);
    contains(tools_log, "line 7", "with the line");
}

int main(void) {
    tap_plan(8 + 2 * 13 + 1 + 1);
    tools_start();
    CUmodule module = tools_load_file("tests/kernels/basic.ptx");
    check_vector_add(module);
    check_block_sum(module);
    check_refusals();
    kvfExecutorStatistics s = {.size = sizeof s};
    kvfExecutorStats(&s);
    ok(s.launches == 4 && s.blocks >= 8 + 5 && s.lane_instructions > 1000,
       "the executor counted what it ran");
    return tap_done();
}
