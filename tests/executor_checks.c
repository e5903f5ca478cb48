/* Every check finds its planted faults, names the place, and is silent on the fixed twins. */
#include "executor_tools.h"

enum { THREADS = 64, BLOCKS = 4 };

struct fault {
    const char *name;
    unsigned blocks, threads;
    int code;            /* what the launch ends with */
    const char *finding; /* in the finding's first line */
};

static const struct fault faults[] = {
    {"shared_race", 1, 64, 719, "without a barrier"},
    {"warp_race", 1, 32, 719, "without a synchronisation of the warp"},
    {"global_race", 4, 64, 719, "by different blocks of one launch"},
    {"global_counter", 4, 1, 719, "by different blocks of one launch"},
    {"uninitialised_shared", 1, 64, 719, "never initialised"},
    {"uninitialised_branch", 1, 64, 719, "never initialised"},
    {"uninitialised_address", 1, 64, 719, "address that was never initialised"},
    {"divergent_barrier", 1, 64, 719, "different barriers"},
    {"shuffle_inactive", 1, 64, 719, "reads lane"},
    {"missing_wait", 1, 64, 719, "has not been waited for"},
    {"deadlock", 1, 64, 719, "deadlock"},
    {"misaligned", 1, 32, 716, "not aligned"},
};

enum { FAULTS = sizeof faults / sizeof *faults };

static CUmodule module;
static CUdeviceptr out, input;

static CUresult run(const char *name, const char *suffix, unsigned blocks, unsigned threads) {
    char full[80];
    snprintf(full, sizeof full, "%s_%s", name, suffix);
    cuMemsetD8_v2(out, 0, BLOCKS * THREADS * 16);
    CUfunction function = tools_function(module, full);
    void *params[] = {&out, &input};
    return function ? tools_launch(function, blocks, threads, 0, params) : -1;
}

/* Whether the report has a finding of this kernel whose first line contains the text. */
static bool reported(const char *kernel, const char *text) {
    char *report = tools_read(tools_path("executor_checks.report")), place[100];
    bool found = false;
    snprintf(place, sizeof place, "\n  kernel %s_bad, line ", kernel);
    for (char *at = report ? strstr(report, place) : NULL; at; at = strstr(at + 1, place)) {
        char *line = at;
        while (line > report && line[-1] != '\n') line--;
        *at = 0;
        found = found || strstr(line, text);
        *at = '\n';
    }
    free(report);
    return found;
}

static void check_fault(const struct fault *f) {
    uint64_t before = tools_findings();
    is(run(f->name, "good", f->blocks, f->threads), 0, f->name);
    is(tools_findings(), before, "the fixed twin has no finding");
    is(run(f->name, "bad", f->blocks, f->threads), f->code, "the fault ends the launch");
    ok(tools_findings() > before, "it is found");
    ok(reported(f->name, f->finding), "and named: %s", f->finding);
}

int main(void) {
    tap_plan(5 * FAULTS + 2 + 2 + 4);
    remove(tools_path("executor_checks.report"));
    setenv("KVF_EXECUTOR_REPORT", tools_path("executor_checks.report"), 1);
    setenv("KVF_EXECUTOR_STEPS", "100000", 1);
    tools_start();
    module = tools_load_file("tests/kernels/faults.ptx");
    out = tools_device(NULL, BLOCKS * THREADS * 16);
    input = tools_device(NULL, THREADS * 8);
    cuMemsetD8_v2(input, 1, THREADS * 4); /* the second half stays undefined */
    for (int i = 0; i < FAULTS; i++) check_fault(&faults[i]);

    kvfExecutorStatistics s = {.size = sizeof s};
    kvfExecutorStats(&s);
    uint64_t findings = s.findings, notes = s.notes;
    is(run("same_value", "bad", 4, 64), 0, "writes of the same value are no fault");
    kvfExecutorStats(&s);
    ok(s.findings == findings && s.notes > notes, "they are remarked upon");

    void *params[] = {&out, &input};
    cuMemsetD8_v2(out, 0, 4);
    is(tools_launch(tools_function(module, "endless"), 1, 1, 0, params), 702,
       "an endless loop ends at the step limit");
    contains(kvfExecutorLastFinding(), "KVF_EXECUTOR_STEPS", "which the finding names");

    char *report = tools_read(tools_path("executor_checks.report"));
    contains(report, "kernel shared_race_bad, line ", "the report has the kernel and line");
    contains(report, "ld.shared", "the instruction");
    contains(report, "st.shared", "the other access of the race");
    contains(report, "never having been written, at line", "the origin of an undefined value");
    free(report);
    return tap_done();
}
