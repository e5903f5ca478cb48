/*
 * Findings: what the checks have to say. Each is printed once, at its first occurrence; later ones
 * at the same operation are counted. Thread-safe.
 */
#ifndef EXECUTOR_REPORT_H
#define EXECUTOR_REPORT_H

#include <pthread.h>
#include <stdio.h>

#include "exec.h"

enum finding_kind {
    FINDING_BOUNDS,
    FINDING_FREED,
    FINDING_MISALIGNED,
    FINDING_READ_ONLY,
    FINDING_UNINITIALISED_BRANCH,
    FINDING_UNINITIALISED_ADDRESS,
    FINDING_UNINITIALISED_STORE,
    FINDING_SHUFFLE,
    FINDING_WARP_MASK,
    FINDING_DIVERGENT_BARRIER,
    FINDING_BARRIER,
    FINDING_DEADLOCK,
    FINDING_STEPS,
    FINDING_RACE_SHARED,
    FINDING_RACE_GLOBAL,
    FINDING_ASYNC,
    FINDING_MBARRIER,
    FINDING_STACK,
    FINDING_CALL,
    FINDING_ASSERT,
    FINDING_LEAK,
    FINDING_COUNT
};

struct finding_entry;

struct reporter {
    pthread_mutex_t lock;
    FILE *file;
    bool owned, json;
    bool show_notes; /* in a report file, or when asked for; on stderr they are only counted */
    struct finding_entry *entries;
    uint64_t findings, occurrences, notes;
    char last[1024]; /* the newest finding's first line, for kvfExecutorLastFinding */
};

struct config;
bool reporter_start(struct reporter *reporter, const struct config *config);
void reporter_stop(struct reporter *reporter);
/* Print how often each finding came again since the last call. */
void reporter_fold(struct reporter *reporter);

/*
 * Report about one lane of a running warp at operation `o`. A `result` other than 0 makes the
 * launch fail with it; fatal kinds also stop it at once. `other`, 0 or the second operation's
 * number + 1, tells findings at one place apart.
 */
__attribute__((format(printf, 7, 8))) void report_lane(struct warp *warp, const struct op *o,
                                                       uint32_t lane, enum finding_kind kind,
                                                       uint32_t other, const char *details,
                                                       const char *format, ...);
/* A finding without a running warp, such as a leak. */
__attribute__((format(printf, 3, 4))) void
report_plain(struct reporter *reporter, enum finding_kind kind, const char *format, ...);
/* A remark that is no finding: classified as harmless, printed once, the launch goes on. */
__attribute__((format(printf, 6, 7))) void report_note(struct warp *warp, const struct op *o,
                                                       uint32_t lane, enum finding_kind kind,
                                                       uint32_t other, const char *format, ...);

/* The number of an operation in the running function. */
uint32_t op_number(const struct warp *warp, const struct op *o);
/* undefined.c: where an undefined value in a register came from, as text. */
void undefined_origin(const struct warp *warp, int32_t slot, char *text, size_t bytes);
void undefined_predicate_origin(const struct warp *warp, int32_t index, char *text, size_t bytes);

#endif
