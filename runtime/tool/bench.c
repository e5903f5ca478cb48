/*
 * kvforge-run bench: how long every kernel takes on full batches, by the driver's events, and what
 * share that is of the copy bandwidth and of the bf16 matrix rate, both measured in the same run.
 * The bytes needed and the multiply-adds come from the executor's counters of the profile's
 * launches, by unit of work: a program of its own counts them, so that they are there whatever
 * driver measures the times.
 */
#include "load.h"
#include "rates.h"
#include "tool.h"

#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* A real device is given enough to fill it; the executor as little as shows that it all works. */
struct sizes {
    uint32_t decode, prefill; /* requests; 0: as many as the profile has */
    uint32_t samples;
    size_t copy; /* bytes */
    uint32_t blocks_per_multiprocessor, blocks, steps;
};

static const struct sizes real_sizes = {256, 32, 30, (size_t)1 << 30, 4, 0, 4096};
static const struct sizes executor_sizes = {0, 0, 1, 1 << 20, 0, 2, 8};

struct bench {
    struct session session;
    struct timing timing;
    struct rates rates;
    struct sizes sizes;
    const struct options *options;
    bool real;
    json_t *counted; /* what profile counted: a list; null: nothing */
    json_t *kernels; /* our results */
};

/* ---- what the kernels need, counted on the executor ---- */

/* The environment with the executor as the chip that is measured, so that it takes its modules. */
static bool spawn_profile(const struct bench *b, char *path) {
    char chip[64], program[] = "/proc/self/exe", word[] = "profile", json[] = "--json";
    char kernel[] = "--kernel", type[] = "--type";
    char *arguments[10] = {program, word, json, path};
    int count = 4, capability = kvf_device_capability(b->session.device), status = 1;
    pid_t child;
    posix_spawn_file_actions_t actions;
    if (b->options->kernel)
        arguments[count++] = kernel, arguments[count++] = (char *)(uintptr_t)b->options->kernel;
    if (b->options->type)
        arguments[count++] = type, arguments[count++] = (char *)(uintptr_t)b->options->type;
    arguments[count] = (char *)(uintptr_t)b->options->bundle;
    snprintf(chip, sizeof chip, "%d.%d", capability / 10, capability % 10);
    setenv("KVF_EXECUTOR_CAPABILITY", chip, 0);
    if (posix_spawn_file_actions_init(&actions)) return false;
    bool good = !posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1 /* O_WRONLY */, 0) &&
                !posix_spawn(&child, program, &actions, NULL, arguments, environ) &&
                waitpid(child, &status, 0) == child && status == 0;
    posix_spawn_file_actions_destroy(&actions);
    return good;
}

static void count(struct bench *b) {
    char path[] = "/tmp/kvforge-bench-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) return;
    close(file);
    if (spawn_profile(b, path)) b->counted = json_load_file(path, 0, NULL);
    unlink(path);
    if (!b->counted) printf("# the executor did not count: no bytes needed and no multiply-adds\n");
}

/* A counter of the same kernel and batch in profile's list, for `units` units of work; 0: unknown.
 */
static double needed(const struct bench *b, const char *entry, bool prefill, const char *counter,
                     double units) {
    size_t i;
    const json_t *k;
    json_array_foreach(b->counted, i, k) {
        double counted = json_number_value(json_object_get(k, "units"));
        const char *batch = json_string_value(json_object_get(k, "load"));
        const char *name = json_string_value(json_object_get(k, "kernel"));
        if (!name || !batch || strcmp(name, entry) != 0 || (*batch == 'p') != prefill) continue;
        return counted > 0 ? json_number_value(json_object_get(k, counter)) * units / counted : 0;
    }
    return 0;
}

/* ---- one kernel ---- */

static bool submit(void *context) {
    struct call *call = context;
    kvf_error error = {0};
    if (!kvf_launch(call->kernel, NULL, call->bytes, call->info.params_bytes, &error)) return true;
    return session_fail("launch", &error);
}

static void set(json_t *object, const char *name, double value) {
    json_object_set_new(object, name, value > 0 ? json_real(value) : json_null());
}

static json_t *result(const struct bench *b, const struct load *load, const struct loaded *loaded,
                      bool prefill, double ms) {
    double units = (double)loaded->units, seconds = ms / 1e3;
    const char *entry = loaded->call.info.entry;
    double bytes = 32 * needed(b, entry, prefill, "sectors_needed", units);
    double macs = needed(b, entry, prefill, "tensor_macs", units);
    json_t *out = json_object();
    json_object_set_new(out, "kernel", json_string(entry));
    json_object_set_new(out, "load", json_string(prefill ? "prefill" : "decode"));
    json_object_set_new(out, "unit", json_string(load->unit));
    set(out, "units", units);
    set(out, "seconds", seconds);
    set(out, "bytes_needed", bytes);
    set(out, "macs", macs);
    set(out, "of_copy", seconds > 0 && b->rates.copy > 0 ? bytes / seconds / b->rates.copy : 0);
    set(out, "of_mma", seconds > 0 && b->rates.mma > 0 ? macs / seconds / b->rates.mma : 0);
    return out;
}

static double number(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

static void print_or_dash(int width, int digits, double value) {
    if (value > 0)
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

static void print_result(const json_t *k) {
    double seconds = number(k, "seconds"), bytes = number(k, "bytes_needed");
    printf("%-34s %-7s %9.0f %-6s", json_string_value(json_object_get(k, "kernel")),
           json_string_value(json_object_get(k, "load")), number(k, "units"),
           json_string_value(json_object_get(k, "unit")));
    print_or_dash(9, 2, seconds * 1e6);
    print_or_dash(9, 2, seconds * 1e9 / number(k, "units"));
    print_or_dash(11, 0, bytes);
    print_or_dash(8, 1, seconds > 0 ? bytes / seconds / 1e9 : 0);
    print_or_dash(7, 3, number(k, "of_copy"));
    print_or_dash(8, 1, seconds > 0 ? number(k, "macs") / seconds / 1e12 : 0);
    print_or_dash(7, 3, number(k, "of_mma"));
    printf("\n");
    fflush(stdout);
}

static bool measure(struct bench *b, const kvf_type_info *info, const struct load *load,
                    bool prefill) {
    struct loaded loaded;
    uint32_t requests = prefill ? b->sizes.prefill : b->sizes.decode;
    if (!load_make(&b->session, info, load, prefill, requests, &loaded)) return false;
    /* The first launch checks that every parameter is set, and waits. */
    bool good = call_launch(&b->session, &loaded.call);
    double ms = good ? timing_median(&b->timing, submit, &loaded.call) : -1;
    good = ms >= 0 && session_wait(&b->session);
    if (good) {
        json_t *k = result(b, load, &loaded, prefill, ms);
        print_result(k);
        good = !json_array_append_new(b->kernels, k);
    }
    load_free(&b->session, &loaded);
    return good;
}

/* ---- all of them ---- */

static bool measure_type(struct bench *b, const kvf_type_info *info) {
    const struct rules *rules = &b->session.rules;
    bool good = true;
    for (size_t i = 0; good && i < rules->kernel_count; i++) {
        const struct rules_kernel *kernel = &rules->kernels[i];
        const struct load *load = load_find(kernel->name);
        if (strcmp(kernel->type, info->name) != 0 || rules_seen_before(rules, i)) continue;
        if (!options_name(b->options->kernel, kernel->name)) continue;
        if (!load) {
            fprintf(stderr, "kvforge-run: bench: there is no load for %s\n", kernel->name);
            return false;
        }
        if (load->decode) good = measure(b, info, load, false);
        if (good && load->prefill) good = measure(b, info, load, true);
    }
    return good;
}

static bool measure_all(struct bench *b) {
    const kvf_type_info common = {.name = "common"};
    bool good = true;
    for (uint32_t type = 0; good && type < b->session.model.types; type++) {
        kvf_type_info info;
        good = !kvf_bundle_type(b->session.bundle, type, &info);
        if (good && options_name(b->options->type, info.name)) good = measure_type(b, &info);
    }
    if (good && options_name(b->options->type, common.name)) good = measure_type(b, &common);
    if (good && !json_array_size(b->kernels)) {
        fprintf(stderr, "kvforge-run: bench: the bundle has no such kernel or layer type\n");
        return false;
    }
    return good;
}

/* ---- the command ---- */

static void choose_sizes(struct bench *b) {
    const struct options *options = b->options;
    b->sizes = b->real ? real_sizes : executor_sizes;
    if (options->requests) {
        b->sizes.decode = (uint32_t)options->requests;
        b->sizes.prefill = b->sizes.decode / 8 ? b->sizes.decode / 8 : 1;
    }
    if (options->launches) b->sizes.samples = (uint32_t)options->launches;
    int multiprocessors = 0;
    b->session.driver->cuDeviceGetAttribute(&multiprocessors,
                                            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    b->sizes.blocks += b->sizes.blocks_per_multiprocessor * (uint32_t)multiprocessors;
}

static void date_of(char text[32]) {
    time_t now = time(NULL);
    struct tm when;
    if (!gmtime_r(&now, &when) || !strftime(text, 32, "%Y-%m-%d", &when)) *text = 0;
}

static void print_head(const struct bench *b) {
    char date[32];
    date_of(date);
    printf("# date: %s; model: %s; medians of %u samples\n", date, b->session.model.name,
           b->sizes.samples);
    printf("# copy of %zu MiB: %.1f GB/s read and written; mma.sync m16n8k16 bf16: %.2f "
           "T multiply-adds/s\n",
           b->sizes.copy >> 20, b->rates.copy / 1e9, b->rates.mma / 1e12);
    if (!b->real) printf("# this is the executor: times mean nothing here\n");
    printf("\n%-34s %-7s %9s %-6s %9s %9s %11s %8s %7s %8s %7s\n", "kernel", "load", "work", "unit",
           "us", "ns/unit", "needed B", "GB/s", "of copy", "T MAC/s", "of mma");
}

static bool keep(const struct bench *b, const char *path) {
    char date[32];
    int version = kvf_driver_version(b->session.driver);
    date_of(date);
    json_t *all = json_object();
    json_object_set_new(all, "date", json_string(date));
    json_object_set_new(all, "model", json_string(b->session.model.name));
    json_object_set_new(all, "device", json_string(kvf_device_name(b->session.device)));
    json_object_set_new(all, "capability", json_integer(kvf_device_capability(b->session.device)));
    json_object_set_new(all, "driver", json_string(b->real ? "CUDA" : "executor"));
    json_object_set_new(all, "driver_version", json_integer(version));
    json_object_set_new(all, "times_mean_something", json_boolean(b->real));
    json_object_set_new(all, "samples", json_integer(b->sizes.samples));
    set(all, "copy_bytes_per_second", b->rates.copy);
    set(all, "mma_macs_per_second", b->rates.mma);
    json_object_set(all, "kernels", b->kernels);
    bool good = !json_dump_file(all, path, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    if (!good) fprintf(stderr, "kvforge-run: bench: cannot write %s\n", path);
    json_decref(all);
    return good;
}

static bool run(struct bench *b) {
    if (!session_open(b->options, &b->session)) return false;
    b->real = kvf_driver_kind_of(b->session.driver) == KVF_DRIVER_CUDA;
    choose_sizes(b);
    count(b);
    if (!timing_open(&b->session, b->sizes.samples, &b->timing) ||
        !rates_measure(&b->timing, b->sizes.copy, b->sizes.blocks, b->sizes.steps, &b->rates))
        return false;
    print_head(b);
    if (!measure_all(b)) return false;
    printf("\nneeded B: 32-byte sectors that the launch cannot do without, as the executor counts "
           "them; what several\nblocks read counts for each, so cached rows can be faster than a "
           "copy. of copy, of mma: shares of the\nrates above.\n");
    return !b->options->json || keep(b, b->options->json);
}

int tool_bench(int argc, char **argv) {
    struct options options;
    int status = options_parse(argc, argv, "dktgqlj",
                               "Measure how long every kernel of BUNDLE takes on full batches, and "
                               "which share of the device's\nown rates that is. On the executor "
                               "times mean nothing.",
                               &options);
    if (status >= 0) return status;
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return TOOL_FAILED;
    b->options = &options;
    b->kernels = json_array();
    bool good = run(b);
    timing_close(&b->timing);
    session_close(&b->session);
    json_decref(b->counted);
    json_decref(b->kernels);
    free(b);
    return good ? TOOL_GOOD : TOOL_FAILED;
}
