/* Errors, the guard against two threads in one pool, and the end of a damaged pool. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool.h"

kvf_status pool_fail(kvf_error *error, kvf_status status, const char *format, ...) {
    if (error) {
        memset(error, 0, sizeof *error);
        error->status = status;
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return status;
}

kvf_status pool_fail_short(kvf_error *error, const struct pool_short *what, const char *who) {
    return pool_fail(error, KVF_ERROR_SHORT, "%s: the pool is short of %" PRIu64 " %s", who,
                     what->missing, what->resource);
}

bool pool_broken(kvf_error *error, const char *format, ...) {
    if (error) {
        memset(error, 0, sizeof *error);
        error->status = KVF_ERROR_STATE;
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return false;
}

static kvf_status damaged(const kvf_pool *pool, kvf_error *error) {
    return pool_fail(error, KVF_ERROR_STATE,
                     "the pool's records are damaged: it does not hold that %s; destroy the pool",
                     pool->damage);
}

kvf_status pool_enter(kvf_pool *pool, kvf_error *error) {
    if (!pool) return pool_fail(error, KVF_ERROR_ARGUMENT, "the pool is null");
    if (atomic_flag_test_and_set_explicit(&pool->busy, memory_order_acquire))
        return pool_fail(error, KVF_ERROR_STATE,
                         "two threads are in the same pool; a pool takes one at a time");
    return pool->damage ? pool_leave(pool, KVF_ERROR_STATE, error) : KVF_OK;
}

kvf_status pool_leave(kvf_pool *pool, kvf_status status, kvf_error *error) {
    if (pool->damage) status = damaged(pool, error);
    atomic_flag_clear_explicit(&pool->busy, memory_order_release);
    return status;
}
