/* Functions: attributes, parameters, occupancy, launches. */
#include <stdlib.h>

#include "driver.h"

enum { REGISTERS_PER_THREAD_GUESS = 255 };

CU_EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
CU_EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CU_EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config);
CU_EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction function);
CU_EXPORT CUresult cuFuncGetName(const char **name, CUfunction function);
CU_EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
                                      size_t *bytes);
CU_EXPORT CUresult cuFuncLoad(CUfunction function);
CU_EXPORT CUresult cuFuncIsLoaded(int *state, CUfunction function);
CU_EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel,
                                        CUdevice device);
CU_EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device);
CU_EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset,
                                        size_t *bytes);
CU_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes, CUstream stream,
                                  void **params, void **extra);
CU_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                    void **params, void **extra);
CU_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                               int threads, size_t shared_bytes);
CU_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int threads, size_t shared_bytes, unsigned flags);
CU_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                    size_t (*shared_of)(int), size_t shared_bytes,
                                                    int limit);
CU_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
                                                             CUfunction function,
                                                             size_t (*shared_of)(int),
                                                             size_t shared_bytes, int limit,
                                                             unsigned flags);
CU_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function,
                                                           int blocks, int threads);

/* ---- attributes ---- */

static unsigned max_threads(const struct function *f) {
    const uint32_t *limit = f->required_threads[0] ? f->required_threads : f->max_threads;
    if (!limit[0]) return 1024;
    uint64_t threads = (uint64_t)limit[0] * limit[1] * limit[2];
    return threads < 1024 ? (unsigned)threads : 1024;
}

/* The registers are PTX's, before any allocation: the number is an upper bound, as chips allow 255.
 */
static int register_count(const struct function *f) {
    unsigned n = f->slots > FIRST_SLOT ? f->slots - FIRST_SLOT : 0;
    if (f->max_registers && n > f->max_registers) n = f->max_registers;
    return (int)(n < REGISTERS_PER_THREAD_GUESS ? n : REGISTERS_PER_THREAD_GUESS);
}

static int get_attribute(const struct CUfunc_st *h, int attribute, int *value) {
    const struct function *f = h->function;
    const struct module *m = h->module->module;
    switch (attribute) {
    case 0: *value = (int)max_threads(f); break;
    case 1: *value = (int)f->shared_bytes; break;
    case 2: *value = 0; break; /* constant bytes of the kernel's own */
    case 3: *value = (int)f->local_bytes; break;
    case 4: *value = register_count(f); break;
    case 5: *value = (int)m->version; break;
    case 6: *value = (int)m->target; break;
    case 7: *value = 0; break;
    case 8: *value = h->max_dynamic_shared; break;
    case 9: *value = h->carveout; break;
    case 10: *value = 0; break;
    case 11:
    case 12:
    case 13: *value = (int)f->cluster[attribute - 11]; break;
    case 14:
    case 15: *value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static int set_attribute(struct CUfunc_st *h, int attribute, int value) {
    switch (attribute) {
    case 8:
        if (value < 0 || (uint64_t)value + h->function->shared_bytes > shared_limit_opt_in())
            return CUDA_ERROR_INVALID_VALUE;
        h->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case 9:
        if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
        h->carveout = value;
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    ENTER_CONTEXT("cuFuncGetAttribute");
    if (!value) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(get_attribute(function, attribute, value));
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    ENTER_CONTEXT("cuFuncSetAttribute");
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(set_attribute(function, attribute, value));
}

CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
    (void)config;
    ENTER_CONTEXT("cuFuncSetCacheConfig");
    DONE(function_valid(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    ENTER_CONTEXT("cuFuncGetModule");
    if (!module) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *module = function->module;
    DONE(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
    ENTER_CONTEXT("cuFuncGetName");
    if (!name) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *name = function->function->name;
    DONE(CUDA_SUCCESS);
}

static int param_info(const struct CUfunc_st *h, size_t index, size_t *offset, size_t *bytes) {
    if (!offset) return CUDA_ERROR_INVALID_VALUE;
    if (index >= h->function->param_count) return CUDA_ERROR_INVALID_VALUE;
    *offset = h->function->params[index].offset;
    if (bytes) *bytes = h->function->params[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    ENTER_CONTEXT("cuFuncGetParamInfo");
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(param_info(function, index, offset, bytes));
}

CUresult cuFuncLoad(CUfunction function) {
    ENTER_CONTEXT("cuFuncLoad");
    DONE(function_valid(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncIsLoaded(int *state, CUfunction function) {
    ENTER_CONTEXT("cuFuncIsLoaded");
    if (!state) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *state = 1;
    DONE(CUDA_SUCCESS);
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device) {
    ENTER("cuKernelGetAttribute");
    if (!value) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    if (!function_valid((struct CUfunc_st *)kernel)) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(get_attribute((struct CUfunc_st *)kernel, attribute, value));
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    ENTER("cuKernelSetAttribute");
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    if (!function_valid((struct CUfunc_st *)kernel)) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(set_attribute((struct CUfunc_st *)kernel, attribute, value));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    ENTER("cuKernelGetParamInfo");
    if (!function_valid((struct CUfunc_st *)kernel)) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(param_info((struct CUfunc_st *)kernel, index, offset, bytes));
}

/* ---- occupancy ---- */

static int smallest(int a, int b) {
    return a < b ? a : b;
}

/* By threads, registers and shared memory of a multiprocessor; registers are not known exactly. */
static int occupancy(const struct CUfunc_st *h, int threads, size_t dynamic) {
    const struct function *f = h->function;
    int cc = driver.config.capability_major * 10 + driver.config.capability_minor;
    int per_sm = cc == 86 || cc == 89 || cc == 120 ? 1536 : 2048;
    int warps = (threads + LANES - 1) / LANES;
    if (threads > (int)max_threads(f) || dynamic > (size_t)h->max_dynamic_shared) return 0;
    int blocks = smallest(32, per_sm / LANES / warps);
    int registers = register_count(f);
    if (registers) blocks = smallest(blocks, 65536 / ((registers + 7) / 8 * 8 * LANES * warps));
    uint64_t shared = f->shared_bytes + dynamic + 1024;
    return smallest(blocks, (int)((shared_limit_opt_in() + 1024) / shared));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared_bytes) {
    ENTER_CONTEXT("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (!blocks || threads <= 0) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *blocks = occupancy(function, threads, shared_bytes);
    DONE(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t shared_bytes,
                                                              unsigned flags) {
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          size_t (*shared_of)(int), size_t shared_bytes,
                                          int limit) {
    ENTER_CONTEXT("cuOccupancyMaxPotentialBlockSize");
    if (!grid || !block) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    int most = (int)max_threads(function->function), best = 0, best_threads = 0;
    if (limit > 0 && limit < most) most = limit;
    for (int threads = most; threads > 0; threads = (threads - 1) / LANES * LANES) {
        size_t shared = shared_of ? shared_of(threads) : shared_bytes;
        int active = occupancy(function, threads, shared) * threads;
        if (active > best) {
            best = active;
            best_threads = threads;
        }
    }
    if (!best_threads) DONE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    *block = best_threads;
    *grid = best / best_threads * 132;
    DONE(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   size_t (*shared_of)(int), size_t shared_bytes,
                                                   int limit, unsigned flags) {
    (void)flags;
    return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared_bytes, limit);
}

/* The most with which so many blocks still fit. */
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int threads) {
    ENTER_CONTEXT("cuOccupancyAvailableDynamicSMemPerBlock");
    if (!bytes || blocks <= 0 || threads <= 0) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!function_valid(function)) DONE(CUDA_ERROR_INVALID_HANDLE);
    if (occupancy(function, threads, 0) < blocks) DONE(CUDA_ERROR_INVALID_VALUE);
    uint64_t used = function->function->shared_bytes + 1024;
    uint64_t each = (shared_limit_opt_in() + 1024) / (uint64_t)blocks;
    uint64_t most = (uint64_t)function->max_dynamic_shared;
    *bytes = each > used ? each - used < most ? each - used : most : 0;
    DONE(CUDA_SUCCESS);
}

/* ---- launches ---- */

static int check_dimensions(const struct CUfunc_st *h, const struct work *w) {
    const struct function *f = h->function;
    for (int i = 0; i < 3; i++)
        if (!w->grid[i] || !w->block[i]) return CUDA_ERROR_INVALID_VALUE;
    if (w->grid[0] > INT32_MAX || w->grid[1] > 65535 || w->grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    if (w->block[0] > 1024 || w->block[1] > 1024 || w->block[2] > 64)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t threads = (uint64_t)w->block[0] * w->block[1] * w->block[2];
    if (threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    if (f->required_threads[0] &&
        (f->required_threads[0] != w->block[0] || f->required_threads[1] != w->block[1] ||
         f->required_threads[2] != w->block[2]))
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > max_threads(f)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (w->shared > (unsigned)h->max_dynamic_shared) return CUDA_ERROR_INVALID_VALUE;
    if (f->shared_bytes + w->shared > shared_limit_opt_in())
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return CUDA_SUCCESS;
}

/* The packed block from an array of pointers, one a parameter, or from a buffer in `extra`. */
static int collect_params(const struct function *f, void **params, void **extra,
                          struct work *work) {
    work->param_bytes = f->param_bytes;
    work->params = calloc(1, f->param_bytes + 16);
    if (!work->params) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!f->param_count) return CUDA_SUCCESS;
    if (params && extra) return CUDA_ERROR_INVALID_VALUE;
    if (params) {
        for (uint32_t i = 0; i < f->param_count; i++) {
            if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
            memcpy((uint8_t *)work->params + f->params[i].offset, params[i], f->params[i].bytes);
        }
        return CUDA_SUCCESS;
    }
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; extra && *extra != LAUNCH_PARAM_END; extra += 2) {
        if (*extra == LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (!buffer || bytes < f->param_bytes) return CUDA_ERROR_INVALID_VALUE;
    memcpy(work->params, buffer, f->param_bytes);
    return CUDA_SUCCESS;
}

int kernel_run(const struct work *w) {
    struct CUfunc_st *h = w->function;
    const struct function *f = h->function;
    struct launch launch = {.module = h->module->module,
                            .function = f,
                            .memory = &driver.memory,
                            .config = &driver.config,
                            .reporter = &driver.reporter,
                            .params = w->params,
                            .dynamic_shared = w->shared,
                            .number = driver.launches + 1};
    launch.shared_bytes = w->shared ? f->dynamic_start + w->shared : f->shared_bytes;
    memcpy(launch.grid, w->grid, sizeof launch.grid);
    memcpy(launch.dimensions, w->block, sizeof launch.dimensions);
    struct launch_totals totals;
    int result = launch_run(&launch, &totals);
    driver.launches++;
    counters_add(f->name, &launch, &totals);
    h->launches++;
    driver.blocks += totals.blocks;
    driver.warp_instructions += totals.warp_instructions;
    driver.lane_instructions += totals.lane_instructions;
    return driver_fault(result);
}

static int launch(CUfunction function, struct work *work, CUstream stream, void **params,
                  void **extra) {
    if (!function_valid(function)) return CUDA_ERROR_INVALID_HANDLE;
    if (!stream_valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
    work->kind = WORK_KERNEL;
    work->function = function;
    int result = check_dimensions(function, work);
    if (!result) result = collect_params(function->function, params, extra, work);
    if (result) {
        free(work->params);
        return result;
    }
    result = stream_submit(stream, work);
    /* As on a device: what goes wrong inside a kernel shows at the next call, not at the launch. */
    struct CUctx_st *context = driver_current();
    return result && context && context->error == result ? CUDA_SUCCESS : result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **params, void **extra) {
    ENTER_CONTEXT("cuLaunchKernel");
    struct work work = {.grid = {grid_x, grid_y, grid_z},
                        .block = {block_x, block_y, block_z},
                        .shared = shared_bytes};
    DONE(launch(function, &work, stream, params, extra));
}

enum { ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4 };

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
    ENTER_CONTEXT("cuLaunchKernelEx");
    if (!config || (config->attribute_count && !config->attributes)) DONE(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const CUlaunchAttribute *a = &config->attributes[i];
        bool cluster = a->id == ATTRIBUTE_CLUSTER &&
                       a->value.cluster.x * a->value.cluster.y * a->value.cluster.z > 1;
        if (cluster || (a->id == ATTRIBUTE_COOPERATIVE && a->value.integer))
            DONE(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct work work = {.grid = {config->grid_x, config->grid_y, config->grid_z},
                        .block = {config->block_x, config->block_y, config->block_z},
                        .shared = config->shared_bytes};
    DONE(launch(function, &work, config->stream, params, extra));
}
