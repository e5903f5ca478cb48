/* Pointers, loads and stores, shared memory. A vector access that may be misaligned is refused. */
#include "ir.h"

#include <stdio.h>

static struct ir_value *check_pointer(lua_State *L, int arg) {
    struct ir_value *p = ir_check(L, arg);
    if (p->kind != IR_POINTER)
        ir_error(L, "a pointer is expected, this is a %s", ir_kind_info[p->kind].name);
    return p;
}

/* An index as a 64-bit value, by its own signedness. */
static LLVMValueRef widen(struct ir_module *m, const struct ir_value *index) {
    LLVMTypeRef wide = LLVMInt64TypeInContext(m->context);
    if (ir_kind_info[index->kind].bytes == 8) return index->ref;
    return ir_kind_info[index->kind].is_signed ? LLVMBuildSExt(m->builder, index->ref, wide, "")
                                               : LLVMBuildZExt(m->builder, index->ref, wide, "");
}

static struct ir_value *advance(lua_State *L, struct ir_module *m, const struct ir_value *p,
                                const struct ir_value *index, unsigned scale) {
    LLVMTypeRef byte = LLVMInt8TypeInContext(m->context);
    LLVMValueRef size = LLVMConstInt(LLVMInt64TypeInContext(m->context), scale, 0);
    LLVMValueRef offset = LLVMBuildMul(m->builder, widen(m, index), size, "");
    LLVMValueRef ref = LLVMBuildGEP2(m->builder, byte, p->ref, &offset, 1, "");
    uint32_t step = ir_power_of_two((uint64_t)index->multiple * scale);
    uint32_t align = p->multiple < step ? p->multiple : step;
    enum ir_level level = p->level > index->level ? p->level : index->level;
    return ir_push_pointer(L, m, ref, p->element, p->space, level, align);
}

static int move(lua_State *L, bool by_bytes) {
    struct ir_module *m = ir_current(L);
    struct ir_value p = *check_pointer(L, 1), index;
    if (ir_test(L, 2)) {
        index = *ir_check(L, 2);
        if (ir_kind_info[index.kind].class != IR_CLASS_INT)
            return ir_error(L, "an index must be an integer, this is a %s",
                            ir_kind_info[index.kind].name);
    } else {
        index = ir_number(L, 2, IR_I64);
    }
    advance(L, m, &p, &index, by_bytes ? 1 : ir_kind_info[p.element].bytes);
    return 1;
}

/* p:at(index): `index` elements further */
static int l_at(lua_State *L) {
    return move(L, false);
}

/* p:bytes(offset): `offset` bytes further */
static int l_bytes(lua_State *L) {
    return move(L, true);
}

/* p:as(type): the same address, pointing to another type */
static int l_as(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value p = *check_pointer(L, 1);
    ir_push_pointer(L, m, p.ref, ir_check_kind(L, 2), p.space, p.level, p.multiple);
    return 1;
}

static unsigned check_access(lua_State *L, const struct ir_value *p, lua_Integer count) {
    unsigned bytes = ir_kind_info[p->element].bytes;
    if (count < 1 || count > 16 || (count & (count - 1)) || (unsigned)count * bytes > 16)
        ir_error(L, "an access moves 1 to 16 bytes, a power of two; this is %d times %s",
                 (int)count, ir_kind_info[p->element].name);
    unsigned need = (unsigned)count * bytes;
    if (p->multiple < need)
        ir_error(L,
                 "misaligned vector: the address is known to be a multiple of %u, the access "
                 "needs %u",
                 p->multiple, need);
    return need;
}

/* p:load() -> value; p:load(n) -> table of n values, one access of n elements */
static int l_load(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value p = *check_pointer(L, 1);
    bool scalar = lua_isnoneornil(L, 2);
    lua_Integer count = luaL_optinteger(L, 2, 1);
    unsigned align = check_access(L, &p, count);
    LLVMTypeRef element = ir_llvm_type(m, p.element, IR_GENERIC);
    LLVMTypeRef type = count == 1 ? element : LLVMVectorType(element, (unsigned)count);
    LLVMValueRef loaded = LLVMBuildLoad2(m->builder, type, p.ref, "");
    LLVMSetAlignment(loaded, align);
    if (scalar) {
        ir_push(L, m, loaded, p.element, p.level);
        return 1;
    }
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 0; i < count; i++) {
        LLVMValueRef index =
            LLVMConstInt(LLVMInt32TypeInContext(m->context), (unsigned long long)i, 0);
        LLVMValueRef part =
            count == 1 ? loaded : LLVMBuildExtractElement(m->builder, loaded, index, "");
        ir_push(L, m, part, p.element, p.level);
        lua_seti(L, -2, i + 1);
    }
    return 1;
}

/* p:store(value) or p:store({v1, ... vn}), one access */
static int l_store(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value p = *check_pointer(L, 1);
    LLVMValueRef stored;
    lua_Integer count = 1;
    if (p.space == IR_CONST) return ir_error(L, "constant memory cannot be written");
    if (lua_istable(L, 2)) {
        count = luaL_len(L, 2);
        check_access(L, &p, count);
        LLVMTypeRef element = ir_llvm_type(m, p.element, IR_GENERIC);
        stored = LLVMGetUndef(LLVMVectorType(element, (unsigned)count));
        for (lua_Integer i = 0; i < count; i++) {
            lua_geti(L, 2, i + 1);
            struct ir_value v = ir_operand(L, lua_gettop(L), p.element);
            lua_pop(L, 1);
            LLVMValueRef index =
                LLVMConstInt(LLVMInt32TypeInContext(m->context), (unsigned long long)i, 0);
            stored = LLVMBuildInsertElement(m->builder, stored, v.ref, index, "");
        }
    } else {
        stored = ir_operand(L, 2, p.element).ref;
    }
    unsigned align = check_access(L, &p, count);
    LLVMSetAlignment(LLVMBuildStore(m->builder, stored, p.ref), align);
    return 0;
}

/* ir.shared(type, count): a static array in shared memory, 16-byte aligned, one per call */
static int l_shared(lua_State *L) {
    struct ir_module *m = ir_current(L);
    enum ir_kind element = ir_check_kind(L, 1);
    lua_Integer count = luaL_checkinteger(L, 2);
    char name[160];
    if (count < 1 || count > (1 << 20))
        return ir_error(L, "a shared array of %d elements", (int)count);
    LLVMTypeRef type = LLVMArrayType2(ir_llvm_type(m, element, IR_GENERIC), (uint64_t)count);
    snprintf(name, sizeof name, "%s_shared", m->kernel_name);
    LLVMValueRef array = LLVMAddGlobalInAddressSpace(m->module, type, name, IR_SHARED);
    LLVMSetLinkage(array, LLVMInternalLinkage);
    LLVMSetInitializer(array, LLVMGetUndef(type));
    LLVMSetAlignment(array, 16);
    m->shared_bytes += ((uint64_t)count * ir_kind_info[element].bytes + 15) / 16 * 16;
    ir_push_pointer(L, m, array, element, IR_SHARED, IR_UNIFORM, 16)->scope = m->scopes[0].id;
    return 1;
}

/* ir.dynamic_shared(type): the launch's dynamic shared memory, 16-byte aligned, from its start */
static int l_dynamic_shared(lua_State *L) {
    struct ir_module *m = ir_current(L);
    enum ir_kind element = ir_check_kind(L, 1);
    LLVMValueRef array = LLVMGetNamedGlobal(m->module, "dynamic_shared");
    if (!array) {
        LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(m->context), 0);
        array = LLVMAddGlobalInAddressSpace(m->module, type, "dynamic_shared", IR_SHARED);
        LLVMSetLinkage(array, LLVMExternalLinkage);
        LLVMSetAlignment(array, 16);
    }
    ir_push_pointer(L, m, array, element, IR_SHARED, IR_UNIFORM, 16)->scope = m->scopes[0].id;
    return 1;
}

/*
 * ir.shared_limit([target]): bytes of shared memory a block can have on the target, by default the
 * one that is built for; nothing if there is no such target
 */
static int l_shared_limit(lua_State *L) {
    bool named = !lua_isnoneornil(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, "ir.module"); /* also between two kernels */
    const struct ir_module *m = lua_touserdata(L, -1);
    if (!named && !m) return luaL_error(L, "no module is open");
    const struct target *target = named ? target_find(luaL_checkstring(L, 1)) : m->target;
    if (!target) return 0;
    lua_pushinteger(L, target->max_shared);
    return 1;
}

void ir_open_memory(lua_State *L) {
    static const luaL_Reg functions[] = {{"shared", l_shared},
                                         {"dynamic_shared", l_dynamic_shared},
                                         {"shared_limit", l_shared_limit},
                                         {0, 0}};
    static const luaL_Reg methods[] = {{"at", l_at},     {"bytes", l_bytes}, {"as", l_as},
                                       {"load", l_load}, {"store", l_store}, {0, 0}};
    luaL_getmetatable(L, IR_VALUE);
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}
