/* The Driver API: graphs, errors that stick, attributes, parameters, variables, injected faults. */
#include <dlfcn.h>

#include "executor_tools.h"

CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, uint64_t);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetType(CUgraphNode, int *);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuMemsetD16_v2(CUdeviceptr, unsigned short, size_t);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuFuncGetAttribute(int *, int, CUfunction);
CUresult cuFuncGetParamInfo(CUfunction, size_t, size_t *, size_t *);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
CUresult cuDriverGetVersion(int *);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
CUresult cuLaunchKernelEx(const CUlaunchConfig *, CUfunction, void **, void **);
CUresult cuLibraryLoadData(CUlibrary *, const void *, int *, void **, unsigned, int *, void **,
                           unsigned);
CUresult cuLibraryGetKernel(CUkernel *, CUlibrary, const char *);
CUresult cuLibraryUnload(CUlibrary);
CUresult cuLibraryLoadFromFile(CUlibrary *, const char *, int *, void **, unsigned, int *, void **,
                               unsigned);
CUresult cuLibraryEnumerateKernels(CUkernel *, unsigned, CUlibrary);
CUresult cuLibraryGetKernelCount(unsigned *, CUlibrary);
CUresult cuKernelGetLibrary(CUlibrary *, CUkernel);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *, CUfunction, int, int);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void *);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void *);
CUresult cuKernelGetFunction(CUfunction *, CUkernel);

static const char text[] =
    ".version 7.8\n.target sm_90\n.address_size 64\n.visible .global .align 8 .u64 pointer = "
    "table;\n.visible .global .align 4 .u32 table[3] = {10, 20, 30};\n.visible .const .f32 half = "
    "0.5;\n.visible .entry add(.param .u64 p, .param .u32 n, .param .align 8 .b8 "
    "pair[16])\n.maxntid "
    "128, 1, 1\n{\n.reg .b64 %rd<5>;\n.reg .b32 %r<9>;\n.shared .align 16 .b8 s[64];\n"
    "ld.param.u64 %rd1, [p];\nld.param.u32 %r1, [n];\nld.param.u32 %r4, [pair+8];\n"
    "mov.u32 %r2, %tid.x;\nmul.wide.u32 %rd2, %r2, 4;\nadd.u64 %rd3, %rd1, %rd2;\n"
    "ld.global.u32 %r3, [%rd3];\nadd.u32 %r3, %r3, %r1;\nadd.u32 %r3, %r3, %r4;\n"
    "st.global.u32 [%rd3], %r3;\nret;\n}\n";

static CUfunction add;
static CUdeviceptr data;
static uint32_t n = 5, pair[4] = {0, 0, 100, 0};

static uint32_t first_word(void) {
    uint32_t word = 0;
    cuMemcpyDtoH_v2(&word, data, 4);
    return word;
}

static void check_graph(void) {
    CUstream stream, other;
    CUgraph graph;
    CUgraphExec exec;
    CUevent event;
    void *params[] = {&data, &n, pair};
    int status = -1;
    size_t count = 0;
    cuStreamCreate(&stream, 1);
    cuStreamCreate(&other, 1);
    cuEventCreate(&event, 0);
    cuMemsetD8_v2(data, 0, 256);
    is(cuStreamBeginCapture_v2(stream, 0), 0, "capture begins");
    cuStreamIsCapturing(stream, &status);
    is(status, 1, "the stream says so");
    is(cuMemsetD32Async(data, 7, 64, stream), 0, "a fill is captured");
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, stream, params, NULL), 0, "a launch is captured");
    is(cuEventRecord(event, stream), 0, "an event");
    is(cuStreamWaitEvent(other, event, 0), 0, "draws another stream in");
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, other, params, NULL), 0,
       "whose launch is captured");
    is(cuMemAlloc_v2(&(CUdeviceptr){0}, 16), 900, "cuMemAlloc is refused meanwhile");
    n = 1000; /* captured parameters were copied */
    is(cuStreamEndCapture(stream, &graph), 0, "capture ends");
    is(first_word(), 0, "nothing has run");
    cuGraphGetNodes(graph, NULL, &count);
    is(count, 3, "three nodes");
    CUgraphNode nodes[3];
    int type = -1;
    cuGraphGetNodes(graph, nodes, &count);
    cuGraphNodeGetType(nodes[0], &type);
    is(type, 2, "the first is a fill");
    is(cuGraphInstantiateWithFlags(&exec, graph, 0), 0, "it is instantiated");
    is(cuGraphDestroy(graph), 0, "the graph may go");
    is(cuGraphLaunch(exec, stream), 0, "it is replayed");
    is(first_word(), 7 + 2 * 105, "both launches ran with the captured values");
    is(cuGraphLaunch(exec, stream), 0, "and once more");
    is(first_word(), 7 + 2 * 105, "to the same effect");
    n = 5;
    cuStreamBeginCapture_v2(stream, 0);
    is(cuStreamSynchronize(stream), 900, "waiting for a stream under capture is refused");
    is(cuStreamEndCapture(stream, &graph), 901, "and breaks the capture");
    cuGraphExecDestroy(exec);
    cuStreamDestroy_v2(stream);
    cuStreamDestroy_v2(other);
}

static void check_sticky(CUmodule module) {
    CUdeviceptr nowhere = 64;
    void *params[] = {&nowhere, &n, pair};
    uint32_t word;
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL), 0, "a bad launch starts");
    is(cuCtxSynchronize(), 700, "the wait says what went wrong");
    is(cuMemcpyDtoH_v2(&word, data, 4), 700, "so does every later call");
    is(cuDevicePrimaryCtxReset_v2(0), 0, "until the context is reset");
    is(cuMemcpyDtoH_v2(&word, data, 4), 0, "then calls work again");
    params[0] = &data;
    is(cuLaunchKernel(add, 0, 1, 1, 64, 1, 1, 0, NULL, params, NULL), 1,
       "an empty grid is refused");
    is(cuLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL), 701,
       "more threads than .maxntid are refused");
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 60000, NULL, params, NULL), 1,
       "more shared memory than asked for is refused");
    is(cuFuncSetAttribute(add, 8, 60000), 0, "asking for it");
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 60000, NULL, params, NULL), 0, "makes it work");
    is(cuFuncSetAttribute(add, 8, 500000), 1, "beyond the chip's limit is refused");
    is(cuModuleGetFunction(&(CUfunction){0}, module, "nobody"), 500, "an unknown kernel");
    is(cuMemFree_v2(data + 4), 1, "freeing the middle of an allocation");
    is(cuMemcpyDtoH_v2(&word, data + 254, 4), 1, "copying beyond its end");
    is(cuMemsetD16_v2(data + 1, 0, 1), 1, "an unaligned fill");
}

static void check_launch_ways(void) {
    struct {
        uint64_t p;
        uint32_t n, pad, pair[4];
    } block = {data, n, 0, {0, 0, 100, 0}};
    size_t size = sizeof block;
    void *extra[] = {LAUNCH_PARAM_BUFFER_POINTER, &block, LAUNCH_PARAM_BUFFER_SIZE, &size,
                     LAUNCH_PARAM_END};
    cuMemsetD8_v2(data, 0, 256);
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), 0, "a packed block");
    is(first_word(), 105, "reaches the kernel");
    CUlaunchConfig config = {1, 1, 1, 64, 1, 1, 0, NULL, NULL, 0};
    is(cuLaunchKernelEx(&config, add, NULL, extra), 0, "so does cuLaunchKernelEx");
    is(first_word(), 210, "with the same parameters");
    size = 8;
    is(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), 1, "a short block is refused");
    CUlaunchAttribute cluster = {.id = 4};
    cluster.value.cluster.x = 2;
    cluster.value.cluster.y = cluster.value.cluster.z = 1;
    config.attributes = &cluster;
    config.attribute_count = 1;
    size = sizeof block;
    is(cuLaunchKernelEx(&config, add, NULL, extra), 801, "clusters are not supported, and said so");
}

/* Entry points by name, from the library as programs find it. */
static void check_symbols(void) {
    char path[300];
    const char *build = getenv("KVF_BUILD");
    snprintf(path, sizeof path, "%s/executor/libcuda.so.1", build ? build : "build");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
    CUresult (*find)(const char *, void **, int, uint64_t, int *) = NULL;
    if (library) *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
    ok(find != NULL, "%s can be opened", path);
    is(find ? find("cuMemAlloc", &symbol, 12000, 0, NULL) : -1, 0, "an entry point by base name");
    ok(symbol && symbol == dlsym(library, "cuMemAlloc_v2"), "is the newest form of it");
    is(find ? find("cuNothing", &symbol, 12000, 0, NULL) : -1, 500, "an unknown one");
}

static void check_queries(CUmodule module) {
    int value = 0;
    size_t offset = 0, bytes = 0;
    const char *name = NULL;
    unsigned count = 0;
    cuFuncGetAttribute(&value, 0, add);
    is(value, 128, "threads by .maxntid");
    cuFuncGetAttribute(&value, 1, add);
    is(value, 0, "shared memory that nothing uses takes no room");
    cuFuncGetAttribute(&value, 5, add);
    is(value, 78, "PTX version");
    is(cuFuncGetParamInfo(add, 2, &offset, &bytes), 0, "the third parameter");
    ok(offset == 16 && bytes == 16, "lies at 16, 16 bytes long");
    is(cuFuncGetParamInfo(add, 3, &offset, &bytes), 1, "there is no fourth");
    cuDeviceGetAttribute(&value, 75, 0);
    is(value, 9, "compute capability");
    cuGetErrorName(716, &name);
    is(strcmp(name, "CUDA_ERROR_MISALIGNED_ADDRESS"), 0, "an error's name");
    check_symbols();
    is(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, add, 128, 100 << 10), 0, "occupancy");
    is(value, 0, "of more shared memory than asked for is none");
    cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, add, 128, 0);
    is(value, 16, "by threads: 2048 / 128");
    CUdeviceptr table = 0, pointer = 0;
    uint64_t stored = 0;
    uint32_t words[3] = {0};
    is(cuModuleGetGlobal_v2(&table, &bytes, module, "table"), 0, "a variable");
    cuMemcpyDtoH_v2(words, table, sizeof words);
    ok(bytes == 12 && words[0] == 10 && words[2] == 30, "has its initial values");
    cuModuleGetGlobal_v2(&pointer, &bytes, module, "pointer");
    cuMemcpyDtoH_v2(&stored, pointer, 8);
    ok(stored == table, "an address in an initialiser is the variable's");
    CUlibrary library;
    CUkernel kernel;
    CUfunction function = NULL;
    is(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0), 0, "a library");
    is(cuLibraryGetKernel(&kernel, library, "add"), 0, "its kernel");
    is(cuKernelGetFunction(&function, kernel), 0, "as a function");
    CUkernel list[8] = {NULL};
    CUlibrary owner = NULL;
    is(cuLibraryEnumerateKernels(list, 8, library), 0, "all its kernels");
    is(cuLibraryGetKernelCount(&count, library), 0, "are counted");
    ok(count > 0 && list[count - 1] && !list[count], "as many as there are");
    is(cuKernelGetLibrary(&owner, kernel), 0, "whose kernel it is");
    ok(owner == library, "it knows");
    is(cuLibraryUnload(library), 0, "unloaded");
    is(cuLibraryLoadFromFile(&library, "tests/kernels/basic.ptx", NULL, NULL, 0, NULL, NULL, 0), 0,
       "a library of a file");
    cuLibraryUnload(library);
    is(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 4, 128), 0, "shared memory for four");
    is(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, add, 128, bytes), 0, "with so much");
    ok(value >= 4, "four blocks fit");
    CUmemoryPool pool;
    uint64_t keep = 1 << 20;
    is(cuDeviceGetDefaultMemPool(&pool, 0), 0, "the memory pool");
    is(cuMemPoolSetAttribute(pool, 4, &keep), 0, "may be told what to keep");
    is(cuMemPoolGetAttribute(pool, 7, &keep), 0, "says what is used");
    ok(keep > 0 && keep < 1 << 20, "in bytes");
    is(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 400,
       "a function of it is no handle any more");
}

int main(void) {
    tap_plan(20 + 15 + 6 + 23 + 13 + 3);
    setenv("KVF_EXECUTOR_FAIL", "cuMemAllocAsync:2:2", 1);
    tools_start();
    CUmodule module = tools_load(text, NULL);
    if (!module) printf("# %s\n", tools_log);
    add = tools_function(module, "add");
    data = tools_device(NULL, 256);
    cuMemsetD8_v2(data, 0, 256);
    check_graph();
    check_sticky(module);
    check_launch_ways();
    check_queries(module);
    CUdeviceptr p = 0;
    is(cuMemAllocAsync(&p, 16, NULL), 0, "the first call works");
    is(cuMemAllocAsync(&p, 16, NULL), 2, "the second fails with the injected code");
    is(cuMemAllocAsync(&p, 16, NULL), 0, "the third works again");
    return tap_done();
}
