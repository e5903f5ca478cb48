/*
 * Random operations on small pools of every policy, checked after each: the pool's own invariants,
 * and the content of every row that a step reads (see pool_model.h). A refused call must leave the
 * pool as it was. An argument sets the number of operations: tests/pool_fuzz 100000000.
 */
#include <xxhash.h>

#include "pool_model.h"

struct shape {
    const char *name;
    uint32_t block, window, drafts, checkpoint, ratios[3];
    uint32_t per_chunk, snapshots, state_chunks, state_envelopes;
};

static const struct shape shapes[] = {
    {"one window a block", 8, 8, 0, 16, {4, 8, 0}, 4, 1, 0, 3},
    {"drafts", 8, 8, 2, 16, {4, 8, 0}, 3, 1, 1, 1},
    {"no snapshots", 8, 8, 0, 16, {2, 0, 0}, 6, 0, 1, 2},
    {"a window of several blocks", 4, 10, 1, 8, {4, 2, 0}, 5, 2, 0, 1},
    {"a small window", 8, 3, 1, 16, {8, 0, 0}, 2, 1, 1, 0},
    {"one envelope a chunk", 8, 8, 0, 16, {4, 0, 0}, 1, 1, 0, 1},
    {"many envelopes a chunk", 4, 4, 3, 8, {2, 4, 1}, 70, 1, 0, 2},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void fill_geometry(struct pool_geometry *g, const struct shape *shape) {
    *g = (struct pool_geometry){.block = shape->block,
                                .window = shape->window,
                                .drafts = shape->drafts,
                                .max_positions = 96,
                                .checkpoint = shape->checkpoint,
                                .per_chunk = shape->per_chunk,
                                .snapshot_envelopes = shape->snapshots,
                                .state_chunks = shape->state_chunks,
                                .state_envelopes = shape->state_envelopes,
                                .envelope_bytes = 128,
                                .chunk_bytes = UINT64_C(128) * shape->per_chunk,
                                .window_bytes = 100,
                                .block_bytes = 100,
                                .state_bytes = 64,
                                .snapshot_bytes = shape->snapshots ? 16 : 0};
    for (uint32_t i = 0; i < 3 && shape->ratios[i]; i++) {
        struct pool_type *t = &g->type[g->types++];
        snprintf(t->name, sizeof t->name, "t%u", i);
        t->ratio = shape->ratios[i];
        t->k = shape->block / t->ratio;
        t->layers = 1;
        t->planes = 1;
        t->plane_row_bytes[0] = 4;
    }
    g->type[g->types++] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
}

static kvf_pool_options choose_options(struct model *m, const struct pool_geometry *g,
                                       kvf_policy policy) {
    kvf_pool_options o = {.policy = policy, .max_requests = 1 + model_random(m, 5)};
    uint32_t windows = 3 + model_random(m, 12), blocks = 6 + model_random(m, 60);
    if (policy == KVF_POLICY_ELASTIC) {
        o.chunks = windows + (blocks + g->per_chunk - 1) / g->per_chunk + 2;
        return o;
    }
    o.windows = windows + 2 * pool_geometry_tail_blocks(g);
    o.blocks = blocks;
    if (policy != KVF_POLICY_SHARED) return o;
    o.lent_blocks = model_random(m, 3) * 8;
    o.pins = model_random(m, 2) * model_random(m, windows);
    return o;
}

/* A copy of everything a refused call must leave alone. */
static uint64_t digest(const void *at, size_t bytes, uint64_t hash) {
    return XXH3_64bits_withSeed(at, bytes, hash);
}

static uint64_t digest_pool(const kvf_pool *pool) {
    uint64_t h = 0xcbf29ce484222325u;
    h = digest(pool->blocks, pool->block_count * sizeof pool->blocks[0], h);
    h = digest(pool->windows, pool->window_count * sizeof pool->windows[0], h);
    h = digest(pool->chunks, pool->chunk_count * sizeof pool->chunks[0], h);
    h = digest(pool->spare, sizeof pool->spare, h);
    h = digest(pool->classes, sizeof pool->classes, h);
    h = digest(pool->index, ((size_t)pool->index_mask + 1) * sizeof pool->index[0], h);
    h = digest(&pool->promised_blocks, 3 * sizeof pool->promised_blocks, h);
    uint32_t cells = pool->options.max_requests * (2 * pool->max_blocks + pool->parts);
    h = digest(pool->tables, cells * sizeof pool->tables[0], h);
    if (!pool->shared) return h;
    for (uint32_t t = 0; t < pool->shared->slots.types; t++)
        h = digest(pool->shared->slots.type[t].slots,
                   pool->shared->slots.type[t].count * sizeof(struct slots_slot), h);
    return digest(&pool->shared->free, sizeof pool->shared->free, h);
}

/* ---- operations ---- */

static uint64_t refused, hits, forks, truncated, together;

static bool same_as_before(struct model *m, uint64_t before, const char *what) {
    refused++;
    if (digest_pool(m->pool) == before) return true;
    return model_fail(m, "%s was refused and changed the pool", what);
}

/* Prompts share beginnings: few token values, and often the start of another sequence. */
static void choose_tokens(struct model *m, struct model_sequence *s, uint32_t count) {
    static int32_t remembered[4][MODEL_TOKENS];
    uint32_t same = model_random(m, count + 1), which = model_random(m, 4);
    for (uint32_t i = 0; i < count; i++)
        s->tokens[i] = i < same ? remembered[which][i] : (int32_t)model_random(m, 2);
    if (!model_random(m, 4)) memcpy(remembered[which], s->tokens, count * sizeof s->tokens[0]);
}

static bool do_admit(struct model *m, struct model_sequence *s) {
    uint32_t count = 1 + model_random(m, m->pool->options.max_tokens);
    uint64_t before = model_random(m, 8) ? 0 : digest_pool(m->pool);
    choose_tokens(m, s, count);
    kvf_status status = model_admit(m, s, count, 1 + model_random(m, 40));
    if (m->failure[0]) return false;
    if (!status) {
        hits += s->computed > 0;
        return true;
    }
    if (status != KVF_ERROR_SHORT && status != KVF_ERROR_LIMIT)
        return model_fail(m, "admit: status %d", (int)status);
    if (status == KVF_ERROR_LIMIT && m->pool->running)
        return model_fail(m, "admit: said never while others run");
    return before ? same_as_before(m, before, "admit") : true;
}

/* Back the next chunk or decode step; the first chunk after admission must not be refused. */
static bool do_prepare(struct model *m, struct model_sequence *s) {
    uint32_t left = s->known - s->computed, limit = m->pool->options.max_tokens, want, count;
    want = left > 1 && model_random(m, 4) ? 1 + model_random(m, left)
                                          : 1 + model_random(m, m->g.drafts + 1);
    if (s->computed + want > limit) want = limit - s->computed;
    if (want > left + m->g.drafts) want = left + m->g.drafts;
    if (kvf_sequence_chunk(m->pool, s->handle, want, &count, NULL)) return model_fail(m, "chunk");
    if (!count || (want <= m->g.drafts + 1 && want <= left + m->g.drafts)) count = want;
    if (!count) return true;
    uint64_t before = model_random(m, 8) ? 0 : digest_pool(m->pool);
    kvf_status status = model_prepare(m, s, count);
    bool sure = count <= s->chunk && s->computed + count <= s->known;
    s->chunk = 0;
    if (status && sure) return model_fail(m, "the first chunk was refused");
    if (status && status != KVF_ERROR_SHORT)
        return model_fail(m, "prepare %u at %u of %u: status %d", count, s->computed, s->known,
                          (int)status);
    return status && before ? same_as_before(m, before, "prepare") : true;
}

/* What was computed becomes known; of a verify step, some of it. */
static bool do_commit(struct model *m, struct model_sequence *s) {
    uint32_t prepared = s->prepared - s->computed, take = prepared;
    uint32_t limit = m->pool->options.max_tokens;
    if (prepared <= m->g.drafts + 1) take = 1 + model_random(m, prepared);
    if (s->computed + take >= limit && s->computed + take >= s->known) {
        return model_truncate(m, s, s->computed); /* no room for the sampled token */
    }
    return model_commit(m, s, take, (int32_t)model_random(m, 2));
}

/* A step of its own; or only prepared, so that others act in between. */
static bool do_step(struct model *m, struct model_sequence *s) {
    struct model_sequence *list[] = {s};
    if (s->computed >= m->pool->options.max_tokens) return true;
    if (s->prepared == s->computed || !model_random(m, 8)) {
        if (!do_prepare(m, s)) return false;
        if (s->prepared == s->computed || !model_random(m, 3)) return true;
    }
    return model_forward(m, list, 1) && do_commit(m, s);
}

/* One step of all that are prepared, committed in any order. */
static bool do_batch(struct model *m) {
    struct model_sequence *list[MODEL_SEQUENCES];
    uint32_t count = 0, first;
    for (int i = 0; i < MODEL_SEQUENCES; i++)
        if (m->s[i].live && m->s[i].prepared > m->s[i].computed) list[count++] = &m->s[i];
    if (!count) return true;
    together += count > 1;
    if (!model_forward(m, list, count)) return false;
    first = model_random(m, count);
    for (uint32_t i = 0; i < count; i++)
        if (!do_commit(m, list[(first + i) % count])) return false;
    return true;
}

static bool do_truncate(struct model *m, struct model_sequence *s) {
    uint32_t back = model_random(m, m->g.drafts + 1);
    uint32_t final = s->high < s->prompt ? s->high : s->prompt;
    if (s->high > final + m->g.drafts) final = s->high - m->g.drafts;
    uint32_t length =
        s->computed >= back && s->computed - back >= final ? s->computed - back : s->computed;
    truncated += length < s->computed;
    if (!model_truncate(m, s, length)) return false;
    if (s->known > s->computed) return true;
    return model_commit(m, s, 0, (int32_t)model_random(m, 2));
}

static bool do_fork(struct model *m, struct model_sequence *s, struct model_sequence *child) {
    kvf_fork fork;
    if (s->prepared != s->computed && !model_truncate(m, s, s->computed)) return false;
    uint64_t before = model_random(m, 4) ? 0 : digest_pool(m->pool);
    kvf_status status = kvf_sequence_fork(m->pool, s->handle, &fork, NULL);
    if (status == KVF_ERROR_SHORT) return before ? same_as_before(m, before, "fork") : true;
    if (status) return model_fail(m, "fork: status %d", (int)status);
    forks++;
    *child = *s;
    child->handle = fork.sequence;
    child->chunk = 0;
    model_copies(m, &fork);
    if (!model_forked(m, s->handle, child->handle)) return false;
    kvf_sequence_info info;
    kvf_sequence_get_info(m->pool, child->handle, &info, NULL);
    child->write_from = info.write_from;
    model_stamp_state(m, child);
    return true;
}

static bool do_end(struct model *m, struct model_sequence *s, bool preempt) {
    kvf_status status = preempt ? kvf_sequence_preempt(m->pool, s->handle, NULL)
                                : kvf_sequence_release(m->pool, s->handle, NULL);
    if (status) return model_fail(m, "release: status %d", (int)status);
    s->live = false;
    if (kvf_sequence_release(m->pool, s->handle, NULL) != KVF_ERROR_STATE)
        return model_fail(m, "a second release was accepted");
    return true;
}

static bool do_ranges(struct model *m, struct model_sequence *s) {
    kvf_range ranges[400];
    uint32_t count;
    if (kvf_sequence_ranges(m->pool, s->handle, ranges, 400, &count, NULL))
        return model_fail(m, "ranges");
    for (uint32_t i = 1; i < count; i++) {
        const kvf_range *a = &ranges[i - 1], *b = &ranges[i];
        bool later = b->allocation > a->allocation || b->offset > a->offset + a->bytes;
        if (!later) return model_fail(m, "ranges %u and %u are not ascending and merged", i - 1, i);
    }
    return true;
}

static bool do_bad(struct model *m, struct model_sequence *s) {
    uint64_t before = digest_pool(m->pool);
    bool refusals =
        kvf_sequence_prepare(m->pool, s->handle, 0, NULL) &&
        kvf_sequence_prepare(m->pool, s->handle, m->pool->options.max_tokens + 1, NULL) &&
        kvf_sequence_commit(m->pool, s->handle, s->prepared - s->computed + 1, NULL, 0, NULL) &&
        kvf_sequence_truncate(m->pool, s->handle, s->prepared + 1, NULL) &&
        kvf_sequence_release(m->pool, s->handle + (UINT64_C(1) << 32), NULL);
    if (!refusals) return model_fail(m, "a bad call was accepted");
    return same_as_before(m, before, "a bad call");
}

static bool one(struct model *m) {
    struct model_sequence *s = &m->s[model_random(m, MODEL_SEQUENCES)];
    uint32_t what = model_random(m, 100);
    /* Where all slots are taken, an admission says little: mostly one of the running ones acts. */
    while (!s->live && m->pool->running == m->pool->options.max_requests && model_random(m, 32))
        s = &m->s[model_random(m, MODEL_SEQUENCES)];
    if (!s->live) {
        if (what < 80) return do_admit(m, s);
        struct model_sequence *other = &m->s[model_random(m, MODEL_SEQUENCES)];
        return other->live ? do_fork(m, other, s) : true;
    }
    if (what < 72) return do_step(m, s);
    if (what < 78) return do_batch(m);
    if (what < 84) return do_truncate(m, s);
    if (what < 86) return do_ranges(m, s);
    if (what < 88) return do_bad(m, s);
    return do_end(m, s, what < 92);
}

static bool run(struct model *m, uint64_t operations) {
    for (uint64_t i = 0; i < operations; i++)
        if (!one(m) || !model_check(m)) return false;
    for (int i = 0; i < MODEL_SEQUENCES; i++)
        if (m->s[i].live && !do_end(m, &m->s[i], false)) return false;
    return model_check(m);
}

int main(int argc, char **argv) {
    const char *sanitize = getenv("KVF_SANITIZE"); /* sanitizers take ten times as long */
    uint64_t usual = sanitize && *sanitize ? 200000 : 1200000;
    uint64_t total = argc > 1 ? strtoull(argv[1], NULL, 10) : usual;
    static const char *policies[] = {"elastic", "static", "shared"};
    uint32_t per_pool = 2000;
    uint64_t rounds = total / ((uint64_t)per_pool * 3 * SHAPES) + 1, operations = 0;
    uint64_t read = 0, written = 0, restored = 0;
    static struct model m;
    tap_plan(3 * SHAPES + 1);
    for (int policy = 0; policy < 3; policy++)
        for (int shape = 0; shape < SHAPES; shape++) {
            bool good = true;
            uint64_t round;
            for (round = 0; good && round < rounds; round++) {
                struct pool_geometry g;
                struct model seed = {.random =
                                         (round * 31 + (uint64_t)shape) * 0x9e3779b97f4a7c15u + 7};
                fill_geometry(&g, &shapes[shape]);
                kvf_pool_options o = choose_options(&seed, &g, (kvf_policy)policy);
                good = model_open(&m, &g, &o, round * 100 + (uint64_t)shape) && run(&m, per_pool);
                operations += m.operations;
                read += m.rows_read;
                written += m.rows_written;
                restored += m.restored;
                if (good) model_close(&m);
            }
            ok(good, "%s, %s", policies[policy], shapes[shape].name);
            if (!good) tap_note("round %" PRIu64 ": %s", round - 1, m.failure);
        }
    tap_note("%" PRIu64 " operations, %" PRIu64 " rows read, %" PRIu64 " written, %" PRIu64
             " tails restored, %" PRIu64 " refused, %" PRIu64 " hits, %" PRIu64 " forks, %" PRIu64
             " truncated, %" PRIu64 " steps of several",
             operations, read, written, restored, refused, hits, forks, truncated, together);
    ok(operations >= total && restored > 100 && hits > 100 && forks > 100 && truncated > 100 &&
           refused > 100 && together > 100,
       "enough of everything happened");
    return tap_done();
}
