/*
 * How fast the executor is: lane instructions a second on loops of arithmetic, of global and of
 * shared memory, and exact mma, by CPU time of one thread, with all checks and with none; how much
 * sooner two threads are done; and parsing.
 */
#include <time.h>

#include "../tests/executor_tools.h"
#include "executor/driver.h"

static double clock_seconds(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#define HEAD                                                                                       \
    ".version 7.8\n.target sm_90\n.address_size 64\n"                                              \
    ".visible .entry k(.param .u64 data, .param .u32 rounds)\n{\n"                                 \
    ".reg .b64 %rd<20>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n.reg .pred %p<4>;\n"                \
    ".shared .align 16 .b8 sh[16384];\n"                                                           \
    "ld.param.u64 %rd1, [data];\nld.param.u32 %r1, [rounds];\nmov.u32 %r2, %tid.x;\n"              \
    "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\nmad.lo.u32 %r5, %r3, %r4, %r2;\n"              \
    "mul.wide.u32 %rd2, %r5, 4;\nadd.s64 %rd3, %rd1, %rd2;\nmov.u32 %r6, 0;\nmov.u32 %r12, 0;\n"   \
    "cvt.rn.f32.u32 %f1, %r2;\nmov.f32 %f2, 0f3F000000;\nmov.u32 %r7, %r2;\n"                      \
    "mul.wide.u32 %rd4, %r2, 4;\nadd.s64 %rd4, %rd4, %rd1;\nadd.s64 %rd4, %rd4, 65536;\n"          \
    "mov.u32 %r8, sh;\nshl.b32 %r9, %r2, 2;\nadd.u32 %r10, %r8, %r9;\nmov.b32 %r20, 0;\n"          \
    "mov.b32 %r21, 0;\nmov.b32 %r22, 0;\nmov.b32 %r23, 0;\nmov.f32 %f10, 0f00000000;\n"            \
    "mov.f32 %f11, 0f00000000;\nmov.f32 %f12, 0f00000000;\nmov.f32 %f13, 0f00000000;\nloop:\n"
#define TAIL                                                                                       \
    "add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p1, %r6, %r1;\n@%p1 bra loop;\n"                           \
    "cvt.rzi.u32.f32 %r11, %f1;\nadd.u32 %r7, %r7, %r11;\nst.global.u32 [%rd3], %r7;\nret;\n}\n"

static const struct {
    const char *name, *text;
    uint32_t rounds, blocks, threads, macs; /* macs: of a warp and round */
} benches[] = {
    {"integer arithmetic",
     HEAD "mad.lo.u32 %r7, %r7, 5, 1;\nxor.b32 %r7, %r7, %r6;\nadd.u32 %r11, %r7, %r2;\n"
          "shl.b32 %r12, %r11, 3;\nand.b32 %r13, %r12, 0xffff;\nmin.u32 %r14, %r13, %r7;\n"
          "or.b32 %r7, %r14, %r6;\nsub.u32 %r7, %r7, %r11;\n" TAIL,
     20000, 4, 256, 0},
    {"f32 arithmetic",
     HEAD "fma.rn.f32 %f1, %f1, %f2, %f2;\nadd.rn.f32 %f3, %f1, %f2;\nmul.rn.f32 %f4, %f3, %f2;\n"
          "max.f32 %f5, %f4, %f1;\nsub.rn.f32 %f6, %f5, %f3;\nadd.rn.f32 %f1, %f6, %f2;\n" TAIL,
     20000, 4, 256, 0},
    {"global loads and stores",
     HEAD "ld.global.u32 %r11, [%rd3];\nadd.u32 %r11, %r11, 1;\nst.global.u32 [%rd3], %r11;\n"
          "ld.global.u32 %r12, [%rd3];\n" TAIL,
     10000, 4, 256, 0},
    {"global loads of one table",
     HEAD "ld.global.u32 %r11, [%rd4];\nadd.u32 %r12, %r12, %r11;\nld.global.u32 %r13, "
          "[%rd4+128];\nadd.u32 %r12, %r12, %r13;\n" TAIL,
     10000, 4, 256, 0},
    {"shared loads, stores, barriers",
     HEAD "st.shared.u32 [%r10], %r7;\nbar.sync 0;\nld.shared.u32 %r11, [%r10];\nbar.sync 0;\n"
          "add.u32 %r7, %r11, 1;\n" TAIL,
     10000, 4, 256, 0},
    {"exact bf16 mma",
     HEAD "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f10,%f11,%f12,%f13}, "
          "{%r20,%r21,%r22,%r23}, {%r20,%r21}, {%f10,%f11,%f12,%f13};\n" TAIL,
     4000, 4, 128, 2048},
};

struct run {
    double cpu, wall, lanes;
    CUresult result;
};

/* One launch with so many threads, with all checks or none. */
static struct run run_loop(CUmodule module, int i, CUdeviceptr data, unsigned threads,
                           bool checks) {
    uint32_t rounds = benches[i].rounds;
    void *params[] = {&data, &rounds};
    struct config saved = driver.config;
    driver.config.threads = threads;
    if (!checks)
        driver.config.check_uninitialised = driver.config.check_races = driver.config.check_warp =
            driver.config.check_async = false;
    kvfExecutorStatistics before = {.size = sizeof before}, after = before;
    kvfExecutorStats(&before);
    double cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID), wall = clock_seconds(CLOCK_MONOTONIC);
    CUresult r =
        tools_launch(tools_function(module, "k"), benches[i].blocks, benches[i].threads, 0, params);
    cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = clock_seconds(CLOCK_MONOTONIC) - wall;
    kvfExecutorStats(&after);
    driver.config = saved;
    return (struct run){cpu, wall, (double)(after.lane_instructions - before.lane_instructions), r};
}

static void keep_best(struct run *best, struct run now) {
    if (best->lanes == 0) *best = now;
    if (now.result) best->result = now.result;
    if (now.cpu < best->cpu) best->cpu = now.cpu;
    if (now.wall < best->wall) best->wall = now.wall;
}

/* The ways take turns, so that a busy machine is as busy for each; the best of each counts. */
static void bench_loop(int i, CUdeviceptr data) {
    enum { TURNS = 7 };
    CUmodule module = tools_load(benches[i].text, NULL);
    if (!module) {
        printf("%s: %s\n", benches[i].name, tools_log);
        return;
    }
    struct run one = {0}, two = {0}, bare = {0};
    for (int turn = 0; turn < TURNS; turn++) {
        keep_best(&one, run_loop(module, i, data, 1, true));
        keep_best(&two, run_loop(module, i, data, 2, true));
        keep_best(&bare, run_loop(module, i, data, 1, false));
    }
    CUresult r = one.result ? one.result : two.result ? two.result : bare.result;
    double work = benches[i].macs ? (double)benches[i].macs * benches[i].rounds *
                                        benches[i].blocks * benches[i].threads / 32
                                  : one.lanes;
    if (r)
        printf("%-32s failed: %d %s\n", benches[i].name, r, kvfExecutorLastFinding());
    else
        printf("%-32s %6.2f %10.2f %8.2f %10.2f  %s\n", benches[i].name, work / one.cpu * 1e-9,
               work / bare.cpu * 1e-9, one.wall / two.wall, two.cpu / one.cpu,
               benches[i].macs ? "MAC" : "lane instructions");
    cuModuleUnload(module);
}

/* A module of about 100 kB from the arithmetic kernel's lines. */
static void bench_parse(void) {
    size_t used = 0, size = 110000;
    char *text = malloc(size + 4096);
    used += (size_t)sprintf(text, "%s", HEAD);
    while (used < 100000)
        used += (size_t)sprintf(text + used,
                                "add.rn.f32 %%f3, %%f1, %%f2;\nld.global.u32 %%r11, [%%rd3+16];\n"
                                "setp.lt.and.u32 %%p2, %%r6, %%r1, %%p1;\n@%%p2 bra $L%zu;\n"
                                "shfl.sync.bfly.b32 %%r11, %%r12, 16, 31, -1;\n$L%zu:\n",
                                used, used);
    sprintf(text + used, "%s", TAIL);
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double start = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
        CUmodule module = tools_load(text, NULL);
        double seconds = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
        if (!module) {
            printf("%s", tools_log);
            break;
        }
        cuModuleUnload(module);
        if (seconds < best) best = seconds;
    }
    printf("%-32s %6.2f ms\n", "load 100 kB of PTX", best * 1e3);
    free(text);
}

int main(void) {
    tools_start();
    CUdeviceptr data = tools_device(NULL, 4 << 20);
    cuMemsetD8_v2(data, 0, 4 << 20);
    printf("%-32s %6s %10s %8s %10s\n", "G a second on one core", "checked", "unchecked",
           "2 threads", "their CPU");
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) bench_loop((int)i, data);
    bench_parse();
    return 0;
}
