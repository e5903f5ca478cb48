/*
 * KVF_EXECUTOR_SEED: every block, warp and group of lanes takes a ticket; seed 0 gives them in the
 * natural order, other seeds in others, one seed always in the same. And shuffles of every distance
 * and width.
 */
#include "executor_tools.h"

#define HEAD                                                                                       \
    ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 " \
    "q, .param .u32 b)\n{\n.reg .b64 %rd<9>;\n.reg .b32 %r<20>;\n.reg .pred %p<9>;\n"              \
    "ld.param.u64 %rd1, [p];\nld.param.u64 %rd2, [q];\nld.param.u32 %r9, [b];\n"                   \
    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %laneid;\n"
/* q[%r4] = p[0]++ */
#define TICKET                                                                                     \
    "atom.global.add.u32 %r5, [%rd1], 1;\nmul.wide.u32 %rd3, %r4, 4;\nadd.u64 %rd4, %rd2, %rd3;\n" \
    "st.global.u32 [%rd4], %r5;\n"

enum { MOST = 64 };

static const struct order {
    const char *name, *text;
    uint32_t blocks, threads, tickets;
} orders[] = {
    {"blocks", HEAD "mov.u32 %r4, %r2;\n" TICKET "ret;\n}\n", 40, 1, 40},
    /* The first lane of each of 16 warps. */
    {"warps",
     HEAD "setp.ne.u32 %p1, %r3, 0;\n@%p1 bra end;\nshr.u32 %r4, %r1, 5;\n" TICKET
          "end:\nret;\n}\n",
     1, 512, 16},
    /* Lanes 0 and 1 part; each takes a ticket on a way of its own. */
    {"groups of lanes",
     HEAD "mov.u32 %r4, %r3;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra other;\n" TICKET
          "bra end;\nother:\n" TICKET "end:\nret;\n}\n",
     1, 2, 2},
};
enum { ORDERS = sizeof orders / sizeof *orders, SEEDS = 24 };

/* In a process of its own, as the seed is read once: print the tickets of every order. */
static int inner(void) {
    static const uint32_t zero;
    tools_start();
    for (int i = 0; i < ORDERS; i++) {
        const struct order *o = &orders[i];
        CUmodule module = tools_load(o->text, NULL);
        CUdeviceptr counter = tools_device(&zero, 4), out = tools_device(NULL, 4 * MOST);
        uint32_t got[MOST], unused = 0;
        void *params[] = {&counter, &out, &unused};
        if (!module || tools_launch(tools_function(module, "k"), o->blocks, o->threads, 0, params))
            return 1;
        cuMemcpyDtoH_v2(got, out, 4 * o->tickets);
        for (uint32_t t = 0; t < o->tickets; t++) printf("%u ", got[t]);
        printf("\n");
    }
    return 0;
}

/* The tickets of all orders under one seed; false if they could not be read. */
static bool run(const char *program, int seed, uint32_t got[ORDERS][MOST]) {
    char command[300];
    snprintf(command, sizeof command, "KVF_EXECUTOR_THREADS=1 KVF_EXECUTOR_SEED=%d %s inner", seed,
             program);
    FILE *pipe = popen(command, "r");
    bool good = pipe != NULL;
    for (int i = 0; i < ORDERS && good; i++)
        for (uint32_t t = 0; t < orders[i].tickets && good; t++)
            good = fscanf(pipe, "%u", &got[i][t]) == 1;
    return pipe && !pclose(pipe) && good;
}

static bool each_once(const uint32_t *ticket, uint32_t count) {
    uint64_t seen = 0;
    for (uint32_t t = 0; t < count; t++)
        if (ticket[t] < count) seen |= (uint64_t)1 << ticket[t];
    return seen == ((uint64_t)1 << count) - 1;
}

static void check_orders(const char *program) {
    static uint32_t all[SEEDS][ORDERS][MOST], again[ORDERS][MOST];
    bool good = true;
    for (int seed = 0; seed < SEEDS; seed++) good = run(program, seed, all[seed]) && good;
    ok(good && run(program, 7, again), "every seed runs");
    for (int i = 0; i < ORDERS; i++) {
        const struct order *o = &orders[i];
        bool natural = true, once = true;
        int other = 0;
        for (uint32_t t = 0; t < o->tickets; t++) natural = natural && all[0][i][t] == t;
        for (int seed = 0; seed < SEEDS; seed++) {
            once = once && each_once(all[seed][i], o->tickets);
            other += memcmp(all[seed][i], all[0][i], 4 * o->tickets) != 0;
        }
        ok(natural, "seed 0 runs %s in their order", o->name);
        ok(once, "each of the %s runs once", o->name);
        ok(other > 0, "other seeds run %s in other orders (%d of %d)", o->name, other, SEEDS - 1);
        same(again[i], all[7][i], 4 * o->tickets, "the same seed gives the same order");
    }
}

/* ---- shuffles ---- */

/* The lane that `lane` reads, in segments of `width` lanes; itself where there is no such lane. */
static uint32_t source(const char *mode, uint32_t lane, uint32_t b, uint32_t width) {
    uint32_t first = lane / width * width, last = first + width - 1;
    if (*mode == 'u') return lane >= first + b ? lane - b : lane;
    if (*mode == 'd') return lane + b <= last ? lane + b : lane;
    if (*mode == 'i') return first + b % width;
    uint32_t partner = lane ^ b; /* a segment before one's own may be read, one behind it not */
    return partner <= last ? partner : lane;
}

static void check_shuffles(const char *mode) {
    int wrong = 0;
    CUdeviceptr out = tools_device(NULL, 4 * 32);
    for (uint32_t width = 32; width > 1; width /= 2) {
        char text[1000];
        uint32_t c = (32 - width) << 8 | (*mode == 'u' ? 0 : 31);
        snprintf(text, sizeof text,
                 "%smad.lo.u32 %%r10, %%r3, 7, 100;\nshfl.sync.%s.b32 %%r11, %%r10, %%r9, %u, -1;\n"
                 "mul.wide.u32 %%rd3, %%r3, 4;\nadd.u64 %%rd4, %%rd2, %%rd3;\n"
                 "st.global.u32 [%%rd4], %%r11;\nret;\n}\n",
                 HEAD, mode, c);
        CUmodule module = tools_load(text, NULL);
        for (uint32_t b = 0; b < 32; b++) {
            uint32_t got[32] = {0};
            void *params[] = {&out, &out, &b};
            if (tools_launch(tools_function(module, "k"), 1, 32, 0, params)) wrong++;
            cuMemcpyDtoH_v2(got, out, sizeof got);
            for (uint32_t lane = 0; lane < 32; lane++)
                if (got[lane] != 100 + 7 * source(mode, lane, b, width) && !wrong++)
                    tap_note("width %u, operand %u, lane %u: %u", width, b, lane, got[lane]);
        }
        cuModuleUnload(module);
    }
    ok(!wrong, "shfl.%s of every distance and width", mode);
}

/*
 * Blocks that wait for the one before, with more of them than one thread keeps at a time; the first
 * is so long that all others have had to be put aside.
 */
static void check_waiting_blocks(void) {
    enum { BLOCKS = 100 };
    static const uint32_t zero;
    uint32_t rounds = 2500000, got = 0;
    CUmodule module = tools_load(
        HEAD "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra wait;\nlong:\nsub.u32 %r9, %r9, 1;\n"
             "setp.ne.u32 %p2, %r9, 0;\n@%p2 bra long;\nwait:\nld.acquire.gpu.global.u32 %r5, "
             "[%rd1];\nsetp.ne.u32 %p3, %r5, %r2;\n@%p3 bra wait;\nred.release.gpu.global.add.u32 "
             "[%rd1], 1;\nret;\n}\n",
        NULL);
    CUdeviceptr turn = tools_device(&zero, 4);
    void *params[] = {&turn, &turn, &rounds};
    is(tools_launch(tools_function(module, "k"), BLOCKS, 1, 0, params), 0,
       "blocks that wait for those before them all come to their turn");
    cuMemcpyDtoH_v2(&got, turn, 4);
    is(got, BLOCKS, "every one of them");
}

int main(int argc, char **argv) {
    if (argc > 1) return inner();
    tap_plan(1 + 4 * ORDERS + 4 + 2);
    check_orders(argv[0]);
    setenv("KVF_EXECUTOR_THREADS", "1", 1);
    setenv("KVF_EXECUTOR_STEPS", "100000000", 1);
    tools_start();
    check_shuffles("up");
    check_shuffles("down");
    check_shuffles("bfly");
    check_shuffles("idx");
    check_waiting_blocks();
    return tap_done();
}
