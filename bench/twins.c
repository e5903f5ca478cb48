/*
 * Every kernel beside a straightforward version of it in CUDA C (bench/cuda), compiled by nvcc:
 * both run on the executor on the same full batches, and what they did is counted.
 *
 *     build/bench/twins [KERNEL...]      from the root of the source tree
 *
 * Without nvcc there is nothing to compare with, which is said. Status 1: the results differ, or
 * something failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cubin.h"
#include "lib/machine.h"
#include "lib/pair.h"
#include "lib/process.h"
#include "tool/counted.h"

#define SPEC "examples/deepseek-v4-flash.lua"

enum { DECODE = 256, PREFILL = 32, SAMPLES = 30 }; /* requests, and samples of a time, on a GPU */

/* exp2f and another order of sums: codes in the last place, sums in fp32; attn's weights in bf16.
 */
#define CODES  2e-3
#define SUMS   2e-5
#define HALVES 4e-3

/* attn_mma: 16 queries, 32 rows, 16 x 32 weights, bf16, padded by 8. */
#define MMA_SHARED (2 * ((16 + 32) * (512 + 8) + 16 * (32 + 8)))

/* clang-format off */
static const struct pair_job jobs[] = {
    {"csa", "swa_write", "rows", "swa_write", {{"tokens", 4}}, 128, 0, 0},
    {"csa", "workspace_fill", "rows", "workspace_fill", {{"requests", 1}, {NULL, 32}}, 128, 0, 0},
    {"csa", "tail_append", "rows", "csa_tail_append", {{"tokens", 1}}, 256, 0, 0},
    {"csa", "index_tail_append", "rows", "index_tail_append", {{"tokens", 1}}, 64, 0, 0},
    {"hca", "tail_append", "rows", "hca_tail_append", {{"tokens", 1}}, 128, 0, 0},
    {"csa", "compress", "rows", "csa_compress", {{"tokens", 1}}, 128, 0, CODES},
    {"csa", "index_compress", "rows", "index_compress", {{"tokens", 1}}, 32, 0, CODES},
    {"hca", "compress", "rows", "hca_compress", {{"tokens", 1}}, 128, 0, CODES},
    {"csa", "state_reset", "rows", "state_reset", {{"count", 1}, {"layers", 1}}, 32, 0, 0},
    {"common", "rows_copy", "rows", "rows_copy", {{"count", 1}, {"bytes", 16384}}, 256, 0, 0},
    {"csa", "q_norm_rope", "query", "q_norm_rope", {{"tokens", 1}, {"heads", 4}}, 128, 0, 0},
    {"csa", "inverse_rope", "query", "inverse_rope", {{"tokens", 1}, {"heads", 32}}, 256, 0, 0},
    {"csa", "indexer_query", "query", "indexer_query", {{"tokens", 1}, {NULL, 16}}, 128, 0, 0},
    {"csa", "row_lists", "lists", "csa_row_lists", {{"tokens", 1}}, 128, 0, 0},
    {"hca", "row_lists", "lists", "hca_row_lists", {{"tokens", 1}}, 128, 0, 0},
    {"csa", "translate_pack", "lists", "translate_pack", {{"tokens", 1}}, 128, 0, 0},
    {"csa", "indexer_topk", "lists", "indexer_topk", {{"tokens", 1}}, 256, 0, 0},
    {"csa", "indexer_scores", "attention", "indexer_scores_fp32", {{"tokens", 1}, {"scores_stride", 64}}, 256, 0, SUMS},
    {"csa", "indexer_scores", "attention", "indexer_scores_mma", {{"tokens", 1}, {"scores_stride", 64}}, 128, 0, SUMS},
    {"csa", "attn", "attention", "attn_fp32", {{"tokens", 1}, {"splits", 1}, {"heads", 16}}, 256, 0, HALVES},
    {"csa", "attn", "attention", "attn_mma", {{"tokens", 1}, {"splits", 1}, {"heads", 16}}, 128, MMA_SHARED, HALVES},
    {"csa", "attn_combine", "attention", "attn_combine", {{"tokens", 1}, {"heads", 1}}, 128, 0, HALVES},
};
/* clang-format on */

static const char *const files[] = {"rows", "query", "lists", "attention"};
static const char *const types[] = {"csa", "hca", "common"};

enum {
    JOBS = sizeof jobs / sizeof *jobs,
    FILES = sizeof files / sizeof *files,
    TYPES = sizeof types / sizeof *types
};

struct twins {
    char scratch[64], bundle[128], nvcc[512], ptxas[512];
    const char *arch;
    bool has_ptxas;
    struct session session;
    kvf_driver_kind driver;
    struct timing timing; /* on a GPU */
    CUmodule module[FILES];
    struct cubin code[SIDES][FILES]; /* [OURS]: by type, [THEIRS]: by file */
    char *const *wanted;
    int wanted_count;
};

static bool run(const struct twins *t, const char *const *argv) {
    char log[128];
    (void)snprintf(log, sizeof log, "%s/log", t->scratch);
    if (process_run(&(struct process){.argv = argv, .err = log, .core = -1}, NULL)) return true;
    char *text = process_read(log, NULL);
    fprintf(stderr, "twins: %s failed\n%s", argv[0], text ? text : "");
    free(text);
    return false;
}

/* ---- both sides, compiled ---- */

static bool build_bundle(struct twins *t) {
    const char *built = getenv("KVF_BUILD");
    char kvforge[512];
    (void)snprintf(kvforge, sizeof kvforge, "%s/bin/kvforge", built ? built : "build");
    (void)snprintf(t->bundle, sizeof t->bundle, "%s/bundle", t->scratch);
    return run(
        t, (const char *[]){kvforge, "build", SPEC, "-o", t->bundle, "--target", t->arch, NULL});
}

static void ptx_path(const struct twins *t, int file, char path[128]) {
    (void)snprintf(path, 128, "%s/%s.ptx", t->scratch, files[file]);
}

/* Products and sums round separately where bytes are compared; the last file may fuse them. */
static bool compile(const struct twins *t, int file) {
    char source[64], ptx[128], include[160], arch[80];
    bool fuse = !strcmp(files[file], "attention");
    (void)snprintf(source, sizeof source, "bench/cuda/%s.cu", files[file]);
    (void)snprintf(include, sizeof include, "-I%s", t->bundle);
    (void)snprintf(arch, sizeof arch, "-arch=%s", t->arch);
    ptx_path(t, file, ptx);
    return run(t, (const char *[]){t->nvcc, "-ptx", arch, "-std=c++17", "-Iruntime", include,
                                   fuse ? "-fmad=true" : "-fmad=false", source, "-o", ptx, NULL});
}

static bool load_module(struct twins *t, int file) {
    char path[128];
    ptx_path(t, file, path);
    char *text = process_read(path, NULL);
    CUresult code =
        text ? t->session.driver->cuModuleLoadDataEx(&t->module[file], text, 0, NULL, NULL)
             : CUDA_ERROR_NOT_FOUND;
    free(text);
    if (code != CUDA_SUCCESS) fprintf(stderr, "twins: %s does not load: %d\n", path, code);
    return code == CUDA_SUCCESS;
}

static bool assemble(struct twins *t) {
    char path[256];
    for (int i = 0; i < TYPES; i++) {
        (void)snprintf(path, sizeof path, "%s/%s.%s.ptx", t->bundle, types[i], t->arch);
        if (!cubin_open(t->ptxas, t->arch, path, t->scratch, &t->code[OURS][i])) return false;
    }
    for (int i = 0; i < FILES; i++) {
        ptx_path(t, i, path);
        if (!cubin_open(t->ptxas, t->arch, path, t->scratch, &t->code[THEIRS][i])) return false;
    }
    return true;
}

static bool make_both(struct twins *t) {
    const struct options options = {.bundle = t->bundle, .driver = t->driver};
    bool good = build_bundle(t);
    for (int i = 0; good && i < FILES; i++) good = compile(t, i);
    good = good && (!t->has_ptxas || assemble(t)) && session_open(&options, &t->session);
    if (good && t->driver == KVF_DRIVER_CUDA)
        good = timing_open(&t->session, SAMPLES, &t->timing);
    else
        good = good && counted_start(&t->session);
    for (int i = 0; good && i < FILES; i++) good = load_module(t, i);
    return good;
}

/* ---- the table ---- */

static double count(const struct pair_result *result, int side, const char *name) {
    return (double)json_integer_value(json_object_get(result->counters[side], name));
}

static int index_of(const char *const *list, int length, const char *name) {
    int i = 0;
    while (i + 1 < length && strcmp(list[i], name) != 0) i++;
    return i;
}

static void print_code(const struct twins *t, const struct pair_job *job) {
    char entry[128];
    struct cubin_kernel kernel[SIDES];
    (void)snprintf(entry, sizeof entry, "kvf_%s_%s", job->type, job->kernel);
    if (!t->has_ptxas ||
        !cubin_find(&t->code[OURS][index_of(types, TYPES, job->type)], entry, &kernel[OURS]) ||
        !cubin_find(&t->code[THEIRS][index_of(files, FILES, job->file)], job->entry,
                    &kernel[THEIRS])) {
        printf(" %9s %11s", "-", "-");
        return;
    }
    printf(" %4ld %4ld %5ld %5ld", kernel[OURS].registers, kernel[THEIRS].registers,
           kernel[OURS].spill, kernel[THEIRS].spill);
}

static void print_counts(const struct pair_result *result) {
    double instructions[SIDES], moved[SIDES], needed[SIDES];
    for (int i = 0; i < SIDES; i++) {
        instructions[i] = count(result, i, "warp_instructions");
        moved[i] = count(result, i, "sectors_moved");
        needed[i] = count(result, i, "sectors_needed");
    }
    printf("%9.0f %9.0f %5.2f %8.0f %8.0f %5.2f %5.2f %5.2f %7.0f %7.0f", instructions[OURS],
           instructions[THEIRS], instructions[OURS] / instructions[THEIRS], moved[OURS],
           moved[THEIRS], moved[OURS] / moved[THEIRS], moved[OURS] / needed[OURS],
           moved[THEIRS] / needed[THEIRS], count(result, OURS, "bank_conflicts"),
           count(result, THEIRS, "bank_conflicts"));
}

static void print_line(const struct twins *t, const struct pair_job *job, bool prefill,
                       const struct pair_result *result) {
    printf("%-6s %-19s %-7s ", job->type, job->entry, prefill ? "prefill" : "decode");
    if (t->driver == KVF_DRIVER_CUDA)
        printf("%9.2f %9.2f %5.2f", result->ms[OURS] * 1e3, result->ms[THEIRS] * 1e3,
               result->ms[OURS] / result->ms[THEIRS]);
    else
        print_counts(result);
    print_code(t, job);
    printf("  %s%s\n", result->same ? "" : "NOT THE SAME: ", result->said);
    (void)fflush(stdout);
}

static void print_head(const struct twins *t) {
    printf("%s, %s; bench/cuda compiled by nvcc%s\n\n", SPEC, t->arch,
           t->has_ptxas ? "" : "; no ptxas, so no registers and spills");
    if (t->driver == KVF_DRIVER_CUDA) {
        printf("%-34s %-25s %-9s %-11s\n", "", "us", "registers", "spill bytes");
        printf("%-6s %-19s %-7s %9s %9s %5s", "type", "CUDA C", "batch", "ours", "theirs", "ratio");
    } else {
        printf("%-34s %-25s %-23s %-11s %-15s %-9s %-11s\n", "", "warp instructions",
               "sectors moved", "moved/need", "bank conflicts", "registers", "spill bytes");
        printf("%-6s %-19s %-7s %9s %9s %5s %8s %8s %5s %5s %5s %7s %7s", "type", "CUDA C", "batch",
               "ours", "theirs", "ratio", "ours", "theirs", "ratio", "ours", "their", "ours",
               "theirs");
    }
    printf(" %4s %4s %5s %5s  %s\n", "ours", "thei", "ours", "their", "results");
}

static bool is_wanted(const struct twins *t, const struct pair_job *job) {
    for (int i = 0; i < t->wanted_count; i++)
        if (!strcmp(t->wanted[i], job->kernel)) return true;
    return !t->wanted_count;
}

static bool run_jobs(struct twins *t) {
    bool good = true;
    for (int i = 0; i < JOBS; i++) {
        const struct pair_job *job = &jobs[i];
        const struct load *load = load_find(job->kernel);
        for (int prefill = 0; load && is_wanted(t, job) && prefill < 2; prefill++) {
            struct pair_result result;
            if (!(prefill ? load->prefill : load->decode)) continue;
            CUmodule theirs = t->module[index_of(files, FILES, job->file)];
            bool real = t->driver == KVF_DRIVER_CUDA;
            uint32_t requests = prefill ? PREFILL : DECODE;
            if (!pair_run(&t->session, real ? &t->timing : NULL, job, prefill, real ? requests : 0,
                          theirs, &result))
                return false;
            print_line(t, job, prefill, &result);
            good = good && result.same;
            pair_free(&result);
        }
    }
    return good;
}

/* The options; what follows them are kernels. */
static bool parse(struct twins *t, int argc, char **argv) {
    int i = 1;
    t->arch = "sm_90";
    t->driver = KVF_DRIVER_EXECUTOR;
    for (; i < argc && argv[i][0] == '-'; i += 2) {
        if (i + 1 == argc) return false;
        if (!strcmp(argv[i], "--arch"))
            t->arch = argv[i + 1];
        else if (!strcmp(argv[i], "--driver") && !strcmp(argv[i + 1], "cuda"))
            t->driver = KVF_DRIVER_CUDA;
        else if (strcmp(argv[i], "--driver") != 0 || strcmp(argv[i + 1], "executor") != 0)
            return false;
    }
    t->wanted = argv + i;
    t->wanted_count = argc - i;
    return true;
}

int main(int argc, char **argv) {
    static struct twins t;
    if (!parse(&t, argc, argv)) {
        fprintf(stderr, "usage: twins [--driver executor|cuda] [--arch sm_90] [KERNEL...]\n");
        return 2;
    }
    machine_print();
    t.has_ptxas = process_find("ptxas", t.ptxas, sizeof t.ptxas);
    if (!process_find("nvcc", t.nvcc, sizeof t.nvcc)) {
        printf("no nvcc: nothing to compare with\n");
        return 0;
    }
    bool good = process_scratch(t.scratch) && make_both(&t);
    if (good) {
        print_head(&t);
        good = run_jobs(&t);
    }
    for (int side = 0; side < SIDES; side++)
        for (int i = 0; i < FILES; i++) cubin_close(&t.code[side][i]);
    if (t.session.driver && t.driver == KVF_DRIVER_CUDA) timing_close(&t.timing);
    session_close(&t.session);
    if (*t.scratch) process_remove(t.scratch);
    if (!good) fprintf(stderr, "twins: failed\n");
    return good ? 0 : 1;
}
