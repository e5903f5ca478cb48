/*
 * What the pool knows of a model: counts and bytes, all of them from the bundle's manifest (see
 * docs/manifest.md, `arena`). The pool computes no row address; it deals in ids.
 */
#ifndef KVF_POOL_GEOMETRY_H
#define KVF_POOL_GEOMETRY_H

#include "kvforge.h"

enum {
    POOL_MAX_TYPES = 16,
    POOL_MAX_PLANES = 4,
    POOL_MAX_PER_CHUNK = 1024, /* envelopes in a chunk */
    POOL_MAX_PARTS = 64        /* pieces of one request's state */
};

/* One layer type. Bytes are of one layer. */
struct pool_type {
    char name[32];
    uint32_t ratio;                            /* tokens per compressed row; 0: none */
    uint32_t k;                                /* compressed rows of a block: block / ratio */
    uint32_t layers;                           /* draft layers included */
    uint32_t planes;                           /* of the window and the compressed place */
    uint64_t plane_row_bytes[POOL_MAX_PLANES]; /* one row */
    uint64_t window_page_bytes;                /* one window block, all planes */
    uint64_t block_page_bytes;                 /* one block's compressed rows, all planes */
    uint64_t index_page_bytes;                 /* one block's index rows; 0 without indexer */
    uint64_t state_bytes;                      /* one request's tails */
    uint64_t snapshot_bytes; /* last `ratio` tokens of stream b; 0 without overlap */
    bool footers; /* pages end in footers: rows do not lie at row * row_bytes (refused by `shared`)
                   */
};

struct pool_geometry {
    uint32_t block, window, drafts, max_positions, checkpoint; /* tokens */
    uint32_t types;
    struct pool_type type[POOL_MAX_TYPES];

    /* the arena (policy `elastic`) and the envelope (policy `static` too) */
    uint32_t per_chunk; /* envelopes in a chunk */
    uint64_t envelope_bytes, chunk_bytes;
    uint32_t state_chunks, state_envelopes; /* parts of one request's state */
    uint32_t snapshot_envelopes;            /* of one snapshot; 0: nothing to restore */

    /* totals over all layers */
    uint64_t window_bytes, block_bytes, state_bytes, snapshot_bytes;
};

/* Check the fields that others were filled from; says what is wrong. */
kvf_status pool_geometry_check(const struct pool_geometry *geometry, kvf_error *error);

/* What the bundle's manifest says. A bundle without window_mode "paged" is refused. */
kvf_status pool_geometry_from_bundle(const kvf_bundle *bundle, struct pool_geometry *out,
                                     kvf_error *error);

/*
 * Compute totals and the arena from the types (the arithmetic of docs/manifest.md, `arena`), with
 * pages rounded to `page_align`. For tests and for models without a bundle; a bundle brings them.
 */
kvf_status pool_geometry_derive(struct pool_geometry *geometry, uint32_t page_align,
                                kvf_error *error);

/* The reference shape of the tables in docs/pool.md: DeepSeek-V4 Flash as fp8_ds_mla. */
void pool_geometry_flash(struct pool_geometry *geometry);

/* Window blocks that a request resuming at a block boundary reads: ceil((window - 1) / block). */
uint32_t pool_geometry_tail_blocks(const struct pool_geometry *geometry);

#endif
