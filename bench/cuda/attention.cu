/*
 * The kernels that multiply, in CUDA C: indexer_scores, attn, attn_combine. Each of the first two twice: in plain fp32
 * on the CUDA cores, as one writes it first, and with mma.sync, as one writes it next.
 */
#include "twin.cuh"

/* ---- tensor cores: fragments of m16n8k16 from shared memory, by inline PTX ---- */

__device__ __forceinline__ unsigned shared_address(const void *at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

/* Sixteen rows by 16 columns of `from`, row major with `stride` elements a row. */
__device__ __forceinline__ void fragment_a(unsigned a[4], const __nv_bfloat16 *from, int stride, int lane) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(shared_address(from + lane % 16 * stride + lane / 16 * 8)));
}

/* The other factor: eight rows of 16 columns, to be multiplied by rows; or 16 rows of eight columns, as they are. */
__device__ __forceinline__ void fragment_rows(unsigned b[2], const __nv_bfloat16 *from, int stride, int lane) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(shared_address(from + lane % 8 * stride + lane / 8 % 2 * 8)));
}

__device__ __forceinline__ void fragment_columns(unsigned b[2], const __nv_bfloat16 *from, int stride, int lane) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(shared_address(from + lane % 16 * stride)));
}

__device__ __forceinline__ void multiply(float c[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* ---- 64 heads by 64 entries a block, four by four a thread, 32 dims at a time ---- */

KERNEL __launch_bounds__(256) indexer_scores_fp32(PARAMS(csa_indexer_scores)) {
    constexpr int WIDTH = CSA(INDEXER_DIM), HEADS = CSA(INDEXER_HEADS), K = CSA(K), TILE = 64, PART = 32;
    __shared__ float q[HEADS][PART + 1], keys[TILE][PART + 1], sums[HEADS / 4][TILE];
    unsigned token = blockIdx.x, request = at<int>(p.batch_id)[token], thread = threadIdx.x;
    int position = at<int>(p.position)[token];
    if (request >= p.requests || position < 0) return;
    unsigned visible = min((position + 1u) / CSA(RATIO), p.first + p.scores_stride);
    unsigned first = p.first + blockIdx.y * TILE;
    if (first >= visible) return;
    unsigned rows = thread / 16, columns = thread % 16;
    float acc[4][4] = {};
    for (int part = 0; part < WIDTH; part += PART) {
        /* A row is 32 elements: eight threads load four each. */
        for (unsigned i = thread; i < HEADS * 8; i += 256) {
            uint2 four = at<uint2>(p.q, ((uint64_t(token) * HEADS + i / 8) * WIDTH + part) * 2)[i % 8];
            float2 low = widen(four.x), high = widen(four.y);
            float *to = &q[i / 8][i % 8 * 4];
            to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
        }
        for (unsigned i = thread; i < TILE * 8; i += 256) {
            unsigned entry = first + i / 8, column = entry / K, page = ALL;
            float *to = &keys[i / 8][i % 8 * 4];
            if (entry < visible && column < p.table_stride)
                page = at<int>(p.block_table)[request * p.table_stride + column];
            to[0] = to[1] = to[2] = to[3] = 0;
            if (page >= p.pages) continue;
            const char *base = at<char>(p.index_rows, page * p.index_rows_stride);
            unsigned codes = reinterpret_cast<const unsigned *>(base + entry % K * WIDTH + part)[i % 8];
            float scale = reinterpret_cast<const float *>(base + K * WIDTH)[entry % K];
            float2 low = of_e4m3(codes & 0xffff), high = of_e4m3(codes >> 16);
            to[0] = low.x * scale, to[1] = low.y * scale, to[2] = high.x * scale, to[3] = high.y * scale;
        }
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < PART; d++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] += q[rows + 16 * i][d] * keys[columns + 16 * j][d];
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum += at<float>(p.w)[token * HEADS + rows + 16 * i] * fmaxf(acc[i][j], 0.0f);
        sums[rows][columns + 16 * j] = sum;
    }
    __syncthreads();
    unsigned entry = first + thread;
    if (thread >= TILE || entry >= visible) return;
    float score = 0;
    for (int i = 0; i < HEADS / 4; i++) score += sums[i][thread];
    unsigned column = entry / K;
    bool backed = column < p.table_stride &&
                  static_cast<unsigned>(at<int>(p.block_table)[request * p.table_stride + column]) < p.pages;
    at<float>(p.scores)[uint64_t(token) * p.scores_stride + entry - p.first] = backed ? score : -INFINITY;
}

/* ---- the same on tensor cores: a warp takes 16 heads and all 64 entries ---- */

KERNEL __launch_bounds__(128) indexer_scores_mma(PARAMS(csa_indexer_scores)) {
    constexpr int WIDTH = CSA(INDEXER_DIM), HEADS = CSA(INDEXER_HEADS), K = CSA(K), TILE = 64, STRIDE = WIDTH + 8;
    __shared__ __align__(16) __nv_bfloat16 q[HEADS * STRIDE], keys[TILE * STRIDE];
    __shared__ float sums[HEADS / 16][TILE];
    unsigned token = blockIdx.x, request = at<int>(p.batch_id)[token], thread = threadIdx.x;
    int position = at<int>(p.position)[token], warp = thread / 32, lane = thread % 32;
    if (request >= p.requests || position < 0) return;
    unsigned visible = min((position + 1u) / CSA(RATIO), p.first + p.scores_stride);
    unsigned first = p.first + blockIdx.y * TILE;
    if (first >= visible) return;
    for (unsigned i = thread; i < HEADS * WIDTH / 8; i += 128)
        *reinterpret_cast<uint4 *>(&q[i / (WIDTH / 8) * STRIDE + i % (WIDTH / 8) * 8]) =
            at<uint4>(p.q, uint64_t(token) * HEADS * WIDTH * 2)[i];
    for (unsigned i = thread; i < TILE * WIDTH / 8; i += 128) {
        unsigned entry = first + i / (WIDTH / 8), v = i % (WIDTH / 8), column = entry / K, page = ALL;
        if (entry < visible && column < p.table_stride)
            page = at<int>(p.block_table)[request * p.table_stride + column];
        uint4 value = make_uint4(0, 0, 0, 0);
        if (page < p.pages) {
            const char *base = at<char>(p.index_rows, page * p.index_rows_stride);
            uint2 codes = reinterpret_cast<const uint2 *>(base + entry % K * WIDTH)[v];
            float scale = reinterpret_cast<const float *>(base + K * WIDTH)[entry % K];
            float2 a = of_e4m3(codes.x & 0xffff), b = of_e4m3(codes.x >> 16);
            float2 c = of_e4m3(codes.y & 0xffff), d = of_e4m3(codes.y >> 16);
            value = make_uint4(round_pair(a.x * scale, a.y * scale), round_pair(b.x * scale, b.y * scale),
                               round_pair(c.x * scale, c.y * scale), round_pair(d.x * scale, d.y * scale));
        }
        *reinterpret_cast<uint4 *>(&keys[i / (WIDTH / 8) * STRIDE + v * 8]) = value;
    }
    __syncthreads();
    float acc[TILE / 8][4] = {};
    for (int k = 0; k < WIDTH; k += 16) {
        unsigned a[4], b[2];
        fragment_a(a, q + warp * 16 * STRIDE + k, STRIDE, lane);
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            fragment_rows(b, keys + j * 8 * STRIDE + k, STRIDE, lane);
            multiply(acc[j], a, b);
        }
    }
    const float *w = at<float>(p.w) + token * HEADS + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float sum = w[0] * fmaxf(acc[j][c], 0.0f) + w[8] * fmaxf(acc[j][2 + c], 0.0f);
            for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(ALL, sum, distance);
            sums[warp][j * 8 + lane % 4 * 2 + c] = sum;
        }
    __syncthreads();
    unsigned entry = first + thread, column = entry / K;
    if (thread >= TILE || entry >= visible) return;
    bool backed = column < p.table_stride &&
                  static_cast<unsigned>(at<int>(p.block_table)[request * p.table_stride + column]) < p.pages;
    float score = sums[0][thread] + sums[1][thread] + sums[2][thread] + sums[3][thread];
    at<float>(p.scores)[uint64_t(token) * p.scores_stride + entry - p.first] = backed ? score : -INFINITY;
}

/* ---- rows of a token's list ---- */

constexpr int SPLIT = 512, PAD = 8; /* split_rows; elements, against bank conflicts */

struct stored_row {
    const char *codes, *scales; /* null: there is no such row */
};

template <typename P>
__device__ __forceinline__ stored_row find_row(const P &p, const int *list, unsigned n, unsigned window, unsigned end) {
    int number = n < end ? list[n] : -1, rows = n < window ? BLOCK : CSA(K);
    if (number < 0) return {nullptr, nullptr};
    const char *page = n < window ? at<char>(p.swa_rows, number / rows * p.swa_rows_stride)
                                  : at<char>(p.kv_rows, number / rows * p.kv_rows_stride);
    return {page + number % rows * ROW, page + rows * ROW + number % rows * FOOTER};
}

/* Eight elements as bf16. */
__device__ __forceinline__ uint4 stored(stored_row row, unsigned v) {
    if (!row.codes) return make_uint4(0, 0, 0, 0);
    if (v >= NOPE / 8) return reinterpret_cast<const uint4 *>(row.codes + NOPE)[v - NOPE / 8];
    uint2 codes = reinterpret_cast<const uint2 *>(row.codes)[v];
    float scale = power(static_cast<unsigned char>(row.scales[v / 8]));
    float2 a = of_e4m3(codes.x & 0xffff), b = of_e4m3(codes.x >> 16);
    float2 c = of_e4m3(codes.y & 0xffff), d = of_e4m3(codes.y >> 16);
    return make_uint4(round_pair(a.x * scale, a.y * scale), round_pair(b.x * scale, b.y * scale),
                      round_pair(c.x * scale, c.y * scale), round_pair(d.x * scale, d.y * scale));
}

/* ---- flash attention: 16 heads a block, 16 rows a tile; thread (head, row) scores, then owns a head's dims ---- */

KERNEL __launch_bounds__(256) attn_fp32(PARAMS(csa_attn)) {
    constexpr int TILE = 16, HEADS = 16, WORDS = (DIM + PAD) / 2;
    __shared__ unsigned q[HEADS][WORDS], tile[TILE][WORDS];
    __shared__ float probability[HEADS][TILE + 1];
    unsigned token = blockIdx.x, split = blockIdx.y, thread = threadIdx.x, head = thread / 16, lane = thread % 16;
    unsigned window = at<int>(p.window_count)[token], length = window + at<int>(p.entry_count)[token];
    unsigned begin = split * SPLIT, end = min(length, begin + SPLIT);
    uint64_t part = (uint64_t(token) * p.splits + split) * p.heads + blockIdx.z * HEADS + head;
    const int *list = at<int>(p.rows) + uint64_t(token) * p.list_stride;
    const uint4 *queries = at<uint4>(p.q, token * p.q_stride) + blockIdx.z * HEADS * DIM / 8;
    for (unsigned i = thread; i < HEADS * DIM / 8; i += 256)
        *reinterpret_cast<uint4 *>(&q[i / (DIM / 8)][i % (DIM / 8) * 4]) = queries[i];
    float o[DIM / 16] = {}, most = -INFINITY, sum = 0;
    for (unsigned first = begin; first < end; first += TILE) {
        /* A warp takes two rows: eight elements a lane and step, as they are stored. */
        for (unsigned r = thread / 32; r < TILE; r += 8) {
            stored_row row = find_row(p, list, first + r, window, end);
            for (unsigned v = thread % 32; v < DIM / 8; v += 32)
                *reinterpret_cast<uint4 *>(&tile[r][4 * v]) = stored(row, v);
        }
        __syncthreads();
        float s = 0;
#pragma unroll 8
        for (int d = 0; d < DIM / 2; d++) {
            float2 a = widen(q[head][d]), b = widen(tile[lane][d]);
            s += a.x * b.x;
            s += a.y * b.y;
        }
        bool live = first + lane < end && list[first + lane] >= 0;
        s = live ? s * (p.scale * LOG2E) : -INFINITY;
        float top = fmaxf(most, most_of<16>(s)), base = top == -INFINITY ? 0 : top;
        float alpha = exp2f(most - base), weight = exp2f(s - base), total = weight;
#pragma unroll
        for (int distance = 8; distance > 0; distance /= 2) total += __shfl_xor_sync(ALL, total, distance);
        sum = sum * alpha + total;
        most = top;
        probability[head][lane] = weight;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++) o[i] *= alpha;
        for (int r = 0; r < TILE; r++) {
            float weight_of_row = probability[head][r];
#pragma unroll
            for (int i = 0; i < DIM / 32; i++) {
                float2 pair = widen(tile[r][16 * i + lane]);
                o[2 * i] += weight_of_row * pair.x;
                o[2 * i + 1] += weight_of_row * pair.y;
            }
        }
        __syncthreads();
    }
    if (lane == 0) {
        at<float>(p.part_m)[part] = most;
        at<float>(p.part_l)[part] = sum;
    }
    if (begin >= end) return;
    for (int i = 0; i < DIM / 32; i++)
        at<float2>(p.part_o, part * DIM * 4)[16 * i + lane] = make_float2(o[2 * i], o[2 * i + 1]);
}

/* ---- the same on tensor cores: 32 rows a tile; a warp scores eight of them, then owns a quarter of the dims ---- */

KERNEL __launch_bounds__(128) attn_mma(PARAMS(csa_attn)) {
    constexpr int TILE = 32, HEADS = 16, STRIDE = DIM + PAD, P_STRIDE = TILE + PAD, QUARTER = DIM / 4;
    extern __shared__ __align__(16) __nv_bfloat16 q[]; /* see twins.c for its size */
    __nv_bfloat16 *tile = q + HEADS * STRIDE, *weights = tile + TILE * STRIDE;
    __shared__ float maxima[HEADS][4], sums[HEADS][4];
    unsigned token = blockIdx.x, split = blockIdx.y, thread = threadIdx.x;
    int warp = thread / 32, lane = thread % 32, column = lane % 4 * 2;
    unsigned window = at<int>(p.window_count)[token], length = window + at<int>(p.entry_count)[token];
    unsigned begin = split * SPLIT, end = min(length, begin + SPLIT);
    uint64_t part = (uint64_t(token) * p.splits + split) * p.heads + blockIdx.z * HEADS;
    const int *list = at<int>(p.rows) + uint64_t(token) * p.list_stride;
    const uint4 *queries = at<uint4>(p.q, token * p.q_stride) + blockIdx.z * HEADS * DIM / 8;
    for (unsigned i = thread; i < HEADS * DIM / 8; i += 128)
        *reinterpret_cast<uint4 *>(&q[i / (DIM / 8) * STRIDE + i % (DIM / 8) * 8]) = queries[i];
    float o[QUARTER / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (unsigned first = begin; first < end; first += TILE) {
        for (int r = warp; r < TILE; r += 4) {
            stored_row row = find_row(p, list, first + r, window, end);
            for (int v = lane; v < DIM / 8; v += 32)
                *reinterpret_cast<uint4 *>(&tile[r * STRIDE + 8 * v]) = stored(row, v);
        }
        __syncthreads();
        float s[4] = {};
        unsigned a[4], b[2];
#pragma unroll 4
        for (int k = 0; k < DIM; k += 16) {
            fragment_a(a, q + k, STRIDE, lane);
            fragment_rows(b, tile + warp * 8 * STRIDE + k, STRIDE, lane);
            multiply(s, a, b);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned n = first + warp * 8 + column + i % 2;
            s[i] = n < end && list[n] >= 0 ? s[i] * (p.scale * LOG2E) : -INFINITY;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = fmaxf(s[2 * r], s[2 * r + 1]);
            top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));
            maxima[lane / 4 + 8 * r][warp] = fmaxf(top, __shfl_xor_sync(ALL, top, 2));
        }
        __syncthreads();
        float alpha[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int head = lane / 4 + 8 * r;
            float top = most[r];
            for (int w = 0; w < 4; w++) top = fmaxf(top, maxima[head][w]);
            float base = top == -INFINITY ? 0 : top;
            alpha[r] = exp2f(most[r] - base);
            most[r] = top;
            float low = exp2f(s[2 * r] - base), high = exp2f(s[2 * r + 1] - base), total = low + high;
            total += __shfl_xor_sync(ALL, total, 1);
            sums[head][warp] = total + __shfl_xor_sync(ALL, total, 2);
            *reinterpret_cast<unsigned *>(&weights[head * P_STRIDE + warp * 8 + column]) = round_pair(low, high);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float *of = sums[lane / 4 + 8 * r];
            sum[r] = sum[r] * alpha[r] + of[0] + of[1] + of[2] + of[3];
        }
#pragma unroll
        for (int j = 0; j < QUARTER / 8; j++) {
            o[j][0] *= alpha[0], o[j][1] *= alpha[0], o[j][2] *= alpha[1], o[j][3] *= alpha[1];
        }
        for (int k = 0; k < TILE; k += 16) {
            fragment_a(a, weights + k, P_STRIDE, lane);
#pragma unroll
            for (int j = 0; j < QUARTER / 8; j++) {
                fragment_columns(b, tile + k * STRIDE + warp * QUARTER + 8 * j, STRIDE, lane);
                multiply(o[j], a, b);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint64_t head = part + lane / 4 + 8 * r;
        if (warp == 0 && column == 0) {
            at<float>(p.part_m)[head] = most[r];
            at<float>(p.part_l)[head] = sum[r];
        }
        if (begin >= end) continue;
        float2 *to = at<float2>(p.part_o, (head * DIM + warp * QUARTER + column) * 4);
#pragma unroll
        for (int j = 0; j < QUARTER / 8; j++) to[4 * j] = make_float2(o[j][2 * r], o[j][2 * r + 1]);
    }
}

/* ---- a block a token and head, four dims a thread ---- */

KERNEL __launch_bounds__(128) attn_combine(PARAMS(csa_attn_combine)) {
    unsigned token = blockIdx.x, head = blockIdx.y, thread = threadIdx.x;
    uint64_t first = uint64_t(token) * p.splits * p.heads + head;
    const float *m = at<float>(p.part_m) + first, *l = at<float>(p.part_l) + first;
    float of_rows = -INFINITY, sink = at<float>(p.sink)[head] * LOG2E, sum = 0, rows_sum = 0, acc[4] = {};
    for (unsigned i = 0; i < p.splits; i++) of_rows = fmaxf(of_rows, m[i * p.heads]);
    float top = fmaxf(of_rows, sink);
    for (unsigned i = 0; i < p.splits; i++) {
        if (l[i * p.heads] == 0) continue;
        float factor = exp2f(m[i * p.heads] - top);
        sum += l[i * p.heads] * factor;
        rows_sum += l[i * p.heads] * exp2f(m[i * p.heads] - of_rows);
        float4 o = at<float4>(p.part_o, (first + i * p.heads) * DIM * 4)[thread];
        acc[0] += o.x * factor, acc[1] += o.y * factor, acc[2] += o.z * factor, acc[3] += o.w * factor;
    }
    float inverse = sum == 0 ? 0 : 1 / (sum + exp2f(sink - top));
    at<uint2>(p.out, token * p.out_stride + head * DIM * 2)[thread] =
        make_uint2(round_pair(acc[0] * inverse, acc[1] * inverse), round_pair(acc[2] * inverse, acc[3] * inverse));
    if (thread == 0)
        at<float>(p.lse)[uint64_t(token) * p.heads + head] = (of_rows + log2f(rows_sum)) / LOG2E;
}
