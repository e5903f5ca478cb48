/* Contexts: the primary one, ones made by the program, and each thread's stack of them. */
#include <stdlib.h>

#include "driver.h"

enum { STACK_DEPTH = 64 };

static _Thread_local struct CUctx_st *stack[STACK_DEPTH];
static _Thread_local int depth;

struct CUctx_st *driver_current(void) {
    return depth ? stack[depth - 1] : NULL;
}

static bool context_valid(const struct CUctx_st *context) {
    if (context == &driver.primary) return true;
    for (const struct CUctx_st *c = driver.contexts; c; c = c->next)
        if (c == context) return true;
    return false;
}

CU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CU_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
CU_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CU_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags,
                                  CUdevice device);
CU_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
CU_EXPORT CUresult cuCtxGetCurrent(CUcontext *context);
CU_EXPORT CUresult cuCtxSetCurrent(CUcontext context);
CU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
CU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context);
CU_EXPORT CUresult cuCtxGetDevice(CUdevice *device);
CU_EXPORT CUresult cuCtxGetFlags(unsigned *flags);
CU_EXPORT CUresult cuCtxSynchronize(void);
CU_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);
CU_EXPORT CUresult cuCtxGetLimit(size_t *value, int limit);
CU_EXPORT CUresult cuCtxSetLimit(int limit, size_t value);
CU_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
CU_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER("cuDevicePrimaryCtxRetain");
    if (!context) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    driver.primary.references++;
    driver.primary.destroyed = false;
    *context = &driver.primary;
    DONE(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER("cuDevicePrimaryCtxRelease_v2");
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    if (!driver.primary.references) DONE(CUDA_ERROR_INVALID_CONTEXT);
    if (--driver.primary.references == 0) driver.primary.error = 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER("cuDevicePrimaryCtxReset_v2");
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    driver.primary.error = 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER("cuDevicePrimaryCtxGetState");
    if (!flags || !active) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    *flags = driver.primary.flags;
    *active = driver.primary.references > 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER("cuDevicePrimaryCtxSetFlags_v2");
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    driver.primary.flags = flags;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER("cuCtxCreate_v2");
    if (!context) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    if (depth == STACK_DEPTH) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    struct CUctx_st *c = calloc(1, sizeof *c);
    if (!c) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    c->flags = flags;
    c->references = 1;
    c->next = driver.contexts;
    driver.contexts = c;
    stack[depth++] = c;
    *context = c;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
    (void)params;
    return cuCtxCreate_v2(context, flags, device);
}

/* The handle stays known, so that its use by a thread that holds it is an error and no crash. */
CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER("cuCtxDestroy_v2");
    if (!context || context == &driver.primary || !context_valid(context) || context->destroyed)
        DONE(CUDA_ERROR_INVALID_CONTEXT);
    context->destroyed = true;
    if (depth && stack[depth - 1] == context) depth--;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER("cuCtxGetCurrent");
    if (!context) DONE(CUDA_ERROR_INVALID_VALUE);
    *context = driver_current();
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER("cuCtxSetCurrent");
    if (context && !context_valid(context)) DONE(CUDA_ERROR_INVALID_CONTEXT);
    if (!context) {
        if (depth) depth--;
    } else {
        if (!depth) depth = 1;
        stack[depth - 1] = context;
    }
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER("cuCtxPushCurrent_v2");
    if (!context || !context_valid(context)) DONE(CUDA_ERROR_INVALID_CONTEXT);
    if (depth == STACK_DEPTH) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    stack[depth++] = context;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER("cuCtxPopCurrent_v2");
    if (!depth) DONE(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (context) *context = stack[depth];
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER("cuCtxGetDevice");
    if (!device) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!depth) DONE(CUDA_ERROR_INVALID_CONTEXT);
    *device = 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxGetFlags(unsigned *flags) {
    ENTER("cuCtxGetFlags");
    if (!flags) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!depth) DONE(CUDA_ERROR_INVALID_CONTEXT);
    *flags = driver_current()->flags;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void) {
    ENTER_CONTEXT("cuCtxSynchronize");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    ENTER("cuCtxGetApiVersion");
    if (!version) DONE(CUDA_ERROR_INVALID_VALUE);
    if (context && !context_valid(context)) DONE(CUDA_ERROR_INVALID_CONTEXT);
    *version = 3020;
    DONE(CUDA_SUCCESS);
}

static uint64_t *limit_of(int limit) {
    switch (limit) {
    case 0: return &driver.stack_limit;
    case 1: return &driver.fifo_limit;
    case 2: return &driver.heap_limit;
    default: return NULL;
    }
}

CUresult cuCtxGetLimit(size_t *value, int limit) {
    ENTER_CONTEXT("cuCtxGetLimit");
    uint64_t *stored = limit_of(limit);
    if (!value || !stored) DONE(CUDA_ERROR_INVALID_VALUE);
    *value = *stored;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    ENTER_CONTEXT("cuCtxSetLimit");
    uint64_t *stored = limit_of(limit);
    if (!stored) DONE(CUDA_ERROR_INVALID_VALUE);
    *stored = value;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER_CONTEXT("cuCtxGetStreamPriorityRange");
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    DONE(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    ENTER("cuCtxGetId");
    if (!id) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!context) context = driver_current();
    if (!context || !context_valid(context)) DONE(CUDA_ERROR_INVALID_CONTEXT);
    *id = (unsigned long long)(uintptr_t)context;
    DONE(CUDA_SUCCESS);
}
