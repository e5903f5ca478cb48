/* What the files of the parser share. Nothing here is seen outside parse_*.c and bind.c. */
#ifndef EXECUTOR_PARSER_H
#define EXECUTOR_PARSER_H

#include <setjmp.h>

#include "forms.h"
#include "lexer.h"
#include "ptx.h"

enum limits {
    MAX_OPERANDS = 12,
    MAX_ELEMENTS = 64,
    MAX_SLOTS = 1 << 16,
    MAX_PREDICATES = 1 << 15,
    MAX_SCOPES = 1 << 20,
    MAX_PARAM_BYTES = 32764,
    MAX_NESTING = 64
};
#define MAX_ARENA          ((size_t)1 << 30)
#define MAX_VARIABLE_BYTES ((uint64_t)1 << 36)

enum symbol_kind {
    SYMBOL_REGISTER,
    SYMBOL_VARIABLE,
    SYMBOL_PARAMETER,
    SYMBOL_FUNCTION,
    SYMBOL_TARGETS,
    SYMBOL_PROTOTYPE
};

struct symbol {
    struct symbol *chain;      /* same hash bucket, innermost scope first */
    struct symbol *scope_next; /* declared before this one */
    const char *name;
    uint32_t length, hash, depth;
    enum symbol_kind kind;
    enum ptx_type type;
    uint32_t count; /* of %r<count>: registers named name0.. ; 0 for a single one */
    uint32_t first; /* first slot or predicate */
    void *object;   /* variable, function or parameter */
};

/* A .param variable of the body or a formal parameter: offset in the frame's parameter memory. */
struct param_place {
    uint64_t offset, bytes;
    bool of_entry;
};

struct label {
    struct label *next;
    const char *name;
    uint32_t length, scope, at, line;
};

/* A branch whose target is found at the end of the function. */
struct branch {
    struct branch *next;
    const char *name;
    uint32_t length, scope, op, line;
    int32_t *slot; /* null: the operation's imm; else an entry of a branch table */
};

enum operand_kind {
    OPERAND_REGISTER,
    OPERAND_INTEGER,
    OPERAND_FLOAT,
    OPERAND_FLOAT32,
    OPERAND_NAME,
    OPERAND_SPECIAL,
    OPERAND_ADDRESS,
    OPERAND_VECTOR,
    OPERAND_SINK,
    OPERAND_LIST
};

struct operand {
    enum operand_kind kind;
    bool negated, is_unsigned, has_second;
    enum ptx_type type;    /* of a register */
    uint32_t slot;         /* register slot or predicate, or number of a special register */
    struct operand *items; /* of a vector or list; of an address: one base */
    uint32_t item_count;
    struct operand *second; /* after '|' */
    int64_t integer;        /* value, bits, or offset added to a name or address */
    const char *name;
    uint32_t name_length;
    const struct symbol *symbol; /* of a name, when it is known */
};

struct constant {
    struct constant *chain, *next;
    uint64_t value;
    const struct variable *variable; /* address of it plus value, or null */
    const struct function *function;
    uint32_t slot, hash;
    bool is64;
};

struct parser {
    struct lexer lexer;
    struct token token;
    struct module *module;
    jmp_buf failed;
    struct parse_error *error;
    bool out_of_memory;

    struct symbol **buckets; /* a power of two of them */
    uint32_t bucket_count, symbol_count;
    struct symbol *newest; /* stack of all live symbols */
    uint32_t depth;
    uint32_t scope, scope_count, scope_capacity; /* of labels */
    uint32_t *scope_parent;

    struct constant **constant_buckets;
    uint32_t constant_bucket_count, constant_count;
    struct constant *constants; /* all, newest first */

    struct function *function; /* being parsed, or null */
    struct op *ops;            /* of the function so far; the room is used again for the next one */
    uint32_t op_capacity;
    struct label *labels;
    struct branch *branches;
    uint32_t next_slot, next_predicate;
    uint64_t local_used, param_used;
};

_Noreturn __attribute__((format(printf, 3, 4))) void parse_fail(struct parser *p, uint32_t line,
                                                                const char *format, ...);
void *parse_alloc(struct parser *p, size_t bytes);
void parse_next(struct parser *p);
bool parse_accept(struct parser *p, char punctuation);
void parse_expect(struct parser *p, char punctuation);
bool parse_accept_dot(struct parser *p, const char *word);
int64_t parse_integer(struct parser *p); /* with an optional sign */
const char *parse_name(struct parser *p, uint32_t *length);
enum ptx_type parse_type_word(const struct token *token); /* T_NONE when it is none */

/* ---- parse_symbols.c ---- */
void symbols_start(struct parser *p);
struct symbol *symbol_add(struct parser *p, const char *name, uint32_t length,
                          enum symbol_kind kind);
struct symbol *symbol_find(const struct parser *p, const char *name, uint32_t length);
/* A register by name, also out of a %r<n> range: its slot or predicate. */
struct symbol *register_find(const struct parser *p, const char *name, uint32_t length,
                             uint32_t *slot);
void scope_open(struct parser *p);
void scope_close(struct parser *p);
/* Slot (negative) of a constant; of the address of a variable or a function plus `value`. */
int32_t constant_slot(struct parser *p, uint64_t value, bool is64, const struct variable *variable,
                      const struct function *function);

/* ---- parse_module.c ---- */
void parse_variable(struct parser *p, enum ptx_space space, bool external);
void parse_module(struct parser *p);
/* What an address in an initialiser names, if that is declared by now. */
bool initial_find(struct parser *p, struct initial_symbol *initial);

/* ---- parse_body.c ---- */
void parse_body(struct parser *p, struct function *function);
void parse_loc(struct parser *p);
void parse_pragma(struct parser *p);

/* ---- bind.c ---- */
/* Fill op's operands by the form's signature, or fail with the operand's number and what is wanted.
 */
void bind_operands(struct parser *p, struct op *op, struct operand *operands, uint32_t count,
                   uint32_t line);
int special_register(const char *name, size_t length); /* -1 when it is none */

#endif
