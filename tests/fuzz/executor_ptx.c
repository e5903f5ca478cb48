/*
 * PTX text from a stranger: module_parse must end with a module or with an error that names a line;
 * of what it accepts, a part runs for a few steps, and must end too. Now and then an instruction of
 * a form that the executor knows is put in, with operands that may fit, so that inputs get beyond
 * the first line.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config.h"
#include "launch.h"
#include "report.h"

enum { LONGEST = 4096, LINE = 400 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed);
/* libFuzzer's; the driver beside this file has none. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t room);

/* ---- an instruction ---- */

struct line {
    char text[LINE];
    size_t used;
    uint64_t state;
};

static uint32_t draw(struct line *l, uint32_t below) {
    l->state = l->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(l->state >> 33) % below;
}

static __attribute__((format(printf, 2, 3))) void add(struct line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, LINE - l->used, format, args);
    va_end(args);
    if (n > 0) l->used += (size_t)n < LINE - l->used ? (size_t)n : LINE - l->used - 1;
}

/* A register of so many bits as the seeds declare them, or a number. */
static void add_value(struct line *l, unsigned bits, bool only_register) {
    uint32_t which = draw(l, 8);
    if (!only_register && draw(l, 6) == 0)
        add(l, "%d", (int)draw(l, 80) - 8);
    else if (bits == 1)
        add(l, "%%p%u", which % 4);
    else
        add(l, "%s%u", bits == 64 ? "%rd" : bits == 32 ? (which & 1 ? "%f" : "%r") : "%h", which);
}

static void add_list(struct line *l, unsigned count, unsigned bits, bool only_register) {
    add(l, "{");
    for (unsigned i = 0; i < count; i++) {
        if (i) add(l, ",");
        add_value(l, bits, only_register);
    }
    add(l, "}");
}

static void add_address(struct line *l) {
    static const char *const bases[] = {"%rd1", "%r1", "sh", "%rd2", "g", "a", "%rd3", "loc"};
    add(l, "[%s+%u]", bases[draw(l, 8)], draw(l, 3) * 4);
}

static void add_operand(struct line *l, const struct op *o, const char **signature) {
    unsigned one = ptx_type_bits((enum ptx_type)o->type);
    unsigned two = ptx_type_bits((enum ptx_type)o->type2);
    unsigned count = o->vector ? o->vector : 1;
    char c = *(*signature)++;
    switch (c) {
    case 'd':
    case 'e': add_value(l, one, true); break;
    case 'D': add_value(l, 2 * one, true); break;
    case 's':
    case 'n': add_value(l, one, false); break;
    case 'S': add_value(l, 2 * one, false); break;
    case 'u':
    case 'r': add_value(l, two, false); break;
    case 'v': add_value(l, ptx_type_bits((enum ptx_type)o->type3), false); break;
    case 'h':
    case '2': add_value(l, 16, c == 'h'); break;
    case 'w':
    case 'R':
    case '4': add_value(l, 32, c != '4'); break;
    case 'W':
    case '8': add_value(l, 64, c == 'W'); break;
    case 'q':
    case 'Q':
    case 'p':
    case 'k':
        if (c == 'p' && draw(l, 3) == 0) add(l, "!");
        add_value(l, 1, true);
        if (c == 'Q' && draw(l, 3) == 0) add(l, "|%%p1");
        break;
    case 'x':
    case 'y':
        if (count > 1)
            add_list(l, count, one, c == 'x');
        else
            add_value(l, one, c == 'x');
        break;
    case 'a':
    case 'A': add_address(l); break;
    case 'l': add(l, "%s", draw(l, 2) ? "on" : "out"); break;
    case 'L':
        count = (unsigned)(*(*signature)++ - '0');
        add_list(l, count, 32, *(*signature)++ != 'f');
        break;
    case '{':
        add_list(l, count, 32, true);
        (*signature)++;
        break;
    default: add(l, "%u", draw(l, 3) * 8); break;
    }
}

struct choice {
    uint32_t wanted;
    char text[256];
};

static bool choose(void *context, const char *opcode) {
    struct choice *c = context;
    snprintf(c->text, sizeof c->text, "%s", opcode);
    return c->wanted-- > 0;
}

static const char *const others[] = {
    "mov.b32 %r1, {%h1,%h2}",
    "mov.b64 {%r1,%r2}, %rd1",
    "mov.u32 %r1, %tid.x",
    "mov.u32 %r1, sh",
    "mov.u64 %rd1, g",
    "mov.u64 %rd1, loc",
    "mov.pred %p1, %p2",
    "call (c), f, (b)",
    "{ .param .b32 b; .param .b32 c; call (c), f, (b); ld.param.b32 %r2, [c]; }",
    "t: .branchtargets on, out; brx.idx %r1, t",
    "bra.uni out",
    "@!%p1 bra out",
    "on: add.u32 %r3, %r3, 1",
    ".shared .align 16 .b8 sh[64]",
    ".local .align 8 .b8 loc[32]",
    ".reg .b32 %r<9>",
    ".reg .b64 %rd<9>",
    ".reg .pred %p<4>"};

static void make_line(struct line *l) {
    if (draw(l, 5) == 0) {
        add(l, "%s", others[draw(l, sizeof others / sizeof *others)]);
        return;
    }
    int form = (int)draw(l, FORM_COUNT);
    struct choice choice = {.wanted = draw(l, 12)};
    form_spell(form, choose, &choice);
    struct opcode_text opcode = {0};
    for (char *at = choice.text; at && opcode.count < 24; at = at ? at + 1 : NULL) {
        opcode.text[opcode.count] = at;
        opcode.length[opcode.count++] = (uint32_t)strcspn(at, ".");
        at = strchr(at, '.');
    }
    struct op op = {0};
    char why[200];
    if (form_match(&opcode, &op, why, sizeof why) < 0) return;
    if (draw(l, 6) == 0) add(l, "@%%p1 ");
    add(l, "%s ", choice.text);
    const char *at = form_table[form].signature;
    for (bool first = true; *at && *at != '*'; first = false) {
        if (!first) add(l, ", ");
        add_operand(l, &op, &at);
        if (*at == '?') at++;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t room, unsigned seed) {
    struct line l = {.state = seed};
    if (!form_prepare() || draw(&l, 3)) return LLVMFuzzerMutate(data, bytes, room);
    make_line(&l);
    add(&l, ";\n");
    if (bytes + l.used > room || !bytes) return LLVMFuzzerMutate(data, bytes, room);
    size_t at = draw(&l, (uint32_t)bytes);
    while (at < bytes && data[at] != '\n') at++;
    if (at < bytes) at++;
    memmove(data + at + l.used, data + at, bytes - at);
    memcpy(data + at, l.text, l.used);
    return bytes + l.used;
}

/* ---- one input ---- */

static void run_kernel(struct module *m, const struct function *f) {
    static struct config config;
    static struct memory memory;
    static struct reporter reporter;
    static bool started;
    if (!started) {
        char why[200];
        setenv("KVF_EXECUTOR_REPORT", "/dev/null", 1);
        setenv("KVF_EXECUTOR_STEPS", "500", 1);
        setenv("KVF_EXECUTOR_THREADS", "1", 1);
        setenv("KVF_EXECUTOR_ISA", "base", 1);
        if (!config_read(&config, why, sizeof why) || !memory_start(&memory, 1 << 20) ||
            !reporter_start(&reporter, &config))
            abort();
        started = true;
    }
    struct launch launch = {.module = m,
                            .function = f,
                            .memory = &memory,
                            .config = &config,
                            .reporter = &reporter,
                            .grid = {1, 1, 1},
                            .dimensions = {33, 1, 1},
                            .shared_bytes = f->dynamic_start + 256,
                            .number = 1};
    struct launch_totals totals;
    launch.params = calloc(1, f->param_bytes + 16);
    if (launch.params && launch.shared_bytes < 1 << 20) launch_run(&launch, &totals);
    free(launch.params);
}

/* Running costs more than parsing: every eighth input does, always the same ones. */
static bool is_run(const uint8_t *data, size_t bytes) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ data[i]) * 16777619u;
    return (hash >> 20 & 7) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct parse_error error;
    bool out_of_memory;
    uint32_t version, target;
    char suffix;
    if (bytes > LONGEST) return -1;
    module_header((const char *)data, bytes, &version, &target, &suffix);
    struct module *m = module_parse((const char *)data, bytes, &error, &out_of_memory);
    if (!m) {
        if (!out_of_memory && !error.text[0]) abort(); /* a refusal says why */
        return 0;
    }
    module_bind(m);
    for (const struct function *f = m->functions; f; f = f->next)
        if (f->entry && is_run(data, bytes)) run_kernel(m, f);
    module_free(m);
    return 0;
}
