/* verify --schedules N: the same results whatever runs first. */
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: run in one order, with what is printed going to `out`. Never returns. */
static void run_child(const struct options *options, bool (*once)(const struct options *),
                      uint64_t schedule, FILE *out) {
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)schedule);
    bool ready = dup2(fileno(out), STDOUT_FILENO) >= 0 && !setenv("KVF_EXECUTOR_SEED", seed, 1);
    bool good = ready && once(options);
    fflush(NULL);
    _exit(good ? 0 : 1);
}

/* What a child said of failures, as explanations; its last lines where all is well. */
static void repeat(FILE *out, bool all) {
    char line[512];
    if (fseek(out, 0, SEEK_SET)) return;
    while (fgets(line, sizeof line, out)) {
        bool failure = !strncmp(line, "not ok", 6) || !strncmp(line, "#   ", 4);
        bool count = !strncmp(line, "# ", 2) && strstr(line, " cases, ");
        if (count || (all && failure))
            printf("#%s%s", *line == '#' ? "" : " ", line + (*line == '#'));
    }
}

enum { MOST_JOBS = 64 };

/* An order that is being run. */
struct order {
    FILE *out;
    pid_t child;
};

static void start(const struct options *options, bool (*once)(const struct options *),
                  uint64_t schedule, struct order *order) {
    *order = (struct order){.out = tmpfile(), .child = -1};
    if (!order->out) return; /* NOLINT(clang-analyzer-unix.Stream): finish() closes it */
    fflush(NULL);
    order->child = fork();
    if (order->child == 0) run_child(options, once, schedule, order->out);
}

static bool finish(uint64_t schedule, struct order *order) {
    int status = 1;
    bool ended = order->child > 0 && waitpid(order->child, &status, 0) == order->child;
    bool good = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("%sok %llu - order %llu\n", good ? "" : "not ", (unsigned long long)schedule + 1,
           (unsigned long long)schedule);
    if (order->out) {
        repeat(order->out, !good);
        fclose(order->out);
    }
    fflush(stdout);
    return good;
}

/* So many processes at once; lines come in order whichever ends first. */
bool verify_schedules(const struct options *options, bool (*once)(const struct options *)) {
    struct order orders[MOST_JOBS];
    uint64_t count = options->schedules, jobs = options->jobs ? options->jobs : 1, started = 0;
    bool good = true;
    if (jobs > MOST_JOBS) jobs = MOST_JOBS;
    printf("1..%llu\n", (unsigned long long)count);
    for (uint64_t schedule = 0; schedule < count; schedule++) {
        for (; started < count && started < schedule + jobs; started++)
            start(options, once, started, &orders[started % jobs]);
        good = finish(schedule, &orders[schedule % jobs]) && good;
    }
    return good;
}
