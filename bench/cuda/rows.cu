/* The kernels that write and move rows, in CUDA C: swa_write, workspace_fill, tail_append, compress, state_reset,
 * rows_copy. */
#include "twin.cuh"

/* ---- a warp a token ---- */

KERNEL __launch_bounds__(128) swa_write(PARAMS(csa_swa_write)) {
    unsigned token = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (token >= p.tokens) return;
    /* Unsigned comparisons: -1, the padding, is out of every range. */
    unsigned request = at<int>(p.batch_id)[token], position = at<int>(p.position)[token];
    if (request >= p.requests || position >= p.positions) return;
    if (static_cast<int>(position) < at<int>(p.write_from)[request] || position / BLOCK >= p.table_stride) return;
    unsigned page = at<int>(p.window_table)[request * p.table_stride + position / BLOCK];
    if (page >= p.pages) return;
    float x[2][8];
#pragma unroll
    for (int step = 0; step < 2; step++)
        widen8(at<uint4>(p.latent, token * p.latent_stride)[32 * step + lane], x[step]);
    normalise<2>(x, DIM, at<float4>(p.norm_weight), lane);
    store_latent(x, at<char>(p.swa_rows, page * p.swa_rows_stride), BLOCK, position % BLOCK,
                 at<float4>(p.rope, uint64_t(position) * ROPE * 4), lane);
}

/* ---- a warp a row ---- */

KERNEL __launch_bounds__(128) workspace_fill(PARAMS(csa_workspace_fill)) {
    unsigned request = blockIdx.x, i = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned first = at<int>(p.cu_tokens)[request], end = at<int>(p.cu_tokens)[request + 1];
    if (i >= WINDOW - 1 || first >= end || end > p.tokens) return;
    int position = at<int>(p.position)[first] - (WINDOW - 1) + static_cast<int>(i);
    if (position < 0 || position / BLOCK >= p.table_stride) return;
    unsigned page = at<int>(p.window_table)[request * p.table_stride + position / BLOCK];
    if (page >= p.pages) return;
    unsigned to = first + request * (WINDOW - 1) + i;
    const char *from_page = at<char>(p.swa_rows, page * p.swa_rows_stride);
    char *to_page = at<char>(p.ws_swa_rows, to / BLOCK * p.ws_swa_rows_stride);
    const uint4 *from = reinterpret_cast<const uint4 *>(from_page + position % BLOCK * ROW);
    uint4 *row = reinterpret_cast<uint4 *>(to_page + to % BLOCK * ROW);
    for (unsigned v = lane; v < ROW / 16; v += 32) row[v] = from[v];
    if (lane == 0)
        reinterpret_cast<uint2 *>(to_page + BLOCK * ROW)[to % BLOCK] =
            reinterpret_cast<const uint2 *>(from_page + BLOCK * ROW)[position % BLOCK];
}

/* ---- four columns a thread ---- */

/* Where a compressor's rows are: streams a (the token's own group) and b (the next one). */
struct tails {
    kvf_address k[2], z[2];
    uint64_t k_stride[2], z_stride[2];

    __device__ __forceinline__ float *row(bool b, bool scores, uint64_t slot) const {
        if (scores) return b ? at<float>(z[1], slot * z_stride[1]) : at<float>(z[0], slot * z_stride[0]);
        return b ? at<float>(k[1], slot * k_stride[1]) : at<float>(k[0], slot * k_stride[0]);
    }
};

#define ONE(prefix)    {{p.prefix##tail_ka}, {p.prefix##tail_za}, {p.prefix##tail_ka_stride}, {p.prefix##tail_za_stride}}
#define TWO(prefix)                                                                                                     \
    {{p.prefix##tail_ka, p.prefix##tail_kb},                                                                            \
     {p.prefix##tail_za, p.prefix##tail_zb},                                                                            \
     {p.prefix##tail_ka_stride, p.prefix##tail_kb_stride},                                                              \
     {p.prefix##tail_za_stride, p.prefix##tail_zb_stride}}

__device__ __forceinline__ void load4(const uint2 *from, float x[4]) {
    float2 low = widen(from->x), high = widen(from->y);
    x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
}

__device__ __forceinline__ void load4(const float4 *from, float x[4]) {
    x[0] = from->x, x[1] = from->y, x[2] = from->z, x[3] = from->w;
}

__device__ __forceinline__ void store4(float *to, const float x[4]) {
    *reinterpret_cast<float4 *>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

template <int WIDTH, int STREAMS, int RATIO, typename P>
__device__ __forceinline__ void append(const P &p, const tails &tail, kvf_address length, uint64_t length_stride) {
    constexpr int RING = STREAMS * RATIO, COLUMNS = STREAMS * WIDTH;
    unsigned token = blockIdx.x, column = 4 * threadIdx.x;
    unsigned request = at<int>(p.batch_id)[token];
    int position = at<int>(p.position)[token];
    if (request >= p.requests || position < 0) return;
    unsigned slot = at<int>(p.state_slot)[request];
    int last = at<int>(p.cu_tokens)[request + 1];
    if (slot >= p.slots || static_cast<int>(token) < last - RING) return;
    float k[4], z[4], bias[4];
    load4(at<uint2>(p.kv, token * p.kv_stride) + threadIdx.x, k);
    load4(at<uint2>(p.score, token * p.score_stride) + threadIdx.x, z);
    load4(at<float4>(p.ape, 4 * (position % RATIO * COLUMNS + column)), bias);
#pragma unroll
    for (int i = 0; i < 4; i++) z[i] += bias[i];
    bool b = STREAMS == 2 && column < WIDTH;
    int row = position % RING * WIDTH + column % WIDTH;
    store4(tail.row(b, false, slot) + row, k);
    store4(tail.row(b, true, slot) + row, z);
    if (threadIdx.x == 0 && static_cast<int>(token) + 1 == last)
        *at<int>(length, slot * length_stride) = (position + 1) % RATIO;
}

KERNEL __launch_bounds__(256) csa_tail_append(PARAMS(csa_tail_append)) {
    append<DIM, 2, CSA(RATIO)>(p, TWO(), p.tail_len, p.tail_len_stride);
}

KERNEL __launch_bounds__(64) index_tail_append(PARAMS(csa_index_tail_append)) {
    append<CSA(INDEXER_DIM), 2, CSA(RATIO)>(p, TWO(idx_), p.idx_tail_len, p.idx_tail_len_stride);
}

KERNEL __launch_bounds__(128) hca_tail_append(PARAMS(hca_tail_append)) {
    append<DIM, 1, HCA(RATIO)>(p, ONE(), p.tail_len, p.tail_len_stride);
}

/* ---- a block a token; four channels a thread ---- */

template <int WIDTH, int STREAMS, int RATIO, typename P> struct group {
    const P &p;
    const tails &tail;
    int token, first, position; /* the launch's first token of this request */
    uint64_t slot;

    /* Four values of row q, from kv or score of this launch or from the tails. */
    __device__ __forceinline__ void load(int q, bool scores, float x[4]) const {
        constexpr int RING = STREAMS * RATIO, ROWS = STREAMS * RATIO, COLUMNS = STREAMS * WIDTH;
        int s = position - ROWS + 1 + q, from = token - (position - s);
        bool b = STREAMS == 2 && q < RATIO;
        int column = (STREAMS == 2 && !b ? WIDTH : 0) + 4 * threadIdx.x;
        if (from >= first) {
            load4(at<uint2>(scores ? p.score : p.kv, from * (scores ? p.score_stride : p.kv_stride) + 2 * column), x);
            if (!scores) return;
            float bias[4];
            load4(at<float4>(p.ape, 4 * (s % RATIO * COLUMNS + column)), bias);
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] += bias[i];
        } else {
            const float *row = tail.row(b, scores, slot) + s % RING * WIDTH;
            load4(reinterpret_cast<const float4 *>(row) + threadIdx.x, x);
        }
    }
};

/* The pooled row in `pooled`; returns its page or null. */
template <int WIDTH, int STREAMS, int RATIO, typename P>
__device__ __forceinline__ char *pool(const P &p, const tails &tail, kvf_address rows, uint64_t stride, float *pooled,
                                      int *position) {
    unsigned token = blockIdx.x, request = at<int>(p.batch_id)[token];
    *position = at<int>(p.position)[token];
    if (request >= p.requests || *position < 0 || (*position + 1) % RATIO) return nullptr;
    unsigned slot = at<int>(p.state_slot)[request], column = *position / BLOCK;
    if (*position < at<int>(p.write_from)[request] || slot >= p.slots || column >= p.table_stride) return nullptr;
    unsigned page = at<int>(p.block_table)[request * p.table_stride + column];
    if (page >= p.pages) return nullptr;
    group<WIDTH, STREAMS, RATIO, P> g = {
        p, tail, static_cast<int>(token), at<int>(p.cu_tokens)[request], *position, slot};
    constexpr int ROWS = STREAMS * RATIO;
    int from = max(0, ROWS - 1 - *position);
    float x[4], v[4], most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {}, acc[4] = {};
    for (int q = from; q < ROWS; q++) {
        g.load(q, true, x);
#pragma unroll
        for (int i = 0; i < 4; i++) most[i] = fmaxf(most[i], x[i]);
    }
    for (int q = from; q < ROWS; q++) {
        g.load(q, true, x);
        g.load(q, false, v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float weight = exp2f((x[i] - most[i]) * LOG2E);
            sum[i] += weight;
            acc[i] += weight * v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] = rounded(acc[i] / sum[i]);
    store4(pooled + 4 * threadIdx.x, acc);
    return at<char>(rows, page * stride);
}

template <int STREAMS, int RATIO, typename P> __device__ __forceinline__ void compress(const P &p, const tails &tail) {
    __shared__ __align__(16) float pooled[DIM];
    int position, lane = threadIdx.x;
    char *page = pool<DIM, STREAMS, RATIO>(p, tail, p.kv_rows, p.kv_rows_stride, pooled, &position);
    __syncthreads();
    if (!page || lane >= 32) return;
    float x[2][8];
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            load4(reinterpret_cast<float4 *>(pooled) + 2 * (32 * step + lane) + half, x[step] + 4 * half);
    normalise<2>(x, DIM, at<float4>(p.norm_weight), lane);
    store_latent(x, page, BLOCK / RATIO, position % BLOCK / RATIO,
                 at<float4>(p.rope, uint64_t(position / RATIO * RATIO) * ROPE * 4), lane);
}

KERNEL __launch_bounds__(128) csa_compress(PARAMS(csa_compress)) { compress<2, CSA(RATIO)>(p, TWO()); }
KERNEL __launch_bounds__(128) hca_compress(PARAMS(hca_compress)) { compress<1, HCA(RATIO)>(p, ONE()); }

KERNEL __launch_bounds__(32) index_compress(PARAMS(csa_index_compress)) {
    constexpr int WIDTH = CSA(INDEXER_DIM), RATIO = CSA(RATIO), ROWS = BLOCK / RATIO;
    __shared__ __align__(16) float pooled[WIDTH];
    int position, lane = threadIdx.x;
    tails tail = TWO(idx_);
    char *page = pool<WIDTH, 2, RATIO>(p, tail, p.index_rows, p.index_rows_stride, pooled, &position);
    __syncthreads();
    if (!page) return;
    float x[1][8] = {};
    if (lane < WIDTH / 8)
#pragma unroll
        for (int half = 0; half < 2; half++) load4(reinterpret_cast<float4 *>(pooled) + 2 * lane + half, x[0] + 4 * half);
    normalise<1>(x, WIDTH, at<float4>(p.norm_weight), lane);
#pragma unroll
    for (int i = 0; i < 8; i++) x[0][i] = rounded(x[0][i]);
    if (lane >= 8 && lane < 16) rotate(x[0], at<float4>(p.rope, uint64_t(position / RATIO * RATIO) * ROPE * 4), lane - 8);
#pragma unroll
    for (int i = 0; i < 8; i++) x[0][i] = rounded(x[0][i]);
    hadamard(x[0], lane);
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(x[0][i]));
    unsigned byte = scale_byte(most_of<32>(most)), row = position % BLOCK / RATIO;
    if (lane < WIDTH / 8) reinterpret_cast<uint2 *>(page + row * WIDTH)[lane] = e4m3_of(x[0], inverse_power(byte));
    if (lane == 0) reinterpret_cast<float *>(page + ROWS * WIDTH)[row] = power(byte);
}

/* ---- lengths and pages ---- */

KERNEL state_reset(PARAMS(csa_state_reset)) {
    unsigned slot = at<int>(p.slot_list)[blockIdx.x];
    if (slot >= p.slots || threadIdx.x) return;
    *at<int>(p.tail_len, blockIdx.y * p.tail_len_layer_stride + slot * p.tail_len_stride) = 0;
    *at<int>(p.idx_tail_len, blockIdx.y * p.idx_tail_len_layer_stride + slot * p.idx_tail_len_stride) = 0;
}

KERNEL __launch_bounds__(256) rows_copy(PARAMS(common_rows_copy)) {
    int from = at<int>(p.src_ids)[blockIdx.x], to = at<int>(p.dst_ids)[blockIdx.x];
    if (from < 0 || to < 0) return;
    const uint4 *source = at<uint4>(p.src, from * p.src_stride);
    uint4 *target = at<uint4>(p.dst, to * p.dst_stride);
    for (uint64_t v = blockIdx.y * 1024 + threadIdx.x, end = min(v + 1024, p.bytes / 16); v < end; v += 256)
        target[v] = source[v];
}
