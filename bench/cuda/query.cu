/* The kernels on queries, in CUDA C: q_norm_rope, inverse_rope, indexer_query. */
#include "twin.cuh"

/* A warp a head. */
KERNEL __launch_bounds__(128) q_norm_rope(PARAMS(csa_q_norm_rope)) {
    unsigned token = blockIdx.x, head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned position = at<int>(p.position)[token];
    if (head >= p.heads || position >= p.positions) return;
    const uint4 *from = at<uint4>(p.q, token * p.q_stride + head * DIM * 2);
    uint4 *to = at<uint4>(p.out, token * p.out_stride + head * DIM * 2);
    float x[2][8];
#pragma unroll
    for (int step = 0; step < 2; step++) widen8(from[32 * step + lane], x[step]);
    normalise<2>(x, DIM, nullptr, lane);
#pragma unroll
    for (int step = 0; step < 2; step++) {
        int v = 32 * step + static_cast<int>(lane);
#pragma unroll
        for (int i = 0; i < 8; i++) x[step][i] = rounded(x[step][i]);
        if (v >= NOPE / 8) rotate(x[step], at<float4>(p.rope, uint64_t(position) * ROPE * 4), v - NOPE / 8);
        to[v] = round8(x[step]);
    }
}

/* Eight elements a thread: eight threads a head. */
KERNEL __launch_bounds__(256) inverse_rope(PARAMS(csa_inverse_rope)) {
    unsigned token = blockIdx.x, head = blockIdx.y * 32 + threadIdx.x / 8, v = threadIdx.x % 8;
    unsigned position = at<int>(p.position)[token];
    if (head >= p.heads || position >= p.positions) return;
    uint4 *at_v = at<uint4>(p.out, token * p.out_stride + (head * DIM + NOPE) * 2) + v;
    float x[8];
    widen8(*at_v, x);
    rotate(x, at<float4>(p.rope, uint64_t(position) * ROPE * 4), v, true);
    *at_v = round8(x);
}

/* A warp a head; its lower half holds the 128 elements. */
KERNEL __launch_bounds__(128) indexer_query(PARAMS(csa_indexer_query)) {
    constexpr int WIDTH = CSA(INDEXER_DIM), HEADS = CSA(INDEXER_HEADS);
    unsigned token = blockIdx.x, head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned position = at<int>(p.position)[token];
    if (position >= p.positions) return;
    float x[8] = {};
    if (lane < WIDTH / 8) widen8(at<uint4>(p.q, token * p.q_stride + head * WIDTH * 2)[lane], x);
    if (lane >= 8 && lane < 16) rotate(x, at<float4>(p.rope, uint64_t(position) * ROPE * 4), lane - 8);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = rounded(x[i]);
    hadamard(x, lane);
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(x[i]));
    unsigned byte = scale_byte(most_of<32>(most));
    uint2 codes = e4m3_of(x, inverse_power(byte));
    unsigned pairs[4] = {codes.x & 0xffff, codes.x >> 16, codes.y & 0xffff, codes.y >> 16};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 pair = of_e4m3(pairs[i]);
        x[2 * i] = pair.x * power(byte);
        x[2 * i + 1] = pair.y * power(byte);
    }
    uint64_t row = uint64_t(token) * HEADS + head;
    if (lane < WIDTH / 8) at<uint4>(p.q_out, row * WIDTH * 2)[lane] = round8(x);
    if (lane == 0)
        at<float>(p.w_out)[row] = at<float>(p.weights, token * p.weights_stride)[head] * 0.011048543456039805f;
}
