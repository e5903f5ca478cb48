/*
 * The CUDA C twin of a kernel, bench/cuda/swa_write.cu, compiled by NVIDIA's compilers: by NVRTC in
 * a process of its own, so that its memory is its own, and by nvcc.
 */
#ifndef KVF_BENCH_TWIN_H
#define KVF_BENCH_TWIN_H

#include <jansson.h>
#include <stdbool.h>

#include "process.h"
#include "sample.h"

#define TWIN_SOURCE "bench/cuda/swa_write.cu"
#define TWIN_ENTRY  "swa_write"

enum twin_form { TWIN_HEADERS, TWIN_PLAIN, TWIN_FORMS };

const char *twin_form_name(enum twin_form form);

enum { TWIN_OPTIONS = 16 };

/* Compiler options that make the twin compute what the bundle's kernel computes. */
struct twin_options {
    int count;
    const char *text[TWIN_OPTIONS];
    char buffer[TWIN_OPTIONS][96];
    char include[4096]; /* where the toolkit's headers are; nvcc knows that by itself */
    char self[512];     /* this program */
};

/* From a bundle's manifest, for layer type `type`. False if that type has another kind of row than
 * the twin. */
bool twin_options(const json_t *manifest, const char *type, struct twin_options *out);

/* Whether the toolkit's headers are where NVRTC is told to look for them. */
bool twin_has_headers(const struct twin_options *options);

/* Times of one compiler: milliseconds a compilation, MB of its process. */
struct twin_times {
    struct sample first_wall, first_cpu, wall, cpu, peak;
};

/*
 * Compile `compilations` times by NVRTC in one new process (this program with TWIN_CHILD as its
 * first argument) and write the last PTX to `ptx`. Adds to `times`.
 */
bool twin_nvrtc(enum twin_form form, const struct twin_options *options, int compilations,
                const char *ptx, int core, const char *scratch, struct twin_times *times);

/* NVRTC's version as text, or why there is none; false then. Loads it in such a process: what this
 * process holds in memory would count as its children's. */
bool twin_nvrtc_version(const struct twin_options *options, const char *scratch, char *text,
                        size_t bytes);

/* The argv of that process: `argv` holds TWIN_ARGS words, `count` room for a number. */
enum { TWIN_ARGS = TWIN_OPTIONS + 16 };
void twin_nvrtc_argv(enum twin_form form, const struct twin_options *options, int compilations,
                     const char *ptx, char count[16], const char *argv[TWIN_ARGS]);

/* What main() does when its first argument is TWIN_CHILD; returns the exit status. */
#define TWIN_CHILD "--nvrtc"
int twin_child(int argc, char **argv);

/* One `nvcc -ptx` as a process; times are the whole process's. */
bool twin_nvcc(const char *nvcc, enum twin_form form, const struct twin_options *options,
               const char *ptx, int core, const char *scratch, struct twin_times *times);

#endif
