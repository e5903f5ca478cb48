/*
 * kvforge-run profile: what a bundle's kernels did on the executor, counted exactly, and how long a
 * chip would at least need for it. The kernels run on verify's inputs, in a process of their own;
 * the executor leaves its counters in a file.
 */
#include "tool.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Peak rates by the makers' data sheets: dense bf16, boost clock; an estimate divides by them. */
static const struct chip {
    const char *name;
    double bytes, tensor_macs, multiprocessors, clock; /* a second; Hz */
} chips[] = {
    {"A100-80", 2.039e12, 312e12 / 2, 108, 1.41e9}, {"H100", 3.35e12, 989e12 / 2, 132, 1.83e9},
    {"H200", 4.8e12, 989e12 / 2, 132, 1.83e9},      {"L40S", 0.864e12, 362e12 / 2, 142, 2.52e9},
    {"B200", 8.0e12, 2250e12 / 2, 148, 1.85e9},
};

enum { CHIPS = sizeof chips / sizeof *chips };

static const struct chip *find_chip(const char *name) {
    for (int i = 0; i < CHIPS; i++)
        if (!strcmp(chips[i].name, name)) return &chips[i];
    return NULL;
}

static double number(const json_t *kernel, const char *name) {
    return (double)json_integer_value(json_object_get(kernel, name));
}

/* Seconds by each limit; returns the largest and its name. */
static double roofline(const json_t *k, const struct chip *chip, const char **binds) {
    const struct {
        const char *name;
        double seconds;
    } limits[] = {
        {"memory", number(k, "sectors_moved") * 32 / chip->bytes},
        {"tensor", number(k, "tensor_macs") / chip->tensor_macs},
        {"issue", number(k, "warp_instructions") / (chip->multiprocessors * 4 * chip->clock)},
        {"shared", (number(k, "shared_bytes") / 128 + number(k, "bank_conflicts")) /
                       (chip->multiprocessors * chip->clock)},
    };
    double most = -1;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].seconds > most) {
            most = limits[i].seconds;
            *binds = limits[i].name;
        }
    return most;
}

static void print_table(const json_t *kernels, const struct chip *chip) {
    size_t i;
    json_t *k;
    printf("%-34s %8s %11s %6s %10s %10s %6s %9s %8s %10s  %s\n", "kernel", "launches",
           "warp instr.", "lanes", "load B", "store B", "moved", "conflicts", "barriers", "MACs",
           chip->name);
    json_array_foreach(kernels, i, k) {
        double warps = number(k, "warp_instructions"), needed = number(k, "sectors_needed");
        const char *binds = "";
        double seconds = roofline(k, chip, &binds);
        printf("%-34s %8.0f %11.0f %6.1f %10.0f %10.0f %6.2f %9.0f %8.0f %10.0f  %.3g us, %s\n",
               json_string_value(json_object_get(k, "kernel")), number(k, "launches"), warps,
               warps > 0 ? number(k, "lane_instructions") / warps : 0,
               number(k, "global_load_bytes"), number(k, "global_store_bytes"),
               needed > 0 ? number(k, "sectors_moved") / needed : 0, number(k, "bank_conflicts"),
               number(json_object_get(k, "class_warps"), "barrier"), number(k, "tensor_macs"),
               seconds * 1e6, binds);
    }
    printf(
        "\nlanes: active of 32, on average. moved: 32-byte sectors moved for each that is needed.\n"
        "Last column: the least time on this chip by its data sheet, and the limit that binds.\n");
}

/* Run verify on the bundle with its output thrown away; the executor writes `path` at its end. */
static int run_counted(char *bundle, char *kernel, const char *path) {
    pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        char word[] = "verify", driver[] = "--driver", executor[] = "executor";
        char only[] = "--kernel";
        char *arguments[] = {word, driver, executor, bundle, kernel ? only : NULL, kernel, NULL};
        setenv("KVF_EXECUTOR_COUNTERS", path, 1);
        if (!freopen("/dev/null", "w", stdout)) exit(TOOL_FAILED);
        exit(tool_verify(kernel ? 6 : 4, arguments));
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static int usage(FILE *out, int status) {
    fprintf(out, "usage: kvforge-run profile [options] BUNDLE\n\n"
                 "Run BUNDLE's kernels on the executor, count what they do, and estimate the least "
                 "time on a chip.\n\n"
                 "options:\n"
                 "  --chip NAME  one of");
    for (int i = 0; i < CHIPS; i++) fprintf(out, " %s", chips[i].name);
    fprintf(out, " (H100)\n  --kernel NAME,...  only these kernels\n  --json FILE  keep the "
                 "counters in FILE\n");
    return status;
}

int tool_profile(int argc, char **argv) {
    const struct chip *chip = find_chip("H100");
    const char *keep = NULL;
    char *bundle = NULL, *kernel = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) return usage(stdout, TOOL_GOOD);
        if (!strcmp(argv[i], "--chip") && i + 1 < argc)
            chip = find_chip(argv[++i]);
        else if (!strcmp(argv[i], "--json") && i + 1 < argc)
            keep = argv[++i];
        else if (!strcmp(argv[i], "--kernel") && i + 1 < argc)
            kernel = argv[++i];
        else if (argv[i][0] != '-' && !bundle)
            bundle = argv[i];
        else
            return usage(stderr, TOOL_USAGE);
    }
    if (!bundle || !chip) return usage(stderr, TOOL_USAGE);
    char path[] = "/tmp/kvforge-profile-XXXXXX";
    int file = keep ? -1 : mkstemp(path);
    if (!keep && file < 0) {
        perror("kvforge-run: profile");
        return TOOL_FAILED;
    }
    if (file >= 0) close(file);
    const char *where = keep ? keep : path;
    int status = run_counted(bundle, kernel, where);
    json_error_t error;
    json_t *kernels = json_load_file(where, 0, &error);
    if (!keep) unlink(path);
    if (!json_is_array(kernels) || !json_array_size(kernels)) {
        fprintf(stderr, "kvforge-run: the executor counted nothing (verify ended with %d)\n",
                status);
        json_decref(kernels);
        return TOOL_FAILED;
    }
    print_table(kernels, chip);
    json_decref(kernels);
    return status == TOOL_GOOD ? TOOL_GOOD : TOOL_FAILED;
}
