#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

kvf_status error_set(kvf_error *error, kvf_status status, const char *format, ...) {
    if (!error) return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

kvf_status error_memory(kvf_error *error, const char *what) {
    return error_set(error, KVF_ERROR_MEMORY, "out of host memory while %s", what);
}

void error_kernel(kvf_error *error, const char *type, const char *kernel) {
    if (error) (void)snprintf(error->kernel, sizeof error->kernel, "%s/%s", type, kernel);
}

const char *kvf_status_name(kvf_status status) {
    switch (status) {
    case KVF_OK: return "ok";
    case KVF_ERROR_ARGUMENT: return "bad argument";
    case KVF_ERROR_MEMORY: return "out of host memory";
    case KVF_ERROR_IO: return "file cannot be read";
    case KVF_ERROR_BUNDLE: return "bad bundle";
    case KVF_ERROR_NO_DRIVER: return "no CUDA driver";
    case KVF_ERROR_OLD_DRIVER: return "driver too old";
    case KVF_ERROR_NO_TARGET: return "no module for the device";
    case KVF_ERROR_DRIVER: return "driver call failed";
    case KVF_ERROR_COMPILE: return "PTX was refused";
    case KVF_ERROR_CAPTURE: return "stream is being captured";
    case KVF_ERROR_DEVICE_MEMORY: return "out of device memory";
    case KVF_ERROR_SLOTS: return "no free request slot";
    case KVF_ERROR_STATE: return "not in this state";
    case KVF_ERROR_SHORT: return "pool is short";
    case KVF_ERROR_LIMIT: return "beyond a limit";
    case KVF_ERROR_NOT_FOUND: return "not found";
    }
    return "unknown status";
}

const char *kvf_version(void) {
    return KVF_VERSION;
}
