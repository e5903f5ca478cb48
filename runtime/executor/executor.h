/*
 * What the executor exports besides the Driver API. A program finds these by dlsym in the library
 * that it uses as libcuda.so.1; a real driver does not have them.
 */
#ifndef KVF_EXECUTOR_H
#define KVF_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Totals since the process began, of everything that ran. `size` is sizeof as the caller knows it.
 */
typedef struct kvfExecutorStatistics {
    size_t size;
    uint64_t launches;          /* kernels started, graph nodes included */
    uint64_t blocks;            /* blocks run to their end */
    uint64_t warp_instructions; /* operations, once per group of lanes that executes them */
    uint64_t lane_instructions; /* the same, times the lanes that took part */
    uint64_t findings;          /* distinct findings of the checks */
    uint64_t occurrences;       /* all of them, repeated ones too */
    uint64_t notes;             /* harmless patterns that were classified as such */
} kvfExecutorStatistics;

/* Fills at most out->size bytes. Returns 0, or 1 when `out` is null or its size is too small. */
int kvfExecutorStats(kvfExecutorStatistics *out);

/* Classes of instructions, as the fields class_warps and class_lanes count them. */
enum {
    KVF_CLASS_INTEGER,
    KVF_CLASS_FLOAT,
    KVF_CLASS_CONVERT,
    KVF_CLASS_MOVE,
    KVF_CLASS_LOAD,
    KVF_CLASS_STORE,
    KVF_CLASS_ATOMIC,
    KVF_CLASS_CONTROL,
    KVF_CLASS_BARRIER,
    KVF_CLASS_WARP,
    KVF_CLASS_TENSOR,
    KVF_CLASS_ASYNC,
    KVF_CLASSES
};

/*
 * What all launches of one kernel did. Exact, and the same at every run. Counted only when
 * KVF_EXECUTOR_COUNTERS is set, or after kvfExecutorCount(1).
 */
typedef struct kvfExecutorKernel {
    size_t size; /* sizeof as the caller knows it */
    char name[128];
    uint64_t launches, blocks, threads;
    uint64_t warp_instructions; /* those with no active lane included */
    uint64_t lane_instructions;
    uint64_t class_warps[KVF_CLASSES], class_lanes[KVF_CLASSES];
    uint64_t global_loads, global_stores;           /* warp accesses; atomics count as stores */
    uint64_t global_load_bytes, global_store_bytes; /* what the lanes asked for */
    uint64_t sectors_moved;  /* 32-byte sectors of global memory that the accesses touch */
    uint64_t sectors_needed; /* the least that could hold the distinct bytes */
    uint64_t shared_accesses, shared_bytes;
    uint64_t bank_conflicts; /* passes beyond the first, over all shared accesses */
    uint64_t local_bytes;
    uint64_t tensor_macs;
} kvfExecutorKernel;

/* Count from now on (1) or no longer (0). Returns what was before. */
int kvfExecutorCount(int on);

/* Copies up to `count` kernels, in order of their first launch; returns how many there are. */
size_t kvfExecutorKernels(kvfExecutorKernel *list, size_t count);

/* The first line of the newest finding, or an empty string. Valid until the next finding. */
const char *kvfExecutorLastFinding(void);

/* The executor's version and the instruction set in use, such as "0.1.0 avx512". */
const char *kvfExecutorVersion(void);

#ifdef __cplusplus
}
#endif

#endif
