/*
 * Instructions that LLVM 19 lacks, as one table of inline assembly. Everything that orders memory
 * or needs several threads belongs here or in ir_warp.c, never in a template.
 */
#include "ir.h"

#include <string.h>

#define MAX_OPERANDS 16
#define MAX_RESULTS  4

struct need {
    unsigned sm, ptx; /* on this architecture and later, at least this PTX version */
};

struct instruction {
    const char *name;
    const char *text;
    const char *constraints;
    struct need need[2]; /* ascending by sm; the last row that fits the target counts */
    enum ir_kind results[MAX_RESULTS];
    int n_results;
    enum ir_kind operands[MAX_OPERANDS]; /* a pointer is into `space` */
    enum ir_space space[2];              /* of the first and the second pointer */
    int n_operands;
    unsigned align;  /* what every pointer must be known to be a multiple of */
    bool effects;    /* touches memory or other threads: never moved, merged or dropped */
    bool collective; /* the whole warp takes part */
};

static const struct instruction instructions[] = {
    /* Two f32 to two e4m3, saturating, NaN to 0x7f; the first operand becomes the high byte. */
    {.name = "cvt_e4m3x2",
     .text = "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;",
     .constraints = "=h,f,f",
     .need = {{89, 81}, {90, 78}},
     .results = {IR_U16},
     .n_results = 1,
     .operands = {IR_F32, IR_F32},
     .n_operands = 2},
    /* Two e4m3, exactly, as two f16: the low byte becomes the low half. */
    {.name = "cvt_f16x2_e4m3x2",
     .text = "cvt.rn.f16x2.e4m3x2 $0, $1;",
     .constraints = "=r,h",
     .need = {{89, 81}, {90, 78}},
     .results = {IR_U32},
     .n_results = 1,
     .operands = {IR_U16},
     .n_operands = 1},
    /* Bytes of two words, lowest first: the third operand's four digits number them, 0 to 7. */
    {.name = "prmt",
     .text = "prmt.b32 $0, $1, $2, $3;",
     .constraints = "=r,r,r,r",
     .need = {{80, 70}},
     .results = {IR_U32},
     .n_results = 1,
     .operands = {IR_U32, IR_U32, IR_U32},
     .n_operands = 3},
    /* a * b + c of two f16 side by side. */
    {.name = "fma_f16x2",
     .text = "fma.rn.f16x2 $0, $1, $2, $3;",
     .constraints = "=r,r,r,r",
     .need = {{80, 70}},
     .results = {IR_U32},
     .n_results = 1,
     .operands = {IR_U32, IR_U32, IR_U32},
     .n_operands = 3},
    /* Two f32 to two bf16 in one register; the first operand becomes the high half. */
    {.name = "cvt_bf16x2",
     .text = "cvt.rn.bf16x2.f32 $0, $1, $2;",
     .constraints = "=r,f,f",
     .need = {{80, 70}},
     .results = {IR_U32},
     .n_results = 1,
     .operands = {IR_F32, IR_F32},
     .n_operands = 2},
    /* Four 8x8 matrices of 16 bits: lane l names row l % 8 of matrix l / 8 (16-byte aligned). */
    {.name = "ldmatrix_x4",
     .text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
     .constraints = "=r,=r,=r,=r,l,~{memory}",
     .need = {{75, 65}},
     .results = {IR_U32, IR_U32, IR_U32, IR_U32},
     .n_results = 4,
     .operands = {IR_POINTER},
     .space = {IR_SHARED},
     .n_operands = 1,
     .align = 16,
     .collective = true},
    {.name = "ldmatrix_x4_trans",
     .text = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];",
     .constraints = "=r,=r,=r,=r,l,~{memory}",
     .need = {{75, 65}},
     .results = {IR_U32, IR_U32, IR_U32, IR_U32},
     .n_results = 4,
     .operands = {IR_POINTER},
     .space = {IR_SHARED},
     .n_operands = 1,
     .align = 16,
     .collective = true},
    /* d = a . b + c, a 16x16 and b 16x8 of bf16, c and d 16x8 of f32: operands a, b, c. */
    {.name = "mma_bf16",
     .text = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, "
             "{$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
     .constraints = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
     .need = {{80, 70}},
     .results = {IR_F32, IR_F32, IR_F32, IR_F32},
     .n_results = 4,
     .operands = {IR_U32, IR_U32, IR_U32, IR_U32, IR_U32, IR_U32, IR_F32, IR_F32, IR_F32, IR_F32},
     .n_operands = 10,
     .collective = true},
    /*
     * Copy 16, 8 or 4 bytes to shared memory, to be waited for: the third operand's first bytes
     * come from global memory (0: nothing is read), the rest are zeros. Sixteen bypass the first
     * cache.
     */
    {.name = "cp_async16",
     .text = "cp.async.cg.shared.global [$0], [$1], 16, $2;",
     .constraints = "l,l,r,~{memory}",
     .need = {{80, 70}},
     .operands = {IR_POINTER, IR_POINTER, IR_U32},
     .space = {IR_SHARED, IR_GLOBAL},
     .n_operands = 3,
     .align = 16,
     .effects = true},
    {.name = "cp_async8",
     .text = "cp.async.ca.shared.global [$0], [$1], 8, $2;",
     .constraints = "l,l,r,~{memory}",
     .need = {{80, 70}},
     .operands = {IR_POINTER, IR_POINTER, IR_U32},
     .space = {IR_SHARED, IR_GLOBAL},
     .n_operands = 3,
     .align = 8,
     .effects = true},
    {.name = "cp_async4",
     .text = "cp.async.ca.shared.global [$0], [$1], 4, $2;",
     .constraints = "l,l,r,~{memory}",
     .need = {{80, 70}},
     .operands = {IR_POINTER, IR_POINTER, IR_U32},
     .space = {IR_SHARED, IR_GLOBAL},
     .n_operands = 3,
     .align = 4,
     .effects = true},
    {.name = "cp_async_commit",
     .text = "cp.async.commit_group;",
     .constraints = "~{memory}",
     .need = {{80, 70}},
     .effects = true},
    {.name = "cp_async_wait_all",
     .text = "cp.async.wait_all;",
     .constraints = "~{memory}",
     .need = {{80, 70}},
     .effects = true},
    /* A barrier of some of the block's warps: its number (0 is the whole block's), its threads. */
    {.name = "barrier_some",
     .text = "bar.sync $0, $1;",
     .constraints = "r,r,~{memory}",
     .need = {{80, 70}},
     .operands = {IR_U32, IR_U32},
     .n_operands = 2,
     .effects = true,
     .collective = true},
};

static const struct instruction *find(const char *name) {
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++)
        if (!strcmp(instructions[i].name, name)) return &instructions[i];
    return NULL;
}

/* The PTX version an instruction needs on this target, or 0 if the target lacks it. */
static unsigned needed_ptx(const struct instruction *i, const struct target *target) {
    unsigned ptx = 0;
    for (int n = 0; n < 2 && i->need[n].sm; n++)
        if (target->sm >= i->need[n].sm) ptx = i->need[n].ptx;
    return ptx;
}

void ir_require(lua_State *L, struct ir_module *m, const char *what, unsigned sm, unsigned ptx) {
    if (m->target->sm < sm)
        ir_error(L, "%s needs sm_%u, the target is %s", what, sm, m->target->name);
    if (m->ptx < ptx) m->ptx = ptx;
}

/* ir.has(name): whether the target has this instruction */
static int l_has(lua_State *L) {
    struct ir_module *m = ir_current(L);
    const struct instruction *i = find(luaL_checkstring(L, 1));
    if (!i) return ir_error(L, "no instruction '%s' in the table", lua_tostring(L, 1));
    lua_pushboolean(L, needed_ptx(i, m->target) != 0);
    return 1;
}

static LLVMTypeRef result_type(const struct ir_module *m, const struct instruction *i) {
    LLVMTypeRef types[MAX_RESULTS];
    for (int r = 0; r < i->n_results; r++) types[r] = ir_llvm_type(m, i->results[r], IR_GENERIC);
    if (i->n_results == 0) return LLVMVoidTypeInContext(m->context);
    if (i->n_results == 1) return types[0];
    return LLVMStructTypeInContext(m->context, types, (unsigned)i->n_results, 0);
}

/* No pass may make two of it behind a branch that threads of a warp take differently. */
static void mark_convergent(const struct ir_module *m, LLVMValueRef call) {
    static const char name[] = "convergent";
    unsigned kind = LLVMGetEnumAttributeKindForName(name, sizeof name - 1);
    LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                             LLVMCreateEnumAttribute(m->context, kind, 0));
}

/* ir.asm(name, operand, ...) -> result, ... */
static int l_asm(lua_State *L) {
    struct ir_module *m = ir_current(L);
    const char *name = luaL_checkstring(L, 1);
    const struct instruction *i = find(name);
    if (!i) return ir_error(L, "no instruction '%s' in the table", name);
    unsigned ptx = needed_ptx(i, m->target);
    if (!ptx) return ir_error(L, "%s does not exist on %s", name, m->target->name);
    ir_require(L, m, name, i->need[0].sm, ptx);
    if (i->collective) ir_check_collective(L, m, name, IR_WARP);
    if (lua_gettop(L) != 1 + i->n_operands)
        return ir_error(L, "%s takes %d operands", name, i->n_operands);
    LLVMTypeRef types[MAX_OPERANDS];
    LLVMValueRef refs[MAX_OPERANDS];
    enum ir_level level = i->collective ? IR_VARYING : IR_UNIFORM;
    int pointers = 0;
    for (int o = 0; o < i->n_operands; o++) {
        struct ir_value v = ir_operand(L, 2 + o, i->operands[o]);
        if (v.kind == IR_POINTER && v.space != i->space[pointers++])
            return ir_error(L, "operand %d of %s is a pointer into another memory", o + 1, name);
        if (v.kind == IR_POINTER && v.multiple < i->align)
            return ir_error(L, "operand %d of %s is known to be a multiple of %u, it needs %u",
                            o + 1, name, v.multiple, i->align);
        refs[o] = v.ref;
        types[o] = LLVMTypeOf(v.ref);
        if (v.level > level) level = v.level;
    }
    LLVMTypeRef type = LLVMFunctionType(result_type(m, i), types, (unsigned)i->n_operands, 0);
    LLVMValueRef assembly =
        LLVMGetInlineAsm(type, i->text, strlen(i->text), i->constraints, strlen(i->constraints),
                         i->effects || i->collective, 0, LLVMInlineAsmDialectATT, 0);
    LLVMValueRef result =
        LLVMBuildCall2(m->builder, type, assembly, refs, (unsigned)i->n_operands, "");
    if (i->collective) mark_convergent(m, result);
    for (int r = 0; r < i->n_results; r++) {
        LLVMValueRef part =
            i->n_results == 1 ? result : LLVMBuildExtractValue(m->builder, result, (unsigned)r, "");
        ir_push(L, m, part, i->results[r], level);
    }
    return i->n_results;
}

void ir_open_asm(lua_State *L) {
    static const luaL_Reg functions[] = {{"asm", l_asm}, {"has", l_has}, {0, 0}};
    luaL_setfuncs(L, functions, 0);
}
