/*
 * NVRTC, NVIDIA's CUDA C compiler as a library, for comparison. Opened at run time; only the few
 * entry points used here are declared, by us.
 */
#ifndef KVF_BENCH_NVRTC_H
#define KVF_BENCH_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

struct nvrtc {
    void *handle;
    int major, minor;
    const char *(*error_text)(int code);
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *source, const char *name, int headers,
                  const char *const *header_text, const char *const *header_name);
    int (*destroy)(void **program);
    int (*compile)(void *program, int options, const char *const *option);
    int (*ptx_size)(void *program, size_t *bytes);
    int (*ptx)(void *program, char *text);
    int (*log_size)(void *program, size_t *bytes);
    int (*log)(void *program, char *text);
};

/* From $CUDA_HOME/lib64, the linker's path, or /usr/local/cuda/lib64. False: `why` says more. */
bool nvrtc_open(struct nvrtc *nvrtc, char *why, size_t bytes);

/* Compile to PTX (the caller frees it). On failure null, and the compiler's log on stderr. */
char *nvrtc_compile(const struct nvrtc *nvrtc, const char *source, const char *name,
                    const char *const *options, int count);

#endif
