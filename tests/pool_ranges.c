/*
 * Byte ranges against a map of bytes: for every policy the bytes of a sequence, of single ids of
 * each kind and of what a fork asks to copy are marked one by one where the layout puts them, and
 * the ranges must cover exactly those, ascending and merged.
 */
#include "pool_model.h"

enum { ALLOCATIONS = 12, BYTES = 1 << 17, RANGES = 4096 };

static struct pool_geometry g;
static kvf_pool *pool;
static uint8_t want[ALLOCATIONS][BYTES], got[ALLOCATIONS][BYTES];

/* Two planes, index rows, tails: sizes that no other of the shape equals. */
static void shape(void) {
    g = (struct pool_geometry){
        .block = 8, .window = 8, .drafts = 2, .max_positions = 160, .checkpoint = 16, .types = 3};
    g.type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 2, .layers = 3, .planes = 2};
    g.type[1] = (struct pool_type){.name = "hca", .ratio = 8, .k = 1, .layers = 2, .planes = 1};
    g.type[2] = (struct pool_type){.name = "swa", .layers = 1, .planes = 2};
    for (int t = 0; t < 3; t++)
        for (uint32_t plane = 0; plane < g.type[t].planes; plane++) {
            g.type[t].plane_row_bytes[plane] = plane ? 6 : 10;
            g.type[t].window_page_bytes += g.type[t].plane_row_bytes[plane] * 8;
            g.type[t].block_page_bytes += g.type[t].plane_row_bytes[plane] * g.type[t].k;
        }
    g.type[0].state_bytes = 300;
    g.type[0].snapshot_bytes = 28;
    g.type[0].index_page_bytes = 14;
    kvf_error e;
    if (pool_geometry_derive(&g, 32, &e)) exit(1);
}

static void mark(uint8_t map[ALLOCATIONS][BYTES], uint64_t a, uint64_t at, uint64_t bytes) {
    if (a >= ALLOCATIONS || at + bytes > BYTES) {
        printf("Bail out! allocation %d, byte %d\n", (int)a, (int)(at + bytes));
        exit(1);
    }
    memset(map[a] + at, 1, bytes);
}

/* ---- where the layout puts things ---- */

/* Under `shared`: allocations of a type are its planes and then its index rows. */
static uint32_t first_allocation(uint32_t type) {
    uint32_t a = 0;
    for (uint32_t t = 0; t < type; t++) a += g.type[t].planes + (g.type[t].index_page_bytes > 0);
    return a;
}

/* Rows of one layer's tensor: a slot for each window, and those of the type's own. */
static uint64_t rows_of(uint32_t type) {
    uint64_t slots = pool->window_count, ratio = g.type[type].ratio;
    if (ratio) slots += (pool->block_count - pool->options.lent_blocks + ratio - 1) / ratio;
    return slots * g.block;
}

static void mark_rows(uint32_t type, uint64_t row, uint64_t count) {
    const struct pool_type *t = &g.type[type];
    for (uint32_t plane = 0; plane < t->planes; plane++)
        for (uint32_t layer = 0; layer < t->layers; layer++)
            mark(want, first_allocation(type) + plane,
                 (layer * rows_of(type) + row) * t->plane_row_bytes[plane],
                 count * t->plane_row_bytes[plane]);
}

static void mark_window(int32_t id) {
    uint64_t at = (uint64_t)id;
    if (!pool->shared) {
        mark(want, 0, at * g.chunk_bytes, g.chunk_bytes);
        return;
    }
    for (uint32_t t = 0; t < g.types; t++) mark_rows(t, at * g.block, g.block);
}

static void mark_block(int32_t id) {
    if (!pool->shared) {
        mark(want, pool->store != &pool_arena, (uint64_t)id * g.envelope_bytes, g.envelope_bytes);
        return;
    }
    for (uint32_t t = 0; t < 2; t++)
        mark_rows(t, (uint64_t)pool->shared->bound[t][id] * g.type[t].k, g.type[t].k);
    for (uint32_t layer = 0; layer < g.type[0].layers; layer++)
        mark(want, g.type[0].planes, (layer * pool->block_count + (uint64_t)id) * 14, 14);
}

static void mark_state(uint32_t part, int32_t id) {
    uint32_t allocation = pool->shared ? first_allocation(3) : 2;
    if (pool->store != &pool_arena)
        mark(want, allocation, (uint64_t)id * g.state_bytes, g.state_bytes);
    else if (part < g.state_chunks)
        mark_window(id);
    else
        mark_block(id);
}

static void mark_snapshot(int32_t id) {
    if (pool->shared)
        mark(want, first_allocation(3) + 1, (uint64_t)id * g.snapshot_bytes, g.snapshot_bytes);
    else
        mark_block(id);
}

static void mark_sequence(const struct pool_sequence *s) {
    for (uint32_t i = 0; i < s->blocks; i++) mark_block(s->block_table[i]);
    for (uint32_t part = 0; part < pool->parts; part++) mark_state(part, s->state[part]);
    for (uint32_t i = s->window_from; i < s->window_to; i++) {
        int32_t window = s->window_table[i];
        kvf_snapshot parts = {0};
        if (window < 0) continue;
        mark_window(window);
        if (pool->windows[window].snapshot < 0) continue;
        pool_snapshot_ids(pool, window, &parts);
        for (uint32_t part = 0; part < parts.parts; part++) mark_snapshot(parts.ids[part]);
    }
}

/* ---- comparing ---- */

static kvf_range ranges[RANGES];

/* The ranges are ascending and merged, and mark what was wanted; forgets both maps. */
static bool agree(kvf_status status, uint32_t count) {
    bool good = status == KVF_OK;
    for (uint32_t i = 0; good && i < count; i++) {
        const kvf_range *r = &ranges[i], *before = r - 1;
        if (i)
            good = r->allocation > before->allocation || r->offset > before->offset + before->bytes;
        if (i && r->allocation < before->allocation) good = false;
        mark(got, r->allocation, r->offset, r->bytes);
    }
    good = good && !memcmp(want, got, sizeof want);
    memset(want, 0, sizeof want);
    memset(got, 0, sizeof got);
    return good;
}

static bool ask(kvf_copy_kind kind, int32_t id) {
    uint32_t count = 0;
    kvf_status status = kvf_pool_ranges(pool, kind, &id, 1, ranges, RANGES, &count, NULL);
    return agree(status, count);
}

static bool sequence_agrees(kvf_sequence handle) {
    uint32_t count = 0;
    mark_sequence(pool_sequence_get(pool, handle, NULL));
    kvf_status status = kvf_sequence_ranges(pool, handle, ranges, RANGES, &count, NULL);
    return agree(status, count);
}

/* Each id that a fork names has the bytes of its kind. */
static bool copy_agrees(kvf_copy_kind kind, int32_t id) {
    switch (kind) {
    case KVF_COPY_BLOCK: mark_block(id); break;
    case KVF_COPY_WINDOW: mark_window(id); break;
    case KVF_COPY_STATE_CHUNK: mark_state(0, id); break;
    case KVF_COPY_STATE: mark_state(g.state_chunks, id); break;
    case KVF_COPY_SNAPSHOT: mark_snapshot(id); break;
    }
    return ask(kind, id);
}

/* ---- a pool in use ---- */

static bool advance(kvf_sequence s, uint32_t count) {
    int32_t ids[4] = {1, 2, 3, 4};
    kvf_sequence_info info;
    while (count) {
        uint32_t n = 0;
        kvf_sequence_get_info(pool, s, &info, NULL);
        if (kvf_sequence_chunk(pool, s, count, &n, NULL)) return false;
        if (!n) n = 1;
        uint32_t fresh = info.computed + n >= info.known ? info.computed + n + 1 - info.known : 0;
        if (kvf_sequence_prepare(pool, s, n, NULL) ||
            kvf_sequence_commit(pool, s, n, ids, fresh, NULL))
            return false;
        count -= n;
    }
    return true;
}

static void policy_agrees(kvf_policy policy) {
    kvf_pool_options o = {.policy = policy,
                          .max_requests = 5,
                          .chunks = 40,
                          .windows = 14,
                          .blocks = 36,
                          .lent_blocks = policy == KVF_POLICY_SHARED ? 12 : 0,
                          .no_promise = true};
    kvf_admission a[3];
    kvf_fork fork;
    kvf_error e = {0};
    int32_t tokens[60];
    bool good = true, copies = true;
    uint32_t kinds[5] = {0}, snapshots = 0;
    if (pool_create(&g, &o, &pool, &e)) exit(1);
    for (int32_t r = 0; r < 3 && good; r++) {
        for (int32_t i = 0; i < 60; i++) tokens[i] = i < 20 ? i : r % 2 * 100 + i;
        uint32_t count = 41 + 9 * (uint32_t)r;
        good = !kvf_sequence_admit(pool, tokens, count, count, &a[r], &e) &&
               advance(a[r].sequence, count - a[r].hit);
        for (int32_t seen = 0; seen <= r && good; seen++) good = sequence_agrees(a[seen].sequence);
    }
    ok(good, "policy %d: the bytes of sequences that share a prefix%s", (int)policy, e.text);
    /* One token over a block's end, where drafts still reach back: tails were saved, and the block
     * and its window are copied. */
    good = advance(a[0].sequence, 8);
    good = good && !kvf_sequence_fork(pool, a[0].sequence, &fork, &e);
    for (uint32_t i = 0; good && i < fork.count; i++) {
        kvf_copy c = fork.copies[i];
        kinds[c.kind]++;
        copies = copies && copy_agrees(c.kind, c.from) && copy_agrees(c.kind, c.to);
    }
    snapshots = kinds[KVF_COPY_SNAPSHOT];
    ok(good && copies && kinds[KVF_COPY_BLOCK] && kinds[KVF_COPY_WINDOW] && snapshots &&
           kinds[KVF_COPY_STATE] + kinds[KVF_COPY_STATE_CHUNK] == pool->parts,
       "policy %d: the bytes of a fork's %u copies: %u blocks, %u windows, %u of tails, %u of "
       "state%s",
       (int)policy, good ? fork.count : 0, kinds[KVF_COPY_BLOCK], kinds[KVF_COPY_WINDOW], snapshots,
       pool->parts, e.text);
    ok(good && sequence_agrees(fork.sequence), "policy %d: the bytes of the fork", (int)policy);
    is(kvf_pool_check(pool, &e), KVF_OK, "the invariants hold");
    kvf_pool_destroy(pool);
}

int main(void) {
    tap_plan(3 * 4);
    shape();
    for (int policy = 0; policy < 3; policy++) policy_agrees((kvf_policy)policy);
    return tap_done();
}
