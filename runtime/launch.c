/* Launching: the checks that need no device, and one driver call. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "library.h"

__attribute__((format(printf, 4, 5))) static kvf_status refuse(const struct kvf_kernel *kernel,
                                                               kvf_error *error, kvf_status status,
                                                               const char *format, ...) {
    if (!error) return status;
    char text[sizeof error->text - 160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *type = kernel->module->from->type, *name = kernel->from->name;
    error_set(error, status, "launch of %s/%s: %s", type, name, text);
    error_kernel(error, type, name);
    return status;
}

static kvf_status check_pointer(const struct kvf_kernel *kernel, const kvf_param_info *param,
                                uint64_t address, kvf_error *error) {
    if (address == 0 && !param->optional)
        return refuse(kernel, error, KVF_ERROR_ARGUMENT, "parameter %s is a null pointer",
                      param->name);
    if (address & (param->align - 1))
        return refuse(kernel, error, KVF_ERROR_ARGUMENT,
                      "parameter %s is 0x%llx, not a multiple of %u", param->name,
                      (unsigned long long)address, param->align);
    return KVF_OK;
}

/* An integer parameter's value; negative ones count as too large, as no count or stride is
 * negative. */
static uint64_t value_of(const struct bundle_param *param, const unsigned char *params) {
    uint32_t word;
    uint64_t wide;
    if (param->info.size == sizeof wide) {
        memcpy(&wide, params + param->info.offset, sizeof wide);
        return wide;
    }
    memcpy(&word, params + param->info.offset, sizeof word);
    return param->type == PARAM_I32 ? (uint64_t)(int64_t)(int32_t)word : word;
}

static kvf_status check_params(const struct kvf_kernel *kernel, const unsigned char *params,
                               kvf_error *error) {
    for (uint32_t i = 0; i < kernel->from->param_count; i++) {
        const struct bundle_param *param = &kernel->from->params[i];
        if (param->type == PARAM_F32) continue;
        uint64_t value = value_of(param, params);
        if (param->type == PARAM_PTR) {
            kvf_status status = check_pointer(kernel, &param->info, value, error);
            if (status != KVF_OK) return status;
        } else if (value > param->max) {
            return refuse(kernel, error, KVF_ERROR_LIMIT,
                          "parameter %s is %lld, at most %llu is allowed", param->info.name,
                          (long long)value, (unsigned long long)param->max);
        }
    }
    return KVF_OK;
}

/* The grid of this launch; a dimension of 0 means that there is nothing to do. */
static kvf_status find_grid(const struct kvf_kernel *kernel, const unsigned char *params,
                            unsigned grid[3], kvf_error *error) {
    for (int i = 0; i < 3; i++) {
        const struct bundle_grid *rule = &kernel->from->grid[i];
        uint64_t blocks = rule->n;
        if (!rule->constant) {
            const struct bundle_param *param = &kernel->from->params[rule->param];
            uint64_t count = value_of(param, params);
            if (param->type == PARAM_I32 && (int64_t)count < 0)
                return refuse(kernel, error, KVF_ERROR_ARGUMENT, "parameter %s is %lld",
                              param->info.name, (long long)count);
            blocks = count / rule->n + (count % rule->n != 0);
        }
        if (blocks > (uint64_t)kernel->library->device->max_grid[i])
            return refuse(kernel, error, KVF_ERROR_LIMIT,
                          "the grid's dimension %c is %llu, the device allows %d", "xyz"[i],
                          (unsigned long long)blocks, kernel -> library -> device -> max_grid[i]);
        grid[i] = (unsigned)blocks;
    }
    return KVF_OK;
}

static kvf_status launch(const struct kvf_kernel *kernel, kvf_stream stream, const void *params,
                         size_t bytes, const unsigned grid[3], kvf_error *error) {
    const struct kvf_device *device = kernel->library->device;
    bool pushed;
    kvf_status status = device_enter(device, &pushed, error);
    if (status != KVF_OK) return status;
    /* The driver copies the buffer before it returns, and does not write to it. */
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)params, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    CUresult code = device->driver->cuLaunchKernel(kernel->function, grid[0], grid[1], grid[2],
                                                   kernel->from->block, 1, 1, kernel->from->shared,
                                                   stream, NULL, extra);
    device_leave(device, pushed);
    if (code == CUDA_SUCCESS) return KVF_OK;
    status = driver_fail(device->driver, code, "cuLaunchKernel", "launching a kernel", error);
    error_kernel(error, kernel->module->from->type, kernel->from->name);
    return status;
}

kvf_status kvf_launch(const kvf_kernel *kernel, kvf_stream stream, const void *params, size_t bytes,
                      kvf_error *error) {
    if (!kernel || (!params && bytes))
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_launch: %s is null",
                         kernel ? "params" : "kernel");
    if (bytes != kernel->from->params_bytes)
        return refuse(kernel, error, KVF_ERROR_ARGUMENT,
                      "the parameters have %zu bytes, the kernel takes %u: is the header of "
                      "another bundle?",
                      bytes, kernel->from->params_bytes);
    unsigned grid[3] = {0};
    if (!params) params = ""; /* of a kernel without any */
    kvf_status status = check_params(kernel, params, error);
    if (status == KVF_OK) status = find_grid(kernel, params, grid, error);
    if (status != KVF_OK) return status;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return KVF_OK;
    return launch(kernel, stream, params, bytes, grid, error);
}
