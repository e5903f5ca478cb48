/*
 * A sequence's steps: back the next tokens with memory, then take note that they were computed.
 *
 * Which window blocks a step backs:
 *  - a decode step (at most drafts + 1 tokens) reads and writes the window place itself: all of it;
 *  - a longer chunk works in a workspace, and what must remain is what the next token reads;
 *  - besides, the windows of checkpoints, where a later request can resume. They are optional: if
 *    they do not fit, the step goes on without them.
 */
#include "pool.h"

/* ---- geometry of a step ---- */

/* Drafts may be rejected after they are committed, so the window reaches back further by that. */
uint32_t pool_first_window(const kvf_pool *pool, uint32_t computed) {
    const struct pool_geometry *g = &pool->geometry;
    uint32_t reach = g->window - 1 + g->drafts;
    return computed > reach ? (computed - reach) / g->block : 0;
}

uint32_t pool_reach_blocks(const kvf_pool *pool) {
    const struct pool_geometry *g = &pool->geometry;
    return (g->window - 1 + g->drafts + g->block - 1) / g->block + 1;
}

static bool is_decode(const kvf_pool *pool, const struct pool_sequence *s, uint32_t end) {
    return end - s->computed <= pool->geometry.drafts + 1;
}

static uint32_t prompt_end(const kvf_pool *pool, const struct pool_sequence *s) {
    return s->prompt / pool->geometry.block * pool->geometry.block;
}

/*
 * Places where a later request is most likely to resume, so that a chunk ends there and the tails
 * can be saved: the last multiple of `checkpoint` in the prompt, and the end of the blocks that
 * admission found, where other requests branch off.
 */
static uint32_t tail_of(const kvf_pool *pool, const struct pool_sequence *s) {
    return s->prompt / pool->geometry.checkpoint * pool->geometry.checkpoint;
}

static uint32_t branch_of(const kvf_pool *pool, const struct pool_sequence *s) {
    return s->matched * pool->geometry.block;
}

/*
 * Is a later request to resume at `position`, a multiple of the block? At the two places above, at
 * other multiples of `checkpoint`, and where the prompt's last whole block ends. Tails can be saved
 * only where a step ends (`end`), so the others count only if the step happens to end there.
 */
static bool is_checkpoint(const kvf_pool *pool, const struct pool_sequence *s, uint32_t position,
                          uint32_t end) {
    if (pool->options.trailing || pool->options.prefix_cache_off) return false;
    if (!position || position <= s->hit) return false;
    if (pool->snapshots && position != end) return false;
    return position % pool->geometry.checkpoint == 0 || position == branch_of(pool, s) ||
           position == prompt_end(pool, s);
}

/* Is block `i` one of the windows of a checkpoint in (computed, end]? */
static bool in_checkpoint(const kvf_pool *pool, const struct pool_sequence *s, uint32_t i,
                          uint32_t end) {
    for (uint32_t ahead = 1; ahead <= pool->tail_blocks; ahead++) {
        uint64_t position = (uint64_t)(i + ahead) * pool->geometry.block;
        if (position > s->computed && position <= end &&
            is_checkpoint(pool, s, (uint32_t)position, end))
            return true;
    }
    return false;
}

static bool wants_window(const kvf_pool *pool, const struct pool_sequence *s, uint32_t i,
                         uint32_t end, enum pool_back back) {
    if (s->window_table[i] >= 0) return false;
    if (is_decode(pool, s, end) || i >= pool_first_window(pool, end)) return true;
    return back == POOL_BACK_CHECKPOINTS && in_checkpoint(pool, s, i, end);
}

/*
 * Does the step pass a place where a snapshot may be wanted: a checkpoint, or while decoding any
 * block's end, since the request may end there? `i` is the block that ends there.
 */
static bool wants_snapshot(const kvf_pool *pool, const struct pool_sequence *s, uint32_t i,
                           uint32_t end, enum pool_back back) {
    uint64_t position = (uint64_t)(i + 1) * pool->geometry.block;
    if (!pool->snapshots || back == POOL_BACK_LEAN || position <= s->computed || position > end)
        return false;
    int32_t window = s->window_table[i];
    if (window >= 0 && pool->windows[window].snapshot >= 0) return false;
    return is_decode(pool, s, end) || is_checkpoint(pool, s, (uint32_t)position, end);
}

/* Where a chunk that begins at `computed` and would end at `end` must end at the latest. */
uint32_t pool_chunk_stop(const kvf_pool *pool, const struct pool_sequence *s, uint32_t end) {
    /* Without a prefix cache nobody resumes, so a chunk may end anywhere. */
    if (!pool->snapshots || pool->options.prefix_cache_off || is_decode(pool, s, end)) return end;
    uint32_t tail = tail_of(pool, s), branch = branch_of(pool, s);
    if (tail > s->computed && tail < end) end = tail;
    if (branch > s->computed && branch < end) end = branch;
    return end;
}

kvf_status kvf_sequence_chunk(kvf_pool *pool, kvf_sequence handle, uint32_t want, uint32_t *out,
                              kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    if (!s) return pool_leave(pool, KVF_ERROR_STATE, error);
    if (!out)
        return pool_leave(pool, pool_fail(error, KVF_ERROR_ARGUMENT, "chunk: out is null"), error);
    uint64_t end = (uint64_t)s->computed + want;
    if (end > s->known) end = s->known;
    *out = pool_chunk_stop(pool, s, (uint32_t)end) - s->computed;
    return pool_leave(pool, KVF_OK, error);
}

struct pool_need pool_step_need(const kvf_pool *pool, const struct pool_sequence *s, uint32_t end,
                                enum pool_back back) {
    struct pool_need need = {0};
    if (end <= s->computed) return need;
    for (uint32_t i = s->computed / pool->geometry.block; i < pool_blocks_of(pool, end); i++) {
        bool window = wants_window(pool, s, i, end, back);
        need.windows += window;
        if ((window || s->window_table[i] >= 0) && wants_snapshot(pool, s, i, end, back))
            need.envelopes += pool->geometry.snapshot_envelopes;
    }
    return need;
}

/*
 * Room for tails that an earlier prepare of this step made, at a place that the step now passes in
 * the middle of a chunk: nothing can be saved there.
 */
static void drop_passed_snapshots(kvf_pool *pool, struct pool_sequence *s, uint32_t end) {
    uint32_t block = pool->geometry.block;
    if (is_decode(pool, s, end)) return;
    for (uint32_t i = s->computed / block; (i + 1) * block < end; i++) {
        int32_t window = s->window_table[i];
        if (window < 0 || pool->windows[window].snapshot < 0) continue;
        pool->policy->count_snapshot(pool, window, false);
        pool->policy->drop_snapshot(pool, window);
    }
}

void pool_step_take(kvf_pool *pool, struct pool_sequence *s, uint32_t end, enum pool_back back) {
    uint32_t from = s->computed / pool->geometry.block, to = pool_blocks_of(pool, end);
    drop_passed_snapshots(pool, s, end);
    for (uint32_t i = from; i < to; i++) {
        if (!wants_window(pool, s, i, end, back)) continue;
        s->window_table[i] = pool->policy->take_window(pool);
        pool_mark_windows(s, i);
        if (i < s->window_from) s->window_from = i;
        if (i >= s->window_to) s->window_to = i + 1;
    }
    for (uint32_t i = from; i < to; i++)
        if (s->window_table[i] >= 0 && wants_snapshot(pool, s, i, end, back))
            pool->windows[s->window_table[i]].snapshot =
                pool->policy->take_snapshot(pool, s->window_table[i]);
}

/* ---- tokens and blocks ---- */

int32_t *pool_sequence_token(const kvf_pool *pool, const struct pool_sequence *s,
                             uint32_t position) {
    uint32_t block = pool->geometry.block;
    if (position < s->blocks * block)
        return pool_block_tokens(pool, s->block_table[position / block]) + position % block;
    return s->pending + (position - s->blocks * block);
}

void pool_step_append(kvf_pool *pool, struct pool_sequence *s, uint32_t count) {
    if (count <= s->blocks) return;
    pool_mark_blocks(s, s->blocks);
    uint32_t block = pool->geometry.block, before = s->blocks;
    while (s->blocks < count) {
        int32_t id = pool->policy->take_block(pool, s->near);
        s->near = id;
        s->block_table[s->blocks++] = id;
    }
    /* Ids that were known before their block existed. */
    for (uint32_t at = before * block; at < s->known && at < s->blocks * block; at++)
        *pool_sequence_token(pool, s, at) = s->pending[at - before * block];
    for (uint32_t at = s->blocks * block; at < s->known; at++)
        s->pending[at - s->blocks * block] = s->pending[at - before * block];
}

/* ---- publishing ---- */

static enum pool_kind kind_at(const kvf_pool *pool, const struct pool_sequence *s,
                              uint32_t position) {
    if (position == branch_of(pool, s) && position > s->hit) return POOL_BRANCH;
    if (position == tail_of(pool, s)) return POOL_TAIL;
    return POOL_INTERIOR;
}

/* Publish the window of block i, or list the one that is there already. */
static void publish_window(kvf_pool *pool, struct pool_sequence *s, uint32_t i,
                           enum pool_kind kind) {
    int32_t own = s->window_table[i], block = s->block_table[i];
    if (own < 0 || pool->windows[own].block >= 0) return;
    if (pool->windows[own].written < pool->geometry.block) return;
    int32_t twin = pool->blocks[block].window;
    if (twin < 0) {
        pool_publish_window(pool, block, own, kind);
        return;
    }
    /* A commit takes no memory: not an idle equal one, as long as a fork keeps one's own. */
    if (!pool->windows[twin].refs && pool->windows[own].refs > 1) return;
    pool_window_ref(pool, twin);
    s->window_table[i] = twin;
    pool_mark_windows(s, i);
    pool_window_unref(pool, own, POOL_SLID);
    pool->counters.adopted_windows++;
}

/* The windows a resume at `position` needs, or nothing if one is missing. */
void pool_publish_checkpoint(kvf_pool *pool, struct pool_sequence *s, uint32_t position,
                             enum pool_kind kind) {
    uint32_t end = position / pool->geometry.block;
    uint32_t begin = end > pool->tail_blocks ? end - pool->tail_blocks : 0;
    for (uint32_t i = begin; i < end; i++) {
        int32_t window = s->window_table[i];
        if (window < 0 || pool->windows[window].written < pool->geometry.block) return;
    }
    int32_t last = s->window_table[end - 1];
    if (pool->snapshots && pool->windows[last].snapshot < 0) return;
    for (uint32_t i = begin; i < end; i++) publish_window(pool, s, i, kind);
}

static void publish_block(kvf_pool *pool, struct pool_sequence *s, uint32_t i) {
    int32_t own = s->block_table[i], parent = i ? s->block_table[i - 1] : POOL_NONE;
    if (pool->blocks[own].published) return;
    uint64_t hash = pool_hash(!i, i ? pool->blocks[parent].hash : 0, pool_block_tokens(pool, own),
                              pool->geometry.block);
    int32_t id = pool_publish_block(pool, parent, own, hash);
    if (id == own) return;
    s->block_table[i] = id;
    if (s->near == own) s->near = POOL_NONE;
    pool_mark_blocks(s, i);
}

void pool_step_publish(kvf_pool *pool, struct pool_sequence *s, uint32_t limit) {
    uint32_t block = pool->geometry.block;
    if (!pool->options.prefix_cache_off)
        for (; (s->published + 1) * block <= limit; s->published++) {
            publish_block(pool, s, s->published);
            uint32_t position = (s->published + 1) * block;
            if (pool->options.trailing)
                publish_window(pool, s, s->published, POOL_INTERIOR);
            else if (is_checkpoint(pool, s, position, position))
                pool_publish_checkpoint(pool, s, position, kind_at(pool, s, position));
        }
}

/* ---- the public steps ---- */

static void take_note_of_rows(kvf_pool *pool, struct pool_sequence *s, uint32_t from, uint32_t to) {
    uint32_t block = pool->geometry.block;
    for (uint32_t i = from / block; i < pool_blocks_of(pool, to); i++) {
        if (s->window_table[i] < 0) continue;
        struct pool_window *w = &pool->windows[s->window_table[i]];
        uint32_t start = from > i * block ? from - i * block : 0;
        uint32_t stop = to < (i + 1) * block ? to - i * block : block;
        /* Rows before `start` that were never written leave a gap: the window stays unpublished. */
        if (w->block < 0 && w->written >= start) w->written = stop;
    }
}

static void slide(kvf_pool *pool, struct pool_sequence *s) {
    uint32_t first = pool_first_window(pool, s->computed);
    for (; s->window_from < first && s->window_from < s->window_to; s->window_from++) {
        int32_t window = s->window_table[s->window_from];
        if (window < 0) continue;
        s->window_table[s->window_from] = POOL_NONE;
        pool_mark_windows(s, s->window_from);
        pool_window_unref(pool, window, POOL_SLID);
    }
}

/*
 * What other requests were promised for their first chunk comes before growth. It is kept free, not
 * only counted: envelopes that are spread over chunks of cached blocks would use it up.
 */
static void add_promised(const kvf_pool *pool, const struct pool_sequence *s,
                         struct pool_need *need) {
    need->windows += pool->promised_windows - s->promised_windows;
    need->envelopes += pool->promised_envelopes - s->promised_envelopes;
}

static void drop_promise(kvf_pool *pool, struct pool_sequence *s) {
    pool->promised_windows -= s->promised_windows;
    pool->promised_envelopes -= s->promised_envelopes;
    s->promised_windows = s->promised_envelopes = 0;
}

/* Tails that a request saved for others and that nobody else refers to. Those of its hit stay, as
 * they may not have been restored yet. */
static bool own_tails(const kvf_pool *pool, const struct pool_sequence *s, uint32_t i) {
    int32_t window = s->window_table[i];
    return window >= 0 && pool->windows[window].snapshot >= 0 && pool->windows[window].refs == 1 &&
           !pool->windows[window].held && i >= s->hit / pool->geometry.block;
}

static void count_own_tails(kvf_pool *pool, const struct pool_sequence *s, bool on) {
    for (uint32_t i = s->window_from; i < s->window_to; i++)
        if (own_tails(pool, s, i)) pool->policy->count_snapshot(pool, s->window_table[i], on);
}

/*
 * What does not fit may do so without the tails that the request holds itself: no step is refused
 * for a checkpoint's sake, and a request that runs alone gets through its prompt.
 */
static bool fits_without_tails(kvf_pool *pool, const struct pool_sequence *s,
                               const struct pool_need *need) {
    struct pool_short what = {0};
    count_own_tails(pool, s, false);
    bool fits = pool->policy->fits(pool, need, POOL_REFERENCED, &what);
    if (!fits) count_own_tails(pool, s, true);
    for (uint32_t i = s->window_from; fits && i < s->window_to; i++) {
        if (!own_tails(pool, s, i)) continue;
        int32_t window = s->window_table[i];
        if (pool->windows[window].block >= 0) pool_unpublish_window(pool, window);
        pool->policy->drop_snapshot(pool, window);
    }
    return fits;
}

static void use_promise(kvf_pool *pool, struct pool_sequence *s, uint32_t blocks) {
    uint32_t used = blocks < s->promised ? blocks : s->promised;
    s->promised -= used;
    pool->promised_blocks -= used;
}

/* Memory beyond `length` tokens; what was known of rejected ones is forgotten. */
static void give_back(kvf_pool *pool, struct pool_sequence *s, uint32_t length) {
    uint32_t block = pool->geometry.block;
    /* The prompt's blocks stay, whatever was prepared of them. */
    uint32_t rows = pool_blocks_of(pool, length), prompt = pool_blocks_of(pool, s->prompt);
    uint32_t keep = rows > prompt ? rows : prompt, known = s->known;
    if (length < s->computed) {
        s->computed = length;
        known = length;
    }
    s->prepared = length > s->computed ? length : s->computed;
    /* Known tokens beyond the last block that stays move out of the blocks. */
    int32_t rest[64];
    uint32_t rest_count = known > keep * block ? known - keep * block : 0;
    if (!pool_holds(pool, rest_count <= 64, "few tokens are known beyond the last block")) return;
    for (uint32_t i = 0; i < rest_count; i++)
        rest[i] = *pool_sequence_token(pool, s, keep * block + i);
    for (uint32_t i = s->window_to; i-- > rows;) {
        if (s->window_table[i] < 0) continue;
        pool_window_unref(pool, s->window_table[i], POOL_SLID);
        s->window_table[i] = POOL_NONE;
    }
    if (s->window_to > rows) {
        s->window_to = rows;
        pool_mark_windows(s, rows);
    }
    if (s->blocks > keep) pool_mark_blocks(s, keep);
    while (s->blocks > keep) {
        pool_block_unref(pool, s->block_table[--s->blocks]);
        s->block_table[s->blocks] = POOL_NONE;
    }
    if (s->near >= 0) s->near = keep ? s->block_table[keep - 1] : POOL_NONE;
    for (uint32_t i = 0; i < rest_count; i++) s->pending[i] = rest[i];
    s->known = known;
    if (length % block && s->window_table[length / block] >= 0) {
        struct pool_window *w = &pool->windows[s->window_table[length / block]];
        if (w->written > length % block) w->written = length % block;
    }
}

static kvf_status prepare(kvf_pool *pool, struct pool_sequence *s, uint32_t count,
                          kvf_error *error) {
    const struct pool_geometry *g = &pool->geometry;
    uint64_t end = (uint64_t)s->computed + count;
    if (!count) return pool_fail(error, KVF_ERROR_ARGUMENT, "prepare: zero tokens");
    if (end > pool->options.max_tokens)
        return pool_fail(error, KVF_ERROR_LIMIT, "prepare: %llu tokens; the longest sequence is %u",
                         (unsigned long long)end, pool->options.max_tokens);
    if (end > (uint64_t)s->known + g->drafts)
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "prepare: %llu tokens, but only %u are known and %u may be drafts",
                         (unsigned long long)end, s->known, g->drafts);
    uint32_t stop = pool_chunk_stop(pool, s, (uint32_t)end);
    if (end > stop)
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "prepare: a chunk from %u to %llu crosses the checkpoint at %u",
                         s->computed, (unsigned long long)end, stop);
    uint32_t to = (uint32_t)end, blocks = pool_blocks_of(pool, to);
    uint32_t fresh = blocks > s->blocks ? blocks - s->blocks : 0;

    enum pool_back back = POOL_BACK_CHECKPOINTS;
    enum pool_level level = POOL_HELD;
    struct pool_need need = pool_step_need(pool, s, to, back), tested;
    struct pool_short what = {0};
    need.envelopes += fresh;
    tested = need;
    add_promised(pool, s, &tested);
    if (!pool->policy->fits(pool, &tested, level, &what)) {
        back = POOL_BACK_LEAN;
        level = POOL_REFERENCED;
        need = pool_step_need(pool, s, to, back);
        need.envelopes += fresh;
        tested = need;
        add_promised(pool, s, &tested);
        if (!pool->policy->fits(pool, &tested, level, &what) &&
            !fits_without_tails(pool, s, &tested))
            return pool_fail_short(error, &what, "prepare");
    }
    if (!pool_holds(pool, pool->policy->make_room(pool, &tested, level), POOL_ROOM))
        return KVF_ERROR_STATE;
    drop_promise(pool, s);
    use_promise(pool, s, fresh);
    pool_step_take(pool, s, to, back);
    pool_step_append(pool, s, blocks);
    if (to >= s->prepared)
        s->prepared = to;
    else
        give_back(pool, s, to);
    return pool->damage ? KVF_ERROR_STATE : KVF_OK;
}

kvf_status kvf_sequence_prepare(kvf_pool *pool, kvf_sequence handle, uint32_t tokens,
                                kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    return pool_leave(pool, s ? prepare(pool, s, tokens, error) : KVF_ERROR_STATE, error);
}

/* Rejections reach back `drafts` tokens, but never into the prompt. */
static uint32_t final_tokens(const kvf_pool *pool, const struct pool_sequence *s) {
    uint32_t drafts = pool->geometry.drafts;
    uint32_t sure = s->computed > drafts ? s->computed - drafts : 0;
    uint32_t prompt = s->computed < s->prompt ? s->computed : s->prompt;
    return sure > prompt ? sure : prompt;
}

static kvf_status commit(kvf_pool *pool, struct pool_sequence *s, uint32_t count,
                         const int32_t *ids, uint32_t id_count, kvf_error *error) {
    uint64_t end = (uint64_t)s->computed + count, known = (uint64_t)s->known + id_count;
    if (end > s->prepared)
        return pool_fail(error, KVF_ERROR_STATE, "commit: %llu tokens, but only %u are prepared",
                         (unsigned long long)end, s->prepared);
    if (count && end < s->prepared && !is_decode(pool, s, s->prepared))
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "commit: %u tokens of a chunk of %u; a chunk is committed whole", count,
                         s->prepared - s->computed);
    if (end > known)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "commit: %llu tokens, but only %llu are known",
                         (unsigned long long)end, (unsigned long long)known);
    if (known > end + pool->geometry.drafts + 1 && id_count)
        return pool_fail(
            error, KVF_ERROR_ARGUMENT, "commit: %llu known tokens run more than %u ahead of %llu",
            (unsigned long long)known, pool->geometry.drafts + 1, (unsigned long long)end);
    if (id_count && !ids) return pool_fail(error, KVF_ERROR_ARGUMENT, "commit: the ids are null");
    for (uint32_t i = 0; i < id_count; i++) *pool_sequence_token(pool, s, s->known++) = ids[i];
    take_note_of_rows(pool, s, s->computed, (uint32_t)end);
    s->computed = (uint32_t)end;
    pool->counters.computed_tokens += count;
    uint32_t final = final_tokens(pool, s);
    if (final > s->final) s->final = final;
    pool_step_publish(pool, s, s->final);
    slide(pool, s);
    return KVF_OK;
}

kvf_status kvf_sequence_commit(kvf_pool *pool, kvf_sequence handle, uint32_t tokens,
                               const int32_t *ids, uint32_t id_count, kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    return pool_leave(pool, s ? commit(pool, s, tokens, ids, id_count, error) : KVF_ERROR_STATE,
                      error);
}

static kvf_status truncate_to(kvf_pool *pool, struct pool_sequence *s, uint32_t length,
                              kvf_error *error) {
    if (length > s->prepared)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "truncate: %u tokens of %u", length,
                         s->prepared);
    if (length < s->final)
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "truncate: to %u tokens; %u are final (drafts: %u)", length, s->final,
                         pool->geometry.drafts);
    if (length > s->computed && length < s->prepared && !is_decode(pool, s, s->prepared))
        return pool_fail(error, KVF_ERROR_ARGUMENT,
                         "truncate: a chunk of %u tokens is kept whole or given back whole",
                         s->prepared - s->computed);
    give_back(pool, s, length);
    return pool->damage ? KVF_ERROR_STATE : KVF_OK;
}

kvf_status kvf_sequence_truncate(kvf_pool *pool, kvf_sequence handle, uint32_t length,
                                 kvf_error *error) {
    kvf_status status = pool_enter(pool, error);
    if (status) return status;
    struct pool_sequence *s = pool_sequence_get(pool, handle, error);
    return pool_leave(pool, s ? truncate_to(pool, s, length, error) : KVF_ERROR_STATE, error);
}
