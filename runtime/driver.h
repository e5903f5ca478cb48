/*
 * An open CUDA driver: its symbols, its errors, and the context rule. Internal to the library; the
 * programs and tests of this project use it too, for memory, copies, streams and graphs.
 *
 * Threads: a driver is read-only once open. Every call of a symbol needs the device's context to be
 * current on the calling thread: see device_enter in device.h.
 */
#ifndef KVF_DRIVER_H
#define KVF_DRIVER_H

#include "cuda_api.h"
#include "kvforge.h"

/*
 * The one table of symbols: need, base name, ABI name, the API version its signature came with, and
 * the parameters. The base name and the version are what cuGetProcAddress is asked for; the ABI
 * name is what dlsym finds where there is no cuGetProcAddress, and the name of the member below.
 * REQUIRED: opening fails without it. OPTIONAL: null where the driver lacks it.
 */
/* clang-format off */
#define DRIVER_SYMBOLS(REQUIRED, OPTIONAL)                                                         \
    REQUIRED(cuInit, cuInit, 2000, (unsigned flags))                                               \
    REQUIRED(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version))                         \
    OPTIONAL(cuGetErrorName, cuGetErrorName, 6000, (CUresult code, const char **name))             \
    OPTIONAL(cuGetErrorString, cuGetErrorString, 6000, (CUresult code, const char **text))         \
    REQUIRED(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count))                               \
    REQUIRED(cuDeviceGet, cuDeviceGet, 2000, (CUdevice *device, int ordinal))                     \
    REQUIRED(cuDeviceGetName, cuDeviceGetName, 2000, (char *name, int bytes, CUdevice device))     \
    REQUIRED(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,                                     \
             (int *value, int attribute, CUdevice device))                                         \
    REQUIRED(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,                             \
             (CUcontext *context, CUdevice device))                                               \
    REQUIRED(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice device))    \
    REQUIRED(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext *context))                        \
    REQUIRED(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (CUcontext context))                     \
    REQUIRED(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (CUcontext *context))                     \
    REQUIRED(cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice *device))                            \
    OPTIONAL(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                     \
    REQUIRED(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010,                                         \
             (CUmodule *module, const void *image, unsigned options, int *names, void **values))  \
    REQUIRED(cuModuleUnload, cuModuleUnload, 2000, (CUmodule module))                              \
    REQUIRED(cuModuleGetFunction, cuModuleGetFunction, 2000,                                       \
             (CUfunction *function, CUmodule module, const char *name))                           \
    REQUIRED(cuFuncGetAttribute, cuFuncGetAttribute, 2020,                                         \
             (int *value, int attribute, CUfunction function))                                     \
    REQUIRED(cuFuncSetAttribute, cuFuncSetAttribute, 9000,                                         \
             (CUfunction function, int attribute, int value))                                      \
    OPTIONAL(cuFuncLoad, cuFuncLoad, 12040, (CUfunction function))                                 \
    OPTIONAL(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040,                                        \
             (CUfunction function, size_t index, size_t *offset, size_t *size))                    \
    REQUIRED(cuLaunchKernel, cuLaunchKernel, 4000,                                                 \
             (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,              \
              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,               \
              CUstream stream, void **params, void **extra))                                       \
    REQUIRED(cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr *address, size_t bytes))               \
    REQUIRED(cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr address))                                 \
    REQUIRED(cuMemsetD8Async, cuMemsetD8Async, 3020,                                               \
             (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                 \
    REQUIRED(cuMemsetD16Async, cuMemsetD16Async, 3020,                                             \
             (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))                \
    REQUIRED(cuMemsetD32Async, cuMemsetD32Async, 3020,                                             \
             (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                      \
    REQUIRED(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (CUstream stream, int *status))      \
    OPTIONAL(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free, size_t *total))                  \
    OPTIONAL(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020,                                                  \
             (CUdeviceptr to, const void *from, size_t bytes))                                     \
    OPTIONAL(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void *to, CUdeviceptr from, size_t bytes))      \
    OPTIONAL(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    OPTIONAL(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,                                        \
             (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                    \
    OPTIONAL(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,                                        \
             (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                          \
    OPTIONAL(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,                                        \
             (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                    \
    OPTIONAL(cuMemsetD8, cuMemsetD8_v2, 3020, (CUdeviceptr to, unsigned char value, size_t count)) \
    OPTIONAL(cuStreamCreate, cuStreamCreate, 2000, (CUstream *stream, unsigned flags))            \
    OPTIONAL(cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream stream))                         \
    OPTIONAL(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream))                    \
    OPTIONAL(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (CUstream stream, int mode))    \
    OPTIONAL(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph *graph))    \
    OPTIONAL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,                      \
             (CUgraphExec *exec, CUgraph graph, unsigned long long flags))                        \
    OPTIONAL(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream))             \
    OPTIONAL(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec exec))                    \
    OPTIONAL(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph))                               \
    OPTIONAL(cuEventCreate, cuEventCreate, 2000, (CUevent *event, unsigned flags))                \
    OPTIONAL(cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent event))                             \
    OPTIONAL(cuEventRecord, cuEventRecord, 2000, (CUevent event, CUstream stream))                 \
    OPTIONAL(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent event))                        \
    OPTIONAL(cuEventElapsedTime, cuEventElapsedTime, 2000,                                         \
             (float *milliseconds, CUevent start, CUevent end))

/* clang-format on */

/* NOLINTNEXTLINE(bugprone-macro-parentheses): the parameters bring their own */
#define DRIVER_MEMBER(base, abi, version, parameters) CUresult(*abi) parameters;

struct kvf_driver {
    DRIVER_SYMBOLS(DRIVER_MEMBER, DRIVER_MEMBER)
    kvf_driver_kind kind;
    int version; /* 13000: 13.0 */
    char *path;  /* the file that was opened */
    void *handle;
    bool started; /* cuInit succeeded */
};

/* A symbol of the opened library that is not in the table (the executor's extras), or null. */
void *driver_extra(const struct kvf_driver *driver, const char *name);

/* ---- errors of the driver (driver_error.c) ---- */

/* The kvf_status that a result means where nothing more special is known. */
kvf_status driver_status(CUresult code);

/* The driver's own name for a result, from our table; null if it is not in there. */
const char *driver_result_name(CUresult code);

/*
 * Fill `error` for `call` (the name of the entry point) that returned `code`: the status of
 * driver_status, the name, and a sentence that says what such a code means. `what` says what was
 * being done: "loading module csa.sm_90.ptx". Returns the status.
 */
kvf_status driver_fail(const struct kvf_driver *driver, CUresult code, const char *call,
                       const char *what, kvf_error *error);

#endif
