/*
 * What the driver's results mean. The names are kept here because a driver that fails early (the
 * stub above all) cannot be asked for them.
 */
#include <stdio.h>

#include "driver.h"
#include "error.h"

struct result_row {
    CUresult code;
    kvf_status status;
    const char *name;
    const char *sentence; /* what the user should think of; empty where the name says it all */
};

static const char oom[] = "the device has no memory left for this";
static const char module_image[] = "no code in the module can run on this device";
static const char bad_ptx[] = "the JIT compiler refused the PTX; its log says why";
static const char fault[] =
    "a kernel that ran earlier in this context failed; every later call in it will fail too";
static const char capture[] =
    "a stream is being captured into a graph, and this call is not allowed meanwhile";
static const char context[] = "the CUDA context is not usable";

static const struct result_row results[] = {
    {1, KVF_ERROR_DRIVER, "CUDA_ERROR_INVALID_VALUE", "an argument was not accepted"},
    {2, KVF_ERROR_DEVICE_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", oom},
    {3, KVF_ERROR_DRIVER, "CUDA_ERROR_NOT_INITIALIZED", "the driver was not initialised"},
    {4, KVF_ERROR_DRIVER, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
    {34, KVF_ERROR_NO_DRIVER, "CUDA_ERROR_STUB_LIBRARY",
     "this is the stub library for linking, not a driver; install the NVIDIA driver or take the "
     "stubs directory off the library path"},
    {36, KVF_ERROR_DRIVER, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the driver is too old for it"},
    {46, KVF_ERROR_NO_DRIVER, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "the device is in use exclusively by another process"},
    {100, KVF_ERROR_NO_DRIVER, "CUDA_ERROR_NO_DEVICE", "the driver sees no CUDA device"},
    {101, KVF_ERROR_ARGUMENT, "CUDA_ERROR_INVALID_DEVICE", "there is no such device"},
    {200, KVF_ERROR_DRIVER, "CUDA_ERROR_INVALID_IMAGE", "the module is not valid"},
    {201, KVF_ERROR_DRIVER, "CUDA_ERROR_INVALID_CONTEXT", context},
    {209, KVF_ERROR_NO_TARGET, "CUDA_ERROR_NO_BINARY_FOR_GPU", module_image},
    {214, KVF_ERROR_DRIVER, "CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory is faulty"},
    {218, KVF_ERROR_COMPILE, "CUDA_ERROR_INVALID_PTX", bad_ptx},
    {220, KVF_ERROR_DRIVER, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "a link between devices is faulty"},
    {221, KVF_ERROR_COMPILE, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
     "the driver's PTX compiler library (libnvidia-ptxjitcompiler) is not installed"},
    {222, KVF_ERROR_OLD_DRIVER, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the PTX is of a newer version than the driver knows; update the driver"},
    {223, KVF_ERROR_COMPILE, "CUDA_ERROR_JIT_COMPILATION_DISABLED",
     "PTX compilation is switched off (CUDA_DISABLE_PTX_JIT)"},
    {300, KVF_ERROR_COMPILE, "CUDA_ERROR_INVALID_SOURCE", bad_ptx},
    {304, KVF_ERROR_DRIVER, "CUDA_ERROR_OPERATING_SYSTEM", "the operating system refused a call"},
    {400, KVF_ERROR_DRIVER, "CUDA_ERROR_INVALID_HANDLE",
     "a stream or another object is not of this context, or no longer lives"},
    {401, KVF_ERROR_DRIVER, "CUDA_ERROR_ILLEGAL_STATE", "an object is not in the right state"},
    {500, KVF_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "there is no such symbol in the module"},
    {600, KVF_ERROR_DRIVER, "CUDA_ERROR_NOT_READY", "the work is not finished"},
    {700, KVF_ERROR_DRIVER, "CUDA_ERROR_ILLEGAL_ADDRESS", fault},
    {701, KVF_ERROR_LIMIT, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "the kernel wants more threads, registers or shared memory than the device has"},
    {702, KVF_ERROR_DRIVER, "CUDA_ERROR_LAUNCH_TIMEOUT", fault},
    {709, KVF_ERROR_DRIVER, "CUDA_ERROR_CONTEXT_IS_DESTROYED", context},
    {710, KVF_ERROR_DRIVER, "CUDA_ERROR_ASSERT", fault},
    {714, KVF_ERROR_DRIVER, "CUDA_ERROR_HARDWARE_STACK_ERROR", fault},
    {715, KVF_ERROR_DRIVER, "CUDA_ERROR_ILLEGAL_INSTRUCTION", fault},
    {716, KVF_ERROR_DRIVER, "CUDA_ERROR_MISALIGNED_ADDRESS", fault},
    {717, KVF_ERROR_DRIVER, "CUDA_ERROR_INVALID_ADDRESS_SPACE", fault},
    {718, KVF_ERROR_DRIVER, "CUDA_ERROR_INVALID_PC", fault},
    {719, KVF_ERROR_DRIVER, "CUDA_ERROR_LAUNCH_FAILED", fault},
    {800, KVF_ERROR_DRIVER, "CUDA_ERROR_NOT_PERMITTED", "the call is not permitted now"},
    {801, KVF_ERROR_DRIVER, "CUDA_ERROR_NOT_SUPPORTED", "this driver or device cannot do it"},
    {802, KVF_ERROR_NO_DRIVER, "CUDA_ERROR_SYSTEM_NOT_READY",
     "the system is not ready for CUDA (a fabric manager may not be running)"},
    {803, KVF_ERROR_NO_DRIVER, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the kernel module and the user-mode driver are of different versions"},
    {804, KVF_ERROR_NO_DRIVER, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "the forward-compatibility package does not support this device"},
    {900, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", capture},
    {901, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", capture},
    {902, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", capture},
    {903, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", capture},
    {904, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", capture},
    {905, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", capture},
    {906, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", capture},
    {907, KVF_ERROR_CAPTURE, "CUDA_ERROR_CAPTURED_EVENT", capture},
    {908, KVF_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", capture},
    {999, KVF_ERROR_DRIVER, "CUDA_ERROR_UNKNOWN", "the driver does not say why"},
};

static const struct result_row *find_result(CUresult code) {
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        if (results[i].code == code) return &results[i];
    return NULL;
}

kvf_status driver_status(CUresult code) {
    if (code == CUDA_SUCCESS) return KVF_OK;
    const struct result_row *row = find_result(code);
    return row ? row->status : KVF_ERROR_DRIVER;
}

const char *driver_result_name(CUresult code) {
    const struct result_row *row = find_result(code);
    return row ? row->name : NULL;
}

kvf_status driver_fail(const struct kvf_driver *driver, CUresult code, const char *call,
                       const char *what, kvf_error *error) {
    const struct result_row *row = find_result(code);
    const char *name = row ? row->name : NULL;
    /* A code newer than our table: the driver itself may know its name. */
    if (!name && driver->cuGetErrorName && driver->cuGetErrorName(code, &name) != CUDA_SUCCESS)
        name = NULL;
    if (!name) name = "an unknown result";
    const char *sentence = row ? row->sentence : "";
    kvf_status status = row ? row->status : KVF_ERROR_DRIVER;
    error_set(error, status, "%s: %s returned %s (%d)%s%s", what, call, name, code,
              *sentence ? ": " : "", sentence);
    if (error) {
        error->driver_code = code;
        (void)snprintf(error->driver_name, sizeof error->driver_name, "%s", name);
    }
    return status;
}
