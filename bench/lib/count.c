#include "count.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 64 };

const char *count_name(enum count_tool tool) {
    return tool == COUNT_PERF       ? "perf stat"
           : tool == COUNT_VALGRIND ? "valgrind's cachegrind"
                                    : "none";
}

/* Run `process` under the `count` words of `tool`. */
static bool run_under(const char *const *tool, int count, const struct process *process) {
    const char *argv[MAX_ARGS];
    int n = 0;
    for (int i = 0; i < count; i++) argv[n++] = tool[i];
    for (int i = 0; process->argv[i] && n < MAX_ARGS - 1; i++) argv[n++] = process->argv[i];
    argv[n] = NULL;
    struct process whole = *process;
    whole.argv = argv;
    return process_run(&whole, NULL);
}

/* The whole number after `key` and spaces in a file, commas in it skipped. */
static double number_in(const char *file, const char *key) {
    char *text = process_read(file, NULL), *at = text ? strstr(text, key) : NULL;
    double value = NAN;
    if (at) at += strlen(key) + strspn(at + strlen(key), " ");
    for (; at && ((*at >= '0' && *at <= '9') || *at == ','); at++)
        if (*at != ',') value = (isnan(value) ? 0 : value * 10) + (*at - '0');
    free(text);
    return value;
}

static double with_perf(const struct process *process, const char *log) {
    const char *tool[] = {"perf", "stat", "-x;", "-e", "instructions:u", "-o", log, "--"};
    if (!run_under(tool, 8, process)) return NAN;
    /* A line of comment, an empty one, then the count; a semicolon ends it. */
    return number_in(log, "\n\n");
}

static double with_cachegrind(const struct process *process, const char *log) {
    char log_option[160];
    (void)snprintf(log_option, sizeof log_option, "--log-file=%s", log);
    const char *tool[] = {"valgrind", "--tool=cachegrind", "--cache-sim=no",
                          "--cachegrind-out-file=/dev/null", log_option};
    if (!run_under(tool, 5, process)) return NAN;
    return number_in(log, "I   refs:");
}

double count_run(enum count_tool tool, const struct process *process, const char *scratch) {
    char log[128];
    (void)snprintf(log, sizeof log, "%s/count.log", scratch);
    remove(log);
    if (tool == COUNT_PERF) return with_perf(process, log);
    if (tool == COUNT_VALGRIND) return with_cachegrind(process, log);
    return NAN;
}

enum count_tool count_find(bool slow, const char *scratch) {
    const char *argv[] = {"true", NULL};
    struct process process = {.argv = argv, .core = -1};
    for (int tool = COUNT_PERF; tool <= (slow ? COUNT_VALGRIND : COUNT_PERF); tool++)
        if (count_run((enum count_tool)tool, &process, scratch) > 0) return (enum count_tool)tool;
    return COUNT_NONE;
}
