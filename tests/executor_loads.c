/*
 * Loads and stores: every type, vector and space, with the rest of each spelling. A thread has 32
 * bytes of its own; a load's registers are wider than its type where that is allowed, which shows
 * the extension; a store must leave the bytes beside it alone. All spellings without hints to the
 * caches are run, of those with hints every eighth (by a hash).
 */
#include "executor_oracle.h"
#include "executor_tools.h"
#include "forms.h"

enum { THREADS = 32, WORDS = 4 };

static uint64_t inputs[THREADS][2][WORDS], outputs[THREADS][WORDS]; /* memory, values */
static CUdeviceptr device_in, device_out;

struct shape {
    struct query q;
    const char *type, *space;
    int bits, width, count; /* of an element; of its register */
    bool load;
};

static void shape_of(struct shape *s, const char *opcode) {
    q_parse(&s->q, opcode);
    s->type = s->q.word[s->q.words - 1];
    s->bits = q_bits(s->type);
    s->load = !q_is(&s->q, "st");
    s->count = q_has(&s->q, "v4") ? 4 : q_has(&s->q, "v2") ? 2 : 1;
    s->width = q_float(s->type) ? s->bits : 64;
    s->space = strstr(opcode, ".shared") ? "shared"
               : q_has(&s->q, "global")  ? "global"
               : q_has(&s->q, "local")   ? "local"
               : q_has(&s->q, "const")   ? "const"
                                         : "";
}

static const char *register_of(int bits) {
    return bits == 64 ? "%rd" : bits == 32 ? "%r" : "%h";
}

/* `memory` is where the bytes are: the space, or one of those that a generic address may mean. */
static void kernel_of(char *text, size_t size, const char *opcode, const struct shape *s,
                      const char *memory) {
    const char *r = register_of(s->width);
    char list[80] = "", address[80], move[500] = "", back[300] = "", in[200] = "", out[300] = "";
    size_t used = 0;
    for (int k = 0; k < s->count; k++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s%d", k ? ", " : "", r, 10 + k);
    bool shared = !strcmp(memory, "shared"), local = !strcmp(memory, "local");
    if (shared || local) {
        snprintf(move, sizeof move,
                 "mov.u32 %%r9, %s;\n%scvt.u64.u32 %%rd6, %%r9;\nst.%s.v2.b64 [%%r9], {%%rd20, "
                 "%%rd21};\nst.%s.v2.b64 [%%r9+16], {%%rd22, %%rd23};\n",
                 shared ? "sh" : "lo", shared ? "mad.lo.u32 %r9, %r1, 32, %r9;\n" : "", memory,
                 memory);
        snprintf(back, sizeof back,
                 "ld.%s.v2.b64 {%%rd20, %%rd21}, [%%r9];\nld.%s.v2.b64 {%%rd22, %%rd23}, "
                 "[%%r9+16];\n",
                 memory, memory);
    } else {
        snprintf(move, sizeof move, "mov.u64 %%rd6, %%rd3;\n");
        snprintf(back, sizeof back,
                 "ld.global.v2.b64 {%%rd20, %%rd21}, [%%rd3];\nld.global.v2.b64 {%%rd22, %%rd23}, "
                 "[%%rd3+16];\n");
    }
    if (!*s->space && (shared || local))
        snprintf(address, sizeof address, "cvta.%s.u64 %%rd6, %%rd6;\n", memory);
    else
        address[0] = 0;
    used = 0;
    for (int k = 0; k < s->count; k++) {
        if (s->load)
            used +=
                (size_t)snprintf(out + used, sizeof out - used, "st.global.b%d [%%rd4+%d], %s%d;\n",
                                 s->width, 8 * k, r, 10 + k);
        else
            used +=
                (size_t)snprintf(in + used, sizeof in - used, "ld.global.b%d %s%d, [%%rd3+%d];\n",
                                 s->width, r, 10 + k, 32 + 8 * k);
    }
    char braces[100];
    snprintf(braces, sizeof braces, s->count > 1 ? "{%s}" : "%s", list);
    snprintf(text, size,
             ".version 8.5\n.target sm_90\n.address_size 64\n"
             ".visible .entry k(.param .u64 p, .param .u64 q)\n{\n.reg .b64 %%rd<30>;\n.reg .b32 "
             "%%r<20>;\n.reg .b16 %%h<20>;\n.shared .align 32 .b8 sh[1024];\n.local .align 32 .b8 "
             "lo[32];\nld.param.u64 %%rd1, [p];\nld.param.u64 %%rd2, [q];\nmov.u32 %%r1, %%tid.x;\n"
             "mul.wide.u32 %%rd3, %%r1, 64;\nadd.u64 %%rd3, %%rd1, %%rd3;\n"
             "mul.wide.u32 %%rd4, %%r1, 32;\nadd.u64 %%rd4, %%rd2, %%rd4;\n"
             "ld.global.v2.b64 {%%rd20, %%rd21}, [%%rd3];\n"
             "ld.global.v2.b64 {%%rd22, %%rd23}, [%%rd3+16];\n%s%s%s%s %s%s%s%s%s;\n%s",
             in, move, address, opcode, s->load ? braces : "[%rd6]", ", ",
             s->load ? "[%rd6]" : braces, "", "", s->load ? out : back);
    used = strlen(text);
    snprintf(text + used, size - used, "%sret;\n}\n",
             s->load ? ""
                     : "st.global.v2.b64 [%rd4], {%rd20, %rd21};\nst.global.v2.b64 [%rd4+16], "
                       "{%rd22, %rd23};\n");
}

/* What the registers of a load, or the memory after a store, must be. */
static void want_of(const struct shape *s, int thread, uint64_t want[WORDS]) {
    const uint8_t *memory = (const uint8_t *)inputs[thread][0];
    size_t bytes = (size_t)s->bits / 8;
    memset(want, 0, WORDS * sizeof *want);
    if (!s->load) {
        memcpy(want, memory, WORDS * sizeof *want);
        for (size_t k = 0; k < (size_t)s->count; k++)
            memcpy((uint8_t *)want + k * bytes, &inputs[thread][1][k], bytes);
        return;
    }
    for (size_t k = 0; k < (size_t)s->count; k++) {
        uint64_t x = 0;
        memcpy(&x, memory + k * bytes, bytes);
        if (s->type[0] == 's') x = (uint64_t)((int64_t)(x << (64 - s->bits)) >> (64 - s->bits));
        want[k] = x;
    }
}

static int run(const char *opcode, const struct shape *s, const char *memory) {
    char text[4000];
    kernel_of(text, sizeof text, opcode, s, memory);
    CUmodule module = tools_load(text, NULL);
    if (!module) {
        tap_note("%s: %s", opcode, tools_log);
        return 1;
    }
    for (size_t i = 0; i < sizeof inputs / sizeof(uint32_t); i++)
        ((uint32_t *)inputs)[i] = tools_random() ^ tools_random() << 11;
    memset(outputs, 0, sizeof outputs);
    cuMemcpyHtoD_v2(device_in, inputs, sizeof inputs);
    cuMemcpyHtoD_v2(device_out, outputs, sizeof outputs);
    void *params[] = {&device_in, &device_out};
    int wrong = tools_launch(tools_function(module, "k"), 1, THREADS, 0, params) != 0;
    cuMemcpyDtoH_v2(outputs, device_out, sizeof outputs);
    cuModuleUnload(module);
    for (int i = 0; i < THREADS; i++) {
        uint64_t want[WORDS];
        want_of(s, i, want);
        if (memcmp(want, outputs[i], sizeof want) != 0 && !wrong++)
            tap_note("%s in %s memory, thread %d: %llx, not %llx", opcode, memory, i,
                     (unsigned long long)outputs[i][0], (unsigned long long)want[0]);
    }
    return wrong;
}

struct tally {
    int form, spellings, wrong;
};

static uint32_t hash_of(const char *text) {
    uint32_t h = 2166136261u;
    for (; *text; text++) h = (h ^ (uint8_t)*text) * 16777619u;
    return h ^ h >> 15;
}

static bool each_spelling(void *context, const char *opcode) {
    struct tally *t = context;
    struct shape s;
    shape_of(&s, opcode);
    if (s.bits * s.count > 128 || !strcmp(s.space, "const")) return true;
    /* Base, order, space, vector and type: the whole spelling; else there are hints. */
    int plain = 2 + (*s.space != 0) + (s.count > 1) + q_has(&s.q, "nc") + q_has(&s.q, "volatile");
    if (t->form == FORM_ld_order || t->form == FORM_st_order) plain += 2;
    if (s.q.words > plain && hash_of(opcode) % 8) return true;
    static const char *const generic[] = {"global", "shared", "local"};
    if (*s.space)
        t->wrong += run(opcode, &s, s.space);
    else
        for (int i = 0; i < (t->form == FORM_ldu ? 1 : 3); i++)
            t->wrong += run(opcode, &s, generic[i]);
    t->spellings++;
    return true;
}

int main(void) {
    static const int forms[] = {FORM_ld,  FORM_ld_nc, FORM_ld_volatile, FORM_ld_order,
                                FORM_ldu, FORM_st,    FORM_st_volatile, FORM_st_order};
    enum { FORMS = sizeof forms / sizeof *forms };
    tap_plan(FORMS);
    tools_start();
    device_in = tools_device(NULL, sizeof inputs);
    device_out = tools_device(NULL, sizeof outputs);
    for (int i = 0; i < FORMS; i++) {
        struct tally t = {.form = forms[i]};
        form_spell(forms[i], each_spelling, &t);
        ok(t.spellings > 0 && !t.wrong, "%s: %d spellings", form_table[forms[i]].pattern,
           t.spellings);
    }
    return tap_done();
}
