/* Kernels, branches, loops and variables. */
#include "ir.h"

#include <stdio.h>
#include <string.h>

static void open_scope(lua_State *L, struct ir_module *m, enum ir_level level) {
    if (m->depth == IR_MAX_SCOPES) ir_error(L, "control flow nested too deeply");
    enum ir_level outer = m->depth ? ir_control(m) : IR_UNIFORM;
    m->scopes[m->depth].id = ++m->next_scope;
    m->scopes[m->depth].level = level > outer ? level : outer;
    m->depth++;
}

static void close_scope(struct ir_module *m) {
    m->depth--;
}

static LLVMBasicBlockRef new_block(struct ir_module *m) {
    return LLVMAppendBasicBlockInContext(m->context, m->function, "");
}

static void go_to(struct ir_module *m, LLVMBasicBlockRef block) {
    LLVMBuildBr(m->builder, block);
}

static void continue_at(struct ir_module *m, LLVMBasicBlockRef block) {
    LLVMPositionBuilderAtEnd(m->builder, block);
}

/* ---- kernels ---- */

static void add_attribute(struct ir_module *m, unsigned arg, const char *name, uint64_t value) {
    unsigned id = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(m->function, arg + 1, LLVMCreateEnumAttribute(m->context, id, value));
}

static void annotate(struct ir_module *m, const char *key, unsigned value) {
    LLVMMetadataRef parts[3] = {
        LLVMValueAsMetadata(m->function), LLVMMDStringInContext2(m->context, key, strlen(key)),
        LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(m->context), value, 0))};
    LLVMMetadataRef node = LLVMMDNodeInContext2(m->context, parts, 3);
    LLVMAddNamedMetadataOperand(m->module, "nvvm.annotations",
                                LLVMMetadataAsValue(m->context, node));
}

struct parameter {
    enum ir_kind kind, element;
    uint32_t multiple; /* known divisor, or alignment of a pointer */
    bool readonly, noalias;
    char name[64];
};

#define MAX_PARAMETERS 64

static bool flag(lua_State *L, const char *field) {
    lua_getfield(L, -1, field);
    bool set = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return set;
}

/* { name =, type = "u32" | "pointer", element =, multiple =, readonly =, noalias = } on top */
static void read_parameter(lua_State *L, struct parameter *p) {
    lua_getfield(L, -1, "name");
    snprintf(p->name, sizeof p->name, "%s", luaL_checkstring(L, -1));
    lua_getfield(L, -2, "type");
    bool pointer = !strcmp(luaL_checkstring(L, -1), "pointer");
    p->kind = pointer ? IR_POINTER : ir_check_kind(L, lua_gettop(L));
    lua_getfield(L, -3, "element");
    p->element = pointer ? ir_check_kind(L, lua_gettop(L)) : IR_BOOL;
    lua_getfield(L, -4, "multiple");
    p->multiple = (uint32_t)luaL_optinteger(L, -1, pointer ? ir_kind_info[p->element].bytes : 1);
    lua_pop(L, 4);
    p->readonly = flag(L, "readonly");
    p->noalias = flag(L, "noalias");
}

/*
 * ir.begin_kernel(entry, block, params): opens a kernel and returns its parameters as a table by
 * name. `params` is an array as read_parameter reads it.
 */
static int l_begin_kernel(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "ir.module");
    struct ir_module *m = lua_touserdata(L, -1);
    if (!m || m->function) return luaL_error(L, "no module is open, or a kernel is");
    const char *entry = luaL_checkstring(L, 1);
    lua_Integer block = luaL_checkinteger(L, 2), count = luaL_len(L, 3);
    struct parameter p[MAX_PARAMETERS];
    LLVMTypeRef types[MAX_PARAMETERS];
    if (count > MAX_PARAMETERS) return luaL_error(L, "a kernel of more than 64 parameters");
    for (lua_Integer i = 0; i < count; i++) {
        lua_geti(L, 3, i + 1);
        read_parameter(L, &p[i]);
        lua_pop(L, 1);
        types[i] = ir_llvm_type(m, p[i].kind, IR_GLOBAL);
    }
    LLVMTypeRef type =
        LLVMFunctionType(LLVMVoidTypeInContext(m->context), types, (unsigned)count, 0);
    snprintf(m->kernel_name, sizeof m->kernel_name, "%s", entry);
    m->function = LLVMAddFunction(m->module, entry, type);
    LLVMSetFunctionCallConv(m->function, 71); /* ptx_kernel */
    m->kernel++;
    m->shared_bytes = 0;
    m->max_threads = (unsigned)block;
    annotate(m, "reqntidx", (unsigned)block);
    m->entry = new_block(m);
    m->exit = new_block(m);
    m->depth = 0;
    open_scope(L, m, IR_UNIFORM);
    continue_at(m, new_block(m));
    lua_newtable(L);
    for (unsigned i = 0; i < (unsigned)count; i++) {
        LLVMValueRef ref = LLVMGetParam(m->function, i);
        LLVMSetValueName2(ref, p[i].name, strlen(p[i].name));
        if (p[i].kind == IR_POINTER) {
            add_attribute(m, i, "align", p[i].multiple);
            if (p[i].noalias) add_attribute(m, i, "noalias", 0);
            if (p[i].readonly) add_attribute(m, i, "readonly", 0);
            ir_push_pointer(L, m, ref, p[i].element, IR_GLOBAL, IR_UNIFORM, p[i].multiple);
        } else {
            ir_push(L, m, ref, p[i].kind, IR_UNIFORM)->multiple = p[i].multiple;
        }
        lua_setfield(L, -2, p[i].name);
    }
    return 1;
}

/* ir.end_kernel() */
static int l_end_kernel(lua_State *L) {
    struct ir_module *m = ir_current(L);
    LLVMBasicBlockRef body = LLVMGetNextBasicBlock(m->exit);
    go_to(m, m->exit);
    continue_at(m, m->entry);
    go_to(m, body);
    continue_at(m, m->exit);
    LLVMBuildRetVoid(m->builder);
    m->function = NULL;
    return 0;
}

/* ir.return_if(condition): threads for which it holds are done. At the top of a kernel only. */
static int l_return_if(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value condition = ir_operand(L, 1, IR_BOOL);
    if (m->depth != 1) return ir_error(L, "return_if inside a branch or loop");
    LLVMBasicBlockRef rest = new_block(m);
    LLVMBuildCondBr(m->builder, condition.ref, m->exit, rest);
    continue_at(m, rest);
    if (condition.level > m->scopes[0].level) m->scopes[0].level = condition.level;
    return 0;
}

/* ---- branches ---- */

static void run_branch(lua_State *L, struct ir_module *m, int function, enum ir_level level,
                       LLVMBasicBlockRef from, LLVMBasicBlockRef to) {
    continue_at(m, from);
    open_scope(L, m, level);
    lua_pushvalue(L, function);
    lua_call(L, 0, 0);
    close_scope(m);
    go_to(m, to);
}

/* ir.when(condition, function, [otherwise]) */
static int l_when(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value condition = ir_operand(L, 1, IR_BOOL);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    bool otherwise = !lua_isnoneornil(L, 3);
    LLVMBasicBlockRef yes = new_block(m), no = otherwise ? new_block(m) : NULL;
    LLVMBasicBlockRef after = new_block(m);
    LLVMBuildCondBr(m->builder, condition.ref, yes, otherwise ? no : after);
    run_branch(L, m, 2, condition.level, yes, after);
    if (otherwise) run_branch(L, m, 3, condition.level, no, after);
    continue_at(m, after);
    return 0;
}

/* ---- loops ---- */

static enum ir_level highest(enum ir_level a, enum ir_level b) {
    return a > b ? a : b;
}

/* ir.loop(type, from, to, step, function(i)): i = from, from + step, ... while i < to */
static int l_loop(lua_State *L) {
    struct ir_module *m = ir_current(L);
    enum ir_kind kind = ir_check_kind(L, 1);
    if (ir_kind_info[kind].class != IR_CLASS_INT) return ir_error(L, "a loop counts integers");
    struct ir_value from = ir_operand(L, 2, kind), to = ir_operand(L, 3, kind);
    struct ir_value step = ir_operand(L, 4, kind);
    luaL_checktype(L, 5, LUA_TFUNCTION);
    enum ir_level level = highest(from.level, highest(to.level, step.level));
    LLVMTypeRef type = ir_llvm_type(m, kind, IR_GENERIC);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(m->builder);
    LLVMBasicBlockRef head = new_block(m), body = new_block(m), after = new_block(m);
    go_to(m, head);
    continue_at(m, head);
    LLVMValueRef i = LLVMBuildPhi(m->builder, type, "");
    LLVMIntPredicate less = ir_kind_info[kind].is_signed ? LLVMIntSLT : LLVMIntULT;
    LLVMBuildCondBr(m->builder, LLVMBuildICmp(m->builder, less, i, to.ref, ""), body, after);
    continue_at(m, body);
    open_scope(L, m, level);
    lua_pushvalue(L, 5);
    ir_push(L, m, i, kind, level)->multiple =
        from.multiple < step.multiple ? from.multiple : step.multiple;
    lua_call(L, 1, 0);
    close_scope(m);
    LLVMValueRef next = LLVMBuildAdd(m->builder, i, step.ref, "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(m->builder);
    go_to(m, head);
    LLVMAddIncoming(i, (LLVMValueRef[]){from.ref, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    continue_at(m, after);
    return 0;
}

/* ir.loop_while(level, function() -> condition, function()): as long as the condition holds */
static int l_loop_while(lua_State *L) {
    struct ir_module *m = ir_current(L);
    enum ir_level level = ir_check_level(L, 1, IR_VARYING);
    LLVMBasicBlockRef head = new_block(m), body = new_block(m), after = new_block(m);
    go_to(m, head);
    continue_at(m, head);
    open_scope(L, m, level);
    lua_pushvalue(L, 2);
    lua_call(L, 0, 1);
    struct ir_value condition = ir_operand(L, lua_gettop(L), IR_BOOL);
    if (condition.level > level) return ir_error(L, "the condition varies more than was stated");
    LLVMBuildCondBr(m->builder, condition.ref, body, after);
    continue_at(m, body);
    lua_pushvalue(L, 3);
    lua_call(L, 0, 0);
    close_scope(m);
    go_to(m, head);
    continue_at(m, after);
    return 0;
}

/* ---- variables ---- */

static struct ir_variable *check_variable(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_variable *v = luaL_checkudata(L, 1, IR_VARIABLE);
    if (v->kernel != m->kernel || !ir_scope_open(m, v->scope))
        ir_error(L, "this variable was made inside a branch, loop or kernel that has ended");
    return v;
}

static void set_variable(lua_State *L, struct ir_module *m, const struct ir_variable *v,
                         const struct ir_value *to) {
    static const char names[3][8] = {"uniform", "warp", "varying"};
    /* A variable varies with the branch that sets it, unless the branch encloses the variable. */
    enum ir_level control = IR_UNIFORM;
    for (int i = m->depth - 1; i >= 0 && m->scopes[i].id != v->scope; i--)
        if (m->scopes[i].level > control) control = m->scopes[i].level;
    enum ir_level level = highest(to->level, control);
    if (level > v->level)
        ir_error(L, "a %s value is put into a %s variable", names[level], names[v->level]);
    LLVMBuildStore(m->builder, to->ref, v->slot);
}

/* ir.variable(type, first, [level = "varying"]) */
static int l_variable(lua_State *L) {
    struct ir_module *m = ir_current(L);
    enum ir_kind kind = ir_check_kind(L, 1);
    struct ir_value first = ir_operand(L, 2, kind);
    enum ir_level level = ir_check_level(L, 3, IR_VARYING);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(m->builder);
    struct ir_variable *v = lua_newuserdatauv(L, sizeof *v, 0);
    luaL_setmetatable(L, IR_VARIABLE);
    continue_at(m, m->entry);
    *v = (struct ir_variable){LLVMBuildAlloca(m->builder, ir_llvm_type(m, kind, IR_GENERIC), ""),
                              kind, level, m->scopes[m->depth - 1].id, m->kernel};
    continue_at(m, here);
    set_variable(L, m, v, &first);
    return 1;
}

/* variable:get() */
static int l_get(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_variable *v = check_variable(L);
    LLVMTypeRef type = ir_llvm_type(m, v->kind, IR_GENERIC);
    ir_push(L, m, LLVMBuildLoad2(m->builder, type, v->slot, ""), v->kind, v->level);
    return 1;
}

/* variable:set(value) */
static int l_set(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_variable *v = check_variable(L);
    struct ir_value to = ir_operand(L, 2, v->kind);
    set_variable(L, m, v, &to);
    return 0;
}

void ir_open_flow(lua_State *L) {
    static const luaL_Reg functions[] = {{"begin_kernel", l_begin_kernel},
                                         {"end_kernel", l_end_kernel},
                                         {"return_if", l_return_if},
                                         {"when", l_when},
                                         {"loop", l_loop},
                                         {"loop_while", l_loop_while},
                                         {"variable", l_variable},
                                         {0, 0}};
    static const luaL_Reg methods[] = {{"get", l_get}, {"set", l_set}, {0, 0}};
    luaL_getmetatable(L, IR_VARIABLE);
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}
