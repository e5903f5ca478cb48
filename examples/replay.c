/*
 * Replay a load of requests through a pool, without a GPU: how much is found in the cache, how long
 * requests wait, who is preempted, and what the allocator costs.
 *
 *   replay --trace FILE | --load short|mixed|prefix|agents|zipf|phases|tailed|million
 *          [--memory GB] [--policy elastic|static|shared] [--windows SHARE]
 *          [--arrival] [--requests N] [--lean] [--seed N]
 *
 * --lean takes the assumptions under which the rules were found by simulation: 5.1 MB of state a
 * request, and checkpoints without snapshots, so that chunks may be as long as a step.
 *
 * The shape is DeepSeek-V4 Flash (see docs/pool.md). --windows is the share of the memory, beside
 * request state, that `static` and `shared` give to windows; without it they take the published
 * default.
 */
#include "replay_pool.h"
#include "replay_run.h"

struct arguments {
    const char *trace, *load, *policy;
    double memory, windows;
    uint32_t requests;
    uint64_t seed;
    bool arrival, lean;
};

static int usage(void) {
    fprintf(stderr, "usage: replay --trace FILE | --load NAME [--memory GB] [--policy NAME] "
                    "[--windows SHARE] [--arrival] [--requests N] [--lean] [--seed N]\n");
    return 2;
}

static bool parse(int argc, char **argv, struct arguments *a) {
    *a = (struct arguments){.policy = "elastic", .memory = 32, .requests = 256, .seed = 1};
    for (int i = 1; i < argc; i++) {
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
    return (a->trace || a->load) && a->memory > 0 && a->requests > 0 && a->requests <= 4096;
}

static kvf_pool *open_pool(const struct arguments *a, kvf_error *error) {
    kvf_policy policy = KVF_POLICY_ELASTIC;
    if (!strcmp(a->policy, "static")) policy = KVF_POLICY_STATIC;
    if (!strcmp(a->policy, "shared")) policy = KVF_POLICY_SHARED;
    return replay_pool(policy, a->memory, a->windows, a->requests, a->lean, error);
}

static void report(const struct run_result *r) {
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

int main(int argc, char **argv) {
    struct arguments a;
    struct load load = {0};
    struct run_result result;
    kvf_error error;
    if (!parse(argc, argv, &a)) return usage();
    if (a.trace ? load_trace(&load, a.trace) : load_named(&load, a.load, a.seed, 1)) {
        fprintf(stderr, "replay: cannot read %s\n", a.trace ? a.trace : a.load);
        return 1;
    }
    kvf_pool *pool = open_pool(&a, &error);
    if (!pool) {
        fprintf(stderr, "replay: %s\n", error.text);
        return 1;
    }
    struct run_options options = {.step_tokens = 8192,
                                  .max_running = a.requests,
                                  .by_arrival = a.arrival,
                                  .step_seconds = 0.025,
                                  .token_seconds = 12e-6};
    run_load(pool, &load, &options, &result);
    report(&result);
    if (kvf_pool_check(pool, &error)) {
        fprintf(stderr, "replay: %s\n", error.text);
        return 1;
    }
    kvf_pool_destroy(pool);
    load_free(&load);
    return 0;
}
