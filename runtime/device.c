#include "device.h"

#include <stdlib.h>

#include "error.h"

kvf_status device_enter(const struct kvf_device *device, bool *pushed, kvf_error *error) {
    const struct kvf_driver *driver = device->driver;
    CUcontext current = NULL;
    *pushed = false;
    CUresult code = driver->cuCtxGetCurrent(&current);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuCtxGetCurrent", "finding the context", error);
    if (current == device->context) return KVF_OK;
    code = driver->cuCtxPushCurrent_v2(device->context);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuCtxPushCurrent", "using the device's context", error);
    *pushed = true;
    return KVF_OK;
}

void device_leave(const struct kvf_device *device, bool pushed) {
    CUcontext popped;
    if (pushed) (void)device->driver->cuCtxPopCurrent_v2(&popped);
}

kvf_status device_refuse_capture(const struct kvf_device *device, kvf_stream stream,
                                 const char *what, kvf_error *error) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult code = device->driver->cuStreamIsCapturing(stream, &status);
    /* The legacy stream answers with an error while another stream is captured. */
    if (code != CUDA_SUCCESS)
        return driver_fail(device->driver, code, "cuStreamIsCapturing", what, error);
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) return KVF_OK;
    return error_set(error, KVF_ERROR_CAPTURE,
                     "%s: the stream is being captured into a graph; do this before the capture",
                     what);
}

static kvf_status find_device(struct kvf_device *device, int ordinal, kvf_error *error) {
    const struct kvf_driver *driver = device->driver;
    int count = 0;
    CUresult code = driver->cuDeviceGetCount(&count);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuDeviceGetCount", "counting devices", error);
    if (ordinal < 0 || ordinal >= count)
        return error_set(error, KVF_ERROR_ARGUMENT, "device %d: the driver has devices 0 to %d",
                         ordinal, count - 1);
    code = driver->cuDeviceGet(&device->device, ordinal);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuDeviceGet", "opening the device", error);
    code = driver->cuDeviceGetName(device->name, sizeof device->name - 1, device->device);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuDeviceGetName", "naming the device", error);
    return KVF_OK;
}

static kvf_status read_limits(struct kvf_device *device, kvf_error *error) {
    const struct kvf_driver *driver = device->driver;
    int major = 0, minor = 0;
    const struct {
        int attribute;
        int *value;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &device->max_block_threads},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &device->max_grid[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &device->max_grid[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &device->max_grid[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->max_shared},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        CUresult code =
            driver->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, device->device);
        if (code != CUDA_SUCCESS)
            return driver_fail(driver, code, "cuDeviceGetAttribute", "asking the device's limits",
                               error);
    }
    device->capability = major * 10 + minor;
    return KVF_OK;
}

/* The caller's current context if it belongs to the device, else the primary one. */
static kvf_status find_context(struct kvf_device *device, kvf_error *error) {
    const struct kvf_driver *driver = device->driver;
    CUcontext current = NULL;
    CUdevice owner = -1;
    CUresult code = driver->cuCtxGetCurrent(&current);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuCtxGetCurrent", "finding the context", error);
    if (current) {
        code = driver->cuCtxGetDevice(&owner);
        if (code != CUDA_SUCCESS)
            return driver_fail(driver, code, "cuCtxGetDevice", "finding the context", error);
    }
    if (current && owner == device->device) {
        device->context = current;
        return KVF_OK;
    }
    code = driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (code != CUDA_SUCCESS)
        return driver_fail(driver, code, "cuDevicePrimaryCtxRetain",
                           "taking the device's primary context", error);
    device->retained = true;
    return KVF_OK;
}

kvf_status kvf_device_open(kvf_driver *driver, int ordinal, kvf_device **out, kvf_error *error) {
    if (!driver || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_device_open: %s is null",
                         driver ? "out" : "driver");
    struct kvf_device *device = calloc(1, sizeof *device);
    if (!device) return error_memory(error, "opening the device");
    device->driver = driver;
    kvf_status status = find_device(device, ordinal, error);
    if (status == KVF_OK) status = read_limits(device, error);
    if (status == KVF_OK) status = find_context(device, error);
    if (status == KVF_OK)
        *out = device;
    else
        kvf_device_close(device);
    return status;
}

void kvf_device_close(kvf_device *device) {
    if (!device) return;
    if (device->retained) (void)device->driver->cuDevicePrimaryCtxRelease_v2(device->device);
    free(device);
}

const char *kvf_device_name(const kvf_device *device) {
    return device->name;
}

int kvf_device_capability(const kvf_device *device) {
    return device->capability;
}
