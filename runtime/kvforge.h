/*
 * libkvforge: load a bundle of generated kernels, launch them, and manage the memory they work on.
 *
 * Rules that hold for every function:
 *  - It returns a kvf_status; KVF_OK is 0. On any other status nothing has changed, `*out` is
 *    untouched, and the details are in the caller's kvf_error (which may be null).
 *  - The library never prints, never exits, keeps no global state, and never synchronises a stream.
 *  - Objects may be used from several threads at once for reading (kernels, layouts, launches);
 *    functions marked "one thread at a time" need the caller's lock per object.
 *  - All sizes, strides and offsets are bytes. Device addresses are 64-bit integers.
 *  - Objects are closed in the reverse order of their making: cache, library, device, driver; a
 *    bundle after the libraries made from it. Closing null does nothing.
 */
#ifndef KVFORGE_H
#define KVFORGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_API __attribute__((visibility("default")))

/* ---- status and errors ---- */

typedef enum kvf_status {
    KVF_OK = 0,
    KVF_ERROR_ARGUMENT = 1,   /* a null pointer, a count or an option out of range */
    KVF_ERROR_MEMORY = 2,     /* the host is out of memory */
    KVF_ERROR_IO = 3,         /* a file could not be read */
    KVF_ERROR_BUNDLE = 4,     /* the bundle is not what its manifest says, or of another version */
    KVF_ERROR_NO_DRIVER = 5,  /* no CUDA driver, or only the stub */
    KVF_ERROR_OLD_DRIVER = 6, /* the driver is older than the PTX or lacks a required symbol */
    KVF_ERROR_NO_TARGET = 7,  /* no module of the bundle fits the device */
    KVF_ERROR_DRIVER = 8,     /* the driver refused a call; see driver_code */
    KVF_ERROR_COMPILE = 9,    /* the driver's JIT refused the PTX; see log */
    KVF_ERROR_CAPTURE = 10,   /* the stream is being captured */
    KVF_ERROR_DEVICE_MEMORY = 11, /* the device is out of memory */
    KVF_ERROR_SLOTS = 12,         /* no request slot is free */
    KVF_ERROR_STATE = 13,         /* not now: a double release, a commit without a prepare */
    KVF_ERROR_SHORT = 14,         /* the pool is short of a resource; see text */
    KVF_ERROR_LIMIT = 15,         /* beyond what the bundle or the device allows */
    KVF_ERROR_NOT_FOUND = 16      /* no such layer type, kernel or array */
} kvf_status;

/* Where an error's details go. Owned by the caller; no pointers inside; may live on the stack. */
typedef struct kvf_error {
    kvf_status status;
    int driver_code;      /* CUresult of the call that failed, or 0 */
    char driver_name[64]; /* the driver's name for it, e.g. "CUDA_ERROR_INVALID_PTX" */
    char kernel[64];      /* "csa/swa_write", or empty */
    char text[512];       /* one sentence: what failed, what was given, what is allowed */
    char log[4096];       /* the JIT's error log, or empty */
} kvf_error;

/* A short English name of a status, never null. */
KVF_API const char *kvf_status_name(kvf_status status);

/* The library's version, "0.1.0". */
KVF_API const char *kvf_version(void);

typedef uint64_t kvf_address;           /* a device address (CUdeviceptr) */
typedef struct CUstream_st *kvf_stream; /* a CUstream; null is the legacy default stream */

/* ---- the driver: the real libcuda.so.1, or the executor ---- */

typedef enum kvf_driver_kind {
    KVF_DRIVER_AUTO = 0, /* the real driver if it has a device, else the executor */
    KVF_DRIVER_CUDA = 1,
    KVF_DRIVER_EXECUTOR = 2
} kvf_driver_kind;

typedef struct kvf_driver kvf_driver;

/*
 * Open a driver by dlopen and resolve its symbols. `path` names a library to use instead of the
 * usual places, or is null. The executor is looked for beside the library (../executor,
 * ../lib/kvforge, kvforge; relative to the shared library, or to the program that holds the static
 * one), then in the file that the environment variable KVF_EXECUTOR names.
 *
 * AUTO falls back to the executor only where there is no driver or no device (the stub library
 * counts as none); a real driver that is too old is KVF_ERROR_OLD_DRIVER. Any thread; a driver that
 * was opened once stays mapped for the life of the process.
 */
KVF_API kvf_status kvf_driver_open(kvf_driver_kind kind, const char *path, kvf_driver **out,
                                   kvf_error *error);
KVF_API void kvf_driver_close(kvf_driver *driver);
/* What was opened: KVF_DRIVER_CUDA or KVF_DRIVER_EXECUTOR, its file, its version (12040: 12.4). */
KVF_API kvf_driver_kind kvf_driver_kind_of(const kvf_driver *driver);
KVF_API const char *kvf_driver_path(const kvf_driver *driver);
KVF_API int kvf_driver_version(const kvf_driver *driver);

/* ---- the bundle: what `kvforge build` wrote ---- */

typedef struct kvf_bundle kvf_bundle;

/*
 * Read and check a bundle's manifest and every module's digest. No driver is needed. The directory
 * may come from a stranger: its files are read only as plain files in it, never through links.
 * Everything is kept in memory, so the directory may change or vanish later. Any thread.
 */
KVF_API kvf_status kvf_bundle_open(const char *directory, kvf_bundle **out, kvf_error *error);
/*
 * The same from memory, for bundles that are compiled into a program. Names are as in the
 * directory; one of the files is manifest.json. Nothing of `files` is kept.
 */
typedef struct kvf_file {
    const char *name;
    const void *data;
    uint64_t bytes;
} kvf_file;
KVF_API kvf_status kvf_bundle_open_memory(const kvf_file *files, uint32_t count, kvf_bundle **out,
                                          kvf_error *error);
KVF_API void kvf_bundle_close(kvf_bundle *bundle);

/* A layer type; see docs/manifest.md for each word. Strings live as long as the bundle. */
typedef struct kvf_type_info {
    const char *name, *format;
    uint32_t head_dim, rope_dim, nope_dim, window, ring, ratio, k;
    bool overlap, has_indexer;
    uint32_t indexer_heads, indexer_dim, indexer_topk;
    uint32_t layers, draft_layers;                                      /* of this type */
    uint64_t row_bytes, block_bytes, window_block_bytes, request_bytes; /* one layer */
} kvf_type_info;

typedef struct kvf_model_info {
    const char *name, *digest, *window_mode;
    uint32_t heads, block, drafts, max_positions;
    uint32_t types, layers, draft_layers;
    uint64_t block_bytes, window_block_bytes, request_bytes; /* all layers, draft layers included */
} kvf_model_info;

KVF_API kvf_status kvf_bundle_model(const kvf_bundle *bundle, kvf_model_info *out);
/* Types are numbered 0..types-1 in order of name; layers 0..layers+draft_layers-1, drafts last. */
KVF_API kvf_status kvf_bundle_type(const kvf_bundle *bundle, uint32_t type, kvf_type_info *out);
KVF_API kvf_status kvf_bundle_layer(const kvf_bundle *bundle, uint32_t layer, uint32_t *type,
                                    uint32_t *layer_of_type);

/* ---- device, library, kernels ---- */

typedef struct kvf_device kvf_device;
typedef struct kvf_library kvf_library;
typedef struct kvf_kernel kvf_kernel; /* lives as long as its library */

/*
 * Use device `ordinal`. The calling thread's current context is used if it belongs to the device,
 * else the device's primary context, retained until kvf_device_close. The library never creates
 * one.
 */
KVF_API kvf_status kvf_device_open(kvf_driver *driver, int ordinal, kvf_device **out,
                                   kvf_error *error);
KVF_API void kvf_device_close(kvf_device *device);
KVF_API const char *kvf_device_name(const kvf_device *device);
/* Compute capability times ten: 90 for sm_90. */
KVF_API int kvf_device_capability(const kvf_device *device);

typedef struct kvf_library_options {
    const char *target; /* force a target ("sm_80"), or null: the best one for the device */
} kvf_library_options;

/*
 * Load every module and every kernel of the bundle, then seal the library: nothing is loaded or
 * compiled later. `stream` is any stream of the context, or null; if it is being captured the call
 * is refused. The bundle must outlive the library. One thread at a time per device.
 */
KVF_API kvf_status kvf_library_load(kvf_device *device, const kvf_bundle *bundle, kvf_stream stream,
                                    const kvf_library_options *options, kvf_library **out,
                                    kvf_error *error);
KVF_API void kvf_library_unload(kvf_library *library);

/*
 * Find a kernel: `type` is a layer type's name ("csa") or "common", `kernel` the job ("swa_write").
 * Any thread. kvf_library_kernel_at goes through all of them: KVF_ERROR_NOT_FOUND beyond the last.
 */
KVF_API kvf_status kvf_library_kernel(const kvf_library *library, const char *type,
                                      const char *kernel, const kvf_kernel **out, kvf_error *error);
KVF_API kvf_status kvf_library_kernel_at(const kvf_library *library, uint32_t index,
                                         const kvf_kernel **out);

typedef struct kvf_kernel_info {
    const char *type, *name, *entry, *target;
    uint32_t params, params_bytes, block, shared;
    uint64_t ptx_bytes;         /* of its module */
    int registers, local_bytes; /* as the driver says, or -1 */
    bool cubin;                 /* loaded as machine code, not compiled from PTX */
    const char *log;            /* the JIT's information log of its module, or empty */
} kvf_kernel_info;
KVF_API void kvf_kernel_describe(const kvf_kernel *kernel, kvf_kernel_info *out);

/* One parameter of a kernel, so that generic callers can fill a parameter struct by name. */
typedef struct kvf_param_info {
    const char *name;          /* "latent" */
    const char *type;          /* "ptr", "i32", "u32", "u64", "f32" */
    const char *direction;     /* "in", "out", "inout", "value" */
    const char *dtype, *shape; /* what a pointer points to, as the manifest says; "" for values */
    uint32_t offset, size;     /* in the parameter struct */
    uint32_t align;            /* of the address a pointer holds; 1 for values */
    bool optional;             /* a pointer that may be null */
} kvf_param_info;

/* Parameter `index` of 0..params-1; KVF_ERROR_NOT_FOUND beyond. */
KVF_API kvf_status kvf_kernel_param(const kvf_kernel *kernel, uint32_t index, kvf_param_info *out);

/*
 * Launch on `stream`. `params` is the parameter struct of the generated header and `bytes` its
 * size. Checked against the manifest: the size, pointers that are null or misaligned, values above
 * their largest, the grid against the device's limits. An empty grid succeeds without reaching the
 * driver. Any thread; allowed while the stream is being captured. What the kernel itself does wrong
 * shows in a later call, as the driver's own error.
 *
 * Order of one forward step of a layer, which the kernels rely on: (rows_copy, for chunks longer
 * than drafts + 1 tokens,) swa_write, compress (main, then indexer), tail_append, q_norm_rope, the
 * indexer's query, scores and topk, the lists, attn, inverse_rope.
 */
KVF_API kvf_status kvf_launch(const kvf_kernel *kernel, kvf_stream stream, const void *params,
                              size_t bytes, kvf_error *error);

/*
 * Fill `out[positions][rope_dim]` with the type's RoPE table on the host: cosines of the pairs,
 * then sines, fp32, with YaRN where the spec has it. Frequencies base^(-2i/rope_dim), rounded to
 * fp32 as models keep them; angles in double. KVF_ERROR_LIMIT beyond the model's max_positions.
 * A million positions of 64 dims take about half a second. Any thread.
 */
KVF_API kvf_status kvf_rope_table(const kvf_bundle *bundle, uint32_t type, uint32_t positions,
                                  float *out, kvf_error *error);

/* ---- the state cache: request slots and every layer's per-request arrays ---- */

typedef struct kvf_cache kvf_cache;

/* Bytes a state cache of `slots` slots takes: all types, all layers, draft layers included. */
KVF_API kvf_status kvf_layout_bytes(const kvf_bundle *bundle, uint32_t slots, uint64_t *out,
                                    kvf_error *error);

typedef struct kvf_cache_options {
    uint32_t slots;     /* requests that can live at once */
    kvf_address memory; /* the caller's memory (256-byte aligned), or 0: the library allocates */
    uint64_t bytes;     /* of the caller's memory; at least kvf_layout_bytes */
} kvf_cache_options;

/*
 * Create the cache and set every array to its initial value, in the order of `stream`; refused
 * while the stream is being captured. Memory the caller gave stays the caller's; memory the library
 * allocated is freed by kvf_cache_destroy, which then waits for the device, as the driver's
 * cuMemFree does. The library must outlive the cache.
 */
KVF_API kvf_status kvf_cache_create(const kvf_library *library, const kvf_cache_options *options,
                                    kvf_stream stream, kvf_cache **out, kvf_error *error);
KVF_API void kvf_cache_destroy(kvf_cache *cache);
/* Bytes of device memory in use: exactly kvf_layout_bytes. */
KVF_API uint64_t kvf_cache_bytes(const kvf_cache *cache);

typedef struct kvf_array {
    const char *name, *dtype; /* "swa_fp8", "u8" */
    kvf_address base;         /* of slot 0 in this layer */
    uint64_t slot_stride;     /* from one slot to the next */
    uint64_t layer_stride;    /* from one layer of this type to the next */
    uint64_t bytes;           /* of this layer: slots * slot_stride */
    double init;              /* every element's initial value */
} kvf_array;

/* One array of one layer, by name; KVF_ERROR_NOT_FOUND if the layer's type has none such. */
KVF_API kvf_status kvf_cache_array(const kvf_cache *cache, uint32_t layer, const char *name,
                                   kvf_array *out, kvf_error *error);

/*
 * Take a free request slot (the lowest), or give one back. One thread at a time. A slot that is not
 * taken cannot be released: KVF_ERROR_STATE. Its arrays are reset by the state_reset kernel.
 */
KVF_API kvf_status kvf_slot_acquire(kvf_cache *cache, int32_t *slot, kvf_error *error);
KVF_API kvf_status kvf_slot_release(kvf_cache *cache, int32_t slot, kvf_error *error);
KVF_API uint32_t kvf_slots_free(const kvf_cache *cache);
/*
 * Check a batch's slots before it is sent to the device: each must be -1 (padding) or taken.
 * KVF_ERROR_ARGUMENT for one out of range, KVF_ERROR_STATE for one that is free.
 */
KVF_API kvf_status kvf_slots_check(const kvf_cache *cache, const int32_t *slots, uint32_t count,
                                   kvf_error *error);

/* ---- the pool ----
 *
 * Host code only: it says which ids hold what, in int32 tables that the kernels read. Nothing is
 * allocated after creation. A pool takes one thread at a time (a second one gets KVF_ERROR_STATE);
 * several pools are independent. The same calls give the same tables on every rank.
 *
 * Every call does everything or changes nothing. KVF_ERROR_SHORT means "not now" and the text says
 * which resource lacks how much: release or preempt something and try again. KVF_ERROR_LIMIT means
 * "never, in this pool".
 * A pool whose records are found damaged (somebody wrote to its memory, or a fault of the library)
 * is given up: that call and every later one return KVF_ERROR_STATE and the invariant that does not
 * hold, whatever the call had done by then; kvf_pool_destroy is what is left.
 *
 * A step, for every sequence of it: kvf_sequence_prepare, then kvf_batch_fill, the kernels, the
 * snapshots that kvf_sequence_snapshots names, then kvf_sequence_commit. */

typedef struct kvf_pool kvf_pool;
typedef struct kvf_batch kvf_batch;
typedef uint64_t kvf_sequence; /* a handle; 0 is none. Handles are not used again */

typedef enum kvf_policy {
    KVF_POLICY_ELASTIC = 0, /* one arena of chunks: windows, blocks and state draw on it */
    KVF_POLICY_STATIC = 1,  /* fixed numbers of window blocks, of blocks and of states */
    KVF_POLICY_SHARED = 2   /* per layer type, slots of `block` rows; windows lend to blocks */
} kvf_policy;

typedef struct kvf_pool_options {
    kvf_policy policy;
    uint64_t bytes;        /* the budget, request state included; or 0 with explicit counts */
    uint32_t max_requests; /* live at once */
    uint32_t max_tokens;   /* of the longest sequence; 0: the model's max_positions */
    uint32_t chunks;       /* elastic, without bytes */
    uint32_t windows;      /* static, shared: window blocks; with bytes 0: the seed's default */
    uint32_t blocks;       /* static, shared, without bytes */
    uint32_t lent_blocks;  /* shared: block ids beyond `blocks`, backed by what windows lend */
    uint32_t pins;         /* shared: checkpoint windows that are never lent while pinned */
    bool prefix_cache_off; /* publish nothing, find nothing */
    bool trailing;         /* shared: keep the trailing windows only, as the published seed does */
    bool no_promise;       /* admit without setting blocks aside for the output */
} kvf_pool_options;

KVF_API kvf_status kvf_pool_create(const kvf_bundle *bundle, const kvf_pool_options *options,
                                   kvf_pool **out, kvf_error *error);
KVF_API void kvf_pool_destroy(kvf_pool *pool);
/* Verify every invariant; O(pool). The text names the first one that is broken. */
KVF_API kvf_status kvf_pool_check(kvf_pool *pool, kvf_error *error);

typedef struct kvf_pool_stats {
    uint32_t requests, chunks, free_chunks;         /* chunks: elastic only */
    uint32_t windows, windows_used, windows_cached; /* in all; listed by a request; cached only */
    uint32_t blocks, blocks_used, blocks_cached;
    uint32_t envelopes_state, envelopes_snapshot;
    uint64_t bytes;      /* of device memory the pool manages */
    uint64_t used_bytes; /* of it, what live requests refer to */
    uint64_t admitted, refused, preempted, released;
    uint64_t prompt_tokens, hit_tokens; /* of admitted requests */
    uint64_t computed_tokens;           /* committed */
    uint64_t recomputed_tokens;         /* of those, what had been cached before and was evicted:
                                           when it grows, run fewer requests at once */
    uint64_t evicted_windows, evicted_blocks, adopted_blocks, adopted_windows;
    uint64_t operations; /* on lists and tables, since creation */
} kvf_pool_stats;
KVF_API kvf_status kvf_pool_get_stats(kvf_pool *pool, kvf_pool_stats *out, kvf_error *error);

/* What a budget holds when every request has `context` tokens and shares nothing. */
typedef struct kvf_plan {
    uint32_t chunks, windows, blocks, states; /* as created; chunks: elastic only */
    uint64_t bytes;                           /* of them all */
    uint32_t requests; /* that fit at once, max_requests at most under static and shared */
    uint64_t tokens;   /* requests * context */
    uint32_t longest;  /* tokens of one request alone, at most the model's positions */
    uint64_t state_bytes, window_bytes, snapshot_bytes, block_bytes; /* that those requests hold */
    uint64_t unused_bytes;  /* of `bytes`; free for the prefix cache */
    uint64_t request_bytes; /* of one such request */
} kvf_plan;
KVF_API kvf_status kvf_pool_plan(const kvf_bundle *bundle, const kvf_pool_options *options,
                                 uint32_t context, kvf_plan *out, kvf_error *error);

enum { KVF_SNAPSHOT_PARTS = 8 };
/* Where the tails of a position lie: the last `ratio` tokens of stream b (manifest, `snapshot`). */
typedef struct kvf_snapshot {
    uint32_t position;               /* 0: nothing to do */
    uint32_t parts;                  /* ids in use */
    int32_t ids[KVF_SNAPSHOT_PARTS]; /* envelopes; under `shared` the window block */
} kvf_snapshot;

typedef struct kvf_admission {
    kvf_sequence sequence;
    uint32_t hit;         /* tokens taken from the cache: computing starts here */
    uint32_t write_from;  /* no compressed row below is written: others share it; window rows are
                             written from `hit` on */
    uint32_t slot;        /* 0..max_requests-1, dense; stays until the release */
    kvf_snapshot restore; /* into the request's tails, before its first step */
} kvf_admission;

/*
 * Admit a request of `count` tokens and take all blocks of its prompt; the windows of its first
 * chunk of at most `chunk` tokens are set aside, so that preparing that chunk cannot fail.
 */
KVF_API kvf_status kvf_sequence_admit(kvf_pool *pool, const int32_t *tokens, uint32_t count,
                                      uint32_t chunk, kvf_admission *out, kvf_error *error);
/* Of the next `want` tokens, how many one chunk may take: it must end where tails are saved. */
KVF_API kvf_status kvf_sequence_chunk(kvf_pool *pool, kvf_sequence sequence, uint32_t want,
                                      uint32_t *out, kvf_error *error);
/* Back the next `tokens` tokens with memory: known ones, and at most `drafts` that are not. The
 * step has these tokens, no more: what was prepared beyond them is given back. */
KVF_API kvf_status kvf_sequence_prepare(kvf_pool *pool, kvf_sequence sequence, uint32_t tokens,
                                        kvf_error *error);
/* The snapshots to save after the prepared tokens were computed. `count` is set even if it is more
 * than `capacity` (then nothing is written and the status is KVF_ERROR_LIMIT). */
KVF_API kvf_status kvf_sequence_snapshots(kvf_pool *pool, kvf_sequence sequence, kvf_snapshot *out,
                                          uint32_t capacity, uint32_t *count, kvf_error *error);
/*
 * `tokens` of the prepared tokens were computed; `ids` are newly known tokens, appended to those
 * that were known (a decode step commits one token and makes the sampled one known). Publishes
 * what is complete and releases what left the window.
 */
KVF_API kvf_status kvf_sequence_commit(kvf_pool *pool, kvf_sequence sequence, uint32_t tokens,
                                       const int32_t *ids, uint32_t id_count, kvf_error *error);
/* Give back what was prepared beyond `length`, or take back up to `drafts` committed tokens that
 * were rejected; the ids of those are forgotten. */
KVF_API kvf_status kvf_sequence_truncate(kvf_pool *pool, kvf_sequence sequence, uint32_t length,
                                         kvf_error *error);

/* What a row of memory moves with. Ids; see kvf_pool_ranges for bytes. */
typedef enum kvf_copy_kind {
    KVF_COPY_BLOCK = 0,
    KVF_COPY_WINDOW = 1,
    KVF_COPY_STATE_CHUNK = 2, /* a part of a request's state that is a whole chunk */
    KVF_COPY_SNAPSHOT = 4,    /* a part of saved tails; under `shared` those of a window block */
    KVF_COPY_STATE = 3        /* a part that is an envelope; the state itself, if not elastic */
} kvf_copy_kind;
typedef struct kvf_copy {
    kvf_copy_kind kind;
    int32_t from, to;
} kvf_copy;

enum { KVF_FORK_COPIES = 136 };
typedef struct kvf_fork {
    kvf_sequence sequence; /* the child */
    uint32_t slot;
    uint32_t count; /* copies to make before either takes another step */
    kvf_copy copies[KVF_FORK_COPIES];
} kvf_fork;
/* A second sequence with the same tokens: full blocks and windows are shared, the rest is copied.
 */
KVF_API kvf_status kvf_sequence_fork(kvf_pool *pool, kvf_sequence sequence, kvf_fork *out,
                                     kvf_error *error);
/* End a sequence. Its content stays cached until the memory is needed. Preempting marks the
 * end as one that is resumed soon; admit the request again with all its tokens. */
KVF_API kvf_status kvf_sequence_preempt(kvf_pool *pool, kvf_sequence sequence, kvf_error *error);
KVF_API kvf_status kvf_sequence_release(kvf_pool *pool, kvf_sequence sequence, kvf_error *error);

typedef struct kvf_sequence_info {
    uint32_t known, computed, prepared; /* tokens */
    uint32_t hit, write_from, slot, blocks;
} kvf_sequence_info;
KVF_API kvf_status kvf_sequence_get_info(kvf_pool *pool, kvf_sequence sequence,
                                         kvf_sequence_info *out, kvf_error *error);

/* The caller's buffers, int32 on the host; the same ones for every step, so that a captured graph
 * finds its tables where they were. */
typedef struct kvf_batch_buffers {
    uint32_t max_tokens, max_requests; /* T and R below */
    uint32_t max_blocks;               /* M: columns of a table, ceil(max_tokens / block) */
    uint32_t state_parts;              /* P: kvf_pool_state_parts; 1 unless elastic */
    int32_t *batch_id, *position;      /* [T]; -1 in both beyond the step's tokens */
    int32_t *cu_tokens;                /* [R + 1] */
    int32_t *state_slot;               /* [P][R]; -1 beyond the step's requests */
    int32_t *write_from;               /* [R]: for the compressors */
    int32_t *block_table[16];          /* [R][M], -1 where nothing is backed; [0] only, except under
                                          `shared`: one per compressed type, in order of types */
    int32_t *index_table;              /* [R][M]; shared: block ids, for index rows; else null */
    int32_t *window_table;             /* [R][M] */
    int32_t *window_from;              /* [R], or null: write_from of swa_write, which is where
                                          computing began. Between it and write_from rows of entries
                                          are shared, but windows are the sequence's own */
} kvf_batch_buffers;
KVF_API uint32_t kvf_pool_state_parts(const kvf_pool *pool);
KVF_API uint32_t kvf_pool_max_blocks(const kvf_pool *pool);
/* Bind buffers once; every fill writes only what changed. Destroy before the pool. */
KVF_API kvf_status kvf_batch_create(kvf_pool *pool, const kvf_batch_buffers *buffers,
                                    kvf_batch **out, kvf_error *error);
KVF_API void kvf_batch_destroy(kvf_batch *batch);
/* The step of `count` sequences, each with its prepared tokens, in this order. */
KVF_API kvf_status kvf_batch_fill(kvf_batch *batch, const kvf_sequence *sequences, uint32_t count,
                                  kvf_error *error);

/* Bytes [offset, offset + bytes) of an allocation. Allocations: elastic has one (0). static: 0
 * windows, 1 blocks and snapshots, 2 states. shared: per type its planes, then its index rows, in
 * order; then states, then snapshots. */
typedef struct kvf_range {
    uint32_t allocation;
    uint64_t offset, bytes;
} kvf_range;
/* All bytes of blocks, or of all a sequence refers to: ascending, merged, each byte once. `count`
 * is always set; more than `capacity`: KVF_ERROR_LIMIT and nothing is written. */
KVF_API kvf_status kvf_pool_ranges(kvf_pool *pool, kvf_copy_kind kind, const int32_t *ids,
                                   uint32_t id_count, kvf_range *out, uint32_t capacity,
                                   uint32_t *count, kvf_error *error);
KVF_API kvf_status kvf_sequence_ranges(kvf_pool *pool, kvf_sequence sequence, kvf_range *out,
                                       uint32_t capacity, uint32_t *count, kvf_error *error);

#ifdef __cplusplus
}
#endif

#endif
