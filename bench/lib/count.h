/* Instructions a process executes: a measure that other load on the machine does not touch. */
#ifndef KVF_BENCH_COUNT_H
#define KVF_BENCH_COUNT_H

#include "process.h"

enum count_tool { COUNT_NONE, COUNT_PERF, COUNT_VALGRIND };

/*
 * `perf stat`, where the machine lets it count. Else, with `slow`, valgrind's cachegrind: it takes
 * about forty times as long as the run itself, and callgrind, which also follows calls, minutes for
 * a library as large as NVRTC. Else none.
 */
enum count_tool count_find(bool slow, const char *scratch);
const char *count_name(enum count_tool tool);

/* User-space instructions (children included only with perf); NaN if the tool or the run fails. */
double count_run(enum count_tool tool, const struct process *process, const char *scratch);

#endif
