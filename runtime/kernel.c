/* One kernel: loaded ahead of its first launch, and compared with what the manifest says of it. */
#include <stdio.h>

#include "error.h"
#include "library.h"

enum { SHARED_WITHOUT_ASKING = 48 * 1024 }; /* bytes a block has without opting in to more */

static kvf_status fail(const struct kvf_device *device, CUresult code, const char *call,
                       const struct bundle_kernel *kernel, kvf_error *error) {
    char what[400];
    (void)snprintf(what, sizeof what, "loading kernel %s", kernel->entry);
    return driver_fail(device->driver, code, call, what, error);
}

/* Offsets and sizes of the parameters as the driver has them, where it can say so. */
static kvf_status check_params(const struct kvf_device *device, const struct kvf_kernel *kernel,
                               kvf_error *error) {
    const struct kvf_driver *driver = device->driver;
    const struct bundle_kernel *from = kernel->from;
    if (!driver->cuFuncGetParamInfo) return KVF_OK;
    size_t offset = 0, size = 0;
    for (uint32_t i = 0; i < from->param_count; i++) {
        const kvf_param_info *param = &from->params[i].info;
        CUresult code = driver->cuFuncGetParamInfo(kernel->function, i, &offset, &size);
        if (code == CUDA_ERROR_INVALID_VALUE)
            return error_set(error, KVF_ERROR_BUNDLE,
                             "kernel %s has %u parameters, the manifest says %u", from->entry, i,
                             from->param_count);
        if (code != CUDA_SUCCESS) return fail(device, code, "cuFuncGetParamInfo", from, error);
        if (offset != param->offset || size != param->size)
            return error_set(
                error, KVF_ERROR_BUNDLE,
                "kernel %s: parameter %s lies at %zu with %zu bytes, the manifest says "
                "%u with %u",
                from->entry, param->name, offset, size, param->offset, param->size);
    }
    CUresult code = driver->cuFuncGetParamInfo(kernel->function, from->param_count, &offset, &size);
    if (code == CUDA_ERROR_INVALID_VALUE) return KVF_OK; /* there is no further one */
    if (code != CUDA_SUCCESS) return fail(device, code, "cuFuncGetParamInfo", from, error);
    return error_set(error, KVF_ERROR_BUNDLE,
                     "kernel %s has more than the %u parameters of the manifest", from->entry,
                     from->param_count);
}

static kvf_status ask(const struct kvf_device *device, const struct kvf_kernel *kernel,
                      int attribute, int *value, kvf_error *error) {
    CUresult code = device->driver->cuFuncGetAttribute(value, attribute, kernel->function);
    if (code == CUDA_SUCCESS) return KVF_OK;
    return fail(device, code, "cuFuncGetAttribute", kernel->from, error);
}

static kvf_status check_block(const struct kvf_device *device, const struct kvf_kernel *kernel,
                              kvf_error *error) {
    int threads = 0;
    kvf_status status =
        ask(device, kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads, error);
    if (status != KVF_OK) return status;
    if (kernel->from->block <= (uint32_t)threads) return KVF_OK;
    return error_set(error, KVF_ERROR_LIMIT,
                     "kernel %s wants %u threads a block, the device can give it %d",
                     kernel->from->entry, kernel->from->block, threads);
}

/* Static and dynamic shared memory together; above 48 KiB a kernel must ask before its launch. */
static kvf_status set_shared(const struct kvf_device *device, const struct kvf_kernel *kernel,
                             kvf_error *error) {
    int fixed = 0;
    kvf_status status = ask(device, kernel, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &fixed, error);
    if (status != KVF_OK) return status;
    int64_t total = (int64_t)fixed + kernel->from->shared;
    if (total > device->max_shared)
        return error_set(error, KVF_ERROR_LIMIT,
                         "kernel %s wants %lld bytes of shared memory, the device has %d a block",
                         kernel->from->entry, (long long)total, device->max_shared);
    if (total <= SHARED_WITHOUT_ASKING || kernel->from->shared == 0) return KVF_OK;
    CUresult code = device->driver->cuFuncSetAttribute(
        kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        (int)kernel->from->shared);
    if (code == CUDA_SUCCESS) return KVF_OK;
    return fail(device, code, "cuFuncSetAttribute", kernel->from, error);
}

static kvf_status load_and_check(const struct kvf_device *device, struct kvf_kernel *kernel,
                                 kvf_error *error) {
    const struct kvf_driver *driver = device->driver;
    CUresult code =
        driver->cuModuleGetFunction(&kernel->function, kernel->module->module, kernel->from->entry);
    if (code == CUDA_ERROR_NOT_FOUND)
        return error_set(error, KVF_ERROR_BUNDLE, "%s has no entry %s", kernel->module->from->file,
                         kernel->from->entry);
    if (code != CUDA_SUCCESS) return fail(device, code, "cuModuleGetFunction", kernel->from, error);
    /* Drivers load code lazily, at the first launch, unless told otherwise. */
    if (driver->cuFuncLoad) {
        code = driver->cuFuncLoad(kernel->function);
        if (code != CUDA_SUCCESS) return fail(device, code, "cuFuncLoad", kernel->from, error);
    }
    kvf_status status = check_params(device, kernel, error);
    if (status == KVF_OK) status = check_block(device, kernel, error);
    if (status == KVF_OK) status = set_shared(device, kernel, error);
    if (status == KVF_OK)
        status = ask(device, kernel, CU_FUNC_ATTRIBUTE_NUM_REGS, &kernel->registers, error);
    if (status == KVF_OK)
        status =
            ask(device, kernel, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &kernel->local_bytes, error);
    return status;
}

kvf_status kernel_load(const struct kvf_device *device, const struct library_module *module,
                       const struct bundle_kernel *from, struct kvf_kernel *out, kvf_error *error) {
    *out = (struct kvf_kernel){.library = out->library, .module = module, .from = from};
    kvf_status status = load_and_check(device, out, error);
    if (status != KVF_OK) error_kernel(error, module->from->type, from->name);
    return status;
}

void kvf_kernel_describe(const kvf_kernel *kernel, kvf_kernel_info *out) {
    const struct bundle_module *module = kernel->module->from;
    *out = (kvf_kernel_info){
        .type = module->type,
        .name = kernel->from->name,
        .entry = kernel->from->entry,
        .target = module->target.name,
        .params = kernel->from->param_count,
        .params_bytes = kernel->from->params_bytes,
        .block = kernel->from->block,
        .shared = kernel->from->shared,
        .ptx_bytes = module->bytes,
        .registers = kernel->registers,
        .local_bytes = kernel->local_bytes,
        .cubin = kernel->module->is_cubin,
        .log = kernel->module->log ? kernel->module->log : "",
    };
}

kvf_status kvf_kernel_param(const kvf_kernel *kernel, uint32_t index, kvf_param_info *out) {
    if (!kernel || !out) return KVF_ERROR_ARGUMENT;
    if (index >= kernel->from->param_count) return KVF_ERROR_NOT_FOUND;
    *out = kernel->from->params[index].info;
    return KVF_OK;
}
