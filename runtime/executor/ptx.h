/*
 * A parsed PTX module: functions as flat arrays of decoded operations, variables with their
 * addresses, and one pool of constants. Nothing here changes once the module is loaded.
 *
 * Registers. A function's registers are numbered slots of 32 lanes times 32 bits (128 bytes);
 * a 64-bit register takes two slots and is named by the first. 8- and 16-bit registers are kept
 * zero-extended. Slot 0 is never a register: it stands for "always defined". Predicates are lane
 * masks, numbered apart. A negative slot -1-c is entry c of the module's pool of constants, which
 * is laid out like a register (every lane the same), so that operations need not tell the two
 * apart.
 */
#ifndef EXECUTOR_PTX_H
#define EXECUTOR_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"

enum { LANES = 32, SLOT_BYTES = LANES * 4 };

enum ptx_type {
    T_NONE,
    T_PRED,
    T_B8,
    T_U8,
    T_S8,
    T_B16,
    T_U16,
    T_S16,
    T_F16,
    T_BF16,
    T_B32,
    T_U32,
    T_S32,
    T_F32,
    T_F16X2,
    T_BF16X2,
    T_TF32,
    T_U16X2,
    T_S16X2,
    T_B64,
    T_U64,
    T_S64,
    T_F64,
    T_B128,
    T_E4M3,
    T_E5M2,
    T_E4M3X2,
    T_E5M2X2,
    T_UE8M0X2,
    T_COUNT
};

enum ptx_space {
    SPACE_GENERIC,
    SPACE_GLOBAL,
    SPACE_SHARED,
    SPACE_LOCAL,
    SPACE_CONST,
    SPACE_PARAM,
    SPACE_REG
};

enum ptx_round { ROUND_NONE, ROUND_RN, ROUND_RZ, ROUND_RM, ROUND_RP, ROUND_RNA };

/* Bits of op.flags. */
enum {
    FLAG_FTZ = 1,
    FLAG_SAT = 2,
    FLAG_SATFINITE = 4,
    FLAG_RELU = 8,
    FLAG_NAN = 16,
    FLAG_ABS = 32,
    FLAG_XORSIGN = 64,
    FLAG_APPROX = 128,
    FLAG_ROUND_INTEGER = 256,
    FLAG_VOLATILE = 512,
    FLAG_TRANS = 1024,
    FLAG_NOINC = 2048,
    FLAG_FULL = 4096,
    FLAG_READ_ONLY = 8192
};

/* Slots and predicates with a fixed meaning; a function's own follow. */
enum {
    SLOT_NONE = 0,
    SLOT_SINK = 1,
    FIRST_SLOT = 3,
    PREDICATE_FALSE = 0,
    PREDICATE_TRUE = 1,
    PREDICATE_SINK = 2,
    FIRST_PREDICATE = 3
};

enum special {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_LANEID,
    SPECIAL_WARPID,
    SPECIAL_NWARPID,
    SPECIAL_SMID,
    SPECIAL_NSMID,
    SPECIAL_GRIDID,
    SPECIAL_LANEMASK_EQ,
    SPECIAL_LANEMASK_LE,
    SPECIAL_LANEMASK_LT,
    SPECIAL_LANEMASK_GE,
    SPECIAL_LANEMASK_GT,
    SPECIAL_CLOCK,
    SPECIAL_CLOCK_HI,
    SPECIAL_CLOCK64,
    SPECIAL_GLOBALTIMER,
    SPECIAL_GLOBALTIMER_LO,
    SPECIAL_DYNAMIC_SMEM,
    SPECIAL_TOTAL_SMEM,
    SPECIAL_CLUSTER_CTARANK,
    SPECIAL_CLUSTER_NCTARANK,
    SPECIAL_COUNT
};

/* Widths of a register named by an operand whose size is not fixed by the instruction. */
enum { WIDE_32 = 0, WIDE_64 = 1, WIDE_16 = 2 };

/* What nvcc calls when an assert fails: (message, file, line, function, size of a character). */
#define ASSERT_FUNCTION "__assertfail"

struct constant;
struct warp;
struct op;
/* Executes one operation for the lanes of `lanes` (never 0). */
typedef void op_function(struct warp *warp, const struct op *op, uint32_t lanes);

struct op {
    op_function *run;
    int32_t d, d2, a, b, c, e; /* slots; predicates where the form says so; -1 in d: a sink */
    int32_t p;                 /* a predicate that is a source, or -1 */
    int32_t guard;             /* predicate, or -1 */
    int64_t imm;               /* address offset, branch target, register-independent value */
    const int32_t *list;       /* slots of vector operands in source order */
    uint16_t list_count;
    uint16_t form; /* row of the table of forms */
    uint16_t flags;
    uint8_t guard_not, p_not;
    uint8_t type, type2, type3, type4;
    uint8_t round, compare, combine, space, space2, mode, vector, wide, wide2, address64;
    uint8_t semantics, scope;
    uint8_t local_symbol; /* the address is of a .local or .param variable: add the frame's base */
    uint32_t line;
};

struct variable {
    struct variable *next;
    const char *name;
    enum ptx_space space;
    enum ptx_type type;
    uint64_t align, bytes;
    uint8_t *initial;                     /* bytes of the initialiser, or null */
    const struct initial_symbol *symbols; /* addresses in the initialiser */
    uint64_t address; /* of .global and .const: device address once loaded; else the offset in its
                         space */
    bool external, per_entry, placed;
    uint32_t line;
    struct function *owner;       /* declared inside this function, or null */
    const struct function *entry; /* .shared: the kernel that `address` holds for */
};

struct initial_symbol {
    struct initial_symbol *next;
    const char *name;
    const struct variable *variable; /* what it names: one of the two */
    const struct function *function;
    uint64_t at; /* byte offset in the initialiser */
    int64_t addend;
    uint32_t bytes, line;
    bool generic;
};

struct parameter {
    const char *name;
    uint64_t offset, bytes, align;
};

struct function {
    struct function *next;
    const char *name;
    bool entry, defined, visible;
    struct parameter *params; /* offsets in one packed block */
    uint32_t param_count;
    uint64_t param_bytes;
    struct parameter *returns; /* of a device function: their offsets follow the parameters */
    uint32_t return_count;
    uint64_t frame_param_bytes; /* parameters, returns and .param variables of the body; per lane
                                   when called */

    const struct op *ops;
    uint32_t op_count;
    uint32_t slots, predicates;
    uint64_t local_bytes;
    uint64_t shared_bytes;                        /* static, of an entry */
    uint64_t dynamic_start;                       /* where its dynamic shared memory begins */
    uint32_t max_threads[3], required_threads[3]; /* 0: not stated */
    uint32_t min_blocks, max_registers, cluster[3];
    uint32_t line;
    uint32_t index; /* number in the module, 1 based: its "address" */
    bool calls, shared_used;
};

struct module {
    struct arena arena;
    char *source; /* NUL-terminated copy */
    size_t source_bytes;
    uint32_t version;   /* 78 for .version 7.8 */
    uint32_t target;    /* 90 for sm_90 and sm_90a */
    char target_suffix; /* 'a', 'f' or 0 */
    struct function *functions;
    uint32_t function_count;
    struct function **by_index;
    struct variable *variables;
    uint32_t *constants; /* the pool: 32 lanes of 4 bytes a slot */
    uint32_t constant_slots;
    const struct constant *pool; /* what each constant is, for module_bind */
    uint64_t common_shared;      /* bytes of .shared used by device functions */
    uint32_t id;                 /* unique in the process */
};

/* Number of bits of a type; 0 for none, 1 for a predicate. */
unsigned ptx_type_bits(enum ptx_type type);
const char *ptx_type_name(enum ptx_type type);
bool ptx_type_signed(enum ptx_type type);
bool ptx_type_float(enum ptx_type type);

struct parse_error {
    uint32_t line;
    char text[400];
};

/* Read .version and .target only. False when the text does not begin as PTX. */
bool module_header(const char *text, size_t length, uint32_t *version, uint32_t *target,
                   char *suffix);

/*
 * Parse and decode `text` (length bytes, no NUL needed). Returns null and fills `error` on anything
 * that is not understood: nothing is ever skipped. `out_of_memory` tells that case apart.
 * Variables in .global and .const are not placed yet; see module_bind.
 */
struct module *module_parse(const char *text, size_t length, struct parse_error *error,
                            bool *out_of_memory);
/* Write addresses of global variables into the constants; call after `address` of each is set. */
void module_bind(struct module *module);
void module_free(struct module *module);
const struct function *module_function(const struct module *module, const char *name);
struct variable *module_variable(const struct module *module, const char *name);
/* Text of a source line without leading blanks and comment; copied into out. */
void module_line(const struct module *module, uint32_t line, char *out, size_t bytes);

#endif
