/*
 * kvforge-run profile: what a bundle's kernels did on the executor, counted exactly, and how long a
 * chip would at least need for it. Each kernel is launched on full batches, see load.h. With
 * --verify all of verify's odd inputs are counted together, in a process of its own; the executor
 * leaves its counters in a file.
 */
#include "counted.h"
#include "load.h"
#include "tool.h"

#include <getopt.h>
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

/* ---- the table ---- */

static const char *text(const json_t *kernel, const char *name) {
    const char *value = json_string_value(json_object_get(kernel, name));
    return value ? value : "";
}

/* `above` for each of `below`, or "-" where there is none. */
static void print_ratio(int width, int digits, double above, double below) {
    if (below > 0)
        printf(" %*.*f", width, digits, above / below);
    else
        printf(" %*s", width, "-");
}

static void print_line(const json_t *k, const struct chip *chip) {
    double warps = number(k, "warp_instructions");
    const char *binds = "";
    double seconds = roofline(k, chip, &binds);
    printf("%-34s %-7s %8.0f %-6s %10.0f", text(k, "kernel"), text(k, "load"), number(k, "units"),
           text(k, "unit"), warps);
    print_ratio(8, 2, warps, number(k, "units"));
    print_ratio(8, 2, warps * 1024, number(k, "tensor_macs"));
    print_ratio(5, 1, number(k, "lane_instructions"), warps);
    printf(" %10.0f %10.0f", number(k, "global_load_bytes"), number(k, "global_store_bytes"));
    print_ratio(5, 2, number(k, "sectors_moved"), number(k, "sectors_needed"));
    printf(" %9.0f %8.0f %10.0f  %.3g us, %s\n", number(k, "bank_conflicts"),
           number(json_object_get(k, "class_warps"), "barrier"), number(k, "tensor_macs"),
           seconds * 1e6, binds);
}

static void print_table(const json_t *kernels, const struct chip *chip) {
    size_t i;
    json_t *k;
    printf("%-34s %-7s %8s %-6s %10s %8s %8s %5s %10s %10s %5s %9s %8s %10s  %s\n", "kernel",
           "load", "work", "unit", "warp in.", "per unit", "per KMAC", "lanes", "load B", "store B",
           "moved", "conflicts", "barriers", "MACs", chip->name);
    json_array_foreach(kernels, i, k) print_line(k, chip);
    printf("\nper unit, per KMAC: warp instructions for each unit of work, and for 1024 tensor\n"
           "multiply-adds. lanes: active of 32, on average. moved: 32-byte sectors moved for each\n"
           "that is needed. Last column: the least time on this chip by its data sheet, and the\n"
           "limit that binds.\n");
}

/* ---- full batches ---- */

struct wanted {
    char *bundle, *kernel, *type; /* the two lists of names, or null */
    bool verify;
    const struct chip *chip;
    const char *keep;
};

/* One launch, added to the list. */
static bool count_launch(struct session *session, const kvf_type_info *info,
                         const struct load *load, bool prefill, json_t *list) {
    char entry[128];
    uint64_t units = 0;
    snprintf(entry, sizeof entry, "kvf_%s_%s", info->name, load->kernel);
    struct counted *before = counted_now(session);
    json_t *k = NULL;
    if (before && load_run(session, info, load, prefill, &units))
        k = counted_since(session, before, entry);
    free(before);
    if (!k) {
        fprintf(stderr, "kvforge-run: profile: %s was not counted\n", entry);
        return false;
    }
    json_object_set_new(k, "load", json_string(prefill ? "prefill" : "decode"));
    json_object_set_new(k, "unit", json_string(load->unit));
    json_object_set_new(k, "units", json_integer((json_int_t)units));
    return !json_array_append_new(list, k);
}

/* All kernels of a layer type, or of the common module. */
static bool count_type(struct session *session, const struct wanted *wanted,
                       const kvf_type_info *info, json_t *list) {
    const struct rules *rules = &session->rules;
    bool good = true;
    for (size_t i = 0; good && i < rules->kernel_count; i++) {
        const struct rules_kernel *kernel = &rules->kernels[i];
        if (strcmp(kernel->type, info->name) != 0 || rules_seen_before(rules, i)) continue;
        if (!options_name(wanted->kernel, kernel->name)) continue;
        const struct load *load = load_find(kernel->name);
        if (!load) {
            fprintf(stderr, "kvforge-run: profile: there is no load for %s\n", kernel->name);
            return false;
        }
        for (int prefill = 0; good && prefill < 2; prefill++)
            if (prefill ? load->prefill : load->decode)
                good = count_launch(session, info, load, prefill, list);
    }
    return good;
}

static json_t *count_all(const struct wanted *wanted) {
    const struct options options = {.bundle = wanted->bundle, .driver = KVF_DRIVER_EXECUTOR};
    const kvf_type_info common = {.name = "common"};
    struct session session;
    json_t *list = json_array();
    bool good = session_open(&options, &session) && counted_start(&session);
    for (uint32_t type = 0; good && type < session.model.types; type++) {
        kvf_type_info info;
        good = !kvf_bundle_type(session.bundle, type, &info);
        if (good && options_name(wanted->type, info.name))
            good = count_type(&session, wanted, &info, list);
    }
    if (good && options_name(wanted->type, common.name))
        good = count_type(&session, wanted, &common, list);
    session_close(&session);
    if (good && json_array_size(list)) return list;
    if (good)
        fprintf(stderr, "kvforge-run: profile: the bundle has no such kernel or layer type\n");
    json_decref(list);
    return NULL;
}

/* ---- verify's inputs ---- */

/* Run verify on the bundle with its output thrown away; the executor writes `path` at its end. */
static int run_counted(const struct wanted *wanted, const char *path) {
    pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        char word[] = "verify", driver[] = "--driver", executor[] = "executor";
        char kernel[] = "--kernel", type[] = "--type", *arguments[9] = {word, driver, executor};
        int count = 3;
        if (wanted->kernel) arguments[count++] = kernel, arguments[count++] = wanted->kernel;
        if (wanted->type) arguments[count++] = type, arguments[count++] = wanted->type;
        arguments[count++] = wanted->bundle;
        setenv("KVF_EXECUTOR_COUNTERS", path, 1);
        if (!freopen("/dev/null", "w", stdout)) exit(TOOL_FAILED);
        exit(tool_verify(count, arguments));
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static json_t *count_verify(const struct wanted *wanted) {
    char path[] = "/tmp/kvforge-profile-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) {
        perror("kvforge-run: profile");
        return NULL;
    }
    close(file);
    int status = run_counted(wanted, path);
    json_error_t error;
    json_t *kernels = json_load_file(path, 0, &error);
    unlink(path);
    if (status == TOOL_GOOD && json_is_array(kernels) && json_array_size(kernels)) return kernels;
    fprintf(stderr,
            "kvforge-run: the executor counted nothing, or verify failed (it ended with %d)\n",
            status);
    json_decref(kernels);
    return NULL;
}

/* ---- the command ---- */

static int usage(FILE *out, int status) {
    fprintf(
        out,
        "usage: kvforge-run profile [options] BUNDLE\n\n"
        "Run BUNDLE's kernels on the executor, count what they do, and estimate the least time "
        "on a chip.\nEvery kernel is launched on full batches, with aligned strides and "
        "without padding:\n"
        "  decode   256 requests, one token each at position %d, where every group completes;\n"
        "           fewer where a group is long or a token costs much: q_norm_rope and\n"
        "           inverse_rope 64, attn_combine 32, indexer_query 8, attn, indexer_scores and\n"
        "           indexer_topk 4\n"
        "  prefill  4 requests with %d tokens each up to that position (row lists: 1)\n\n"
        "options:\n"
        "  --verify          count all of verify's inputs instead, odd strides and padding "
        "included\n"
        "  --chip NAME       one of",
        LOAD_LAST, LOAD_CHUNK);
    for (int i = 0; i < CHIPS; i++) fprintf(out, " %s", chips[i].name);
    fprintf(out, " (H100)\n"
                 "  --kernel NAME,... only these kernels\n"
                 "  --type NAME,...   only these layer types\n"
                 "  --json FILE       keep the counters in FILE\n");
    return status;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct wanted *out) {
    static const struct option list[] = {
        {"help", no_argument, NULL, 'h'},
        {"verify", no_argument, NULL, 'v'},
        {"chip", required_argument, NULL, 'c'},
        {"kernel", required_argument, NULL, 'k'},
        {"type", required_argument, NULL, 't'},
        {"json", required_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    *out = (struct wanted){.chip = find_chip("H100")};
    int letter;
    optind = 1;
    while ((letter = getopt_long(argc, argv, "h", list, NULL)) != -1) {
        switch (letter) {
        case 'h': return usage(stdout, TOOL_GOOD);
        case 'v': out->verify = true; break;
        case 'c': out->chip = find_chip(optarg); break;
        case 'k': out->kernel = optarg; break;
        case 't': out->type = optarg; break;
        case 'j': out->keep = optarg; break;
        default: return usage(stderr, TOOL_USAGE);
        }
    }
    if (argc - optind != 1 || !out->chip) return usage(stderr, TOOL_USAGE);
    out->bundle = argv[optind];
    return -1;
}

int tool_profile(int argc, char **argv) {
    struct wanted wanted;
    int status = parse(argc, argv, &wanted);
    if (status >= 0) return status;
    json_t *kernels = wanted.verify ? count_verify(&wanted) : count_all(&wanted);
    if (!kernels) return TOOL_FAILED;
    print_table(kernels, wanted.chip);
    bool kept =
        !wanted.keep || !json_dump_file(kernels, wanted.keep, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    if (!kept) fprintf(stderr, "kvforge-run: profile: cannot write %s\n", wanted.keep);
    json_decref(kernels);
    return kept ? TOOL_GOOD : TOOL_FAILED;
}
