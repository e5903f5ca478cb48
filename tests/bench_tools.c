/* What the benchmarks measure with: medians, processes, the twin's options, machine code. */
#include <math.h>
#include <unistd.h>

#include "cubin.h"
#include "process.h"
#include "sample.h"
#include "tap.h"
#include "twin.h"

static char scratch[64];

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) exit(2);
}

static void test_median(void) {
    static struct sample sample;
    ok(isnan(sample_median(&sample)), "no sample has no median");
    for (int i = 0; i < 5; i++) sample_add(&sample, (i * 3) % 5); /* 0 3 1 4 2 */
    ok(sample_median(&sample) == 2, "the middle of five");
    sample_add(&sample, -1);
    ok(sample_median(&sample) == 1, "the lower middle of six");
    for (int i = 0; i < SAMPLE_MAX; i++) sample_add(&sample, 7);
    is(sample.count, SAMPLE_MAX, "a full sample takes no more");
}

static bool shell(const char *command, const char *out, const char *env,
                  struct process_cost *cost) {
    const char *argv[] = {"sh", "-c", command, NULL};
    int cores;
    struct process process = {.argv = argv, .out = out, .env = env, .core = process_core(&cores)};
    return process_run(&process, cost);
}

static void test_process(void) {
    struct process_cost cost = {0};
    char out[128];
    (void)snprintf(out, sizeof out, "%s/out", scratch);
    ok(shell("sleep 0.05; echo $KVF_X", out, "KVF_X=a=b", &cost), "a process that succeeds");
    char *text = process_read(out, NULL);
    ok(text && strcmp(text, "a=b\n") == 0, "its output, its environment");
    free(text);
    ok(cost.wall >= 50 && cost.cpu < cost.wall, "wall time counts sleep, CPU time does not");
    ok(cost.peak > 0.1 && cost.peak < 1000, "peak memory in MB");
    ok(shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", NULL, NULL, &cost) &&
           cost.cpu > 5,
       "work counts as CPU time");
    ok(!shell("exit 3", NULL, NULL, NULL), "a status is a failure");
    ok(!shell("kill -9 $$", NULL, NULL, NULL), "a signal is a failure");
    const char *none[] = {"/nonexistent/program", NULL};
    ok(!process_run(&(struct process){.argv = none, .core = -1}, NULL), "no such program");
    char path[512];
    ok(process_find("sh", path, sizeof path) && access(path, X_OK) == 0, "sh is found");
    ok(!process_find("no-such-tool-of-cuda", path, sizeof path), "what is not there is not");
}

static bool has_option(const struct twin_options *options, const char *text) {
    for (int i = 0; i < options->count; i++)
        if (strcmp(options->text[i], text) == 0) return true;
    return false;
}

static void test_options(void) {
    static struct twin_options options;
    json_t *manifest =
        json_pack("{s{ss ss sb sb sf} s[{ss ss si si si} {ss ss}]}", "model", "window_mode", "ring",
                  "input_dtype", "bf16", "kv_norm", 1, "round_before_rope", 0, "norm_eps", 0.25,
                  "types", "name", "a", "format", "fp8_token", "head_dim", 96, "rope_dim", 32,
                  "ring", 17, "name", "b", "format", "bf16");
    if (!manifest) exit(2);
    ok(twin_options(manifest, "a", &options), "a type with the twin's row");
    ok(has_option(&options, "-DHEAD_DIM=96") && has_option(&options, "-DROPE_DIM=32") &&
           has_option(&options, "-DRING=17") && has_option(&options, "-DROUND_BEFORE_ROPE=0"),
       "its constants come from the manifest");
    ok(has_option(&options, "-fmad=false"), "products and sums round separately");
    ok(!twin_options(manifest, "b", &options), "another format is refused");
    ok(!twin_options(manifest, "c", &options), "no such type");
    json_object_set_new(json_object_get(manifest, "model"), "window_mode", json_string("paged"));
    ok(!twin_options(manifest, "a", &options), "another window mode is refused");
    json_decref(manifest);
}

static void test_cubin(void) {
    char ptxas[512], ptx[128];
    struct cubin_kernel kernel = {0};
    if (!process_find("ptxas", ptxas, sizeof ptxas)) {
        tap_skip(3, "no ptxas");
        return;
    }
    (void)snprintf(ptx, sizeof ptx, "%s/k.ptx", scratch);
    write_file(ptx, ".version 7.8\n.target sm_90\n.address_size 64\n"
                    ".visible .entry first() { ret; }\n"
                    ".visible .entry second(.param .u64 out)\n"
                    "{ .reg .b64 %a; .reg .b32 %b; ld.param.u64 %a, [out]; mov.u32 %b, %tid.x;\n"
                    "st.global.u32 [%a], %b; ret; }\n");
    bool good = cubin_measure(ptxas, "sm_90", ptx, "second", scratch, &kernel);
    ok(good && kernel.registers >= 4 && kernel.registers < 32 && kernel.spill == 0,
       "registers of the second kernel");
    /* ptxas pads code to 128 bytes: eight instructions. */
    ok(kernel.instructions >= 8 && kernel.instructions % 8 == 0 && kernel.instructions < 64,
       "instructions, with the padding");
    ok(!cubin_measure(ptxas, "sm_90", ptx, "third", scratch, &kernel), "no such kernel");
}

int main(void) {
    tap_plan(4 + 10 + 6 + 3);
    if (!process_scratch(scratch)) return 2;
    test_median();
    test_process();
    test_options();
    test_cubin();
    process_remove(scratch);
    return tap_done();
}
