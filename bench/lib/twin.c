#include "twin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvrtc.h"

const char *twin_form_name(enum twin_form form) {
    return form == TWIN_HEADERS ? "cuda_bf16.h, cuda_fp8.h" : "no headers";
}

__attribute__((format(printf, 2, 3))) static void add_option(struct twin_options *out,
                                                             const char *format, ...) {
    va_list args;
    if (out->count == TWIN_OPTIONS) return;
    va_start(args, format);
    (void)vsnprintf(out->buffer[out->count], sizeof out->buffer[0], format, args);
    va_end(args);
    out->text[out->count] = out->buffer[out->count];
    out->count++;
}

static long long integer_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static bool is_text(const json_t *object, const char *key, const char *text) {
    const char *have = json_string_value(json_object_get(object, key));
    return have && strcmp(have, text) == 0;
}

static const json_t *find_type(const json_t *manifest, const char *name) {
    size_t i;
    const json_t *type;
    json_array_foreach(json_object_get(manifest, "types"), i, type) {
        if (is_text(type, "name", name)) return type;
    }
    return NULL;
}

bool twin_options(const json_t *manifest, const char *type_name, struct twin_options *out) {
    const json_t *model = json_object_get(manifest, "model"),
                 *type = find_type(manifest, type_name);
    out->count = 0;
    if (!type || !is_text(model, "window_mode", "ring") || !is_text(model, "input_dtype", "bf16") ||
        !is_text(type, "format", "fp8_token") || !json_is_true(json_object_get(model, "kv_norm")))
        return false;
    add_option(out, "-DHEAD_DIM=%lld", integer_of(type, "head_dim"));
    add_option(out, "-DROPE_DIM=%lld", integer_of(type, "rope_dim"));
    add_option(out, "-DRING=%lld", integer_of(type, "ring"));
    add_option(out, "-DNORM_EPS=%.17ef", json_number_value(json_object_get(model, "norm_eps")));
    add_option(out, "-DROUND_BEFORE_ROPE=%d",
               json_is_true(json_object_get(model, "round_before_rope")));
    add_option(out, "-fmad=false");
    add_option(out, "-std=c++17");
    (void)snprintf(out->include, sizeof out->include, "-I%s/include", process_cuda_home());
    ssize_t length = readlink("/proc/self/exe", out->self, sizeof out->self - 1);
    if (length < 0) return false;
    out->self[length] = 0;
    return true;
}

bool twin_has_headers(const struct twin_options *options) {
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/cuda_fp8.h", options->include + strlen("-I"));
    return access(path, R_OK) == 0;
}

/* ---- NVRTC: parent and child ---- */

void twin_nvrtc_argv(enum twin_form form, const struct twin_options *options, int compilations,
                     const char *ptx, char count[16], const char *argv[TWIN_ARGS]) {
    int n = 0;
    (void)snprintf(count, 16, "%d", compilations);
    argv[n++] = options->self;
    argv[n++] = TWIN_CHILD;
    argv[n++] = count;
    argv[n++] = ptx;
    argv[n++] = "-arch=sm_90";
    for (int i = 0; i < options->count; i++) argv[n++] = options->text[i];
    argv[n++] = form == TWIN_PLAIN ? "-DNO_HEADERS" : options->include;
    argv[n] = NULL;
}

/* Compile `count` times, print what each took, and write the last PTX to `out`. */
static int compile_all(const struct nvrtc *nvrtc, const char *source, int count, const char *out,
                       const char *const *options, int n_options) {
    char *ptx = NULL;
    if (count < 1) return 1;
    for (int i = 0; i < count; i++) {
        free(ptx);
        double wall = clock_wall(), cpu = clock_cpu();
        ptx = nvrtc_compile(nvrtc, source, TWIN_SOURCE, options, n_options);
        if (!ptx) return 1;
        printf("%.6f %.6f\n", clock_wall() - wall, clock_cpu() - cpu);
    }
    FILE *file = fopen(out, "w");
    bool good = file && ptx && fputs(ptx, file) >= 0;
    if (file && fclose(file)) good = false;
    free(ptx);
    return !good;
}

int twin_child(int argc, char **argv) {
    struct nvrtc nvrtc;
    const char *options[TWIN_ARGS];
    int n_options = 0;
    char why[512] = "";
    if (argc < 4 || !nvrtc_open(&nvrtc, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    int count = (int)strtol(argv[2], NULL, 10);
    if (!count) {
        printf("%d.%d\n", nvrtc.major, nvrtc.minor);
        return 0;
    }
    char *source = process_read(TWIN_SOURCE, NULL);
    if (!source) {
        perror(TWIN_SOURCE);
        return 1;
    }
    for (; n_options + 4 < argc && n_options < TWIN_ARGS; n_options++)
        options[n_options] = argv[n_options + 4];
    int status = compile_all(&nvrtc, source, count, argv[3], options, n_options);
    free(source);
    return status;
}

bool twin_nvrtc_version(const struct twin_options *options, const char *scratch, char *text,
                        size_t bytes) {
    char out[128], log[128];
    const char *argv[] = {options->self, TWIN_CHILD, "0", "-", NULL};
    (void)snprintf(out, sizeof out, "%s/version.out", scratch);
    (void)snprintf(log, sizeof log, "%s/version.log", scratch);
    bool good =
        process_run(&(struct process){.argv = argv, .out = out, .err = log, .core = -1}, NULL);
    char *said = process_read(good ? out : log, NULL);
    (void)snprintf(text, bytes, "%.*s", said ? (int)strcspn(said, "\n") : 0, said ? said : "");
    free(said);
    return good;
}

/* A line a compilation: wall time, CPU time. */
static void read_times(const char *text, struct twin_times *times) {
    for (int i = 0;; i++) {
        char *end, *rest;
        double wall = strtod(text, &end), cpu = strtod(end, &rest);
        if (end == text || rest == end) return;
        sample_add(i ? &times->wall : &times->first_wall, wall);
        sample_add(i ? &times->cpu : &times->first_cpu, cpu);
        text = rest;
    }
}

static bool run(const struct process *process, struct process_cost *cost) {
    if (process_run(process, cost)) return true;
    char *log = process_read(process->err, NULL);
    if (log) fputs(log, stderr);
    free(log);
    return false;
}

bool twin_nvrtc(enum twin_form form, const struct twin_options *options, int compilations,
                const char *ptx, int core, const char *scratch, struct twin_times *times) {
    char count[16], out[128], log[128];
    const char *argv[TWIN_ARGS];
    struct process_cost cost;
    (void)snprintf(out, sizeof out, "%s/nvrtc.out", scratch);
    (void)snprintf(log, sizeof log, "%s/nvrtc.log", scratch);
    twin_nvrtc_argv(form, options, compilations, ptx, count, argv);
    if (!run(&(struct process){.argv = argv, .out = out, .err = log, .core = core}, &cost))
        return false;
    sample_add(&times->peak, cost.peak);
    char *text = process_read(out, NULL);
    if (text) read_times(text, times);
    free(text);
    return true;
}

/* ---- nvcc ---- */

bool twin_nvcc(const char *nvcc, enum twin_form form, const struct twin_options *options,
               const char *ptx, int core, const char *scratch, struct twin_times *times) {
    char log[128];
    const char *argv[TWIN_ARGS];
    struct process_cost cost;
    int n = 0;
    (void)snprintf(log, sizeof log, "%s/nvcc.log", scratch);
    argv[n++] = nvcc;
    argv[n++] = "-ptx";
    argv[n++] = "-arch=sm_90";
    for (int i = 0; i < options->count; i++) argv[n++] = options->text[i];
    if (form == TWIN_PLAIN) argv[n++] = "-DNO_HEADERS";
    argv[n++] = TWIN_SOURCE;
    argv[n++] = "-o";
    argv[n++] = ptx;
    argv[n] = NULL;
    if (!run(&(struct process){.argv = argv, .err = log, .core = core}, &cost)) return false;
    sample_add(&times->wall, cost.wall);
    sample_add(&times->cpu, cost.cpu);
    sample_add(&times->peak, cost.peak);
    return true;
}
