/* The kernels that make lists, in CUDA C: row_lists, translate_pack, indexer_topk. A block a token. */
#include "twin.cuh"

__device__ __forceinline__ int row_number(unsigned page, unsigned pages, int rows, int row) {
    return page < pages ? static_cast<int>(page) * rows + row : -1;
}

/* The window's rows; returns their number, 0 for padding. */
template <typename P> __device__ __forceinline__ unsigned list_window(const P &p, unsigned request, int position) {
    unsigned n = min(min(position + 1, WINDOW), p.list_stride);
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        unsigned at_position = position - n + 1 + i, column = at_position / BLOCK;
        unsigned page = column < p.table_stride ? at<int>(p.window_table)[request * p.table_stride + column] : ALL;
        at<int>(p.rows)[uint64_t(blockIdx.x) * p.list_stride + i] =
            row_number(page, p.window_pages, BLOCK, at_position % BLOCK);
    }
    return n;
}

KERNEL csa_row_lists(PARAMS(csa_row_lists)) {
    unsigned token = blockIdx.x, request = at<int>(p.batch_id)[token];
    int position = at<int>(p.position)[token];
    bool padding = request >= p.requests || position < 0;
    unsigned n = padding ? 0 : list_window(p, request, position);
    if (threadIdx.x) return;
    at<int>(p.window_count)[token] = n;
    if (padding) at<int>(p.entry_count)[token] = 0;
}

KERNEL hca_row_lists(PARAMS(hca_row_lists)) {
    constexpr int K = BLOCK / HCA(RATIO);
    unsigned token = blockIdx.x, request = at<int>(p.batch_id)[token];
    int position = at<int>(p.position)[token];
    bool padding = request >= p.requests || position < 0;
    unsigned n = padding ? 0 : list_window(p, request, position);
    unsigned entries = padding ? 0 : min((position + 1) / HCA(RATIO), p.list_stride - n);
    for (unsigned j = threadIdx.x; j < entries; j += blockDim.x) {
        unsigned page = j / K < p.table_stride ? at<int>(p.block_table)[request * p.table_stride + j / K] : ALL;
        at<int>(p.rows)[uint64_t(token) * p.list_stride + n + j] = row_number(page, p.block_pages, K, j % K);
    }
    if (threadIdx.x) return;
    at<int>(p.window_count)[token] = n;
    at<int>(p.entry_count)[token] = entries;
}

KERNEL translate_pack(PARAMS(csa_translate_pack)) {
    constexpr int K = CSA(K);
    unsigned token = blockIdx.x, request = at<int>(p.batch_id)[token];
    if (request >= p.requests || at<int>(p.position)[token] < 0) return;
    unsigned window = at<int>(p.window_count)[token];
    unsigned count = min(static_cast<unsigned>(at<int>(p.topk_count)[token]), p.list_stride - window);
    for (unsigned j = threadIdx.x; j < count; j += blockDim.x) {
        unsigned entry = at<int>(p.topk)[uint64_t(token) * p.topk_stride + j], column = entry / K;
        unsigned page = column < p.table_stride ? at<int>(p.block_table)[request * p.table_stride + column] : ALL;
        at<int>(p.rows)[uint64_t(token) * p.list_stride + window + j] = row_number(page, p.block_pages, K, entry % K);
    }
    if (threadIdx.x == 0) at<int>(p.entry_count)[token] = count;
}

/* ---- the k best: a radix select by histograms, then the chosen in order ---- */

constexpr int THREADS = 256;

__device__ __forceinline__ unsigned key_of(float score) {
    if (score != score) return 0;
    unsigned bits = __float_as_uint(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* How many threads before this one have the flag set; `total`: how many in all. */
__device__ __forceinline__ unsigned count_before(bool flag, unsigned *total) {
    __shared__ unsigned warps[THREADS / 32];
    unsigned ballot = __ballot_sync(ALL, flag), warp = threadIdx.x / 32, before = 0;
    if (threadIdx.x % 32 == 0) warps[warp] = __popc(ballot);
    __syncthreads();
    *total = 0;
    for (unsigned w = 0; w < THREADS / 32; w++) {
        before += w < warp ? warps[w] : 0;
        *total += warps[w];
    }
    __syncthreads();
    return before + __popc(ballot & ((1u << threadIdx.x % 32) - 1));
}

KERNEL __launch_bounds__(THREADS) indexer_topk(PARAMS(csa_indexer_topk)) {
    __shared__ unsigned histogram[256], prefix, wanted;
    unsigned token = blockIdx.x, thread = threadIdx.x;
    int position = at<int>(p.position)[token];
    unsigned n = position < 0 ? 0 : min((position + 1u) / CSA(RATIO), p.scores_stride);
    unsigned count = min(min(n, CSA(INDEXER_TOPK)), p.topk_stride);
    const float *scores = at<float>(p.scores) + uint64_t(token) * p.scores_stride;
    if (thread == 0) {
        at<int>(p.topk_count)[token] = count;
        prefix = 0;
        wanted = count;
    }
    if (!count) return;
    for (int shift = 24; shift >= 0; shift -= 8) {
        histogram[thread] = 0;
        __syncthreads();
        for (unsigned i = thread; i < n; i += THREADS) {
            unsigned key = key_of(scores[i]);
            if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8))
                atomicAdd(&histogram[key >> shift & 255], 1);
        }
        __syncthreads();
        if (thread == 0) {
            int bin = 255;
            while (histogram[bin] < wanted) wanted -= histogram[bin--];
            prefix |= static_cast<unsigned>(bin) << shift;
        }
        __syncthreads();
    }
    unsigned taken = 0, tied = 0;
    for (unsigned tile = 0; tile < n; tile += THREADS) {
        unsigned i = tile + thread, ties, all;
        unsigned key = i < n ? key_of(scores[i]) : 0;
        bool tie = i < n && key == prefix;
        unsigned ties_before = count_before(tie, &ties);
        bool chosen = i < n && (key > prefix || (tie && tied + ties_before < wanted));
        unsigned before = count_before(chosen, &all);
        if (chosen) at<int>(p.topk)[uint64_t(token) * p.topk_stride + taken + before] = i;
        taken += all;
        tied += ties;
    }
}
