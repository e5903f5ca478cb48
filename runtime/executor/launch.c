#include "launch.h"

#include <stdlib.h>

#include "config.h"
#include "cuda_types.h"
#include "races.h"
#include "report.h"
#include "schedule.h"

enum { RESIDENT_MAX = 64, OLDEST_FUEL = 1 << 20, FUEL = 1 << 14, RESIDENT_BYTES = 1 << 30 };

/* The k-th block to run: in order, or by the seed a permutation (an affine map of the numbers). */
static uint64_t block_order(const struct launch *l, uint64_t k) {
    uint64_t seed = l->config->seed, n = l->blocks;
    if (!seed || n < 2) return k;
    uint64_t step = seed * 0x9e3779b97f4a7c15u % n, a, b;
    for (step = step ? step : 1;; step = step % n + 1) {
        a = n;
        b = step;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) break;
    }
    return (uint64_t)(((unsigned __int128)k * step + seed) % n);
}

static bool next_block(struct worker *worker, struct block *b) {
    struct launch *l = worker->launch;
    uint64_t k = __atomic_fetch_add((uint64_t *)&l->next_block, 1, __ATOMIC_RELAXED);
    if (k >= l->blocks) return false;
    uint64_t linear = block_order(l, k);
    worker->random =
        (l->config->seed + 1) * 0x9e3779b97f4a7c15u ^ (linear + 1) * 0xd1b54a32d192ed03u;
    if (!worker->random) worker->random = 1;
    block_start(b, linear);
    return true;
}

static void fail_launch(struct launch *l, int result) {
    int none = 0;
    __atomic_compare_exchange_n((int *)&l->result, &none, result, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    __atomic_store_n((int *)&l->stop, 1, __ATOMIC_SEQ_CST);
}

/*
 * Blocks run to their end one after the other. One that does not get there (it may wait for another
 * block) is put aside, and the next one starts beside it. The oldest gets most of the time: it is
 * the one that others wait for.
 */
static void *run_worker(void *argument) {
    struct worker *worker = argument;
    struct launch *l = worker->launch;
    struct block *resident[RESIDENT_MAX];
    int count = 0, turn = 0;
    bool more = true;
    while (!__atomic_load_n((int *)&l->stop, __ATOMIC_RELAXED)) {
        /* At the end of a round another starts beside those that were put aside, if there is room.
         */
        if (more && turn >= count && count < RESIDENT_MAX &&
            (!count || worker->idle || worker->arena.total < RESIDENT_BYTES)) {
            struct block *b = worker->idle;
            if (b)
                worker->idle = NULL;
            else
                b = block_new(worker);
            if (!b) {
                fail_launch(l, CUDA_ERROR_OUT_OF_MEMORY);
                break;
            }
            more = next_block(worker, b);
            if (more)
                resident[count++] = b;
            else
                worker->idle = b;
        }
        if (!count) {
            if (!more) break;
            continue;
        }
        if (turn >= count) turn = 0;
        enum block_state state = block_run(resident[turn], turn ? FUEL : OLDEST_FUEL);
        if (state == BLOCK_STOPPED) break;
        if (state == BLOCK_DONE) {
            worker->blocks++;
            worker->idle = resident[turn];
            /* In order: a block often waits for the one before. */
            count--;
            memmove(&resident[turn], &resident[turn + 1],
                    (size_t)(count - turn) * sizeof(struct block *));
        } else {
            turn++;
        }
    }
    return NULL;
}

static uint64_t thread_count(const struct launch *l) {
    uint64_t threads = l->config->threads;
    return threads < l->blocks ? threads : l->blocks;
}

static void run_workers(struct launch *l, struct worker *workers, uint64_t count) {
    pthread_t threads[1024];
    uint64_t started = 0;
    for (uint64_t i = 1; i < count; i++) {
        if (pthread_create(&threads[started], NULL, run_worker, &workers[i])) break;
        started++;
    }
    run_worker(&workers[0]);
    for (uint64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    (void)l;
}

/* What host copies defined since the last launch may have completed a region. */
static void refresh_regions(struct memory *memory) {
    for (size_t i = 0; i < memory->count; i++) region_refresh(memory->live[i]);
}

int launch_run(struct launch *l, struct launch_totals *totals) {
    memset(totals, 0, sizeof *totals);
    l->blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    uint64_t count = thread_count(l);
    struct worker *workers = aligned_alloc(_Alignof(struct worker), count * sizeof *workers);
    if (!workers) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(workers, 0, count * sizeof *workers);
    for (uint64_t i = 0; i < count; i++) {
        workers[i].launch = l;
        if (l->config->count) workers[i].counters = calloc(1, sizeof(struct counters));
    }
    refresh_regions(l->memory);
    if (l->config->check_races && l->blocks > 1) race_launch_start(l);
    run_workers(l, workers, count);
    race_launch_stop(l);
    for (uint64_t i = 0; i < count; i++) {
        totals->blocks += workers[i].blocks;
        totals->warp_instructions += workers[i].warp_instructions;
        totals->lane_instructions += workers[i].lane_instructions;
        if (workers[i].counters) counters_sum(&totals->counters, workers[i].counters);
        free(workers[i].counters);
        arena_free(&workers[i].arena);
    }
    free(workers);
    if (l->result) reporter_fold(l->reporter);
    return l->result;
}
