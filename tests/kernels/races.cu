/*
 * Races that are hard to see, and what looks like one and is none: every kernel has a twin. `in` is
 * zero at first, and so is shared memory where a kernel clears it.
 */
#include <stdint.h>

static __device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* All lanes read one word, then one of them writes it. */
template <bool BAD> static __device__ void warp_broadcast(int *out) {
    __shared__ volatile int cells[1];
    int *s = (int *)cells, sum = 0;
    if (threadIdx.x == 0) s[0] = 3;
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        int v = s[0];
        sum += v;
        if (!BAD) __syncwarp();
        else asm volatile("" ::: "memory");
        if (threadIdx.x == 0) s[0] = v + 1;
        __syncwarp();
    }
    out[threadIdx.x] = sum;
}

/* A plain read and another thread's atomic, in either order of execution. */
template <bool BAD> static __device__ void atomic_beside_read(int *out, bool first) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    int v = 0;
    if ((threadIdx.x < 32) == first) v = s;
    if (!BAD) __syncthreads();
    if ((threadIdx.x < 32) != first) atomicAdd(&s, 1);
    out[threadIdx.x] = v;
}

template <bool BAD> static __device__ void atomic_beside_read_global(int *out, int *in) {
    int v = 0;
    if (blockIdx.x) atomicAdd(in, 1);
    else if (BAD) v = in[0];
    else v = *(volatile int *)in;
    if (threadIdx.x == 0) out[blockIdx.x] = v;
}

/* 16-bit values: the neighbour's is none of a block's business. */
template <bool BAD> static __device__ void half_write_after_read(int *out, int *in) {
    uint16_t *h = (uint16_t *)in;
    if (threadIdx.x) return;
    int v = h[BAD ? 0 : blockIdx.x];
    if (!BAD || blockIdx.x == 3) h[BAD ? 0 : blockIdx.x] = (uint16_t)(v + 3 + blockIdx.x);
    out[blockIdx.x] = v;
}

template <bool BAD> static __device__ void half_read_after_writes(int *out, int *in) {
    volatile uint16_t *cells = (volatile uint16_t *)in;
    uint16_t *h = (uint16_t *)cells;
    if (threadIdx.x) return;
    if (blockIdx.x < 2) h[blockIdx.x] = (uint16_t)(901 + blockIdx.x);
    else out[blockIdx.x] = h[BAD ? 0 : blockIdx.x];
}

template <bool BAD> static __device__ void half_read_after_writes_shared(int *out) {
    __shared__ uint16_t s[4];
    unsigned t = threadIdx.x, at = shared_address(s), v = 1;
    if (t < 2) asm volatile("st.shared.u16 [%0], %1;" ::"r"(at + 2 * t), "h"((uint16_t)t) : "memory");
    if (!BAD) __syncthreads();
    if (t == 32) asm volatile("{.reg .u16 h; ld.shared.u16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(v) : "r"(at) : "memory");
    out[t] = (int)v;
}

/* A lock; without fences what it guards is not ordered. */
template <bool BAD> static __device__ void lock(int *out, int *in) {
    if (threadIdx.x) return;
    while (atomicCAS(in, 0, 1) != 0) {}
    if (!BAD) __threadfence();
    int v = in[1];
    in[1] = v + 1;
    if (!BAD) __threadfence();
    atomicExch(in, 0);
    out[blockIdx.x] = v;
}

static __device__ void meet(int *counter, bool fences) {
    __syncthreads();
    if (threadIdx.x == 0) {
        if (fences) __threadfence();
        atomicAdd(counter, 1);
        while (*(volatile int *)counter < (int)gridDim.x) {}
        if (fences) __threadfence();
    }
    __syncthreads();
}

/* All blocks read, meet, and one of them, the last reader or not, writes. */
template <bool BAD> static __device__ void grid_barrier(int *out, int *in, unsigned writer) {
    int v = in[1 + threadIdx.x];
    meet(in, !BAD);
    if (blockIdx.x == writer) in[1 + threadIdx.x] = v + 5;
    out[threadIdx.x + blockDim.x * blockIdx.x] = v;
}

/* The same, but one of them reads once more where all have read before. */
template <bool BAD> static __device__ void read_beyond_barrier(int *out, int *in) {
    int v = in[1 + threadIdx.x];
    meet(in + 40, false);
    meet(in, true);
    if (blockIdx.x == 0) in[1 + threadIdx.x] = v + 5;
    else if (BAD && blockIdx.x == 3) v += in[1 + threadIdx.x];
    out[threadIdx.x + blockDim.x * blockIdx.x] = v;
}

/* The last block adds up what the others left, for which they must have released it. */
template <bool BAD> static __device__ void last_block(int *out, int *in) {
    if (threadIdx.x) return;
    in[4 + blockIdx.x] = 50 + (int)blockIdx.x;
    if (!BAD) __threadfence();
    if (atomicAdd(in, 1) != (int)gridDim.x - 1) return;
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += in[4 + i];
    out[0] = sum;
}

/* The reader looks at the counter only once it has looked at the data. */
template <bool BAD> static __device__ void late_acquire(int *out, int *in) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        in[4] = 7;
        __threadfence();
        atomicAdd(in, 1);
    } else if (blockIdx.x == 1) {
        int v = 0;
        if (BAD) v = in[4];
        while (*(volatile int *)in == 0) {}
        __threadfence();
        if (!BAD) v = in[4];
        out[0] = v;
    }
}

static __device__ void copy4(void *to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.commit_group;" ::"r"(shared_address(to)),
                 "l"(from)
                 : "memory");
}

/* A buffer is filled again while other warps may still be reading it. */
template <bool BAD> static __device__ void refill(int *out, const int *in) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    __syncthreads();
    int v = s[63 - t];
    if (!BAD) __syncthreads();
    copy4(&s[t], in + t);
    __syncthreads();
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[t] = v + s[t];
}

/* One of two copies waited for: the first. */
template <bool BAD> static __device__ void other_group(int *out, const int *in) {
    __shared__ int s[128];
    int t = threadIdx.x;
    copy4(&s[t], in + t);
    copy4(&s[64 + t], in + t);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    out[t] = s[BAD ? 64 + t : t];
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Waited for, but by the thread that copied alone. */
template <bool BAD> static __device__ void wait_without_barrier(int *out, const int *in) {
    __shared__ int s[64];
    int t = threadIdx.x;
    copy4(&s[t], in + t);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    if (!BAD) __syncthreads();
    out[t] = s[63 - t];
}

/* Halves of a warp that synchronise apart. */
template <bool BAD> static __device__ void halves_of_warp(int *out) {
    __shared__ volatile int cells[32];
    int *s = (int *)cells, t = threadIdx.x;
    s[t] = t;
    if (t < 16) __syncwarp(0xffff);
    else __syncwarp(0xffff0000u);
    out[t] = s[BAD ? 31 - t : t ^ 15];
}

#define PAIR(name, args)                                                                           \
    extern "C" __global__ void name##_bad(int *out, int *in) { name<true> args; }                  \
    extern "C" __global__ void name##_good(int *out, int *in) { name<false> args; }
#define PAIR_AS(label, name, args)                                                                 \
    template <bool BAD> static __device__ void label##_twin(int *out, int *in) { name<BAD> args; } \
    extern "C" __global__ void label##_bad(int *out, int *in) { label##_twin<true>(out, in); }     \
    extern "C" __global__ void label##_good(int *out, int *in) { label##_twin<false>(out, in); }
PAIR(warp_broadcast, (out))
PAIR_AS(read_before_atomic, atomic_beside_read, (out, true))
PAIR_AS(read_after_atomic, atomic_beside_read, (out, false))
PAIR(atomic_beside_read_global, (out, in))
PAIR(half_write_after_read, (out, in))
PAIR(half_read_after_writes, (out, in))
PAIR(half_read_after_writes_shared, (out))
PAIR(lock, (out, in))
PAIR_AS(grid_barrier, grid_barrier, (out, in, 1))
PAIR_AS(grid_barrier_last, grid_barrier, (out, in, 3))
PAIR(read_beyond_barrier, (out, in))
PAIR(last_block, (out, in))
PAIR(late_acquire, (out, in))
PAIR(refill, (out, in))
PAIR(other_group, (out, in))
PAIR(wait_without_barrier, (out, in))
PAIR(halves_of_warp, (out))
