#include "rates.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- copies ---- */

struct copy {
    struct session *session;
    kvf_address from, to;
    size_t bytes;
};

static bool submit_copy(void *context) {
    struct copy *copy = context;
    const kvf_driver *driver = copy->session->driver;
    return session_good(copy->session,
                        driver->cuMemcpyDtoDAsync_v2(copy->to, copy->from, copy->bytes, NULL),
                        "cuMemcpyDtoDAsync");
}

static bool measure_copy(struct timing *timing, size_t bytes, double *out) {
    struct session *session = timing->session;
    const kvf_driver *driver = session->driver;
    struct copy copy = {.session = session, .bytes = bytes};
    if (!driver->cuMemcpyDtoDAsync_v2) {
        fprintf(stderr, "kvforge-run: %s has no cuMemcpyDtoDAsync\n", kvf_driver_path(driver));
        return false;
    }
    bool good = session_alloc(session, bytes, &copy.from) &&
                session_alloc(session, bytes, &copy.to) &&
                session_good(session, driver->cuMemsetD8Async(copy.from, 1, bytes, NULL),
                             "cuMemsetD8Async");
    double ms = good ? timing_median(timing, submit_copy, &copy) : -1;
    *out = ms > 0 ? 2 * (double)bytes / ms * 1e3 : 0;
    session_free(session, copy.from);
    session_free(session, copy.to);
    return ms >= 0;
}

/* ---- matrix products ---- */

/*
 * Eight independent accumulators a warp, each of which begins at a number of its own, so that no
 * compiler can make one of them; all elements of both factors are 1, so a step adds 16 to each
 * element. A thread stores the sum of its 32 elements: 4 * (0 + ... + 7) + 32 * 16 * steps.
 */
/* clang-format off */
#define MMA(n, start)                                                                                   \
    "  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%c" n "0, %c" n "1, %c" n "2, %c" n "3},\n" \
    "      {%one, %one, %one, %one}, {%one, %one}, {%c" n "0, %c" n "1, %c" n "2, %c" n "3};\n"
#define START(n, start)                                                            \
    "  mov.f32 %c" n "0, " start ";\n  mov.f32 %c" n "1, " start ";\n"             \
    "  mov.f32 %c" n "2, " start ";\n  mov.f32 %c" n "3, " start ";\n"
#define SUM(n, start)                                                              \
    "  add.f32 %sum, %sum, %c" n "0;\n  add.f32 %sum, %sum, %c" n "1;\n"           \
    "  add.f32 %sum, %sum, %c" n "2;\n  add.f32 %sum, %sum, %c" n "3;\n"
#define EACH(DO)                                                                   \
    DO("a", "0f00000000") DO("b", "0f3F800000") DO("c", "0f40000000") DO("d", "0f40400000") \
    DO("e", "0f40800000") DO("f", "0f40A00000") DO("g", "0f40C00000") DO("h", "0f40E00000")

static const char mma_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry kvf_mma_rate(.param .u64 out, .param .u32 steps)\n{\n"
    "  .reg .pred %p;\n  .reg .b32 %one, %n, %id, %block, %threads;\n  .reg .b64 %at;\n"
    "  .reg .f32 %sum, %ca<4>, %cb<4>, %cc<4>, %cd<4>, %ce<4>, %cf<4>, %cg<4>, %ch<4>;\n"
    "  mov.b32 %one, 0x3f803f80;\n  ld.param.u32 %n, [steps];\n"
    EACH(START)
    "again:\n"
    EACH(MMA)
    "  sub.u32 %n, %n, 1;\n  setp.ne.u32 %p, %n, 0;\n  @%p bra again;\n"
    "  mov.f32 %sum, 0f00000000;\n"
    EACH(SUM)
    "  mov.u32 %id, %tid.x;\n  mov.u32 %block, %ctaid.x;\n  mov.u32 %threads, %ntid.x;\n"
    "  mad.lo.u32 %id, %block, %threads, %id;\n  ld.param.u64 %at, [out];\n"
    "  mad.wide.u32 %at, %id, 4, %at;\n  st.global.f32 [%at], %sum;\n  ret;\n}\n";
/* clang-format on */

enum { THREADS = 256, WARPS = THREADS / 32, CHAINS = 8, MACS = 16 * 8 * 16 };

struct products {
    struct session *session;
    CUfunction function;
    kvf_address out;
    uint32_t blocks, steps;
};

static bool submit_products(void *context) {
    struct products *p = context;
    void *params[] = {&p->out, &p->steps};
    return session_good(p->session,
                        p->session->driver->cuLaunchKernel(p->function, p->blocks, 1, 1, THREADS, 1,
                                                           1, 0, NULL, params, NULL),
                        "cuLaunchKernel");
}

static bool check_products(const struct products *p) {
    size_t count = (size_t)p->blocks * THREADS, wrong = 0;
    float *sums = malloc(4 * count), want = (float)(4 * 28 + 512 * (double)p->steps);
    bool good = sums && session_download(p->session, sums, p->out, 4 * count);
    for (size_t i = 0; good && i < count; i++) wrong += sums[i] != want;
    if (wrong) fprintf(stderr, "kvforge-run: mma.sync: %zu of %zu sums are wrong\n", wrong, count);
    free(sums);
    return good && !wrong;
}

static bool measure_products(struct timing *timing, uint32_t blocks, uint32_t steps, double *out) {
    struct session *session = timing->session;
    const kvf_driver *driver = session->driver;
    struct products p = {.session = session, .blocks = blocks, .steps = steps};
    CUmodule module = NULL;
    bool good =
        session_good(session, driver->cuModuleLoadDataEx(&module, mma_ptx, 0, NULL, NULL),
                     "cuModuleLoadDataEx") &&
        session_good(session, driver->cuModuleGetFunction(&p.function, module, "kvf_mma_rate"),
                     "cuModuleGetFunction") &&
        session_alloc(session, (size_t)4 * blocks * THREADS, &p.out);
    double ms = good ? timing_median(timing, submit_products, &p) : -1;
    uint64_t macs = (uint64_t)blocks * steps * WARPS * CHAINS * MACS;
    *out = ms > 0 ? (double)macs / ms * 1e3 : 0;
    good = ms >= 0 && check_products(&p);
    session_free(session, p.out);
    if (module) driver->cuModuleUnload(module);
    return good;
}

bool rates_measure(struct timing *timing, size_t bytes, uint32_t blocks, uint32_t steps,
                   struct rates *out) {
    *out = (struct rates){0};
    return measure_copy(timing, bytes, &out->copy) &&
           measure_products(timing, blocks, steps, &out->mma);
}
