/*
 * The figures of docs/pool.md: examples/replay.c in pools whose shape no spec describes (see
 * pool_replay.h), and so made with an internal call. bench/pool_table.lua sweeps it.
 *
 *   pool_replay [--lean] --trace FILE | --load NAME ...   as for examples/replay.c
 *
 * Without arguments: one generated load, under each policy.
 */
#include "pool_replay.h"

static int run(struct arguments *a) {
    kvf_error error = {0};
    kvf_pool *pool =
        replay_pool(cli_policy(a), a->memory, a->windows, a->requests, a->lean, &error);
    if (!pool) {
        fprintf(stderr, "pool_replay: %s\n", error.text);
        return 1;
    }
    int status = cli_run(pool, a);
    kvf_pool_destroy(pool);
    return status;
}

static int all_policies(void) {
    static const char *policies[] = {"elastic", "static", "shared"};
    int status = 0;
    for (int i = 0; i < 3; i++) {
        struct arguments a = {.load = "phases", .memory = 8, .requests = 256, .seed = 1};
        a.policy = policies[i];
        printf("%s, %s, %.0f GB\n", a.policy, a.load, a.memory);
        status = run(&a) ? 1 : status;
    }
    return status;
}

int main(int argc, char **argv) {
    struct arguments a;
    if (argc < 2) return all_policies();
    if (cli_parse(argc - 1, argv + 1, &a)) return run(&a);
    fprintf(stderr, "usage: pool_replay [--lean] " REPLAY_USAGE "\n");
    return 2;
}
