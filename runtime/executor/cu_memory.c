/* Device memory: allocation, copies, fills. */
#include <stdlib.h>

#include "driver.h"

/* ---- allocation ---- */

CU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width,
                                      size_t rows, unsigned element);
CU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);
CU_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CU_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                           CUstream stream);
CU_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CU_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CU_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CU_EXPORT CUresult cuMemAllocHost_v2(void **host, size_t bytes);
CU_EXPORT CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned flags);
CU_EXPORT CUresult cuMemFreeHost(void *host);
CU_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags);
CU_EXPORT CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags);
CU_EXPORT CUresult cuMemHostUnregister(void *host);
CU_EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address);

static int allocate(CUdeviceptr *address, size_t bytes) {
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    struct region *r;
    if (memory_allocate(&driver.memory, bytes, &r) != MEMORY_OK) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = r->base;
    return CUDA_SUCCESS;
}

static int release(CUdeviceptr address) {
    if (!address) return CUDA_SUCCESS;
    struct region *r = memory_find(&driver.memory, address);
    if (!r || r->base != address || r->name || r->pinned_host) return CUDA_ERROR_INVALID_VALUE;
    memory_release(&driver.memory, address);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    ENTER_CONTEXT("cuMemAlloc_v2");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(allocate(address, bytes));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t rows,
                            unsigned element) {
    ENTER_CONTEXT("cuMemAllocPitch_v2");
    if (!pitch || (element != 4 && element != 8 && element != 16)) DONE(CUDA_ERROR_INVALID_VALUE);
    *pitch = (width + 511) & ~(size_t)511;
    DONE(allocate(address, *pitch * rows));
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER_CONTEXT("cuMemFree_v2");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(release(address));
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    ENTER_CONTEXT("cuMemAllocAsync");
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUstream_st *s = stream_of(stream);
    if (s && s->capture) DONE(CUDA_ERROR_NOT_SUPPORTED); /* allocation nodes are not built */
    DONE(allocate(address, bytes));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    (void)pool;
    return cuMemAllocAsync(address, bytes, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    ENTER_CONTEXT("cuMemFreeAsync");
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUstream_st *s = stream_of(stream);
    if (s && s->capture) DONE(CUDA_ERROR_NOT_SUPPORTED);
    DONE(release(address));
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER_CONTEXT("cuMemGetInfo_v2");
    if (free_bytes) *free_bytes = driver.memory.total_bytes - driver.memory.used_bytes;
    if (total) *total = driver.memory.total_bytes;
    DONE(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    ENTER_CONTEXT("cuMemGetAddressRange_v2");
    const struct region *r = memory_find(&driver.memory, address);
    if (!r) DONE(CUDA_ERROR_NOT_FOUND);
    if (base) *base = r->base;
    if (bytes) *bytes = r->bytes;
    DONE(CUDA_SUCCESS);
}

/* Pinned host memory is a region whose device address is the host's own. */
static int adopt(void *host, size_t bytes) {
    struct region *r;
    return memory_adopt(&driver.memory, host, bytes, &r) == MEMORY_OK ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_OUT_OF_MEMORY;
}

static int host_allocate(void **host, size_t bytes) {
    if (!host || !bytes) return CUDA_ERROR_INVALID_VALUE;
    void *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    int result = adopt(memory, bytes);
    if (result)
        free(memory);
    else
        *host = memory;
    return result;
}

static struct region *find_host(void *host) {
    struct region *r = memory_find(&driver.memory, (uint64_t)(uintptr_t)host);
    return r && r->pinned_host ? r : NULL;
}

CUresult cuMemAllocHost_v2(void **host, size_t bytes) {
    ENTER_CONTEXT("cuMemAllocHost_v2");
    DONE(host_allocate(host, bytes));
}

CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuMemHostAlloc");
    DONE(host_allocate(host, bytes));
}

CUresult cuMemFreeHost(void *host) {
    ENTER_CONTEXT("cuMemFreeHost");
    struct region *r = find_host(host);
    if (!r || r->host != host) DONE(CUDA_ERROR_INVALID_VALUE);
    memory_release(&driver.memory, r->base);
    free(host);
    DONE(CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuMemHostGetDevicePointer_v2");
    if (!address || !find_host(host)) DONE(CUDA_ERROR_INVALID_VALUE);
    *address = (CUdeviceptr)(uintptr_t)host;
    DONE(CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuMemHostRegister_v2");
    if (!host || !bytes) DONE(CUDA_ERROR_INVALID_VALUE);
    if (find_host(host)) DONE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    DONE(adopt(host, bytes));
}

CUresult cuMemHostUnregister(void *host) {
    ENTER_CONTEXT("cuMemHostUnregister");
    struct region *r = find_host(host);
    if (!r || r->host != host) DONE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    memory_release(&driver.memory, r->base);
    DONE(CUDA_SUCCESS);
}

enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE_POINTER = 3,
    POINTER_HOST_POINTER = 4,
    POINTER_BUFFER_ID = 7,
    POINTER_IS_MANAGED = 8,
    POINTER_DEVICE_ORDINAL = 9,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12
};

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    ENTER_CONTEXT("cuPointerGetAttribute");
    const struct region *r = memory_find(&driver.memory, address);
    if (!data || !r) DONE(CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case POINTER_CONTEXT: *(CUcontext *)data = driver_current(); break;
    case POINTER_MEMORY_TYPE: *(unsigned *)data = r->pinned_host ? 1 : 2; break;
    case POINTER_DEVICE_POINTER: *(CUdeviceptr *)data = address; break;
    case POINTER_HOST_POINTER:
        if (!r->pinned_host) DONE(CUDA_ERROR_INVALID_VALUE);
        *(void **)data = (void *)(uintptr_t)address;
        break;
    case POINTER_BUFFER_ID: *(unsigned long long *)data = r->id; break;
    case POINTER_IS_MANAGED: *(unsigned *)data = 0; break;
    case POINTER_DEVICE_ORDINAL: *(int *)data = 0; break;
    case POINTER_RANGE_START: *(CUdeviceptr *)data = r->base; break;
    case POINTER_RANGE_SIZE: *(size_t *)data = r->bytes; break;
    default: DONE(CUDA_ERROR_NOT_SUPPORTED);
    }
    DONE(CUDA_SUCCESS);
}

/* ---- copies and fills as work ---- */

/* The region that holds [address, address + bytes), or null. */
static struct region *range(CUdeviceptr address, size_t bytes) {
    struct region *r = memory_find(&driver.memory, address);
    if (!r || bytes > r->bytes - (address - r->base)) return NULL;
    return r;
}

static void copy_definedness(struct region *to, uint64_t to_at, const struct region *from,
                             uint64_t from_at, size_t bytes) {
    if (region_is_defined(from, from_at, bytes)) {
        region_define(to, to_at, bytes, true);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        region_define(to, to_at + i, 1, region_is_defined(from, from_at + i, 1));
}

int copy_run(const struct work *w) {
    for (size_t row = 0; row < w->rows; row++) {
        size_t to_skip = row * w->pitch_to, from_skip = row * w->pitch_from;
        struct region *to = NULL, *from = NULL;
        uint8_t *to_host = w->host_to ? (uint8_t *)w->host_to + to_skip : NULL;
        const uint8_t *from_host = w->host_from ? (const uint8_t *)w->host_from + from_skip : NULL;
        uint64_t to_at = 0, from_at = 0;
        if (!w->host_to) {
            to = range(w->to + to_skip, w->bytes);
            if (!to) return CUDA_ERROR_INVALID_VALUE;
            to_at = w->to + to_skip - to->base;
            to_host = to->host + to_at;
        }
        if (!w->host_from) {
            from = range(w->from + from_skip, w->bytes);
            if (!from) return CUDA_ERROR_INVALID_VALUE;
            from_at = w->from + from_skip - from->base;
            from_host = from->host + from_at;
        }
        memmove(to_host, from_host, w->bytes);
        if (!to) continue;
        if (from)
            copy_definedness(to, to_at, from, from_at, w->bytes);
        else
            region_define(to, to_at, w->bytes, true);
        to->fresh = true;
    }
    return CUDA_SUCCESS;
}

int set_run(const struct work *w) {
    size_t row_bytes = w->bytes;
    for (size_t row = 0; row < w->rows; row++) {
        struct region *r = range(w->to + row * w->pitch_to, row_bytes);
        if (!r) return CUDA_ERROR_INVALID_VALUE;
        uint64_t at = w->to + row * w->pitch_to - r->base;
        uint8_t *host = r->host + at;
        if (w->value_bytes == 1) {
            memset(host, (int)w->value, row_bytes);
        } else {
            for (size_t i = 0; i < row_bytes; i += w->value_bytes)
                memcpy(host + i, &w->value, w->value_bytes);
        }
        region_define(r, at, row_bytes, true);
        r->fresh = true;
    }
    return CUDA_SUCCESS;
}

/* A copy must make sense when it is asked for, not only when it runs. */
static int submit_copy(CUstream stream, struct work work) {
    if (!stream_valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (!work.bytes || !work.rows) return CUDA_SUCCESS;
    work.kind = WORK_COPY;
    for (size_t row = 0; row<work.rows; row += work.rows> 1 ? work.rows - 1 : 1) {
        if (!work.host_to && !range(work.to + row * work.pitch_to, work.bytes))
            return CUDA_ERROR_INVALID_VALUE;
        if (!work.host_from && !range(work.from + row * work.pitch_from, work.bytes))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return stream_submit(stream, &work);
}

static int submit_set(CUstream stream, CUdeviceptr to, uint32_t value, uint32_t value_bytes,
                      size_t count, size_t rows, size_t pitch) {
    struct work work = {.kind = WORK_SET,
                        .to = to,
                        .value = value,
                        .value_bytes = value_bytes,
                        .rows = rows,
                        .pitch_to = pitch};
    if (!stream_valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (__builtin_mul_overflow(count, (size_t)value_bytes, &work.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!work.bytes || !rows) return CUDA_SUCCESS;
    if (to % value_bytes || (rows > 1 && pitch % value_bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (!range(to, work.bytes) || !range(to + (rows - 1) * pitch, work.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return stream_submit(stream, &work);
}

#define COPY_TO(p) .to = (p), .host_to = NULL
#define SYNC_ONLY(name)                                                                            \
    ENTER_CONTEXT(name);                                                                           \
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)

CU_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CU_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CU_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CU_EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CU_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                        CUstream stream);
CU_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CU_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUstream stream);
CU_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    SYNC_ONLY("cuMemcpyHtoD_v2");
    if (bytes && !from) DONE(CUDA_ERROR_INVALID_VALUE);
    DONE(submit_copy(NULL,
                     (struct work){COPY_TO(to), .host_from = from, .bytes = bytes, .rows = 1}));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    SYNC_ONLY("cuMemcpyDtoH_v2");
    if (bytes && !to) DONE(CUDA_ERROR_INVALID_VALUE);
    DONE(submit_copy(NULL, (struct work){.host_to = to, .from = from, .bytes = bytes, .rows = 1}));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    SYNC_ONLY("cuMemcpyDtoD_v2");
    DONE(submit_copy(NULL, (struct work){COPY_TO(to), .from = from, .bytes = bytes, .rows = 1}));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT("cuMemcpyHtoDAsync_v2");
    if (bytes && !from) DONE(CUDA_ERROR_INVALID_VALUE);
    DONE(submit_copy(stream,
                     (struct work){COPY_TO(to), .host_from = from, .bytes = bytes, .rows = 1}));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT("cuMemcpyDtoHAsync_v2");
    if (bytes && !to) DONE(CUDA_ERROR_INVALID_VALUE);
    DONE(
        submit_copy(stream, (struct work){.host_to = to, .from = from, .bytes = bytes, .rows = 1}));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT("cuMemcpyDtoDAsync_v2");
    DONE(submit_copy(stream, (struct work){COPY_TO(to), .from = from, .bytes = bytes, .rows = 1}));
}

/* Either side may be host memory: what is no device address is a pointer of the program. */
static struct work unified_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    struct work w = {.to = to, .from = from, .bytes = bytes, .rows = 1};
    if (to < DEVICE_BASE) w.host_to = (void *)(uintptr_t)to;
    if (from < DEVICE_BASE) w.host_from = (const void *)(uintptr_t)from;
    return w;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    SYNC_ONLY("cuMemcpy");
    if (bytes && (!to || !from)) DONE(CUDA_ERROR_INVALID_VALUE);
    DONE(submit_copy(NULL, unified_copy(to, from, bytes)));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_CONTEXT("cuMemcpyAsync");
    if (bytes && (!to || !from)) DONE(CUDA_ERROR_INVALID_VALUE);
    DONE(submit_copy(stream, unified_copy(to, from, bytes)));
}

/* CUDA_MEMCPY2D; memory types: 1 host, 2 device, 4 unified. */
struct copy_2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

CU_EXPORT CUresult cuMemcpy2D_v2(const struct copy_2d *copy);
CU_EXPORT CUresult cuMemcpy2DUnaligned_v2(const struct copy_2d *copy);
CU_EXPORT CUresult cuMemcpy2DAsync_v2(const struct copy_2d *copy, CUstream stream);

static int copy_2d(const struct copy_2d *c, CUstream stream) {
    if (!c || c->from_array || c->to_array) return CUDA_ERROR_INVALID_VALUE;
    struct work w = {.bytes = c->width,
                     .rows = c->height,
                     .pitch_to = c->to_pitch ? c->to_pitch : c->width,
                     .pitch_from = c->from_pitch ? c->from_pitch : c->width};
    size_t from_skip = c->from_y * w.pitch_from + c->from_x;
    size_t to_skip = c->to_y * w.pitch_to + c->to_x;
    if (c->from_type == 1)
        w.host_from = (const uint8_t *)c->from_host + from_skip;
    else
        w.from = c->from_device + from_skip;
    if (c->to_type == 1)
        w.host_to = (uint8_t *)c->to_host + to_skip;
    else
        w.to = c->to_device + to_skip;
    if (w.pitch_to < w.bytes || w.pitch_from < w.bytes) return CUDA_ERROR_INVALID_VALUE;
    return submit_copy(stream, w);
}

CUresult cuMemcpy2D_v2(const struct copy_2d *copy) {
    SYNC_ONLY("cuMemcpy2D_v2");
    DONE(copy_2d(copy, NULL));
}

CUresult cuMemcpy2DUnaligned_v2(const struct copy_2d *copy) {
    SYNC_ONLY("cuMemcpy2DUnaligned_v2");
    DONE(copy_2d(copy, NULL));
}

CUresult cuMemcpy2DAsync_v2(const struct copy_2d *copy, CUstream stream) {
    ENTER_CONTEXT("cuMemcpy2DAsync_v2");
    DONE(copy_2d(copy, stream));
}

#define SET_FUNCTIONS(bits, type)                                                                  \
    CU_EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count);             \
    CU_EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count,            \
                                              CUstream stream);                                    \
    CU_EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value,            \
                                              size_t width, size_t height);                        \
    CU_EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value,          \
                                                size_t width, size_t height, CUstream stream);     \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                      \
        SYNC_ONLY("cuMemsetD" #bits "_v2");                                                        \
        DONE(submit_set(NULL, to, value, (bits) / 8, count, 1, 0));                                \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {   \
        ENTER_CONTEXT("cuMemsetD" #bits "Async");                                                  \
        DONE(submit_set(stream, to, value, (bits) / 8, count, 1, 0));                              \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height) {                                               \
        SYNC_ONLY("cuMemsetD2D" #bits "_v2");                                                      \
        DONE(submit_set(NULL, to, value, (bits) / 8, width, height, pitch));                       \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream) {                            \
        ENTER_CONTEXT("cuMemsetD2D" #bits "Async");                                                \
        DONE(submit_set(stream, to, value, (bits) / 8, width, height, pitch));                     \
    }
SET_FUNCTIONS(8, uint8_t)
SET_FUNCTIONS(16, uint16_t)
SET_FUNCTIONS(32, uint32_t)
