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
 * usual places, or is null. The executor is looked for beside the library, then in KVF_EXECUTOR.
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

/* Read and check a bundle's manifest and every module's digest. No driver is needed. */
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

/* A layer type, by value; see docs/manifest.md for each word. Strings live as long as the bundle.
 */
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

/* Find a kernel: `type` is a layer type's name ("csa"), `kernel` the job ("swa_write"). */
KVF_API kvf_status kvf_library_kernel(const kvf_library *library, const char *type,
                                      const char *kernel, const kvf_kernel **out, kvf_error *error);

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
 * size. Checked against the manifest: the size, pointers that are null or misaligned, the grid
 * against the device's limits. An empty grid succeeds without reaching the driver.
 */
KVF_API kvf_status kvf_launch(const kvf_kernel *kernel, kvf_stream stream, const void *params,
                              size_t bytes, kvf_error *error);

/*
 * Fill `out[positions][rope_dim]` with the type's RoPE table on the host: cosines of the pairs,
 * then sines, fp32, with YaRN where the spec has it. Frequencies base^(-2i/rope_dim); angles in
 * double.
 */
KVF_API kvf_status kvf_rope_table(const kvf_bundle *bundle, uint32_t type, uint32_t positions,
                                  float *out, kvf_error *error);

/* ---- the state cache: request slots and every layer's per-request arrays ---- */

typedef struct kvf_cache kvf_cache;

/* Bytes a state cache of `slots` request slots takes: all types, all layers, draft layers included.
 */
KVF_API kvf_status kvf_layout_bytes(const kvf_bundle *bundle, uint32_t slots, uint64_t *out,
                                    kvf_error *error);

typedef struct kvf_cache_options {
    uint32_t slots;     /* requests that can live at once */
    kvf_address memory; /* the caller's memory (256-byte aligned), or 0: the library allocates */
    uint64_t bytes;     /* of the caller's memory; at least kvf_layout_bytes */
} kvf_cache_options;

/*
 * Create the cache and set every array to its initial value, in the order of `stream`. Memory the
 * caller gave stays the caller's; memory the library allocated is freed by kvf_cache_destroy.
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

/* Take a free request slot (the lowest), or give one back. One thread at a time. A slot that is not
 * taken cannot be released: KVF_ERROR_STATE. Its arrays are reset by the state_reset kernel. */
KVF_API kvf_status kvf_slot_acquire(kvf_cache *cache, int32_t *slot, kvf_error *error);
KVF_API kvf_status kvf_slot_release(kvf_cache *cache, int32_t slot, kvf_error *error);
KVF_API uint32_t kvf_slots_free(const kvf_cache *cache);

/* ---- the pool ---- */

#ifdef __cplusplus
}
#endif

#endif
