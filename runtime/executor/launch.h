/* Running a kernel over a grid, on as many threads as the configuration says. */
#ifndef EXECUTOR_LAUNCH_H
#define EXECUTOR_LAUNCH_H

#include "counters.h"
#include "exec.h"

struct launch_totals {
    uint64_t blocks, warp_instructions, lane_instructions;
    struct counters counters; /* all zero when counting is off */
};

/* Add a launch's counters to those of the kernel (counters.c). The caller holds the driver's lock.
 */
void counters_add(const char *kernel, const struct launch *launch,
                  const struct launch_totals *totals);
/* Write all kernels' counters as JSON to a file. */
void counters_write(const char *path);
void counters_clear(void);

/*
 * Fill in the launch's remaining fields and run it to its end. Returns a CUresult: 0, or what the
 * first finding that fails a launch stands for. The caller holds the context's lock.
 */
int launch_run(struct launch *launch, struct launch_totals *totals);

#endif
