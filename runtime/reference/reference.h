/*
 * One plain C twin per kernel: what the kernels must do, bit for bit, written from the definitions.
 *
 * Nothing here is shared with the templates or the executor, and no offset is taken from a
 * manifest: only the sizes of a geometry come in (struct ref_type); every address is computed here
 * from the row format's definition. So a mistake on either side shows as a difference.
 *
 * Rules for all functions: arithmetic is binary32 with each product and sum rounded by itself
 * (compile with -ffp-contract=off), division and square root are IEEE, nothing is flushed to zero.
 * Memory belongs to the caller and is little-endian and unaligned. No function allocates, keeps
 * state, or fails; calls on different memory may run in parallel. Strides are bytes.
 */
#ifndef KVF_REFERENCE_H
#define KVF_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ref_format {
    REF_BF16,          /* one plane "rows": head_dim bf16 */
    REF_FP8_TOKEN,     /* planes "fp8" e4m3[nope], "rope" bf16[rope_dim], "inv" one f32 a row */
    REF_FP8_DS_MLA,    /* one plane "rows": B rows of nope e4m3 and rope bf16, then B footers of
                          scales: a ue8m0 for each 64 nope, zeros up to a multiple of 8 bytes */
    REF_FP8_TWO_PLANE, /* planes "fp8": nope e4m3, each ue8m0 twice, zeros up to head_dim bytes;
                          "rope" bf16 */
    REF_FP8_INDEX,     /* one plane "rows": B times e4m3[dim], then B times one f32 scale */
    REF_FP4_INDEX,     /* one plane "rows": B times e2m1[dim], the even element in the low half of a
                          byte, then B times a ue8m0 for each 32 */
    REF_FORMATS
};

#define REF_MAX_DIM   4096 /* elements of the longest vector a reference takes */
#define REF_MAX_RATIO 256

enum ref_dtype { REF_F32, REF_BFLOAT };

/* The sizes and rules of one layer type that a reference needs. */
struct ref_type {
    enum ref_format format;
    uint32_t head_dim, rope_dim; /* nope = head_dim - rope_dim */
    uint32_t window, ring;       /* ring = window + drafts */
    uint32_t block;              /* positions in a block; rows of a paged window page */
    uint32_t page_align;         /* what footer and index pages round up to */
    uint32_t ratio, drafts;      /* tokens of a compressed entry (0: none) */
    bool overlap;
    enum ref_dtype input, state; /* of latents, values and scores; of the tails */
    bool kv_norm, ape_on_write, round_before_norm, round_before_rope, hadamard;
    bool online; /* compressors without overlap keep a running softmax */
    float norm_eps;
};

/* Arrays of one element per slot or page: element i is at base + i * stride. */
struct ref_array {
    uint8_t *base;
    uint64_t stride;
};

#define REF_PLANES 3

/* Where rows lie: pages of `rows` rows, each plane with its own base and stride. */
struct ref_place {
    struct ref_array plane[REF_PLANES];
    uint32_t rows;
};

/* ---- formats (row.c) ---- */

const char *ref_format_name(enum ref_format format); /* "fp8_token" */
enum ref_format ref_format_find(const char *name);   /* REF_FORMATS if there is none such */
uint32_t ref_planes(enum ref_format format);         /* how many planes */
const char *ref_plane_name(enum ref_format format, uint32_t plane); /* "fp8"; null beyond */
/* Bytes of one page of `rows` rows of vectors with `dim` elements, `rope_dim` of them rotated. */
uint64_t ref_page_bytes(const struct ref_type *type, uint32_t plane, uint32_t rows);

/*
 * Quantise and store row `row` of page `page`. `value` holds head_dim bf16 values, the rope part
 * already rotated. Rules: design "Numerics"; bf16 copies bits, so NaNs keep theirs.
 */
void ref_row_store(const struct ref_type *type, const struct ref_place *place, uint64_t page,
                   uint32_t row, const uint16_t *value);

/*
 * A row as stored (row_load.c): each value is its code times its scale, as binary32, rounded to
 * bf16; what a format stores as bf16 keeps its bits. `value` takes head_dim elements.
 */
void ref_row_load(const struct ref_type *type, const struct ref_place *place, uint64_t page,
                  uint32_t row, uint16_t *value);

/*
 * Copy a row as it is stored, pad bytes of the row included, to another place of the same type;
 * page lengths may differ (row.c).
 */
void ref_row_copy(const struct ref_type *type, const struct ref_place *from, uint64_t from_page,
                  uint32_t from_row, const struct ref_place *to, uint64_t to_page, uint32_t to_row);

/* ---- what a launch is about ---- */

/* Tokens of one request are contiguous and consecutive; batch_id and position -1 are padding. */
struct ref_batch {
    uint32_t tokens, requests;
    uint32_t slots;                     /* of the state cache */
    uint32_t positions;                 /* rows of the rope table */
    const int32_t *batch_id, *position; /* [tokens] */
    const int32_t *cu_tokens;           /* [requests + 1] */
    const int32_t *state_slot;          /* [requests] */
};

/* A table of page ids, [requests][stride]; an id outside [0, pages) is not backed. */
struct ref_table {
    const int32_t *pages_of;
    uint32_t stride, pages;
};

/* The page of a request's table column, -1 if it is not backed or beyond the table. */
int32_t ref_table_page(const struct ref_table *table, int32_t request, uint32_t column);

/* ---- swa_write (swa_write.c) ---- */

struct ref_swa_write {
    struct ref_batch batch;
    const uint8_t *latent; /* [tokens][head_dim] of type->input */
    uint64_t latent_stride;
    const float *norm_weight; /* [head_dim]; read only with kv_norm */
    const float *rope;        /* [positions][rope_dim]: cosines of the pairs, then sines */
    struct ref_place window;  /* ring mode: pages are slots, rows = ring */
    struct ref_array swa_pos, swa_head; /* int32[ring] and int32 a slot */
    struct ref_place workspace;         /* swa_write_workspace; rows = 0: there is none */
};

/*
 * Write the window row of every token that survives the launch, and with a workspace the row of
 * every token into it: token t of request b is its row t + (b + 1) * (window - 1).
 */
void ref_swa_write(const struct ref_type *type, const struct ref_swa_write *args);

/*
 * Paged mode: pages are window blocks of `block` rows, found through window_table; a page outside
 * [0, pages) is not backed and skipped, and so is a position below the request's write_from. There
 * is no ring: every token of a launch is written. batch.state_slot is not read.
 */
struct ref_swa_write_paged {
    struct ref_batch batch;
    const uint8_t *latent;
    uint64_t latent_stride;
    const float *norm_weight, *rope;
    const int32_t *write_from;   /* [requests] */
    const int32_t *window_table; /* [requests][table_stride] */
    uint32_t pages, table_stride;
    struct ref_place window;    /* rows = block */
    struct ref_place workspace; /* swa_write_workspace; rows = 0: there is none */
};

void ref_swa_write_paged(const struct ref_type *type, const struct ref_swa_write_paged *args);

/* ---- the running softmax of compressors without overlap (running.c) ---- */

/*
 * Per channel of a group that is not complete: the largest score, the sum of the weights and the
 * weighted sum of the values, f32[dim] a slot each. Before a group's first token it is -infinity, 0
 * and 0 whatever the slot holds. A token, with z its score plus ape and v its value, joins so:
 *   z > most:  c = exp2((most - z) * log2e); sum = sum * c + 1; total = total * c + v; most = z
 *   else:      w = exp2((z - most) * log2e), 0 for most if that is -infinity;
 *              sum = sum + w; total = total + w * v
 */
struct ref_running {
    struct ref_batch batch; /* positions is not read */
    uint32_t dim;
    const uint8_t *kv, *score; /* [tokens][dim] of type->input */
    uint64_t kv_stride, score_stride;
    const float *ape; /* [ratio][dim] */
    struct ref_array most, sum, total;
};

/* Whether a type's compressors keep one. */
bool ref_keeps_running(const struct ref_type *type);

/* The weighted means of the group that token t completes; the state is read. */
void ref_running_pool(const struct ref_type *type, const struct ref_running *in, uint32_t t,
                      float *pooled);
/* The state after the last token of each request, and the tail length. */
void ref_running_append(const struct ref_type *type, const struct ref_running *in,
                        struct ref_array len);

/* ---- tail_append (tail_append.c) ---- */

/* Rows of a tail ring: what a group and its predecessor may need, and the drafts. */
uint32_t ref_tail_ring(const struct ref_type *type);

/*
 * The main compressor's tails, or with dim = indexer.dim the indexer's. Inputs have dim columns,
 * or 2 dim with overlap: then columns [0, dim) are stream b and [dim, 2 dim) stream a; without it
 * there is stream a alone, and kb and zb are not read.
 */
struct ref_tail_append {
    struct ref_batch batch; /* positions is not read */
    uint32_t dim;
    const uint8_t *kv, *score; /* [tokens][columns] of type->input */
    uint64_t kv_stride, score_stride;
    const float *ape; /* [ratio][columns]; read only with ape_on_write or a running softmax */
    struct ref_array ka, za, kb, zb;   /* [tail ring][dim] of type->state a slot */
    struct ref_array most, sum, total; /* instead of these: the running softmax */
    struct ref_array len;              /* int32 a slot */
};

void ref_tail_append(const struct ref_type *type, const struct ref_tail_append *args);

/* ---- compress (compress.c) ---- */

/*
 * The main compressor, or the indexer's: then dim = indexer.dim, `index` is true, the tails are
 * its own, and rows are stored as REF_FP8_INDEX or REF_FP4_INDEX. Inputs are shaped as for
 * tail_append, which must run after this.
 */
struct ref_compress {
    struct ref_batch batch;
    uint32_t dim;
    enum ref_format format; /* of the stored rows */
    bool index;
    const uint8_t *kv, *score; /* [tokens][columns] of type->input */
    uint64_t kv_stride, score_stride;
    const float *ape;           /* [ratio][columns] */
    const float *norm_weight;   /* [dim] */
    const float *rope;          /* [positions][rope_dim] */
    const int32_t *write_from;  /* [requests]: entries that complete below it are not written */
    const int32_t *block_table; /* [requests][table_stride]: pages; outside [0, pages): skipped */
    uint32_t pages, table_stride;
    struct ref_array ka, za, kb, zb;   /* tails, read */
    struct ref_array most, sum, total; /* instead of these: the running softmax */
    struct ref_place place;            /* pages of block / ratio rows, written */
};

void ref_compress(const struct ref_type *type, const struct ref_compress *args);

/* The weighted means of the group that token t completes, before any rounding; for tests. */
void ref_compress_pool(const struct ref_type *type, const struct ref_compress *args, uint32_t t,
                       float *pooled);

/* ---- row_lists, translate_pack (lists.c) ---- */

struct ref_row_lists {
    struct ref_batch batch; /* positions is not read; slots and state_slot in ring mode */
    bool paged;
    bool workspace;                      /* row_lists_workspace: window rows are the workspace's */
    struct ref_table window;             /* paged mode, without a workspace */
    struct ref_table block;              /* read for types with a ratio and no indexer */
    bool indexer;                        /* entries are left to translate_pack */
    uint32_t list_stride;                /* elements */
    int32_t *rows;                       /* [tokens][list_stride] */
    int32_t *window_count, *entry_count; /* [tokens] */
};

void ref_row_lists(const struct ref_type *type, const struct ref_row_lists *args);

struct ref_translate_pack {
    struct ref_batch batch;
    struct ref_table block;
    uint32_t list_stride, topk_stride; /* elements */
    const int32_t *topk, *topk_count;  /* [tokens][topk_stride], [tokens] */
    const int32_t *window_count;       /* [tokens] */
    int32_t *rows, *entry_count;       /* [tokens][list_stride], [tokens] */
};

void ref_translate_pack(const struct ref_type *type, const struct ref_translate_pack *args);

/* ---- the workspace of long chunks (workspace.c) ---- */

/*
 * One layer's window rows of one launch, as pages like the window place's: of each request in turn
 * the window - 1 rows before its first token, then its tokens. This is the row of its token t.
 */
uint64_t ref_workspace_row(const struct ref_type *type, uint32_t t, int32_t request);

/*
 * workspace_fill: the window - 1 stored rows before each request's first token of the launch, from
 * the window place to the workspace. Positions below 0 and rows that are not backed are left alone,
 * and so is a request without tokens or with a first position below 0.
 */
struct ref_workspace_fill {
    struct ref_batch batch; /* position and cu_tokens; slots and state_slot in ring mode */
    bool paged;
    struct ref_table table; /* paged mode */
    struct ref_place window, workspace;
};

void ref_workspace_fill(const struct ref_type *type, const struct ref_workspace_fill *args);

/* ---- q_norm_rope, inverse_rope (query.c) ---- */

struct ref_query {
    uint32_t tokens, heads, positions;
    const int32_t *position; /* [tokens] */
    const float *rope;
    const uint8_t *q;              /* bf16 [tokens][heads][head_dim]; not read by inverse_rope */
    uint8_t *out;                  /* the same shape */
    uint64_t q_stride, out_stride; /* bytes from token to token */
};

void ref_q_norm_rope(const struct ref_type *type, const struct ref_query *args);
void ref_inverse_rope(const struct ref_type *type, const struct ref_query *args);

/* ---- state_reset (state_reset.c) ---- */

/* An array of int32 that a reset fills: `count` a slot, all set to `value`. */
struct ref_reset_array {
    uint8_t *base;
    uint64_t stride, layer_stride;
    uint32_t count;
    int32_t value;
};

struct ref_state_reset {
    uint32_t count, slots, layers;
    const int32_t *slot_list; /* [count]; entries outside 0..slots-1 are skipped */
    const struct ref_reset_array *arrays;
    uint32_t array_count;
};

void ref_state_reset(const struct ref_state_reset *args);

#endif
