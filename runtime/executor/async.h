/*
 * Copies that complete later (cp.async). Until the wait that covers it, a copy's bytes are held
 * back and its destination counts as undefined, so that a missing wait shows. Each thread has its
 * own groups of copies.
 */
#ifndef EXECUTOR_ASYNC_H
#define EXECUTOR_ASYNC_H

#include "access.h"

struct async_copy {
    uint64_t at;    /* offset in the block's shared memory */
    uint32_t group; /* of its thread, counted from 0 */
    uint32_t known; /* one bit a byte */
    const struct op *op;
    uint8_t lane, bytes;
    uint8_t data[16];
};

struct async_state {
    struct async_copy *copies;
    uint32_t count, capacity;
    uint32_t committed[LANES]; /* groups so far */
};

/* Take up a copy of one lane; false when the host is out of memory. */
bool async_add(struct warp *w, const struct async_copy *copy);
void async_commit(struct warp *w, uint32_t lanes);
/* Complete every copy of these lanes but those of the newest `left` groups. */
void async_wait(struct warp *w, const struct op *o, uint32_t lanes, uint32_t left, bool all);
/* A block starts afresh. */
void async_reset(struct block *block);
/* How many copies of a lane are under way. */
uint32_t async_pending(const struct warp *w, uint32_t lane);

#endif
