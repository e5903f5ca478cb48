/* Choosing, loading and sealing a bundle's kernels. */
#include "library.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

/* May this module be used: the forced target, or any that runs on the device? */
static bool usable(const struct kvf_library *library, const struct bundle_module *module,
                   const char *forced) {
    if (forced && strcmp(module->target.name, forced) != 0) return false;
    return target_runs_on(&module->target, library->device->capability);
}

static bool has_kernel(const struct bundle_module *module, const char *name) {
    for (uint32_t i = 0; i < module->kernel_count; i++)
        if (strcmp(module->kernels[i].name, name) == 0) return true;
    return false;
}

/*
 * Is `kernel` of `module` the one to use? Chosen kernel by kernel: a target with an "a" may hold
 * only those that need its instructions, and the rest of the type comes from a portable module.
 */
static bool is_chosen(const struct kvf_library *library, const struct bundle_module *module,
                      const struct bundle_kernel *kernel, const char *forced) {
    const struct kvf_bundle *bundle = library->bundle;
    if (!usable(library, module, forced)) return false;
    for (uint32_t i = 0; i < bundle->module_count; i++) {
        const struct bundle_module *other = &bundle->modules[i];
        if (strcmp(other->type, module->type) == 0 && usable(library, other, forced) &&
            target_better(&other->target, &module->target) && has_kernel(other, kernel->name))
            return false;
    }
    return true;
}

static bool is_anywhere_usable(const struct kvf_library *library, const char *type,
                               const char *kernel, const char *forced) {
    const struct kvf_bundle *bundle = library->bundle;
    for (uint32_t i = 0; i < bundle->module_count; i++)
        if (strcmp(bundle->modules[i].type, type) == 0 && has_kernel(&bundle->modules[i], kernel) &&
            usable(library, &bundle->modules[i], forced))
            return true;
    return false;
}

/* Every kernel of the bundle must have a module that runs here: nothing is found missing later. */
static kvf_status check_targets(const struct kvf_library *library, const char *forced,
                                kvf_error *error) {
    const struct kvf_bundle *bundle = library->bundle;
    for (uint32_t i = 0; i < bundle->module_count; i++) {
        const struct bundle_module *module = &bundle->modules[i];
        for (uint32_t j = 0; j < module->kernel_count; j++) {
            const char *kernel = module->kernels[j].name;
            if (is_anywhere_usable(library, module->type, kernel, forced)) continue;
            error_set(
                error, KVF_ERROR_NO_TARGET,
                "no module with kernel %s of %s runs on %s (sm_%d)%s%s; the bundle has it for "
                "%s%s",
                kernel, module->type, library->device->name, library->device->capability,
                forced ? " as target " : "", forced ? forced : "", module->target.name,
                bundle->module_count > 1 ? " and perhaps more" : "");
            error_kernel(error, module->type, kernel);
            return KVF_ERROR_NO_TARGET;
        }
    }
    return KVF_OK;
}

static kvf_status check_driver(const struct kvf_library *library,
                               const struct bundle_module *module, kvf_error *error) {
    int have = library->device->driver->version;
    if (have >= module->driver) return KVF_OK;
    return error_set(error, KVF_ERROR_OLD_DRIVER,
                     "%s is PTX %s, which needs a driver for CUDA %d.%d; this one is for %d.%d",
                     module->file, module->ptx, module->driver / 1000, module->driver % 1000 / 10,
                     have / 1000, have % 1000 / 10);
}

/* Load `module` and those of its kernels that are chosen; nothing at all if none is. */
static kvf_status load_module(struct kvf_library *library, const struct bundle_module *module,
                              const char *forced, kvf_error *error) {
    struct library_module *loaded = &library->modules[library->module_count];
    for (uint32_t i = 0; i < module->kernel_count; i++) {
        if (!is_chosen(library, module, &module->kernels[i], forced)) continue;
        kvf_status status = KVF_OK;
        if (!loaded->module) {
            status = check_driver(library, module, error);
            if (status == KVF_OK) status = module_load(library->device, module, loaded, error);
            if (status != KVF_OK) return status;
            library->module_count++;
        }
        struct kvf_kernel *kernel = &library->kernels[library->kernel_count];
        kernel->library = library;
        status = kernel_load(library->device, loaded, &module->kernels[i], kernel, error);
        if (status != KVF_OK) return status;
        library->kernel_count++;
    }
    return KVF_OK;
}

static kvf_status load_all(struct kvf_library *library, const char *forced, kvf_error *error) {
    const struct kvf_bundle *bundle = library->bundle;
    size_t kernels = 0;
    for (uint32_t i = 0; i < bundle->module_count; i++) kernels += bundle->modules[i].kernel_count;
    library->modules = calloc((size_t)bundle->module_count + 1, sizeof *library->modules);
    library->kernels = calloc(kernels + 1, sizeof *library->kernels);
    if (!library->modules || !library->kernels) return error_memory(error, "loading the bundle");
    kvf_status status = check_targets(library, forced, error);
    for (uint32_t i = 0; i < bundle->module_count && status == KVF_OK; i++)
        status = load_module(library, &bundle->modules[i], forced, error);
    return status;
}

static kvf_status check_forced(const struct kvf_device *device, const char *forced,
                               kvf_error *error) {
    struct target target;
    if (!forced) return KVF_OK;
    if (!target_parse(forced, &target))
        return error_set(error, KVF_ERROR_ARGUMENT, "\"%.40s\" is not a target; one is \"sm_90\"",
                         forced);
    if (target_runs_on(&target, device->capability)) return KVF_OK;
    return error_set(error, KVF_ERROR_NO_TARGET, "target %s does not run on %s (sm_%d)", forced,
                     device->name, device->capability);
}

/* Release everything that is loaded. In context. */
static void release(struct kvf_library *library) {
    for (uint32_t i = 0; i < library->module_count; i++)
        module_unload(library->device, &library->modules[i]);
    free(library->modules);
    free(library->kernels);
    free(library);
}

static kvf_status load_in_context(struct kvf_device *device, const struct kvf_bundle *bundle,
                                  kvf_stream stream, const char *forced, kvf_library **out,
                                  kvf_error *error) {
    kvf_status status = device_refuse_capture(device, stream, "kvf_library_load", error);
    if (status == KVF_OK) status = check_forced(device, forced, error);
    if (status != KVF_OK) return status;
    struct kvf_library *library = calloc(1, sizeof *library);
    if (!library) return error_memory(error, "loading the bundle");
    library->device = device;
    library->bundle = bundle;
    status = load_all(library, forced, error);
    if (status == KVF_OK)
        *out = library;
    else
        release(library);
    return status;
}

kvf_status kvf_library_load(kvf_device *device, const kvf_bundle *bundle, kvf_stream stream,
                            const kvf_library_options *options, kvf_library **out,
                            kvf_error *error) {
    if (!device || !bundle || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_library_load: %s is null",
                         !device   ? "device"
                         : !bundle ? "bundle"
                                   : "out");
    bool pushed;
    kvf_status status = device_enter(device, &pushed, error);
    if (status != KVF_OK) return status;
    status = load_in_context(device, bundle, stream, options ? options->target : NULL, out, error);
    device_leave(device, pushed);
    return status;
}

void kvf_library_unload(kvf_library *library) {
    if (!library) return;
    const struct kvf_device *device = library->device;
    bool pushed = false;
    /* Without the context the driver's part is lost to us, but the host's memory is still ours. */
    (void)device_enter(device, &pushed, NULL);
    release(library);
    device_leave(device, pushed);
}

kvf_status kvf_library_kernel(const kvf_library *library, const char *type, const char *kernel,
                              const kvf_kernel **out, kvf_error *error) {
    if (!library || !type || !kernel || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_library_kernel: an argument is null");
    for (uint32_t i = 0; i < library->kernel_count; i++) {
        const struct kvf_kernel *have = &library->kernels[i];
        if (strcmp(have->module->from->type, type) != 0 || strcmp(have->from->name, kernel) != 0)
            continue;
        *out = have;
        return KVF_OK;
    }
    error_set(error, KVF_ERROR_NOT_FOUND, "the library has no kernel \"%.60s\" for \"%.60s\"",
              kernel, type);
    error_kernel(error, type, kernel);
    return KVF_ERROR_NOT_FOUND;
}

kvf_status kvf_library_kernel_at(const kvf_library *library, uint32_t index,
                                 const kvf_kernel **out) {
    if (!library || !out) return KVF_ERROR_ARGUMENT;
    if (index >= library->kernel_count) return KVF_ERROR_NOT_FOUND;
    *out = &library->kernels[index];
    return KVF_OK;
}
