/* Counters against numbers worked out by hand, the same for every order and number of threads. */
#include "executor_tools.h"

size_t kvfExecutorKernels(kvfExecutorKernel *, size_t);
int kvfExecutorCount(int);

static kvfExecutorKernel counted(const char *name) {
    static kvfExecutorKernel list[16];
    memset(list, 0, sizeof list);
    for (int i = 0; i < 16; i++) list[i].size = sizeof list[i];
    size_t n = kvfExecutorKernels(list, 16);
    for (size_t i = 0; i < n && i < 16; i++)
        if (!strcmp(list[i].name, name)) return list[i];
    return (kvfExecutorKernel){0};
}

static void check_vector_add(void) {
    enum { N = 1000 };
    static float zeros[N];
    CUmodule module = tools_load_file("tests/kernels/basic.ptx");
    CUdeviceptr a = tools_device(zeros, sizeof zeros), b = tools_device(zeros, sizeof zeros);
    CUdeviceptr c = tools_device(NULL, sizeof zeros);
    int n = N;
    void *params[] = {&a, &b, &c, &n};
    tools_launch(tools_function(module, "vector_add"), 8, 128, 0, params);
    kvfExecutorKernel k = counted("vector_add");
    is(k.launches, 1, "launches");
    is(k.blocks, 8, "blocks");
    is(k.threads, 1024, "threads");
    is(k.global_loads, 2 * 32, "two loads of each of 32 warps");
    is(k.global_stores, 32, "one store");
    is(k.global_load_bytes, 8 * N, "bytes loaded");
    is(k.global_store_bytes, 4 * N, "bytes stored");
    is(k.sectors_moved, 3 * 125, "sectors of 32 bytes: 4000 bytes are 125, three times");
    is(k.sectors_needed, k.sectors_moved, "all of them needed");
    is(k.class_lanes[KVF_CLASS_FLOAT], N, "one addition an element");
    uint64_t warps = 0;
    for (int i = 0; i < KVF_CLASSES; i++) warps += k.class_warps[i];
    is(warps, k.warp_instructions, "the classes add up");
}

/* Lane l accesses word l * stride of shared memory, and strided words of global memory. */
static void check_conflicts(uint32_t stride, uint64_t conflicts, uint64_t moved) {
    char text[1500], name[20];
    snprintf(name, sizeof name, "stride%u", stride);
    snprintf(text, sizeof text,
             ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry %s(.param .u64 p)\n{\n"
             ".reg .b64 %%rd<5>;\n.reg .b32 %%r<9>;\n.shared .align 4 .b8 sh[8192];\n"
             "ld.param.u64 %%rd1, [p];\nmov.u32 %%r1, %%tid.x;\nmul.lo.u32 %%r2, %%r1, %u;\n"
             "mov.u32 %%r3, sh;\nadd.u32 %%r4, %%r3, %%r2;\nst.shared.u32 [%%r4], %%r1;\n"
             "bar.sync 0;\ncvt.u64.u32 %%rd2, %%r2;\nadd.u64 %%rd3, %%rd1, %%rd2;\n"
             "st.global.u32 [%%rd3], %%r1;\nret;\n}\n",
             name, stride * 4);
    CUmodule module = tools_load(text, NULL);
    CUdeviceptr p = tools_device(NULL, 8192);
    void *params[] = {&p};
    tools_launch(tools_function(module, name), 1, 32, 0, params);
    kvfExecutorKernel k = counted(name);
    is(k.shared_accesses, 1, "one access of shared memory");
    is(k.bank_conflicts, conflicts, "bank conflicts");
    is(k.sectors_moved, moved, "sectors moved");
    is(k.sectors_needed, 4, "sectors needed");
    is(k.class_warps[KVF_CLASS_BARRIER], 1, "one barrier");
    cuModuleUnload(module);
    cuMemFree_v2(p);
}

static void check_macs(void) {
    CUmodule module = tools_load(
        ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry macs()\n{\n.reg .b32 "
        "%r<9>;\n.reg .f32 %f<9>;\nmov.b32 %r1, 0;\nmov.f32 %f1, 0f00000000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2,%f3,%f4,%f5}, "
        "{%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};\nret;\n}\n",
        NULL);
    tools_launch(tools_function(module, "macs"), 3, 64, 0, NULL);
    kvfExecutorKernel k = counted("macs");
    is(k.tensor_macs, 6 * 2048, "six warps, 16 * 8 * 16 each");
}

static void check_off(void) {
    kvfExecutorKernel before = counted("macs");
    is(kvfExecutorCount(0), 1, "counting was on");
    CUmodule module = tools_load(".version 7.8\n.target sm_90\n.entry macs()\n{\nret;\n}\n", NULL);
    tools_launch(tools_function(module, "macs"), 3, 64, 0, NULL);
    kvfExecutorKernel after = counted("macs");
    is(after.launches, before.launches, "nothing is counted when it is off");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        /* The same under other orders and threads: each is a process of its own. */
        tap_plan(4);
        static const char *const ways[] = {"KVF_EXECUTOR_THREADS=1", "KVF_EXECUTOR_THREADS=4",
                                           "KVF_EXECUTOR_SEED=7", "KVF_EXECUTOR_SEED=8"};
        for (int i = 0; i < 4; i++) {
            char command[400];
            snprintf(command, sizeof command,
                     "%s %s inner | grep -v '^ok' | sed 's/^/# /'; "
                     "%s %s inner >/dev/null",
                     ways[i], argv[0], ways[i], argv[0]);
            is(system(command), 0, ways[i]);
        }
        return tap_done();
    }
    tap_plan(11 + 3 * 5 + 1 + 2);
    setenv("KVF_EXECUTOR_COUNTERS", tools_path("executor_counters.json"), 1);
    tools_start();
    check_vector_add();
    check_conflicts(1, 0, 4);
    check_conflicts(2, 1, 8);
    check_conflicts(32, 31, 32);
    check_macs();
    check_off();
    return tap_done();
}
