#include "fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

static struct fake_state state;

EXPORT struct fake_state *fake_cuda_state(void);
EXPORT void fake_cuda_reset(void);

struct fake_state *fake_cuda_state(void) {
    return &state;
}

/* ---- kernels: found by a glance at the PTX ---- */

enum { FUNCTIONS = 256, PARAMS = 64, BLOCKS = 64 };

static struct function {
    CUmodule module; /* null: free */
    char name[64];
    int params;
    size_t offset[PARAMS], size[PARAMS];
} functions[FUNCTIONS];

static struct block {
    void *at;
    size_t bytes;
} blocks[BLOCKS];

static uintptr_t last_module;

void fake_cuda_reset(void) {
    memset(&state, 0, sizeof state);
    memset(functions, 0, sizeof functions);
    state.devices = 1;
    state.version = 13000;
    state.major = 9;
    state.max_shared = 232448;
    state.max_threads = 1024;
    state.registers = 32;
}

static int counted(const char *call) {
    __atomic_add_fetch(&state.calls, 1, __ATOMIC_RELAXED); /* launches come from several threads */
    if (state.stub) return CUDA_ERROR_STUB_LIBRARY;
    if (state.fail_in == 0 || --state.fail_in > 0) return CUDA_SUCCESS;
    state.failed_call = call;
    return state.fail_code;
}

#define ENTER()                                                                                    \
    do {                                                                                           \
        int entered = counted(__func__);                                                           \
        if (entered != CUDA_SUCCESS) return entered;                                               \
    } while (0)

/* Every entry point is exported under its ABI name. */
#define CU(name, ...)                                                                              \
    EXPORT CUresult name(__VA_ARGS__);                                                             \
    CUresult name(__VA_ARGS__)

CU(cuInit, unsigned flags) {
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE : state.init_result;
}

CU(cuDriverGetVersion, int *version) {
    ENTER();
    *version = state.version;
    return CUDA_SUCCESS;
}

__attribute__((constructor)) static void start_healthy(void) {
    fake_cuda_reset();
}

#ifndef FAKE_OLD

/*
 * Loaded RTLD_LOCAL, the fake is in no scope that dlsym searches by itself. Its own handle is found
 * while it is loaded, so that later calls need no memory.
 */
static void *self;

__attribute__((constructor)) static void find_self(void) {
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)fake_cuda_state, &info)) return;
    self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (self) dlclose(self);
}

CU(cuGetProcAddress_v2, const char *symbol, void **function, int version, uint64_t flags,
   int *status) {
    static const char *const suffixed[] = {"cuDevicePrimaryCtxRelease",
                                           "cuCtxPushCurrent",
                                           "cuCtxPopCurrent",
                                           "cuMemAlloc",
                                           "cuMemFree",
                                           "cuMemGetInfo",
                                           "cuMemcpyHtoD",
                                           "cuMemcpyDtoH",
                                           "cuMemcpyDtoD",
                                           "cuMemcpyHtoDAsync",
                                           "cuMemcpyDtoHAsync",
                                           "cuMemcpyDtoDAsync",
                                           "cuMemsetD8",
                                           "cuStreamDestroy",
                                           "cuEventDestroy",
                                           "cuStreamBeginCapture"};
    if (state.stub) return CUDA_ERROR_STUB_LIBRARY;
    if (version > state.version || flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (version > state.asked_version) state.asked_version = version;
    char abi[80];
    (void)snprintf(abi, sizeof abi, "%s", symbol);
    for (size_t i = 0; i < sizeof suffixed / sizeof suffixed[0]; i++)
        if (strcmp(suffixed[i], symbol) == 0) (void)snprintf(abi, sizeof abi, "%s_v2", symbol);
    *function = NULL;
    bool known = !state.missing || strcmp(state.missing, symbol) != 0;
    if (known && self) *function = dlsym(self, abi);
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

#endif

CU(cuGetErrorName, CUresult code, const char **name) {
    if (state.stub) return CUDA_ERROR_STUB_LIBRARY;
    *name = code == 12345 ? "CUDA_ERROR_OF_THE_FUTURE" : NULL;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices and contexts ---- */

CU(cuDeviceGetCount, int *count) {
    ENTER();
    *count = state.devices;
    return CUDA_SUCCESS;
}

CU(cuDeviceGet, CUdevice *device, int ordinal) {
    ENTER();
    *device = ordinal + 70; /* not the ordinal: nobody may take one for the other */
    return CUDA_SUCCESS;
}

CU(cuDeviceGetName, char *name, int bytes, CUdevice device) {
    ENTER();
    (void)snprintf(name, (size_t)bytes, "Fake GPU %d", device - 70);
    return CUDA_SUCCESS;
}

CU(cuDeviceGetAttribute, int *value, int attribute, CUdevice device) {
    ENTER();
    if (device < 70) return 101;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = state.max_threads; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = INT32_MAX; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state.minor; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = state.max_shared; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CU(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device) {
    ENTER();
    (void)device;
    state.retained++;
    *context = FAKE_PRIMARY;
    return CUDA_SUCCESS;
}

CU(cuDevicePrimaryCtxRelease_v2, CUdevice device) {
    ENTER();
    (void)device;
    state.retained--;
    return CUDA_SUCCESS;
}

CU(cuCtxGetCurrent, CUcontext *context) {
    ENTER();
    *context = state.current;
    return CUDA_SUCCESS;
}

/* One level of pushing is all the library may need. */
static CUcontext below;

CU(cuCtxPushCurrent_v2, CUcontext context) {
    ENTER();
    if (state.pushed) return 201;
    state.pushed++;
    below = state.current;
    state.current = context;
    return CUDA_SUCCESS;
}

CU(cuCtxPopCurrent_v2, CUcontext *context) {
    ENTER();
    if (!state.pushed) return 201;
    state.pushed--;
    *context = state.current;
    state.current = below;
    return CUDA_SUCCESS;
}

CU(cuCtxGetDevice, CUdevice *device) {
    ENTER();
    if (!state.current) return 201;
    *device = state.current_device;
    return CUDA_SUCCESS;
}

CU(cuStreamIsCapturing, CUstream stream, int *status) {
    ENTER();
    (void)stream;
    *status = state.capturing;
    return CUDA_SUCCESS;
}

/* ---- modules ---- */

static void write_log(void **values, int at, const char *text) {
    char *buffer = values[at];
    uintptr_t room = (uintptr_t)values[at + 1];
    size_t bytes = text ? strlen(text) : 0;
    if (bytes > room) bytes = room;
    /* No final 0: the size is all there is. */
    if (bytes) memcpy(buffer, text, bytes);
    values[at + 1] = (void *)bytes;
}

/* Sizes of the parameters between `at` and the closing parenthesis. */
static void scan_params(struct function *function, const char *at) {
    size_t end = 0;
    const char *close = strchr(at, ')');
    while ((at = strstr(at, ".param")) && close && at < close && function->params < PARAMS) {
        const char *wide = strstr(at, "64"), *comma = strpbrk(at, ",)");
        size_t size = wide && wide < comma ? 8 : 4;
        end = (end + size - 1) / size * size;
        function->offset[function->params] = end;
        function->size[function->params++] = size;
        end += size;
        at = comma;
    }
}

static void scan_entries(CUmodule module, const char *text) {
    struct function *function = functions;
    while ((text = strstr(text, ".entry "))) {
        text += strlen(".entry ");
        while (function->module) function++;
        memset(function, 0, sizeof *function);
        function->module = module;
        (void)sscanf(text, "%63[^( \n]", function->name);
        const char *open = strchr(text, '(');
        if (open) scan_params(function, open);
    }
}

CU(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned count, int *names,
   void **values) {
    ENTER();
    if (state.current == NULL) return 201;
    static const int expected[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                   CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                   CU_JIT_LOG_VERBOSE};
    if (count != 5 || memcmp(names, expected, sizeof expected) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    write_log(values, 0, state.jit_info);
    write_log(values, 2, state.jit_error);
    bool is_cubin = strncmp(image, "CUBIN", 5) == 0;
    if (strncmp(image, "\177ELF", 4) == 0) return 209; /* a real one it cannot look into */
    int code = is_cubin ? state.cubin_code : state.jit_code;
    if (code) return code;
    *module = (CUmodule)(0x10000 + ++last_module);
    scan_entries(*module, image);
    state.modules++;
    return CUDA_SUCCESS;
}

CU(cuModuleUnload, CUmodule module) {
    ENTER();
    for (int i = 0; i < FUNCTIONS; i++)
        if (functions[i].module == module) functions[i].module = NULL;
    state.modules--;
    return CUDA_SUCCESS;
}

CU(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name) {
    ENTER();
    for (int i = 0; i < FUNCTIONS; i++) {
        if (functions[i].module != module || strcmp(functions[i].name, name) != 0) continue;
        *function = (CUfunction)&functions[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

#ifndef FAKE_OLD
CU(cuFuncLoad, CUfunction function) {
    ENTER();
    (void)function;
    state.funcs_loaded++;
    return CUDA_SUCCESS;
}
#endif

CU(cuFuncGetAttribute, int *value, int attribute, CUfunction function) {
    ENTER();
    (void)function;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = state.max_threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = state.static_shared; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = state.local_bytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = state.registers; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CU(cuFuncSetAttribute, CUfunction function, int attribute, int value) {
    ENTER();
    (void)function;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    state.dynamic_shared = value;
    return CUDA_SUCCESS;
}

#ifndef FAKE_OLD
CU(cuFuncGetParamInfo, CUfunction function, size_t index, size_t *offset, size_t *size) {
    ENTER();
    const struct function *f = (const struct function *)function;
    if (index >= (size_t)(f->params + state.param_count_add)) return CUDA_ERROR_INVALID_VALUE;
    *offset = f->offset[index] + state.param_shift;
    *size = f->size[index];
    return CUDA_SUCCESS;
}
#endif

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;

CU(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
   void **params, void **extra) {
    ENTER();
    (void)function;
    if (!state.current) return 201;
    if (params || block_y != 1 || block_z != 1 || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER ||
        extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&launching);
    state.launches++;
    state.grid[0] = grid_x;
    state.grid[1] = grid_y;
    state.grid[2] = grid_z;
    state.block = block_x;
    state.shared = shared;
    state.stream = stream;
    state.params_bytes = *(size_t *)extra[3];
    memcpy(state.params, extra[1], state.params_bytes);
    pthread_mutex_unlock(&launching);
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

CU(cuMemAlloc_v2, CUdeviceptr *address, size_t bytes) {
    ENTER();
    if (!state.current) return 201;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > (size_t)1 << 30) return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at) continue;
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        memset(at, 0xcd, bytes);
        blocks[i] = (struct block){at, bytes};
        state.memory += bytes;
        state.memory_blocks++;
        *address = (CUdeviceptr)(uintptr_t)at;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CU(cuMemFree_v2, CUdeviceptr address) {
    ENTER();
    for (int i = 0; i < BLOCKS; i++) {
        if (!blocks[i].at || (CUdeviceptr)(uintptr_t)blocks[i].at != address) continue;
        munmap(blocks[i].at, blocks[i].bytes);
        state.memory -= blocks[i].bytes;
        state.memory_blocks--;
        blocks[i].at = NULL;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_memory(CUdeviceptr to, const void *value, size_t width, size_t count,
                           CUstream stream) {
    if (to % width) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) memcpy((char *)(uintptr_t)to + i * width, value, width);
    state.sets++;
    state.stream = stream;
    return CUDA_SUCCESS;
}

CU(cuMemsetD8Async, CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    ENTER();
    return set_memory(to, &value, 1, count, stream);
}

CU(cuMemsetD16Async, CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    ENTER();
    return set_memory(to, &value, 2, count, stream);
}

CU(cuMemsetD32Async, CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    ENTER();
    return set_memory(to, &value, 4, count, stream);
}
