/* Races that are hard to see are found, and what looks like one and is none is not. */
#include "executor_tools.h"

static const struct pair {
    const char *name;
    unsigned blocks, threads;
    const char *finding;
} pairs[] = {
    {"warp_broadcast", 1, 32, "write after read without a synchronisation of the warp"},
    {"read_before_atomic", 1, 64, "without a barrier"},
    {"read_after_atomic", 1, 64, "without a barrier"},
    {"atomic_beside_read_global", 4, 64, "by different blocks"},
    {"half_write_after_read", 4, 1, "write after read by different blocks"},
    {"half_read_after_writes", 4, 1, "read after write by different blocks"},
    {"half_read_after_writes_shared", 1, 64, "read after write without a barrier"},
    {"lock", 4, 1, "by different blocks"},
    {"grid_barrier", 4, 32, "write after read by different blocks"},
    {"grid_barrier_last", 4, 32, "write after read by different blocks"},
    {"read_beyond_barrier", 4, 32, "write after read by different blocks"},
    {"last_block", 4, 1, "read after write by different blocks"},
    {"late_acquire", 2, 1, "by different blocks"},
    {"refill", 1, 64, "write after read without a barrier"},
    {"other_group", 1, 64, "has not been waited for"},
    {"wait_without_barrier", 1, 64, "without a"},
};

enum { PAIRS = sizeof pairs / sizeof *pairs, BYTES = 4096 };

static CUmodule module;
static CUdeviceptr out, in;

static CUresult run(const struct pair *p, const char *twin) {
    char name[80];
    snprintf(name, sizeof name, "%s_%s", p->name, twin);
    cuMemsetD8_v2(out, 0, BYTES);
    cuMemsetD8_v2(in, 0, BYTES);
    CUfunction function = tools_function(module, name);
    void *params[] = {&out, &in};
    return function ? tools_launch(function, p->blocks, p->threads, 0, params) : -1;
}

/* Whether the report has a finding of the kernel that says so. */
static bool reported(const struct pair *p) {
    char *report = tools_read(tools_path("executor_races.report")), place[100];
    bool found = false;
    snprintf(place, sizeof place, "\n  kernel %s_bad, line ", p->name);
    for (char *at = report ? strstr(report, place) : NULL; at; at = strstr(at + 1, place)) {
        char *line = at;
        while (line > report && line[-1] != '\n') line--;
        *at = 0;
        found = found || strstr(line, p->finding);
        *at = '\n';
    }
    free(report);
    return found;
}

int main(int argc, char **argv) {
    /* The other orders in processes of their own, as the seed is read once. */
    static const char *const seeds[] = {"1", "2", "3"};
    enum { SEEDS = 3 };
    if (argc < 2) {
        tap_plan(4 * PAIRS + SEEDS);
        remove(tools_path("executor_races.report"));
        setenv("KVF_EXECUTOR_REPORT", tools_path("executor_races.report"), 1);
    }
    setenv("KVF_EXECUTOR_STEPS", "100000000", 1);
    setenv("KVF_EXECUTOR_THREADS", "1", 0);
    tools_start();
    module = tools_load_file("tests/kernels/races.ptx");
    out = tools_device(NULL, BYTES);
    in = tools_device(NULL, BYTES);
    bool good = true;
    for (int i = 0; i < PAIRS; i++) {
        const struct pair *p = &pairs[i];
        uint64_t before = tools_findings();
        CUresult result = run(p, "good");
        if (argc > 1) {
            good = good && result == 0 && tools_findings() == before;
            continue;
        }
        is(result, 0, p->name);
        is(tools_findings(), before, "the sound twin has no finding");
        is(run(p, "bad"), 719, "the race ends the launch");
        ok(reported(p), "and is named: %s", p->finding);
    }
    if (argc > 1) return good ? 0 : 1;
    for (int i = 0; i < SEEDS; i++) {
        char command[400];
        snprintf(
            command, sizeof command,
            "KVF_EXECUTOR_REPORT=/dev/null KVF_EXECUTOR_SEED=%s KVF_EXECUTOR_THREADS=2 %s good",
            seeds[i], argv[0]);
        ok(system(command) == 0, "no finding among the sound twins under seed %s", seeds[i]);
    }
    return tap_done();
}
