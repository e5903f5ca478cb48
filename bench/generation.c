/*
 * How long kvforge takes to build a whole bundle, beside NVIDIA's compilers on a CUDA C kernel of
 * the same function. Everything is measured in one run, in alternating rounds, on one core.
 *
 *     build/bench/generation [rounds]        from the root of the source tree
 *
 * With KVF_BENCH_COUNT set, instructions are counted under valgrind where perf cannot (minutes).
 * docs/bench.md says how to read what it prints.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/count.h"
#include "lib/generation.h"
#include "lib/machine.h"
#include "lib/same.h"
#include "lib/twin.h"

#define SPEC "examples/deepseek-v4-flash-ring.lua"

enum { ROUNDS = 7, COMPILATIONS = 4 };

/* ---- kvforge ---- */

static struct process kvforge_process(struct generation *g, const char *argv[8]) {
    const char *words[] = {g->kvforge, "build", SPEC, "-o", g->bundle, "--report", g->report, NULL};
    memcpy(argv, words, sizeof words);
    /* Without ptxas: a report would otherwise include its time. */
    return (struct process){.argv = argv, .env = "KVF_PTXAS=", .core = g->core};
}

static struct type_times *find_type(struct generation *g, const char *name) {
    int i = 0;
    while (i < g->types && strcmp(g->type[i].name, name) != 0) i++;
    if (i == GENERATION_TYPES) return NULL;
    if (i == g->types) {
        g->types++;
        (void)snprintf(g->type[i].name, sizeof g->type[i].name, "%s", name);
    }
    return &g->type[i];
}

static void read_kernels(struct generation *g, const json_t *kernels) {
    double ms[GENERATION_TYPES] = {0};
    int count[GENERATION_TYPES] = {0};
    size_t i;
    const json_t *kernel;
    json_array_foreach(kernels, i, kernel) {
        struct type_times *type = find_type(g, json_string_value(json_object_get(kernel, "type")));
        if (!type) continue;
        ms[type - g->type] += json_number_value(json_object_get(kernel, "ms"));
        count[type - g->type]++;
    }
    g->kernels = (int)json_array_size(kernels);
    for (int t = 0; t < g->types; t++) {
        g->type[t].kernels = count[t];
        sample_add(&g->type[t].ms, ms[t] / count[t]);
    }
}

static bool build_bundle(struct generation *g) {
    const char *argv[8];
    struct process_cost cost;
    struct process process = kvforge_process(g, argv);
    if (!process_run(&process, &cost)) return false;
    json_t *report = json_load_file(g->report, 0, NULL);
    if (!report) return false;
    sample_add(&g->wall, cost.wall);
    sample_add(&g->cpu, cost.cpu);
    sample_add(&g->peak, cost.peak);
    sample_add(&g->own, json_number_value(json_object_get(report, "total_ms")));
    read_kernels(g, json_object_get(report, "kernels"));
    json_decref(report);
    return g->kernels > 0;
}

/* ---- rounds ---- */

static bool run_round(struct generation *g) {
    char ptx[128];
    bool good = build_bundle(g);
    for (int form = 0; good && form < TWIN_FORMS; form++) {
        generation_ptx(g, "nvrtc", form, ptx);
        if (g->has_nvrtc[form])
            good = twin_nvrtc((enum twin_form)form, &g->options, COMPILATIONS, ptx, g->core,
                              g->scratch, &g->nvrtc[form]);
        generation_ptx(g, "nvcc", form, ptx);
        if (good && g->has_nvcc)
            good = twin_nvcc(g->nvcc, (enum twin_form)form, &g->options, ptx, g->core, g->scratch,
                             &g->nvcc_times[form]);
    }
    return good;
}

/* Two processes that differ by one compilation. */
static double count_compilation(struct generation *g, enum count_tool tool, enum twin_form form) {
    double total[2];
    for (int i = 0; i < 2; i++) {
        char count[16], ptx[128];
        const char *argv[TWIN_ARGS];
        generation_ptx(g, "counted", (int)form, ptx);
        twin_nvrtc_argv(form, &g->options, 1 + i, ptx, count, argv);
        struct process process = {.argv = argv, .core = g->core};
        total[i] = count_run(tool, &process, g->scratch);
    }
    return total[1] - total[0];
}

static void count_all(struct generation *g, enum count_tool tool) {
    const char *argv[8];
    struct process process = kvforge_process(g, argv);
    g->count = count_run(tool, &process, g->scratch);
    for (int form = 0; form < TWIN_FORMS; form++)
        g->nvrtc_count[form] =
            g->has_nvrtc[form] ? count_compilation(g, tool, (enum twin_form)form) : NAN;
}

/* ---- set up, and the order of it all ---- */

static bool set_up(struct generation *g, int argc, char **argv) {
    const char *build = getenv("KVF_BUILD");
    int cores;
    g->rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : ROUNDS;
    if (g->rounds < 1 || g->rounds > SAMPLE_MAX / COMPILATIONS || !process_scratch(g->scratch))
        return false;
    g->core = process_core(&cores);
    (void)snprintf(g->kvforge, sizeof g->kvforge, "%s/bin/kvforge", build ? build : "build");
    (void)snprintf(g->bundle, sizeof g->bundle, "%s/bundle", g->scratch);
    (void)snprintf(g->report, sizeof g->report, "%s/report.json", g->scratch);
    return true;
}

/* The first build is not measured: it fills the file cache and gives the twin its constants. */
static bool warm_up(struct generation *g) {
    const char *argv[8];
    char path[160];
    struct process process = kvforge_process(g, argv);
    if (!process_run(&process, NULL)) return false;
    (void)snprintf(path, sizeof path, "%s/manifest.json", g->bundle);
    json_t *manifest = json_load_file(path, 0, NULL);
    bool good = manifest && twin_options(manifest, GENERATION_TYPE, &g->options);
    json_decref(manifest);
    return good;
}

static void find_tools(struct generation *g) {
    bool nvrtc =
        twin_nvrtc_version(&g->options, g->scratch, g->nvrtc_version, sizeof g->nvrtc_version);
    bool headers = twin_has_headers(&g->options);
    g->has_nvrtc[TWIN_HEADERS] = nvrtc && headers;
    g->has_nvrtc[TWIN_PLAIN] = nvrtc;
    g->has_nvcc = process_find("nvcc", g->nvcc, sizeof g->nvcc);
    g->has_ptxas = process_find("ptxas", g->ptxas, sizeof g->ptxas);
    printf(nvrtc ? "NVRTC %s\n" : "No NVRTC: %s\n", g->nvrtc_version);
    if (nvrtc && !headers)
        printf("No cuda_fp8.h in %s: NVRTC without headers only.\n", g->options.include + 2);
    if (!g->has_nvcc) printf("No nvcc.\n");
}

static void print_head(const struct generation *g, enum count_tool tool) {
    printf("%s, one target, %d kernels; the twin is one kernel, " TWIN_SOURCE "\n", SPEC,
           g->kernels);
    printf("Medians of %d alternating rounds on core %d; instructions counted by %s\n\n", g->rounds,
           g->core, count_name(tool));
}

/* False only if the twin is known to compute something else. */
static bool compare_bytes(const struct generation *g) {
    static const char *const compilers[] = {"nvrtc", "nvcc"};
    bool equal = true;
    char ours[192], theirs[128], said[600];
    (void)snprintf(ours, sizeof ours, "%s/%s.%s.ptx", g->bundle, GENERATION_TYPE, GENERATION_ARCH);
    printf("\nThe same bytes? Both PTX texts on the executor\n");
    for (int i = 0; i < 2; i++)
        for (int form = 0; form < TWIN_FORMS; form++) {
            if (!(i ? g->has_nvcc : g->has_nvrtc[form])) continue;
            generation_ptx(g, compilers[i], form, theirs);
            struct same_kernel kernels[2] = {{ours, "kvf_" GENERATION_TYPE "_" GENERATION_KERNEL},
                                             {theirs, TWIN_ENTRY}};
            enum same same = same_swa_write(g->bundle, kernels, said, sizeof said);
            printf("  %s, %s: %s: %s\n", compilers[i], twin_form_name((enum twin_form)form),
                   same == SAME_YES  ? "yes"
                   : same == SAME_NO ? "NO"
                                     : "unknown",
                   said);
            if (same == SAME_NO) equal = false;
        }
    return equal;
}

static bool run_bench(struct generation *g) {
    if (!warm_up(g)) return false;
    machine_print();
    find_tools(g);
    for (int i = 0; i < g->rounds; i++)
        if (!run_round(g)) return false;
    enum count_tool tool = count_find(getenv("KVF_BENCH_COUNT") != NULL, g->scratch);
    count_all(g, tool);
    print_head(g, tool);
    generation_print_times(g);
    generation_print_targets(g);
    generation_print_code(g);
    return compare_bytes(g);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], TWIN_CHILD) == 0) return twin_child(argc, argv);
    struct generation *g = calloc(1, sizeof *g);
    bool good = g && set_up(g, argc, argv) && run_bench(g);
    if (!good) fprintf(stderr, "generation: failed\n");
    if (g && g->scratch[0]) process_remove(g->scratch);
    free(g);
    return good ? 0 : 1;
}
