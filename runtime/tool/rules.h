/*
 * What the commands need of a bundle's manifest beyond the library's interface: the numerical rules
 * of the model, which the references take, and the names of all kernels.
 */
#ifndef KVF_TOOL_RULES_H
#define KVF_TOOL_RULES_H

#include "kvforge.h"
#include "reference/reference.h"

struct rules_kernel {
    char type[64], name[64], target[32];
};

/* The row format of a type's indexer. */
struct rules_index {
    char type[64], format[32];
};

struct rules {
    struct ref_type model; /* the model's part of it: dtypes, flags, norm_eps, page_align, block */
    bool paged;            /* window_mode */
    uint32_t split_rows;
    struct rules_kernel *kernels;
    size_t kernel_count;
    struct rules_index *indexes;
    size_t index_count;
};

/* Read DIRECTORY/manifest.json; false with a message on stderr if it cannot be read. */
bool rules_read(const char *directory, struct rules *out);
void rules_free(struct rules *rules);

/* The row format of a type's index rows; REF_FORMATS if it has no indexer. */
enum ref_format rules_index_format(const struct rules *rules, const char *type);

/* The reference's view of a layer type; false with a message if its format is unknown. */
bool rules_of_type(const struct rules *rules, const kvf_type_info *info, struct ref_type *out);

/* A bundle may hold a kernel once for each target: whether an earlier one is the same kernel. */
bool rules_seen_before(const struct rules *rules, size_t index);

#endif
