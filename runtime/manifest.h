/* Parts of reading a manifest, and the limits they hold to. Internal. */
#ifndef KVF_MANIFEST_H
#define KVF_MANIFEST_H

#include "bundle.h"
#include "json_reader.h"

/*
 * Limits that keep a hostile file from costing time or memory, and every product of two sizes
 * within 64 bits. Real bundles stay far below.
 */
enum {
    MANIFEST_TYPES = 64,
    MANIFEST_LAYERS = 4096,
    MANIFEST_PLACES = 8,
    MANIFEST_PLANES = 8,
    MANIFEST_FIELDS = 32,
    MANIFEST_ARRAYS = 64,
    MANIFEST_MODULES = 1024,
    MANIFEST_KERNELS = 64,
    MANIFEST_PARAMS = 128,
    MANIFEST_PARAMS_BYTES = 4096, /* what every CUDA driver passes to a kernel */
    MANIFEST_NAME = 64,           /* bytes of a name */
    MANIFEST_TEXT = 255,
    MANIFEST_DIM = 1 << 24 /* head_dim, window and the like */
};
#define MANIFEST_SIZE  ((uint64_t)1 << 40)  /* one size, offset or stride */
#define MANIFEST_BYTES ((uint64_t)16 << 20) /* manifest.json itself */
#define MANIFEST_PTX   ((uint64_t)64 << 20) /* one module */

/* A name: a letter or underscore, then letters, digits, "_", "-" or ".". */
const char *manifest_name(struct json_reader *r, const struct json_node *object, const char *key);

enum dtype manifest_dtype(struct json_reader *r, const struct json_node *object, const char *key);

/* A SHA-256 in hex; never null. */
const char *manifest_sha256(struct json_reader *r, const struct json_node *object, const char *key);

/* Fill bundle->types[index] from one object of `types`. */
void manifest_type(struct json_reader *r, struct kvf_bundle *bundle, uint32_t index,
                   const struct json_node *node);

/* Fill bundle->elastic from `arena`, where there is one. */
void manifest_arena(struct json_reader *r, struct kvf_bundle *bundle, const struct json_node *root);

/* Fill bundle->modules from the array `modules`. */
void manifest_modules(struct json_reader *r, struct kvf_bundle *bundle,
                      const struct json_node *root);

#endif
