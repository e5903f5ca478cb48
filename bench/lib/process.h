/* Other programs: finding them, running them, and what they took. */
#ifndef KVF_BENCH_PROCESS_H
#define KVF_BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

struct process_cost {
    double wall, cpu; /* ms; cpu is user and system time, children included */
    double peak; /* MB (10^6 bytes): the largest resident set of the process or a child of it */
};

/* What to run: a null-terminated argv, and where its two outputs go (null: /dev/null). */
struct process {
    const char *const *argv;
    const char *out, *err;
    const char *env; /* one more variable, "NAME=value", or null */
    int core;        /* the one core it may use; -1: any */
};

/* Run and wait. False if it could not be started, was killed, or did not end with 0. */
bool process_run(const struct process *process, struct process_cost *cost);

/* The first core this process may use, and how many those are. */
int process_core(int *cores);

/* A program of CUDA's toolkit, "ptxas": in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin. Writes its
 * path and returns true, or returns false. */
bool process_find(const char *name, char *path, size_t bytes);

/* $CUDA_HOME, or /usr/local/cuda. */
const char *process_cuda_home(void);

/* A new temporary directory (name of at most 64 bytes); its removal with everything in it. */
bool process_scratch(char name[64]);
void process_remove(const char *directory);

/* A whole file as text, a 0 behind it; the caller frees it. Null if it cannot be read. */
char *process_read(const char *path, size_t *bytes);

#endif
