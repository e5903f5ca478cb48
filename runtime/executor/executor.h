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

/* The first line of the newest finding, or an empty string. Valid until the next finding. */
const char *kvfExecutorLastFinding(void);

/* The executor's version and the instruction set in use, such as "0.1.0 avx512". */
const char *kvfExecutorVersion(void);

#ifdef __cplusplus
}
#endif

#endif
