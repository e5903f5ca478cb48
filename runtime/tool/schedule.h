/*
 * A small continuous-batching scheduler for the demo: prompts are cut into chunks that share
 * batches with other requests' decode steps, finished requests give their slots to waiting ones.
 */
#ifndef KVF_TOOL_SCHEDULE_H
#define KVF_TOOL_SCHEDULE_H

#include "batch.h"

#define SCHEDULE_SLOTS     8
#define SCHEDULE_REQUESTS  14
#define SCHEDULE_DECODE    16  /* steps after each prompt */
#define SCHEDULE_LONGEST   300 /* tokens of a prompt */
#define SCHEDULE_POSITIONS (SCHEDULE_LONGEST + SCHEDULE_DECODE)

struct schedule_request {
    uint32_t prompt, done; /* tokens */
    int32_t slot;          /* -1: waiting or finished */
};

struct schedule {
    struct schedule_request requests[SCHEDULE_REQUESTS];
    uint32_t waiting;                   /* index of the first that waits */
    uint32_t steps, decode_steps;       /* steps so far; those of decode tokens only */
    uint32_t tokens, padding;           /* so far */
    int32_t reset[SCHEDULE_REQUESTS];   /* slots that were given back before this step */
    uint32_t reset_count, slots_reused; /* how many now; admissions into a used slot so far */
    uint32_t used;                      /* bit s: slot s has been used before */
    uint32_t who[BATCH_REQUESTS];       /* the number of each request of the batch */
};

void schedule_init(struct schedule *schedule);

/*
 * The next step: give finished requests' slots back (into `reset`), take slots for waiting ones,
 * and fill `batch`. `*more` becomes false when everything is done and the batch is empty. False,
 * with a message, if the cache refuses a slot it should have.
 */
bool schedule_step(struct schedule *schedule, kvf_cache *cache, struct batch *batch, bool *more);

#endif
