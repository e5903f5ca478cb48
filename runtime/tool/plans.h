/* Batches that a kernel with a ring must get right, whatever it writes. */
#ifndef KVF_TOOL_PLANS_H
#define KVF_TOOL_PLANS_H

#include "batch.h"

#define PLAN_SLOTS 8

struct plan_space {
    uint32_t ring;      /* rows of a slot */
    uint32_t positions; /* positions from here on are out of range, if the kernel has a table */
    uint64_t *random;
};

/* A ring this long is tried with batches of up to 2 * ring + 3 tokens. */
#define PLAN_LONGEST_RING ((BATCH_TOKENS - 16) / 2)

/* The plan of many requests with padding, in random slots at random positions. */
#define PLAN_MANY 6

size_t plan_count(void);
const char *plan_name(size_t plan);
void plan_build(size_t plan, const struct plan_space *space, struct batch *batch);

/* A batch for one kind of number: two requests, one of them across the ring's end. */
void plan_numbers(const struct plan_space *space, struct batch *batch);

#endif
