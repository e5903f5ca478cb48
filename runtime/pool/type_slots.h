/*
 * The slots of the policy `shared`. Per layer type a tensor of slots, `block` rows each: a slot is
 * one window block or `ratio` compressed blocks. Slots 0..windows-1 exist in every type and form
 * one window space: a window holds the slot in all types. The slots beyond are the type's own. Ids:
 * window = slot; compressed = slot * ratio + sub, counted from row 0 of the tensor.
 *
 * A compressed block goes, in this order, to: the fullest open slot of the type's own, a free one
 * of its own, the fullest open slot that windows lent, a slot lent to another type already, the
 * window slot that has been free for longest. Before a window slot changes hands its cached content
 * is given up through the callback, before the id is returned.
 *
 * "Live" is what a sequence refers to; the rest is bound but can be unbound at any time.
 */
#ifndef KVF_POOL_TYPE_SLOTS_H
#define KVF_POOL_TYPE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"

enum { SLOTS_MAX_TYPES = 16 };

struct slots_slot {
    uint16_t used, live; /* subs bound; of those, live */
    struct pool_link link;
};

struct slots_type {
    uint32_t ratio;      /* blocks a slot holds */
    uint32_t own, count; /* own slots; all slots */
    uint32_t words;
    struct slots_slot *slots; /* [count] */
    uint64_t *masks;          /* [count][words]: subs bound */
    struct pool_list own_free, joint;
    struct pool_list *own_open, *lent_open; /* [ratio]: by occupancy */
    uint64_t *own_bits, *lent_bits;         /* which of them are not empty */
    uint64_t open_free;                     /* free subs in open slots */
    uint64_t capacity; /* blocks that fit without touching a window slot that nothing live uses */
};

struct slots_window {
    bool free;          /* neither a window nor any type holds it */
    bool held;          /* a window holds it */
    bool cached;        /* free, and the window's old content may still be there */
    bool lendable;      /* in the lendable list */
    uint8_t borrowers;  /* types that bound something in it */
    uint32_t live_subs; /* over all types */
    struct pool_link link, lend;
};

struct slots {
    uint32_t windows, types;
    struct slots_window *window; /* [windows] */
    struct slots_type type[SLOTS_MAX_TYPES];
    struct pool_list free;     /* window slots for windows, oldest first */
    struct pool_list lendable; /* those that were given back at least once */
    uint64_t idle;             /* window slots that nothing live uses */
    uint64_t held;             /* window slots that windows hold */
    void (*evicted)(void *who, int32_t window);
    void *who;
};

/* Ratios of the compressed types, and the blocks each must hold in slots of its own. */
bool slots_open(struct slots *slots, uint32_t windows, const uint32_t *ratios, const uint32_t *own,
                uint32_t types, bool all_lendable);
void slots_close(struct slots *slots);

/* Own slots for `blocks` blocks of a type: ceil(blocks / ratio). */
uint32_t slots_own(uint32_t blocks, uint32_t ratio);

/* A window slot; -1: none is free. */
int32_t slots_take_window(struct slots *slots);
/* Give it back with its content cached or not. False: it was not held. */
bool slots_give_window(struct slots *slots, int32_t window, bool cached);
/* Take a certain free slot, with its content. False: it is not free. */
bool slots_claim_window(struct slots *slots, int32_t window);
bool slots_window_free(const struct slots *slots, int32_t window);

/* One block of a type, live; -1: nothing is free. `borrow`: may an idle window slot be used? */
int32_t slots_take(struct slots *slots, uint32_t type, bool borrow);
/* False: it is not bound (a double free). */
bool slots_give(struct slots *slots, uint32_t type, int32_t block);
void slots_live(struct slots *slots, uint32_t type, int32_t block, bool live);
/* Blocks of a type that can be taken now. O(1). */
uint64_t slots_free(const struct slots *slots, uint32_t type);

/* Do `windows` windows and `blocks` blocks of every type fit, if all that is not live gives way?
 * Else how many window slots are missing. Windows are taken first. */
uint64_t slots_missing(const struct slots *slots, uint64_t windows, uint64_t blocks);

/* Every invariant; null, or what is broken. */
const char *slots_check(const struct slots *slots);

#endif
