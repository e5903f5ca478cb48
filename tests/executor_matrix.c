/*
 * Tensor-core arithmetic against results measured on chips, and every matrix form against a model
 * in binary64 with the ISA's fragment layouts; then each form with a fault planted.
 */
#include <fenv.h>

#include "executor_oracle.h"
#include "executor_tools.h"
#include "forms.h"
#include "mutate.h"
#include "tensor.h"

/* ---- measured dot products ---- */

static uint32_t small_code(enum ptx_type type, uint32_t f32) {
    return oracle_encode(type == T_BF16  ? "bf16"
                         : type == T_F16 ? "f16"
                                         : "e4m3",
                         q_f32(f32), 'n', true);
}

static int vectors_wrong(FILE *file, enum ptx_type type, int k, struct tensor_rule rule,
                         bool without_c, int *count) {
    char line[2048];
    int wrong = 0;
    while (fgets(line, sizeof line, file)) {
        uint32_t v[80];
        int n = 0;
        if (line[0] == '#') continue;
        for (char *w = strtok(line, " |\n"); w && n < 80; w = strtok(NULL, " |\n"))
            v[n++] = (uint32_t)strtoul(w, NULL, 16);
        if (n != 2 * k + 2) return -1;
        uint32_t a[32], b[32];
        for (int i = 0; i < k; i++) {
            a[i] = small_code(type, v[i]);
            b[i] = small_code(type, v[k + i]);
        }
        uint32_t d = tensor_dot(rule, type, a, b, k, without_c ? 0 : v[2 * k]);
        wrong += d != v[2 * k + 1];
        ++*count;
    }
    return wrong;
}

static void check_measured(void) {
    static const struct {
        const char *file;
        enum ptx_type type;
        int k;
        enum tensor_model model;
        bool without_c; /* the file's d was measured from zero */
    } sets[] = {{"sm_80_bf16_k8", T_BF16, 8, TENSOR_SM80, false},
                {"sm_90_bf16_k16", T_BF16, 16, TENSOR_SM90, false},
                {"sm_90_fp16_k16", T_F16, 16, TENSOR_SM90, false},
                {"sm_89_e4m3_k32", T_E4M3, 32, TENSOR_SM89, false},
                {"sm_90_wgmma_e4m3_k32", T_E4M3, 32, TENSOR_BY_TARGET, true}};
    for (int i = 0; i < 5; i++) {
        char path[256];
        snprintf(path, sizeof path, "../shared/vectors/tensor_core/%s.txt", sets[i].file);
        FILE *file = fopen(path, "r");
        if (!file) {
            tap_skip(1, "no measured results %s", sets[i].file);
            continue;
        }
        struct tensor_rule rule = tensor_rule(sets[i].type, sets[i].model, 90);
        if (sets[i].model == TENSOR_BY_TARGET) rule = (struct tensor_rule){32, 13, 13, false};
        int count = 0;
        int wrong = vectors_wrong(file, sets[i].type, sets[i].k, rule, sets[i].without_c, &count);
        ok(wrong == 0 && count >= 500, "%s: %d of %d measured results differ", sets[i].file, wrong,
           count);
        fclose(file);
    }
}

/* ---- a model of one step in binary64 ---- */

static double value_of(const char *type, uint32_t code) {
    if (!strcmp(type, "tf32")) return q_f32(code & 0xffffe000u);
    if (!strcmp(type, "s8")) return (int8_t)code;
    if (!strcmp(type, "u8")) return (uint8_t)code;
    return oracle_decode(type, code);
}

/* Exponent of a factor before normalisation: that of the least normal number for subnormals. */
static int exponent_of(const char *type, double x) {
    static const struct {
        const char *name;
        int least;
    } formats[] = {{"f16", -14}, {"bf16", -126}, {"tf32", -126}, {"e4m3", -6}, {"e5m2", -14}};
    int e, least = -126;
    for (int i = 0; i < 5; i++)
        if (!strcmp(formats[i].name, type)) least = formats[i].least;
    frexp(x, &e);
    return e - 1 < least ? least : e - 1;
}

static float model_dot(const char *ta, const char *tb, const double *a, const double *b, int k,
                       float c, int block, int fraction, bool add_after) {
    float acc = add_after ? 0 : c;
    for (int start = 0; start < k; start += block) {
        int top = acc != 0 ? exponent_of("tf32", acc) : -9999;
        for (int i = start; i < start + block && i < k; i++)
            if (a[i] != 0 && b[i] != 0) {
                int e = exponent_of(ta, a[i]) + exponent_of(tb, b[i]);
                if (e > top) top = e;
            }
        if (top == -9999) continue;
        double sum = trunc(ldexp(acc, fraction - top));
        for (int i = start; i < start + block && i < k; i++)
            sum += trunc(ldexp(a[i] * b[i], fraction - top));
        fesetround(FE_TOWARDZERO);
        volatile double exact = ldexp(sum, top - fraction);
        volatile float cut = (float)exact;
        fesetround(FE_TONEAREST);
        acc = sum == 0 ? 0 : cut;
    }
    if (!add_after) return acc;
    volatile float r = acc + c;
    return r;
}

/* ---- fragments as the ISA lists them, by element ---- */

struct layout {
    const char *form, *shape;
    int m, k, a, b, bits; /* elements of A and B a lane, their bits */
};

static const struct layout layouts[] = {
    {"mma_m16n8k8_half", "m16n8k8", 16, 8, 4, 2, 16},
    {"mma_m16n8k8_half_f16", "m16n8k8", 16, 8, 4, 2, 16},
    {"mma_m16n8k16_half", "m16n8k16", 16, 16, 8, 4, 16},
    {"mma_m16n8k16_half_f16", "m16n8k16", 16, 16, 8, 4, 16},
    {"mma_m16n8k4_tf32", "m16n8k4", 16, 4, 2, 1, 32},
    {"mma_m16n8k8_tf32", "m16n8k8", 16, 8, 4, 2, 32},
    {"mma_m16n8k16_fp8", "m16n8k16", 16, 16, 8, 4, 8},
    {"mma_m16n8k32_fp8", "m16n8k32", 16, 32, 16, 8, 8},
    {"mma_m8n8k16_int8", "m8n8k16", 8, 16, 4, 4, 8},
    {"mma_m16n8k16_int8", "m16n8k16", 16, 16, 8, 4, 8},
    {"mma_m16n8k32_int8", "m16n8k32", 16, 32, 16, 8, 8},
};

enum { FORMS_HERE = sizeof layouts / sizeof *layouts };

static void a_place(const struct layout *l, int lane, int i, int *row, int *column) {
    int g = lane / 4, t = lane % 4;
    *row = g;
    *column = t;
    if (l->bits == 16) {
        *row = (i & 2) ? g + 8 : g;
        *column = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    } else if (l->bits == 8) {
        *row = (i & 4) ? g + 8 : g;
        *column = t * 4 + (i & 3) + (i >= 8 ? 16 : 0);
    } else {
        *row = (i & 1) ? g + 8 : g;
        *column = t + (i >= 2 ? 4 : 0);
    }
}

static int b_place(const struct layout *l, int lane, int i) {
    int t = lane % 4;
    if (l->bits == 16) return t * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    if (l->bits == 8) return t * 4 + (i & 3) + (i >= 4 ? 16 : 0);
    return t + 4 * i;
}

static CUdeviceptr device_in, device_out;

/* Registers of each lane: A, B, C in, then D out; 16 words a lane. */
static uint32_t words[32][16], results[32][4];

static bool run_mma(const struct layout *l, const char *opcode, int c_registers) {
    char text[3000], d[80] = "", a[80] = "", b[80] = "", c[80] = "", load[800] = "", save[400] = "";
    int at = 0, ra = l->a * l->bits / 32, rb = l->b * l->bits / 32;
    for (int i = 0; i < ra + rb + c_registers; i++) {
        char *list = i < ra ? a : i < ra + rb ? b : c;
        sprintf(list + strlen(list), "%s%%r%d", *list ? "," : "", 10 + i);
        at += sprintf(load + at, "ld.global.b32 %%r%d, [%%rd1+%d];\n", 10 + i, 4 * i);
    }
    for (int i = 0; i < c_registers; i++) {
        sprintf(d + strlen(d), "%s%%r%d", *d ? "," : "", 40 + i);
        sprintf(save + strlen(save), "st.global.b32 [%%rd2+%d], %%r%d;\n", 4 * i, 40 + i);
    }
    snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, "
        ".param .u64 out)\n{\n.reg .b64 %%rd<5>;\n.reg .b32 %%r<50>;\nld.param.u64 %%rd1, "
        "[in];\nld.param.u64 %%rd2, [out];\nmov.u32 %%r1, %%tid.x;\nmad.wide.u32 %%rd1, %%r1, "
        "64, %%rd1;\nmad.wide.u32 %%rd2, %%r1, 16, %%rd2;\n%s%s {%s}, {%s}, {%s}, {%s};\n%sret;"
        "\n}\n",
        load, opcode, d, a, b, c, save);
    CUmodule module = tools_load(text, NULL);
    if (!module) {
        printf("# %s", tools_log);
        return false;
    }
    cuMemcpyHtoD_v2(device_in, words, sizeof words);
    void *params[] = {&device_in, &device_out};
    CUresult r = tools_launch(tools_function(module, "k"), 1, 32, 0, params);
    cuMemcpyDtoH_v2(results, device_out, sizeof results);
    cuModuleUnload(module);
    return r == 0;
}

static uint32_t random_code(const char *type) {
    uint32_t r = tools_random();
    if (!strcmp(type, "tf32")) {
        float x = (float)((int)(r % 4001) - 2000) / 64.0f;
        return q_bits32(x) | (r >> 20); /* low bits are not read */
    }
    if (type[0] == 's' || type[0] == 'u') return r & 255;
    if (!strcmp(type, "f16") || !strcmp(type, "bf16")) {
        if ((r & 15) == 0) return r >> 8 & 0x80ff; /* tiny */
        return oracle_encode(type, ((double)(r >> 8 & 0xffff) - 32768) / 4096, 'n', true);
    }
    uint32_t code = r & 0xff;
    return isfinite(oracle_decode(type, code)) ? code : 0x38;
}

/* A, B, C random; returns how many of D are wrong, -1 when it did not run. */
static int check_mma(const struct layout *l, const char *opcode, bool quiet) {
    struct query q;
    q_parse(&q, opcode);
    const char *names[4] = {"f32", "", "", "f32"};
    int types = 0;
    for (int i = 1; i < q.words; i++) {
        const char *w = q.word[i];
        if (q_bits(w) || !strcmp(w, "e4m3") || !strcmp(w, "e5m2")) names[types++] = w;
    }
    bool half = !strcmp(names[0], "f16"), integer = !strcmp(names[0], "s32");
    int c_elements = l->m == 8 ? 2 : 4, c_registers = half ? 2 : c_elements;
    static double a[16][32], b[8][32], c[16][8];
    memset(words, 0, sizeof words);
    int ra = l->a * l->bits / 32, rb = l->b * l->bits / 32;
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < l->a; i++) {
            int row, column;
            uint32_t code = random_code(names[1]);
            a_place(l, lane, i, &row, &column);
            a[row][column] = value_of(names[1], code);
            words[lane][i * l->bits / 32] |= code << (i * l->bits % 32);
        }
        for (int i = 0; i < l->b; i++) {
            uint32_t code = random_code(names[2]);
            b[lane / 4][b_place(l, lane, i)] = value_of(names[2], code);
            words[lane][ra + i * l->bits / 32] |= code << (i * l->bits % 32);
        }
        for (int i = 0; i < c_elements; i++) {
            int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
            uint32_t code;
            if (half)
                code = random_code("f16");
            else if (integer)
                code = q_has(&q, "satfinite") ? 0x7fffff00 : tools_random();
            else
                code = q_bits32((float)((int)(tools_random() % 2001) - 1000) / 37.0f);
            c[row][column] = half      ? oracle_decode("f16", code)
                             : integer ? (double)(int32_t)code
                                       : q_f32(code);
            if (half)
                words[lane][ra + rb + i / 2] |= code << (16 * (i & 1));
            else
                words[lane][ra + rb + i] = code;
        }
    }
    if (!run_mma(l, opcode, c_registers)) return -1;
    bool fp8 = l->bits == 8 && !integer, tf32 = l->bits == 32;
    int wrong = 0;
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < c_elements; i++) {
            int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
            uint32_t got =
                         half ? results[lane][i / 2] >> (16 * (i & 1)) & 0xffff : results[lane][i],
                     want;
            if (integer) {
                double sum = c[row][column];
                for (int k = 0; k < l->k; k++) sum += a[row][k] * b[column][k];
                if (q_has(&q, "satfinite"))
                    sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
                want = (uint32_t)(int64_t)sum;
            } else {
                float r = model_dot(names[1], names[2], a[row], b[column], l->k,
                                    (float)c[row][column], tf32 ? 8 : 16, 25, fp8);
                want = half ? oracle_encode("f16", r, 'n', false) : q_bits32(r);
            }
            if (got != want && !wrong++ && !quiet)
                printf("# %s: row %d column %d is %08x, not %08x\n", opcode, row, column, got,
                       want);
        }
    return wrong;
}

struct tally {
    const struct layout *layout;
    int wrong, spellings;
    char first[128];
};

static bool each_spelling(void *context, const char *opcode) {
    struct tally *t = context;
    struct query q;
    q_parse(&q, opcode);
    /* Both factors of f16 or both of bf16. */
    if (q_has(&q, "f16") && q_has(&q, "bf16")) return true;
    if (!t->first[0]) snprintf(t->first, sizeof t->first, "%s", opcode);
    t->spellings++;
    for (int i = 0; i < 20 && t->wrong == 0; i++) t->wrong += check_mma(t->layout, opcode, false);
    return true;
}

static int form_named(const char *name) {
    for (int i = 0; i < FORM_COUNT; i++)
        if (!strcmp(form_table[i].name, name)) return i;
    return -1;
}

static void check_forms(void) {
    for (int i = 0; i < FORMS_HERE; i++) {
        struct tally t = {.layout = &layouts[i]};
        int form = form_named(layouts[i].form);
        form_spell(form, each_spelling, &t);
        ok(t.wrong == 0 && t.spellings > 0, "%s: %d spellings", form_table[form].pattern,
           t.spellings);
        form_mutate(form);
        ok(check_mma(&layouts[i], t.first, true) != 0, "%s: a planted fault shows",
           layouts[i].form);
        form_mutate(-1);
    }
}

/* executor_machine.c leaves the forms of this class to this test. */
static void check_none_is_missing(void) {
    int missing = 0;
    for (int form = 0; form < FORM_COUNT; form++) {
        if (form_table[form].class != CLASS_TENSOR) continue;
        bool here = form == FORM_ldmatrix || form == FORM_stmatrix;
        for (int i = 0; i < FORMS_HERE; i++)
            here = here || !strcmp(layouts[i].form, form_table[form].name);
        if (here) continue;
        printf("# nothing tests %s\n", form_table[form].name);
        missing++;
    }
    is(missing, 0, "every tensor form that the decoder knows is tested");
}

/* ---- ldmatrix and stmatrix ---- */

/* Thread t writes its 16 bytes to row t of shared memory; matrices are loaded and stored back. */
static int check_move(const char *load, const char *store, int count, bool transpose, bool quiet) {
    char text[3000], list[80] = "", save[300] = "";
    for (int i = 0; i < count; i++) {
        sprintf(list + strlen(list), "%s%%r%d", *list ? "," : "", 20 + i);
        sprintf(save + strlen(save), "st.global.b32 [%%rd2+%d], %%r%d;\n", 4 * i, 20 + i);
    }
    char move[400];
    if (store)
        snprintf(move, sizeof move,
                 "ldmatrix.sync.aligned.m8n8.x%d.shared.b16 {%s}, [%%r3];\nbar.sync 0;\n"
                 "%s [%%r3], {%s};\nbar.sync 0;\n"
                 "ldmatrix.sync.aligned.m8n8.x%d.shared.b16 {%s}, [%%r3];\n",
                 count, list, store, list, count, list);
    else
        snprintf(move, sizeof move, "%s {%s}, [%%r3];\n", load, list);
    snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, "
        ".param .u64 out)\n{\n.reg .b64 %%rd<5>;\n.reg .b32 %%r<50>;\n.shared .align 16 .b8 "
        "sh[512];\nld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\nmov.u32 %%r1, "
        "%%tid.x;\nmad.wide.u32 %%rd1, %%r1, 64, %%rd1;\nmad.wide.u32 %%rd2, %%r1, 16, %%rd2;\n"
        "mov.u32 %%r2, sh;\nmad.lo.u32 %%r3, %%r1, 16, %%r2;\nld.global.v4.b32 "
        "{%%r4,%%r5,%%r6,%%r7}, [%%rd1];\nst.shared.v4.b32 [%%r3], {%%r4,%%r5,%%r6,%%r7};\n"
        "bar.sync 0;\n%s%sret;\n}\n",
        move, save);
    CUmodule module = tools_load(text, NULL);
    if (!module) {
        printf("# %s", tools_log);
        return -1;
    }
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; k < 4; k++) words[lane][k] = tools_random();
    cuMemcpyHtoD_v2(device_in, words, sizeof words);
    void *params[] = {&device_in, &device_out};
    CUresult r = tools_launch(tools_function(module, "k"), 1, 32, 0, params);
    cuMemcpyDtoH_v2(results, device_out, sizeof results);
    cuModuleUnload(module);
    if (r) return -1;
    int wrong = 0;
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; k < count; k++)
            for (int h = 0; h < 2; h++) {
                int row = lane / 4, column = lane % 4 * 2 + h;
                if (transpose) {
                    int swap = row;
                    row = column;
                    column = swap;
                }
                uint32_t want = words[8 * k + row][column / 2] >> (16 * (column & 1)) & 0xffff;
                uint32_t got = results[lane][k] >> (16 * h) & 0xffff;
                if (got != want && !wrong++ && !quiet)
                    printf("# lane %d register %d is %04x, not %04x\n", lane, k, got, want);
            }
    return wrong;
}

static void check_moves(void) {
    for (int count = 1; count <= 4; count *= 2)
        for (int transpose = 0; transpose < 2; transpose++) {
            char load[80], store[80];
            const char *trans = transpose ? ".trans" : "";
            snprintf(load, sizeof load, "ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16", count,
                     trans);
            snprintf(store, sizeof store, "stmatrix.sync.aligned.m8n8.x%d%s.shared.b16", count,
                     trans);
            is(check_move(load, NULL, count, transpose, false), 0, load);
            is(check_move(load, store, count, transpose, false), 0, store);
        }
    form_mutate(FORM_ldmatrix);
    ok(check_move("ldmatrix.sync.aligned.m8n8.x4.shared.b16", NULL, 4, false, true) != 0,
       "ldmatrix: a planted fault shows");
    form_mutate(FORM_stmatrix);
    ok(check_move(NULL, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 4, true, true) != 0,
       "stmatrix: a planted fault shows");
    form_mutate(-1);
}

/* NaN and infinity: any NaN, infinity times zero and unlike infinities give the chip's NaN. */
static void check_special(void) {
    uint32_t inf = 0x7f80, one = 0x3f80, zero = 0, nan = 0x7fc0, minus = 0xff80;
    uint32_t a[8] = {one, one, one, one, one, one, one, one}, b[8] = {0};
    struct tensor_rule rule = tensor_rule(T_BF16, TENSOR_SM80, 80);
    for (int i = 0; i < 8; i++) b[i] = one;
    is(tensor_dot(rule, T_BF16, a, b, 8, 0), 0x41000000, "eight ones are 8");
    b[3] = inf;
    is(tensor_dot(rule, T_BF16, a, b, 8, 0), 0x7f800000, "infinity stays");
    a[3] = zero;
    is(tensor_dot(rule, T_BF16, a, b, 8, 0), 0x7fffffff, "infinity times zero is NaN");
    a[3] = one;
    b[4] = minus;
    is(tensor_dot(rule, T_BF16, a, b, 8, 0), 0x7fffffff, "infinities of both signs are NaN");
    b[3] = b[4] = one;
    b[0] = nan;
    is(tensor_dot(rule, T_BF16, a, b, 8, 0), 0x7fffffff, "NaN is NaN");
    b[0] = one;
    is(tensor_dot(rule, T_BF16, a, b, 8, 0xff800000), 0xff800000, "an infinite C stays");
}

int main(void) {
    tap_plan(5 + 2 * FORMS_HERE + 1 + 12 + 2 + 6);
    tools_start();
    device_in = tools_device(NULL, sizeof words);
    device_out = tools_device(NULL, sizeof results);
    cuMemsetD8_v2(device_out, 0, sizeof results);
    check_measured();
    check_forms();
    check_none_is_missing();
    check_moves();
    check_special();
    return tap_done();
}
