/* Scan, transpose and sort: shared memory, shuffles, barriers, divergence. */
extern "C" __global__ void scan_block(const int *in, int *out, int *sums) {
    __shared__ int part[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = in[i];
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += other;
    }
    if (lane == 31) part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int s = lane < blockDim.x / 32 ? part[lane] : 0;
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(~0u, s, d);
            if (lane >= d) s += other;
        }
        part[lane] = s;
    }
    __syncthreads();
    if (warp > 0) v += part[warp - 1];
    out[i] = v;
    if (threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = v;
}

/* The last block to finish adds up what the blocks left: threadfence and an atomic counter. */
extern "C" __global__ void sum_last_block(const int *in, int *part, unsigned *counter, int *total) {
    __shared__ bool last;
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(counter, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int t = 0;
        for (unsigned b = 0; b < gridDim.x; b++) t += ((volatile int *)part)[b];
        *total = t;
    }
}

extern "C" __global__ void transpose(const float *in, float *out, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) out[(y + k) * n + x] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void bitonic_sort(unsigned *data) {
    extern __shared__ unsigned s[];
    unsigned t = threadIdx.x, n = blockDim.x;
    s[t] = data[blockIdx.x * n + t];
    __syncthreads();
    for (unsigned k = 2; k <= n; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            unsigned other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                unsigned a = s[t], b = s[other];
                if ((a > b) == up) {
                    s[t] = b;
                    s[other] = a;
                }
            }
            __syncthreads();
        }
    data[blockIdx.x * n + t] = s[t];
}

/* Lanes of one warp compete for a lock: works only if lanes make progress independently. */
extern "C" __global__ void spin_lock(int *lock, int *count) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)count = *(volatile int *)count + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

/* Every block waits for the next one: works only if blocks that wait make room for others. */
extern "C" __global__ void wait_for_next(volatile int *flag, int *value) {
    int b = blockIdx.x, last = gridDim.x - 1, v = 1;
    if (b != last) {
        while (flag[b + 1] == 0) {
        }
        __threadfence();
        v = value[b + 1] * 2;
    }
    value[b] = v;
    __threadfence();
    flag[b] = 1;
}
