/*
 * Loads for examples/replay.c: a published trace, or generated ones. A request is a prompt (made of
 * pieces that requests may share), a number of output tokens, and when it arrives.
 */
#ifndef REPLAY_LOAD_H
#define REPLAY_LOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getline and clock_gettime, where the compiler was told -std=c17 */
#endif

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOAD_MAX_TOKENS = 1 << 24 }; /* a trace's longer prompts are left out */

/* `count` tokens of the text number `text`, from its token `from` on. Equal texts are equal tokens.
 */
struct piece {
    uint64_t text;
    uint32_t from, count;
};

struct request {
    struct piece *pieces;
    uint32_t piece_count;
    uint32_t prompt, output; /* tokens */
    double arrival;          /* seconds; used when requests come by time */
    int32_t after;           /* request that must finish before it is asked, or -1 */
};

struct load {
    struct request *requests;
    uint32_t count;
    uint32_t clients; /* closed queue: so many requests are waiting or running */
};

static inline int32_t load_token(uint64_t text, uint32_t at) {
    uint64_t x = text * 0x9e3779b97f4a7c15u + at;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return (int32_t)(x % 129280); /* the vocabulary's size */
}

static inline void load_prompt(const struct request *r, int32_t *out) {
    for (uint32_t i = 0; i < r->piece_count; i++)
        for (uint32_t at = 0; at < r->pieces[i].count; at++)
            *out++ = load_token(r->pieces[i].text, r->pieces[i].from + at);
}

/* The text a request answers with. */
static inline uint64_t load_answer(uint32_t request) {
    return UINT64_C(1) << 40 | request;
}

static inline struct request *load_add(struct load *l, uint32_t pieces) {
    if ((l->count & (l->count - 1)) == 0) {
        size_t room = l->count ? 2 * (size_t)l->count : 1;
        struct request *grown = realloc(l->requests, room * sizeof grown[0]);
        if (!grown) exit(1);
        l->requests = grown;
    }
    struct request *r = &l->requests[l->count++];
    *r = (struct request){.after = -1, .pieces = calloc(pieces ? pieces : 1, sizeof r->pieces[0])};
    if (!r->pieces) exit(1);
    return r;
}

static inline void load_piece(struct request *r, uint64_t text, uint32_t from, uint32_t count) {
    r->pieces[r->piece_count++] = (struct piece){text, from, count};
    r->prompt += count;
}

static inline void load_free(struct load *l) {
    for (uint32_t i = 0; i < l->count; i++) free(l->requests[i].pieces);
    free(l->requests);
}

/* ---- the trace: one flat JSON object a line; ids name 512 tokens and all before them ---- */

/* Where the value of `key` begins in the line, or null. */
static inline const char *load_value(const char *line, const char *key) {
    const char *at = strstr(line, key);
    at = at ? strchr(at, ':') : NULL;
    return at ? at + 1 : NULL;
}

static inline uint32_t load_number(const char *line, const char *key) {
    const char *at = load_value(line, key);
    return at ? (uint32_t)strtoul(at, NULL, 10) : 0;
}

/* The next number of a list, and where to go on; false at its end. */
static inline int load_next(const char **at, uint64_t *out) {
    while (**at == '[' || **at == ',' || **at == ' ') ++*at;
    char *end;
    *out = strtoull(*at, &end, 10);
    if (end == *at) return 0;
    *at = end;
    return 1;
}

static inline void load_line(struct load *l, const char *line) {
    uint32_t prompt = load_number(line, "\"input_length\""), index = l->count;
    const char *ids = load_value(line, "\"hash_ids\"");
    if (!ids || !prompt || prompt > LOAD_MAX_TOKENS) return;
    struct request *r = load_add(l, prompt / 512 + 1);
    r->output = load_number(line, "\"output_length\"");
    if (r->output > LOAD_MAX_TOKENS) r->output = LOAD_MAX_TOKENS;
    r->arrival = load_number(line, "\"timestamp\"") / 1000.0;
    uint64_t id;
    for (uint32_t i = 0; i < prompt / 512 && load_next(&ids, &id); i++) load_piece(r, id, 0, 512);
    /* What the last, partial id stands for is not known to be equal in another request. */
    if (r->prompt < prompt) load_piece(r, UINT64_C(1) << 41 | index, 0, prompt - r->prompt);
    if (!r->output) r->output = 1;
}

static inline int load_trace(struct load *l, const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    if (!file) return -1;
    while (getline(&line, &room, file) > 0) load_line(l, line);
    free(line);
    fclose(file);
    l->clients = 256;
    return l->count ? 0 : -1;
}

/* ---- generated loads: the same on every machine ---- */

static uint64_t load_state = 1;

static inline double load_uniform(void) {
    load_state ^= load_state << 13;
    load_state ^= load_state >> 7;
    load_state ^= load_state << 17;
    return (double)(load_state >> 11) / 9007199254740992.0;
}

static inline uint32_t load_between(uint32_t low, uint32_t high) {
    return low + (uint32_t)(load_uniform() * (high - low + 1));
}

/* Skewed towards short: exponential around the mean, at least 1. */
static inline uint32_t load_exponential(uint32_t mean) {
    double x = -log(1 - load_uniform()) * mean;
    return x < 1 ? 1 : x > 8.0 * mean ? 8 * mean : (uint32_t)x;
}

static inline void load_short(struct load *l, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct request *r = load_add(l, 1);
        load_piece(r, 1000 + i, 0, load_between(100, 1500));
        r->output = load_between(50, 450);
    }
}

static inline void load_mixed(struct load *l, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct request *r = load_add(l, 1);
        load_piece(r, 1000 + i, 0, i % 20 == 10 ? 200000 : load_between(500, 3500));
        r->output = load_between(50, 450);
    }
}

static inline void load_prefix(struct load *l, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct request *r = load_add(l, 2);
        load_piece(r, 1, 0, 20000);
        load_piece(r, 1000 + i, 0, load_between(100, 900));
        r->output = load_between(50, 450);
    }
}

/* Sessions of twenty turns; a turn's prompt is all that was said before and something new. */
static inline void load_agents(struct load *l, uint32_t sessions, uint32_t turns) {
    int32_t *last = malloc(sessions * sizeof *last);
    for (uint32_t s = 0; s < sessions; s++) last[s] = -1;
    for (uint32_t t = 0; t < turns; t++)
        for (uint32_t s = 0; s < sessions; s++) {
            int32_t before = last[s];
            uint32_t old = before >= 0 ? l->requests[before].piece_count : 0, index = l->count;
            struct request *r = load_add(l, old + 2);
            if (before < 0) {
                load_piece(r, 1, 0, 3000); /* the tools' description, the same for all */
            } else {
                const struct request *b = &l->requests[before];
                memcpy(r->pieces, b->pieces, old * sizeof r->pieces[0]);
                r->piece_count = old;
                r->prompt = b->prompt;
                load_piece(r, load_answer((uint32_t)before), 0, b->output);
            }
            load_piece(r, 5000 + index, 0, load_between(500, 2500));
            r->output = load_between(100, 500);
            r->after = before;
            last[s] = (int32_t)index;
        }
    l->clients = sessions;
    free(last);
}

/* 48 documents of 4,000 to 28,000 tokens, asked for with Zipf's popularity. */
static inline void load_zipf(struct load *l, uint32_t count) {
    double weights[48], sum = 0;
    uint32_t lengths[48];
    for (uint32_t d = 0; d < 48; d++) {
        sum += weights[d] = 1.0 / (d + 1);
        lengths[d] = load_between(4000, 28000);
    }
    for (uint32_t i = 0; i < count; i++) {
        double at = load_uniform() * sum;
        uint32_t d = 0;
        while (d < 47 && (at -= weights[d]) > 0) d++;
        struct request *r = load_add(l, 2);
        load_piece(r, 10 + d, 0, lengths[d]);
        load_piece(r, 1000 + i, 0, load_between(100, 900));
        r->output = load_between(50, 450);
    }
}

/* Short chat, then questions about shared documents, four times in turn. */
static inline void load_phases(struct load *l, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool documents = i * 8 / count % 2;
        struct request *r = load_add(l, 2);
        if (documents) load_piece(r, 10 + load_between(0, 11) + 100 * (i * 8 / count), 0, 16000);
        load_piece(r, 1000 + i, 0, load_between(100, documents ? 900 : 1500));
        r->output = load_between(50, 450);
    }
}

/* Outputs of very different length. */
static inline void load_tailed(struct load *l, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct request *r = load_add(l, 1);
        load_piece(r, 1000 + i, 0, load_between(100, 1500));
        r->output = load_exponential(load_uniform() < 0.1 ? 3000 : 150);
    }
}

static inline void load_million(struct load *l) {
    struct request *r = load_add(l, 1);
    load_piece(r, 1, 0, 1048000);
    r->output = 500;
}

/* A load by name, 1/`divide` of its requests; -1 if there is none such. */
static inline int load_named(struct load *l, const char *name, uint64_t seed, uint32_t divide) {
    load_state = seed * 0x9e3779b97f4a7c15u + 1;
    *l = (struct load){.clients = 256};
    if (!strcmp(name, "short")) return load_short(l, 6000 / divide), 0;
    if (!strcmp(name, "mixed")) return load_mixed(l, 2000 / divide), 0;
    if (!strcmp(name, "prefix")) return load_prefix(l, 4000 / divide), 0;
    if (!strcmp(name, "agents")) return load_agents(l, 64, 20 / divide), 0;
    if (!strcmp(name, "zipf")) return load_zipf(l, 4000 / divide), 0;
    if (!strcmp(name, "phases")) return load_phases(l, 6000 / divide), 0;
    if (!strcmp(name, "tailed")) return load_tailed(l, 6000 / divide), 0;
    if (!strcmp(name, "million")) return load_million(l), 0;
    return -1;
}

#endif
