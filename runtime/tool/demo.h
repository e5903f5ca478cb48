/* What the parts of the demo share: the driven layers, the state cache and its image. */
#ifndef KVF_TOOL_DEMO_H
#define KVF_TOOL_DEMO_H

#include "batch.h"
#include "call.h"
#include "input.h"
#include "mirror.h"
#include "schedule.h"

#define DEMO_TYPES 8
/* Driven layers of each type: the first, one in the middle, the last (draft layers too). */
#define DEMO_LAYERS 3

/* The kernels that the demo drives, in step order; a reset comes between steps. */
enum demo_job {
    DEMO_SWA_WRITE,
    DEMO_COMPRESS,
    DEMO_INDEX_COMPRESS,
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

/* Pages of a layer's compressed or index rows. */
struct demo_pages {
    struct buffer plane[REF_PLANES];
    uint64_t stride[REF_PLANES];
};

/* A type's compressor, or its indexer's. */
struct demo_compressor {
    bool index;
    uint32_t dim, columns;     /* of a row; of an input */
    struct ref_type stored;    /* the type, with the format and dim of the rows */
    struct buffer ape, weight; /* tables on the device and here */
    struct demo_pages pages[DEMO_LAYERS];
};

struct demo_type {
    kvf_type_info info;
    struct ref_type rules;
    uint32_t layers[DEMO_LAYERS], driven;  /* numbers within the type */
    struct buffer rope, weight;            /* tables on the device and here */
    struct demo_compressor compressors[2]; /* main, indexer; dim = 0: there is none */
    struct demo_kernel kernels[DEMO_JOBS];
};

/* What all launches of a step share. */
struct demo_step {
    struct batch_device batch;
    struct buffer write_from, table; /* per request: 0, and a row of page ids */
};

struct demo {
    struct session session;
    kvf_cache *cache;
    struct mirror mirror;
    struct demo_type types[DEMO_TYPES];
    struct batch batch;
    struct schedule schedule;
    uint64_t random;
};

/* All functions return false, with a message, if the driver refused something or memory is short.
 */

/* swa_write on the n-th driven layer: the kernel on the cache, its reference on the image. */
bool demo_swa_write(struct demo *demo, uint32_t type, uint32_t n, const struct demo_step *step);

/* The same for a reset of slots, in all layers of the type; the arrays it resets are compared. */
bool demo_state_reset(struct demo *demo, uint32_t type, const int32_t *slots, uint32_t count);

/* ---- demo_compressor.c ---- */

bool demo_compressor_open(struct demo *demo, uint32_t type, bool index);
void demo_compressor_close(struct demo *demo, struct demo_compressor *compressor);
/* compress, then tail_append, on the n-th driven layer, with the same values and scores. */
bool demo_compressor_run(struct demo *demo, uint32_t type, bool index, uint32_t n,
                         const struct demo_step *step);
/* Compare all pages of all driven layers. */
bool demo_compressor_prove(struct demo *demo, uint32_t type, bool index);

bool demo_step_open(struct demo *demo, struct demo_step *out);
void demo_step_close(struct demo *demo, struct demo_step *step);

/* ---- what both use (demo_kernels.c) ---- */

/* Set "<name>" and "<name>_stride" of a call to a layer's array of the state cache, and give back
 * its image for the reference. */
bool demo_bind(struct demo *demo, struct call *call, uint32_t type, uint32_t layer_of_type,
               const char *name, struct ref_array *out);
/* Set what a call takes of the batch, launch it, wait, and count tokens and instructions. */
bool demo_launch(struct demo *demo, struct demo_kernel *kernel, const struct demo_step *step);
/* `columns` numbers for each token of the batch, as a step's input. */
bool demo_input(struct demo *demo, const char *name, enum ref_dtype dtype, uint32_t columns,
                struct buffer *out, uint64_t *stride);
/* `count` weights around 1, uploaded. */
bool demo_weights(struct demo *demo, const char *name, size_t count, struct buffer *out);
struct ref_batch demo_batch(const struct demo *demo);

#endif
