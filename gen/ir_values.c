/* Values: kinds, how they reach Lua, and the checks made whenever one is used. */
#include "ir.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ir_kind_info ir_kind_info[IR_KINDS] = {
    [IR_BOOL] = {"bool", 1, IR_CLASS_BOOL, false},
    [IR_U8] = {"u8", 1, IR_CLASS_INT, false},
    [IR_I8] = {"i8", 1, IR_CLASS_INT, true},
    [IR_U16] = {"u16", 2, IR_CLASS_INT, false},
    [IR_I16] = {"i16", 2, IR_CLASS_INT, true},
    [IR_U32] = {"u32", 4, IR_CLASS_INT, false},
    [IR_I32] = {"i32", 4, IR_CLASS_INT, true},
    [IR_U64] = {"u64", 8, IR_CLASS_INT, false},
    [IR_I64] = {"i64", 8, IR_CLASS_INT, true},
    [IR_F16] = {"f16", 2, IR_CLASS_FLOAT, true},
    [IR_BF16] = {"bf16", 2, IR_CLASS_FLOAT, true},
    [IR_F32] = {"f32", 4, IR_CLASS_FLOAT, true},
    [IR_F64] = {"f64", 8, IR_CLASS_FLOAT, true},
    [IR_E4M3] = {"e4m3", 1, IR_CLASS_BITS, false},
    [IR_E5M2] = {"e5m2", 1, IR_CLASS_BITS, false},
    [IR_UE8M0] = {"ue8m0", 1, IR_CLASS_BITS, false},
    [IR_E2M1X2] = {"e2m1x2", 1, IR_CLASS_BITS, false},
    [IR_POINTER] = {"pointer", 8, IR_CLASS_POINTER, false},
};

static const char level_names[3][8] = {"uniform", "warp", "varying"};

/* ---- errors ---- */

/* The Lua frames between this call and the host, innermost first: "  from templates/x.lua:12". */
static void push_callers(lua_State *L, int first) {
    luaL_Buffer b;
    lua_Debug frame;
    luaL_buffinit(L, &b);
    for (int level = first; level < first + 12 && lua_getstack(L, level, &frame); level++) {
        char line[200];
        lua_getinfo(L, "Sl", &frame);
        if (frame.currentline <= 0) continue;
        snprintf(line, sizeof line, "\n  from %.150s:%d", frame.short_src, frame.currentline);
        luaL_addstring(&b, line);
    }
    luaL_pushresult(&b);
}

int ir_error(lua_State *L, const char *format, ...) {
    char text[512];
    lua_Debug frame;
    int level = 1;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* Skip C frames: a metamethod called from C has no line of its own. */
    while (lua_getstack(L, level, &frame)) {
        lua_getinfo(L, "Sl", &frame);
        if (frame.currentline > 0) break;
        level++;
    }
    luaL_where(L, level);
    lua_pushstring(L, text);
    push_callers(L, level + 1);
    lua_concat(L, 3);
    return lua_error(L);
}

/* ---- the module being built ---- */

void ir_set_current(lua_State *L, struct ir_module *module) {
    lua_pushlightuserdata(L, module);
    lua_setfield(L, LUA_REGISTRYINDEX, "ir.module");
}

struct ir_module *ir_current(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, "ir.module");
    struct ir_module *m = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (!m || !m->function) ir_error(L, "no kernel is being built here");
    return m;
}

struct ir_module *ir_module_open(const char *name, const struct target *target) {
    struct ir_module *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->context = LLVMContextCreate();
    m->module = LLVMModuleCreateWithNameInContext(name, m->context);
    m->builder = LLVMCreateBuilderInContext(m->context);
    m->target = target;
    m->ptx = target->ptx;
    target_prepare(m->module);
    return m;
}

void ir_module_close(struct ir_module *m) {
    if (!m) return;
    LLVMDisposeBuilder(m->builder);
    LLVMDisposeModule(m->module);
    LLVMContextDispose(m->context);
    free(m);
}

/* ---- kinds ---- */

enum ir_kind ir_check_kind(lua_State *L, int arg) {
    const char *name = luaL_checkstring(L, arg);
    for (int k = 0; k < IR_POINTER; k++)
        if (!strcmp(ir_kind_info[k].name, name)) return (enum ir_kind)k;
    ir_error(L, "unknown type '%s'", name);
    return IR_BOOL;
}

enum ir_level ir_check_level(lua_State *L, int arg, enum ir_level otherwise) {
    static const char *const names[] = {"uniform", "warp", "varying", NULL};
    if (lua_isnoneornil(L, arg)) return otherwise;
    return (enum ir_level)luaL_checkoption(L, arg, NULL, names);
}

LLVMTypeRef ir_llvm_type(const struct ir_module *m, enum ir_kind kind, enum ir_space space) {
    switch (kind) {
    case IR_BOOL: return LLVMInt1TypeInContext(m->context);
    case IR_F16: return LLVMHalfTypeInContext(m->context);
    case IR_BF16: return LLVMBFloatTypeInContext(m->context);
    case IR_F32: return LLVMFloatTypeInContext(m->context);
    case IR_F64: return LLVMDoubleTypeInContext(m->context);
    case IR_POINTER: return LLVMPointerTypeInContext(m->context, (unsigned)space);
    default: return LLVMIntTypeInContext(m->context, 8 * ir_kind_info[kind].bytes);
    }
}

uint32_t ir_power_of_two(uint64_t value) {
    const uint32_t most = UINT32_C(1) << 30;
    if (!value) return most;
    uint64_t lowest = value & (~value + 1);
    return lowest > most ? most : (uint32_t)lowest;
}

/* ---- values to and from Lua ---- */

static struct ir_value *push_value(lua_State *L, struct ir_module *m, LLVMValueRef ref,
                                   enum ir_kind kind, enum ir_level level) {
    struct ir_value *v = lua_newuserdatauv(L, sizeof *v, 0);
    *v = (struct ir_value){.ref = ref,
                           .kind = kind,
                           .level = level,
                           .multiple = 1,
                           .scope = m->scopes[m->depth - 1].id,
                           .kernel = m->kernel};
    luaL_setmetatable(L, IR_VALUE);
    return v;
}

struct ir_value *ir_push(lua_State *L, struct ir_module *m, LLVMValueRef ref, enum ir_kind kind,
                         enum ir_level level) {
    return push_value(L, m, ref, kind, level);
}

struct ir_value *ir_push_pointer(lua_State *L, struct ir_module *m, LLVMValueRef ref,
                                 enum ir_kind element, enum ir_space space, enum ir_level level,
                                 uint32_t align) {
    struct ir_value *v = push_value(L, m, ref, IR_POINTER, level);
    v->element = element;
    v->space = space;
    v->multiple = align;
    return v;
}

struct ir_value *ir_test(lua_State *L, int arg) {
    return luaL_testudata(L, arg, IR_VALUE);
}

bool ir_scope_open(const struct ir_module *m, uint32_t scope) {
    for (int i = m->depth - 1; i >= 0; i--)
        if (m->scopes[i].id == scope) return true;
    return false;
}

struct ir_value *ir_check(lua_State *L, int arg) {
    struct ir_value *v = ir_test(L, arg);
    struct ir_module *m = ir_current(L);
    if (!v) {
        ir_error(L, "a value is expected, this is a %s", luaL_typename(L, arg));
        return NULL; /* never: an error does not return */
    }
    if (v->kernel != m->kernel) ir_error(L, "this value belongs to another kernel");
    if (!ir_scope_open(m, v->scope))
        ir_error(L, "this value was made inside a branch or loop that has ended");
    return v;
}

enum ir_level ir_control(const struct ir_module *m) {
    return m->scopes[m->depth - 1].level;
}

void ir_check_collective(lua_State *L, struct ir_module *m, const char *what, enum ir_level need) {
    enum ir_level have = ir_control(m);
    if (have > need)
        ir_error(
            L, "%s needs all threads of the %s, but whether it runs here depends on a %s condition",
            what, need == IR_WARP ? "warp" : "block", level_names[have]);
}

/* A Lua number as a constant; integers must fit, floats are rounded once, to nearest even. */
struct ir_value ir_number(lua_State *L, int arg, enum ir_kind kind) {
    struct ir_module *m = ir_current(L);
    const struct ir_kind_info *info = &ir_kind_info[kind];
    struct ir_value v = {.kind = kind, .multiple = 1, .kernel = m->kernel};
    if (kind == IR_POINTER)
        ir_error(L, "a pointer is expected, this is a %s", luaL_typename(L, arg));
    LLVMTypeRef type = ir_llvm_type(m, kind, IR_GENERIC);
    v.scope = m->scopes[0].id;
    if (kind == IR_BOOL && lua_isboolean(L, arg)) {
        v.ref = LLVMConstInt(type, (unsigned)lua_toboolean(L, arg), 0);
        return v;
    }
    if (lua_type(L, arg) != LUA_TNUMBER)
        ir_error(L, "a %s or a number is expected, this is a %s", info->name,
                 luaL_typename(L, arg));
    if (info->class == IR_CLASS_FLOAT) {
        double number = lua_tonumber(L, arg);
        if (kind == IR_F32) number = (double)(float)number;
        v.ref = LLVMConstReal(type, number);
        return v;
    }
    if (info->class != IR_CLASS_INT) ir_error(L, "a number cannot stand for a %s", info->name);
    int exact = 0;
    lua_Integer number = lua_tointegerx(L, arg, &exact);
    int bits = (int)(8 * info->bytes);
    bool fits = exact != 0;
    if (bits < 64) {
        lua_Integer low = info->is_signed ? -((lua_Integer)1 << (bits - 1)) : 0;
        lua_Integer high = ((lua_Integer)1 << (info->is_signed ? bits - 1 : bits)) - 1;
        fits = fits && number >= low && number <= high;
    }
    if (!fits) ir_error(L, "%s does not fit a %s", luaL_tolstring(L, arg, NULL), info->name);
    v.ref = LLVMConstInt(type, (unsigned long long)number, info->is_signed);
    v.multiple = ir_power_of_two((uint64_t)number);
    return v;
}

struct ir_value ir_operand(lua_State *L, int arg, enum ir_kind kind) {
    if (!ir_test(L, arg)) return ir_number(L, arg, kind);
    struct ir_value *v = ir_check(L, arg);
    if (v->kind != kind)
        ir_error(L, "type mismatch: %s where %s is needed; convert with :to()",
                 ir_kind_info[v->kind].name, ir_kind_info[kind].name);
    return *v;
}

/* ---- Lua functions ---- */

/* ir.const(type, number) */
static int l_const(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value v = ir_number(L, 2, ir_check_kind(L, 1));
    ir_push(L, m, v.ref, v.kind, IR_UNIFORM)->multiple = v.multiple;
    return 1;
}

/* ir.is_value(x) */
static int l_is_value(lua_State *L) {
    lua_pushboolean(L, ir_test(L, 1) != NULL);
    return 1;
}

/* v:type(): "u32", or "pointer to bf16" */
static int l_type(lua_State *L) {
    struct ir_value *v = luaL_checkudata(L, 1, IR_VALUE);
    if (v->kind == IR_POINTER)
        lua_pushfstring(L, "pointer to %s", ir_kind_info[v->element].name);
    else
        lua_pushstring(L, ir_kind_info[v->kind].name);
    return 1;
}

/* v:level(): "uniform", "warp" or "varying" */
static int l_level(lua_State *L) {
    struct ir_value *v = luaL_checkudata(L, 1, IR_VALUE);
    lua_pushstring(L, level_names[v->level]);
    return 1;
}

/* v:multiple(): a power of two that divides it (for a pointer: its known alignment) */
static int l_multiple(lua_State *L) {
    struct ir_value *v = luaL_checkudata(L, 1, IR_VALUE);
    lua_pushinteger(L, v->multiple);
    return 1;
}

/* v:promise{ level = "warp", multiple = 16 }: what the author knows and we cannot derive. */
static int l_promise(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value v = *ir_check(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "level");
    v.level = ir_check_level(L, -1, v.level);
    lua_getfield(L, 2, "multiple");
    v.multiple = (uint32_t)luaL_optinteger(L, -1, v.multiple);
    if (!v.multiple || v.multiple & (v.multiple - 1)) ir_error(L, "multiple is no power of two");
    struct ir_value *out = ir_push(L, m, v.ref, v.kind, v.level);
    v.scope = out->scope;
    *out = v;
    return 1;
}

static int l_tostring(lua_State *L) {
    struct ir_value *v = luaL_checkudata(L, 1, IR_VALUE);
    lua_pushfstring(L, "value of type %s (%s)", ir_kind_info[v->kind].name, level_names[v->level]);
    return 1;
}

static int l_no_order(lua_State *L) {
    return ir_error(L, "values are registers: compare them with :lt, :le, :gt, :ge, not < or <=");
}

static int l_no_equality(lua_State *L) {
    return ir_error(L, "values are registers: compare them with :eq or :ne, not == or ~=");
}

void ir_open_values(lua_State *L) {
    static const luaL_Reg functions[] = {{"const", l_const}, {"is_value", l_is_value}, {0, 0}};
    static const luaL_Reg methods[] = {
        {"type", l_type},       {"level", l_level},         {"multiple", l_multiple},
        {"promise", l_promise}, {"__tostring", l_tostring}, {"__lt", l_no_order},
        {"__le", l_no_order},   {"__eq", l_no_equality},    {0, 0}};
    luaL_getmetatable(L, IR_VALUE);
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}

int luaopen_ir(lua_State *L) {
    lua_newtable(L);
    luaL_newmetatable(L, IR_VALUE);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newmetatable(L, IR_VARIABLE);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    ir_open_values(L);
    ir_open_arith(L);
    ir_open_convert(L);
    ir_open_memory(L);
    ir_open_flow(L);
    ir_open_warp(L);
    ir_open_asm(L);
    return 1;
}
