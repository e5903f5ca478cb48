#include "nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

static void *open_library(char *why, size_t bytes) {
    char path[4096];
    const char *home = getenv("CUDA_HOME");
    void *handle = NULL;
    if (home) {
        (void)snprintf(path, sizeof path, "%s/lib64/libnvrtc.so", home);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!handle) handle = dlopen("libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
    if (!handle) handle = dlopen("/usr/local/cuda/lib64/libnvrtc.so", RTLD_NOW | RTLD_LOCAL);
    if (!handle) (void)snprintf(why, bytes, "%s", dlerror());
    return handle;
}

bool nvrtc_open(struct nvrtc *nvrtc, char *why, size_t bytes) {
    memset(nvrtc, 0, sizeof *nvrtc);
    nvrtc->handle = open_library(why, bytes);
    if (!nvrtc->handle) return false;
    const struct {
        const char *name;
        void *member;
    } symbols[] = {
        {"nvrtcGetErrorString", &nvrtc->error_text},
        {"nvrtcVersion", &nvrtc->version},
        {"nvrtcCreateProgram", &nvrtc->create},
        {"nvrtcDestroyProgram", &nvrtc->destroy},
        {"nvrtcCompileProgram", &nvrtc->compile},
        {"nvrtcGetPTXSize", &nvrtc->ptx_size},
        {"nvrtcGetPTX", &nvrtc->ptx},
        {"nvrtcGetProgramLogSize", &nvrtc->log_size},
        {"nvrtcGetProgramLog", &nvrtc->log},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(nvrtc->handle, symbols[i].name);
        if (!found) {
            (void)snprintf(why, bytes, "libnvrtc.so has no %s", symbols[i].name);
            return false;
        }
        memcpy(symbols[i].member, &found, sizeof found);
    }
    return nvrtc->version(&nvrtc->major, &nvrtc->minor) == 0;
}

static void print_log(const struct nvrtc *nvrtc, void *program, int code) {
    size_t bytes = 0;
    fprintf(stderr, "NVRTC: %s\n", nvrtc->error_text(code));
    char *text = nvrtc->log_size(program, &bytes) == 0 && bytes ? malloc(bytes) : NULL;
    if (text && nvrtc->log(program, text) == 0) fprintf(stderr, "%s\n", text);
    free(text);
}

char *nvrtc_compile(const struct nvrtc *nvrtc, const char *source, const char *name,
                    const char *const *options, int count) {
    void *program = NULL;
    size_t bytes = 0;
    char *ptx = NULL;
    int code = nvrtc->create(&program, source, name, 0, NULL, NULL);
    if (code) return NULL;
    code = nvrtc->compile(program, count, options);
    if (!code) code = nvrtc->ptx_size(program, &bytes);
    if (!code) ptx = malloc(bytes);
    if (ptx) code = nvrtc->ptx(program, ptx);
    if (code) {
        print_log(nvrtc, program, code);
        free(ptx);
        ptx = NULL;
    }
    nvrtc->destroy(&program);
    return ptx;
}
