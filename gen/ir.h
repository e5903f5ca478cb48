/*
 * The kernel language's primitives over LLVM-C, as Lua sees them: the module "ir".
 *
 * A value stands for a register of one kernel. Beside its LLVM value it carries what LLVM does not
 * check and a kernel author gets wrong: signedness, how far it varies, the control scope that made
 * it, and, for integers and addresses, a power of two that divides it.
 *
 * Every error is a Lua error that names the template's line.
 */
#ifndef GEN_IR_H
#define GEN_IR_H

#include "target.h"

#include <lauxlib.h>
#include <llvm-c/Core.h>
#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

enum ir_kind {
    IR_BOOL,
    IR_U8,
    IR_I8,
    IR_U16,
    IR_I16,
    IR_U32,
    IR_I32,
    IR_U64,
    IR_I64,
    IR_F16,
    IR_BF16,
    IR_F32,
    IR_F64,
    IR_E4M3,
    IR_E5M2,
    IR_UE8M0,
    IR_E2M1X2, /* storage only: 8 bits without arithmetic */
    IR_POINTER,
    IR_KINDS
};

enum ir_class { IR_CLASS_BOOL, IR_CLASS_INT, IR_CLASS_FLOAT, IR_CLASS_BITS, IR_CLASS_POINTER };

struct ir_kind_info {
    const char *name;
    unsigned bytes;
    enum ir_class class;
    bool is_signed;
};

extern const struct ir_kind_info ir_kind_info[IR_KINDS];

/* How far a value (or the condition of a scope) varies inside a thread block. */
enum ir_level { IR_UNIFORM = 0, IR_WARP = 1, IR_VARYING = 2 };

enum ir_space { IR_GENERIC = 0, IR_GLOBAL = 1, IR_SHARED = 3, IR_CONST = 4, IR_LOCAL = 5 };

struct ir_value {
    LLVMValueRef ref;
    enum ir_kind kind;
    enum ir_kind element; /* pointers: what they point to */
    enum ir_space space;  /* pointers */
    enum ir_level level;
    uint32_t multiple; /* integers: a power of two that divides it; pointers: known alignment */
    uint32_t scope;    /* the scope that made it */
    uint32_t kernel;   /* the kernel that made it */
};

/* A mutable register, kept in an alloca that sroa removes. Its level is fixed when it is made. */
struct ir_variable {
    LLVMValueRef slot;
    enum ir_kind kind;
    enum ir_level level;
    uint32_t scope, kernel;
};

#define IR_MAX_SCOPES 64

struct ir_scope {
    uint32_t id;
    enum ir_level level; /* of everything that decides whether this code runs */
};

/* One LLVM module being built: all kernels of one layer type for one target. */
struct ir_module {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    const struct target *target;
    unsigned ptx;          /* lowest PTX version that what was used needs: 78 */
    LLVMValueRef function; /* the kernel being built, or null */
    LLVMBasicBlockRef entry, exit;
    uint32_t kernel; /* serial number of that kernel, from 1 */
    uint32_t next_scope;
    struct ir_scope scopes[IR_MAX_SCOPES];
    int depth; /* scopes open */
    unsigned max_threads;
    char kernel_name[128]; /* for messages */
    uint64_t shared_bytes; /* static shared memory of that kernel */
};

#define IR_VALUE    "ir.value"
#define IR_VARIABLE "ir.variable"

/* Open and close a module; `name` is the LLVM module's. */
struct ir_module *ir_module_open(const char *name, const struct target *target);
void ir_module_close(struct ir_module *module);

/* Open the Lua library "ir" (luaL_requiref); functions find their module through ir_current. */
int luaopen_ir(lua_State *L);
/* Tell the Lua state which module is being built; null when none is. */
void ir_set_current(lua_State *L, struct ir_module *module);
struct ir_module *ir_current(lua_State *L);

/* ---- between the ir_*.c files ---- */

enum ir_kind ir_check_kind(lua_State *L, int arg);
LLVMTypeRef ir_llvm_type(const struct ir_module *m, enum ir_kind kind, enum ir_space space);
struct ir_value *ir_push(lua_State *L, struct ir_module *m, LLVMValueRef ref, enum ir_kind kind,
                         enum ir_level level);
struct ir_value *ir_push_pointer(lua_State *L, struct ir_module *m, LLVMValueRef ref,
                                 enum ir_kind element, enum ir_space space, enum ir_level level,
                                 uint32_t align);
/* The value at `arg`, checked: of this kernel and made by a scope that is still open. */
struct ir_value *ir_check(lua_State *L, int arg);
struct ir_value *ir_test(lua_State *L, int arg); /* null if it is no value; not checked */
/* The value at `arg` as `kind`: a value of that kind, or a Lua number that fits it. */
struct ir_value ir_operand(lua_State *L, int arg, enum ir_kind kind);
struct ir_value ir_number(lua_State *L, int arg, enum ir_kind kind);
bool ir_scope_open(const struct ir_module *m, uint32_t scope);
enum ir_level ir_control(const struct ir_module *m);
/* Refuse a collective operation where not all its threads are sure to arrive. */
void ir_check_collective(lua_State *L, struct ir_module *m, const char *what, enum ir_level need);
enum ir_level ir_check_level(lua_State *L, int arg, enum ir_level otherwise);
uint32_t ir_power_of_two(uint64_t value); /* the largest that divides it; 2^30 for 0 */
/* Raise an error with the line of the template and how it was reached. */
int ir_error(lua_State *L, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Call an LLVM intrinsic; `overloads` names its overloaded types. */
LLVMValueRef ir_intrinsic(lua_State *L, struct ir_module *m, const char *name,
                          LLVMTypeRef *overloads, unsigned n_overloads, LLVMValueRef *args,
                          unsigned n_args);
/* Raise the PTX version (and check the architecture) that an instruction needs. */
void ir_require(lua_State *L, struct ir_module *m, const char *what, unsigned sm, unsigned ptx);

/* Registration: each file adds its functions to the table "ir" or to the metatable on top. */
void ir_open_values(lua_State *L);
void ir_open_arith(lua_State *L);
void ir_open_convert(lua_State *L);
void ir_open_memory(lua_State *L);
void ir_open_flow(lua_State *L);
void ir_open_warp(lua_State *L);
void ir_open_asm(lua_State *L);

#endif
