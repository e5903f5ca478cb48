/* What the environment says (KVF_EXECUTOR_*), read once at cuInit. docs/executor.md lists all. */
#ifndef EXECUTOR_CONFIG_H
#define EXECUTOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum tensor_model { TENSOR_BY_TARGET, TENSOR_SM80, TENSOR_SM89, TENSOR_SM90, TENSOR_SM100 };

struct config {
    uint64_t seed;                          /* KVF_EXECUTOR_SEED: 0 keeps the natural order */
    uint32_t threads;                       /* KVF_EXECUTOR_THREADS */
    int driver_version;                     /* KVF_EXECUTOR_DRIVER_VERSION, 13000 */
    int capability_major, capability_minor; /* KVF_EXECUTOR_CAPABILITY, 9.0 */
    uint64_t memory_bytes;                  /* KVF_EXECUTOR_MEMORY_MB */
    uint64_t step_limit; /* KVF_EXECUTOR_STEPS: warp instructions of one block, 0: no limit */
    const char *report;  /* KVF_EXECUTOR_REPORT: a file; null is stderr */
    bool notes;          /* KVF_EXECUTOR_NOTES: show harmless patterns on stderr too */
    bool json;           /* KVF_EXECUTOR_FORMAT=json */
    int exit_status;     /* KVF_EXECUTOR_EXIT: status of a program that had findings, 0: leave it */
    bool check_uninitialised, check_races, check_warp, check_async, check_leaks;
    bool count;               /* KVF_EXECUTOR_COUNTERS */
    const char *counters;     /* file for the counters at exit, or null */
    enum tensor_model tensor; /* KVF_EXECUTOR_TENSOR: sm_80, sm_89, sm_90, sm_100 */
    bool summary;             /* KVF_EXECUTOR_SUMMARY: say at exit what was executed */
    const char *fail; /* KVF_EXECUTOR_FAIL: "cuMemAlloc_v2:3:2" fails the third call with code 2 */
    bool no_device;   /* KVF_EXECUTOR_DEVICES=0 */
};

/* Fill from the environment. False when a value makes no sense; `why` then names it. */
bool config_read(struct config *config, char *why, uint64_t why_bytes);

#endif
