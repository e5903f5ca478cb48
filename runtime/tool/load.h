/*
 * Full-batch inputs for `kvforge-run profile`: what a busy server launches, so that what is counted
 * is the kernels' own work. Strides are the sizes of what they step over, rounded up to the
 * pointer's alignment; there is no padding, every table entry is backed, every row is written.
 */
#ifndef KVF_TOOL_LOAD_H
#define KVF_TOOL_LOAD_H

#include "buffer.h"
#include "call.h"

/* The last position of every request; in `prefill` a request brings this many tokens up to it. */
#define LOAD_LAST  4095
#define LOAD_CHUNK 256

#define LOAD_ARRAYS 32

/* What one kernel is given. A kernel has a decode launch, a prefill launch, or both. */
struct load {
    const char *kernel;
    uint32_t decode;  /* requests with one token each; 0: no such launch */
    uint32_t prefill; /* requests with LOAD_CHUNK tokens each; 0: no such launch */
    const char *unit; /* what its work is counted in */
};

/* The load of a kernel, or null if there is none for it. */
const struct load *load_find(const char *kernel);

/* A launch that is ready: call_launch(session, &loaded.call), any number of times. */
struct loaded {
    struct call call;
    struct buffer array[LOAD_ARRAYS]; /* one for each pointer, in order, named like its parameter */
    uint32_t arrays;
    uint64_t units; /* of load->unit */
};

/*
 * Make the launch of a kernel of a layer type (info->name "common" and no sizes: rows_copy), for
 * `requests` requests; 0: as many as `load` says. What the kernel only writes is not uploaded. On
 * failure there is a message and nothing to free.
 */
bool load_make(struct session *session, const kvf_type_info *info, const struct load *load,
               bool prefill, uint32_t requests, struct loaded *out);
void load_free(struct session *session, struct loaded *loaded);

/*
 * Launch a kernel of a layer type (info->name "common" and no sizes: rows_copy) once and wait.
 * `units` takes how many of load->unit were worked on. False with a message if something failed.
 */
bool load_run(struct session *session, const kvf_type_info *info, const struct load *load,
              bool prefill, uint64_t *units);

#endif
