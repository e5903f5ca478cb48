/*
 * The table of instruction forms. forms.def has one row per form: a pattern of the opcode with its
 * modifiers, what operands it takes, and the function that executes it. The decoder knows nothing
 * else, so a test can walk the table and ask of every row whether it is tested.
 *
 * Pattern: pieces joined by dots. A piece is a word, `(a|b|c)` for a choice, and may end in `?`.
 * Every word that matched sets the fields of the operation that it stands for (words.def).
 *
 * Signature, one letter an operand; types count from the left of the opcode:
 *   d D      destination of type 1; of twice its width
 *   h w W    destination of 16, 32, 64 bits
 *   e        destination at least as wide as type 1 (cvt)
 *   R        32-bit destination with an optional |predicate
 *   q Q      destination predicate; with an optional |predicate
 *   s S      source of type 1; of twice its width
 *   u v      source of type 2, of type 3
 *   r        source at least as wide as type 2 (cvt)
 *   2 4 8    source of 16, 32, 64 bits
 *   n        source of type 1, or the name of a variable
 *   p k      source predicate that may be negated; one that may not
 *   x y      data of a load, of a store: a register or a vector, at least as wide as type 1
 *   a A      address in space 1, in space 2
 *   i        immediate integer
 *   l        label
 *   m        what mov takes
 *   Ln<c>    a vector in braces of n operands of kind c: w g destinations, : f sources of 32 bits
 *   {<c>     the same, with as many operands as .x says
 *   j c      size, and source size or predicate, of an asynchronous copy
 *   ?        the operand before is optional
 *   *        this form binds its operands itself (call, mov, brx)
 */
#ifndef EXECUTOR_FORMS_H
#define EXECUTOR_FORMS_H

#include <stddef.h>

#include "ptx.h"

enum form_class {
    CLASS_INTEGER,
    CLASS_FLOAT,
    CLASS_CONVERT,
    CLASS_MOVE,
    CLASS_LOAD,
    CLASS_STORE,
    CLASS_ATOMIC,
    CLASS_CONTROL,
    CLASS_BARRIER,
    CLASS_WARP,
    CLASS_TENSOR,
    CLASS_ASYNC,
    CLASS_COUNT
};

struct form {
    const char *name; /* of the function that executes it */
    const char *pattern;
    const char *signature;
    enum form_class class;
    unsigned target, version; /* lowest .target and .version */
};

enum form_id {
#define FORM(name, pattern, signature, class, target, version) FORM_##name,
#include "forms.def"
#undef FORM
    FORM_COUNT
};

extern const struct form form_table[FORM_COUNT];

enum compare_kind {
    CMP_NONE,
    CMP_EQ,
    CMP_NE,
    CMP_LT,
    CMP_LE,
    CMP_GT,
    CMP_GE,
    CMP_LO,
    CMP_LS,
    CMP_HI,
    CMP_HS,
    CMP_EQU,
    CMP_NEU,
    CMP_LTU,
    CMP_LEU,
    CMP_GTU,
    CMP_GEU,
    CMP_NUM,
    CMP_NAN
};

enum mode_kind {
    MODE_NONE,
    MODE_AND,
    MODE_OR,
    MODE_XOR,
    MODE_ADD,
    MODE_MIN,
    MODE_MAX,
    MODE_INC,
    MODE_DEC,
    MODE_CAS,
    MODE_EXCH,
    MODE_UP,
    MODE_DOWN,
    MODE_BFLY,
    MODE_IDX,
    MODE_ALL,
    MODE_ANY,
    MODE_UNI,
    MODE_BALLOT,
    MODE_POPC,
    MODE_F4E,
    MODE_B4E,
    MODE_RC8,
    MODE_ECL,
    MODE_ECR,
    MODE_RC16,
    MODE_LO,
    MODE_HI,
    MODE_SYNC,
    MODE_ARRIVE,
    MODE_RED,
    MODE_TO
};

enum semantics_kind { SEM_WEAK, SEM_RELAXED, SEM_ACQUIRE, SEM_RELEASE, SEM_ACQ_REL, SEM_SC };
enum scope_kind { SCOPE_NONE, SCOPE_CTA, SCOPE_CLUSTER, SCOPE_GPU, SCOPE_SYS };

/* One opcode as the parser read it: the base word and its modifiers, not NUL-terminated. */
struct opcode_text {
    const char *text[24];
    uint32_t length[24];
    unsigned count;
};

/*
 * Find the row that matches and set the fields of `op` that words stand for. Returns the row, or -1
 * with a sentence in `why` that names the first word that does not fit.
 */
int form_match(const struct opcode_text *opcode, struct op *op, char *why, size_t why_bytes);

/* Prepare the table's index. Called once, before the first match; false when out of memory. */
bool form_prepare(void);

/*
 * Spell every opcode of a row, in order: calls `each` with the opcode and stops early when it
 * returns false. For tests and documentation.
 */
void form_spell(int form, bool (*each)(void *context, const char *opcode), void *context);

/* The functions that execute the rows, best for this CPU; KVF_EXECUTOR_ISA chooses another. */
op_function *const *form_functions(void);
const char *form_functions_name(void);

#endif
