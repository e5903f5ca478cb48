/* The device: what it says of itself is a chip of the capability that KVF_EXECUTOR_CAPABILITY
 * names. */
#include "driver.h"

CU_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal);
CU_EXPORT CUresult cuDeviceGetCount(int *count);
CU_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CU_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CU_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CU_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CU_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device);
CU_EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device);
CU_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CU_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes);
CU_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CU_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CU_EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER("cuDeviceGet");
    if (!device) DONE(CUDA_ERROR_INVALID_VALUE);
    if (ordinal != 0) DONE(CUDA_ERROR_INVALID_DEVICE);
    *device = 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetCount(int *count) {
    ENTER("cuDeviceGetCount");
    if (!count) DONE(CUDA_ERROR_INVALID_VALUE);
    *count = 1;
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER("cuDeviceGetName");
    if (!name || length <= 0) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "kvforge executor sm_%d%d", driver.config.capability_major,
             driver.config.capability_minor);
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER("cuDeviceGetUuid_v2");
    if (!uuid) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    memcpy(uuid->bytes, "kvforge-executor", 16);
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER("cuDeviceTotalMem_v2");
    if (!bytes) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    *bytes = driver.memory.total_bytes;
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER("cuDeviceComputeCapability");
    if (!major || !minor) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    *major = driver.config.capability_major;
    *minor = driver.config.capability_minor;
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    ENTER("cuDeviceGetPCIBusId");
    if (!id || length < 13) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)length, "0000:00:00.0");
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER("cuDeviceGetDefaultMemPool");
    if (!pool) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    *pool = (CUmemoryPool)&driver.memory;
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    return cuDeviceGetDefaultMemPool(pool, device);
}

/* The one pool keeps nothing back, so there is nothing to trim or to tune. */
static bool pool_valid(CUmemoryPool pool) {
    return pool == (CUmemoryPool)&driver.memory;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) {
    (void)bytes;
    ENTER("cuMemPoolTrimTo");
    DONE(pool_valid(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

enum {
    POOL_REUSE_FIRST = 1,
    POOL_REUSE_LAST = 3,
    POOL_RELEASE_THRESHOLD = 4,
    POOL_COUNTERS_LAST = 8
};

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    ENTER("cuMemPoolSetAttribute");
    bool known = attribute >= POOL_REUSE_FIRST && attribute <= POOL_COUNTERS_LAST;
    DONE(pool_valid(pool) && known && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    ENTER("cuMemPoolGetAttribute");
    if (!pool_valid(pool) || !value || attribute < POOL_REUSE_FIRST ||
        attribute > POOL_COUNTERS_LAST)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (attribute <= POOL_REUSE_LAST) {
        *(int *)value = 1;
    } else {
        uint64_t bytes = attribute == POOL_RELEASE_THRESHOLD ? 0 : driver.memory.used_bytes;
        memcpy(value, &bytes, sizeof bytes);
    }
    DONE(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER("cuDeviceCanAccessPeer");
    if (!can) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device || peer) DONE(CUDA_ERROR_INVALID_DEVICE);
    *can = 0;
    DONE(CUDA_SUCCESS);
}

uint64_t shared_limit(void) {
    return 48 << 10;
}

/* Shared memory a block may opt in to, by compute capability (CUDA C++ programming guide). */
uint64_t shared_limit_opt_in(void) {
    int cc = driver.config.capability_major * 10 + driver.config.capability_minor;
    switch (cc) {
    case 80:
    case 87: return 163 << 10;
    case 86:
    case 89:
    case 120: return 99 << 10;
    case 75: return 64 << 10;
    default: return cc >= 90 ? 227 << 10 : 96 << 10;
    }
}

/* Numbers of CUdevice_attribute. Values are those of a large data-centre chip of the capability. */
static bool attribute_value(int attribute, int *value) {
    int cc = driver.config.capability_major * 10 + driver.config.capability_minor;
    int threads_per_sm = cc == 86 || cc == 89 || cc == 120 ? 1536 : 2048;
    switch (attribute) {
    case 1: *value = 1024; break;      /* threads per block */
    case 2: *value = 1024; break;      /* block x */
    case 3: *value = 1024; break;      /* block y */
    case 4: *value = 64; break;        /* block z */
    case 5: *value = INT32_MAX; break; /* grid x */
    case 6: *value = 65535; break;     /* grid y */
    case 7: *value = 65535; break;     /* grid z */
    case 8: *value = (int)shared_limit(); break;
    case 9: *value = 65536; break;      /* constant memory */
    case 10: *value = LANES; break;     /* warp size */
    case 11: *value = INT32_MAX; break; /* pitch */
    case 12: *value = 65536; break;     /* registers per block */
    case 13: *value = 1000000; break;   /* clock, kHz */
    case 14: *value = 512; break;       /* texture alignment */
    case 15: *value = 1; break;         /* overlap */
    case 16: *value = 132; break;       /* multiprocessors */
    case 17: *value = 0; break;         /* time limit */
    case 18: *value = 0; break;         /* integrated */
    case 19: *value = 1; break;         /* maps host memory */
    case 20: *value = 0; break;         /* compute mode */
    case 31: *value = 1; break;         /* concurrent kernels */
    case 32: *value = 0; break;         /* ECC */
    case 33:
    case 34:
    case 50: *value = 0; break; /* PCI */
    case 35: *value = 0; break;
    case 36: *value = 1000000; break;  /* memory clock, kHz */
    case 37: *value = 5120; break;     /* bus width */
    case 38: *value = 50 << 20; break; /* L2 */
    case 39: *value = threads_per_sm; break;
    case 40: *value = 1; break; /* copy engines */
    case 41: *value = 1; break; /* unified addressing */
    case 75: *value = driver.config.capability_major; break;
    case 76: *value = driver.config.capability_minor; break;
    case 78: *value = 1; break; /* stream priorities */
    case 79:
    case 80: *value = 1; break; /* L1 caches */
    case 81: *value = (int)shared_limit_opt_in() + 1024; break;
    case 82: *value = 65536; break; /* registers per multiprocessor */
    case 83: *value = 0; break;     /* managed memory */
    case 84:
    case 85: *value = 0; break;
    case 86: *value = 1; break; /* native host atomics */
    case 87: *value = 2; break; /* f32 to f64 */
    case 88:
    case 89: *value = 0; break;
    case 90: *value = 1; break; /* preemption */
    case 91: *value = 0; break;
    case 95: *value = 0; break; /* cooperative launch */
    case 96: *value = 0; break;
    case 97: *value = (int)shared_limit_opt_in(); break;
    case 106: *value = cc >= 100 || cc == 80 || cc == 90 ? 32 : 24; break; /* blocks per SM */
    case 111: *value = 1024; break; /* reserved shared memory */
    case 115: *value = 1; break;    /* memory pools */
    case 120: *value = 0; break;    /* cluster launch */
    default: return false;
    }
    return true;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER("cuDeviceGetAttribute");
    if (!value) DONE(CUDA_ERROR_INVALID_VALUE);
    if (device) DONE(CUDA_ERROR_INVALID_DEVICE);
    if (attribute_value(attribute, value)) DONE(CUDA_SUCCESS);
    if (attribute < 1 || attribute > 200) DONE(CUDA_ERROR_INVALID_VALUE);
    *value = 0; /* a feature that is not there */
    DONE(CUDA_SUCCESS);
}
