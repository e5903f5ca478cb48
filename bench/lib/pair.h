/*
 * A kernel of the bundle and its version in CUDA C, on one full batch and the executor: the same
 * parameters, byte for byte, the same arrays; what each did, counted, and whether both computed the
 * same.
 */
#ifndef KVF_BENCH_PAIR_H
#define KVF_BENCH_PAIR_H

#include <jansson.h>

#include "tool/load.h"
#include "tool/timing.h"

enum { OURS, THEIRS, SIDES };

/* One extent of a grid: the parameter's value divided by `per`, rounded up; without a name: per. */
struct pair_extent {
    const char *param;
    unsigned per;
};

/* How the CUDA C version of a kernel is launched and how close its results must be. */
struct pair_job {
    const char *type, *kernel; /* ours: "csa", "swa_write" */
    const char *file, *entry;  /* theirs: "rows", "swa_write" */
    struct pair_extent grid[3];
    unsigned block, shared; /* threads; bytes of dynamic shared memory */
    /*
     * 0: every byte equal. Else rows of codes may differ in this share of their bytes, and numbers
     * by this much of the array's largest magnitude.
     */
    double tolerance;
};

struct pair_result {
    json_t *counters[SIDES]; /* see tool/counted.h; null on a GPU */
    double ms[SIDES];        /* medians, on a GPU */
    bool same;
    char said[128]; /* how well the results agree */
};

/*
 * Run both on a batch of so many requests (0: the profile's). `theirs` is the loaded module of
 * job->file. `timing`: take times; null: count. False with a message if one of them could not run;
 * else pair_free the result.
 */
bool pair_run(struct session *session, struct timing *timing, const struct pair_job *job,
              bool prefill, uint32_t requests, CUmodule theirs, struct pair_result *out);
void pair_free(struct pair_result *result);

#endif
