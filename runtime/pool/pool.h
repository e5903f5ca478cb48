/*
 * The pool's inside. Everything here is indexes into arrays that are allocated at creation; no
 * function allocates later. An id is an int32; POOL_NONE (-1) is nobody.
 *
 * Layers, from below: list.h (intrusive lists), index.c (hash -> block), the stores chunks.c and
 * fixed.c (which memory is free), tree.c (what is cached and who is evicted first), type_slots.c
 * and shared.c (the second seed's pool, a store and a cache in one), then sequences: admit.c,
 * step.c, finish.c; tables.c and ranges.c only read.
 *
 * One thread at a time per pool. Public functions enter through pool_enter().
 */
#ifndef KVF_POOL_H
#define KVF_POOL_H

#include <stdatomic.h>

#include "geometry.h"
#include "list.h"

enum { POOL_NONE = -1 };

/* What an envelope (or, under `shared`, a logical block) holds. */
enum pool_use { POOL_FREE, POOL_BLOCK, POOL_STATE, POOL_SNAPSHOT };

/* Why a window was published: decides how long it is kept. */
enum pool_kind { POOL_TAIL, POOL_BRANCH, POOL_END, POOL_SAVED, POOL_INTERIOR, POOL_KINDS };

/* Lists of cached windows, in the order of eviction. */
enum pool_class { POOL_PROBATION, POOL_DURABLE, POOL_ATTACHED, POOL_CLASSES };

/* Two ways of counting what is in use: by references alone, or as if attached windows were in use.
 */
enum pool_level { POOL_REFERENCED, POOL_HELD, POOL_LEVELS };

struct pool_block {
    int32_t refs;   /* sequences that list it */
    int32_t parent; /* published: the block before it; POOL_NONE at a sequence's first */
    uint32_t parent_generation;
    uint32_t generation; /* counts how often its content was given up */
    int32_t children;    /* published blocks whose parent it is */
    int32_t window;      /* the published window block that ends where it ends */
    int32_t owner;       /* snapshots and state: next part of the chain; else unused */
    uint8_t use;
    bool published;
    uint64_t hash;
    struct pool_link link; /* `shared`: the free queue; `fixed`: the free list */
};

struct pool_window {
    int32_t refs;     /* sequences that list it, plus one if `held`, plus one if `pinned` */
    int32_t block;    /* published: the block it belongs to */
    int32_t snapshot; /* first envelope of its snapshot, or POOL_NONE */
    int32_t resumed;  /* running requests that resumed here */
    uint32_t generation;
    uint32_t hits;
    uint8_t kind;
    uint8_t list; /* of enum pool_class, or POOL_CLASSES: in none */
    bool used, held, pinned;
    uint32_t written; /* rows [0, written) hold this content: whole at `block` */
    struct pool_link link;
};

/* A chunk of a request's state is one piece: its envelopes are not looked at. */
enum pool_chunk_use { CHUNK_FREE, CHUNK_WINDOW, CHUNK_ENVELOPES, CHUNK_STATE };

struct pool_chunk {
    uint8_t use;
    uint16_t used;               /* envelopes in use */
    uint16_t count[POOL_LEVELS]; /* of those counted as in use; a window counts as all of them */
    struct pool_link link;       /* free list, or the open chunks of its occupancy */
};

struct pool_sequence {
    bool live;
    uint32_t generation;
    uint32_t known;            /* tokens whose ids are known */
    uint32_t prompt;           /* tokens it was admitted with */
    uint32_t hit;              /* tokens taken from the cache */
    uint32_t computed;         /* tokens committed */
    uint32_t final;            /* of the computed ones, those that cannot be rejected any more */
    uint32_t prepared;         /* tokens backed by memory, >= computed */
    uint32_t published;        /* leading blocks that are published */
    uint32_t matched;          /* leading blocks that were found at admission */
    uint32_t blocks;           /* entries of the block table */
    uint32_t window_from;      /* entries of the window table below are POOL_NONE */
    uint32_t window_to;        /* entries from here on are POOL_NONE */
    uint32_t promised;         /* blocks that admission set aside for its output */
    uint32_t promised_windows; /* of the first chunk, until it is prepared */
    uint32_t promised_envelopes;
    int32_t near;    /* where its last envelope was placed */
    int32_t resumed; /* window it resumed at */
    uint32_t resumed_generation;
    uint64_t fill_batch; /* the batch that filled it last, its row there, and what changed since */
    uint64_t fill_step;
    uint32_t fill_row, dirty_block, dirty_window;
    int32_t *block_table, *window_table, *state; /* [max_blocks], [max_blocks], [parts] */
    int32_t *pending;      /* ids of known tokens beyond the last backed block */
    struct pool_link link; /* free slots */
};

struct pool_need {
    uint64_t windows, envelopes, states; /* to take */
    uint64_t idle_blocks, idle_windows;  /* cached ones claimed with it (`shared` only) */
};

/* What did not fit. */
struct pool_short {
    const char *resource;
    uint64_t missing;
};

/* Cached blocks and windows that an admission takes. */
struct pool_claim {
    const int32_t *blocks;
    uint32_t block_count;
    const int32_t *windows; /* of the last blocks before the hit */
    uint32_t window_count;
};

/* Which memory is free: the arena's chunks, or fixed numbers of each. What is given back must not
 * count as in use; what is taken does, at both levels. */
struct pool_store {
    bool (*fits)(const kvf_pool *, const struct pool_need *, enum pool_level, struct pool_short *);
    bool (*room)(const kvf_pool *, const struct pool_need *); /* fits without evicting */
    int32_t (*take_window)(kvf_pool *);
    void (*give_window)(kvf_pool *, int32_t);
    int32_t (*take_envelope)(kvf_pool *, int32_t near, enum pool_use);
    void (*give_envelope)(kvf_pool *, int32_t);
    void (*take_state)(kvf_pool *, int32_t *parts);
    void (*give_state)(kvf_pool *, const int32_t *parts);
    /* Count a window or an envelope as in use (on) or not, at one level. */
    void (*count_window)(kvf_pool *, int32_t, enum pool_level, bool on);
    void (*count_envelope)(kvf_pool *, int32_t, enum pool_level, bool on);
    bool (*check)(const kvf_pool *, kvf_error *);
};

enum pool_leave { POOL_SLID, POOL_RELEASED }; /* out of the window, or the request ended */

/* What is cached and who is evicted first. */
struct pool_policy {
    bool (*fits)(const kvf_pool *, const struct pool_need *, enum pool_level, struct pool_short *);
    bool (*make_room)(kvf_pool *, const struct pool_need *, enum pool_level);
    int32_t (*take_block)(kvf_pool *, int32_t near);
    int32_t (*take_window)(kvf_pool *);
    int32_t (*take_snapshot)(kvf_pool *, int32_t window);
    /* Count the snapshot of a window in use as in use (on) or not; drop it, not counted. */
    void (*count_snapshot)(kvf_pool *, int32_t window, bool on);
    void (*drop_snapshot)(kvf_pool *, int32_t window);
    void (*take_state)(kvf_pool *, int32_t *parts);
    void (*give_state)(kvf_pool *, const int32_t *parts);
    void (*claim_begin)(kvf_pool *, const struct pool_claim *, struct pool_need *);
    void (*claim_undo)(kvf_pool *, const struct pool_claim *);
    void (*claim_finish)(kvf_pool *, const struct pool_claim *);
    void (*hold_block)(kvf_pool *, int32_t); /* the first reference to a cached block */
    void (*idle_block)(kvf_pool *, int32_t); /* the last reference is gone */
    void (*hold_window)(kvf_pool *, int32_t);
    void (*idle_window)(kvf_pool *, int32_t, enum pool_leave);
    void (*published)(kvf_pool *, int32_t window); /* a window was published */
    bool (*check)(const kvf_pool *, kvf_error *);
};

struct pool_index_entry {
    uint32_t tag;
    int32_t block;
};

struct pool_counters {
    uint64_t admitted, refused, preempted, released;
    uint64_t hit_tokens, prompt_tokens, computed_tokens, recomputed_tokens;
    uint64_t evicted_windows, evicted_blocks, adopted_blocks, adopted_windows;
    uint64_t touched; /* list and table operations */
};

struct kvf_pool {
    struct pool_geometry geometry;
    struct kvf_pool_options options;
    const struct pool_policy *policy;
    const struct pool_store *store; /* null under `shared` */
    atomic_flag busy;
    const char *damage; /* the invariant that was found broken, or null */

    uint32_t block_count, window_count, chunk_count, state_count;
    uint32_t max_blocks;        /* columns of a table */
    uint32_t tail_blocks;       /* windows a resume needs */
    uint32_t parts;             /* rows of the state table */
    uint32_t mask_words;        /* of a chunk */
    uint32_t state_chunk_parts; /* of the parts, those that are whole chunks */
    bool snapshots;             /* tails must be saved and restored where a request resumes */

    struct pool_block *blocks;
    struct pool_window *windows;
    struct pool_chunk *chunks;
    uint64_t *masks;                 /* [chunk_count][mask_words]: envelopes in use */
    int32_t *tokens;                 /* [block_count][block] */
    struct pool_sequence *sequences; /* [max_requests] */
    int32_t *tables, *claim_blocks;
    int32_t *pending; /* of all sequences */
    int32_t *scratch; /* [2 * (block_count + window_count)], for checks and ranges */

    struct pool_index_entry *index;
    uint32_t index_mask;
    uint64_t *ghosts; /* hashes that were evicted, direct-mapped */
    uint32_t ghost_mask;

    /* stores */
    struct pool_list free_chunks, *open_chunks; /* open_chunks[used], used = 1..n-1 */
    uint64_t *open_words;                       /* which of them are not empty */
    uint64_t open_envelopes, unreferenced_chunks[POOL_LEVELS], spare[POOL_LEVELS];
    struct pool_list free_envelopes, free_windows; /* fixed */
    uint64_t counted_envelopes[POOL_LEVELS], counted_windows[POOL_LEVELS];
    int32_t *free_states;
    uint32_t free_state_count;

    /* the cache */
    struct pool_list classes[POOL_CLASSES];
    uint32_t made[POOL_KINDS], first_hits[POOL_KINDS];

    struct pool_shared *shared;

    struct pool_list free_sequences;
    uint32_t running;
    uint64_t promised_blocks, promised_windows, promised_envelopes;
    uint64_t batches;   /* created so far */
    double mean_output; /* tokens, running mean over finished requests */
    struct pool_counters counters;
};

/* ---- errors and entry (guard.c) ---- */

__attribute__((format(printf, 3, 4))) kvf_status pool_fail(kvf_error *error, kvf_status status,
                                                           const char *format, ...);
kvf_status pool_fail_short(kvf_error *error, const struct pool_short *what, const char *who);
/* Refuses a second thread inside the same pool. Every successful enter needs a leave. */
kvf_status pool_enter(kvf_pool *pool, kvf_error *error);
kvf_status pool_leave(kvf_pool *pool, kvf_status status, kvf_error *error);
/*
 * An invariant that the next statements rely on; `what` says it as a sentence. Where it does not
 * hold (a fault of ours, or memory that somebody else wrote to) the pool is given up and false is
 * returned: this call and every later one end with KVF_ERROR_STATE and `what`. What is left of this
 * call may do anything to the records but must stay inside the arrays and come to an end: nothing
 * is taken or given, and who takes gets the id 0.
 */
static inline bool pool_holds(kvf_pool *pool, bool condition, const char *what) {
    if (__builtin_expect(condition, 1)) return true;
    if (!pool->damage) pool->damage = what;
    return false;
}
/* A broken invariant: sets the error's text and returns false. */
__attribute__((format(printf, 2, 3))) bool pool_broken(kvf_error *error, const char *format, ...);

/* Invariants that several files rely on. */
#define POOL_ROOM            "what fits can be made room for"
#define POOL_GIVEN_ONCE      "an envelope is given back once"
#define POOL_SLOT_GIVEN_ONCE "a window's slot is given back once"
#define POOL_STATES          "a request's state is taken and given back once"

/* ---- creation (create.c) ---- */

kvf_status pool_create(const struct pool_geometry *geometry, const kvf_pool_options *options,
                       kvf_pool **out, kvf_error *error);

/* Check the options and count what they buy; makes no array. */
kvf_status pool_count(kvf_pool *pool, kvf_error *error);
/* See kvf_pool_plan. */
kvf_status pool_plan(const struct pool_geometry *geometry, const kvf_pool_options *options,
                     uint32_t context, kvf_plan *out, kvf_error *error);

/* ---- hash -> block (index.c) ---- */

uint64_t pool_hash(bool first, uint64_t parent, const int32_t *tokens, uint32_t count);
int32_t *pool_block_tokens(const kvf_pool *pool, int32_t block);
int32_t pool_index_find(kvf_pool *pool, uint64_t hash, int32_t parent, const int32_t *tokens);
void pool_index_add(kvf_pool *pool, int32_t block);
void pool_index_remove(kvf_pool *pool, int32_t block);
bool pool_index_check(const kvf_pool *pool, kvf_error *error);

/* ---- what all policies share (publish.c) ---- */

void pool_block_ref(kvf_pool *pool, int32_t block);
void pool_block_unref(kvf_pool *pool, int32_t block);
void pool_window_ref(kvf_pool *pool, int32_t window);
void pool_window_unref(kvf_pool *pool, int32_t window, enum pool_leave why);
/* Publish a filled block; returns the block to list from now on: an existing equal one, or it. */
int32_t pool_publish_block(kvf_pool *pool, int32_t parent, int32_t block, uint64_t hash);
void pool_unpublish_block(kvf_pool *pool, int32_t block);
void pool_publish_window(kvf_pool *pool, int32_t block, int32_t window, enum pool_kind kind);
void pool_unpublish_window(kvf_pool *pool, int32_t window);
/* A request resumed at the window: hit counts and the shared hold. */
void pool_window_resume(kvf_pool *pool, int32_t window);
void pool_window_resume_end(kvf_pool *pool, int32_t window);
/* A window of this kind was made. */
void pool_count_made(kvf_pool *pool, enum pool_kind kind);
/* First-hit rate of a kind of window. */
double pool_kind_rate(const kvf_pool *pool, enum pool_kind kind);

/* ---- policies and stores ---- */

extern const struct pool_store pool_arena, pool_fixed;
extern const struct pool_policy pool_tree, pool_shared_policy;
void pool_arena_open(kvf_pool *pool);
void pool_fixed_open(kvf_pool *pool);
bool pool_shared_check(const kvf_pool *pool, kvf_error *error);
bool pool_tree_check(const kvf_pool *pool, kvf_error *error);

/* ---- sequences ---- */

/* The sequence behind a handle, or null and an error. */
struct pool_sequence *pool_sequence_get(kvf_pool *pool, kvf_sequence handle, kvf_error *error);
kvf_sequence pool_sequence_handle(const kvf_pool *pool, const struct pool_sequence *sequence);

/* Which windows a step backs besides those that the next token reads: none, or all checkpoints. */
enum pool_back { POOL_BACK_LEAN, POOL_BACK_CHECKPOINTS };

/* What a step from `computed` to `end` takes, windows and snapshots (blocks are not counted). */
struct pool_need pool_step_need(const kvf_pool *pool, const struct pool_sequence *sequence,
                                uint32_t end, enum pool_back back);
/* Take it. The room must have been made. */
void pool_step_take(kvf_pool *pool, struct pool_sequence *sequence, uint32_t end,
                    enum pool_back back);
uint32_t pool_chunk_stop(const kvf_pool *pool, const struct pool_sequence *sequence, uint32_t end);
/* Append fresh blocks until `count` are listed. */
void pool_step_append(kvf_pool *pool, struct pool_sequence *sequence, uint32_t count);
/* Publish what is complete up to `limit` tokens. */
void pool_step_publish(kvf_pool *pool, struct pool_sequence *sequence, uint32_t limit);
void pool_publish_checkpoint(kvf_pool *pool, struct pool_sequence *sequence, uint32_t position,
                             enum pool_kind kind);
/* First window block that a sequence with `computed` tokens may still read. */
uint32_t pool_first_window(const kvf_pool *pool, uint32_t computed);
/* Window blocks that a sequence holds at most between steps: those that a token reads, with slack.
 */
uint32_t pool_reach_blocks(const kvf_pool *pool);
/* The tables changed from this entry on (see tables.c). */
void pool_mark_blocks(struct pool_sequence *sequence, uint32_t from);
void pool_mark_windows(struct pool_sequence *sequence, uint32_t from);
/* The id of a known token, by position. */
int32_t *pool_sequence_token(const kvf_pool *pool, const struct pool_sequence *sequence,
                             uint32_t position);

/* The parts of a window's snapshot. */
void pool_snapshot_ids(const kvf_pool *pool, int32_t window, kvf_snapshot *out);

/*
 * From one window block or block to the next. Under `static` they lie as in the arena's chunks and
 * envelopes, so that the manifest's offsets hold; without an arena, and under `shared`, packed.
 */
static inline uint64_t pool_window_stride(const kvf_pool *pool) {
    const struct pool_geometry *g = &pool->geometry;
    return pool->store && g->chunk_bytes ? g->chunk_bytes : g->window_bytes;
}

static inline uint64_t pool_block_stride(const kvf_pool *pool) {
    const struct pool_geometry *g = &pool->geometry;
    return pool->store && g->envelope_bytes ? g->envelope_bytes : g->block_bytes;
}

static inline uint32_t pool_blocks_of(const kvf_pool *pool, uint32_t tokens) {
    return tokens / pool->geometry.block + (tokens % pool->geometry.block != 0);
}

#endif
