/* Running the warps of one block. */
#ifndef EXECUTOR_SCHEDULE_H
#define EXECUTOR_SCHEDULE_H

#include "exec.h"

/* A block with its warps and memory for launches of `launch`; null when out of memory. */
struct block *block_new(struct worker *worker);
/* Set it up as block number `linear` of the grid. */
void block_start(struct block *block, uint64_t linear);

enum block_state { BLOCK_DONE, BLOCK_BUSY, BLOCK_STOPPED };
/* Run it for at most about `fuel` operations. */
enum block_state block_run(struct block *block, uint64_t fuel);

struct frame *frame_new(struct worker *worker, const struct function *function);
void frame_reset(struct frame *frame);
void frame_free(struct worker *worker, struct frame *frame);
uint64_t worker_random(struct worker *worker);

#endif
