/*
 * A kernel around one instruction: each thread loads its operands as 64-bit words, executes the
 * instruction once, and stores what it gave. Built from the signature of the form.
 */
#ifndef EXECUTOR_KERNELS_H
#define EXECUTOR_KERNELS_H

#include <stdarg.h>

#include "executor_oracle.h"
#include "forms.h"

enum { SOURCES = 5, RESULTS = 3, LANES_TESTED = 256 };

/* What an operand of the signature is in the kernel: its width, 1 for a predicate. */
struct kernel_operand {
    bool destination;
    int bits;
    int source; /* which input word, or -1 */
};

struct kernel_text {
    char text[8192];
    size_t used;
    int sources, results;
    int result_bits[RESULTS];
    bool result_float;
};

__attribute__((format(printf, 2, 3))) static void kernel_add(struct kernel_text *k,
                                                             const char *format, ...) {
    va_list args;
    va_start(args, format);
    k->used += (size_t)vsnprintf(k->text + k->used, sizeof k->text - k->used, format, args);
    va_end(args);
}

static const char *kernel_register(int bits) {
    return bits == 64 ? "%rd" : bits == 32 ? "%r" : bits == 16 ? "%h" : "%p";
}

/* Load input word `index` into a fresh register of the width; its number is the index. */
static void kernel_load(struct kernel_text *k, int index, int bits) {
    const char *r = kernel_register(bits);
    if (bits == 1) {
        kernel_add(k, "ld.global.u32 %%r%d, [%%rd90+%d];\nsetp.ne.u32 %%p%d, %%r%d, 0;\n",
                   20 + index, index * 8, index, 20 + index);
        return;
    }
    kernel_add(k, "ld.global.b%d %s%d, [%%rd90+%d];\n", bits, r, index, index * 8);
}

static void kernel_store(struct kernel_text *k, int index, int bits) {
    if (bits == 1)
        kernel_add(k, "selp.b64 %%rd80, 1, 0, %%p%d;\n", 10 + index);
    else if (bits == 64)
        kernel_add(k, "mov.b64 %%rd80, %%rd%d;\n", 10 + index);
    else if (bits == 32)
        kernel_add(k, "cvt.u64.u32 %%rd80, %%r%d;\n", 10 + index);
    else
        kernel_add(k, "cvt.u64.u16 %%rd80, %%h%d;\n", 10 + index);
    kernel_add(k, "st.global.b64 [%%rd91+%d], %%rd80;\n", index * 8);
}

static int kernel_wide(int bits) {
    return bits < 16 ? 16 : bits;
}

/*
 * Returns false when the signature has letters that only other tests know. `wide` makes the
 * register of a relaxed operand (cvt) 64 bits.
 */
static bool kernel_build(struct kernel_text *k, const char *opcode, const char *signature,
                         const char *header, bool relaxed_wide, int immediate) {
    struct query q;
    char operands[512] = "";
    size_t used = 0;
    q_parse(&q, opcode);
    memset(k, 0, sizeof *k);
    kernel_add(
        k,
        "%s.visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
        ".reg .b64 %%rd<100>;\n.reg .b32 %%r<100>;\n.reg .b16 %%h<40>;\n.reg .pred %%p<40>;\n"
        "ld.param.u64 %%rd92, [in];\nld.param.u64 %%rd93, [out];\n"
        "mov.u32 %%r90, %%ctaid.x;\nmov.u32 %%r91, %%ntid.x;\nmov.u32 %%r92, %%tid.x;\n"
        "mad.lo.u32 %%r93, %%r90, %%r91, %%r92;\n"
        "mad.wide.u32 %%rd90, %%r93, %d, %%rd92;\nmad.wide.u32 %%rd91, %%r93, %d, %%rd93;\n",
        header, SOURCES * 8, RESULTS * 8);
    int bits = q_bits(q.type[0]);
    for (const char *s = signature; *s; s++) {
        bool destination = strchr("dDhwWeRqQ", *s) != NULL;
        int w;
        switch (*s) {
        case 'd':
        case 's': w = kernel_wide(bits); break;
        case 'D':
        case 'S': w = 2 * bits; break;
        case 'u': w = kernel_wide(q_bits(q.type[1])); break;
        case 'e': w = relaxed_wide ? 64 : kernel_wide(bits); break;
        case 'r': w = relaxed_wide ? 64 : kernel_wide(q_bits(q.type[1])); break;
        case 'h':
        case '2': w = 16; break;
        case 'w':
        case '4': w = 32; break;
        case 'W':
        case '8': w = 64; break;
        case 'q':
        case 'Q':
        case 'p':
        case 'k': w = 1; break;
        case 'i':
            used += (size_t)snprintf(operands + used, sizeof operands - used, ", %d", immediate);
            continue;
        default: return false;
        }
        used +=
            (size_t)snprintf(operands + used, sizeof operands - used, "%s%s%d", used ? ", " : "",
                             kernel_register(w), destination ? 10 + k->results : k->sources);
        if (destination) {
            k->result_bits[k->results++] = w;
            if (*s == 'Q') {
                used += (size_t)snprintf(operands + used, sizeof operands - used, "|%%p%d",
                                         10 + k->results);
                k->result_bits[k->results++] = 1;
            }
        } else {
            kernel_load(k, k->sources++, w);
        }
    }
    bool carries_in = q_is(&q, "addc") || q_is(&q, "subc") || q_is(&q, "madc");
    bool carries_out = q_has(&q, "cc");
    /* The last input word sets the carry: not 0 means one. */
    if (carries_in)
        kernel_add(k, "ld.global.u32 %%r50, [%%rd90+32];\nadd.cc.u32 %%r51, %%r50, 0xffffffff;\n");
    kernel_add(k, "%s %s;\n", opcode, operands);
    if (carries_out) {
        kernel_add(k, "addc.u32 %%r%d, 0, 0;\n", 10 + k->results);
        k->result_bits[k->results++] = 32;
    }
    for (int i = 0; i < k->results; i++) kernel_store(k, i, k->result_bits[i]);
    kernel_add(k, "ret;\n}\n");
    return true;
}

#endif
