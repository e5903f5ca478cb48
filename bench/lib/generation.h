/* What bench/generation.c measures, and its tables. */
#ifndef KVF_BENCH_GENERATION_H
#define KVF_BENCH_GENERATION_H

#include <jansson.h>

#include "count.h"
#include "twin.h"

/* The kernel that has a twin in CUDA C. */
#define GENERATION_TYPE   "swa"
#define GENERATION_KERNEL "swa_write"
#define GENERATION_ARCH   "sm_90"

enum { GENERATION_TYPES = 16 };

struct type_times {
    char name[32];
    int kernels;
    struct sample ms; /* a kernel */
};

struct generation {
    char scratch[64], kvforge[512], bundle[128], report[128];
    char nvcc[512], ptxas[512], nvrtc_version[512];
    bool has_nvrtc[TWIN_FORMS], has_nvcc, has_ptxas;
    int core, rounds, kernels, types;
    struct sample wall, cpu, peak, own; /* of the whole build; own: as the report says */
    struct type_times type[GENERATION_TYPES];
    struct twin_options options;
    struct twin_times nvrtc[TWIN_FORMS], nvcc_times[TWIN_FORMS];
    double count, nvrtc_count[TWIN_FORMS]; /* instructions of the build, of one compilation */
};

/* Where the PTX of a compiler ("nvrtc", "nvcc") and form lies. */
void generation_ptx(const struct generation *g, const char *compiler, int form, char name[128]);

/* Times and memory, a row a compiler, and how they stand against the targets. */
void generation_print_times(const struct generation *g);
void generation_print_targets(const struct generation *g);

/* Registers and instructions, by ptxas. */
void generation_print_code(const struct generation *g);

#endif
