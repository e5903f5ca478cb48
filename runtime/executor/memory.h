/*
 * Simulated memory. Device addresses come from a private range that no host pointer lies in. Every
 * allocation is a region with its own host memory, one bit of definedness a byte, and unmapped
 * space on both sides; freed regions stay known, so that a late access can be named.
 */
#ifndef EXECUTOR_MEMORY_H
#define EXECUTOR_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx.h"

#define DEVICE_BASE   ((uint64_t)1 << 48)
#define WINDOW_SHARED ((uint64_t)0x0001f00000000000) /* generic addresses of shared memory */
#define WINDOW_LOCAL  ((uint64_t)0x0001f10000000000)
#define WINDOW_PARAM  ((uint64_t)0x0001f20000000000)
#define WINDOW_BYTES  ((uint64_t)1 << 32)

struct race_page;

struct region {
    uint64_t base, bytes;
    uint8_t *host;
    uint8_t *defined; /* one bit a byte; null: all of it is */
    bool all_defined; /* every bit is set, so that nobody need look */
    bool fresh;       /* bits were set from outside since that was last found out */
    bool read_only, host_owned, freed, pinned_host;
    enum ptx_space space;
    uint32_t id;                        /* number of the allocation, from 1 */
    const char *name;                   /* of a module's variable, or null */
    _Atomic(struct race_page *) *races; /* by page of cells; null until first used */
    uint64_t race_launch;
};

struct memory {
    pthread_rwlock_t lock;
    struct region **live; /* by base */
    size_t count, capacity;
    struct region **freed; /* the latest, a ring */
    size_t freed_count, freed_at;
    uint64_t next, used_bytes, total_bytes;
    uint32_t next_id;
};

enum memory_result { MEMORY_OK, MEMORY_HOST_FULL, MEMORY_DEVICE_FULL, MEMORY_UNKNOWN };

bool memory_start(struct memory *memory, uint64_t total_bytes);
void memory_stop(struct memory *memory);
enum memory_result memory_allocate(struct memory *memory, uint64_t bytes, struct region **out);
/* Host memory of the caller that kernels may use at its own address (registered or pinned). */
enum memory_result memory_adopt(struct memory *memory, void *host, uint64_t bytes,
                                struct region **out);
enum memory_result memory_release(struct memory *memory, uint64_t base);
/* The live region that holds the address, or null. Any thread. */
struct region *memory_find(struct memory *memory, uint64_t address);
/* The freed region that held it last, or null; the nearest live one below or above, or null. */
struct region *memory_find_freed(struct memory *memory, uint64_t address);
struct region *memory_nearest(struct memory *memory, uint64_t address);

/* All of it is defined, and stays so whatever is written. */
void region_forget_definedness(struct region *region);
void region_define(struct region *region, uint64_t at, uint64_t bytes, bool defined);
bool region_is_defined(const struct region *region, uint64_t at, uint64_t bytes);
/* Find out whether all of it is defined, if that may have changed. */
void region_refresh(struct region *region);

#endif
