/*
 * How fast the pool is, on one core: blocks taken and given back, admissions, a decode step's
 * tables. The working set is kept small in every pool size, so that cache misses do not hide what
 * the algorithms cost; the last column walks through the whole pool instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/pool.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may use the machine */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static kvf_pool *open_pool(kvf_policy policy, uint32_t blocks, uint32_t requests, bool cache) {
    struct pool_geometry g;
    kvf_error error;
    kvf_pool *pool;
    pool_geometry_flash(&g);
    kvf_pool_options o = {.policy = policy,
                          .max_requests = requests,
                          .max_tokens = 65536,
                          .chunks = blocks / g.per_chunk + 1,
                          .windows = 1024,
                          .blocks = blocks,
                          .prefix_cache_off = !cache,
                          .no_promise = true};
    if (pool_create(&g, &o, &pool, &error)) {
        fprintf(stderr, "pool_speed: %s\n", error.text);
        exit(1);
    }
    return pool;
}

/* Nanoseconds a block for `count` blocks taken, then given back, `rounds` times. */
static double blocks_ns(kvf_pool *pool, uint32_t count, uint32_t rounds) {
    int32_t *ids = malloc(count * sizeof *ids);
    double best = 1e9;
    for (int run = 0; run < 5; run++) {
        double start = now();
        for (uint32_t round = 0; round < rounds; round++) {
            int32_t near = POOL_NONE;
            for (uint32_t i = 0; i < count; i++)
                near = ids[i] = pool->policy->take_block(pool, near);
            for (uint32_t i = count; i-- > 0;) pool_block_unref(pool, ids[i]);
        }
        double ns = (now() - start) * 1e9 / (2.0 * count * rounds);
        if (ns < best) best = ns;
    }
    free(ids);
    return best;
}

static double admissions_ns(kvf_pool *pool, uint32_t tokens, uint32_t rounds) {
    int32_t text[128];
    kvf_admission a;
    double best = 1e9;
    for (int i = 0; i < 128; i++) text[i] = i;
    for (int run = 0; run < 5; run++) {
        double start = now();
        for (uint32_t round = 0; round < rounds; round++) {
            text[0] = (int32_t)round;
            if (kvf_sequence_admit(pool, text, tokens, tokens, &a, NULL) ||
                kvf_sequence_release(pool, a.sequence, NULL))
                exit(1);
        }
        double ns = (now() - start) * 1e9 / rounds;
        if (ns < best) best = ns;
    }
    return best;
}

static int32_t *ints(size_t count) {
    return malloc(count * sizeof(int32_t));
}

/* Microseconds to fill the tables of a decode step of 256 sequences of 4,000 tokens. */
static double fill_us(void) {
    enum { SEQUENCES = 256, TOKENS = 4000 };
    kvf_pool *pool = open_pool(KVF_POLICY_ELASTIC, 20000, SEQUENCES, true);
    uint32_t columns = kvf_pool_max_blocks(pool), parts = kvf_pool_state_parts(pool);
    kvf_batch_buffers b = {.max_tokens = 8192,
                           .max_requests = SEQUENCES,
                           .max_blocks = columns,
                           .state_parts = parts,
                           .batch_id = ints(8192),
                           .position = ints(8192),
                           .cu_tokens = ints(SEQUENCES + 1),
                           .state_slot = ints((size_t)parts * SEQUENCES),
                           .write_from = ints(SEQUENCES),
                           .block_table = {ints((size_t)columns * SEQUENCES)},
                           .window_table = ints((size_t)columns * SEQUENCES)};
    kvf_batch *batch;
    kvf_error error;
    static kvf_sequence s[SEQUENCES];
    static int32_t text[TOKENS];
    if (kvf_batch_create(pool, &b, &batch, &error)) exit(1);
    for (int i = 0; i < SEQUENCES; i++) {
        kvf_admission a;
        text[0] = i;
        if (kvf_sequence_admit(pool, text, TOKENS, TOKENS, &a, &error)) exit(1);
        s[i] = a.sequence;
        for (uint32_t at = 0, n; at < TOKENS - 1; at += n) {
            kvf_sequence_chunk(pool, s[i], TOKENS - 1 - at, &n, NULL);
            if (kvf_sequence_prepare(pool, s[i], n, &error) ||
                kvf_sequence_commit(pool, s[i], n, NULL, 0, &error))
                exit(1);
        }
        if (kvf_sequence_prepare(pool, s[i], 1, &error)) exit(1);
    }
    double best = 1e9;
    for (int round = 0; round < 90; round++) { /* the next block begins at 4,096 */
        double start = now();
        if (kvf_batch_fill(batch, s, SEQUENCES, &error)) exit(1);
        double us = (now() - start) * 1e6;
        if (round && us < best) best = us;
        for (int i = 0; i < SEQUENCES; i++)
            if (kvf_sequence_commit(pool, s[i], 1, &round, 1, &error) ||
                kvf_sequence_prepare(pool, s[i], 1, &error))
                exit(1);
    }
    free(b.batch_id);
    free(b.position);
    free(b.cu_tokens);
    free(b.state_slot);
    free(b.write_from);
    free(b.block_table[0]);
    free(b.window_table);
    kvf_batch_destroy(batch);
    kvf_pool_destroy(pool);
    return best;
}

static void sizes(void) {
    printf("blocks in the pool, then ns a block taken or given back (millions a second), small "
           "working set | whole pool\n");
    double first = 0;
    for (uint32_t blocks = 1000; blocks <= 10000000; blocks *= 10) {
        kvf_pool *pool = open_pool(KVF_POLICY_ELASTIC, blocks, 16, false);
        double hot = blocks_ns(pool, 500, 2000);
        double cold = blocks_ns(pool, blocks - blocks / 10, blocks > 100000 ? 1 : 100);
        if (first <= 0) first = hot;
        printf("%9u  %6.1f (%.0f)  %.2f times the smallest | %6.1f (%.0f)\n", blocks, hot,
               1e3 / hot, hot / first, cold, 1e3 / cold);
        kvf_pool_destroy(pool);
    }
}

static void admissions(void) {
    static const char *names[] = {"elastic", "static"};
    for (int policy = 0; policy < 2; policy++) {
        kvf_pool *pool = open_pool((kvf_policy)policy, 100000, 256, false);
        double one = admissions_ns(pool, 1, 200000), full = admissions_ns(pool, 128, 200000);
        kvf_pool_destroy(pool);
        pool = open_pool((kvf_policy)policy, 100000, 256, true);
        double hashed = admissions_ns(pool, 128, 200000);
        double start = now();
        int32_t text[128] = {0};
        uint64_t sum = 0;
        for (int i = 0; i < 1000000; i++) {
            text[0] = i;
            sum += pool_hash(true, 0, text, 128);
        }
        double hash = (now() - start) * 1e3;
        kvf_pool_destroy(pool);
        printf(
            "%s: admit and release one block: %.0f ns (%.1f million a second); storing 128 tokens "
            "%+.0f ns, with the cache on %.0f ns; hashing 128 tokens %.0f ns%s\n",
            names[policy], one, 1e3 / one, full - one, hashed, hash, sum ? "" : "!");
    }
}

int main(void) {
    sizes();
    admissions();
    printf("tables of a decode step of 256 sequences, nothing allocated: %.1f us\n", fill_us());
    return 0;
}
