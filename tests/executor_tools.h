/* What the executor's tests share: a device that is ready, modules from text, launches. */
#ifndef EXECUTOR_TOOLS_H
#define EXECUTOR_TOOLS_H

#include <stdlib.h>

#include "cuda_types.h"
#include "executor.h"
#include "tap.h"

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleLoadDataEx(CUmodule *, const void *, unsigned, int *, void **);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuModuleUnload(CUmodule);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void **, void **);
int kvfExecutorStats(kvfExecutorStatistics *);
const char *kvfExecutorLastFinding(void);

/* Start the device; findings go to /dev/null unless the caller chose a place. */
static inline void tools_start(void) {
    setenv("KVF_EXECUTOR_REPORT", "/dev/null", 0);
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) {
        printf("Bail out! the executor does not start\n");
        exit(1);
    }
}

static inline char *tools_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fseek(file, 0, SEEK_SET);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (text) text[fread(text, 1, (size_t)size, file)] = 0;
    fclose(file);
    return text;
}

/* A file in the build folder. */
static inline const char *tools_path(const char *name) {
    static char path[300];
    const char *build = getenv("KVF_BUILD");
    snprintf(path, sizeof path, "%s/%s", build ? build : "build", name);
    return path;
}

static char tools_log[2048];

/* Load PTX text; null when it is refused, with the reason in tools_log. */
static inline CUmodule tools_load(const char *text, CUresult *result) {
    int options[2] = {5, 6};
    void *values[2] = {tools_log, (void *)sizeof tools_log};
    CUmodule module = NULL;
    tools_log[0] = 0;
    CUresult r = cuModuleLoadDataEx(&module, text, 2, options, values);
    if (result) *result = r;
    return r ? NULL : module;
}

static inline CUmodule tools_load_file(const char *path) {
    char *text = tools_read(path);
    CUmodule module = text ? tools_load(text, NULL) : NULL;
    if (!module) printf("# %s: %s\n", path, text ? tools_log : "no such file");
    free(text);
    return module;
}

static inline CUfunction tools_function(CUmodule module, const char *name) {
    CUfunction function = NULL;
    if (module) cuModuleGetFunction(&function, module, name);
    return function;
}

/* Device memory with a copy of `data`, or undefined when data is null. */
static inline CUdeviceptr tools_device(const void *data, size_t bytes) {
    CUdeviceptr address = 0;
    if (cuMemAlloc_v2(&address, bytes)) return 0;
    if (data) cuMemcpyHtoD_v2(address, data, bytes);
    return address;
}

/* Launch, wait, and give back what the wait says; a sticky error is cleared. */
static inline CUresult tools_launch(CUfunction function, unsigned blocks, unsigned threads,
                                    unsigned shared, void **params) {
    CUresult r = cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, NULL, params, NULL);
    if (!r) r = cuCtxSynchronize();
    cuDevicePrimaryCtxReset_v2(0);
    return r;
}

static inline uint64_t tools_findings(void) {
    kvfExecutorStatistics s = {.size = sizeof s};
    kvfExecutorStats(&s);
    return s.findings;
}

static inline uint32_t tools_random(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 24);
}

#endif
