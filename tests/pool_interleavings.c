/*
 * All interleavings of two requests (and a fork) on pools so small that they lend, evict and refuse
 * all the time: admission, steps, verify steps with rejected drafts, preemption, release. Depth
 * first; a state that was explored at least as deep before is left out. After every operation the
 * pool's invariants and every row read are checked. An argument sets the depth.
 */
#include <xxhash.h>

#include "pool_model.h"

enum action {
    ADMIT_A,
    ADMIT_B,
    STEP_A,
    PREPARE_B,
    COMPUTE_B,
    SHORT_A,
    TRUNCATE_A,
    FORK_A,
    PREEMPT_A,
    RELEASE_A,
    RELEASE_B,
    RELEASE_FORK,
    ACTIONS
};

struct setting {
    const char *name;
    kvf_policy policy;
    uint32_t chunks, windows, blocks, lent, pins;
};

static const struct setting settings[] = {
    {"elastic, 6 chunks", KVF_POLICY_ELASTIC, 6, 0, 0, 0, 0},
    {"elastic, 9 chunks", KVF_POLICY_ELASTIC, 9, 0, 0, 0, 0},
    {"static", KVF_POLICY_STATIC, 0, 5, 9, 0, 0},
    {"shared, lending", KVF_POLICY_SHARED, 0, 5, 4, 6, 0},
    {"shared, pins", KVF_POLICY_SHARED, 0, 6, 8, 0, 2},
};

static struct pool_geometry geometry(void) {
    struct pool_geometry g = {.block = 4,
                              .window = 4,
                              .drafts = 1,
                              .max_positions = 24,
                              .checkpoint = 4,
                              .types = 3,
                              .per_chunk = 2,
                              .envelope_bytes = 128,
                              .chunk_bytes = 256,
                              .state_envelopes = 1,
                              .snapshot_envelopes = 1,
                              .window_bytes = 100,
                              .block_bytes = 100,
                              .state_bytes = 10,
                              .snapshot_bytes = 10};
    g.type[0] = (struct pool_type){.name = "csa", .ratio = 2, .k = 2, .layers = 1, .planes = 1};
    g.type[1] = (struct pool_type){.name = "hca", .ratio = 4, .k = 1, .layers = 1, .planes = 1};
    g.type[2] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
    return g;
}

/* ---- what each action does; false only if something is wrong ---- */

static struct model m;

static bool prepare(struct model_sequence *s) {
    uint32_t left = s->known - s->computed, want = left > 4 ? 4 : left > 1 ? left : 2, count = want;
    if (!s->live || s->computed + 3 > 22) return true;
    if (kvf_sequence_chunk(m.pool, s->handle, want, &count, NULL)) return model_fail(&m, "chunk");
    if (!count || want <= 2) count = want;
    kvf_status status = model_prepare(&m, s, count);
    if (status == KVF_ERROR_SHORT || status == KVF_ERROR_LIMIT) return true;
    return status ? model_fail(&m, "prepare: status %d", (int)status) : true;
}

static bool compute(struct model_sequence *s, uint32_t take) {
    struct model_sequence *list[] = {s};
    if (!s->live || s->prepared == s->computed) return true;
    if (!model_forward(&m, list, 1)) return false;
    if (take && take < s->prepared - s->computed && s->prepared - s->computed <= 2)
        return model_commit(&m, s, take, 3);
    return model_commit(&m, s, s->prepared - s->computed, 3);
}

/* B's prompt begins as A's does, and goes on for longer. */
static bool admit(struct model_sequence *s, uint32_t count) {
    if (s->live) return true;
    for (uint32_t i = 0; i < count; i++) s->tokens[i] = (int32_t)i;
    kvf_status status = model_admit(&m, s, count, 4);
    if (m.failure[0]) return false;
    if (status && status != KVF_ERROR_SHORT && status != KVF_ERROR_LIMIT)
        return model_fail(&m, "admit: status %d", (int)status);
    return true;
}

static bool step(struct model_sequence *s, uint32_t take) {
    return prepare(s) && compute(s, take);
}

static bool cut(struct model_sequence *s) {
    if (!s->live || s->computed <= s->prompt || s->computed < s->high) return true;
    if (!model_truncate(&m, s, s->computed - 1)) return false;
    return model_commit(&m, s, 0, 5);
}

static bool leave(struct model_sequence *s, bool preempt) {
    if (!s->live) return true;
    s->live = false;
    if (preempt) return !kvf_sequence_preempt(m.pool, s->handle, NULL);
    return !kvf_sequence_release(m.pool, s->handle, NULL);
}

static bool fork_a(struct model_sequence *s, struct model_sequence *child) {
    kvf_fork fork;
    if (!s->live || child->live || s->prepared != s->computed) return true;
    kvf_status status = kvf_sequence_fork(m.pool, s->handle, &fork, NULL);
    if (status == KVF_ERROR_SHORT) return true;
    if (status) return model_fail(&m, "fork: status %d", (int)status);
    *child = *s;
    child->handle = fork.sequence;
    model_copies(&m, &fork);
    if (!model_forked(&m, s->handle, child->handle)) return false;
    kvf_sequence_info info;
    kvf_sequence_get_info(m.pool, child->handle, &info, NULL);
    child->write_from = info.write_from;
    model_stamp_state(&m, child);
    return true;
}

static bool act(enum action action) {
    struct model_sequence *a = &m.s[0], *b = &m.s[1], *f = &m.s[2];
    switch (action) {
    case ADMIT_A: return admit(a, 9);
    case ADMIT_B: return admit(b, 13);
    case STEP_A: return step(a, 0);
    case PREPARE_B: return prepare(b);
    case COMPUTE_B: return compute(b, 0);
    case SHORT_A: return step(a, 1);
    case TRUNCATE_A: return cut(a);
    case FORK_A: return fork_a(a, f);
    case PREEMPT_A: return leave(a, true);
    case RELEASE_A: return leave(a, false);
    case RELEASE_B: return leave(b, false);
    case RELEASE_FORK: return step(f, 0) && leave(f, false);
    case ACTIONS: break;
    }
    return true;
}

/* ---- the search ---- */

enum { SEEN = 1 << 20 };
static struct {
    uint64_t key;
    uint32_t depth;
} seen[SEEN];

static uint64_t mix(const void *at, size_t bytes, uint64_t hash) {
    return XXH3_64bits_withSeed(at, bytes, hash);
}

static uint64_t mix_list(const struct pool_list *list, uint64_t hash) {
    uint32_t words[] = {(uint32_t)list->head, (uint32_t)list->tail, list->length};
    return mix(words, sizeof words, hash);
}

static uint64_t mix_sequence(const struct pool_sequence *s, uint64_t hash) {
    struct pool_sequence copy = *s; /* without its pointers, which differ from pool to pool */
    copy.block_table = copy.window_table = copy.state = copy.pending = NULL;
    return mix(&copy, sizeof copy, hash);
}

/* Everything that the future depends on. */
static uint64_t state_key(void) {
    const kvf_pool *p = m.pool;
    uint64_t h = mix(p->blocks, p->block_count * sizeof p->blocks[0], 0xcbf29ce484222325u);
    h = mix(p->windows, p->window_count * sizeof p->windows[0], h);
    h = mix(p->chunks, p->chunk_count * sizeof p->chunks[0], h);
    for (int class = 0; class < POOL_CLASSES; class ++) h = mix_list(&p->classes[class], h);
    h = mix_list(&p->free_chunks, h);
    h = mix_list(&p->free_envelopes, h);
    h = mix_list(&p->free_windows, h);
    h = mix_list(&p->free_sequences, h);
    h = mix(p->made, sizeof p->made + sizeof p->first_hits, h);
    h = mix(&p->mean_output, sizeof p->mean_output, h);
    uint32_t cells = p->options.max_requests * (2 * p->max_blocks + p->parts);
    h = mix(p->tables, cells * sizeof p->tables[0], h);
    for (uint32_t i = 0; i < p->options.max_requests; i++) h = mix_sequence(&p->sequences[i], h);
    for (int i = 0; i < 3; i++) {
        const struct model_sequence *s = &m.s[i];
        uint32_t words[] = {s->live, s->known, s->computed, s->prepared, s->high, s->prompt};
        h = mix(words, sizeof words, h);
        if (s->live) h = mix(s->tokens, s->prepared * sizeof s->tokens[0], h);
    }
    /* What the memory holds, too: the same records over other rows are another state. */
    if (!p->shared) {
        h = mix(m.cells[0], p->block_count * m.envelope_cells * sizeof m.cells[0][0], h);
        h = mix(m.cells[1], (size_t)p->window_count * m.g.block * sizeof m.cells[1][0], h);
    }
    if (p->shared) {
        const struct slots *slots = &p->shared->slots;
        h = mix_list(&p->shared->free, h);
        h = mix_list(&p->shared->cold, h);
        h = mix(p->shared->cold_links, p->block_count * sizeof p->shared->cold_links[0], h);
        h = mix_list(&p->shared->pins, h);
        h = mix_list(&slots->free, h);
        h = mix_list(&slots->lendable, h);
        h = mix(slots->window, slots->windows * sizeof slots->window[0], h);
        for (uint32_t t = 0; t < slots->types; t++) {
            const struct slots_type *type = &slots->type[t];
            h = mix(type->slots, type->count * sizeof type->slots[0], h);
            h = mix(type->masks, (size_t)type->count * type->words * sizeof type->masks[0], h);
            h = mix_list(&type->own_free, mix_list(&type->joint, h));
            h = mix(p->shared->bound[t], p->block_count * sizeof(int32_t), h);
            h = mix(m.cells[t], (size_t)type->count * m.g.block * sizeof m.cells[t][0], h);
        }
    }
    return h ? h : 1;
}

static bool explored(uint32_t left) {
    uint64_t key = state_key();
    for (uint32_t at = (uint32_t)key & (SEEN - 1), tries = 0; tries < 64; tries++) {
        if (seen[at].key == key) {
            if (seen[at].depth >= left) return true;
            seen[at].depth = left;
            return false;
        }
        if (!seen[at].key) {
            seen[at].key = key;
            seen[at].depth = left;
            return false;
        }
        at = (at + 1) & (SEEN - 1);
    }
    return false;
}

static uint64_t paths, states;

static bool open_setting(const struct setting *setting) {
    struct pool_geometry g = geometry();
    kvf_pool_options o = {.policy = setting->policy,
                          .max_requests = 3,
                          .chunks = setting->chunks,
                          .windows = setting->windows,
                          .blocks = setting->blocks,
                          .lent_blocks = setting->lent,
                          .pins = setting->pins};
    return model_open(&m, &g, &o, 1);
}

/* Replay the path and look at its end; then go on from there. */
static bool explore(const struct setting *setting, enum action *path, uint32_t length,
                    uint32_t depth) {
    if (!open_setting(setting)) return false;
    bool good = true;
    for (uint32_t i = 0; i < length && good; i++)
        good = act(path[i]) && (i + 1 < length || model_check(&m));
    if (!good) return false;
    paths++;
    bool known = explored(depth - length);
    model_close(&m);
    if (known || length == depth) return true;
    states++;
    for (int action = 0; action < ACTIONS; action++) {
        path[length] = (enum action)action;
        if (!explore(setting, path, length + 1, depth)) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    const char *sanitize = getenv("KVF_SANITIZE"); /* sanitizers make opening a pool slow */
    uint32_t usual = sanitize && *sanitize ? 6 : 8;
    uint32_t depth = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : usual,
             count = sizeof settings / sizeof settings[0];
    if (depth > 30) depth = 30;
    tap_plan((int)count);
    for (uint32_t i = 0; i < count; i++) {
        enum action path[32] = {ADMIT_A};
        memset(seen, 0, sizeof seen);
        paths = states = 0;
        bool good = explore(&settings[i], path, 0, depth);
        ok(good && states > 30, "%s: %" PRIu64 " interleavings through %" PRIu64 " states, %u deep",
           settings[i].name, paths, states, depth);
        if (good) continue;
        tap_note("%s", m.failure);
        for (uint32_t at = 0; at < depth; at++) tap_note("action %d", (int)path[at]);
    }
    return tap_done();
}
