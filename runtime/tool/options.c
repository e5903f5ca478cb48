#include "options.h"

#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
    char letter;
    const char *name, *argument, *meaning;
} rows[] = {
    {'d', "driver", "auto|cuda|executor",
     "the driver to use; auto takes a real GPU if there is one"},
    {'s', "seed", "N", "start of the random inputs (1)"},
    {'k', "kernel", "NAME,...", "only these kernels"},
    {'t', "type", "NAME,...", "only these layer types"},
    {'g', "target", "NAME", "force the modules of this target (sm_90)"},
    {'n', "schedules", "N", "repeat in N orders of blocks and warps (the executor's)"},
    {'o', "jobs", "N", "so many orders at once (1)"},
    {'q', "requests", "N", "requests of a decode batch; a prefill batch has an eighth"},
    {'l', "launches", "N", "samples of which the median is taken (at most 1000)"},
    {'j', "json", "FILE", "write the results to FILE as well"},
    {'r', "report", "FILE", "what `kvforge build --report` wrote: times and registers"},
};

#define ROWS (sizeof rows / sizeof *rows)

static void help(FILE *out, const char *command, const char *accepts, const char *about) {
    fprintf(out, "usage: kvforge-run %s %sBUNDLE\n\n%s\n", command, *accepts ? "[options] " : "",
            about);
    if (*accepts) fprintf(out, "\noptions:\n");
    for (size_t i = 0; i < ROWS; i++) {
        if (!strchr(accepts, rows[i].letter)) continue;
        char left[64];
        snprintf(left, sizeof left, "--%s %s", rows[i].name, rows[i].argument);
        fprintf(out, "  %-28s %s\n", left, rows[i].meaning);
    }
}

static bool parse_driver(const char *text, kvf_driver_kind *out) {
    static const char *const names[] = {
        [KVF_DRIVER_AUTO] = "auto", [KVF_DRIVER_CUDA] = "cuda", [KVF_DRIVER_EXECUTOR] = "executor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i])) {
            *out = (kvf_driver_kind)i;
            return true;
        }
    return false;
}

static bool parse_number(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno || end == text || *end || strchr(text, '-')) return false;
    *out = value;
    return true;
}

static bool take(struct options *out, int letter, const char *text) {
    switch (letter) {
    case 'd': return parse_driver(text, &out->driver);
    case 's': return parse_number(text, &out->seed);
    case 'n': return parse_number(text, &out->schedules) && out->schedules <= 10000;
    case 'o': return parse_number(text, &out->jobs) && out->jobs - 1 < 64;
    case 'q': return parse_number(text, &out->requests) && out->requests - 1 < 512;
    case 'l': return parse_number(text, &out->launches) && out->launches - 1 < 1000;
    case 'j': out->json = text; return true;
    case 'k': out->kernel = text; return true;
    case 't': out->type = text; return true;
    case 'g': out->target = text; return true;
    case 'r': out->report = text; return true;
    default: return false;
    }
}

int options_parse(int argc, char **argv, const char *accepts, const char *about,
                  struct options *out) {
    struct option list[ROWS + 2] = {0};
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++)
        if (strchr(accepts, rows[i].letter))
            list[count++] = (struct option){rows[i].name, required_argument, NULL, rows[i].letter};
    list[count] = (struct option){"help", no_argument, NULL, 'h'};
    *out = (struct options){.driver = KVF_DRIVER_AUTO, .seed = 1};
    int letter;
    optind = 1;
    while ((letter = getopt_long(argc, argv, "h", list, NULL)) != -1) {
        if (letter == 'h') {
            help(stdout, argv[0], accepts, about);
            return TOOL_GOOD;
        }
        if (letter == '?') break; /* getopt has said what is wrong */
        if (!take(out, letter, optarg)) {
            fprintf(stderr, "kvforge-run %s: \"%s\" is not a value of this option\n", argv[0],
                    optarg);
            letter = '?';
            break;
        }
    }
    if (letter == -1 && argc - optind == 1) {
        out->bundle = argv[optind];
        return -1;
    }
    if (letter == -1)
        fprintf(stderr, "kvforge-run %s: %s\n", argv[0],
                optind == argc ? "a bundle is missing" : "one bundle is enough");
    help(stderr, argv[0], accepts, about);
    return TOOL_USAGE;
}

bool options_name(const char *filter, const char *name) {
    size_t length = strlen(name);
    for (const char *at = filter; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return true;
    return !filter;
}
