/*
 * kvf_pool_check itself: every kind of damage to a pool's records is found. Each case changes one
 * thing in a pool that is in use, expects a refusal, and puts it back.
 */
#include "pool_model.h"

static struct model m;

static void open_model(kvf_policy policy) {
    struct pool_geometry g = {.block = 8,
                              .window = 8,
                              .max_positions = 480,
                              .checkpoint = 16,
                              .types = 2,
                              .per_chunk = 4,
                              .envelope_bytes = 128,
                              .chunk_bytes = 512,
                              .state_chunks = 1,
                              .state_envelopes = 1,
                              .snapshot_envelopes = 1,
                              .window_bytes = 100,
                              .block_bytes = 120,
                              .state_bytes = 64,
                              .snapshot_bytes = 16};
    g.type[0] = (struct pool_type){.name = "csa", .ratio = 4, .k = 2, .layers = 1, .planes = 1};
    g.type[1] = (struct pool_type){.name = "swa", .layers = 1, .planes = 1};
    kvf_pool_options o = {.policy = policy,
                          .max_requests = 4,
                          .chunks = 40,
                          .windows = 16,
                          .blocks = 40,
                          .lent_blocks = 16,
                          .pins = policy == KVF_POLICY_SHARED ? 2 : 0};
    if (!model_open(&m, &g, &o, 1)) exit(1);
}

static void serve(struct model_sequence *s, int32_t base, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) s->tokens[i] = base + (int32_t)i;
    if (model_admit(&m, s, count, count)) exit(1);
    for (uint32_t n; s->computed < count;) {
        struct model_sequence *list[] = {s};
        kvf_sequence_chunk(m.pool, s->handle, count - s->computed, &n, NULL);
        if (model_prepare(&m, s, n) || !model_forward(&m, list, 1) || !model_commit(&m, s, n, 7))
            exit(1);
    }
}

static void found(const char *what, const char *text) {
    kvf_error error = {0};
    kvf_status status = kvf_pool_check(m.pool, &error);
    ok(status == KVF_ERROR_STATE && strstr(error.text, text), "%s: %s", what, error.text);
}

/* Add `by` to an integer of the pool, look, and take it away. */
#define damaged(place, by, text)                                                                   \
    do {                                                                                           \
        (place) = (__typeof__(place))((place) + (__typeof__(place))(by));                          \
        found(#place, text);                                                                       \
        (place) = (__typeof__(place))((place) - (__typeof__(place))(by));                          \
    } while (0)

int main(void) {
    tap_plan(33);
    open_model(KVF_POLICY_ELASTIC);
    serve(&m.s[0], 0, 60);
    serve(&m.s[1], 500, 44);
    kvf_sequence_release(m.pool, m.s[1].handle, NULL);
    struct pool_sequence *s = pool_sequence_get(m.pool, m.s[0].handle, NULL);
    kvf_pool *p = m.pool;
    int32_t block = s->block_table[2], cached = p->classes[POOL_DURABLE].head;
    int32_t live = s->window_table[s->window_to - 1];
    is(kvf_pool_check(p, NULL), KVF_OK, "an undamaged pool");
    damaged(p->blocks[block].refs, 1, "references");
    damaged(p->blocks[block].children, 1, "children");
    damaged(p->blocks[block].hash, 1, "hash");
    p->blocks[block].published = false;
    found("a block is no longer published", "");
    p->blocks[block].published = true;
    damaged(p->blocks[p->windows[cached].block].window, 1, "");
    damaged(p->windows[cached].written, -1, "rows");
    damaged(p->windows[cached].refs, 1, "references");
    damaged(p->windows[cached].list, -1, "list");
    damaged(p->windows[live].refs, -1, "references");
    damaged(p->windows[live].held, 1, "references");
    damaged(p->chunks[0].used, 1, "");
    damaged(p->chunks[block / 4].count[0], 1, "");
    damaged(p->masks[block / 4], 8, "mask");
    damaged(p->spare[1], 1, "sums");
    damaged(p->unreferenced_chunks[0], -1, "sums");
    damaged(p->open_envelopes, 1, "miscounted");
    damaged(p->free_chunks.head, 1, "");
    damaged(p->promised_blocks, 1, "promises");
    damaged(p->running, 1, "sequences");
    damaged(s->computed, 1000, "computed");
    damaged(s->state[0], 1, "");
    damaged(s->window_table[s->window_to - 1], -1, "");
    damaged(p->index_mask, -1, "");
    int32_t twin = s->block_table[3];
    s->block_table[3] = s->block_table[4];
    found("a block listed twice", "references");
    s->block_table[3] = twin;
    is(kvf_pool_check(p, NULL), KVF_OK, "all is as it was");
    model_close(&m);

    open_model(KVF_POLICY_SHARED);
    serve(&m.s[0], 0, 60);
    p = m.pool;
    is(kvf_pool_check(p, NULL), KVF_OK, "an undamaged shared pool");
    damaged(p->shared->slots.type[0].capacity, 1, "capacity");
    damaged(p->shared->slots.idle, 1, "idle");
    damaged(p->shared->slots.window[0].borrowers, 1, "");
    damaged(p->shared->pinned_idle, 1, "pins");
    damaged(p->shared->free.length, 1, "");
    damaged(p->shared->bound[0][p->sequences[0].block_table[0]], -1000, "");
    model_close(&m);
    return tap_done();
}
