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

/* A kernel of a layer type, and what became of it. */
struct demo_kernel {
    bool present; /* the bundle has it */
    struct call call;
    uint64_t work;     /* tokens times layers, or slots times layers */
    uint64_t changed;  /* bytes the reference wrote */
    int64_t executed;  /* warp instructions, or -1 where the driver does not count */
    uint64_t compared; /* bytes */
    bool differs;
};

struct demo_type {
    kvf_type_info info;
    struct ref_type rules;
    uint32_t layers[DEMO_LAYERS], driven; /* numbers within the type */
    struct buffer rope, weight;           /* tables on the device and here */
    struct demo_kernel swa_write, state_reset;
};

struct demo {
    struct session session;
    kvf_cache *cache;
    struct mirror mirror;
    struct demo_type types[DEMO_TYPES];
    struct batch batch;
    uint64_t random;
};

/* Each runs the kernel on one layer (or, for a reset, all layers) of a type, and its reference on
 * the image. False if the driver refused something. */
bool demo_swa_write(struct demo *demo, uint32_t type, uint32_t layer_of_type,
                    const struct batch_device *batch);
bool demo_state_reset(struct demo *demo, uint32_t type, const int32_t *slots, uint32_t count);

#endif
