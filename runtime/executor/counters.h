/* What a worker counts of a launch when counting is on; see kvfExecutorKernel for the meaning. */
#ifndef EXECUTOR_COUNTERS_H
#define EXECUTOR_COUNTERS_H

#include "exec.h"

struct counters {
    uint64_t class_warps[CLASS_COUNT], class_lanes[CLASS_COUNT];
    uint64_t global_loads, global_stores, global_load_bytes, global_store_bytes;
    uint64_t sectors_moved, sectors_needed;
    uint64_t shared_accesses, shared_bytes, bank_conflicts;
    uint64_t local_bytes, tensor_macs;
};

/* total += part. */
void counters_sum(struct counters *total, const struct counters *part);
/* An operation that parked its lanes will be counted again. */
void counter_undo(struct worker *worker, const struct warp *w, uint32_t lanes);

#endif
