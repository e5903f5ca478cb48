/* Running a kernel over a grid, on as many threads as the configuration says. */
#ifndef EXECUTOR_LAUNCH_H
#define EXECUTOR_LAUNCH_H

#include "exec.h"

struct launch_totals {
    uint64_t blocks, warp_instructions, lane_instructions;
};

/*
 * Fill in the launch's remaining fields and run it to its end. Returns a CUresult: 0, or what the
 * first finding that fails a launch stands for. The caller holds the context's lock.
 */
int launch_run(struct launch *launch, struct launch_totals *totals);

#endif
