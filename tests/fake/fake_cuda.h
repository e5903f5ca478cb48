/*
 * A CUDA driver for tests of the loader: it has one make-believe device, executes nothing, records
 * what it was asked and fails on demand. Its device memory is host memory, so that tests can read
 * it. It never calls malloc. A test gets the state from the symbol fake_cuda_state.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>

#include "cuda_api.h"

struct fake_state {
    /* What the fake pretends to be; fake_cuda_reset sets a healthy sm_90 with driver 13.0. */
    int init_result, devices, version, major, minor;
    int max_shared, max_threads, registers, local_bytes, static_shared;
    int stub;             /* every call gives 34 */
    int jit_code;         /* what loading a module gives */
    int cubin_code;       /* what loading an image that begins with "CUBIN" gives */
    const char *jit_info; /* logs that loading a module writes */
    const char *jit_error;
    int capturing;           /* the capture status of every stream */
    const char *missing;     /* base name of a symbol that cuGetProcAddress does not know */
    size_t param_shift;      /* added to the offsets that cuFuncGetParamInfo gives */
    int param_count_add;     /* parameters more than there are */
    CUcontext current;       /* of the (only) thread */
    CUdevice current_device; /* that it belongs to */

    /* The n-th counted call from now fails with fail_code; 0: none. */
    int fail_in, fail_code;
    const char *failed_call; /* the call that was made to fail, or null */

    /* What was asked. */
    int calls, launches, funcs_loaded, dynamic_shared, sets;
    unsigned grid[3], block, shared;
    size_t params_bytes;
    unsigned char params[4096];
    CUstream stream;
    int asked_version; /* the highest that cuGetProcAddress was asked */

    /* What lives and must be given back. */
    int modules, retained, pushed;
    size_t memory, memory_blocks;
};

typedef struct fake_state *(*fake_cuda_state_fn)(void);
typedef void (*fake_cuda_reset_fn)(void);

/* The fake's own primary context, and one that a caller may have made. */
#define FAKE_PRIMARY ((CUcontext)0x1000)
#define FAKE_CALLERS ((CUcontext)0x2000)

#endif
