/*
 * Whole steps on the pool: the attention stack's kernels over a batch, layer by layer in the firm
 * order, on memory that the pool manages. The projections before the kernels are left out: what
 * they would give is a hash of token id, position, layer and channel (step_input.c), and one
 * layer's output does not feed the next.
 *
 * A stack allocates at opening and never later. In a step nothing is copied or polled between the
 * first launch and the last. One thread at a time. Functions that return bool print what failed.
 *
 *   step.c         opening: kernels, weights, buffers
 *   step_memory.c  where rows, tails and snapshots lie under each policy
 *   step_input.c   inputs and weights
 *   step_launch.c  one launch, its parameters found by name
 *   step_forward.c the step
 *   step_copy.c    tails saved and restored, pages copied
 *   step_graph.c   a decode step of all layers as a captured graph
 */
#ifndef KVF_TOOL_STEP_H
#define KVF_TOOL_STEP_H

#include "buffer.h"
#include "bundle.h"
#include "call.h"

enum { STEP_TYPES = 8, STEP_LAYERS = 8, STEP_STATES = 16, STEP_TABLES = STEP_TYPES };

/* ---- inputs ---- */

enum step_input {
    STEP_LATENT,
    STEP_KV,
    STEP_SCORE,
    STEP_INDEX_KV,
    STEP_INDEX_SCORE,
    STEP_QUERY,
    STEP_INDEX_QUERY,
    STEP_INDEX_WEIGHT, /* f32 */
    STEP_INPUTS
};

/* One token's row of an input, `count` elements of `dtype`. */
void step_input_row(enum step_input input, uint32_t layer, int32_t id, uint32_t position,
                    enum ref_dtype dtype, uint32_t count, void *out);

/* A layer's own numbers: f32, the same in every run. */
enum step_weight {
    STEP_NORM,       /* [head_dim], of latents */
    STEP_ENTRY_NORM, /* [head_dim], of entries */
    STEP_INDEX_NORM, /* [indexer.dim] */
    STEP_APE,        /* [ratio][columns] */
    STEP_INDEX_APE,  /* the same of the indexer */
    STEP_SINK,       /* [heads], one of them -infinity */
    STEP_WEIGHTS
};
void step_weight_row(enum step_weight weight, uint32_t layer, uint32_t count, float *out);

/* ---- the stack ---- */

/* Element `id` of an array lies at base + id * stride. */
struct step_array {
    kvf_address base;
    uint64_t stride;
};

/* Numbers of one layer type that a step needs. */
struct step_type {
    kvf_type_info info;
    struct ref_type rules;
    const struct bundle_type *bundle;
    uint32_t columns, index_columns; /* of a compressor's inputs */
    uint32_t tail_ring;
    uint32_t table; /* its block table: 0, under `shared` one for each compressed type */
    uint32_t list_stride, entries, splits;
    struct buffer rope;  /* f32 [positions][rope_dim] */
    struct buffer rings; /* i32: i mod tail_ring, for 2 * tail_ring numbers */
    struct call *calls;  /* as in step_jobs */
    struct step_array workspace[REF_PLANES];
};

struct step_layer {
    uint32_t layer, of_type; /* of the model; among the layers of its type */
    struct step_type *type;
    struct step_array window[REF_PLANES], compressed[REF_PLANES], index;
    struct step_array state[STEP_STATES]; /* in the order of the manifest's `state` */
    uint32_t state_part;
    struct step_array snapshot;
    uint32_t snapshot_part;
    struct buffer weights[STEP_WEIGHTS], inputs[STEP_INPUTS], output;
    struct buffer chosen, chosen_count; /* with an indexer: what topk gave */
    uint8_t *host_output;               /* bf16 [tokens][heads][head_dim] of the last step */
    int32_t *host_chosen, *host_chosen_count;
};

struct step_options {
    kvf_pool_options pool; /* max_tokens must be given */
    uint32_t batch_tokens; /* of the largest step */
    uint32_t batch_requests;
    bool permute;        /* elastic: chunks and envelopes lie elsewhere than their ids say */
    bool one_layer_each; /* drive one layer of each type only */
    bool graphs;         /* every other decode step is a captured graph's replay */
};

/* What a chunk of the arena has been used for so far. */
enum { STEP_ROLE_WINDOW = 1, STEP_ROLE_ROWS = 2, STEP_ROLE_STATE = 4 };

struct step {
    struct session *session;
    struct step_options options;
    kvf_pool *pool;
    kvf_batch *batch;
    kvf_cache *cache;     /* tails, unless elastic */
    kvf_pool_stats shape; /* as created: windows, blocks, chunks */
    uint64_t model_layers;
    uint32_t types, layers, positions, columns, tables, parts;
    struct step_type type[STEP_TYPES];
    struct step_layer layer[STEP_LAYERS];
    kvf_address memory[4 * STEP_TYPES]; /* allocations the pool's ids point into */
    uint32_t memory_count;
    uint64_t memory_bytes;
    kvf_batch_buffers tables_of; /* the pool's, on the host */
    struct buffer batch_id, position, cu_tokens, state_slot, write_from, window_from;
    struct buffer reader_id, reader_position; /* as batch_id and position, -1 where none attends */
    struct buffer block_table[STEP_TABLES], index_table, window_table;
    struct buffer ids, copy_from, copy_to;
    struct buffer workspace[REF_PLANES * STEP_TYPES];
    struct buffer q, index_q, index_w, scores, rows, window_count, entry_count;
    struct buffer part_o, part_m, part_l, lse;
    struct call copy;
    uint32_t tokens, requests, padded; /* of the step at hand */
    bool longer;                       /* it works in the workspace */
    uint32_t multiplier, offset;       /* of the permutation of chunks */
    uint8_t *roles;                    /* [chunks] */
    uint32_t role_changes;             /* a chunk took another role */
    uint64_t launches, saved, restored, copied;
    CUstream stream; /* what is being captured, or null */
    CUgraphExec graph;
    bool replayed; /* the step at hand */
    uint32_t short_steps, replays;
};

bool step_open(struct session *session, const struct step_options *options, struct step *out);
void step_close(struct step *step);

/*
 * A sequence in a step. `fresh`: it was admitted since the last step, with this snapshot. Tokens
 * below `attend_from` write their rows and do not attend: the kernels that read see padding.
 */
struct step_request {
    kvf_sequence sequence;
    bool fresh;
    kvf_snapshot restore;
    uint32_t attend_from;
};

/*
 * Run the prepared tokens of all requests: fill the tables, restore tails of fresh requests, all
 * layers, save the tails the pool asks for. `ids`: the tokens, in the batch's order. Without
 * `attend` rows are written and nothing else. On return everything has run; outputs are on the
 * host.
 */
bool step_forward(struct step *step, const struct step_request *requests, uint32_t count,
                  const int32_t *ids, bool attend);

/* The attention output of a token of the last step, bf16[heads][head_dim]; which entries it chose.
 */
const uint8_t *step_output(const struct step *step, const struct step_layer *layer, uint32_t token);
uint64_t step_output_bytes(const struct step *step, const struct step_layer *layer);

/* Make the copies of a fork. Elastic and static. */
bool step_copy_pages(struct step *step, const kvf_copy *copies, uint32_t count);

/* Bytes of a state array that a snapshot keeps: `ratio` rows of stream b, else 0. */
uint64_t step_saved_bytes(const struct step_type *type, const struct bundle_array *array);

/* Does any memory that a row of the batch lists serve in another role than it once did? Elastic. */
bool step_was_lent(const struct step *step, uint32_t row);

/* ---- between the files ---- */

bool step_memory_open(struct step *step);
/* Pages of a place: what ids stay below. */
uint32_t step_pages(const struct step *step, const struct step_type *type, const char *place);
int32_t step_chunk(const struct step *step, int32_t id);    /* where a chunk lies */
int32_t step_envelope(const struct step *step, int32_t id); /* where an envelope lies */
/* Request states: what ids of a part stay below. */
uint32_t step_slots(const struct step *step, uint32_t part);
void step_note_roles(struct step *step);

enum step_job {
    STEP_FILL,
    STEP_WRITE,
    STEP_WRITE_LONG,
    STEP_COMPRESS,
    STEP_INDEX_COMPRESS,
    STEP_APPEND,
    STEP_INDEX_APPEND,
    STEP_NORM_ROPE,
    STEP_INDEX_QUERY_JOB,
    STEP_SCORES,
    STEP_TOPK,
    STEP_LISTS,
    STEP_LISTS_LONG,
    STEP_PACK,
    STEP_ATTN,
    STEP_COMBINE,
    STEP_INVERSE,
    STEP_RESET,
    STEP_JOBS
};
extern const char *const step_jobs[STEP_JOBS];

/* Parameters by name; a later one of the same name counts. */
struct step_binding {
    struct {
        char name[32];
        uint64_t value;
    } list[128];
    uint32_t count;
};
void step_bind(struct step_binding *binding, const char *name, uint64_t value);
void step_bind_array(struct step_binding *binding, const char *prefix, const char *name,
                     struct step_array array);
void step_bind_planes(struct step_binding *binding, const char *prefix,
                      const struct bundle_place *place, const struct step_array *planes);
/* Launch with the parameters a kernel has; nothing is waited for. Kernels a type lacks: nothing. */
bool step_launch(struct step *step, struct call *call, const struct step_binding *binding);
/* What every kernel of a layer may want in this step. */
void step_bind_layer(const struct step *step, const struct step_layer *layer,
                     struct step_binding *out);

/* All layers, in order. */
bool step_layers(struct step *step, bool attend);
/* Is this step one for the graph? It sets the graph's counts of tokens and requests then. */
bool step_wants_graph(struct step *step);
/* All layers by a graph that is captured the first time and only launched later. */
bool step_replay(struct step *step);
void step_graph_close(struct step *step);

bool step_restore(struct step *step, uint32_t row, const struct step_request *request);
bool step_save(struct step *step, uint32_t row, kvf_sequence sequence);

#endif
