/*
 * swa_write in CUDA C, for comparison: the same function, bit for bit, as the kernel that kvforge
 * builds for a layer type in ring mode with the row format fp8_token and bf16 latents (see
 * docs/kernels.md). One warp a token, 16 bytes a load, the row in registers.
 *
 * Two forms. The usual one takes its conversions from cuda_bf16.h and cuda_fp8.h. With NO_HEADERS
 * they are inline PTX, which spares the compiler some ten thousand lines.
 *
 * Given by -D: HEAD_DIM, ROPE_DIM, RING, NORM_EPS, ROUND_BEFORE_ROPE. Compile with -fmad=false:
 * every product and sum must round by itself.
 */
#ifndef NO_HEADERS
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#endif

#define TOKENS   4 /* a block */
#define NOPE_DIM (HEAD_DIM - ROPE_DIM)
#define VECTORS  (HEAD_DIM / 8)
#define STEPS    ((VECTORS + 31) / 32)
#define NOPE     (NOPE_DIM / 8) /* vectors of the nope part; the rotated ones follow */
#define ALL      0xffffffffu

static_assert(HEAD_DIM % 8 == 0 && NOPE_DIM % 16 == 0 && ROPE_DIM % 8 == 0, "whole vectors");

/* ---- conversions ---- */

#ifndef NO_HEADERS

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

__device__ __forceinline__ unsigned e4m3_pair(float low, float high) {
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

#else

__device__ __forceinline__ float2 widen(unsigned pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

__device__ __forceinline__ unsigned round_pair(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ __forceinline__ unsigned e4m3_pair(float low, float high) {
    unsigned short bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
    return bits;
}

#endif

/* ---- the row: vector v of eight elements belongs to lane v % 32 and step v / 32 ---- */

__device__ __forceinline__ void load_row(float x[STEPS][8], const uint4 *latent, unsigned lane) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        unsigned v = min(32 * step + lane, VECTORS - 1);
        uint4 loaded = __ldg(latent + v);
        unsigned words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 pair = widen(words[i]);
            x[step][2 * i] = pair.x;
            x[step][2 * i + 1] = pair.y;
        }
    }
}

__device__ __forceinline__ void normalise(float x[STEPS][8], const float4 *weight, unsigned lane) {
    float sum = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        if (32 * step + lane < VECTORS)
#pragma unroll
            for (int i = 0; i < 8; i++) sum += x[step][i] * x[step][i];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(ALL, sum, distance);
    float scale = 1.0f / sqrtf(sum / HEAD_DIM + NORM_EPS);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        unsigned v = min(32 * step + lane, VECTORS - 1);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 w = __ldg(weight + 2 * v + half);
            float *y = &x[step][4 * half];
            y[0] = y[0] * scale * w.x;
            y[1] = y[1] * scale * w.y;
            y[2] = y[2] * scale * w.z;
            y[3] = y[3] * scale * w.w;
        }
    }
}

/* Quantise the nope part, given as bf16 pairs: one scale for the whole row. */
__device__ __forceinline__ void store_nope(const unsigned bf16[STEPS][4], uint2 *codes,
                                           float *inverse, unsigned lane) {
    float most = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        if (32 * step + lane < NOPE)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 pair = widen(bf16[step][i]);
                most = fmaxf(fmaxf(most, fabsf(pair.x)), fabsf(pair.y));
            }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(ALL, most, distance));
    most = fminf(most, 3.402823466e38f);
    float scale = most == 0 ? 1.0f : fmaxf(most / 448.0f, 1.175494351e-38f);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        unsigned v = 32 * step + lane, pairs[4];
        if (v >= NOPE) break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 pair = widen(bf16[step][i]);
            pairs[i] = e4m3_pair(pair.x / scale, pair.y / scale);
        }
        codes[v] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
    }
    if (lane == 0) *inverse = scale;
}

/* Rotate one vector of the rotated part: cosines and sines of its four pairs. */
__device__ __forceinline__ uint4 rotate(const float y[8], float4 cosines, float4 sines) {
    float c[4] = {cosines.x, cosines.y, cosines.z, cosines.w};
    float s[4] = {sines.x, sines.y, sines.z, sines.w};
    unsigned out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float a = y[2 * i], b = y[2 * i + 1];
        out[i] = round_pair(a * c[i] - b * s[i], a * s[i] + b * c[i]);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

__device__ __forceinline__ void store_rotated(const float y[STEPS][8], const unsigned bf16[STEPS][4],
                                              const float4 *table, uint4 *row, unsigned lane) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        unsigned v = 32 * step + lane;
        if (v < NOPE || v >= VECTORS) continue;
        v -= NOPE;
        float from[8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 rounded = widen(bf16[step][i]);
            from[2 * i] = ROUND_BEFORE_ROPE ? rounded.x : y[step][2 * i];
            from[2 * i + 1] = ROUND_BEFORE_ROPE ? rounded.y : y[step][2 * i + 1];
        }
        row[v] = rotate(from, __ldg(table + v), __ldg(table + ROPE_DIM / 8 + v));
    }
}

/* ---- the kernel: parameters as in the manifest ---- */

template <typename T> __device__ __forceinline__ T *at(void *base, unsigned long long bytes) {
    return reinterpret_cast<T *>(static_cast<char *>(base) + bytes);
}

extern "C" __global__ void __launch_bounds__(32 * TOKENS)
    swa_write(unsigned tokens, unsigned requests, unsigned slots, unsigned positions,
              const void *latent, unsigned long long latent_stride, const float4 *norm_weight,
              const float4 *rope, const int *batch_id, const int *position, const int *cu_tokens,
              const int *state_slot, void *fp8, unsigned long long fp8_stride, void *rotated,
              unsigned long long rotated_stride, void *inv, unsigned long long inv_stride,
              void *pos, unsigned long long pos_stride, void *head,
              unsigned long long head_stride) {
    unsigned token = blockIdx.x * TOKENS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (token >= tokens) return;
    /* Unsigned comparisons: -1, the padding, is out of every range. */
    unsigned request = batch_id[token], p = position[token];
    if (request >= requests || p >= positions) return;
    unsigned slot = state_slot[request];
    int last = cu_tokens[request + 1];
    if (slot >= slots || static_cast<int>(token) + RING < last) return;
    unsigned row = p % RING;

    float x[STEPS][8];
    unsigned bf16[STEPS][4];
    load_row(x, reinterpret_cast<const uint4 *>(static_cast<const char *>(latent) +
                                                token * latent_stride), lane);
    normalise(x, norm_weight, lane);
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) bf16[step][i] = round_pair(x[step][2 * i], x[step][2 * i + 1]);

    store_nope(bf16, at<uint2>(fp8, slot * fp8_stride + row * NOPE_DIM),
               at<float>(inv, slot * inv_stride + row * 4), lane);
    store_rotated(x, bf16, rope + static_cast<unsigned long long>(p) * (ROPE_DIM / 4),
                  at<uint4>(rotated, slot * rotated_stride + row * ROPE_DIM * 2), lane);
    if (lane == 0) {
        at<int>(pos, slot * pos_stride)[row] = static_cast<int>(p);
        if (static_cast<int>(token) + 1 == last)
            *at<int>(head, slot * head_stride) = static_cast<int>((p + 1) % RING);
    }
}
