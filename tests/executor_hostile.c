/* Modules that mean harm end in an error that names a line, or in a finding, never in a crash. */
#include <stdarg.h>
#include <time.h>

#include "executor_tools.h"

static char *big;

static const char *repeat(const char *head, const char *part, int times, const char *tail) {
    size_t size = strlen(head) + strlen(part) * (size_t)times + strlen(tail) + 1, used;
    free(big);
    big = malloc(size);
    if (!big) return "";
    used = (size_t)sprintf(big, "%s", head);
    for (int i = 0; i < times; i++) used += (size_t)sprintf(big + used, "%s", part);
    sprintf(big + used, "%s", tail);
    return big;
}

#define HEADER ".version 7.8\n.target sm_90\n.address_size 64\n"
#define KERNEL HEADER ".visible .entry k(.param .u64 p)\n{\n"

static void refuse(const char *what, const char *text, const char *reason) {
    CUresult result;
    CUmodule module = tools_load(text, &result);
    ok(result == 218 && strstr(tools_log, reason), "%s", what);
    if (result != 218 || !strstr(tools_log, reason)) printf("# %d %s\n", result, tools_log);
    if (module) cuModuleUnload(module);
}

static void refuse_all(void) {
    refuse("a vector of a thousand registers",
           repeat(KERNEL ".reg .b32 %r<5>;\nmov.b64 %r1, {%r1", ", %r1", 1000, "};\nret;\n}\n"),
           "more than");
    refuse("a thousand operands",
           repeat(KERNEL ".reg .b32 %r<5>;\nadd.u32 %r1", ", %r1", 1000, ";\nret;\n}\n"),
           "operands");
    refuse("braces a hundred thousand deep", repeat(KERNEL, "{", 100000, ""), "deep");
    refuse("brackets in brackets", repeat(KERNEL ".reg .b64 %r1;\nmov.b64 %r1, ", "{", 1000, ";"),
           "nest");
    refuse("initial values a thousand deep",
           repeat(HEADER ".global .u32 x[4] = ", "{", 1000, "1};\n"), "nest");
    refuse("four billion registers", KERNEL ".reg .b32 %r<4000000000>;\nret;\n}\n", "registers");
    refuse("registers by many declarations",
           repeat(KERNEL, "{ .reg .b64 %x<30000>; }\n", 4, "ret;\n}\n"), "registers");
    refuse("gigabytes of shared memory",
           KERNEL ".shared .b8 s[4000000000];\n.reg .b32 %r1;\nmov.u32 "
                  "%r1, s;\nret;\n}\n",
           "shared");
    refuse("a byte more static shared memory than a block has",
           KERNEL ".shared .b8 s[32768];\n.shared .b8 t[16385];\n.reg .b32 %r1;\nmov.u32 %r1, "
                  "s;\nmov.u32 %r1, t;\nret;\n}\n",
           "shared");
    refuse("more shared memory than numbers hold",
           KERNEL ".shared .b64 s[2305843009213693952];\nret;\n}\n", "large");
    refuse("gigabytes of local memory", KERNEL ".local .b8 s[4000000000];\nret;\n}\n", "local");
    refuse("an array of many dimensions", HEADER ".global .b8 s[9][9][9][9][9][9][9][9][9];\n",
           "dimensions");
    refuse("a number beyond 64 bits", KERNEL ".reg .b64 %r1;\nmov.u64 %r1, 99999999999999999999;\n",
           "cannot read");
    refuse("an unclosed comment", KERNEL "/* ret;\n}\n", "line 6: cannot read '/*");
    refuse("an unclosed comment behind the last function", KERNEL "ret;\n}\n/*\n",
           "line 8: cannot read '/*");
    refuse("an unclosed string", HEADER ".file 1 \"abc\n", "cannot read");
    refuse("bytes that are no text", HEADER "\x01\x02\xff\xfe", "cannot read");
    refuse("a module that just ends", KERNEL, "not closed");
    refuse("a label twice", KERNEL "a:\na:\nret;\n}\n", "twice");
    refuse("a function twice", HEADER ".entry k()\n{\nret;\n}\n.entry k()\n{\nret;\n}\n", "twice");
    refuse("a function that is somewhere else",
           HEADER ".extern .func g();\n.entry k()\n{\ncall g, ();\nret;\n}\n",
           "'g' is not defined");
    refuse("a branch out of its scope", KERNEL "bra x;\n{\nx:\nret;\n}\n}\n", "not defined");
    refuse("parameters without end", repeat(HEADER ".entry k(", ".param .b8 x[9000],\n", 9, ")\n"),
           "parameters");
}

/* ---- by the hundred thousand: what takes more than its share of time does not end here ---- */

static size_t big_used, big_size;

static __attribute__((format(printf, 1, 2))) void add(const char *format, ...) {
    if (big_size - big_used < 300) {
        char *grown = realloc(big, big_size = 2 * big_size + 1000);
        if (!grown) exit(1);
        big = grown;
    }
    va_list args;
    va_start(args, format);
    big_used += (size_t)vsnprintf(big + big_used, 300, format, args);
    va_end(args);
}

static void start(const char *head) {
    big_used = 0;
    add("%s", head);
}

/* Loads `big`; it must be accepted (reason null) or refused for the reason, in a few seconds. */
static void quickly(const char *what, const char *reason) {
    clock_t before = clock();
    CUresult result;
    CUmodule module = tools_load(big, &result);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    bool good = reason ? result == 218 && strstr(tools_log, reason) : result == 0;
    ok(good && seconds < 20, "%s", what);
    tap_note("%.2f s, %zu bytes of text, %d %s", seconds, big_used, result, tools_log);
    if (module) cuModuleUnload(module);
}

static void load_many(void) {
    enum { MANY = 200000 };
    start(KERNEL);
    for (int i = 0; i < MANY; i++) add("L%d:\n", i);
    add("bra L%d;\n}\n", MANY / 2);
    quickly("labels by the hundred thousand", NULL);
    start(KERNEL);
    for (int i = 0; i < MANY; i++) add(".reg .b32 r%d;\n", i);
    quickly("registers by the hundred thousand, each declared", "registers");
    start(KERNEL ".reg .b32 %r<9>;\n");
    for (int i = 0; i < MANY; i++) add("add.u32 %%r1, %%r1, %d;\n", 7 * i);
    add("}\n");
    quickly("constants by the hundred thousand", NULL);
    start(HEADER);
    for (int i = 0; i < MANY; i++) add(".func f%d() { ret; }\n", i);
    quickly("functions by the hundred thousand", NULL);
    start(HEADER ".extern .shared .b8 dynamic[];\n");
    for (int i = 0; i < MANY / 4; i++)
        add(".func f%d() { .reg .b32 %%r; mov.u32 %%r, dynamic; }\n.entry k%d() { .reg .b32 %%r; "
            "mov.u32 %%r, dynamic; }\n",
            i, i);
    quickly("functions and kernels by the ten thousand with dynamic shared memory", NULL);
    start(HEADER ".global .u64 v0;\n");
    for (int i = 1; i < 20000; i++) add(".global .u64 v%d = v%d;\n", i, i - 1);
    quickly("variables by the ten thousand that point at each other", NULL);
    start(HEADER);
    for (int i = 0; i < 49152; i++) add(".shared .b8 s%d;\n", i);
    add(".entry k() {\n.reg .b32 %%r;\n");
    for (int i = 0; i < 49152; i++) add("mov.u32 %%r, s%d;\n", i);
    add("}\n");
    quickly("every byte of shared memory a variable", NULL);
    start(HEADER ".global .b8 big[2147483648];\n.global .b8 bigger[60000000000];\n");
    quickly("gigabytes of .global", NULL);
    start(KERNEL);
    for (int i = 0; i < MANY; i++) add("{ x: bra x; }\n");
    add("}\n");
    quickly("scopes by the hundred thousand", NULL);
    start(HEADER);
    for (int i = 0; i < MANY; i++) add(".file %d \"a\"\n.pragma \"x\";\n", i);
    add(".entry k(\n");
    for (int i = 0; i < MANY; i++) add(".param .b8 p%d,\n", i);
    quickly("parameters by the hundred thousand", "parameters");
}

static CUresult run(const char *text, unsigned threads) {
    CUmodule module = tools_load(text, NULL);
    if (!module) {
        printf("# %s\n", tools_log);
        return -1;
    }
    CUdeviceptr p = 0;
    void *params[] = {&p};
    CUresult result = tools_launch(tools_function(module, "k"), 1, threads, 0, params);
    cuModuleUnload(module);
    return result;
}

static void run_all(void) {
    is(run(HEADER
           ".func f()\n{\ncall f, ();\nret;\n}\n.visible .entry k(.param .u64 p)\n{\ncall f, "
           "();\nret;\n}\n",
           32),
       719, "endless recursion");
    contains(kvfExecutorLastFinding(), "call stack overflow", "is called what it is");
    is(run(KERNEL "again:\nbra again;\n}\n", 64), 702, "an endless loop");
    is(run(KERNEL ".reg .b32 %r1;\n.reg .pred %p1;\nmov.u32 %r1, %laneid;\nsetp.eq.u32 %p1, %r1, "
                  "0;\n@%p1 bra out;\nbar.sync 0;\nout:\nbar.warp.sync -1;\nret;\n}\n",
           32),
       719, "lanes that wait for each other");
    is(run(KERNEL ".reg .b32 %r1;\n.reg .pred %p1;\nmov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, "
                  "32;\n@%p1 bra out;\nbar.sync 0, 64;\nout:\nret;\n}\n",
           64),
       719, "a barrier that half of its threads never reach");
    is(run(KERNEL ".reg .b64 %r1;\nmov.u64 %r1, 77;\ncall %r1, ();\nret;\n}\n", 1), 719,
       "a call of no function");
    is(run(KERNEL ".reg .b64 %r<3>;\nmov.u64 %r1, -8;\nld.u64 %r2, [%r1];\nret;\n}\n", 32), 700,
       "an address at the end of the space");
    is(run(KERNEL ".reg .b64 %r<3>;\nmov.u64 %r1, -1;\nld.param.u64 %r2, [%r1];\nret;\n}\n", 32),
       700, "a parameter at the end of the space");
    is(run(KERNEL ".reg .b64 %r<3>;\nld.param.u64 %r2, [-4];\nret;\n}\n", 32), 700,
       "a parameter before the first");
    is(run(HEADER ".func f()\n{\nret;\n}\n"
                  ".entry k(.param .u64 p)\n{\n.param .b64 x;\n.reg .b64 %r1;\nmov.u64 %r1, "
                  "-1;\nst.param.u64 [%r1], %r1;\nret;\n}\n",
           32),
       700, "a call's parameter at the end of the space");
    is(run(KERNEL ".reg .b32 %r<3>;\nld.shared.u32 %r1, [0];\nret;\n}\n", 32), 700,
       "shared memory that nobody has");
    is(run(KERNEL ".reg .b32 %r<3>;\n.shared .b8 s[8];\nmov.u32 %r1, s;\nld.shared.u32 %r2, "
                  "[%r1+6];\nret;\n}\n",
           32),
       700, "the end of shared memory");
    is(run(KERNEL ".reg .b32 %r<3>;\n.shared .b8 s[49152];\nmov.u32 %r1, s;\nst.shared.u8 "
                  "[%r1+49151], %r1;\nret;\n}\n",
           1),
       0, "all the static shared memory that a block has");
    is(run(KERNEL "bar.sync 77;\nret;\n}\n", 32), 719, "a barrier that is not there");
    is(run(KERNEL "bar.sync 1, 33;\nret;\n}\n", 32), 719, "a barrier of 33 threads");
}

int main(void) {
    tap_plan(23 + 10 + 15);
    setenv("KVF_EXECUTOR_STEPS", "100000", 1);
    tools_start();
    refuse_all();
    load_many();
    run_all();
    free(big);
    return tap_done();
}
