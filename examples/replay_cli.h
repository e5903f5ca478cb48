/*
 * Arguments and report of examples/replay.c. bench/pool_replay.c, which runs the same loads in
 * pools of other shapes, has them too.
 */
#ifndef REPLAY_CLI_H
#define REPLAY_CLI_H

#include "replay_run.h"

#define REPLAY_USAGE                                                                               \
    "--trace FILE | --load short|mixed|prefix|agents|zipf|phases|tailed|million\n"                 \
    "       [--memory GB] [--policy elastic|static|shared] [--windows SHARE] [--arrival]\n"        \
    "       [--requests N] [--seed N]"

struct arguments {
    const char *trace, *load, *policy;
    double memory;  /* GB, 10^9 bytes, request state included */
    double windows; /* share of the rest that static and shared give to windows; 0: the default */
    uint32_t requests;
    uint64_t seed;
    bool arrival, lean; /* lean: for bench/pool_replay.c */
};

/* False: something is unknown or missing. */
static inline bool cli_parse(int argc, char **argv, struct arguments *a) {
    *a = (struct arguments){.policy = "elastic", .memory = 32, .requests = 256, .seed = 1};
    for (int i = 0; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(name, "--arrival")) {
            a->arrival = true;
        } else if (!strcmp(name, "--lean")) {
            a->lean = true;
        } else if (!value) {
            return false;
        } else {
            i++;
            if (!strcmp(name, "--trace"))
                a->trace = value;
            else if (!strcmp(name, "--load"))
                a->load = value;
            else if (!strcmp(name, "--policy"))
                a->policy = value;
            else if (!strcmp(name, "--memory"))
                a->memory = strtod(value, NULL);
            else if (!strcmp(name, "--windows"))
                a->windows = strtod(value, NULL);
            else if (!strcmp(name, "--requests"))
                a->requests = (uint32_t)strtoul(value, NULL, 10);
            else if (!strcmp(name, "--seed"))
                a->seed = strtoull(value, NULL, 10);
            else
                return false;
        }
    }
    bool known = !strcmp(a->policy, "elastic") || !strcmp(a->policy, "static") ||
                 !strcmp(a->policy, "shared");
    return known && (a->trace || a->load) && a->memory > 0 && a->memory < 1e9 && a->windows >= 0 &&
           a->windows < 1 && a->requests > 0 && a->requests <= RUN_MAX_RUNNING;
}

static inline kvf_policy cli_policy(const struct arguments *a) {
    if (!strcmp(a->policy, "static")) return KVF_POLICY_STATIC;
    return !strcmp(a->policy, "shared") ? KVF_POLICY_SHARED : KVF_POLICY_ELASTIC;
}

static inline void cli_report(const struct run_result *r) {
    const kvf_pool_stats *s = &r->stats;
    printf("requests finished    %u\n", r->finished);
    if (r->rejected) printf("requests rejected    %u\n", r->rejected);
    printf("cached tokens        %llu of %llu\n", (unsigned long long)r->cached_tokens,
           (unsigned long long)r->prompt_tokens);
    printf("hit rate             %.3f\n",
           r->prompt_tokens ? (double)r->cached_tokens / (double)r->prompt_tokens : 0);
    printf("preemptions          %llu\n", (unsigned long long)r->preemptions);
    printf("steps                %llu\n", (unsigned long long)r->steps);
    printf("steps waited         mean %.1f, p99 %.0f\n", r->mean_wait, r->p99_wait);
    printf("peak live tokens     %llu\n", (unsigned long long)r->peak_live_tokens);
    printf("live / reserved      %.2f of %.2f GB\n", r->live_share, (double)s->bytes / 1e9);
    printf("tokens computed      %llu, of them again after eviction %llu\n",
           (unsigned long long)s->computed_tokens, (unsigned long long)s->recomputed_tokens);
    printf("allocator            %.1f us a step, %.0f operations\n", r->allocator_us,
           r->operations);
}

/* Run what the arguments name through the pool; the program's exit status. */
static inline int cli_run(kvf_pool *pool, const struct arguments *a) {
    struct load load = {0};
    struct run_result result;
    kvf_error error;
    if (a->trace ? load_trace(&load, a->trace) : load_named(&load, a->load, a->seed, 1)) {
        fprintf(stderr, "replay: cannot read %s\n", a->trace ? a->trace : a->load);
        return 1;
    }
    struct run_options options = {.step_tokens = 8192,
                                  .max_running = a->requests,
                                  .by_arrival = a->arrival,
                                  .step_seconds = 0.025,
                                  .token_seconds = 12e-6};
    run_load(pool, &load, &options, &result);
    load_free(&load);
    cli_report(&result);
    if (!kvf_pool_check(pool, &error)) return 0;
    fprintf(stderr, "replay: %s\n", error.text);
    return 1;
}

#endif
