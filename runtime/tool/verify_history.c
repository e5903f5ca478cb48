/*
 * One source: whichever way a history is served, a token sees the same rows in the same order.
 *
 * Several histories are served token by token, each with window memory for all of its positions,
 * and what every token's list reads is kept as a digest. Then they are served again as a server
 * would: a few at a time in slots that change hands, in chunks of any length through the workspace,
 * in decode steps with drafts of which some are rejected, in paged mode with window blocks only
 * where a later step reads (their pages go from hand to hand) and one history resumed on another's
 * blocks. Every token that was not rejected must read what it read before.
 */
#include "serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORIES  6
#define RESUMED    (HISTORIES - 1) /* in paged mode: its first blocks are those of history 0 */
#define LIVE       3               /* at once */
#define RECOMPUTED 5 /* positions below its write_from that the resumed one computes */
#define PAGES      ((2 * LIVE + 1) * SERVE_TABLE)
#define LONGEST    1000 /* positions of a history; a longer window never fills */

/* How a history is served. */
enum style { STYLE_CHUNKS, STYLE_MIXED, STYLE_DECODE, STYLES };

static const char *const style_names[STYLES] = {
    "any chunks, read through the workspace, as token by token",
    "chunks and decode steps with rejected drafts, as token by token",
    "short chunks, many decode steps, as token by token",
};

/* A place in the batch, with a request slot of its own. */
struct seat {
    int history;              /* -1: free */
    uint32_t position;        /* the next one */
    uint32_t count, accepted; /* tokens of this step, and how many of them stay */
};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct serve serve;
    struct serve_cache cache;
    struct serve_step step;
    uint32_t length;        /* positions of every history */
    uint32_t shared, start; /* of the resumed history: blocks below, first position computed */
    uint8_t *latent;        /* [HISTORIES][length] */
    uint64_t *digest;       /* [HISTORIES][length]: what token by token reads */
    struct seat seat[LIVE];
    int next;       /* history to start */
    bool published; /* history 0 has written what the resumed one shares */
    int32_t table[HISTORIES][SERVE_TABLE];
    int32_t free_page[PAGES];
    uint32_t free_pages;
    uint64_t compared; /* bytes of rows */
};

static uint8_t *latent_of(const struct bench *b, int history, uint32_t position) {
    size_t row = (size_t)history * b->length + position;
    return b->latent + row * serve_latent_bytes(&b->serve);
}

static uint64_t *digest_of(const struct bench *b, int history, uint32_t position) {
    return &b->digest[(size_t)history * b->length + position];
}

static bool is_resumed(const struct bench *b, int history) {
    return b->serve.paged && history == RESUMED;
}

/* Latents of every history; one of them holds any bits at all. */
static void make_latents(struct bench *b) {
    const struct ref_type *rules = &b->serve.rules;
    for (int h = 0; h < HISTORIES; h++)
        for (uint32_t p = 0; p < b->length; p++)
            input_vector(&b->verify->random, h == 1 ? INPUT_BITS : INPUT_RANDOM, rules->input,
                         latent_of(b, h, p), rules->head_dim);
    if (b->serve.paged)
        memcpy(latent_of(b, RESUMED, 0), latent_of(b, 0, 0),
               b->shared * serve_latent_bytes(&b->serve));
}

/* ---- a step ---- */

static void step_clear(struct bench *b, bool workspace) {
    b->step.workspace = workspace;
    batch_clear(&b->step.batch);
}

/* A request of a step: its table and `count` tokens, of which the first `accepted` are a history's
 * and the others drafts that will be rejected. */
static void step_request(struct bench *b, int32_t slot, int history, uint32_t position,
                         uint32_t count, uint32_t accepted) {
    struct serve_step *step = &b->step;
    size_t request = step->batch.requests, columns = b->serve.table_stride;
    memcpy(step->table + request * columns, b->table[history], 4 * columns);
    step->write_from[request] = is_resumed(b, history) ? (int32_t)b->shared : 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = serve_latent_bytes(&b->serve);
        uint8_t *to = step->latent + (step->batch.tokens + i) * bytes;
        if (i < accepted)
            memcpy(to, latent_of(b, history, position + i), bytes);
        else
            input_vector(&b->verify->random, INPUT_RANDOM, b->serve.rules.input, to,
                         b->serve.rules.head_dim);
    }
    batch_request(&step->batch, slot, (int32_t)position, count);
}

/* Padding among the requests; their tables say nothing. */
static void step_gap(struct bench *b, uint32_t count) {
    struct serve_step *step = &b->step;
    size_t request = step->batch.requests, columns = b->serve.table_stride;
    size_t bytes = serve_latent_bytes(&b->serve);
    memset(step->table + request * columns, 0xff, 4 * columns);
    memset(step->latent + step->batch.tokens * bytes, 0, count * bytes);
    step->write_from[request] = 0;
    batch_gap(&step->batch, count);
}

/* ---- token by token ---- */

static bool serve_singly(struct bench *b) {
    uint32_t pages = HISTORIES * (b->serve.paged ? b->serve.table_stride : 1);
    bool good = serve_cache_create(&b->serve, pages, &b->cache);
    for (int32_t h = 0; h < HISTORIES; h++)
        for (int32_t column = 0; column < (int32_t)b->serve.table_stride; column++)
            b->table[h][column] = h * (int32_t)b->serve.table_stride + column;
    for (uint32_t p = 0; good && p < b->length; p++) {
        step_clear(b, false);
        for (int h = 0; h < HISTORIES; h++) step_request(b, h, h, p, 1, 1);
        /* Token by token the resumed history writes its own copy of what it shares. */
        b->step.write_from[RESUMED] = 0;
        good = serve_run(&b->serve, &b->cache, &b->step);
        for (int h = 0; good && h < HISTORIES; h++) *digest_of(b, h, p) = b->step.digest[h];
    }
    serve_cache_destroy(&b->serve, &b->cache);
    return good;
}

/* ---- window blocks, in paged mode ---- */

/* Whether a block holds one of the positions from..to-1. */
static bool holds(const struct bench *b, uint32_t column, int64_t from, int64_t to) {
    int64_t first = (int64_t)column * b->serve.rows;
    return from < to && from < first + b->serve.rows && to > first;
}

/* What this step or the next one reads: before the chunk, at its end; decode steps read all of it.
 */
static bool is_needed(const struct bench *b, const struct seat *seat, uint32_t column) {
    int64_t back = b->serve.rules.window - 1, first = seat->position, end = first + seat->count;
    if (holds(b, column, first - back, first)) return true;
    return holds(b, column, b->step.workspace ? end - back : first, end);
}

/* Blocks of history 0 that the resumed one starts on stay. */
static bool is_pinned(const struct bench *b, uint32_t column) {
    return holds(b, column, (int64_t)b->start - b->serve.rules.window + 1, b->shared);
}

static int32_t take_page(struct bench *b) {
    if (!b->free_pages) abort(); /* count_pages is wrong */
    uint32_t at = input_below(&b->verify->random, b->free_pages);
    int32_t page = b->free_page[at];
    b->free_page[at] = b->free_page[--b->free_pages];
    return page;
}

static void back_blocks(struct bench *b, const struct seat *seat) {
    int32_t *table = b->table[seat->history];
    for (uint32_t column = 0; column < b->serve.table_stride; column++) {
        bool pinned = is_pinned(b, column);
        bool keep = is_needed(b, seat, column) || (seat->history == 0 && pinned);
        if (keep && table[column] < 0) {
            table[column] = take_page(b);
        } else if (!keep && table[column] >= 0) {
            if (!is_resumed(b, seat->history) || !pinned)
                b->free_page[b->free_pages++] = table[column];
            table[column] = -1;
        }
    }
}

/* A history that has ended keeps nothing but what is pinned. */
static void release_blocks(struct bench *b, struct seat *seat) {
    *seat = (struct seat){.history = seat->history, .position = UINT32_MAX / 2};
    back_blocks(b, seat);
}

/* ---- as a server would ---- */

/* A free seat takes the next history, if there is one that can start. */
static void sit_down(struct bench *b, struct seat *seat) {
    if (seat->history >= 0) return;
    *seat = (struct seat){.history = -1};
    if (b->next == HISTORIES || (is_resumed(b, b->next) && !b->published)) return;
    seat->history = b->next++;
    if (!is_resumed(b, seat->history)) return;
    seat->position = b->start;
    for (uint32_t column = 0; column < b->serve.table_stride; column++)
        if (is_pinned(b, column)) b->table[RESUMED][column] = b->table[0][column];
}

static uint32_t least(uint32_t a, uint32_t c) {
    return a < c ? a : c;
}

/* How many tokens a seat takes in this step, and how many of them stay. */
static void choose_count(struct bench *b, struct seat *seat, enum style style) {
    uint64_t *random = &b->verify->random;
    uint32_t rest = b->length - seat->position, drafts = b->serve.rules.drafts;
    if (!b->step.workspace) {
        seat->count = least(rest, 1 + input_below(random, drafts + 1));
        seat->accepted = 1 + input_below(random, seat->count);
        return;
    }
    uint32_t shape = input_below(random, style == STYLE_DECODE ? 3 : 6), rows = b->serve.rows;
    uint32_t count = shape == 0   ? input_below(random, 2)
                     : shape < 3  ? input_below(random, 2 * drafts + 8)
                     : shape == 3 ? rows
                                  : input_below(random, 2 * rows + 4);
    seat->count = seat->accepted = least(rest, least(count, BATCH_TOKENS / (LIVE + 1)));
}

/* The seats in the order they have in the batch: request i's is (first + i) mod LIVE. */
static void build_step(struct bench *b, enum style style, uint32_t first) {
    uint64_t *random = &b->verify->random;
    step_clear(b, style == STYLE_CHUNKS || input_below(random, style == STYLE_MIXED ? 2 : 5) == 0);
    for (uint32_t i = 0; i < LIVE; i++) {
        uint32_t at = (first + i) % LIVE;
        struct seat *seat = &b->seat[at];
        if (seat->history < 0) {
            step_gap(b, input_below(random, 4));
            continue;
        }
        choose_count(b, seat, style);
        if (b->serve.paged) back_blocks(b, seat);
        step_request(b, (int32_t)at, seat->history, seat->position, seat->count, seat->accepted);
    }
    if (input_below(random, 2)) step_gap(b, 3);
}

/* Whether every token that stays read what it read token by token; says which one did not. */
static bool check_seat(struct bench *b, const struct seat *seat, uint32_t first_token) {
    for (uint32_t i = 0; i < seat->accepted; i++) {
        uint32_t t = first_token + i, position = seat->position + i;
        uint64_t want = *digest_of(b, seat->history, position);
        b->compared += b->step.count[t] * b->subject->info->row_bytes;
        if (want && b->step.digest[t] == want) continue;
        printf("#   history %d, position %u (token %u of %u from the %s): its %u rows differ\n",
               seat->history, position, i + 1, seat->count,
               b->step.workspace ? "workspace" : "window place", b->step.count[t]);
        return false;
    }
    return true;
}

/* One step of all seats; the histories move on by what stays. */
static bool take_step(struct bench *b, enum style style, bool *equal) {
    uint32_t first = input_below(&b->verify->random, LIVE);
    for (uint32_t i = 0; i < LIVE; i++) sit_down(b, &b->seat[i]);
    build_step(b, style, first);
    if (!serve_run(&b->serve, &b->cache, &b->step)) return false;
    for (uint32_t i = 0; i < LIVE; i++) {
        struct seat *seat = &b->seat[(first + i) % LIVE];
        if (seat->history < 0) continue;
        *equal = *equal && check_seat(b, seat, (uint32_t)b->step.batch.cu_tokens[i]);
        seat->position += seat->accepted;
        if (seat->history == 0 && seat->position >= b->shared) b->published = true;
        if (seat->position < b->length) continue;
        if (b->serve.paged) release_blocks(b, seat);
        seat->history = -1;
    }
    return true;
}

/* In paged mode as many pages as the seats and the pinned blocks can need at once. */
static uint32_t count_pages(const struct bench *b) {
    uint32_t rows = b->serve.rules.window + RECOMPUTED;
    uint32_t span = least((rows + b->serve.rows - 2) / b->serve.rows + 1, b->serve.table_stride);
    return b->serve.paged ? (2 * LIVE + 1) * span : LIVE;
}

static bool is_busy(const struct bench *b) {
    for (uint32_t i = 0; i < LIVE; i++)
        if (b->seat[i].history >= 0) return true;
    return false;
}

static bool serve_together(struct bench *b, enum style style) {
    bool equal = true, good = serve_cache_create(&b->serve, count_pages(b), &b->cache);
    memset(b->table, 0xff, sizeof b->table);
    b->free_pages = b->cache.window.pages;
    for (uint32_t i = 0; i < b->free_pages; i++) b->free_page[i] = (int32_t)i;
    for (uint32_t i = 0; i < LIVE; i++) b->seat[i].history = -1;
    b->next = 0;
    b->published = false;
    b->compared = 0;
    while (good && equal && (b->next < HISTORIES || is_busy(b))) good = take_step(b, style, &equal);
    serve_cache_destroy(&b->serve, &b->cache);
    verify_property(b->verify, b->subject, good && equal, style_names[style], HISTORIES * b->length,
                    b->compared);
    return good;
}

/* Long enough for chunks beyond a page, for a window across pages, and for slots to be reused. */
static bool make(struct bench *b) {
    const struct ref_type *rules = &b->subject->rules;
    uint32_t rows = b->verify->session->rules.paged ? rules->block : rules->ring;
    b->length = least(3 * rows + rules->window / 2 + 10, LONGEST);
    b->shared = 2 * rules->block;
    b->start = b->shared - RECOMPUTED;
    if (!serve_open(b->verify, b->subject, b->length, &b->serve)) return false;
    size_t bytes = serve_latent_bytes(&b->serve);
    b->latent = malloc((size_t)HISTORIES * b->length * bytes);
    b->digest = malloc((size_t)HISTORIES * b->length * sizeof *b->digest);
    b->step.latent = malloc(BATCH_TOKENS * bytes);
    if (!b->latent || !b->digest || !b->step.latent) return false;
    make_latents(b);
    return true;
}

bool verify_history(struct verify *verify, const struct subject *subject) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    b->verify = verify;
    b->subject = subject;
    bool good = make(b) && serve_singly(b);
    for (int style = 0; good && style < STYLES; style++)
        good = serve_together(b, (enum style)style);
    serve_close(&b->serve);
    free(b->latent);
    free(b->digest);
    free(b->step.latent);
    free(b);
    return good;
}
