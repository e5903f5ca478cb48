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

static bool run_schedule(const struct options *options, bool (*once)(const struct options *),
                         uint64_t schedule) {
    FILE *out = tmpfile();
    int status = 1;
    if (!out) return false;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) run_child(options, once, schedule, out);
    bool ended = child > 0 && waitpid(child, &status, 0) == child;
    bool good = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("%sok %llu - order %llu\n", good ? "" : "not ", (unsigned long long)schedule + 1,
           (unsigned long long)schedule);
    repeat(out, !good);
    fflush(stdout);
    fclose(out);
    return good;
}

bool verify_schedules(const struct options *options, bool (*once)(const struct options *)) {
    bool good = true;
    printf("1..%llu\n", (unsigned long long)options->schedules);
    for (uint64_t schedule = 0; schedule < options->schedules; schedule++)
        good = run_schedule(options, once, schedule) && good;
    return good;
}
