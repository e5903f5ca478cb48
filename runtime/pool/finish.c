/*
 * The end of a sequence (release, preemption) and its doubling (fork).
 */
#include <string.h>

#include "pool.h"

/* ---- release and preemption ---- */

/* The last whole block's window is kept under its own kind, so that a next turn can resume there.
 */
static void keep_end(kvf_pool *pool, struct pool_sequence *s, enum pool_kind kind) {
    uint32_t end = s->computed / pool->geometry.block;
    if (pool->options.prefix_cache_off || pool->options.trailing || !end || s->published < end)
        return;
    int32_t window = pool->blocks[s->block_table[end - 1]].window;
    if (window < 0) {
        pool_publish_checkpoint(pool, s, end * pool->geometry.block, kind);
    } else if (pool->windows[window].kind == POOL_INTERIOR && s->window_table[end - 1] == window) {
        pool->windows[window].kind = (uint8_t)kind;
        pool_count_made(pool, kind);
    }
}

static void drop_resume(kvf_pool *pool, struct pool_sequence *s) {
    if (s->resumed >= 0 && pool->windows[s->resumed].generation == s->resumed_generation)
        pool_window_resume_end(pool, s->resumed);
    s->resumed = POOL_NONE;
}

/* Deepest first, so that the beginning of a prefix is evicted last. */
static void drop_tables(kvf_pool *pool, struct pool_sequence *s) {
    for (uint32_t i = s->blocks; i-- > 0;) {
        if (i < s->window_to && i >= s->window_from && s->window_table[i] >= 0) {
            pool_window_unref(pool, s->window_table[i], POOL_RELEASED);
            s->window_table[i] = POOL_NONE;
        }
        pool_block_unref(pool, s->block_table[i]);
        s->block_table[i] = POOL_NONE;
    }
}

static void close_sequence(kvf_pool *pool, struct pool_sequence *s, enum pool_kind kind) {
    pool_step_publish(pool, s, s->computed);
    keep_end(pool, s, kind);
    drop_resume(pool, s);
    pool->promised_blocks -= s->promised;
    pool->promised_windows -= s->promised_windows;
    pool->promised_envelopes -= s->promised_envelopes;
    drop_tables(pool, s);
    pool->policy->give_state(pool, s->state);
    s->live = false;
    s->generation++;
    s->blocks = s->window_from = s->window_to = 0;
    pool->running--;
    pool_list_push_tail(&pool->free_sequences, (int32_t)(s - pool->sequences));
}

static void learn_output(kvf_pool *pool, const struct pool_sequence *s) {
    uint64_t seen = pool->counters.released < 255 ? pool->counters.released : 255;
    pool->mean_output += ((double)(s->known - s->prompt) - pool->mean_output) / (double)(seen + 1);
}

kvf_status kvf_sequence_release(kvf_pool *pool, kvf_sequence handle, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    if (!s) return pool_leave(pool, KVF_ERROR_STATE, error);
    learn_output(pool, s);
    close_sequence(pool, s, POOL_END);
    pool->counters.released++;
    return pool_leave(pool, KVF_OK, error);
}

kvf_status kvf_sequence_preempt(kvf_pool *pool, kvf_sequence handle, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    if (!s) return pool_leave(pool, KVF_ERROR_STATE, error);
    close_sequence(pool, s, POOL_SAVED);
    pool->counters.preempted++;
    return pool_leave(pool, KVF_OK, error);
}

/* ---- fork ---- */

static void add_copy(kvf_fork *out, kvf_copy_kind kind, int32_t from, int32_t to) {
    out->copies[out->count++] = (kvf_copy){.kind = kind, .from = from, .to = to};
}

/* Blocks a child lists: those of the prompt, and those with computed rows. */
static uint32_t fork_blocks(const kvf_pool *pool, const struct pool_sequence *s) {
    return pool_blocks_of(pool, s->computed > s->prompt ? s->computed : s->prompt);
}

/* Blocks that both list: what cannot change any more. The child gets its own of the rest. */
static uint32_t fork_shared(const kvf_pool *pool, const struct pool_sequence *s) {
    return s->final / pool->geometry.block;
}

static struct pool_need fork_need(const kvf_pool *pool, const struct pool_sequence *s) {
    struct pool_need need = {.envelopes = fork_blocks(pool, s) - fork_shared(pool, s), .states = 1};
    for (uint32_t i = fork_shared(pool, s); i < s->window_to; i++) {
        if (s->window_table[i] < 0) continue;
        need.windows++;
        if (pool->windows[s->window_table[i]].snapshot >= 0)
            need.envelopes += pool->geometry.snapshot_envelopes;
    }
    return need;
}

/* Copies that the caller will be asked for. */
static uint32_t fork_copies(const kvf_pool *pool, const struct pool_sequence *s) {
    uint32_t shared = fork_shared(pool, s), blocks = pool_blocks_of(pool, s->computed);
    uint32_t count = pool->parts + (blocks > shared ? blocks - shared : 0);
    for (uint32_t i = shared; i < s->window_to; i++) {
        kvf_snapshot parts = {0};
        if (s->window_table[i] < 0) continue;
        if (pool->windows[s->window_table[i]].snapshot >= 0)
            pool_snapshot_ids(pool, s->window_table[i], &parts);
        count += 1 + parts.parts;
    }
    return count;
}

static void fork_window(kvf_pool *pool, const struct pool_sequence *s, struct pool_sequence *child,
                        uint32_t i, kvf_fork *out) {
    int32_t from = s->window_table[i], to = pool->policy->take_window(pool);
    pool->windows[to].written = pool->windows[from].written;
    child->window_table[i] = to;
    add_copy(out, KVF_COPY_WINDOW, from, to);
}

static void fork_windows(kvf_pool *pool, const struct pool_sequence *s, struct pool_sequence *child,
                         kvf_fork *out) {
    uint32_t shared = fork_shared(pool, s);
    child->window_from = s->window_from;
    child->window_to = s->window_to;
    for (uint32_t i = s->window_from; i < s->window_to; i++) {
        if (s->window_table[i] < 0) continue;
        if (i >= shared) {
            fork_window(pool, s, child, i, out);
        } else {
            child->window_table[i] = s->window_table[i];
            pool_window_ref(pool, s->window_table[i]);
        }
    }
}

/* Tails saved at a place that is not final yet: a snapshot of its own, copied part by part. */
static void fork_snapshots(kvf_pool *pool, const struct pool_sequence *s,
                           struct pool_sequence *child, kvf_fork *out) {
    for (uint32_t i = fork_shared(pool, s); i < s->window_to; i++) {
        if (s->window_table[i] < 0 || pool->windows[s->window_table[i]].snapshot < 0) continue;
        struct pool_window *w = &pool->windows[child->window_table[i]];
        w->snapshot = pool->policy->take_snapshot(pool, child->window_table[i]);
        kvf_snapshot from = {0}, to = {0};
        pool_snapshot_ids(pool, s->window_table[i], &from);
        pool_snapshot_ids(pool, child->window_table[i], &to);
        for (uint32_t part = 0; part < to.parts; part++)
            add_copy(out, KVF_COPY_SNAPSHOT, from.ids[part], to.ids[part]);
    }
}

static void fork_blocks_of(kvf_pool *pool, const struct pool_sequence *s,
                           struct pool_sequence *child, kvf_fork *out) {
    uint32_t block = pool->geometry.block, shared = fork_shared(pool, s);
    for (uint32_t i = 0; i < shared; i++) {
        child->block_table[i] = s->block_table[i];
        pool_block_ref(pool, s->block_table[i]);
    }
    child->blocks = shared;
    child->known = shared * block; /* nothing is pending while blocks are appended */
    child->near = POOL_NONE;
    pool_step_append(pool, child, fork_blocks(pool, s));
    child->known = s->known;
    for (uint32_t at = shared * block; at < s->known; at++)
        *pool_sequence_token(pool, child, at) = *pool_sequence_token(pool, s, at);
    for (uint32_t i = shared; i * block < s->computed; i++)
        add_copy(out, KVF_COPY_BLOCK, s->block_table[i], child->block_table[i]);
}

static void fork_state(kvf_pool *pool, const struct pool_sequence *s, struct pool_sequence *child,
                       kvf_fork *out) {
    for (uint32_t part = 0; part < pool->parts; part++)
        add_copy(out, part < pool->state_chunk_parts ? KVF_COPY_STATE_CHUNK : KVF_COPY_STATE,
                 s->state[part], child->state[part]);
}

static kvf_status fork_sequence(kvf_pool *pool, const struct pool_sequence *s, kvf_fork *out,
                                kvf_error *error) {
    struct pool_short what = {0};
    if (!out) return pool_fail(error, KVF_ERROR_ARGUMENT, "fork: nowhere to write the answer");
    if (s->prepared != s->computed)
        return pool_fail(error, KVF_ERROR_STATE, "fork: %u tokens are prepared and not committed",
                         s->prepared - s->computed);
    if (!pool->free_sequences.length)
        return pool_fail(error, KVF_ERROR_SHORT,
                         "fork: the pool is short of 1 request slot (of %u)",
                         pool->options.max_requests);
    if (fork_copies(pool, s) > KVF_FORK_COPIES)
        return pool_fail(error, KVF_ERROR_LIMIT, "fork: %u copies; at most %d are told",
                         fork_copies(pool, s), KVF_FORK_COPIES);
    struct pool_need tested = fork_need(pool, s);
    tested.windows += pool->promised_windows;
    tested.envelopes += pool->promised_envelopes;
    if (!pool->policy->fits(pool, &tested, POOL_REFERENCED, &what))
        return pool_fail_short(error, &what, "fork");
    if (!pool_holds(pool, pool->policy->make_room(pool, &tested, POOL_REFERENCED), POOL_ROOM))
        return KVF_ERROR_STATE;
    memset(out, 0, sizeof *out);
    struct pool_sequence *child = &pool->sequences[pool_list_pop_head(&pool->free_sequences)];
    uint32_t shared = fork_shared(pool, s);
    child->prompt = s->prompt;
    child->hit = s->hit;
    child->computed = child->prepared = s->computed;
    child->final = s->final;
    child->published = s->published < shared ? s->published : shared;
    child->matched = s->matched < shared ? s->matched : shared;
    child->promised = child->promised_windows = child->promised_envelopes = 0;
    child->resumed = POOL_NONE;
    /* Whole chunks before envelopes, as the test assumed. */
    fork_windows(pool, s, child, out);
    pool->policy->take_state(pool, child->state);
    fork_snapshots(pool, s, child, out);
    fork_blocks_of(pool, s, child, out);
    fork_state(pool, s, child, out);
    child->live = true;
    child->fill_batch = 0;
    pool->running++;
    out->sequence = pool_sequence_handle(pool, child);
    out->slot = (uint32_t)(child - pool->sequences);
    return KVF_OK;
}

kvf_status kvf_sequence_fork(kvf_pool *pool, kvf_sequence handle, kvf_fork *out, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    return pool_leave(pool, s ? fork_sequence(pool, s, out, error) : KVF_ERROR_STATE, error);
}
