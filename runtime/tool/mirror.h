/* A state cache's arrays on the device, and an image on the host of what each must hold. */
#ifndef KVF_TOOL_MIRROR_H
#define KVF_TOOL_MIRROR_H

#include "buffer.h"

#define MIRROR_NAME 24

/* One array of one layer type, over all its layers. */
struct mirror_array {
    uint32_t type;
    char name[MIRROR_NAME];
    kvf_address base;                   /* of layer 0 of the type */
    uint64_t slot_stride, layer_stride; /* bytes */
    uint64_t bytes;                     /* all layers */
    uint8_t *image;
};

struct mirror {
    struct session *session;
    struct mirror_array *arrays;
    size_t count;
    uint64_t bytes; /* of all arrays */
};

/*
 * Find all arrays of the cache and fill the images with their initial values. False, with a
 * message, if the arrays do not add up to the cache's bytes: then something would go unchecked.
 */
bool mirror_create(struct session *session, const kvf_cache *cache, struct mirror *out);
void mirror_destroy(struct mirror *mirror);

/* An array of a type, or null. */
struct mirror_array *mirror_find(const struct mirror *mirror, uint32_t type, const char *name);

/* Compare one layer of an array; false if the device could not be read. */
bool mirror_compare(const struct mirror *mirror, const struct mirror_array *array,
                    uint32_t layer_of_type, struct difference *out);

#endif
