/*
 * Replay a load of requests through a pool, without a GPU: how much is found in the cache, how long
 * requests wait, who is preempted, and what the allocator costs.
 *
 *   replay BUNDLE --trace FILE | --load NAME [--memory GB] [--policy NAME] [--windows SHARE]
 *          [--arrival] [--requests N] [--seed N]
 *
 * BUNDLE is what `kvforge build` wrote, with window_mode "paged": its shape is the pool's. A trace
 * has one JSON object a line: input_length, output_length, hash_ids (one for 512 tokens), timestamp
 * (milliseconds). --memory is all of the pool's, request state included. --windows is the share of
 * it, beside that state, that `static` and `shared` give to windows; without it they take the
 * published default.
 */
#include "replay_cli.h"

static kvf_pool *open_pool(const kvf_bundle *bundle, const struct arguments *a, kvf_error *error) {
    kvf_pool *pool = NULL;
    kvf_model_info model;
    kvf_pool_options o = {
        .policy = cli_policy(a), .bytes = (uint64_t)(a->memory * 1e9), .max_requests = a->requests};
    if (kvf_bundle_model(bundle, &model)) return NULL;
    double rest = (double)o.bytes - (double)a->requests * (double)model.request_bytes;
    if (a->windows > 0 && rest > 0)
        o.windows = (uint32_t)(a->windows * rest / (double)model.window_block_bytes);
    return kvf_pool_create(bundle, &o, &pool, error) ? NULL : pool;
}

int main(int argc, char **argv) {
    struct arguments a;
    kvf_bundle *bundle = NULL;
    kvf_error error = {0};
    if (argc < 2 || !cli_parse(argc - 2, argv + 2, &a) || a.lean) {
        fprintf(stderr, "usage: replay BUNDLE " REPLAY_USAGE "\n");
        return 2;
    }
    kvf_pool *pool = NULL;
    if (!kvf_bundle_open(argv[1], &bundle, &error)) pool = open_pool(bundle, &a, &error);
    if (!pool) fprintf(stderr, "replay: %s\n", error.text);
    int status = pool ? cli_run(pool, &a) : 1;
    kvf_pool_destroy(pool);
    kvf_bundle_close(bundle);
    return status;
}
