/*
 * What the commands need of a bundle's manifest beyond the library's interface: the numerical rules
 * of the model, which the references take, and the names of all kernels.
 */
#ifndef KVF_TOOL_MANIFEST_H
#define KVF_TOOL_MANIFEST_H

#include "kvforge.h"
#include "reference/reference.h"

struct manifest_kernel {
    char type[64], name[64], target[32];
};

struct manifest {
    struct ref_type rules; /* the model's part of it: dtypes, flags, norm_eps, page_align, block */
    bool paged;            /* window_mode */
    struct manifest_kernel *kernels;
    size_t kernel_count;
};

/* Read DIRECTORY/manifest.json; false with a message on stderr if it cannot be read. */
bool manifest_read(const char *directory, struct manifest *out);
void manifest_free(struct manifest *manifest);

/* The reference's view of a layer type; false with a message if its format is unknown. */
bool manifest_type(const struct manifest *manifest, const kvf_type_info *info,
                   struct ref_type *out);

#endif
