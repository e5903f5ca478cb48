/* Conversions: v:to(type) keeps the number, v:bits(type) keeps the bits. */
#include "ir.h"

static bool is_int(enum ir_kind kind) {
    return ir_kind_info[kind].class == IR_CLASS_INT;
}

static bool is_float(enum ir_kind kind) {
    return ir_kind_info[kind].class == IR_CLASS_FLOAT;
}

/* A bf16 is the upper half of an f32: moved by hand, a NaN keeps its bits on every chip. */
static LLVMValueRef widen_bf16(struct ir_module *m, LLVMValueRef ref) {
    LLVMTypeRef half = LLVMInt16TypeInContext(m->context),
                word = LLVMInt32TypeInContext(m->context);
    LLVMValueRef bits = LLVMBuildBitCast(m->builder, ref, half, "");
    LLVMValueRef upper = LLVMBuildShl(m->builder, LLVMBuildZExt(m->builder, bits, word, ""),
                                      LLVMConstInt(word, 16, 0), "");
    return LLVMBuildBitCast(m->builder, upper, LLVMFloatTypeInContext(m->context), "");
}

/*
 * Float to float rounds to nearest even; NaN becomes the narrower type's NaN.
 */
static LLVMValueRef convert(lua_State *L, struct ir_module *m, const struct ir_value *v,
                            enum ir_kind to) {
    LLVMBuilderRef b = m->builder;
    LLVMTypeRef type = ir_llvm_type(m, to, IR_GENERIC);
    const struct ir_kind_info *from = &ir_kind_info[v->kind], *into = &ir_kind_info[to];
    if (v->kind == to) return v->ref;
    if (is_int(v->kind) && is_int(to)) {
        if (from->bytes == into->bytes) return v->ref;
        if (from->bytes > into->bytes) return LLVMBuildTrunc(b, v->ref, type, "");
        return from->is_signed ? LLVMBuildSExt(b, v->ref, type, "")
                               : LLVMBuildZExt(b, v->ref, type, "");
    }
    if (v->kind == IR_BF16 && to == IR_F32) return widen_bf16(m, v->ref);
    if (is_float(v->kind) && is_float(to))
        return from->bytes < into->bytes ? LLVMBuildFPExt(b, v->ref, type, "")
                                         : LLVMBuildFPTrunc(b, v->ref, type, "");
    if (is_int(v->kind) && is_float(to))
        return from->is_signed ? LLVMBuildSIToFP(b, v->ref, type, "")
                               : LLVMBuildUIToFP(b, v->ref, type, "");
    if (v->kind == IR_BOOL && is_int(to)) return LLVMBuildZExt(b, v->ref, type, "");
    ir_error(L, "no conversion from %s to %s", from->name, into->name);
    return NULL;
}

/* v:to("u64") */
static int l_to(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value v = *ir_check(L, 1);
    enum ir_kind to = ir_check_kind(L, 2);
    LLVMValueRef ref = convert(L, m, &v, to);
    struct ir_value *out = ir_push(L, m, ref, to, v.level);
    if (is_int(v.kind) && is_int(to)) out->multiple = v.multiple;
    return 1;
}

/* v:bits("u32"): the same bits as another type of the same size */
static int l_bits(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value v = *ir_check(L, 1);
    enum ir_kind to = ir_check_kind(L, 2);
    if (v.kind == IR_POINTER || v.kind == IR_BOOL || to == IR_BOOL ||
        ir_kind_info[v.kind].bytes != ir_kind_info[to].bytes)
        return ir_error(L, "the bits of a %s are not those of a %s", ir_kind_info[v.kind].name,
                        ir_kind_info[to].name);
    LLVMTypeRef type = ir_llvm_type(m, to, IR_GENERIC);
    ir_push(L, m, LLVMBuildBitCast(m->builder, v.ref, type, ""), to, v.level);
    return 1;
}

/*
 * ir.pack(type, {v1, v2, ...}): small values side by side in one larger integer, first lowest. By
 * shifts: of a vector of parts LLVM would leave those undefined that nobody reads.
 */
static int l_pack(lua_State *L) {
    struct ir_module *m = ir_current(L);
    enum ir_kind to = ir_check_kind(L, 1), kind = IR_BOOL;
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer count = luaL_len(L, 2);
    LLVMTypeRef whole = ir_llvm_type(m, to, IR_GENERIC);
    LLVMValueRef packed = NULL;
    enum ir_level level = IR_UNIFORM;
    if (ir_kind_info[to].class != IR_CLASS_INT)
        return ir_error(L, "a pack makes an integer, not a %s", ir_kind_info[to].name);
    for (lua_Integer i = 0; i < count; i++) {
        lua_geti(L, 2, i + 1);
        struct ir_value v = *ir_check(L, -1);
        lua_pop(L, 1);
        unsigned bytes = ir_kind_info[v.kind].bytes;
        if (i > 0 && v.kind != kind) return ir_error(L, "the parts of a pack differ in type");
        if (bytes * (unsigned)count != ir_kind_info[to].bytes)
            return ir_error(L, "%d times %s does not make a %s", (int)count,
                            ir_kind_info[v.kind].name, ir_kind_info[to].name);
        kind = v.kind;
        LLVMTypeRef part = LLVMIntTypeInContext(m->context, 8 * bytes);
        LLVMValueRef bits = LLVMBuildBitCast(m->builder, v.ref, part, "");
        bits = LLVMBuildZExt(m->builder, bits, whole, "");
        LLVMValueRef by = LLVMConstInt(whole, 8ull * bytes * (unsigned)i, 0);
        bits = LLVMBuildShl(m->builder, bits, by, "");
        packed = packed ? LLVMBuildOr(m->builder, packed, bits, "") : bits;
        if (v.level > level) level = v.level;
    }
    if (!packed) return ir_error(L, "an empty pack");
    ir_push(L, m, packed, to, level);
    return 1;
}

/* v:unpack("u16"): the parts of a value, lowest first */
static int l_unpack(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value v = *ir_check(L, 1);
    enum ir_kind to = ir_check_kind(L, 2);
    unsigned from_bytes = ir_kind_info[v.kind].bytes, bytes = ir_kind_info[to].bytes;
    if (v.kind == IR_POINTER || v.kind == IR_BOOL || to == IR_BOOL || from_bytes % bytes)
        return ir_error(L, "a %s has no parts of type %s", ir_kind_info[v.kind].name,
                        ir_kind_info[to].name);
    /* By shifts: of a vector of parts LLVM would leave those undefined that nobody reads. */
    unsigned count = from_bytes / bytes;
    LLVMTypeRef whole = LLVMIntTypeInContext(m->context, 8 * from_bytes);
    LLVMTypeRef part = LLVMIntTypeInContext(m->context, 8 * bytes);
    LLVMValueRef bits = LLVMBuildBitCast(m->builder, v.ref, whole, "");
    lua_createtable(L, (int)count, 0);
    for (unsigned i = 0; i < count; i++) {
        LLVMValueRef by = LLVMConstInt(whole, 8ull * bytes * i, 0);
        LLVMValueRef low =
            LLVMBuildTrunc(m->builder, LLVMBuildLShr(m->builder, bits, by, ""), part, "");
        LLVMTypeRef type = ir_llvm_type(m, to, IR_GENERIC);
        ir_push(L, m, LLVMBuildBitCast(m->builder, low, type, ""), to, v.level);
        lua_seti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

void ir_open_convert(lua_State *L) {
    static const luaL_Reg functions[] = {{"pack", l_pack}, {0, 0}};
    static const luaL_Reg methods[] = {
        {"to", l_to}, {"bits", l_bits}, {"unpack", l_unpack}, {0, 0}};
    luaL_getmetatable(L, IR_VALUE);
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}
