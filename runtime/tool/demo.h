/* What the parts of the demo share: the driven layers, the state cache and its image. */
#ifndef KVF_TOOL_DEMO_H
#define KVF_TOOL_DEMO_H

#include "batch.h"
#include "call.h"
#include "input.h"
#include "mirror.h"

#define DEMO_TYPES 8
#define DEMO_LAYERS                                                                                \
    3 /* of each type: the first, one in the middle, the last (draft layers too)                   \
       */

/* The kernels that the demo drives, in step order; a reset comes between steps. */
enum demo_job {
    DEMO_SWA_WRITE,
    DEMO_TAIL_APPEND,
    DEMO_INDEX_TAIL_APPEND,
    DEMO_STATE_RESET,
    DEMO_JOBS
};
extern const char *const demo_job_names[DEMO_JOBS];

/* A kernel of a layer type, and what became of it. */
struct demo_kernel {
    bool present; /* the bundle has it */
    struct call call;
    uint64_t work;     /* tokens times layers, or slots times layers */
    int64_t executed;  /* warp instructions, or -1 where the driver does not count */
    uint64_t compared; /* bytes */
    bool differs;
};

struct demo_type {
    kvf_type_info info;
    struct ref_type rules;
    uint32_t layers[DEMO_LAYERS], driven; /* numbers within the type */
    struct buffer rope, weight;           /* tables on the device and here */
    struct buffer ape, index_ape;         /* empty for types without a compressor or indexer */
    struct demo_kernel kernels[DEMO_JOBS];
};

struct demo {
    struct session session;
    kvf_cache *cache;
    struct mirror mirror;
    struct demo_type types[DEMO_TYPES];
    struct batch batch;
    uint64_t random;
};

/*
 * Run a job on one layer of a type: the kernel on the cache, its reference on the image. False if
 * the driver refused something. Not for resets.
 */
bool demo_run(struct demo *demo, uint32_t type, enum demo_job job, uint32_t layer_of_type,
              const struct batch_device *batch);

/* The same for a reset of slots, in all layers of the type; the arrays it resets are compared. */
bool demo_state_reset(struct demo *demo, uint32_t type, const int32_t *slots, uint32_t count);

#endif
