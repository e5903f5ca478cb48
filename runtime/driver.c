/*
 * Opening a driver. This is the only file of the library that calls dlopen.
 *
 * The opened library is closed again when it does not start. Once cuInit has succeeded it stays
 * mapped for the life of the process, even one that is then found too old, because a CUDA driver
 * has threads and exit handlers of its own that must not lose their code.
 */
#include "driver.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "executor_path.h"

typedef CUresult (*get_proc_address)(const char *symbol, void **function, int version,
                                     uint64_t flags, int *status);

#define SYMBOL_ROW_REQUIRED(base, abi, version, parameters)                                        \
    {#base, #abi, offsetof(struct kvf_driver, abi), version, true},
#define SYMBOL_ROW_OPTIONAL(base, abi, version, parameters)                                        \
    {#base, #abi, offsetof(struct kvf_driver, abi), version, false},

struct symbol_row {
    const char *base, *abi;
    size_t member; /* offset of the pointer in struct kvf_driver */
    int version;
    bool required;
};

static const struct symbol_row symbols[] = {
    DRIVER_SYMBOLS(SYMBOL_ROW_REQUIRED, SYMBOL_ROW_OPTIONAL)};

/*
 * Where the driver has cuGetProcAddress, its answer is final: it gives exactly the signature that
 * the row's version stands for. Older drivers, and the stub, are asked by ABI name.
 */
static void *find_symbol(void *handle, get_proc_address ask, const struct symbol_row *row) {
    if (ask) {
        void *function = NULL;
        int status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        CUresult code =
            ask(row->base, &function, row->version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
        if (code != CUDA_ERROR_STUB_LIBRARY)
            return code == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? function : NULL;
    }
    return dlsym(handle, row->abi);
}

/* Fill every member of the table; returns the first required row that is missing, or null. */
static const struct symbol_row *resolve_symbols(struct kvf_driver *driver) {
    void *found = dlsym(driver->handle, "cuGetProcAddress_v2");
    get_proc_address ask;
    memcpy(&ask, &found, sizeof ask); /* ISO C has no cast from object to function pointer */
    const struct symbol_row *missing = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *function = find_symbol(driver->handle, ask, &symbols[i]);
        memcpy((char *)driver + symbols[i].member, &function, sizeof function);
        if (!function && symbols[i].required && !missing) missing = &symbols[i];
    }
    return missing;
}

void *driver_extra(const struct kvf_driver *driver, const char *name) {
    return dlsym(driver->handle, name);
}

static char *path_of_handle(void *handle, const char *asked) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0])
        return strdup(map->l_name);
    return strdup(asked);
}

static kvf_status check_started(struct kvf_driver *driver, const char *asked, kvf_error *error) {
    if (!driver->cuInit || !driver->cuDriverGetVersion || !driver->cuDeviceGetCount)
        return error_set(error, KVF_ERROR_NO_DRIVER,
                         "%s is not a CUDA driver: it has no cuInit, cuDriverGetVersion or "
                         "cuDeviceGetCount",
                         asked);
    const char *call = "cuInit";
    CUresult code = driver->cuInit(0);
    driver->started = code == CUDA_SUCCESS;
    if (driver->started) {
        call = "cuDriverGetVersion";
        code = driver->cuDriverGetVersion(&driver->version);
    }
    int devices = 0;
    if (code == CUDA_SUCCESS) {
        call = "cuDeviceGetCount";
        code = driver->cuDeviceGetCount(&devices);
    }
    if (code == CUDA_SUCCESS && devices == 0) code = CUDA_ERROR_NO_DEVICE;
    if (code == CUDA_SUCCESS) return KVF_OK;
    /* Whatever kept it from starting, there is no driver to work with. */
    char what[300];
    (void)snprintf(what, sizeof what, "starting the driver %s", asked);
    driver_fail(driver, code, call, what, error);
    if (error) error->status = KVF_ERROR_NO_DRIVER;
    return KVF_ERROR_NO_DRIVER;
}

/* Everything that can fail after dlopen. */
static kvf_status start_driver(struct kvf_driver *driver, const char *asked, kvf_error *error) {
    const struct symbol_row *missing = resolve_symbols(driver);
    kvf_status status = check_started(driver, asked, error);
    if (status != KVF_OK) return status;
    if (missing)
        return error_set(error, KVF_ERROR_OLD_DRIVER,
                         "the driver %s (version %d.%d) lacks %s, which this library needs "
                         "(CUDA %d.%d or newer has it)",
                         asked, driver->version / 1000, driver->version % 1000 / 10, missing->base,
                         missing->version / 1000, missing->version % 1000 / 10);
    driver->path = path_of_handle(driver->handle, asked);
    if (!driver->path) return error_memory(error, "opening the driver");
    return KVF_OK;
}

static kvf_status open_file(kvf_driver_kind kind, const char *file, kvf_driver **out,
                            kvf_error *error) {
    struct kvf_driver *driver = calloc(1, sizeof *driver);
    if (!driver) return error_memory(error, "opening the driver");
    driver->kind = kind;
    driver->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!driver->handle) {
        const char *why = dlerror();
        free(driver);
        return error_set(error, KVF_ERROR_NO_DRIVER, "no driver: %s", why ? why : file);
    }
    kvf_status status = start_driver(driver, file, error);
    if (status != KVF_OK) {
        if (!driver->started) dlclose(driver->handle);
        free(driver->path);
        free(driver);
        return status;
    }
    /* What has the executor's mark is the executor, by whatever name it was found. */
    if (driver_extra(driver, EXECUTOR_MARK)) driver->kind = KVF_DRIVER_EXECUTOR;
    *out = driver;
    return KVF_OK;
}

static kvf_status open_executor(kvf_driver **out, kvf_error *error) {
    char *file = NULL;
    kvf_status status = executor_path(&file, error);
    if (status != KVF_OK) return status;
    status = open_file(KVF_DRIVER_EXECUTOR, file, out, error);
    free(file);
    return status;
}

/* The real driver if it has a device; only its absence, never its age, leads to the executor. */
static kvf_status open_auto(kvf_driver **out, kvf_error *error) {
    kvf_error cuda, executor;
    kvf_status status = open_file(KVF_DRIVER_CUDA, "libcuda.so.1", out, &cuda);
    if (status != KVF_ERROR_NO_DRIVER) {
        if (status != KVF_OK && error) *error = cuda;
        return status;
    }
    status = open_executor(out, &executor);
    if (status == KVF_OK) return KVF_OK;
    if (status == KVF_ERROR_MEMORY) return error_memory(error, "opening the driver");
    return error_set(error, status, "no CUDA driver (%.200s) and no executor (%.200s)", cuda.text,
                     executor.text);
}

kvf_status kvf_driver_open(kvf_driver_kind kind, const char *path, kvf_driver **out,
                           kvf_error *error) {
    if (!out) return error_set(error, KVF_ERROR_ARGUMENT, "kvf_driver_open: out is null");
    if (kind != KVF_DRIVER_AUTO && kind != KVF_DRIVER_CUDA && kind != KVF_DRIVER_EXECUTOR)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_driver_open: %d is not a kind of driver",
                         (int)kind);
    if (path) return open_file(kind == KVF_DRIVER_AUTO ? KVF_DRIVER_CUDA : kind, path, out, error);
    if (kind == KVF_DRIVER_CUDA) return open_file(kind, "libcuda.so.1", out, error);
    if (kind == KVF_DRIVER_EXECUTOR) return open_executor(out, error);
    return open_auto(out, error);
}

void kvf_driver_close(kvf_driver *driver) {
    if (!driver) return;
    free(driver->path);
    free(driver);
}

kvf_driver_kind kvf_driver_kind_of(const kvf_driver *driver) {
    return driver->kind;
}

const char *kvf_driver_path(const kvf_driver *driver) {
    return driver->path;
}

int kvf_driver_version(const kvf_driver *driver) {
    return driver->version;
}
