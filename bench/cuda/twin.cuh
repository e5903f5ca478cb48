/*
 * What the CUDA C versions of the kernels share: DeepSeek-V4-Flash's numbers and parameter structs from the header that
 * kvforge writes with the bundle, conversions, warp reductions, rows.
 *
 * They are written as one would first: a thread or warp for the natural piece of work, vector loads where the layout
 * invites them, the toolkit's conversions and exp2f. Compile with -fmad=false where the results are compared bit by bit.
 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "deepseek-v4-flash.h"

#define CSA(name)    DEEPSEEK_V4_FLASH_CSA_##name
#define HCA(name)    DEEPSEEK_V4_FLASH_HCA_##name
#define PARAMS(name) const __grid_constant__ struct kvf_deepseek_v4_flash_##name##_params p
#define KERNEL       extern "C" __global__ void

constexpr unsigned ALL = 0xffffffffu;
constexpr int DIM = CSA(HEAD_DIM), ROPE = CSA(ROPE_DIM), NOPE = CSA(NOPE_DIM), BLOCK = DEEPSEEK_V4_FLASH_BLOCK;
constexpr int WINDOW = CSA(WINDOW), ROW = CSA(WINDOW_NOPE_STRIDE), FOOTER = CSA(WINDOW_SCALE_STRIDE);
constexpr float EPS = 1e-6f, LOG2E = 1.44269504f;

static_assert(DIM == 512 && ROPE == 64 && CSA(INDEXER_DIM) == 128, "the row functions are written for these");

template <typename T> __device__ __forceinline__ T *at(kvf_address base, uint64_t bytes = 0) {
    return reinterpret_cast<T *>(base + bytes);
}

/* ---- conversions ---- */

__device__ __forceinline__ float2 widen(unsigned pair) {
    __nv_bfloat162 value;
    memcpy(&value, &pair, sizeof value);
    return __bfloat1622float2(value);
}

__device__ __forceinline__ unsigned round_pair(float low, float high) {
    __nv_bfloat162 value = __floats2bfloat162_rn(low, high);
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

__device__ __forceinline__ float rounded(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

__device__ __forceinline__ void widen8(uint4 in, float x[8]) {
    unsigned words[4] = {in.x, in.y, in.z, in.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 pair = widen(words[i]);
        x[2 * i] = pair.x;
        x[2 * i + 1] = pair.y;
    }
}

__device__ __forceinline__ uint4 round8(const float x[8]) {
    return make_uint4(round_pair(x[0], x[1]), round_pair(x[2], x[3]), round_pair(x[4], x[5]), round_pair(x[6], x[7]));
}

__device__ __forceinline__ uint2 e4m3_of(const float x[8], float inverse) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i] * inverse, x[2 * i + 1] * inverse), __NV_SATFINITE,
                                            __NV_E4M3);
    return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

__device__ __forceinline__ float2 of_e4m3(unsigned pair) {
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3)));
}

/* The byte of the smallest power of two not below largest / 448, and that power and its inverse. */
__device__ __forceinline__ unsigned scale_byte(float largest) {
    unsigned bits = __float_as_uint(fmaxf(fminf(largest, 3.402823466e38f), 1e-4f) * (1.0f / 448));
    return (bits >> 23) + ((bits & 0x7fffff) != 0);
}
__device__ __forceinline__ float power(unsigned byte) { return __uint_as_float(byte << 23); }
__device__ __forceinline__ float inverse_power(unsigned byte) { return power(254 - byte); }

/* ---- warps ---- */

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL, x, distance);
    return x;
}

template <int LANES> __device__ __forceinline__ float most_of(float x) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, distance));
    return x;
}

/* ---- rows in a warp's registers: vector v of eight elements in lane v % 32, step v / 32 ---- */

template <int STEPS> __device__ __forceinline__ void normalise(float x[STEPS][8], int n, const float4 *weight, int lane) {
    float sum = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int i = 0; i < 8; i++) sum += x[step][i] * x[step][i];
    float scale = 1.0f / sqrtf(warp_sum(sum) / n + EPS);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        if (32 * step + lane >= n / 8) break;
        float w[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        if (weight) {
            float4 low = weight[2 * (32 * step + lane)], high = weight[2 * (32 * step + lane) + 1];
            float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = all[i];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) x[step][i] = x[step][i] * scale * w[i];
    }
}

/* Rotate eight elements; `table` is the position's row, v their vector in the rotated part. */
__device__ __forceinline__ void rotate(float x[8], const float4 *table, int v, bool back = false) {
    float4 cosines = table[v], sines = table[ROPE / 8 + v];
    float c[4] = {cosines.x, cosines.y, cosines.z, cosines.w}, s[4] = {sines.x, sines.y, sines.z, sines.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = back ? a * c[i] + b * s[i] : a * c[i] - b * s[i];
        x[2 * i + 1] = back ? b * c[i] - a * s[i] : a * s[i] + b * c[i];
    }
}

/* A latent row, normalised, into row `row` of a page of `rows`: e4m3 codes, rotated bf16, scales at the page's end. */
__device__ __forceinline__ void store_latent(float x[2][8], char *page, int rows, int row, const float4 *table,
                                             int lane) {
    char *to = page + row * ROW, *footer = page + rows * ROW + row * FOOTER;
#pragma unroll
    for (int step = 0; step < 2; step++) {
        int v = 32 * step + lane;
        float most = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[step][i] = rounded(x[step][i]);
            most = fmaxf(most, fabsf(x[step][i]));
        }
        unsigned byte = scale_byte(most_of<8>(most));
        if (v < NOPE / 8) {
            reinterpret_cast<uint2 *>(to)[v] = e4m3_of(x[step], inverse_power(byte));
            if (v % 8 == 0) footer[v / 8] = static_cast<char>(byte);
        } else {
            rotate(x[step], table, v - NOPE / 8);
            reinterpret_cast<uint4 *>(to + NOPE)[v - NOPE / 8] = round8(x[step]);
        }
    }
    if (lane == 0) footer[NOPE / 64] = 0;
}

/* Eight elements each in lanes 0 to 15: the Hadamard transform of 128, rounded to bf16. */
__device__ __forceinline__ void hadamard(float x[8], int lane) {
#pragma unroll
    for (int stride = 1; stride < 8; stride *= 2)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & stride)) {
                float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float other = __shfl_xor_sync(ALL, x[i], distance);
            x[i] = lane & distance ? other - x[i] : x[i] + other;
        }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = rounded(x[i] * 0.08838834764831845f);
}
