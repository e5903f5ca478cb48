/*
 * A request alone in a pool: what an empty pool would serve, one full of cached content serves too,
 * whatever is cached and whatever the chunks; once admitted it gets through its whole prompt. Pools
 * of random shapes, hardly larger than one request.
 */
#include "pool_model.h"

enum { ROUNDS = 12000, TOKENS = 96 };

static uint64_t state = 88172645463325252u;

static uint32_t below(uint32_t count) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % count);
}

static void random_shape(struct pool_geometry *g) {
    *g = (struct pool_geometry){.block = 8,
                                .window = below(3) ? 8 : 12,
                                .drafts = below(3),
                                .max_positions = TOKENS,
                                .checkpoint = 8 + 8 * below(2),
                                .types = 2,
                                .per_chunk = 1 + below(6),
                                .snapshot_envelopes = below(3),
                                .state_chunks = below(2),
                                .state_envelopes = 1 + below(2),
                                .envelope_bytes = 128,
                                .window_bytes = 100,
                                .block_bytes = 100,
                                .state_bytes = 64};
    g->chunk_bytes = UINT64_C(128) * g->per_chunk;
    g->snapshot_bytes = g->snapshot_envelopes ? 16 : 0;
    g->type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 2, .layers = 1, .planes = 1};
    g->type[1] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
    g->type[0].plane_row_bytes[0] = 4;
}

/* Compute an admitted prompt in chunks of at most `most` tokens. */
static bool compute(kvf_pool *pool, const kvf_admission *a, uint32_t count, uint32_t most,
                    kvf_error *e) {
    for (uint32_t at = a->hit, take; at < count; at += take) {
        uint32_t want = below(2) ? most : 1 + below(most);
        if (want > count - at) want = count - at;
        if (kvf_sequence_chunk(pool, a->sequence, want, &take, e) || !take ||
            kvf_sequence_prepare(pool, a->sequence, take, e) ||
            kvf_sequence_commit(pool, a->sequence, take, NULL, 0, e))
            return false;
    }
    return true;
}

static uint32_t served[3], refused[3], denied[3], stuck[3], broken[3];

/* Leave content in the pool whose beginning is that of `tokens`. */
static void use(kvf_pool *pool, const int32_t *tokens, int policy, kvf_error *e) {
    for (int32_t turn = 0; turn < 4; turn++) {
        int32_t text[TOKENS];
        uint32_t same = below(TOKENS), count = 1 + below(TOKENS - 1), most = 1 + below(40);
        kvf_admission a;
        for (int32_t i = 0; i < TOKENS; i++)
            text[i] = (uint32_t)i < same ? tokens[i] : 1000 * turn + i;
        if (kvf_sequence_admit(pool, text, count, most, &a, e)) continue;
        stuck[policy] += !compute(pool, &a, count, most, e);
        kvf_sequence_release(pool, a.sequence, e);
    }
}

static void round_of(int policy) {
    struct pool_geometry g;
    kvf_pool *empty, *full;
    kvf_error e = {0};
    int32_t tokens[TOKENS];
    random_shape(&g);
    kvf_pool_options o = {.policy = (kvf_policy)policy,
                          .max_requests = 3,
                          .chunks = 4 + below(14),
                          .windows = 3 + below(5),
                          .blocks = 4 + below(10),
                          .lent_blocks = policy == KVF_POLICY_SHARED ? below(8) : 0,
                          .pins = policy == KVF_POLICY_SHARED ? below(3) : 0};
    for (int32_t i = 0; i < TOKENS; i++) tokens[i] = i;
    if (pool_create(&g, &o, &empty, &e)) return;
    if (pool_create(&g, &o, &full, &e)) exit(1);
    use(full, tokens, policy, &e);
    kvf_admission a, b;
    uint32_t count = 1 + below(TOKENS - 1), most = 1 + below(40);
    kvf_status would = kvf_sequence_admit(empty, tokens, count, most, &a, &e);
    kvf_status does = kvf_sequence_admit(full, tokens, count, most, &b, &e);
    served[policy] += !does;
    refused[policy] += would != KVF_OK;
    if (!would && does && !denied[policy]++)
        tap_note("policy %d: %u tokens in chunks of %u: %s", policy, count, most, e.text);
    if (!does && !compute(full, &b, count, most, &e) && !stuck[policy]++)
        tap_note("policy %d: %u tokens in chunks of %u: %s", policy, count, most, e.text);
    if (kvf_pool_check(full, &e) && !broken[policy]++) tap_note("%s", e.text);
    kvf_pool_destroy(empty);
    kvf_pool_destroy(full);
}

int main(void) {
    tap_plan(3 * 3);
    for (uint32_t i = 0; i < ROUNDS; i++) round_of((int)(i % 3));
    for (int policy = 0; policy < 3; policy++) {
        ok(!denied[policy] && served[policy] > 500 && refused[policy] > 500,
           "policy %d: of %u requests that fit an empty pool, %u are refused by a used one", policy,
           served[policy] + denied[policy], denied[policy]);
        is(stuck[policy], 0, "a request alone gets through its prompt");
        is(broken[policy], 0, "the invariants hold");
    }
    return tap_done();
}
