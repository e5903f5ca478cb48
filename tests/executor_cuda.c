/* CUDA C kernels compiled by nvcc: their results against plain C, in several orders, without
 * findings. */
#include <math.h>

#include "executor_oracle.h"
#include "executor_tools.h"

CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);

static uint16_t to_bf16(float x) {
    return (uint16_t)oracle_encode("bf16", x, 'n', false);
}

static float of_bf16(uint16_t h) {
    return (float)oracle_decode("bf16", h);
}

static float random_unit(void) {
    return (float)((int)(tools_random() % 2001) - 1000) / 1000.0f;
}

static void check_scan(CUmodule module) {
    enum { BLOCKS = 3, THREADS = 256, N = BLOCKS * THREADS };
    int in[N], want[N], sums[BLOCKS], got[N], got_sums[BLOCKS];
    for (int i = 0; i < N; i++) {
        in[i] = (int)(tools_random() % 100) - 50;
        want[i] = in[i] + (i % THREADS ? want[i - 1] : 0);
        sums[i / THREADS] = want[i];
    }
    CUdeviceptr a = tools_device(in, sizeof in), b = tools_device(NULL, sizeof in);
    CUdeviceptr s = tools_device(NULL, sizeof sums);
    void *params[] = {&a, &b, &s};
    is(tools_launch(tools_function(module, "scan_block"), BLOCKS, THREADS, 0, params), 0, "scan");
    cuMemcpyDtoH_v2(got, b, sizeof got);
    cuMemcpyDtoH_v2(got_sums, s, sizeof got_sums);
    same(got, want, sizeof want, "scan: every prefix");
    same(got_sums, sums, sizeof sums, "scan: every sum");
    cuMemFree_v2(a);
    cuMemFree_v2(b);
    cuMemFree_v2(s);
}

static void check_last_block(CUmodule module) {
    enum { BLOCKS = 9, THREADS = 64, N = BLOCKS * THREADS };
    int in[N], total = 0, got = 0;
    for (int i = 0; i < N; i++) total += in[i] = (int)(tools_random() % 1000);
    CUdeviceptr a = tools_device(in, sizeof in), part = tools_device(NULL, BLOCKS * 4);
    CUdeviceptr counter = tools_device(NULL, 4), out = tools_device(NULL, 4);
    cuMemsetD32_v2(counter, 0, 1);
    void *params[] = {&a, &part, &counter, &out};
    is(tools_launch(tools_function(module, "sum_last_block"), BLOCKS, THREADS, 0, params), 0,
       "the last block reads what others wrote, ordered by a fence and an atomic");
    cuMemcpyDtoH_v2(&got, out, 4);
    is(got, total, "and its total is right");
    cuMemFree_v2(a);
    cuMemFree_v2(part);
    cuMemFree_v2(counter);
    cuMemFree_v2(out);
}

static void check_progress(CUmodule module) {
    enum { BLOCKS = 4 };
    int count = 0, values[BLOCKS];
    CUdeviceptr lock = tools_device(NULL, 8), flags = tools_device(NULL, 4 * BLOCKS);
    CUdeviceptr value = tools_device(NULL, 4 * BLOCKS), counter = lock + 4;
    cuMemsetD32_v2(lock, 0, 2);
    cuMemsetD32_v2(flags, 0, BLOCKS);
    void *lock_params[] = {&lock, &counter};
    is(tools_launch(tools_function(module, "spin_lock"), 2, 48, 0, lock_params), 0,
       "lanes that compete for a lock all get it");
    cuMemcpyDtoH_v2(&count, counter, 4);
    is(count, 96, "and count under it");
    void *params[] = {&flags, &value};
    is(tools_launch(tools_function(module, "wait_for_next"), BLOCKS, 1, 0, params), 0,
       "blocks that wait for later blocks end");
    cuMemcpyDtoH_v2(values, value, sizeof values);
    ok(values[3] == 1 && values[2] == 2 && values[0] == 8, "with what those wrote");
    cuMemFree_v2(lock);
    cuMemFree_v2(flags);
    cuMemFree_v2(value);
}

static void check_transpose(CUmodule module) {
    enum { N = 64 };
    static float in[N][N], want[N][N], got[N][N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) want[j][i] = in[i][j] = random_unit();
    CUdeviceptr a = tools_device(in, sizeof in), b = tools_device(NULL, sizeof in);
    int n = N;
    void *params[] = {&a, &b, &n};
    CUresult r = cuLaunchKernel(tools_function(module, "transpose"), N / 32, N / 32, 1, 32, 8, 1, 0,
                                NULL, params, NULL);
    is(r ? r : cuCtxSynchronize(), 0, "transpose");
    cuDevicePrimaryCtxReset_v2(0);
    cuMemcpyDtoH_v2(got, b, sizeof got);
    same(got, want, sizeof got, "transpose: every element");
    cuMemFree_v2(a);
    cuMemFree_v2(b);
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void check_sort(CUmodule module) {
    enum { BLOCKS = 2, N = 512 };
    static uint32_t data[BLOCKS][N], got[BLOCKS][N];
    for (int b = 0; b < BLOCKS; b++)
        for (int i = 0; i < N; i++) data[b][i] = tools_random();
    CUdeviceptr a = tools_device(data, sizeof data);
    void *params[] = {&a};
    is(tools_launch(tools_function(module, "bitonic_sort"), BLOCKS, N, N * 4, params), 0,
       "bitonic sort");
    cuMemcpyDtoH_v2(got, a, sizeof got);
    for (int b = 0; b < BLOCKS; b++) qsort(data[b], N, 4, by_value);
    same(got, data, sizeof got, "bitonic sort: in order");
    cuMemFree_v2(a);
}

static void check_gemm(CUmodule module) {
    enum { M = 128, N = 64, K = 96 };
    static uint16_t a[M][K], b[N][K];
    static float got[M][N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) a[i][k] = to_bf16(random_unit());
    for (int i = 0; i < N; i++)
        for (int k = 0; k < K; k++) b[i][k] = to_bf16(random_unit());
    CUdeviceptr da = tools_device(a, sizeof a), db = tools_device(b, sizeof b);
    CUdeviceptr dc = tools_device(NULL, sizeof got);
    int n = N, k = K;
    void *params[] = {&da, &db, &dc, &n, &k};
    CUresult r = cuLaunchKernel(tools_function(module, "gemm"), N / 32, M / 64, 1, 128, 1, 1, 0,
                                NULL, params, NULL);
    is(r ? r : cuCtxSynchronize(), 0, "gemm");
    cuDevicePrimaryCtxReset_v2(0);
    cuMemcpyDtoH_v2(got, dc, sizeof got);
    double worst = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int e = 0; e < K; e++) sum += (double)of_bf16(a[i][e]) * of_bf16(b[j][e]);
            worst = fmax(worst, fabs(sum - got[i][j]));
        }
    ok(worst < 1e-5, "gemm: within %.2g of the exact product", worst);
    cuMemFree_v2(da);
    cuMemFree_v2(db);
    cuMemFree_v2(dc);
}

static void check_attention(CUmodule module) {
    enum { Q = 32, KEYS = 80, D = 64 };
    static uint16_t q[Q][D], k[KEYS][D], v[KEYS][D];
    static float got[Q][D];
    for (int i = 0; i < Q; i++)
        for (int e = 0; e < D; e++) q[i][e] = to_bf16(random_unit());
    for (int i = 0; i < KEYS; i++)
        for (int e = 0; e < D; e++) {
            k[i][e] = to_bf16(random_unit());
            v[i][e] = to_bf16(random_unit());
        }
    CUdeviceptr dq = tools_device(q, sizeof q), dk = tools_device(k, sizeof k);
    CUdeviceptr dv = tools_device(v, sizeof v), out = tools_device(NULL, sizeof got);
    int keys = KEYS;
    float scale = 0.125f * 1.44269504f;
    void *params[] = {&dq, &dk, &dv, &out, &keys, &scale};
    is(tools_launch(tools_function(module, "flash_attention"), Q / 16, 32, 0, params), 0,
       "flash attention");
    cuMemcpyDtoH_v2(got, out, sizeof got);
    double worst = 0;
    for (int i = 0; i < Q; i++) {
        double w[KEYS], sum = 0;
        for (int j = 0; j < KEYS; j++) {
            double dot = 0;
            for (int e = 0; e < D; e++) dot += (double)of_bf16(q[i][e]) * of_bf16(k[j][e]);
            sum += w[j] = exp2(dot * scale);
        }
        for (int e = 0; e < D; e++) {
            double o = 0;
            for (int j = 0; j < KEYS; j++) o += w[j] / sum * of_bf16(v[j][e]);
            worst = fmax(worst, fabs(o - got[i][e]));
        }
    }
    ok(worst < 3e-3, "flash attention: within %.2g of the exact result", worst);
    cuMemFree_v2(dq);
    cuMemFree_v2(dk);
    cuMemFree_v2(dv);
    cuMemFree_v2(out);
}

int main(int argc, char **argv) {
    /* Each order is another process, since the seed is read once. */
    if (argc < 2) {
        tap_plan(5);
        for (int seed = 0; seed < 5; seed++) {
            char command[600];
            snprintf(command, sizeof command, "KVF_EXECUTOR_SEED=%d %s inner >/dev/null 2>&1", seed,
                     argv[0]);
            int status = system(command);
            if (status) {
                snprintf(command, sizeof command, "KVF_EXECUTOR_SEED=%d %s inner | sed 's/^/# /'",
                         seed, argv[0]);
                fflush(stdout);
                if (system(command)) printf("#\n");
            }
            is(status, 0, "every kernel gives the right results in this order");
        }
        return tap_done();
    }
    tap_plan(18);
    setenv("KVF_EXECUTOR_REPORT", "/dev/stdout", 1);
    tools_start();
    CUmodule collective = tools_load_file("tests/kernels/collective.ptx");
    CUmodule matrix = tools_load_file("tests/kernels/matrix.ptx");
    check_scan(collective);
    check_last_block(collective);
    check_progress(collective);
    check_transpose(collective);
    check_sort(collective);
    check_gemm(matrix);
    check_attention(matrix);
    is(tools_findings(), 0, "no finding");
    return tap_done();
}
