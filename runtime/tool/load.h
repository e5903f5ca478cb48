/*
 * Full-batch inputs for `kvforge-run profile`: what a busy server launches, so that what is counted
 * is the kernels' own work. Strides are the sizes of what they step over, rounded up to the
 * pointer's alignment; there is no padding, every table entry is backed, every row is written.
 */
#ifndef KVF_TOOL_LOAD_H
#define KVF_TOOL_LOAD_H

#include "session.h"

/* The last position of every request; in `prefill` a request brings this many tokens up to it. */
#define LOAD_LAST  4095
#define LOAD_CHUNK 256

/* What one kernel is given. A kernel has a decode launch, a prefill launch, or both. */
struct load {
    const char *kernel;
    uint32_t decode;  /* requests with one token each; 0: no such launch */
    uint32_t prefill; /* requests with LOAD_CHUNK tokens each; 0: no such launch */
    const char *unit; /* what its work is counted in */
};

/* The load of a kernel, or null if there is none for it. */
const struct load *load_find(const char *kernel);

/*
 * Launch a kernel of a layer type (info->name "common" and no sizes: rows_copy) once and wait.
 * `units` takes how many of load->unit were worked on. False with a message if something failed.
 */
bool load_run(struct session *session, const kvf_type_info *info, const struct load *load,
              bool prefill, uint64_t *units);

#endif
