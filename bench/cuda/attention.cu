/*
 * The kernels that multiply, in CUDA C: indexer_scores, attn, attn_combine. Plain fp32 on the CUDA cores, as one
 * would write them before the tensor cores: keys as bf16 or fp32 in shared memory, products in registers.
 */
#include "twin.cuh"

/* ---- 64 heads by 64 entries a block, four by four a thread, 32 dims at a time ---- */

KERNEL __launch_bounds__(256) indexer_scores(PARAMS(csa_indexer_scores)) {
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

/* ---- flash attention: 16 heads a block, 16 rows a tile; thread (head, row) scores, then owns a head's dims ---- */

constexpr int SPLIT = 512, PAD = 8; /* split_rows; elements, against bank conflicts */

KERNEL __launch_bounds__(256) attn(PARAMS(csa_attn)) {
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
            unsigned n = first + r;
            int number = n < end ? list[n] : -1;
            int rows = n < window ? BLOCK : CSA(K);
            const char *page = number < 0     ? nullptr
                               : n < window ? at<char>(p.swa_rows, number / rows * p.swa_rows_stride)
                                            : at<char>(p.kv_rows, number / rows * p.kv_rows_stride);
            for (unsigned v = thread % 32; v < DIM / 8; v += 32) {
                uint4 value = make_uint4(0, 0, 0, 0);
                if (page && v < NOPE / 8) {
                    uint2 codes = reinterpret_cast<const uint2 *>(page + number % rows * ROW)[v];
                    unsigned byte = static_cast<unsigned char>(page[rows * ROW + number % rows * FOOTER + v / 8]);
                    float scale = power(byte);
                    float2 a = of_e4m3(codes.x & 0xffff), b = of_e4m3(codes.x >> 16);
                    float2 c = of_e4m3(codes.y & 0xffff), d = of_e4m3(codes.y >> 16);
                    value = make_uint4(round_pair(a.x * scale, a.y * scale), round_pair(b.x * scale, b.y * scale),
                                       round_pair(c.x * scale, c.y * scale), round_pair(d.x * scale, d.y * scale));
                } else if (page) {
                    value = reinterpret_cast<const uint4 *>(page + number % rows * ROW + NOPE)[v - NOPE / 8];
                }
                *reinterpret_cast<uint4 *>(&tile[r][4 * v]) = value;
            }
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
