/* Loaded modules and kernels. Internal. Read-only once loaded. */
#ifndef KVF_LIBRARY_H
#define KVF_LIBRARY_H

#include "bundle.h"
#include "device.h"

struct library_module {
    const struct bundle_module *from;
    CUmodule module;
    bool is_cubin; /* loaded as machine code, not compiled from PTX */
    char *log;     /* the JIT's information log, or null */
};

struct kvf_kernel {
    const struct kvf_library *library;
    const struct library_module *module;
    const struct bundle_kernel *from;
    CUfunction function;
    int registers, local_bytes;
};

struct kvf_library {
    const struct kvf_device *device;
    const struct kvf_bundle *bundle;
    uint32_t module_count, kernel_count;
    struct library_module *modules; /* only those a kernel is taken from */
    struct kvf_kernel *kernels;
};

/* Load one module with the JIT's logs (module.c). In context. On error nothing stays loaded. */
kvf_status module_load(const struct kvf_device *device, const struct bundle_module *from,
                       struct library_module *out, kvf_error *error);
void module_unload(const struct kvf_device *device, struct library_module *module);

/*
 * Find, load and check one kernel of a loaded module (kernel.c): parameters, block and shared
 * memory against the driver's answers. In context.
 */
kvf_status kernel_load(const struct kvf_device *device, const struct library_module *module,
                       const struct bundle_kernel *from, struct kvf_kernel *out, kvf_error *error);

#endif
