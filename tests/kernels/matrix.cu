/* A tiled product with mma, and flash attention with cp.async and ldmatrix. nvcc: -arch=sm_80 */
#include <stdint.h>

static __device__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ void load_matrix(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ void load_matrix_transposed(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ void multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ void copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

static __device__ void copies_done(void) {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

/* C[m][n] = A[m][k] B[n][k]; a block of 4 warps makes 64 by 32; tiles of 32 in k. */
extern "C" __global__ void gemm(const uint16_t *a, const uint16_t *b, float *c, int n, int k) {
    __shared__ __align__(16) uint16_t sa[64][40], sb[32][40];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int m0 = blockIdx.y * 64, n0 = blockIdx.x * 32;
    float d[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 32) {
        for (int e = threadIdx.x; e < 64 * 4; e += 128)
            copy16(shared_address(&sa[e / 4][e % 4 * 8]), a + (m0 + e / 4) * k + k0 + e % 4 * 8);
        for (int e = threadIdx.x; e < 32 * 4; e += 128)
            copy16(shared_address(&sb[e / 4][e % 4 * 8]), b + (n0 + e / 4) * k + k0 + e % 4 * 8);
        copies_done();
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            uint32_t ra[4];
            load_matrix(ra, shared_address(&sa[warp * 16 + lane % 16][kk + lane / 16 * 8]));
            for (int j = 0; j < 32; j += 16) {
                uint32_t rb[4];
                load_matrix(rb, shared_address(&sb[j + lane % 8 + lane / 16 * 8]
                                                  [kk + lane / 8 % 2 * 8]));
                multiply(d[j / 8], ra, rb[0], rb[1]);
                multiply(d[j / 8 + 1], ra, rb[2], rb[3]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            int row = m0 + warp * 16 + lane / 4 + (i >= 2 ? 8 : 0);
            c[row * n + n0 + j * 8 + lane % 4 * 2 + (i & 1)] = d[j][i];
        }
}

static __device__ uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* One warp: 16 queries of 64, keys and values of 64 in tiles of 16, online softmax. */
extern "C" __global__ void flash_attention(const uint16_t *q, const uint16_t *k, const uint16_t *v,
                                           float *out, int keys, float scale) {
    __shared__ __align__(16) uint16_t sq[16][72], sk[2][16][72], sv[2][16][72];
    int lane = threadIdx.x;
    q += blockIdx.x * 16 * 64;
    out += blockIdx.x * 16 * 64;
    for (int e = lane; e < 16 * 8; e += 32) {
        copy16(shared_address(&sq[e / 8][e % 8 * 8]), q + e * 8);
        copy16(shared_address(&sk[0][e / 8][e % 8 * 8]), k + e * 8);
        copy16(shared_address(&sv[0][e / 8][e % 8 * 8]), v + e * 8);
    }
    asm volatile("cp.async.commit_group;");
    float o[8][4] = {}, m[2] = {-1e30f, -1e30f}, l[2] = {};
    for (int t = 0; t < keys / 16; t++) {
        int now = t & 1;
        if (t + 1 < keys / 16) {
            for (int e = lane; e < 16 * 8; e += 32) {
                copy16(shared_address(&sk[!now][e / 8][e % 8 * 8]), k + (t + 1) * 1024 + e * 8);
                copy16(shared_address(&sv[!now][e / 8][e % 8 * 8]), v + (t + 1) * 1024 + e * 8);
            }
            asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_all;" ::: "memory");
        }
        __syncwarp();
        float s[2][4] = {};
        for (int kk = 0; kk < 64; kk += 16) {
            uint32_t a[4], b[4];
            load_matrix(a, shared_address(&sq[lane % 16][kk + lane / 16 * 8]));
            load_matrix(b, shared_address(&sk[now][lane % 8 + lane / 16 * 8][kk + lane / 8 % 2 * 8]));
            multiply(s[0], a, b[0], b[1]);
            multiply(s[1], a, b[2], b[3]);
        }
        for (int r = 0; r < 2; r++) {
            float top = m[r];
            for (int j = 0; j < 2; j++)
                for (int h = 0; h < 2; h++) {
                    s[j][2 * r + h] *= scale;
                    top = fmaxf(top, s[j][2 * r + h]);
                }
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            float alpha = exp2f(m[r] - top), sum = 0;
            m[r] = top;
            for (int j = 0; j < 2; j++)
                for (int h = 0; h < 2; h++) {
                    s[j][2 * r + h] = exp2f(s[j][2 * r + h] - top);
                    sum += s[j][2 * r + h];
                }
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            l[r] = l[r] * alpha + sum;
            for (int j = 0; j < 8; j++)
                for (int h = 0; h < 2; h++) o[j][2 * r + h] *= alpha;
        }
        uint32_t p[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1]),
                         pack(s[1][2], s[1][3])};
        for (int j = 0; j < 8; j += 2) {
            uint32_t b[4];
            load_matrix_transposed(b, shared_address(&sv[now][lane % 16][j * 8 + lane / 16 * 8]));
            multiply(o[j], p, b[0], b[1]);
            multiply(o[j + 1], p, b[2], b[3]);
        }
        __syncwarp();
    }
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 4; i++)
            out[(lane / 4 + (i >= 2 ? 8 : 0)) * 64 + j * 8 + lane % 4 * 2 + (i & 1)] =
                o[j][i] / l[i >> 1];
}
