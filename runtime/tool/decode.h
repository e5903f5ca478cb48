/*
 * kvforge-run decode: requests served through whole steps on the pool in many ways, and every
 * attention output compared with what the same token gets when its text is computed alone, in one
 * chunk, without a cache; and that with a dense reference.
 *
 *   decode.c        the command: which runs, the table
 *   decode_texts.c  the requests' tokens, and a store of outputs
 *   decode_serve.c  a small scheduler: chunks, drafts, preemption, forks
 *   decode_dense.c  the dense reference over full histories
 *   decode_jobs.c   ways of serving that are compared as a whole, in processes of their own
 *   decode_flash.c  a long context at true geometry
 */
#ifndef KVF_TOOL_DECODE_H
#define KVF_TOOL_DECODE_H

#include "step.h"

#include <stdio.h>

enum { DECODE_TEXTS = 6, DECODE_FORK = DECODE_TEXTS - 1, DECODE_LIVE = 4 };

/* A request's whole text: the prompt, then what the model would answer. */
struct decode_text {
    int32_t *ids;
    uint32_t count, prompt;
    uint32_t given;        /* tokens behind the prompt that are known to whoever drafts them */
    uint32_t from, shared; /* the first tokens are those of another text */
    uint32_t arrival;      /* step */
};

/* Outputs of every token and driven layer, and what an indexer chose. */
struct decode_store {
    uint32_t layers, tokens;          /* of all texts */
    uint32_t first[DECODE_TEXTS + 1]; /* a text's first token */
    uint64_t offset[STEP_LAYERS + 1]; /* of a layer in a token's record */
    uint32_t topk[STEP_LAYERS];
    uint8_t *bytes;                     /* [tokens] records */
    int32_t *chosen[STEP_LAYERS];       /* [tokens][topk] */
    int32_t *chosen_count[STEP_LAYERS]; /* [tokens] */
};

/* One line of the table. */
struct decode_line {
    uint64_t tokens, bytes, differ; /* tokens compared; those that differ */
    uint64_t layers;
    bool impossible; /* under this model */
    char first[96];  /* where the first difference is */
};

/* What a token of a serving run went through. */
enum decode_way {
    DECODE_CHUNKS,    /* a chunk of a prompt */
    DECODE_STEPS,     /* a decode step that reads the window's place itself */
    DECODE_GRAPH,     /* a decode step that was a graph's replay */
    DECODE_BATCH,     /* together with other requests */
    DECODE_RESUMED,   /* after a prefix that was cached */
    DECODE_PREEMPTED, /* after the request had been preempted */
    DECODE_FORKED,    /* after a fork: the child's, and its parent's */
    DECODE_LENT,      /* reading memory that had served in another role */
    DECODE_ALL,
    DECODE_WAYS
};

struct decode_run {
    struct decode_line ways[DECODE_WAYS];
    uint32_t steps, preempted, rejected, forks;
    uint64_t hit_tokens, launches, saved, restored;
    uint32_t role_changes, replays;
    kvf_pool_stats stats;
};

struct decode {
    struct session *session;
    struct decode_text texts[DECODE_TEXTS];
    struct decode_store store;
    uint32_t longest; /* tokens of a text */
};

bool decode_texts(struct decode *decode, uint64_t seed);
void decode_free(struct decode *decode);

/* Every text alone, in one chunk, without a cache: fills the store. */
bool decode_alone(struct decode *decode);

/* Write the store, and read what was written for the same model and texts. */
bool decode_write(const struct decode *decode, FILE *file);
bool decode_read(struct decode *decode, FILE *file);

/* Keep, or compare, the outputs of the last step's token. `text` and `position` name it. */
void decode_keep(struct decode *decode, const struct step *step, uint32_t token, uint32_t text,
                 uint32_t position);
/* The bytes compared; `*layer` is the first one that differs, or -1. */
uint64_t decode_compare(const struct decode *decode, const struct step *step, uint32_t token,
                        uint32_t text, uint32_t position, int *layer);

/* What to serve: so many rounds, each in another order; all texts, or four of them. */
struct decode_load {
    uint32_t rounds;
    bool four;
};
/* Serve under the options (pool options are completed); false if something broke. */
bool decode_serve(struct decode *decode, const struct step_options *options,
                  struct decode_load load, struct decode_run *out);

/* On the arena: `more` chunks beyond what the longest text needs alone. */
bool decode_serve_elastic(struct decode *decode, uint32_t more, bool permute,
                          struct decode_load load, struct decode_run *out);

/* ---- ways of serving that are compared as a whole ---- */

enum decode_job { DECODE_PERMUTED, DECODE_STATIC, DECODE_SHARED, DECODE_SCHEDULED, DECODE_JOBS };
enum { DECODE_WORKERS = 2 };

/* False if it broke; `impossible` if the row format does not allow it. */
bool decode_job_run(struct decode *decode, enum decode_job job, struct decode_line *out);

/*
 * A process that waits for the store and then runs its jobs beside the others. It must be started
 * before any driver is loaded: the executor reads its seed once.
 */
struct decode_worker {
    int pid, go, result;
    const enum decode_job *jobs;
    uint32_t job_count;
};
struct decode_workers {
    struct decode_worker list[DECODE_WORKERS];
    FILE *store;
};
bool decode_workers_start(const struct options *options, struct decode_workers *out);
bool decode_workers_go(const struct decode *decode, struct decode_workers *workers);
/* Wait for all lines. */
bool decode_workers_finish(struct decode_workers *workers, struct decode_line lines[DECODE_JOBS]);
/* End those that were never told to go, and wait for the others. */
void decode_workers_stop(struct decode_workers *workers);

/*
 * Against the dense reference: how many numbers lie outside its bound, and whether the differences
 * have the size that roundings have (1; more than DECODE_DENSE_SIZE is something else).
 */
#define DECODE_DENSE_SIZE 1.1
struct decode_dense {
    uint64_t tokens, numbers, outside, selections, bad_selections;
    double worst;   /* the largest difference over its bound */
    double mean;    /* of the bounds, summed */
    double squares; /* of the differences over their expected size, summed */
};
void decode_dense_add(struct decode_dense *sum, const struct decode_dense *part);
double decode_dense_size(const struct decode_dense *dense);
bool decode_dense_holds(const struct decode_dense *dense);
bool decode_check_dense(struct decode *decode, struct decode_dense *out);

/* The dense side of one layer: prepare rows of positions 0..count-1, then ask for tokens. */
struct decode_history;
struct decode_history *decode_history_open(struct session *session, uint32_t layer,
                                           const int32_t *ids, uint32_t count);
void decode_history_close(struct decode_history *history);
void decode_history_check(struct decode_history *history, uint32_t position, const uint8_t *output,
                          const int32_t *chosen, uint32_t chosen_count, struct decode_dense *out);

bool decode_flash(struct session *session);

#endif
