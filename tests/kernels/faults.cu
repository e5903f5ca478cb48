/* One planted fault a kernel, and its fixed twin: BAD is a template argument. */
#include <stdint.h>

template <bool BAD> static __device__ void shared_race(int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = (int)threadIdx.x;
    if (!BAD) __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}

template <bool BAD> static __device__ void warp_race(int *out) {
    __shared__ volatile int s[32];
    int *plain = (int *)s;
    plain[threadIdx.x] = (int)threadIdx.x;
    if (!BAD) __syncwarp();
    else asm volatile("" ::: "memory");
    out[threadIdx.x] = plain[31 - threadIdx.x];
}

template <bool BAD> static __device__ void global_race(int *out) {
    if (BAD) out[threadIdx.x] = (int)blockIdx.x;
    else out[blockIdx.x * blockDim.x + threadIdx.x] = (int)blockIdx.x;
}

template <bool BAD> static __device__ void global_counter(int *out) {
    if (BAD) *out = *out + 1;
    else atomicAdd(out, 1);
}

template <bool BAD> static __device__ void uninitialised_shared(int *out) {
    __shared__ int s[64];
    if (!BAD || threadIdx.x != 40) s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}

template <bool BAD> static __device__ void uninitialised_branch(int *out, const int *in) {
    int v = in[BAD ? 64 + threadIdx.x : threadIdx.x];
    out[threadIdx.x] = 1;
    if (v > 5) out[threadIdx.x] = 2;
}

template <bool BAD> static __device__ void uninitialised_address(int *out, const int *in) {
    int v = in[BAD ? 64 + threadIdx.x : threadIdx.x];
    out[v & 63] = 1;
}

template <bool BAD> static __device__ void divergent_barrier(int *out) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 5;
    if (BAD && threadIdx.x % 2) asm volatile("bar.sync 1;" ::: "memory");
    else asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = 1;
}

template <bool BAD> static __device__ void shuffle_inactive(int *out) {
    int v = (int)threadIdx.x;
    unsigned members = BAD ? 0xffffu : 0xffffffffu;
    if (!BAD || threadIdx.x % 32 < 16) v = __shfl_down_sync(members, v, 8);
    out[threadIdx.x] = v;
}

template <bool BAD> static __device__ void missing_wait(int *out, const int *in) {
    __shared__ int s[64];
    uint32_t to = (uint32_t)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.commit_group;" ::"r"(to),
                 "l"(in + threadIdx.x)
                 : "memory");
    if (!BAD) asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x];
}

template <bool BAD> static __device__ void deadlock(int *out) {
    if (threadIdx.x < 32 || !BAD) asm volatile("bar.sync 1, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 64;" ::: "memory");
    out[threadIdx.x] = 1;
}

template <bool BAD> static __device__ void misaligned(int *out) {
    *(int2 *)(out + 2 * threadIdx.x + (BAD ? 1 : 0)) = make_int2(1, 2);
}

template <bool BAD> static __device__ void same_value(int *out) {
    /* Benign either way: every thread and block writes the same. */
    __shared__ int s;
    s = 7;
    __syncthreads();
    out[0] = s;
}

#define PAIR(name, params, args)                                                                   \
    extern "C" __global__ void name##_bad params { name<true> args; }                              \
    extern "C" __global__ void name##_good params { name<false> args; }
PAIR(shared_race, (int *out, const int *in), (out))
PAIR(warp_race, (int *out, const int *in), (out))
PAIR(global_race, (int *out, const int *in), (out))
PAIR(global_counter, (int *out, const int *in), (out))
PAIR(uninitialised_shared, (int *out, const int *in), (out))
PAIR(uninitialised_branch, (int *out, const int *in), (out, in))
PAIR(uninitialised_address, (int *out, const int *in), (out, in))
PAIR(divergent_barrier, (int *out, const int *in), (out))
PAIR(shuffle_inactive, (int *out, const int *in), (out))
PAIR(missing_wait, (int *out, const int *in), (out, in))
PAIR(deadlock, (int *out, const int *in), (out))
PAIR(misaligned, (int *out, const int *in), (out))
PAIR(same_value, (int *out, const int *in), (out))

/* Waits for ever. */
extern "C" __global__ void endless(int *out, const int *in) {
    while (*(volatile int *)out == 0) {
    }
}
