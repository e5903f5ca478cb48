/*
 * A step of serving at one layer, as far as the window goes: write the tokens' rows, list what each
 * token sees, and read the listed rows back. Either through the window place alone (swa_write,
 * row_lists) or through a workspace (workspace_fill, swa_write_workspace, row_lists_workspace).
 */
#ifndef KVF_TOOL_SERVE_H
#define KVF_TOOL_SERVE_H

#include "verify_place.h"

#define SERVE_TABLE 16 /* columns of a table at most */

/* What all steps share. */
struct serve {
    struct verify *verify;
    struct ref_type rules;
    bool paged;
    uint32_t rows; /* of a page of the window place */
    uint32_t positions, table_stride;
    struct call fill, write, write_both, lists, lists_both;
    struct buffer rope, weight;
};

/* One window place and the ring's state beside it. */
struct serve_cache {
    struct verify_place window;
    struct buffer swa_pos, swa_head; /* ring mode */
    uint64_t pos_stride, head_stride;
};

struct serve_step {
    struct batch batch;
    bool workspace;
    uint8_t *latent;                             /* host, [tokens][head_dim] */
    int32_t table[BATCH_REQUESTS * SERVE_TABLE]; /* [requests][table_stride] */
    int32_t write_from[BATCH_REQUESTS];
    uint64_t digest[BATCH_TOKENS]; /* out: of the rows a token sees, in order, as stored */
    uint32_t count[BATCH_TOKENS];  /* out: how many */
};

/* Look the kernels up and make the tables. False with a message if something is missing. */
bool serve_open(struct verify *verify, const struct subject *subject, uint32_t positions,
                struct serve *out);
void serve_close(struct serve *serve);

/* `pages`: window blocks, or request slots. */
bool serve_cache_create(struct serve *serve, uint32_t pages, struct serve_cache *out);
void serve_cache_destroy(struct serve *serve, struct serve_cache *cache);

/* Run a step. A row that is -1 or that is not there makes its token's digest 0. */
bool serve_run(struct serve *serve, struct serve_cache *cache, struct serve_step *step);

/* Bytes of one latent. */
size_t serve_latent_bytes(const struct serve *serve);

#endif
