/* Arithmetic, logic, comparison and selection. */
#include "ir.h"

#include <string.h>

enum op { ADD, SUB, MUL, DIV, IDIV, MOD, AND, OR, XOR, SHL, SHR };

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "&", "|", "~", "<<", ">>"};

struct pair {
    struct ir_value a, b;
    enum ir_level level;
};

/* Two operands of one kind; a Lua number takes the other operand's kind. */
static struct pair operands(lua_State *L) {
    struct pair p;
    struct ir_value *v = ir_test(L, 1) ? ir_check(L, 1) : ir_check(L, 2);
    if (v->kind == IR_POINTER) ir_error(L, "move a pointer with :at(), not by arithmetic");
    p.a = ir_operand(L, 1, v->kind);
    p.b = ir_operand(L, 2, v->kind);
    p.level = p.a.level > p.b.level ? p.a.level : p.b.level;
    return p;
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t product(uint64_t a, uint64_t b) {
    return ir_power_of_two(a * b);
}

/* The power of two that divides the result of an integer operation. */
static uint32_t result_multiple(enum op op, const struct pair *p) {
    uint64_t constant = LLVMIsConstant(p->b.ref) ? LLVMConstIntGetZExtValue(p->b.ref) : 0;
    switch (op) {
    case ADD:
    case SUB: return smaller(p->a.multiple, p->b.multiple);
    case MUL: return product(p->a.multiple, p->b.multiple);
    case AND: return p->a.multiple > p->b.multiple ? p->a.multiple : p->b.multiple;
    case OR:
    case XOR:
    case MOD: return smaller(p->a.multiple, p->b.multiple);
    case SHL: return constant < 30 ? product(p->a.multiple, UINT64_C(1) << constant) : 1;
    case IDIV:
        return constant && ir_power_of_two(constant) == constant && p->a.multiple >= constant
                   ? p->a.multiple / (uint32_t)constant
                   : 1;
    default: return 1;
    }
}

static LLVMValueRef integer_op(lua_State *L, struct ir_module *m, enum op op,
                               const struct pair *p) {
    LLVMBuilderRef b = m->builder;
    LLVMValueRef x = p->a.ref, y = p->b.ref;
    bool is_signed = ir_kind_info[p->a.kind].is_signed;
    switch (op) {
    case ADD: return LLVMBuildAdd(b, x, y, "");
    case SUB: return LLVMBuildSub(b, x, y, "");
    case MUL: return LLVMBuildMul(b, x, y, "");
    case AND: return LLVMBuildAnd(b, x, y, "");
    case OR: return LLVMBuildOr(b, x, y, "");
    case XOR: return LLVMBuildXor(b, x, y, "");
    case SHL: return LLVMBuildShl(b, x, y, "");
    case SHR: return is_signed ? LLVMBuildAShr(b, x, y, "") : LLVMBuildLShr(b, x, y, "");
    case IDIV:
    case MOD:
        /* Lua floors, PTX truncates: only for unsigned integers do they mean the same. */
        if (is_signed) ir_error(L, "%s is for unsigned integers", op_names[op]);
        return op == IDIV ? LLVMBuildUDiv(b, x, y, "") : LLVMBuildURem(b, x, y, "");
    default: ir_error(L, "%s is not for integers; use //", op_names[op]); return NULL;
    }
}

static LLVMValueRef float_op(lua_State *L, struct ir_module *m, enum op op, const struct pair *p) {
    LLVMBuilderRef b = m->builder;
    switch (op) {
    case ADD: return LLVMBuildFAdd(b, p->a.ref, p->b.ref, "");
    case SUB: return LLVMBuildFSub(b, p->a.ref, p->b.ref, "");
    case MUL: return LLVMBuildFMul(b, p->a.ref, p->b.ref, "");
    case DIV: return LLVMBuildFDiv(b, p->a.ref, p->b.ref, "");
    default: ir_error(L, "%s is not for %s", op_names[op], ir_kind_info[p->a.kind].name);
    }
    return NULL;
}

static LLVMValueRef bool_op(lua_State *L, struct ir_module *m, enum op op, const struct pair *p) {
    LLVMBuilderRef b = m->builder;
    switch (op) {
    case AND: return LLVMBuildAnd(b, p->a.ref, p->b.ref, "");
    case OR: return LLVMBuildOr(b, p->a.ref, p->b.ref, "");
    case XOR: return LLVMBuildXor(b, p->a.ref, p->b.ref, "");
    default: ir_error(L, "%s is not for bool", op_names[op]);
    }
    return NULL;
}

static int arith(lua_State *L, enum op op) {
    struct ir_module *m = ir_current(L);
    struct pair p = operands(L);
    LLVMValueRef ref = NULL;
    switch (ir_kind_info[p.a.kind].class) {
    case IR_CLASS_INT: ref = integer_op(L, m, op, &p); break;
    case IR_CLASS_FLOAT: ref = float_op(L, m, op, &p); break;
    case IR_CLASS_BOOL: ref = bool_op(L, m, op, &p); break;
    default: return ir_error(L, "%s has no arithmetic", ir_kind_info[p.a.kind].name);
    }
    struct ir_value *out = ir_push(L, m, ref, p.a.kind, p.level);
    if (ir_kind_info[p.a.kind].class == IR_CLASS_INT) out->multiple = result_multiple(op, &p);
    return 1;
}

static int l_add(lua_State *L) {
    return arith(L, ADD);
}
static int l_sub(lua_State *L) {
    return arith(L, SUB);
}
static int l_mul(lua_State *L) {
    return arith(L, MUL);
}
static int l_div(lua_State *L) {
    return arith(L, DIV);
}
static int l_idiv(lua_State *L) {
    return arith(L, IDIV);
}
static int l_mod(lua_State *L) {
    return arith(L, MOD);
}
static int l_band(lua_State *L) {
    return arith(L, AND);
}
static int l_bor(lua_State *L) {
    return arith(L, OR);
}
static int l_bxor(lua_State *L) {
    return arith(L, XOR);
}
static int l_shl(lua_State *L) {
    return arith(L, SHL);
}
static int l_shr(lua_State *L) {
    return arith(L, SHR);
}

static int l_unm(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value *v = ir_check(L, 1);
    enum ir_class class = ir_kind_info[v->kind].class;
    if (class == IR_CLASS_FLOAT)
        ir_push(L, m, LLVMBuildFNeg(m->builder, v->ref, ""), v->kind, v->level);
    else if (class == IR_CLASS_INT)
        ir_push(L, m, LLVMBuildNeg(m->builder, v->ref, ""), v->kind, v->level)->multiple =
            v->multiple;
    else
        return ir_error(L, "%s has no negative", ir_kind_info[v->kind].name);
    return 1;
}

/* ~v: bitwise for integers, negation for bool */
static int l_bnot(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value *v = ir_check(L, 1);
    enum ir_class class = ir_kind_info[v->kind].class;
    if (class != IR_CLASS_INT && class != IR_CLASS_BOOL)
        return ir_error(L, "~ is not for %s", ir_kind_info[v->kind].name);
    ir_push(L, m, LLVMBuildNot(m->builder, v->ref, ""), v->kind, v->level);
    return 1;
}

/* ---- comparison: ordered for floats, so a NaN makes all but :ne false ---- */

struct predicate {
    LLVMIntPredicate of_signed, of_unsigned;
    LLVMRealPredicate of_float;
};

static int compare(lua_State *L, struct predicate with) {
    struct ir_module *m = ir_current(L);
    struct pair p = operands(L);
    const struct ir_kind_info *info = &ir_kind_info[p.a.kind];
    LLVMValueRef ref;
    if (info->class == IR_CLASS_FLOAT)
        ref = LLVMBuildFCmp(m->builder, with.of_float, p.a.ref, p.b.ref, "");
    else if (info->class == IR_CLASS_INT || info->class == IR_CLASS_BOOL)
        ref = LLVMBuildICmp(m->builder, info->is_signed ? with.of_signed : with.of_unsigned,
                            p.a.ref, p.b.ref, "");
    else
        return ir_error(L, "%s cannot be compared", info->name);
    ir_push(L, m, ref, IR_BOOL, p.level);
    return 1;
}

static int l_lt(lua_State *L) {
    return compare(L, (struct predicate){LLVMIntSLT, LLVMIntULT, LLVMRealOLT});
}
static int l_le(lua_State *L) {
    return compare(L, (struct predicate){LLVMIntSLE, LLVMIntULE, LLVMRealOLE});
}
static int l_gt(lua_State *L) {
    return compare(L, (struct predicate){LLVMIntSGT, LLVMIntUGT, LLVMRealOGT});
}
static int l_ge(lua_State *L) {
    return compare(L, (struct predicate){LLVMIntSGE, LLVMIntUGE, LLVMRealOGE});
}
static int l_eq(lua_State *L) {
    return compare(L, (struct predicate){LLVMIntEQ, LLVMIntEQ, LLVMRealOEQ});
}
static int l_ne(lua_State *L) {
    return compare(L, (struct predicate){LLVMIntNE, LLVMIntNE, LLVMRealUNE});
}

/* condition:select(a, b): a where it holds, else b; both are computed */
static int l_select(lua_State *L) {
    struct ir_module *m = ir_current(L);
    struct ir_value condition = ir_operand(L, 1, IR_BOOL);
    struct ir_value *typed = ir_test(L, 2) ? ir_check(L, 2) : ir_check(L, 3);
    struct ir_value a = ir_operand(L, 2, typed->kind), b = ir_operand(L, 3, typed->kind);
    enum ir_level level = condition.level;
    if (a.level > level) level = a.level;
    if (b.level > level) level = b.level;
    LLVMValueRef ref = LLVMBuildSelect(m->builder, condition.ref, a.ref, b.ref, "");
    if (typed->kind == IR_POINTER) {
        if (a.element != b.element || a.space != b.space)
            return ir_error(L, "select between pointers of two kinds");
        ir_push_pointer(L, m, ref, a.element, a.space, level, smaller(a.multiple, b.multiple));
    } else {
        ir_push(L, m, ref, typed->kind, level)->multiple = smaller(a.multiple, b.multiple);
    }
    return 1;
}

/* ---- functions of floats: one LLVM intrinsic each, IEEE rounding, nothing approximate ---- */

static int float_call(lua_State *L, const char *intrinsic, int arity, unsigned overloads) {
    struct ir_module *m = ir_current(L);
    struct ir_value *typed = NULL;
    struct ir_value args[3];
    LLVMValueRef refs[3];
    enum ir_level level = IR_UNIFORM;
    for (int i = 1; i <= arity && !typed; i++)
        if (ir_test(L, i)) typed = ir_check(L, i);
    if (!typed) return ir_error(L, "at least one argument must be a value");
    if (ir_kind_info[typed->kind].class != IR_CLASS_FLOAT)
        return ir_error(L, "this is for floats, not for %s", ir_kind_info[typed->kind].name);
    for (int i = 0; i < arity; i++) {
        args[i] = ir_operand(L, i + 1, typed->kind);
        refs[i] = args[i].ref;
        if (args[i].level > level) level = args[i].level;
    }
    LLVMTypeRef type = ir_llvm_type(m, typed->kind, IR_GENERIC);
    LLVMValueRef ref = ir_intrinsic(L, m, intrinsic, &type, overloads, refs, (unsigned)arity);
    ir_push(L, m, ref, typed->kind, level);
    return 1;
}

/* ir.min, ir.max: a NaN operand loses against a number */
static int l_min(lua_State *L) {
    return float_call(L, "llvm.minnum", 2, 1);
}
static int l_max(lua_State *L) {
    return float_call(L, "llvm.maxnum", 2, 1);
}
static int l_abs(lua_State *L) {
    return float_call(L, "llvm.fabs", 1, 1);
}
static int l_fma(lua_State *L) {
    return float_call(L, "llvm.fma", 3, 1);
}
static int l_sqrt(lua_State *L) {
    return float_call(L, "llvm.nvvm.sqrt.rn.f", 1, 0);
}
static int l_round_down(lua_State *L) {
    return float_call(L, "llvm.floor", 1, 1);
}

static int integer_call(lua_State *L, const char *of_signed, const char *of_unsigned) {
    struct ir_module *m = ir_current(L);
    struct pair p = operands(L);
    if (ir_kind_info[p.a.kind].class != IR_CLASS_INT)
        return ir_error(L, "this is for integers, not for %s", ir_kind_info[p.a.kind].name);
    LLVMTypeRef type = ir_llvm_type(m, p.a.kind, IR_GENERIC);
    LLVMValueRef refs[2] = {p.a.ref, p.b.ref};
    const char *name = ir_kind_info[p.a.kind].is_signed ? of_signed : of_unsigned;
    LLVMValueRef ref = ir_intrinsic(L, m, name, &type, 1, refs, 2);
    ir_push(L, m, ref, p.a.kind, p.level)->multiple = smaller(p.a.multiple, p.b.multiple);
    return 1;
}

/* ir.imin, ir.imax: for integers, by their sign */
static int l_imin(lua_State *L) {
    return integer_call(L, "llvm.smin", "llvm.umin");
}
static int l_imax(lua_State *L) {
    return integer_call(L, "llvm.smax", "llvm.umax");
}

LLVMValueRef ir_intrinsic(lua_State *L, struct ir_module *m, const char *name,
                          LLVMTypeRef *overloads, unsigned n_overloads, LLVMValueRef *args,
                          unsigned n_args) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    if (!id) ir_error(L, "LLVM has no intrinsic %s", name);
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(m->module, id, overloads, n_overloads);
    LLVMTypeRef type = LLVMIntrinsicGetType(m->context, id, overloads, n_overloads);
    return LLVMBuildCall2(m->builder, type, function, args, n_args, "");
}

void ir_open_arith(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"min", l_min},   {"max", l_max},          {"abs", l_abs},
        {"fma", l_fma},   {"sqrt", l_sqrt},        {"imin", l_imin},
        {"imax", l_imax}, {"floor", l_round_down}, {0, 0}};
    static const luaL_Reg methods[] = {{"__add", l_add},   {"__sub", l_sub},     {"__mul", l_mul},
                                       {"__div", l_div},   {"__idiv", l_idiv},   {"__mod", l_mod},
                                       {"__band", l_band}, {"__bor", l_bor},     {"__bxor", l_bxor},
                                       {"__shl", l_shl},   {"__shr", l_shr},     {"__unm", l_unm},
                                       {"__bnot", l_bnot}, {"lt", l_lt},         {"le", l_le},
                                       {"gt", l_gt},       {"ge", l_ge},         {"eq", l_eq},
                                       {"ne", l_ne},       {"select", l_select}, {0, 0}};
    luaL_getmetatable(L, IR_VALUE);
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}
