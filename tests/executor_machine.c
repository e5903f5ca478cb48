/*
 * Forms that are no plain arithmetic: moves, memory, control, barriers, warps, atomics,
 * asynchronous copies. Each case is a few lines of PTX and what every thread must have written,
 * worked out in C. Every form that a case names is then given a planted fault, which the case must
 * notice; and a form that neither this file nor executor_forms.c nor executor_matrix.c tests makes
 * this test fail.
 */
#include "executor_tools.h"
#include "forms.h"
#include "mutate.h"

enum { THREADS = 64, WORDS = 4 };

typedef void expected_function(uint32_t t, uint32_t *want);

struct machine_case {
    const char *forms; /* names of the forms that it tests */
    const char *extra; /* module-level text: variables, functions */
    const char *body;
    expected_function *expected;
};

/* Word k of the input; a thread's own are 4t..4t+3. */
static uint32_t in(uint32_t k) {
    uint32_t x = k * 0x9e3779b1u + 0x7f4a7c15u;
    return x ^ x >> 15;
}

static uint64_t in64(uint32_t t) {
    return (uint64_t)in(4 * t + 1) << 32 | in(4 * t);
}

#define WANT(name) static void name(uint32_t t, uint32_t *want)

/* ---- moves ---- */
WANT(want_mov) {
    want[0] = in(4 * t) + 7;
    want[1] = (uint32_t)in64(t);
    want[2] = (uint32_t)(in64(t) >> 32);
    want[3] = in(4 * t) & 0xffff;
}
WANT(want_pack) {
    want[0] = in(4 * t) << 16 | in(4 * t) >> 16;
    want[1] = in(4 * t + 2);
    want[2] = in(4 * t + 3) & 0xffff;
    want[3] = in(4 * t + 3) >> 16;
}
WANT(want_special) {
    want[0] = t % 32;
    want[1] = t / 32 + 100 * 2 + 10000 * THREADS;
    want[2] = (1u << t % 32) - 1;
    want[3] = ~((1u << t % 32) - 1) ^ 1u << t % 32;
}
WANT(want_predicates) {
    want[0] = t & 1;
    want[1] = t < 10;
    want[2] = 1;
    want[3] = 0;
}
WANT(want_decided) {
    (void)t;
    want[0] = want[3] = 0;
    want[1] = want[2] = 1;
}
WANT(want_local) {
    want[0] = in(4 * t + 1);
    want[1] = in(4 * t);
    want[2] = 1;
    want[3] = 1;
}
WANT(want_spaces) {
    want[0] = in(4 * t);
    want[1] = 1 + 2 * 0 + 4 * 0;
    want[2] = 1;
    want[3] = 0x11223344;
}

/* ---- memory ---- */
WANT(want_vector) {
    for (uint32_t k = 0; k < 4; k++) want[k] = in(4 * t + 3 - k);
}
WANT(want_extend) {
    want[0] = (uint32_t)(int32_t)(int8_t)in(4 * t);
    want[1] = in(4 * t) & 0xff;
    want[2] = (uint32_t)(int32_t)(int16_t)(in(4 * t) >> 16);
    want[3] = (uint32_t)((int64_t)(int32_t)in(4 * t + 1) >> 32);
}
WANT(want_same) {
    for (uint32_t k = 0; k < 4; k++) want[k] = in(4 * t + k);
}
WANT(want_bytes) {
    want[0] = (in(4 * t) & 0xff) | (in(4 * t + 1) & 0xffff) << 16;
    want[1] = in(4 * t + 2);
    want[2] = in(4 * t + 3);
    want[3] = in(4 * t);
}
WANT(want_neighbour) {
    uint32_t other = (t + 32) % THREADS;
    want[0] = in(4 * other);
    want[1] = in(4 * other + 1);
    want[2] = want[3] = 5;
}

/* ---- control ---- */
WANT(want_loop) {
    want[0] = t * (t + 1) / 2;
    want[1] = t % 3 == 0 ? 100 : t % 3 == 1 ? 200 : 300;
    want[2] = t < 5 ? 1 : 2;
    want[3] = 9;
}
WANT(want_exit) {
    want[0] = t < 20 ? 7 : 8;
    want[1] = want[2] = want[3] = t < 20 ? 0xcccccccc : 9;
}
WANT(want_call) {
    want[0] = in(4 * t) * 3 + t;
    uint32_t f = 1;
    for (uint32_t k = 2; k <= t % 7; k++) f *= k;
    want[1] = f;
    want[2] = t & 1 ? t + 1000 : t * 2;
    want[3] = 4;
}
WANT(want_quiet) {
    (void)t;
    want[0] = want[1] = want[2] = want[3] = 3;
}

/* ---- barriers ---- */
WANT(want_vote_block) {
    want[0] = 0;
    want[1] = 1;
    want[2] = THREADS / 4;
    want[3] = in(4 * ((t + 32) % THREADS));
}
WANT(want_producer) {
    want[0] = t < 32 ? 1 : in(4 * (t - 32));
    want[1] = want[2] = want[3] = 0;
}

/* ---- warps ---- */
WANT(want_shuffle) {
    uint32_t base = t & 32, lane = t & 31;
    want[0] = in(4 * (lane >= 3 ? t - 3 : t)) + (lane >= 3);
    want[1] = in(4 * (lane + 5 <= 31 ? t + 5 : t));
    want[2] = in(4 * (base + (lane ^ 9)));
    want[3] = in(4 * (base + (lane & 24) + (lane + 1) % 8)); /* segments of 8 */
}
WANT(want_ballot) {
    uint32_t mask = 0;
    for (uint32_t k = 0; k < 32; k++) mask |= (uint32_t)(in(4 * ((t & 32) + k)) & 1) << k;
    want[0] = mask;
    want[1] = 1;
    want[2] = 1 + 2 * 0;
    want[3] = t % 32 < 11 ? 0x7ff : 0xfffff800;
}
WANT(want_match) {
    uint32_t mask = 0;
    for (uint32_t k = 0; k < 32; k++) mask |= (uint32_t)(k % 5 == t % 32 % 5) << k;
    want[0] = mask;
    want[1] = 0xffffffff;
    want[2] = 1;
    want[3] = 0;
}
WANT(want_redux) {
    uint32_t sum = 0, low = UINT32_MAX, bits = 0;
    int32_t high = INT32_MIN;
    for (uint32_t k = 0; k < 32; k++) {
        uint32_t v = in(4 * ((t & 32) + k));
        sum += v;
        if (v < low) low = v;
        if ((int32_t)v > high) high = (int32_t)v;
        bits ^= v;
    }
    want[0] = sum;
    want[1] = low;
    want[2] = (uint32_t)high;
    want[3] = bits;
}
/* Halves, quarters and pairs of the warp, each with a mask of its own. */
WANT(want_parts) {
    uint32_t first = t & ~15u, sum = 0, all = 0;
    for (uint32_t k = 0; k < 16; k++) sum += in(4 * (first + k));
    for (uint32_t k = 0; k < 8; k++) all |= (in(4 * ((t & ~7u) + k)) & 1) << ((t & 24) + k);
    want[0] = sum;
    want[1] = all;
    want[2] = in(4 * (t ^ 1));
    want[3] = in(4 * (t ^ 1) + 1);
}
WANT(want_elect) {
    want[0] = t % 32 == 4;
    want[1] = t % 32 >= 4 ? 4 : 0xdead;
    want[2] = want[3] = 0;
}

/* ---- atomics: on one cell, so what each thread gets depends on the order; sums do not ---- */
WANT(want_atomics) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < THREADS; k++) sum += in(4 * k);
    want[0] = sum;
    uint32_t least = UINT32_MAX, all = 0;
    for (uint32_t k = 0; k < THREADS; k++) {
        if (in(4 * k) < least) least = in(4 * k);
        all |= in(4 * k) & 0x0f0f0f0f;
    }
    want[1] = least;
    want[2] = all;
    want[3] = THREADS % 10; /* inc wraps after 9 */
    (void)t;
}
WANT(want_exchange) {
    want[0] = in(4 * t);
    want[1] = t + 5;
    want[2] = t & 1 ? t + 1 : t;
    want[3] = t;
}
WANT(want_float_atomics) {
    (void)t;
    float f = 0;
    for (int k = 0; k < THREADS; k++) f += (float)k;
    memcpy(&want[0], &f, 4);
    want[1] = 0x40a00000; /* 64 * 2^-? : 2.5 twice in shared memory */
    want[2] = 0x44004400; /* f16x2: 4 and 4 */
    want[3] = 0x42804280; /* bf16x2: 64 and 64 */
}

WANT(want_own_atomics) {
    (void)t;
    want[0] = 0x40600000; /* 3.5 */
    want[1] = 0x3c004000 ^ 0x3f804000 << 1 ^ 0x3fc00000;
    want[2] = 0x40004200; /* 2 and 3 */
    want[3] = 0x40004040; /* 2 and 3 */
}
WANT(want_extremes) {
    uint32_t a = in(4 * t), b = in(4 * t + 1);
    want[0] = a < b ? a : b;
    want[1] = a;
    want[2] = (int32_t)a > (int32_t)b ? a : b;
    want[3] = a;
}
WANT(want_half_warp) {
    want[0] = in(4 * (t & ~16u));
    want[1] = 1;
    want[2] = 2;
    want[3] = 3;
}
WANT(want_async) {
    want[0] = in(4 * t);
    want[1] = in(4 * t + 1);
    want[2] = 0;
    want[3] = in(4 * t + 3);
}

#define SHARED     ".shared .align 16 .b8 sh[2048];\n"
#define SH_ADDRESS "mov.u32 %r9, sh;\nshl.b32 %r8, %r1, 4;\nadd.u32 %r9, %r9, %r8;\n"
#define LOAD4      "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%rd1];\n"
#define SAVE(a, b, c, d)                                                                           \
    "st.global.u32 [%rd2], " a ";\nst.global.u32 [%rd2+4], " b ";\nst.global.u32 [%rd2+8], " c     \
    ";\nst.global.u32 [%rd2+12], " d ";\n"
#define OTHER "xor.b32 %r7, %r8, 512;\nmov.u32 %r6, sh;\nadd.u32 %r6, %r6, %r7;\n"

static const struct machine_case cases[] = {
    {"mov mov_unpack", "",
     LOAD4 "mov.b32 %r20, %r10;\nadd.u32 %r20, %r20, 7;\nld.global.u64 %rd10, [%rd1];\n"
           "mov.u64 %rd11, %rd10;\nmov.b64 {%r21,%r22}, %rd11;\nmov.b32 {%h1,%h2}, %r10;\n"
           "mov.b16 %h3, %h1;\ncvt.u32.u16 %r23, %h3;\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_mov},
    {"mov_pack mov_unpack", "",
     LOAD4 "mov.b32 {%h1,%h2}, %r10;\nmov.b32 %r20, {%h2,%h1};\nmov.b64 %rd10, {%r12,%r13};\n"
           "cvt.u32.u64 %r21, %rd10;\nmov.b64 {%h4,%h5,%h6,%h7}, %rd10;\ncvt.u32.u16 %r22, %h6;\n"
           "cvt.u32.u16 %r23, %h7;\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_pack},
    {"mov_special", "",
     "rem.u32 %r20, %r1, WARP_SZ;\nmov.u32 %r21, %warpid;\nmov.u32 %r22, %nwarpid;\n"
     "mad.lo.u32 %r21, %r22, 100, %r21;\nmov.u32 %r22, %ntid.x;\nmad.lo.u32 %r21, %r22, 10000, "
     "%r21;\nmov.u32 %r23, %lanemask_lt;\nmov.u32 %r24, %lanemask_gt;\n" SAVE("%r20", "%r21",
                                                                              "%r23", "%r24"),
     want_special},
    {"mov_pred not_pred", "",
     "and.b32 %r20, %r1, 1;\nsetp.ne.u32 %p1, %r20, 0;\nmov.pred %p2, %p1;\nselp.u32 %r20, 1, 0, "
     "%p2;\nsetp.ge.u32 %p3, %r1, 10;\nnot.pred %p4, %p3;\nselp.u32 %r21, 1, 0, %p4;\nmov.pred "
     "%p5, -1;\nselp.u32 %r22, 1, 0, %p5;\nmov.pred %p6, 0;\nselp.u32 %r23, 1, 0, %p6;\n" SAVE(
         "%r20", "%r21", "%r22", "%r23"),
     want_predicates},
    /* One side decides; the other (%p2) was never written, and no finding may come of it. */
    {"and_pred or_pred setp_u_combine", "",
     "setp.ne.u32 %p1, %r1, %r1;\nand.pred %p4, %p2, %p1;\nselp.u32 %r20, 1, 0, %p4;\n"
     "not.pred %p5, %p1;\nor.pred %p6, %p5, %p2;\nselp.u32 %r21, 1, 0, %p6;\n"
     "setp.eq.or.u32 %p7, %r1, %r1, %p2;\nselp.u32 %r22, 1, 0, %p7;\n"
     "setp.ne.and.u32 %p8, %r1, %r1, %p2;\nselp.u32 %r23, 1, 0, %p8;\n" SAVE("%r20", "%r21", "%r22",
                                                                             "%r23"),
     want_decided},
    {"mov_local ld st cvta cvta_to isspacep", "",
     ".local .align 8 .b8 depot[16];\n" LOAD4
     "mov.u64 %rd10, depot;\nst.local.u32 [%rd10], %r10;\nst.local.u32 [%rd10+4], %r11;\n"
     "cvta.local.u64 %rd11, %rd10;\nld.u32 %r20, [%rd11+4];\nisspacep.local %p1, %rd11;\n"
     "selp.u32 %r22, 1, 0, %p1;\ncvta.to.local.u64 %rd12, %rd11;\nld.local.u32 %r21, [%rd12];\n"
     "setp.eq.u64 %p2, %rd12, %rd10;\nselp.u32 %r23, 1, 0, %p2;\n" SAVE("%r20", "%r21", "%r22",
                                                                        "%r23"),
     want_local},
    {"cvta isspacep ld st", ".const .align 4 .u32 table[2] = {0x11223344, 5};\n" SHARED,
     LOAD4 SH_ADDRESS
     "st.shared.u32 [%r9], %r10;\ncvt.u64.u32 %rd10, %r9;\ncvta.shared.u64 %rd11, %rd10;\n"
     "ld.u32 %r20, [%rd11];\nisspacep.shared %p1, %rd11;\nisspacep.global %p2, %rd11;\n"
     "isspacep.local %p3, %rd11;\nselp.u32 %r21, 1, 0, %p1;\nselp.u32 %r22, 2, 0, %p2;\n"
     "add.u32 %r21, %r21, %r22;\nselp.u32 %r22, 4, 0, %p3;\nadd.u32 %r21, %r21, %r22;\n"
     "isspacep.global %p4, %rd1;\nselp.u32 %r22, 1, 0, %p4;\nmov.u64 %rd12, table;\n"
     "ld.const.u32 %r23, [%rd12];\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_spaces},
    {"ld st", "",
     "ld.global.v4.b32 {%r10,%r11,%r12,%r13}, [%rd1];\n"
     "st.global.v4.b32 [%rd2], {%r13,%r12,%r11,%r10};\n",
     want_vector},
    {"ld", "",
     "ld.global.s8 %r20, [%rd1];\nld.global.u8 %r21, [%rd1];\nld.global.s16 %r22, [%rd1+2];\n"
     "ld.global.s32 %rd10, [%rd1+4];\nshr.s64 %rd10, %rd10, 32;\ncvt.u32.u64 %r23, %rd10;\n" SAVE(
         "%r20", "%r21", "%r22", "%r23"),
     want_extend},
    {"ld_nc ldu ld_volatile ld_order", "",
     "ld.global.nc.L1::no_allocate.L2::128B.u32 %r20, [%rd1];\nldu.global.u32 %r21, [%rd1+4];\n"
     "ld.volatile.global.u32 %r22, [%rd1+8];\nld.acquire.gpu.global.u32 %r23, [%rd1+12];\n" SAVE(
         "%r20", "%r21", "%r22", "%r23"),
     want_same},
    {"ld_param", "",
     "ld.param.u64 %rd10, [in];\nmad.wide.u32 %rd10, %r1, 16, %rd10;\n"
     "ld.global.v4.u32 {%r20,%r21,%r22,%r23}, [%rd10];\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_same},
    {"st_volatile st_order st", "",
     LOAD4 "st.volatile.global.u32 [%rd2], %r10;\nst.release.gpu.global.u32 [%rd2+4], %r11;\n"
           "st.relaxed.sys.global.u32 [%rd2+8], %r12;\nst.global.wt.u32 [%rd2+12], %r13;\n",
     want_same},
    {"st", "",
     LOAD4 "cvt.u16.u32 %h1, %r11;\nst.global.u32 [%rd2], 0;\nst.global.u8 [%rd2], %r10;\n"
           "st.global.u16 [%rd2+2], %h1;\nmov.b64 %rd10, {%r12,%r13};\n"
           "st.global.u32 [%rd2+4], %r12;\nst.global.v2.u32 [%rd2+8], {%r13,%r10};\n",
     want_bytes},
    {"bar_sync", SHARED,
     LOAD4 SH_ADDRESS OTHER "st.shared.v2.u32 [%r9], {%r10,%r11};\nbar.sync 0;\nld.shared.v2.u32 "
                            "{%r20,%r21}, [%r6];\n" SAVE("%r20", "%r21", "5", "5"),
     want_neighbour},
    {"barrier_sync", SHARED,
     LOAD4 SH_ADDRESS OTHER
     "st.shared.v2.u32 [%r9], {%r10,%r11};\nbarrier.sync 3, 64;\nld.shared.v2.u32 {%r20,%r21}, "
     "[%r6];\n" SAVE("%r20", "%r21", "5", "5"),
     want_neighbour},
    {"barrier_sync_aligned", SHARED,
     LOAD4 SH_ADDRESS OTHER
     "st.shared.v2.u32 [%r9], {%r10,%r11};\nbarrier.cta.sync.aligned 1;\nld.shared.v2.u32 "
     "{%r20,%r21}, [%r6];\n" SAVE("%r20", "%r21", "5", "5"),
     want_neighbour},
    {"bra", "",
     "mov.u32 %r20, 0;\nmov.u32 %r21, %r1;\nloop:\nsetp.eq.u32 %p1, %r21, 0;\n@%p1 bra done;\n"
     "add.u32 %r20, %r20, %r21;\nsub.u32 %r21, %r21, 1;\nbra.uni loop;\ndone:\n"
     "rem.u32 %r22, %r1, 3;\nsetp.eq.u32 %p2, %r22, 0;\nmov.u32 %r23, 300;\n@%p2 bra zero;\n"
     "setp.ne.u32 %p3, %r22, 1;\n@%p3 bra join;\nmov.u32 %r23, 200;\nbra join;\nzero:\nmov.u32 "
     "%r23, 100;\njoin:\nmov.u32 %r24, 2;\nsetp.lt.u32 %p4, %r1, 5;\n@%p4 mov.u32 %r24, 1;\n{\n"
     ".reg .b32 %r24;\nmov.u32 %r24, 77;\nbra over;\nover:\n}\n" SAVE("%r20", "%r23", "%r24", "9"),
     want_loop},
    {"brx", "",
     "mov.u32 %r20, 0;\nmov.u32 %r21, %r1;\nloop:\nsetp.eq.u32 %p1, %r21, 0;\n@%p1 bra done;\n"
     "add.u32 %r20, %r20, %r21;\nsub.u32 %r21, %r21, 1;\nbra.uni loop;\ndone:\n"
     "rem.u32 %r22, %r1, 3;\nways: .branchtargets A, B, C;\nmov.u32 %r23, 1;\nbrx.idx %r22, ways;\n"
     "A:\nmov.u32 %r23, 100;\nbra join;\nB:\nmov.u32 %r23, 200;\nbra join;\nC:\nmov.u32 %r23, "
     "300;\njoin:\nsetp.lt.u32 %p4, %r1, 5;\nselp.u32 %r24, 1, 2, %p4;\n" SAVE("%r20", "%r23",
                                                                               "%r24", "9"),
     want_loop},
    {"exit", "",
     "st.global.u32 [%rd2], 7;\nsetp.lt.u32 %p1, %r1, 20;\n@%p1 exit;\n" SAVE("8", "9", "9", "9"),
     want_exit},
    {"ret", "",
     "st.global.u32 [%rd2], 7;\nsetp.lt.u32 %p1, %r1, 20;\n@%p1 ret;\n" SAVE("8", "9", "9", "9"),
     want_exit},
    {"call st_param ld_param ret",
     ".func (.param .b32 out) triple(.param .b32 x, .param .b32 y)\n{\n.reg .b32 %r<5>;\n"
     "ld.param.u32 %r1, [x];\nld.param.u32 %r2, [y];\nmad.lo.u32 %r3, %r1, 3, %r2;\n"
     "st.param.u32 [out], %r3;\nret;\n}\n"
     ".func (.param .b32 out) factorial(.param .b32 n)\n{\n.reg .b32 %r<5>;\n.reg .pred %p<2>;\n"
     "ld.param.u32 %r1, [n];\nsetp.gt.u32 %p1, %r1, 1;\n@%p1 bra more;\nst.param.u32 [out], 1;\n"
     "ret;\nmore:\nsub.u32 %r2, %r1, 1;\n{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], "
     "%r2;\ncall (b), factorial, (a);\nld.param.b32 %r3, [b];\n}\nmul.lo.u32 %r3, %r3, %r1;\n"
     "st.param.u32 [out], %r3;\nret;\n}\n"
     ".func (.param .b32 out) twice(.param .b32 x)\n{\n.reg .b32 %r<5>;\nld.param.u32 %r1, [x];\n"
     "add.u32 %r1, %r1, %r1;\nst.param.u32 [out], %r1;\nret;\n}\n"
     ".func (.param .b32 out) far(.param .b32 x)\n{\n.reg .b32 %r<5>;\nld.param.u32 %r1, [x];\n"
     "add.u32 %r1, %r1, 1000;\nst.param.u32 [out], %r1;\nret;\n}\n",
     LOAD4
     "{\n.param .b32 p0;\n.param .b32 p1;\n.param .b32 r0;\nst.param.b32 [p0], %r10;\n"
     "st.param.b32 [p1], %r1;\ncall.uni (r0), triple, (p0, p1);\nld.param.b32 %r20, [r0];\n}\n"
     "rem.u32 %r21, %r1, 7;\n{\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r21;\n"
     "call (r0), factorial, (p0);\nld.param.b32 %r22, [r0];\n}\nmov.u64 %rd10, twice;\n"
     "mov.u64 %rd11, far;\nand.b32 %r23, %r1, 1;\nsetp.eq.u32 %p1, %r23, 1;\n"
     "selp.b64 %rd12, %rd11, %rd10, %p1;\nproto: .callprototype (.param .b32 _) _ (.param "
     ".b32 _);\n{\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r1;\ncall (r0), "
     "%rd12, (p0), proto;\nld.param.b32 %r23, [r0];\n}\n" SAVE("%r20", "%r22", "%r23", "4"),
     want_call},
    {"prefetch prefetchu nop setmaxnreg pmevent barrier_cluster membar fence fence_proxy "
     "fence_proxy_async",
     "",
     "prefetch.global.L2 [%rd1];\nprefetchu.L1 [%rd1];\nnanosleep.u32 20;\n"
     "setmaxnreg.inc.sync.aligned.u32 64;\npmevent 1;\nbarrier.cluster.arrive.release.aligned;\n"
     "barrier.cluster.wait.acquire.aligned;\nmembar.gl;\nfence.acq_rel.gpu;\nfence.proxy.async;\n"
     "fence.proxy.async.shared::cta;\n" SAVE("3", "3", "3", "3"),
     want_quiet},
    {"bar_red bar_red_popc barrier_red barrier_red_popc", SHARED,
     LOAD4 SH_ADDRESS OTHER
     "st.shared.u32 [%r9], %r10;\nand.b32 %r20, %r1, 3;\nsetp.eq.u32 %p1, %r20, 0;\n"
     "bar.red.and.pred %p2, 0, %p1;\nbarrier.red.or.pred %p3, 1, 64, %p1;\n"
     "bar.red.popc.u32 %r21, 2, %p1;\nbarrier.red.popc.aligned.u32 %r25, 3, %p1;\n"
     "add.u32 %r21, %r21, %r25;\nshr.u32 %r21, %r21, 1;\nselp.u32 %r22, 1, 0, %p2;\n"
     "selp.u32 %r23, 1, 0, %p3;\nld.shared.u32 %r24, [%r6];\n" SAVE("%r22", "%r23", "%r21", "%r24"),
     want_vote_block},
    {"bar_arrive", SHARED,
     LOAD4 SH_ADDRESS OTHER
     "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra consume;\nst.shared.u32 [%r9], %r10;\nbar.arrive 1, 64;\n"
     "mov.u32 %r20, 1;\nbra join;\nconsume:\nbar.sync 1, 64;\nld.shared.u32 %r20, "
     "[%r6];\njoin:\n" SAVE("%r20", "0", "0", "0"),
     want_producer},
    {"barrier_arrive", SHARED,
     LOAD4 SH_ADDRESS OTHER
     "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra consume;\nst.shared.u32 [%r9], %r10;\nbarrier.arrive 1, "
     "64;\nmov.u32 %r20, 1;\nbra join;\nconsume:\nbarrier.sync 1, 64;\nld.shared.u32 %r20, "
     "[%r6];\njoin:\n" SAVE("%r20", "0", "0", "0"),
     want_producer},
    {"shfl", "",
     LOAD4 "shfl.sync.up.b32 %r20|%p1, %r10, 3, 0, -1;\nselp.u32 %r24, 1, 0, %p1;\nadd.u32 %r20, "
           "%r20, %r24;\nshfl.sync.down.b32 %r21, %r10, 5, 31, -1;\nshfl.sync.bfly.b32 %r22, %r10, "
           "9, 31, -1;\nadd.u32 %r25, %r1, 1;\nand.b32 %r25, %r25, 7;\nshfl.sync.idx.b32 %r23, "
           "%r10, %r25, 6175, 0xffffffff;\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_shuffle},
    {"vote vote_ballot activemask", "",
     LOAD4
     "and.b32 %r20, %r10, 1;\nsetp.eq.u32 %p1, %r20, 1;\nvote.sync.ballot.b32 %r20, %p1, -1;\n"
     "setp.ge.u32 %p2, %r1, 0;\nvote.sync.all.pred %p3, %p2, -1;\nselp.u32 %r21, 1, 0, %p3;\n"
     "vote.sync.any.pred %p4, %p2, -1;\nvote.sync.uni.pred %p5, !%p1, -1;\nselp.u32 %r22, 1, "
     "0, %p4;\nselp.u32 %r24, 2, 0, %p5;\nadd.u32 %r22, %r22, %r24;\nmov.u32 %r25, %laneid;\n"
     "setp.lt.u32 %p6, %r25, 11;\n@%p6 bra low;\nactivemask.b32 %r23;\nbra join;\nlow:\n"
     "activemask.b32 %r23;\njoin:\nbar.warp.sync -1;\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_ballot},
    {"match_any match_all", "",
     "mov.u32 %r20, %laneid;\nrem.u32 %r21, %r20, 5;\nmatch.any.sync.b32 %r22, %r21, -1;\n"
     "cvt.u64.u32 %rd10, 5;\nmatch.all.sync.b64 %r23|%p1, %rd10, -1;\nselp.u32 %r24, 1, 0, %p1;\n"
     "match.all.sync.b32 %r25|%p2, %r21, -1;\n" SAVE("%r22", "%r23", "%r24", "%r25"),
     want_match},
    {"redux redux_bits", "",
     LOAD4 "redux.sync.add.u32 %r20, %r10, -1;\nredux.sync.min.u32 %r21, %r10, -1;\n"
           "redux.sync.max.s32 %r22, %r10, -1;\nredux.sync.xor.b32 %r23, %r10, -1;\n" SAVE(
               "%r20", "%r21", "%r22", "%r23"),
     want_redux},
    {"redux vote_ballot shfl bar_warp_sync", SHARED,
     LOAD4 SH_ADDRESS
     "mov.u32 %r20, %laneid;\nand.b32 %r21, %r20, 16;\nshl.b32 %r22, 0xffff, %r21;\n"
     "redux.sync.add.u32 %r23, %r10, %r22;\nand.b32 %r21, %r20, 24;\nshl.b32 %r22, 0xff, "
     "%r21;\nand.b32 %r24, %r10, 1;\nsetp.eq.u32 %p1, %r24, 1;\nvote.sync.ballot.b32 %r24, %p1, "
     "%r22;\nand.b32 %r21, %r20, 30;\nshl.b32 %r22, 3, %r21;\nshfl.sync.bfly.b32 %r25, %r10, 1, "
     "0x1e1f, %r22;\nst.shared.u32 [%r9], %r11;\nxor.b32 %r6, %r9, 16;\nbar.warp.sync "
     "%r22;\nld.shared.u32 %r26, [%r6];\n" SAVE("%r23", "%r24", "%r25", "%r26"),
     want_parts},
    {"elect", "",
     "mov.u32 %r20, %laneid;\nmov.pred %p1, 0;\nmov.u32 %r21, 0xdead;\nsetp.lt.u32 %p2, %r20, 4;\n"
     "@%p2 bra join;\nelect.sync %r21|%p1, 0xfffffff0;\njoin:\nselp.u32 %r22, 1, 0, %p1;\n" SAVE(
         "%r22", "%r21", "0", "0"),
     want_elect},
    {"red_bits red_add red_integer red_count bar_sync", SHARED,
     LOAD4 "mov.u32 %r9, sh;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra go;\nst.shared.v4.u32 [%r9], "
           "{0,-1,0,0};\nst.shared.v4.u32 [%r9+16], {0,-1,0,0};\ngo:\nbar.sync 0;\n"
           "atom.shared.add.u32 %r20, [%r9], %r10;\natom.shared.min.u32 %r20, [%r9+4], %r10;\n"
           "and.b32 %r21, %r10, 0x0f0f0f0f;\natom.shared.or.b32 %r20, [%r9+8], %r21;\n"
           "atom.shared.inc.u32 %r20, [%r9+12], 9;\nred.shared.add.u32 [%r9+16], %r10;\n"
           "red.shared.min.u32 [%r9+20], %r10;\nred.shared.or.b32 [%r9+24], %r21;\n"
           "red.shared.inc.u32 [%r9+28], 9;\nbar.sync 0;\nld.shared.v4.u32 {%r20,%r21,%r22,%r23}, "
           "[%r9];\nld.shared.v4.u32 {%r24,%r25,%r26,%r27}, [%r9+16];\nsetp.eq.u32 %p1, %r20, "
           "%r24;\nsetp.eq.and.u32 %p2, %r21, %r25, %p1;\nsetp.eq.and.u32 %p3, %r22, %r26, %p2;\n"
           "setp.eq.and.u32 %p4, %r23, %r27, %p3;\n@!%p4 mov.u32 %r20, 0xbad;\n" SAVE(
               "%r20", "%r21", "%r22", "%r23"),
     want_atomics},
    {"atom_add atom_bits atom_count", "",
     LOAD4 "st.global.u32 [%rd2], 0;\natom.global.add.u32 %r20, [%rd2], %r10;\nst.global.u32 "
           "[%rd2+4], %r1;\natom.add.u32 %r21, [%rd2+4], 5;\natom.global.xor.b32 %r22, [%rd2+4], "
           "0;\nst.global.u32 [%rd2+12], 0;\natom.global.dec.u32 %r23, [%rd2+12], %r1;\n"
           "and.b32 %r24, %r1, 1;\nadd.u32 %r24, %r24, %r1;\nst.global.u32 [%rd2+8], %r24;\n"
           "add.u32 %r20, %r20, %r10;\nst.global.u32 [%rd2], %r20;\nst.global.u32 [%rd2+4], "
           "%r22;\nadd.u32 %r25, %r23, %r1;\nst.global.u32 [%rd2+12], %r25;\n",
     want_exchange},
    /* Scope behind the space, as nvcc writes it. */
    {"atom_integer ld_order st_order", "",
     LOAD4 "st.global.release.gpu.u32 [%rd2], %r10;\natom.global.cta.min.u32 %r20, [%rd2], %r11;\n"
           "red.global.sys.min.u32 [%rd2], %r11;\nst.global.u32 [%rd2+4], %r20;\nst.global.u32 "
           "[%rd2+8], %r10;\natom.global.relaxed.gpu.max.s32 %r21, [%rd2+8], %r11;\n"
           "ld.global.relaxed.gpu.u32 %r22, [%rd2+4];\nmin.u32 %r21, %r21, %r22;\nmax.u32 %r21, "
           "%r21, %r22;\nst.global.u32 [%rd2+12], %r21;\n",
     want_extremes},
    {"atom_exch atom_cas", "",
     LOAD4 "st.global.u32 [%rd2], %r10;\natom.global.exch.b32 %r20, [%rd2], 1;\nst.global.u32 "
           "[%rd2], %r20;\nadd.u32 %r21, %r1, 4;\nst.global.u32 [%rd2+4], %r21;\nadd.u32 %r22, "
           "%r1, 5;\natom.global.cas.b32 %r23, [%rd2+4], %r21, %r22;\nsub.u32 %r23, %r23, 4;\n"
           "and.b32 %r24, %r1, 1;\nsetp.ne.u32 %p1, %r24, 0;\nst.global.u32 [%rd2+8], %r1;\n"
           "selp.u32 %r25, %r1, -1, %p1;\nadd.u32 %r26, %r1, 1;\natom.global.cas.b32 %r27, "
           "[%rd2+8], %r25, %r26;\nst.global.u32 [%rd2+12], %r23;\n",
     want_exchange},
    {"red_float red_half", SHARED,
     "mov.u32 %r9, sh;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra go;\nst.shared.v4.u32 [%r9], "
     "{0,0,0,0};\nst.shared.v4.u32 [%r9+16], {0,0,0,0};\ngo:\nbar.sync 0;\ncvt.rn.f32.u32 %f1, "
     "%r1;\natom.shared.add.f32 %f2, [%r9], %f1;\nred.shared.add.f32 [%r9+16], %f1;\n"
     "setp.lt.u32 %p2, %r1, 2;\n@%p2 red.shared.add.f32 [%r9+4], 0f40200000;\nmov.b32 %r20, "
     "0x2c002c00;\natom.shared.add.noftz.f16x2 %r21, [%r9+8], %r20;\nmov.b32 %r22, 0x3f803f80;\n"
     "red.shared.add.noftz.bf16x2 [%r9+12], %r22;\nbar.sync 0;\nld.shared.v4.u32 "
     "{%r20,%r21,%r22,%r23}, [%r9];\nld.shared.u32 %r24, [%r9+16];\nsetp.ne.u32 %p3, %r20, %r24;\n"
     "@%p3 mov.u32 %r20, 1;\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_float_atomics},
    {"atom_float atom_half", "",
     "st.global.v4.u32 [%rd2], {0x3fc00000,0,0x3c004000,0x3f804000};\natom.global.add.f32 %f1, "
     "[%rd2], 0f40000000;\nmov.b32 %r20, 0x3c003c00;\natom.global.add.noftz.f16x2 %r21, "
     "[%rd2+8], %r20;\nmov.b32 %r22, 0x3f803f80;\natom.global.add.noftz.bf16x2 %r23, [%rd2+12], "
     "%r22;\nshl.b32 %r23, %r23, 1;\nxor.b32 %r24, %r21, %r23;\nmov.b32 %r25, %f1;\nxor.b32 %r24, "
     "%r24, %r25;\n"
     "st.global.u32 [%rd2+4], %r24;\n",
     want_own_atomics},
    {"bar_warp_sync", SHARED,
     LOAD4 SH_ADDRESS
     "xor.b32 %r6, %r9, 256;\nmov.u32 %r20, %laneid;\nsetp.lt.u32 %p1, %r20, 16;\n@%p1 bra "
     "writer;\nbar.warp.sync -1;\nld.shared.u32 %r21, [%r6];\nbra join;\nwriter:\nst.shared.u32 "
     "[%r9], %r10;\nmov.u32 %r21, %r10;\nbar.warp.sync -1;\njoin:\n" SAVE("%r21", "1", "2", "3"),
     want_half_warp},
    {"cp_async_ca cp_async_cg cp_async_commit cp_async_wait_group", SHARED,
     SH_ADDRESS
     "cp.async.ca.shared.global [%r9], [%rd1], 8, 8;\ncp.async.commit_group;\n"
     "cp.async.ca.shared.global [%r9+8], [%rd1+8], 4, 0;\n"
     "cp.async.ca.shared.global.L2::128B [%r9+12], [%rd1+12], 4;\n"
     "cp.async.commit_group;\nadd.u32 %r30, %r9, 1024;\n"
     "cp.async.cg.shared.global [%r30], [%rd1], 16;\ncp.async.commit_group;\n"
     "cp.async.wait_group 1;\nld.shared.v4.u32 {%r20,%r21,%r22,%r23}, [%r9];\n"
     "cp.async.wait_group 0;\nld.shared.v4.u32 {%r24,%r25,%r26,%r27}, [%r30];\n"
     "setp.ne.u32 %p1, %r20, %r24;\n@%p1 mov.u32 %r20, 0;\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_async},
    {"cp_async_wait_all cp_async_ca", SHARED,
     SH_ADDRESS
     "mov.u32 %r30, 0;\ncp.async.ca.shared.global [%r9], [%rd1], 8;\n"
     "cp.async.ca.shared.global [%r9+8], [%rd1+8], 4, %r30;\n"
     "cp.async.ca.shared.global [%r9+12], [%rd1+12], 4;\ncp.async.wait_all;\n"
     "ld.shared.v4.u32 {%r20,%r21,%r22,%r23}, [%r9];\n" SAVE("%r20", "%r21", "%r22", "%r23"),
     want_async},
};

enum { CASES = sizeof cases / sizeof *cases };

static CUdeviceptr device_in, device_out;

static char *case_text(const struct machine_case *c) {
    char *text = NULL;
    if (asprintf(&text,
                 ".version 9.0\n.target sm_90\n.address_size 64\n%s"
                 ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                 ".reg .b64 %%rd<50>;\n.reg .b32 %%r<100>;\n.reg .b16 %%h<20>;\n"
                 ".reg .f32 %%f<20>;\n.reg .pred %%p<20>;\n"
                 "ld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\nmov.u32 %%r1, %%tid.x;\n"
                 "mad.wide.u32 %%rd1, %%r1, 16, %%rd1;\nmad.wide.u32 %%rd2, %%r1, 16, %%rd2;\n"
                 "%s\nret;\n}\n",
                 c->extra, c->body) < 0)
        return NULL;
    return text;
}

/* Number of threads with a wrong word; -1 when the kernel did not run. */
static int run_case(const struct machine_case *c, bool quiet) {
    uint32_t input[THREADS * WORDS], got[THREADS * WORDS];
    char *text = case_text(c);
    CUmodule module = tools_load(text, NULL);
    free(text);
    if (!module) {
        if (!quiet) printf("# %s", tools_log);
        return -1;
    }
    for (uint32_t k = 0; k < THREADS * WORDS; k++) input[k] = in(k);
    cuMemcpyHtoD_v2(device_in, input, sizeof input);
    cuMemsetD8_v2(device_out, 0xcc, sizeof got);
    void *params[] = {&device_in, &device_out};
    CUresult result = tools_launch(tools_function(module, "k"), 1, THREADS, 0, params);
    cuMemcpyDtoH_v2(got, device_out, sizeof got);
    cuModuleUnload(module);
    if (result) {
        if (!quiet) printf("# launch %d: %s\n", result, kvfExecutorLastFinding());
        return -1;
    }
    int wrong = 0;
    for (uint32_t t = 0; t < THREADS; t++) {
        uint32_t want[WORDS];
        c->expected(t, want);
        if (!memcmp(want, &got[t * WORDS], sizeof want)) continue;
        if (!wrong++ && !quiet)
            printf("# thread %u: %08x %08x %08x %08x, not %08x %08x %08x %08x\n", t, got[t * WORDS],
                   got[t * WORDS + 1], got[t * WORDS + 2], got[t * WORDS + 3], want[0], want[1],
                   want[2], want[3]);
    }
    return wrong;
}

static int form_by_name(const char *name, size_t length) {
    for (int i = 0; i < FORM_COUNT; i++)
        if (strlen(form_table[i].name) == length && !strncmp(form_table[i].name, name, length))
            return i;
    return -1;
}

static bool tested[FORM_COUNT];

static bool mutants_die(const struct machine_case *c) {
    bool all = true;
    for (const char *at = c->forms; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        int form = form_by_name(at, n);
        if (form < 0) {
            printf("# no form is called %.*s\n", (int)n, at);
            all = false;
        } else {
            tested[form] = true;
            form_mutate(form);
            if (run_case(c, true) == 0) {
                printf("# a planted fault in %s does not show\n", form_table[form].name);
                all = false;
            }
            form_mutate(-1);
        }
        at += n;
    }
    return all;
}

/* Forms that the other files test: plain arithmetic, and matrices. */
static bool tested_elsewhere(int form) {
    const struct form *f = &form_table[form];
    if (f->class == CLASS_TENSOR) return true;
    return f->class <= CLASS_MOVE && !strchr(f->signature, '*') && !strchr(f->signature, 'n') &&
           form != FORM_isspacep;
}

static void check_traps(void) {
    static const char *const names[] = {"trap", "brkpt"};
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof text, ".version 7.8\n.target sm_90\n.entry k()\n{\n%s;\nret;\n}\n",
                 names[i]);
        CUmodule module = tools_load(text, NULL);
        is(tools_launch(tools_function(module, "k"), 1, 32, 0, NULL), 719, names[i]);
        tested[form_by_name(names[i], strlen(names[i]))] = true;
        cuModuleUnload(module);
    }
}

int main(void) {
    tap_plan(2 * CASES + 2 + 1);
    setenv("KVF_EXECUTOR_STEPS", "1000000", 1);
    tools_start();
    device_in = tools_device(NULL, THREADS * WORDS * 4);
    device_out = tools_device(NULL, THREADS * WORDS * 4);
    for (int i = 0; i < CASES; i++) {
        is(run_case(&cases[i], false), 0, cases[i].forms);
        ok(mutants_die(&cases[i]), "planted faults in %s show", cases[i].forms);
    }
    check_traps();
    int missing = 0;
    for (int form = 0; form < FORM_COUNT; form++) {
        if (tested[form] || tested_elsewhere(form)) continue;
        printf("# nothing tests %s\n", form_table[form].name);
        missing++;
    }
    is(missing, 0, "every form that the decoder knows is tested");
    return tap_done();
}
