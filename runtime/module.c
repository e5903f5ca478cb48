/* One module through the driver's JIT compiler, with both of its logs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "library.h"

enum { LOG_BYTES = 16384 };

struct jit_logs {
    char info[LOG_BYTES], error[LOG_BYTES];
};

/* The driver says how much of a log it wrote, its final 0 included or not: end the text ourselves.
 */
static void end_log(char *log, uintptr_t written) {
    size_t end = written < LOG_BYTES ? written : LOG_BYTES - 1;
    log[end] = 0;
    end = strlen(log);
    while (end > 0 && (log[end - 1] == '\n' || log[end - 1] == ' ')) log[--end] = 0;
}

static CUresult load(const struct kvf_driver *driver, const char *text, struct jit_logs *logs,
                     CUmodule *out) {
    int names[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                   CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
    /* Values are passed in pointers; the driver writes the sizes it used back into the same array.
     */
    /* NOLINTBEGIN(performance-no-int-to-ptr) */
    void *values[] = {logs->info, (void *)(uintptr_t)LOG_BYTES, logs->error,
                      (void *)(uintptr_t)LOG_BYTES, (void *)(uintptr_t)1};
    /* NOLINTEND(performance-no-int-to-ptr) */
    unsigned options = sizeof names / sizeof names[0];
    CUresult code = driver->cuModuleLoadDataEx(out, text, options, names, values);
    end_log(logs->info, (uintptr_t)values[1]);
    end_log(logs->error, (uintptr_t)values[3]);
    return code;
}

/*
 * The cubin where it was made for this very chip; the PTX where there is none, or the driver (an
 * older one perhaps) does not take it.
 */
static CUresult load_best(const struct kvf_device *device, const struct bundle_module *from,
                          struct jit_logs *logs, struct library_module *out) {
    if (from->cubin && from->target.capability == device->capability) {
        CUresult code = load(device->driver, from->cubin, logs, &out->module);
        out->is_cubin = code == CUDA_SUCCESS;
        if (out->is_cubin || driver_status(code) == KVF_ERROR_CAPTURE) return code;
        memset(logs, 0, sizeof *logs);
    }
    return load(device->driver, from->text, logs, &out->module);
}

static kvf_status fail_load(const struct kvf_device *device, CUresult code,
                            const struct bundle_module *from, const struct jit_logs *logs,
                            kvf_error *error) {
    char what[400];
    (void)snprintf(what, sizeof what, "loading %s", from->file);
    kvf_status status = driver_fail(device->driver, code, "cuModuleLoadDataEx", what, error);
    if (error)
        (void)snprintf(error->log, sizeof error->log, "%.*s", (int)sizeof error->log - 1,
                       logs->error);
    return status;
}

kvf_status module_load(const struct kvf_device *device, const struct bundle_module *from,
                       struct library_module *out, kvf_error *error) {
    struct jit_logs *logs = calloc(1, sizeof *logs);
    if (!logs) return error_memory(error, "loading a module");
    *out = (struct library_module){.from = from};
    kvf_status status = KVF_OK;
    CUresult code = load_best(device, from, logs, out);
    if (code != CUDA_SUCCESS) {
        status = fail_load(device, code, from, logs, error);
        out->module = NULL;
    } else if (logs->info[0] && !(out->log = strdup(logs->info))) {
        status = error_memory(error, "loading a module");
        module_unload(device, out);
    }
    free(logs);
    return status;
}

void module_unload(const struct kvf_device *device, struct library_module *module) {
    if (module->module) (void)device->driver->cuModuleUnload(module->module);
    free(module->log);
    *module = (struct library_module){0};
}
