/*
 * A continuous-batching scheduler on a pool: a step has a budget of tokens, one for each decoding
 * request, the rest for prefill in chunks. Requests are admitted in order; when growth does not fit
 * the youngest request is preempted and waits at the head of the queue, with all its tokens.
 */
#ifndef REPLAY_RUN_H
#define REPLAY_RUN_H

#include "replay_load.h"

#include <kvforge.h>
#include <stdbool.h>
#include <time.h>

enum { RUN_MAX_RUNNING = 4096 };

struct run_options {
    uint32_t step_tokens, max_running;
    bool by_arrival;
    double step_seconds, token_seconds; /* modelled duration of a step */
};

struct run_result {
    uint32_t finished, rejected;
    uint64_t prompt_tokens, cached_tokens; /* of each request's first admission */
    uint64_t preemptions, steps, peak_live_tokens;
    double mean_wait, p99_wait;      /* steps from arrival to the first token */
    double live_share;               /* of the pool's bytes, mean over steps */
    double allocator_us, operations; /* per step */
    kvf_pool_stats stats;
};

struct active {
    uint32_t request;
    kvf_sequence sequence;
    uint32_t computed, known; /* tokens */
};

struct run {
    kvf_pool *pool;
    const struct load *load;
    struct run_options options;
    struct run_result *result;
    int32_t *tokens; /* of the request to admit */
    struct active *active;
    uint32_t active_count;
    uint32_t *queue, queue_head, queue_tail, queue_mask; /* waiting; preempted ones at the head */
    uint32_t next;                                       /* request that has not arrived */
    uint32_t open;                                       /* closed queue: waiting or running */
    uint32_t *made;                                      /* output tokens per request */
    uint32_t *arrived;                                   /* step */
    uint32_t *waits;
    uint8_t *state; /* bit 0: admitted once, bit 1: finished */
    uint32_t wait_count;
    double now, allocator;
    uint64_t live_tokens;
};

static inline double run_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may use the machine */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void run_fatal(const char *what, const kvf_error *error) {
    fprintf(stderr, "replay: %s: %s\n", what, error->text);
    exit(1);
}

static inline void run_push(struct run *r, uint32_t request, bool head) {
    if (head)
        r->queue[--r->queue_head & r->queue_mask] = request;
    else
        r->queue[r->queue_tail++ & r->queue_mask] = request;
}

/* Requests that arrive before this step. */
static inline void run_arrivals(struct run *r) {
    for (; r->next < r->load->count; r->next++) {
        const struct request *q = &r->load->requests[r->next];
        bool ready = q->after < 0 || r->state[q->after] & 2;
        bool come = r->options.by_arrival ? q->arrival <= r->now : r->open < r->load->clients;
        if (!come || !ready) return;
        r->arrived[r->next] = (uint32_t)r->result->steps;
        r->open++;
        run_push(r, r->next, false);
    }
}

static inline void run_remove(struct run *r, uint32_t at) {
    memmove(&r->active[at], &r->active[at + 1], (r->active_count - at - 1) * sizeof r->active[0]);
    r->active_count--;
}

static inline void run_preempt_youngest(struct run *r) {
    struct active *a = &r->active[r->active_count - 1];
    kvf_error error;
    if (kvf_sequence_preempt(r->pool, a->sequence, &error)) run_fatal("preempt", &error);
    r->result->preemptions++;
    r->live_tokens -= a->known;
    run_push(r, a->request, true);
    r->active_count--;
}

/* Prepare; preempt from the young end until it fits. False: the request itself was preempted. */
static inline bool run_prepare(struct run *r, uint32_t at, uint32_t tokens) {
    kvf_error error;
    for (;;) {
        kvf_status status = kvf_sequence_prepare(r->pool, r->active[at].sequence, tokens, &error);
        if (!status) return true;
        if (status != KVF_ERROR_SHORT) run_fatal("prepare", &error);
        run_preempt_youngest(r);
        if (at == r->active_count) return false;
    }
}

/* Commit; a request that has all its prompt computed also makes a token. True: it is finished. */
static inline bool run_commit(struct run *r, uint32_t at, uint32_t tokens) {
    struct active *a = &r->active[at];
    const struct request *q = &r->load->requests[a->request];
    kvf_error error;
    int32_t id = load_token(load_answer(a->request), r->made[a->request]);
    bool makes = a->computed + tokens == a->known;
    if (kvf_sequence_commit(r->pool, a->sequence, tokens, &id, makes, &error))
        run_fatal("commit", &error);
    a->computed += tokens;
    if (!makes) return false;
    a->known++;
    r->live_tokens++;
    if (r->made[a->request]++ == 0)
        r->waits[r->wait_count++] = (uint32_t)r->result->steps - r->arrived[a->request];
    return r->made[a->request] >= q->output;
}

static inline void run_finish(struct run *r, uint32_t at) {
    struct active *a = &r->active[at];
    kvf_error error;
    if (kvf_sequence_release(r->pool, a->sequence, &error)) run_fatal("release", &error);
    r->live_tokens -= a->known;
    r->state[a->request] |= 2;
    r->result->finished++;
    r->open--;
    run_remove(r, at);
}

static inline kvf_status run_admit_head(struct run *r, uint32_t budget) {
    uint32_t request = r->queue[r->queue_head & r->queue_mask];
    const struct request *q = &r->load->requests[request];
    uint32_t made = r->made[request];
    kvf_admission admission;
    kvf_error error;
    load_prompt(q, r->tokens);
    for (uint32_t i = 0; i < made; i++)
        r->tokens[q->prompt + i] = load_token(load_answer(request), i);
    double start = run_clock();
    kvf_status status =
        kvf_sequence_admit(r->pool, r->tokens, q->prompt + made, budget, &admission, &error);
    r->allocator += run_clock() - start;
    if (status == KVF_ERROR_LIMIT) {
        r->queue_head++;
        r->result->rejected++;
        r->state[request] |= 2;
        r->open--;
        return KVF_OK;
    }
    if (status == KVF_ERROR_SHORT) return status;
    if (status) run_fatal("admit", &error);
    r->queue_head++;
    if (!(r->state[request] & 1)) {
        r->state[request] |= 1;
        r->result->prompt_tokens += q->prompt;
        r->result->cached_tokens += admission.hit;
    }
    r->active[r->active_count++] = (struct active){.request = request,
                                                   .sequence = admission.sequence,
                                                   .computed = admission.hit,
                                                   .known = q->prompt + made};
    r->live_tokens += q->prompt + made;
    return KVF_OK;
}

/* One step: everything is prepared first, then computed together, then committed. */
static inline uint32_t run_step(struct run *r) {
    static uint32_t planned[RUN_MAX_RUNNING];
    uint32_t budget = r->options.step_tokens, used = 0;
    double start = run_clock();
    for (uint32_t i = 0; i < r->active_count; i++) planned[i] = 0;
    for (int prefill = 0; prefill < 2; prefill++)
        for (uint32_t i = 0; i < r->active_count && used < budget; i++) {
            const struct active *a = &r->active[i];
            uint32_t left = a->known - a->computed, take = left;
            if ((left > 1) != prefill) continue;
            if (take > budget - used) take = budget - used;
            if (prefill && kvf_sequence_chunk(r->pool, a->sequence, take, &take, NULL)) exit(1);
            if (!run_prepare(r, i, take)) break;
            planned[i] = take;
            used += take;
        }
    used = 0; /* preempted ones do not count */
    for (uint32_t i = 0; i < r->active_count; i++) used += planned[i];
    r->allocator += run_clock() - start;
    while (used < budget && r->queue_head != r->queue_tail &&
           r->active_count < r->options.max_running) {
        uint32_t count = r->active_count;
        if (run_admit_head(r, budget - used)) break;
        if (r->active_count == count) continue;
        start = run_clock();
        const struct active *a = &r->active[count];
        uint32_t take = a->known - a->computed;
        if (take > budget - used) take = budget - used;
        kvf_error error;
        if (kvf_sequence_chunk(r->pool, a->sequence, take, &take, &error) ||
            kvf_sequence_prepare(r->pool, a->sequence, take, &error))
            run_fatal("the first chunk", &error);
        planned[count] = take;
        used += take;
        r->allocator += run_clock() - start;
    }
    if (r->live_tokens > r->result->peak_live_tokens) r->result->peak_live_tokens = r->live_tokens;
    start = run_clock();
    for (uint32_t i = 0, p = 0; i < r->active_count; p++) {
        if (planned[p] && run_commit(r, i, planned[p]))
            run_finish(r, i);
        else
            i++;
    }
    r->allocator += run_clock() - start;
    r->now += r->options.step_seconds + r->options.token_seconds * used;
    return used;
}

static inline int run_compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static inline void run_summarise(struct run *r, double live_sum, uint32_t samples) {
    struct run_result *out = r->result;
    double sum = 0;
    qsort(r->waits, r->wait_count, sizeof r->waits[0], run_compare);
    for (uint32_t i = 0; i < r->wait_count; i++) sum += r->waits[i];
    if (r->wait_count) {
        uint64_t p99 = (uint64_t)r->wait_count * 99 / 100;
        out->mean_wait = sum / r->wait_count;
        out->p99_wait = r->waits[p99];
    }
    out->live_share = samples ? live_sum / samples : 0;
    kvf_pool_get_stats(r->pool, &out->stats, NULL);
    if (out->steps) {
        out->allocator_us = r->allocator * 1e6 / (double)out->steps;
        out->operations = (double)out->stats.operations / (double)out->steps;
    }
}

static inline void run_load(kvf_pool *pool, const struct load *load,
                            const struct run_options *options, struct run_result *result) {
    uint32_t longest = 0, count = load->count, room = 1;
    for (uint32_t i = 0; i < count; i++)
        if (load->requests[i].prompt + load->requests[i].output > longest)
            longest = load->requests[i].prompt + load->requests[i].output;
    *result = (struct run_result){0};
    if (!count) return;
    while (room < 2 * count + 2) room *= 2;
    struct run r = {.pool = pool, .load = load, .options = *options, .result = result};
    r.tokens = calloc(longest + 1, sizeof r.tokens[0]);
    r.active = calloc(options->max_running + 1, sizeof r.active[0]);
    r.queue = calloc(room, sizeof r.queue[0]);
    r.queue_mask = room - 1;
    r.made = calloc(count, sizeof r.made[0]);
    r.arrived = calloc(count, sizeof r.arrived[0]);
    r.waits = calloc(count, sizeof r.waits[0]);
    r.state = calloc(count, 1);
    double live = 0;
    uint32_t samples = 0;
    while (result->finished + result->rejected < count) {
        run_arrivals(&r);
        if (!r.active_count && r.queue_head == r.queue_tail) {
            if (r.next < count && options->by_arrival) r.now = load->requests[r.next].arrival;
            continue;
        }
        run_step(&r);
        if (result->steps++ % 64 == 0) {
            kvf_pool_stats stats;
            kvf_pool_get_stats(pool, &stats, NULL);
            live += (double)stats.used_bytes / (double)stats.bytes;
            samples++;
        }
    }
    run_summarise(&r, live, samples);
    free(r.tokens);
    free(r.active);
    free(r.queue);
    free(r.made);
    free(r.arrived);
    free(r.waits);
    free(r.state);
}

#endif
