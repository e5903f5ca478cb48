/*
 * A small continuous-batching scheduler on the pool: prompts in chunks of odd sizes beside decode
 * steps with drafts, some of them wrong; a preemption by plan and others for want of memory; a
 * fork. Every token that stands is compared with the store.
 */
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct live {
    uint32_t text;
    kvf_sequence sequence;
    uint32_t computed, known; /* tokens */
    uint32_t take, accepted;  /* of this step; of those, how many stand */
    bool fresh, decodes, resumed, preempted, forked;
    kvf_snapshot restore;
};

struct serve {
    struct decode *decode;
    struct step step;
    struct decode_run *run;
    struct live live[DECODE_LIVE];
    uint32_t count, chunk;
    bool waiting[DECODE_TEXTS], preempted[DECODE_TEXTS], may_fork, done[DECODE_TEXTS];
    uint32_t known[DECODE_TEXTS]; /* tokens a preempted request comes back with */
    bool planned;                 /* the preemption by plan has happened */
    struct decode_load load;
    uint32_t round, round_start; /* the step with which the round began */
    int32_t *ids;                /* of the step */
};

static const uint32_t chunk_sizes[] = {37, 61, 3, 128, 90, 1, 45};

static const struct decode_text *text_of(const struct serve *s, const struct live *at) {
    return &s->decode->texts[at->text];
}

/* ---- coming and going ---- */

static void drop(struct serve *s, uint32_t at) {
    memmove(&s->live[at], &s->live[at + 1], (s->count - at - 1) * sizeof s->live[0]);
    s->count--;
}

static bool preempt(struct serve *s, uint32_t at) {
    kvf_error error;
    struct live *live = &s->live[at];
    if (kvf_sequence_preempt(s->step.pool, live->sequence, &error))
        return session_fail("preempt", &error);
    s->preempted[live->text] = s->waiting[live->text] = true;
    s->known[live->text] = live->known;
    s->run->preempted++;
    drop(s, at);
    return true;
}

/* A preempted request comes back with all tokens it knew. */
static bool admit(struct serve *s, uint32_t index, bool *admitted) {
    const struct decode_text *text = &s->decode->texts[index];
    uint32_t known = s->preempted[index] ? s->known[index] : text->prompt + text->given;
    kvf_admission admission;
    kvf_error error;
    *admitted = false;
    kvf_status status = kvf_sequence_admit(s->step.pool, text->ids, known, 64, &admission, &error);
    if (status == KVF_ERROR_SHORT && s->count) return true;
    if (status) return session_fail("admit", &error);
    *admitted = true;
    s->waiting[index] = false;
    s->run->hit_tokens += admission.hit;
    s->live[s->count++] = (struct live){.text = index,
                                        .sequence = admission.sequence,
                                        .computed = admission.hit,
                                        .known = known,
                                        .fresh = true,
                                        .resumed = admission.hit > 0,
                                        .preempted = s->preempted[index],
                                        .restore = admission.restore};
    return true;
}

/* Every round begins with another text. */
static bool admit_all(struct serve *s) {
    for (uint32_t k = 0; k < DECODE_TEXTS; k++) {
        bool admitted = true;
        uint32_t i = (k + 2 * s->round) % DECODE_TEXTS;
        uint32_t arrival = s->round_start + s->decode->texts[i].arrival;
        if (!s->waiting[i] || s->count == DECODE_LIVE) continue;
        if (s->run->steps < arrival && s->count) continue;
        if (!admit(s, i, &admitted)) return false;
        if (!admitted) return true;
    }
    return true;
}

/* ---- forks ---- */

/* Where the fourth text's fork leaves it: the tokens both know. */
static uint32_t fork_point(const struct serve *s) {
    return s->decode->texts[DECODE_FORK].prompt;
}

static bool wants_fork(const struct serve *s, const struct live *at) {
    return s->may_fork && at->text == DECODE_FORK - 2 && at->known == fork_point(s) &&
           at->computed + 1 == at->known;
}

static void add_child(struct serve *s, const struct live *parent, kvf_sequence sequence) {
    struct live *child = &s->live[s->count++];
    *child = *parent;
    child->text = DECODE_FORK;
    child->sequence = sequence;
    child->resumed = child->preempted = false;
    child->forked = true;
}

/*
 * Others give way to the fork, the youngest first. Alone and still without room, the forked text
 * becomes a request like others.
 */
static bool fork_one(struct serve *s, uint32_t index) {
    struct live parent = s->live[index];
    kvf_error error;
    kvf_fork fork;
    s->may_fork = false;
    for (;;) {
        kvf_status status = KVF_ERROR_SHORT;
        if (s->count < DECODE_LIVE)
            status = kvf_sequence_fork(s->step.pool, parent.sequence, &fork, &error);
        if (!status) break;
        if (status != KVF_ERROR_SHORT) return session_fail("fork", &error);
        if (s->count == 1) {
            s->waiting[DECODE_FORK] = true;
            return true;
        }
        uint32_t last = s->count - 1;
        if (!preempt(s, s->live[last].text == parent.text ? last - 1 : last)) return false;
    }
    s->run->forks++;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->live[i].text == parent.text) s->live[i].forked = true;
    add_child(s, &parent, fork.sequence);
    return step_copy_pages(&s->step, fork.copies, fork.count);
}

/* ---- a step ---- */

/* Is draft number `i` of a step right? Twice in three; always where the tokens are given. */
static bool draft_is_right(const struct serve *s, const struct live *at, uint32_t i) {
    const struct decode_text *text = text_of(s, at);
    if (at->computed + i < text->prompt + text->given) return true;
    return (at->known * 7 + i * 5 + at->text) % 3 != 0;
}

/* How many tokens a request takes now. */
static bool choose(struct serve *s, struct live *at) {
    const struct decode_text *text = text_of(s, at);
    uint32_t left = at->known - at->computed, drafts = s->decode->session->model.drafts;
    kvf_error error;
    at->decodes = left == 1;
    if (at->decodes) {
        uint32_t room = text->count - at->known;
        if (s->may_fork && at->text == DECODE_FORK - 2 && at->known < fork_point(s))
            room = fork_point(s) - at->known - 1; /* the step's last token makes one more known */
        at->take = 1 + (drafts < room ? drafts : room);
        return true;
    }
    uint32_t want = chunk_sizes[s->chunk++ % (sizeof chunk_sizes / sizeof *chunk_sizes)];
    if (kvf_sequence_chunk(s->step.pool, at->sequence, want < left ? want : left, &at->take,
                           &error))
        return session_fail("chunk", &error);
    return true;
}

/* Back the tokens; the youngest request goes if memory is short. */
static bool prepare(struct serve *s, uint32_t index) {
    kvf_error error;
    while (index < s->count) {
        struct live *at = &s->live[index];
        kvf_status status = kvf_sequence_prepare(s->step.pool, at->sequence, at->take, &error);
        if (!status) return true;
        if (status != KVF_ERROR_SHORT || s->count == 1) return session_fail("prepare", &error);
        if (!preempt(s, s->count - 1)) return false;
    }
    return true;
}

/* Ids of a request's tokens in this step; how many stand. */
static void fill_ids(const struct serve *s, struct live *at, int32_t *ids) {
    const struct decode_text *text = text_of(s, at);
    at->accepted = 0;
    for (uint32_t i = 0; i < at->take; i++) {
        uint32_t position = at->computed + i;
        bool right = position < at->known || draft_is_right(s, at, i);
        ids[i] = right ? text->ids[position] : 1 + (text->ids[position] + 7919) % 129280;
        if (right && at->accepted == i) at->accepted = i + 1;
    }
}

static void count_way(struct serve *s, const struct live *at, enum decode_way way, uint64_t bytes,
                      uint32_t position, int layer) {
    struct decode_line *line = &s->run->ways[way];
    line->tokens++;
    line->bytes += bytes;
    line->layers = s->step.layers;
    if (layer < 0) return;
    if (!line->differ++)
        snprintf(line->first, sizeof line->first, "text %u, token %u, layer %u (%s)", at->text,
                 position, s->step.layer[layer].layer, s->step.layer[layer].type->info.name);
}

static void compare(struct serve *s, const struct live *at, uint32_t row, uint32_t token) {
    bool lent = step_was_lent(&s->step, row);
    for (uint32_t i = 0; i < at->accepted; i++) {
        uint32_t position = at->computed + i;
        int layer;
        uint64_t bytes = decode_compare(s->decode, &s->step, token + i, at->text, position, &layer);
        const bool ways[DECODE_WAYS] = {
            [DECODE_CHUNKS] = !at->decodes,
            [DECODE_STEPS] = !s->step.longer,
            [DECODE_GRAPH] = s->step.replayed,
            [DECODE_BATCH] = s->step.requests > 1,
            [DECODE_RESUMED] = at->resumed,
            [DECODE_PREEMPTED] = at->preempted,
            [DECODE_FORKED] = at->forked,
            [DECODE_LENT] = lent,
            [DECODE_ALL] = true,
        };
        for (int way = 0; way < DECODE_WAYS; way++)
            if (ways[way]) count_way(s, at, (enum decode_way)way, bytes, position, layer);
    }
}

/*
 * Take note of a step. Rejected drafts are either not committed, or committed and taken back: the
 * pool allows both.
 */
static bool commit(struct serve *s, struct live *at, const int32_t *ids) {
    const struct decode_text *text = text_of(s, at);
    kvf_pool *pool = s->step.pool;
    kvf_error error;
    uint32_t end = at->computed + at->accepted, fresh = 0;
    int32_t next = end < text->count ? text->ids[end] : 0;
    bool later = s->run->steps % 2 && at->take > at->accepted;
    kvf_status status = KVF_OK;
    if (later) {
        fresh = at->computed + at->take > at->known ? at->computed + at->take - at->known : 0;
        status = kvf_sequence_commit(pool, at->sequence, at->take, ids + at->take - fresh, fresh,
                                     &error);
    } else if (end > at->known) {
        status = kvf_sequence_commit(pool, at->sequence, at->accepted, text->ids + at->known,
                                     end - at->known, &error);
    } else {
        status = kvf_sequence_commit(pool, at->sequence, at->accepted, NULL, 0, &error);
    }
    if (!status && at->take > at->accepted)
        status = kvf_sequence_truncate(pool, at->sequence, end, &error);
    s->run->rejected += at->take - at->accepted;
    at->computed = end;
    if (at->known < end) at->known = end;
    if (!status && at->known == end && end < text->count) {
        status = kvf_sequence_commit(pool, at->sequence, 0, &next, 1, &error);
        at->known++;
    }
    at->fresh = false;
    return !status || session_fail("commit", &error);
}

static bool retire(struct serve *s) {
    kvf_error error;
    for (uint32_t i = s->count; i-- > 0;) {
        struct live *at = &s->live[i];
        if (at->computed < text_of(s, at)->count) continue;
        if (kvf_sequence_release(s->step.pool, at->sequence, &error))
            return session_fail("release", &error);
        s->done[at->text] = true;
        if (s->may_fork && at->text == DECODE_FORK - 2) { /* it was never at the right place */
            s->may_fork = false;
            s->waiting[DECODE_FORK] = true;
        }
        drop(s, i);
    }
    return true;
}

/* The third text is preempted once while it decodes. */
static bool planned_preemption(struct serve *s) {
    for (uint32_t i = 0; i < s->count && !s->planned; i++)
        if (s->live[i].text == 2 && s->live[i].computed >= text_of(s, &s->live[i])->prompt + 5) {
            s->planned = true;
            return preempt(s, i);
        }
    return true;
}

static bool step_once(struct serve *s) {
    struct step_request requests[DECODE_LIVE];
    kvf_error error;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (wants_fork(s, &s->live[i])) {
            if (!fork_one(s, i)) return false;
            break;
        }
    for (uint32_t i = 0; i < s->count; i++)
        if (!choose(s, &s->live[i]) || !prepare(s, i)) return false;
    for (uint32_t i = 0; i < s->count; i++) {
        struct live *live = &s->live[i];
        requests[i] = (struct step_request){live->sequence, live->fresh, live->restore, 0};
        fill_ids(s, live, s->ids + at);
        at += live->take;
    }
    if (!step_forward(&s->step, requests, s->count, s->ids, true)) return false;
    at = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t take = s->live[i].take;
        compare(s, &s->live[i], i, at);
        if (!commit(s, &s->live[i], s->ids + at)) return false;
        at += take;
    }
    s->run->steps++;
    if (!retire(s) || !planned_preemption(s)) return false;
    return !kvf_pool_check(s->step.pool, &error) || session_fail("the pool", &error);
}

static bool finished(const struct serve *s) {
    for (uint32_t i = 0; i < DECODE_TEXTS; i++)
        if (!s->done[i]) return false;
    return true;
}

static void begin_round(struct serve *s, uint32_t round) {
    s->round = round;
    s->round_start = s->run->steps;
    s->planned = false;
    s->may_fork = s->step.options.pool.policy == KVF_POLICY_ELASTIC;
    for (uint32_t i = 0; i < DECODE_TEXTS; i++) {
        s->waiting[i] = i != DECODE_FORK || !s->may_fork;
        s->done[i] = s->load.four && (i == 1 || i == 4);
        s->waiting[i] = s->waiting[i] && !s->done[i];
        s->preempted[i] = false;
    }
}

static bool serve_round(struct serve *s, uint32_t round) {
    begin_round(s, round);
    for (uint32_t limit = 0; !finished(s) && limit < 2000; limit++) {
        if (!admit_all(s)) return false;
        if (!s->count) continue;
        if (!step_once(s)) return false;
    }
    if (finished(s)) return true;
    fprintf(stderr, "kvforge-run: the requests did not end\n");
    return false;
}

bool decode_serve(struct decode *decode, const struct step_options *options,
                  struct decode_load load, struct decode_run *out) {
    static const uint32_t most = 4 * 128;
    struct serve *s = calloc(1, sizeof *s);
    struct step_options complete = *options;
    kvf_error error;
    *out = (struct decode_run){0};
    if (!s) return false;
    complete.pool.max_tokens = decode->longest;
    complete.pool.max_requests = DECODE_LIVE;
    complete.batch_requests = DECODE_LIVE;
    complete.batch_tokens = most;
    s->decode = decode;
    s->run = out;
    s->load = load;
    s->ids = calloc(most, sizeof *s->ids);
    bool good = s->ids && step_open(decode->session, &complete, &s->step);
    for (uint32_t round = 0; good && round < load.rounds; round++) good = serve_round(s, round);
    good = good && !kvf_pool_get_stats(s->step.pool, &out->stats, &error);
    out->launches = s->step.launches;
    out->saved = s->step.saved;
    out->restored = s->step.restored;
    out->role_changes = s->step.role_changes;
    out->replays = s->step.replays;
    step_close(&s->step);
    free(s->ids);
    free(s);
    return good;
}
