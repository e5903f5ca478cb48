/*
 * Races. A cell is 4 bytes. For each the last writer and the readers since are remembered:
 *
 *  - shared memory: by thread, with the block's barrier epoch and the warp's own epoch. Two
 * accesses of different threads, one a write, race when no barrier of the block lies between them;
 * within a warp, when none of its .sync operations does either. An asynchronous copy is looked at
 * twice: against what came before when it is issued, and as a write when it is waited for.
 *  - global memory: by block. Two accesses of different blocks in one launch, one a write, race
 *    unless the first block released (an atomic or release after a fence) what the second acquired
 *    (by an atomic, volatile or acquire access) in between. Order within a block is not looked at.
 *
 * Atomic accesses do not race with each other. A write of the value that the other writer wrote is
 * remarked upon, not reported.
 */
#ifndef EXECUTOR_RACES_H
#define EXECUTOR_RACES_H

#include "access.h"

enum { RACE_CELLS = 64, RACE_SEGMENTS = 16, RACE_PAGE_BYTES = 4 * RACE_CELLS * RACE_SEGMENTS };

/*
 * The cells of 256 bytes of global memory, behind a lock of their own, so that blocks on different
 * threads meet only where their data does. What several blocks have read and none has written stays
 * so until somebody writes; such cells are marked as settled, and reading them once more takes no
 * lock.
 */
struct race_segment {
    _Alignas(64) int lock;
    uint64_t launch;                                 /* that the rest is about */
    uint64_t settled;                                /* one bit a cell */
    uint32_t writer[RACE_CELLS], reader[RACE_CELLS]; /* block + 1; readers: bit 31 for several */
    uint32_t write_op[RACE_CELLS], read_op[RACE_CELLS];
    uint32_t write_time[RACE_CELLS], read_time[RACE_CELLS];
    uint8_t write_bytes[RACE_CELLS]; /* which of the four; bit 7: atomic */
    struct race_narrow *narrow;      /* null until an access to less than a cell */
};

/* Of halves of cells: who read them, and who wrote the half that the last writer did not. */
struct race_narrow {
    uint64_t launch;
    uint32_t writer[RACE_CELLS], write_op[RACE_CELLS], write_time[RACE_CELLS];
    uint32_t reader[2 * RACE_CELLS], read_op[2 * RACE_CELLS], read_time[2 * RACE_CELLS];
    uint8_t write_bytes[RACE_CELLS];
};

struct race_page {
    struct race_segment segments[RACE_SEGMENTS];
};

/* Readers of whole cells, and apart from them, as halves of a cell may be different threads' data,
 * readers of less; the latter is null until there is one, and counts in epoch `halves_used`. */
struct race_readers {
    uint32_t *epoch, *key, *op;
};

struct race_write {
    uint32_t epoch, key, op;
    uint8_t bytes; /* as in race_segment */
};

struct race_shared {
    uint64_t cells;
    uint32_t *write_epoch, *write_key, *write_op;
    struct race_readers read, half;
    uint32_t halves_used;
    uint8_t *write_bytes;
    /* The last write but one, where the last left some of it; null until there is one. */
    struct race_write *displaced;
    uint32_t displaced_used; /* the epoch */
};

/* What a launch remembers of synchronisation between its blocks. */
enum { CLOCK_START = 1 };

struct race_clock {
    uint32_t now;       /* advances at every release */
    uint32_t *released; /* by block: when it last released; null when out of memory */
    uint64_t blocks;
};

bool race_block_new(struct block *block);
void race_launch_start(struct launch *launch);
void race_launch_stop(struct launch *launch);
/* A fence of device scope by this block: atomics after it release what came before. */
void race_fence(struct warp *w);
void race_forget(struct region *region);

#endif
