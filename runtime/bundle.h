/*
 * A bundle in memory: the manifest's objects under their own names (docs/manifest.md says what each
 * one is) and every module's checked text. Internal. Read-only once open, so any thread may read
 * it. Everything is owned by the bundle's arena and lives as long as the bundle.
 */
#ifndef KVF_BUNDLE_H
#define KVF_BUNDLE_H

#include "arena.h"
#include "dtype.h"
#include "kvforge.h"
#include "target.h"

struct bundle_plane {
    const char *name;
    uint64_t page_bytes;
    uint32_t align;
};

struct bundle_field {
    const char *name;
    uint32_t plane; /* index into the place's planes */
    enum dtype dtype;
    uint32_t count;          /* elements a row */
    uint64_t offset, stride; /* of row 0 in the page; from row to row */
};

struct bundle_place {
    const char *name, *id; /* "window"; "slot", "window_block" or "block" */
    uint32_t rows;         /* a page has */
    uint64_t row_bytes, page_bytes;
    uint32_t plane_count, field_count;
    struct bundle_plane *planes;
    struct bundle_field *fields;
};

enum { BUNDLE_RANK = 4 }; /* dimensions of a state array at most */

struct bundle_array {
    const char *name;
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[BUNDLE_RANK]; /* of one slot */
    double init;
    struct dtype_fill fill; /* the initial value as bits to set memory to */
    uint64_t slot_bytes;
    uint32_t align;
};

struct bundle_rope {
    double theta;
    bool yarn;
    double factor, original, beta_fast, beta_slow; /* meaningful with yarn */
};

struct bundle_type {
    kvf_type_info info;
    const char *indexer_format; /* "" without an indexer */
    struct bundle_rope rope;
    uint32_t place_count, array_count;
    struct bundle_place *places;
    struct bundle_array *arrays; /* the manifest's `state` */
};

enum bundle_param_type { PARAM_PTR, PARAM_I32, PARAM_U32, PARAM_U64, PARAM_F32 };

struct bundle_param {
    kvf_param_info info;
    enum bundle_param_type type;
    uint64_t max; /* of a value; UINT64_MAX without a limit */
};

/* One dimension of a grid: ceil(value of `param` / n) blocks, or n blocks if `constant`. */
struct bundle_grid {
    bool constant;
    uint32_t param, n;
};

struct bundle_kernel {
    const char *name, *entry;
    uint32_t param_count, params_bytes;
    struct bundle_param *params;
    struct bundle_grid grid[3];
    uint32_t block, shared;
};

struct bundle_module {
    const char *type; /* a layer type's name, or "common" */
    struct target target;
    const char *file, *sha256, *ptx;
    int driver;       /* lowest CUDA driver version: 11080 */
    uint64_t bytes;   /* of the text, without the final 0 */
    const char *text; /* PTX, checked against bytes and sha256, followed by a 0 */
    /* The same assembled for exactly the target's chip, checked likewise; null if there is none. */
    const char *cubin_file, *cubin_sha256, *cubin;
    uint64_t cubin_bytes;
    uint32_t kernel_count;
    struct bundle_kernel *kernels;
};

/* Fields of the manifest's `model` that kvf_model_info does not carry. */
struct bundle_model {
    const char *input_dtype, *state_dtype;
    double norm_eps;
    bool kv_norm, ape_on_write, round_before_norm, round_before_rope, hadamard, online;
    uint32_t page_align, split_rows, checkpoint;
};

struct bundle_layer {
    uint32_t type, layer_of_type;
};

/* The manifest's `arena`: the pool's one allocation of chunks. */
struct bundle_elastic_place {
    uint32_t type;
    const char *place, *plane;
    uint64_t offset, layer_stride, id_stride;
};

struct bundle_elastic_layer {
    uint32_t layer, part;
    uint64_t offset;
};

struct bundle_elastic {
    uint32_t align, n; /* envelopes in a chunk */
    uint64_t envelope_bytes, chunk_bytes;
    uint32_t place_count, state_count, snapshot_count;
    struct bundle_elastic_place *places;
    uint32_t state_chunks, state_envelopes, snapshot_envelopes; /* parts */
    uint64_t snapshot_bytes;
    struct bundle_elastic_layer *state, *snapshot;
};

struct kvf_bundle {
    struct arena arena;
    const char *generator, *llvm; /* versions that wrote it */
    kvf_model_info info;
    struct bundle_model model;
    struct bundle_elastic *elastic; /* null: the model has no arena */
    struct bundle_type *types;      /* info.types, in order of name */
    struct bundle_layer *layers;    /* info.layers + info.draft_layers */
    uint32_t module_count;
    struct bundle_module *modules;
};

/* The place of a type by name ("window"), or null. */
const struct bundle_place *bundle_place(const struct bundle_type *type, const char *name);

/* ---- parts of opening a bundle ---- */

/* Where a bundle's files come from: a directory, or memory. */
struct bundle_source {
    /*
     * Read the file `name` whole into the arena, a 0 after it. KVF_ERROR_LIMIT above `most` bytes.
     */
    kvf_status (*read)(const struct bundle_source *source, struct arena *arena, const char *name,
                       uint64_t most, char **text, uint64_t *bytes, kvf_error *error);
    int directory; /* of the directory source */
    const kvf_file *files;
    uint32_t file_count; /* of the memory source */
};

/* Both leave nothing open behind; bundle_directory opens source->directory, which close() ends. */
kvf_status bundle_directory(struct bundle_source *source, const char *path, kvf_error *error);
void bundle_memory(struct bundle_source *source, const kvf_file *files, uint32_t count);

/* Parse `text` into `bundle`, modules' texts excepted. */
kvf_status manifest_read(struct kvf_bundle *bundle, const char *text, uint64_t bytes,
                         kvf_error *error);

#endif
