/* Where a thread stands, and what the threads of a warp or block do together. */
#include "ir.h"

#include <string.h>

#define FULL_MASK 0xffffffffu

static LLVMValueRef const_i32(const struct ir_module *m, unsigned value) {
    return LLVMConstInt(LLVMInt32TypeInContext(m->context), value, 0);
}

static LLVMValueRef special(lua_State *L, struct ir_module *m, const char *name) {
    return ir_intrinsic(L, m, name, NULL, 0, NULL, 0);
}

/* ir.block_id([axis]): "x", "y" or "z" */
static int l_block_id(lua_State *L) {
    static const char *const axes[] = {"x", "y", "z", NULL};
    static const char *const names[] = {"llvm.nvvm.read.ptx.sreg.ctaid.x",
                                        "llvm.nvvm.read.ptx.sreg.ctaid.y",
                                        "llvm.nvvm.read.ptx.sreg.ctaid.z"};
    struct ir_module *m = ir_current(L);
    int axis = luaL_checkoption(L, 1, "x", axes);
    ir_push(L, m, special(L, m, names[axis]), IR_U32, IR_UNIFORM);
    return 1;
}

static LLVMValueRef thread_index(lua_State *L, struct ir_module *m) {
    return special(L, m, "llvm.nvvm.read.ptx.sreg.tid.x");
}

/* ir.thread_id(): 0 .. block - 1 (blocks are one-dimensional) */
static int l_thread_id(lua_State *L) {
    struct ir_module *m = ir_current(L);
    ir_push(L, m, thread_index(L, m), IR_U32, IR_VARYING);
    return 1;
}

/* ir.lane_id(): 0 .. 31 */
static int l_lane_id(lua_State *L) {
    struct ir_module *m = ir_current(L);
    LLVMValueRef lane = LLVMBuildAnd(m->builder, thread_index(L, m), const_i32(m, 31), "");
    ir_push(L, m, lane, IR_U32, IR_VARYING);
    return 1;
}

/* ir.warp_id(): the warp's number in its block, the same in all its lanes */
static int l_warp_id(lua_State *L) {
    struct ir_module *m = ir_current(L);
    LLVMValueRef warp = LLVMBuildLShr(m->builder, thread_index(L, m), const_i32(m, 5), "");
    ir_push(L, m, warp, IR_U32, IR_WARP);
    return 1;
}

/* ---- shuffles: all 32 lanes take part, always ---- */

static int shuffle(lua_State *L, const char *of_float, const char *of_int, unsigned clamp) {
    struct ir_module *m = ir_current(L);
    ir_check_collective(L, m, "a shuffle", IR_WARP);
    struct ir_value v = *ir_check(L, 1);
    struct ir_value by = ir_operand(L, 2, IR_U32);
    if (ir_kind_info[v.kind].bytes != 4)
        return ir_error(L, "a shuffle moves 32 bits, not a %s", ir_kind_info[v.kind].name);
    LLVMValueRef args[4] = {const_i32(m, FULL_MASK), v.ref, by.ref, const_i32(m, clamp)};
    LLVMValueRef ref = ir_intrinsic(L, m, v.kind == IR_F32 ? of_float : of_int, NULL, 0, args, 4);
    ir_push(L, m, ref, v.kind, IR_VARYING);
    return 1;
}

/* ir.shuffle_xor(v, mask): the value of lane (own xor mask) */
static int l_shuffle_xor(lua_State *L) {
    return shuffle(L, "llvm.nvvm.shfl.sync.bfly.f32", "llvm.nvvm.shfl.sync.bfly.i32", 31);
}

/* ir.shuffle(v, lane): the value of that lane */
static int l_shuffle(lua_State *L) {
    return shuffle(L, "llvm.nvvm.shfl.sync.idx.f32", "llvm.nvvm.shfl.sync.idx.i32", 31);
}

/* ir.shuffle_up(v, n): the value of lane (own - n); the first n lanes keep theirs */
static int l_shuffle_up(lua_State *L) {
    return shuffle(L, "llvm.nvvm.shfl.sync.up.f32", "llvm.nvvm.shfl.sync.up.i32", 0);
}

/* ir.ballot(condition): u32, bit l is lane l's condition */
static int l_ballot(lua_State *L) {
    struct ir_module *m = ir_current(L);
    ir_check_collective(L, m, "a ballot", IR_WARP);
    struct ir_value v = ir_operand(L, 1, IR_BOOL);
    LLVMValueRef args[2] = {const_i32(m, FULL_MASK), v.ref};
    ir_push(L, m, ir_intrinsic(L, m, "llvm.nvvm.vote.ballot.sync", NULL, 0, args, 2), IR_U32,
            IR_WARP);
    return 1;
}

/* ir.atomic_add(pointer, value) -> what was there: 32-bit integers, relaxed */
static int l_atomic_add(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value p = *ir_check(L, 1);
    if (p.kind != IR_POINTER || ir_kind_info[p.element].class != IR_CLASS_INT ||
        ir_kind_info[p.element].bytes != 4)
        return ir_error(L, "an atomic addition wants a pointer to u32 or i32");
    struct ir_value v = ir_operand(L, 2, p.element);
    LLVMValueRef old = LLVMBuildAtomicRMW(m->builder, LLVMAtomicRMWBinOpAdd, p.ref, v.ref,
                                          LLVMAtomicOrderingMonotonic, 0);
    ir_push(L, m, old, p.element, IR_VARYING);
    return 1;
}

/* ir.popcount(v): the bits set in a u32 */
static int l_popcount(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value v = ir_operand(L, 1, IR_U32);
    LLVMTypeRef type = ir_llvm_type(m, IR_U32, IR_GENERIC);
    ir_push(L, m, ir_intrinsic(L, m, "llvm.ctpop", &type, 1, &v.ref, 1), IR_U32, v.level);
    return 1;
}

/* ir.barrier(): all threads of the block wait for each other and see each other's writes */
static int l_barrier(lua_State *L) {
    struct ir_module *m = ir_current(L);
    ir_check_collective(L, m, "a barrier", IR_UNIFORM);
    ir_intrinsic(L, m, "llvm.nvvm.barrier0", NULL, 0, NULL, 0);
    return 0;
}

/* ir.warp_barrier(): the same for the threads of a warp */
static int l_warp_barrier(lua_State *L) {
    struct ir_module *m = ir_current(L);
    ir_check_collective(L, m, "a warp barrier", IR_WARP);
    LLVMValueRef mask = const_i32(m, FULL_MASK);
    ir_intrinsic(L, m, "llvm.nvvm.bar.warp.sync", NULL, 0, &mask, 1);
    return 0;
}

void ir_open_warp(lua_State *L) {
    static const luaL_Reg functions[] = {{"block_id", l_block_id},
                                         {"thread_id", l_thread_id},
                                         {"lane_id", l_lane_id},
                                         {"warp_id", l_warp_id},
                                         {"shuffle", l_shuffle},
                                         {"shuffle_xor", l_shuffle_xor},
                                         {"shuffle_up", l_shuffle_up},
                                         {"ballot", l_ballot},
                                         {"atomic_add", l_atomic_add},
                                         {"popcount", l_popcount},
                                         {"barrier", l_barrier},
                                         {"warp_barrier", l_warp_barrier},
                                         {0, 0}};
    luaL_setfuncs(L, functions, 0);
}
