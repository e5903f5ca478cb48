#include "plans.h"

#include "input.h"

static void one_token(const struct plan_space *s, struct batch *b) {
    (void)s;
    batch_request(b, 0, 0, 1);
}

/* Around the ring's end, each position in a slot of its own. */
static void wrap_single(const struct plan_space *s, struct batch *b) {
    int32_t ring = (int32_t)s->ring;
    const int32_t at[] = {ring - 2, ring - 1, ring, 2 * ring - 1, 2 * ring};
    for (int32_t i = 0; i < 5; i++) batch_request(b, PLAN_SLOTS - 1 - i, at[i], 1);
}

static void wrap_chunk(const struct plan_space *s, struct batch *b) {
    int32_t ring = (int32_t)s->ring;
    batch_request(b, 1, ring - 3, 7);
    batch_request(b, 2, 2 * ring - 1, 2);
}

static void exactly_ring(const struct plan_space *s, struct batch *b) {
    batch_request(b, 3, 5, s->ring);
}

static void ring_and_one(const struct plan_space *s, struct batch *b) {
    batch_request(b, 4, 0, s->ring + 1);
}

static void long_chunk(const struct plan_space *s, struct batch *b) {
    batch_gap(b, 3);
    batch_request(b, 5, 7, 2 * s->ring + 3);
    batch_request(b, 6, 1, 2);
}

/* All slots, in another order, with empty requests and padding among and behind them. */
static void many_requests(const struct plan_space *s, struct batch *b) {
    uint32_t first = input_below(s->random, PLAN_SLOTS);
    for (uint32_t i = 0; i < PLAN_SLOTS; i++) {
        uint32_t count = input_below(s->random, 12);
        int32_t from = (int32_t)input_below(s->random, s->positions - 12);
        batch_request(b, (int32_t)((first + 3 * i) % PLAN_SLOTS), from, count);
        if (i % 3 == 0) batch_gap(b, input_below(s->random, 4));
    }
    batch_pad(b, 5);
}

/* A slot that has been used starts again at 0. */
static void reuse(const struct plan_space *s, struct batch *b) {
    (void)s;
    batch_request(b, 5, 0, 4);
    batch_request(b, 3, 0, 1);
}

static void last_position(const struct plan_space *s, struct batch *b) {
    batch_request(b, 2, (int32_t)s->positions - 1, 3);
    batch_request(b, 1, (int32_t)s->positions - 5, 5);
}

/* Nothing of this may be written but the last request. */
static void bad_indices(const struct plan_space *s, struct batch *b) {
    (void)s;
    batch_request(b, -1, 3, 2);
    batch_request(b, PLAN_SLOTS, 3, 2);
    batch_request(b, INT32_MAX, 3, 1);
    batch_request(b, INT32_MIN, 3, 1);
    batch_gap(b, 6);
    b->batch_id[6] = (int32_t)b->requests + 1;
    b->position[6] = 1;
    b->batch_id[7] = INT32_MAX;
    b->position[7] = 1;
    b->batch_id[8] = INT32_MIN;
    b->position[8] = 1;
    batch_request(b, 7, 9, 2);
    b->position[b->tokens - 2] = INT32_MIN;
}

static void only_padding(const struct plan_space *s, struct batch *b) {
    (void)s;
    batch_gap(b, 2);
    batch_pad(b, 9);
}

static void no_tokens(const struct plan_space *s, struct batch *b) {
    (void)s;
    batch_request(b, 0, 0, 0);
}

static const struct {
    const char *name;
    void (*build)(const struct plan_space *s, struct batch *b);
} plans[] = {
    {"one token", one_token},
    {"single tokens around the ring's end", wrap_single},
    {"chunks around the ring's end", wrap_chunk},
    {"a chunk as long as the ring", exactly_ring},
    {"a chunk one longer than the ring", ring_and_one},
    {"a chunk of twice the ring", long_chunk},
    [PLAN_MANY] = {"many requests with padding", many_requests},
    {"many requests in other slots", many_requests},
    {"used slots start again", reuse},
    {"positions up to the last and beyond", last_position},
    {"slots, requests and positions out of range", bad_indices},
    {"only padding", only_padding},
    {"no token at all", no_tokens},
};

size_t plan_count(void) {
    return sizeof plans / sizeof *plans;
}

const char *plan_name(size_t plan) {
    return plans[plan].name;
}

void plan_build(size_t plan, const struct plan_space *space, struct batch *batch) {
    batch_clear(batch);
    plans[plan].build(space, batch);
}

void plan_numbers(const struct plan_space *s, struct batch *b) {
    batch_clear(b);
    batch_request(b, 0, 40, 9);
    batch_request(b, 6, (int32_t)s->ring - 4, 9);
}
