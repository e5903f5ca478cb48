/*
 * What went wrong in the published pool must not happen here: one test for each defect, named by
 * its letter. Small shapes; the model of pool_model.h computes and checks the rows.
 */
#include <pthread.h>

#include "pool_model.h"

static void shape(struct pool_geometry *g, uint32_t drafts) {
    *g = (struct pool_geometry){.block = 8,
                                .window = 8,
                                .drafts = drafts,
                                .max_positions = 480,
                                .checkpoint = 16,
                                .types = 3,
                                .per_chunk = 4,
                                .envelope_bytes = 128,
                                .chunk_bytes = 512,
                                .state_envelopes = 2,
                                .snapshot_envelopes = 1,
                                .window_bytes = 100,
                                .block_bytes = 120,
                                .state_bytes = 64,
                                .snapshot_bytes = 16};
    g->type[0] = (struct pool_type){.name = "csa", .ratio = 2, .k = 4, .layers = 2, .planes = 1};
    g->type[1] = (struct pool_type){.name = "hca", .ratio = 8, .k = 1, .layers = 1, .planes = 1};
    g->type[2] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
    for (int i = 0; i < 3; i++) g->type[i].plane_row_bytes[0] = 4;
}

static struct model m;

static void open_model(kvf_policy policy, uint32_t chunks, uint32_t windows, uint32_t blocks,
                       uint32_t lent, uint32_t drafts) {
    struct pool_geometry g;
    kvf_pool_options o = {.policy = policy,
                          .max_requests = 8,
                          .chunks = chunks,
                          .windows = windows,
                          .blocks = blocks,
                          .lent_blocks = lent,
                          .no_promise = true};
    shape(&g, drafts);
    if (!model_open(&m, &g, &o, 1)) {
        printf("Bail out! %s\n", m.failure);
        exit(1);
    }
}

static void set_tokens(struct model_sequence *s, int32_t base, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) s->tokens[i] = base + (int32_t)i;
}

static bool step(struct model_sequence *s, uint32_t count) {
    struct model_sequence *list[] = {s};
    while (count) {
        uint32_t take = count;
        kvf_sequence_chunk(m.pool, s->handle, count, &take, NULL);
        if (!take) take = count;
        if (model_prepare(&m, s, take) || !model_forward(&m, list, 1) ||
            !model_commit(&m, s, take, 7) || !model_check(&m))
            return false;
        count -= take;
    }
    return true;
}

/* Admit, compute the prompt. */
static bool serve(struct model_sequence *s, int32_t base, uint32_t count) {
    set_tokens(s, base, count);
    return model_admit(&m, s, count, count) == KVF_OK && step(s, count - s->computed);
}

static void end(struct model_sequence *s) {
    kvf_sequence_release(m.pool, s->handle, NULL);
    s->live = false;
}

/* A: after every block id was used once, admission still sees what is free. */
static void defect_a(void) {
    open_model(KVF_POLICY_SHARED, 0, 4, 64, 0, 0);
    struct model_sequence *s = &m.s[0];
    for (int32_t i = 0; i < 12; i++) {
        if (!serve(s, i * 1000, 100)) break;
        end(s);
    }
    set_tokens(s, 90000, 40 * 8);
    is(model_admit(&m, s, 320, 8), KVF_OK, "A: a cold request of 40 of 64 blocks after warm-up");
    end(s);
    ok(serve(s, 95000, 60 * 8) && step(s, 0), "A: and one of 60 blocks is served");
    struct model_sequence *other = &m.s[1];
    ok(serve(other, 97000, 8) && model_prepare(&m, other, 1) == KVF_OK,
       "A: a decode step is not refused while cached blocks are there");
    is(model_check(&m), true, "A: the invariants hold");
    model_close(&m);
}

/* B: between admission and the first chunk nobody takes its windows. */
static void defect_b(kvf_policy policy) {
    open_model(policy, 16, 8, 40, 24, 0);
    struct model_sequence *first = &m.s[0];
    set_tokens(first, 0, 60);
    kvf_status status = model_admit(&m, first, 60, 60);
    uint32_t others = 0, grown = 0;
    for (int i = 1; i < 6; i++) {
        set_tokens(&m.s[i], i * 1000, 20);
        if (model_admit(&m, &m.s[i], 20, 20)) continue;
        others++;
        grown += model_prepare(&m, &m.s[i], 16) == KVF_OK;
    }
    ok(status == KVF_OK && others > 0, "B: %u others were admitted, %u prepared", others, grown);
    uint32_t take;
    kvf_sequence_chunk(m.pool, first->handle, 60, &take, NULL);
    is(model_prepare(&m, first, take), KVF_OK, "B: the first chunk is there for the first request");
    is(model_check(&m), true, "B: the invariants hold");
    model_close(&m);
}

/* C: one free slot is not both a window and a block. */
static void defect_c(void) {
    struct slots s;
    uint32_t ratios[] = {2, 8}, own[] = {0, 0};
    slots_open(&s, 1, ratios, own, 2, true);
    is(slots_missing(&s, 1, 0), 0, "C: one window fits");
    is(slots_missing(&s, 0, 1), 0, "C: or one block of every type");
    is(slots_missing(&s, 1, 1), 1, "C: but not both");
    slots_close(&s);
    open_model(KVF_POLICY_ELASTIC, 4, 0, 0, 0, 0);
    struct pool_need both = {.windows = 4, .envelopes = 1};
    struct pool_short what = {0};
    ok(!pool_arena.fits(m.pool, &both, POOL_REFERENCED, &what) && what.missing == 1,
       "C: nor are four chunks four windows and an envelope");
    model_close(&m);
}

/* D: when one type has no room, the other type keeps what it has. */
static void defect_d(void) {
    open_model(KVF_POLICY_SHARED, 0, 2, 8, 16, 0);
    struct model_sequence *s = &m.s[0];
    uint32_t admitted = 0;
    for (int32_t i = 0; i < 8; i++) {
        set_tokens(&m.s[i], i * 500, 24);
        uint64_t before = m.pool->shared->slots.type[0].open_free;
        uint32_t free_before = m.pool->shared->free.length;
        if (model_admit(&m, &m.s[i], 24, 8) == KVF_OK) {
            admitted++;
            continue;
        }
        ok(m.pool->shared->slots.type[0].open_free == before &&
               m.pool->shared->free.length == free_before,
           "D: a refused admission (after %u) took nothing from either type", admitted);
        break;
    }
    is(model_check(&m), true, "D: the invariants hold");
    (void)s;
    model_close(&m);
}

/* E: what compress borrowed and nobody uses comes back when a window needs it. */
static void defect_e(void) {
    open_model(KVF_POLICY_SHARED, 0, 6, 8, 40, 0);
    for (int32_t i = 0; i < 12; i++) {
        if (!serve(&m.s[0], i * 1000, 40)) break;
        end(&m.s[0]);
    }
    uint32_t lent = 0;
    for (uint32_t i = 0; i < 6; i++) lent += m.pool->shared->slots.window[i].borrowers > 0;
    ok(lent > 0, "E: %u of 6 window slots are lent to blocks that are only cached", lent);
    int32_t taken = 0;
    struct pool_need need = {.windows = 6};
    bool room = m.pool->policy->make_room(m.pool, &need, POOL_REFERENCED);
    while (room && m.pool->shared->slots.free.length) {
        m.pool->policy->take_window(m.pool);
        taken++;
    }
    is(taken, 6, "E: all six can be windows again");
    model_close(&m);

    struct slots s;
    uint32_t ratios[] = {4}, own[] = {3};
    slots_open(&s, 0, ratios, own, 1, true);
    for (int i = 0; i < 12; i++) slots_take(&s, 0, true);
    slots_give(&s, 0, 0); /* slot 0: three of four left; slot 1: one left */
    for (int32_t i = 4; i < 7; i++) slots_give(&s, 0, i);
    is(slots_take(&s, 0, true), 0, "E: a block goes to the fullest open slot");
    slots_close(&s);
}

/* F: own slots first, lent ones after. */
static void defect_f(void) {
    struct slots s;
    uint32_t ratios[] = {4}, own[] = {1};
    slots_open(&s, 2, ratios, own, 1, true);
    bool own_first = true;
    for (int i = 0; i < 4; i++) own_first = own_first && slots_take(&s, 0, true) >= 8;
    ok(own_first && slots_take(&s, 0, true) < 8, "F: lent slots come after the own region");
    slots_close(&s);
}

/* G: giving something back twice is refused. */
static void defect_g(void) {
    struct slots s;
    uint32_t ratios[] = {4}, own[] = {1};
    slots_open(&s, 1, ratios, own, 1, true);
    int32_t block = slots_take(&s, 0, true);
    slots_live(&s, 0, block, false);
    ok(slots_give(&s, 0, block) && !slots_give(&s, 0, block), "G: a block is given back once");
    int32_t window = slots_take_window(&s);
    ok(slots_give_window(&s, window, false) && !slots_give_window(&s, window, false),
       "G: so is a window");
    ok(slots_take(&s, 0, true) != slots_take(&s, 0, true), "G: the next two blocks differ");
    slots_close(&s);
    open_model(KVF_POLICY_ELASTIC, 20, 0, 0, 0, 0);
    serve(&m.s[0], 0, 20);
    kvf_sequence handle = m.s[0].handle;
    end(&m.s[0]);
    is(kvf_sequence_release(m.pool, handle, NULL), KVF_ERROR_STATE, "G: so is a sequence");
    serve(&m.s[1], 500, 20);
    is(kvf_sequence_release(m.pool, handle, NULL), KVF_ERROR_STATE,
       "G: also when its place is taken by another");
    model_close(&m);
}

/* H: nothing grows with use. */
static void defect_h(kvf_policy policy) {
    open_model(policy, 20, 10, 40, 8, 0);
    size_t most = 0;
    for (int32_t i = 0; i < 1000; i++) {
        serve(&m.s[0], i * 300, 30);
        end(&m.s[0]);
        size_t length = m.pool->free_chunks.length + m.pool->free_envelopes.length +
                        m.pool->free_windows.length + m.pool->free_sequences.length;
        for (int c = 0; c < POOL_CLASSES; c++) length += m.pool->classes[c].length;
        if (m.pool->shared)
            length += m.pool->shared->free.length + m.pool->shared->slots.free.length;
        if (length > most) most = length;
    }
    ok(most <= m.pool->block_count + m.pool->window_count + m.pool->chunk_count + 8,
       "H: 1000 requests leave %zu entries in all lists", most);
    model_close(&m);
}

/* I: for every remainder and chunk size, what a second request resumes on was written. */
static void defect_i(kvf_policy policy) {
    bool good = true;
    uint32_t hits = 0;
    for (uint32_t rest = 0; rest < 8 && good; rest++)
        for (uint32_t chunk = 1; chunk < 40 && good; chunk++) {
            open_model(policy, 40, 30, 60, 0, 0);
            struct model_sequence *a = &m.s[0], *b = &m.s[1];
            set_tokens(a, 0, 40 + rest);
            model_admit(&m, a, 40 + rest, chunk);
            while (good && a->computed < 40 + rest) {
                uint32_t left = 40 + rest - a->computed;
                good = step(a, left < chunk ? left : chunk);
            }
            end(a);
            good = good && serve(b, 0, 40 + rest) && step(b, 1);
            hits += b->write_from > 0;
            model_close(&m);
        }
    ok(good, "I: every row that a resumed request reads was written%s%s", good ? "" : ": ",
       m.failure);
    ok(hits > 100, "I: in %u of 312 cases there was a hit", hits);
}

/* J: a request that resumes at B is told where the tails of B lie, and they are those of B. */
static void defect_j(kvf_policy policy) {
    open_model(policy, 60, 40, 80, 0, 0);
    bool good = true;
    for (uint32_t count = 17; count < 90 && good; count++) {
        good = serve(&m.s[0], 0, count);
        end(&m.s[0]);
    }
    ok(good && m.restored > 50, "J: tails were restored %d times, always the right ones%s",
       (int)m.restored, m.failure);
    model_close(&m);
}

/* K: the tables stay where they are, and a step's contents are complete. */
static void defect_k(void) {
    open_model(KVF_POLICY_ELASTIC, 60, 0, 0, 0, 0);
    const int32_t *captured = m.b.block_table[0], *windows = m.b.window_table;
    bool good = serve(&m.s[0], 0, 50) && serve(&m.s[1], 1000, 20);
    for (int i = 0; i < 40 && good; i++) {
        struct model_sequence *both[] = {&m.s[i % 2], &m.s[1 - i % 2]}, *one[] = {&m.s[0]};
        good = !model_prepare(&m, &m.s[0], 1) && !model_prepare(&m, &m.s[1], 1) &&
               model_forward(&m, both, 2);
        for (uint32_t r = 0; r < 2 && good; r++) {
            struct pool_sequence *s = pool_sequence_get(m.pool, both[r]->handle, NULL);
            for (uint32_t c = 0; c < m.b.max_blocks; c++)
                good = good && captured[r * m.b.max_blocks + c] == s->block_table[c] &&
                       windows[r * m.b.max_blocks + c] == s->window_table[c];
        }
        good = good && model_commit(&m, &m.s[1], 1, 3) && model_forward(&m, one, 1);
        for (uint32_t c = 0; c < m.b.max_blocks; c++)
            good = good && captured[m.b.max_blocks + c] == -1;
        good = good && m.b.state_slot[1] == -1 && m.b.cu_tokens[2] == 1 &&
               model_commit(&m, &m.s[0], 1, 3);
    }
    ok(good, "K: after every fill the captured addresses hold the step's tables%s", m.failure);
    model_close(&m);
}

/* L: byte ranges of sequences that share a prefix. */
static uint64_t total(const kvf_range *ranges, uint32_t count) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += ranges[i].bytes;
    return bytes;
}

static void defect_l(void) {
    kvf_range a[200], b[200], one[8] = {0};
    uint32_t na, nb, n = 0;
    open_model(KVF_POLICY_ELASTIC, 60, 0, 0, 0, 0);
    serve(&m.s[0], 0, 50);
    serve(&m.s[1], 0, 50);
    struct pool_sequence *s = pool_sequence_get(m.pool, m.s[0].handle, NULL);
    struct pool_sequence *t = pool_sequence_get(m.pool, m.s[1].handle, NULL);
    uint32_t shared = 0, windows = 0, snapshots = 0;
    for (uint32_t i = 0; i < s->blocks; i++) shared += s->block_table[i] == t->block_table[i];
    for (uint32_t i = 0; i < s->window_to; i++) {
        windows += s->window_table[i] >= 0;
        snapshots += s->window_table[i] >= 0 && m.pool->windows[s->window_table[i]].snapshot >= 0;
    }
    ok(shared >= 4, "L: the two share %u blocks", shared);
    kvf_sequence_ranges(m.pool, m.s[0].handle, a, 200, &na, NULL);
    is(total(a, na), (s->blocks + 2 + snapshots) * 128 + windows * 512,
       "L: all bytes of a sequence, each once");
    kvf_sequence_ranges(m.pool, m.s[1].handle, b, 200, &nb, NULL);
    uint64_t common = 0;
    for (uint32_t i = 0; i < na; i++)
        for (uint32_t j = 0; j < nb; j++) {
            uint64_t low = a[i].offset > b[j].offset ? a[i].offset : b[j].offset;
            uint64_t ea = a[i].offset + a[i].bytes, eb = b[j].offset + b[j].bytes;
            uint64_t high = ea < eb ? ea : eb;
            if (high > low) common += high - low;
        }
    uint32_t common_windows = 0, common_snapshots = 0;
    for (uint32_t i = 0; i < s->window_to; i++)
        if (s->window_table[i] >= 0 && s->window_table[i] == t->window_table[i]) {
            common_windows++;
            common_snapshots += m.pool->windows[s->window_table[i]].snapshot >= 0;
        }
    is(common, (shared + common_snapshots) * 128 + common_windows * 512,
       "L: what two ranges have in common is what the sequences share");
    for (uint32_t i = 0; i < s->blocks; i++) {
        kvf_pool_ranges(m.pool, KVF_COPY_BLOCK, &s->block_table[i], 1, one, 8, &n, NULL);
        if (n != 1 || one[0].offset != (uint64_t)s->block_table[i] * 128) break;
    }
    is(n, 1, "L: a block is one range");
    int32_t twice[] = {s->block_table[2], s->block_table[2]};
    kvf_pool_ranges(m.pool, KVF_COPY_BLOCK, twice, 2, one, 8, &n, NULL);
    ok(n == 1 && one[0].bytes == 128, "L: a block that is named twice moves once");
    is(kvf_sequence_ranges(m.pool, m.s[0].handle, a, 1, &na, NULL), KVF_ERROR_LIMIT,
       "L: too little room is said, and how much it takes");
    ok(na > 1, "L: it takes %u", na);
    model_close(&m);

    open_model(KVF_POLICY_SHARED, 0, 10, 40, 0, 0);
    serve(&m.s[0], 0, 50);
    s = pool_sequence_get(m.pool, m.s[0].handle, NULL);
    kvf_sequence_ranges(m.pool, m.s[0].handle, a, 200, &na, NULL);
    windows = snapshots = 0;
    for (uint32_t i = 0; i < s->window_to; i++) {
        windows += s->window_table[i] >= 0;
        snapshots += s->window_table[i] >= 0 && m.pool->windows[s->window_table[i]].snapshot >= 0;
    }
    /* csa: two layers, 4 rows a block, 8 a window; hca: one layer, 1 row; swa: windows only. */
    is(total(a, na),
       4 * (2 * (s->blocks * 4 + windows * 8) + s->blocks + windows * 8 + windows * 8) + 64 +
           16 * snapshots,
       "L: under shared, the rows of every layer, the state and the snapshots");
    model_close(&m);
}

/* M: the work of an operation does not grow with the pool. */
static uint64_t operations_of(uint32_t chunks) {
    open_model(KVF_POLICY_ELASTIC, chunks, 0, 0, 0, 0);
    for (int32_t i = 0; i < 200; i++) {
        set_tokens(&m.s[0], i * 700, 60);
        model_admit(&m, &m.s[0], 60, 60);
        uint32_t take;
        kvf_sequence_chunk(m.pool, m.s[0].handle, 60, &take, NULL);
        model_prepare(&m, &m.s[0], take);
        kvf_sequence_commit(m.pool, m.s[0].handle, take, NULL, 0, NULL);
        end(&m.s[0]);
    }
    uint64_t operations = m.pool->counters.touched;
    model_close(&m);
    return operations;
}

static void defect_m(void) {
    uint64_t small = operations_of(400), large = operations_of(100000);
    ok(large <= small * 11 / 10,
       "M: %d list and table operations in a small pool, %d in a large one", (int)small,
       (int)large);
    ok(small / 200 < 120, "M: %d for a request of eight blocks", (int)(small / 200));
}

/* Ranks: the same calls give the same tables; several pools do not meet. */
static void ranks(void) {
    struct pool_geometry g;
    kvf_pool_options o = {.max_requests = 4, .chunks = 14};
    kvf_pool *pool[2];
    bool same = true;
    shape(&g, 0);
    if (pool_create(&g, &o, &pool[0], NULL) || pool_create(&g, &o, &pool[1], NULL)) exit(1);
    uint64_t random = 7;
    for (int i = 0; i < 400; i++) {
        int32_t tokens[64];
        kvf_admission a[2];
        random = random * 6364136223846793005u + 1442695040888963407u;
        for (int t = 0; t < 64; t++) tokens[t] = (int32_t)(random >> 60) * 64 + t / 16;
        uint32_t count = 20 + (uint32_t)(random >> 40) % 40;
        for (int p = 0; p < 2; p++) {
            if (kvf_sequence_admit(pool[p], tokens, count, 16, &a[p], NULL)) a[p].sequence = 0;
            if (!a[p].sequence) continue;
            uint32_t take;
            kvf_sequence_chunk(pool[p], a[p].sequence, 16, &take, NULL);
            kvf_sequence_prepare(pool[p], a[p].sequence, take, NULL);
            kvf_sequence_commit(pool[p], a[p].sequence, take, NULL, 0, NULL);
        }
        size_t cells = 4 * (2 * (size_t)pool[0]->max_blocks + pool[0]->parts);
        same = same && a[0].sequence == a[1].sequence &&
               !memcmp(pool[0]->tables, pool[1]->tables, cells * sizeof(int32_t));
        if (a[0].sequence)
            for (int p = 0; p < 2; p++) kvf_sequence_release(pool[p], a[p].sequence, NULL);
    }
    ok(same, "two pools given the same calls hold the same tables, id for id");
    kvf_pool_destroy(pool[0]);
    is(kvf_pool_check(pool[1], NULL), KVF_OK, "destroying one leaves the other as it was");
    kvf_pool_destroy(pool[1]);
}

/* Two threads in one pool are told apart. */
static void threads(void) {
    open_model(KVF_POLICY_ELASTIC, 20, 0, 0, 0, 0);
    kvf_error error;
    pool_enter(m.pool, &error); /* as if another thread were inside */
    is(kvf_pool_check(m.pool, &error), KVF_ERROR_STATE, "a second thread in a pool is refused");
    contains(error.text, "two threads", "and told why");
    pool_leave(m.pool, KVF_OK, NULL);
    is(kvf_pool_check(m.pool, &error), KVF_OK, "after the first left, the pool works");
    model_close(&m);
}

int main(void) {
    tap_plan(4 + 9 + 4 + 2 + 3 + 1 + 5 + 3 + 6 + 3 + 1 + 8 + 2 + 2 + 3);
    defect_a();
    for (int policy = 0; policy < 3; policy++) defect_b((kvf_policy)policy);
    defect_c();
    defect_d();
    defect_e();
    defect_f();
    defect_g();
    for (int policy = 0; policy < 3; policy++) defect_h((kvf_policy)policy);
    for (int policy = 0; policy < 3; policy++) defect_i((kvf_policy)policy);
    for (int policy = 0; policy < 3; policy++) defect_j((kvf_policy)policy);
    defect_k();
    defect_l();
    defect_m();
    ranks();
    threads();
    return tap_done();
}
