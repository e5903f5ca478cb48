/* The parser's entry: set up, run, lay out shared memory, fill the pool of constants. */
#include "parser.h"

#include "mutate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARED_START = 1024 }; /* as on the chips since sm_90; 0 stays no valid shared address */

void parse_fail(struct parser *p, uint32_t line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->error->text, sizeof p->error->text, format, args);
    va_end(args);
    p->error->line = line;
    longjmp(p->failed, 1);
}

void *parse_alloc(struct parser *p, size_t bytes) {
    void *memory =
        p->module->arena.total > MAX_ARENA ? NULL : arena_alloc(&p->module->arena, bytes);
    if (!memory) {
        p->out_of_memory = true;
        parse_fail(p, p->token.line, "out of memory");
    }
    return memory;
}

void parse_next(struct parser *p) {
    lexer_next(&p->lexer, &p->token);
    if (p->token.kind == TOKEN_BAD)
        parse_fail(p, p->token.line, "cannot read '%.*s'",
                   (int)(p->token.length < 40 ? p->token.length : 40), p->token.text);
}

bool parse_accept(struct parser *p, char punctuation) {
    if (p->token.kind != TOKEN_PUNCTUATION || p->token.punctuation != punctuation) return false;
    parse_next(p);
    return true;
}

void parse_expect(struct parser *p, char punctuation) {
    if (!parse_accept(p, punctuation))
        parse_fail(p, p->token.line, "expected '%c' before '%.*s'", punctuation,
                   (int)(p->token.length < 40 ? p->token.length : 40), p->token.text);
}

bool parse_accept_dot(struct parser *p, const char *word) {
    if (!token_is(&p->token, TOKEN_DOT, word)) return false;
    parse_next(p);
    return true;
}

int64_t parse_integer(struct parser *p) {
    bool negative = parse_accept(p, '-');
    if (p->token.kind != TOKEN_INTEGER)
        parse_fail(p, p->token.line, "expected an integer before '%.*s'",
                   (int)(p->token.length < 40 ? p->token.length : 40), p->token.text);
    uint64_t value = p->token.integer;
    parse_next(p);
    return (int64_t)(negative ? 0 - value : value);
}

const char *parse_name(struct parser *p, uint32_t *length) {
    if (p->token.kind != TOKEN_WORD)
        parse_fail(p, p->token.line, "expected a name before '%.*s'",
                   (int)(p->token.length < 40 ? p->token.length : 40), p->token.text);
    const char *name = p->token.text;
    *length = p->token.length;
    parse_next(p);
    return name;
}

/* ---- types ---- */

static const struct {
    const char *name;
    uint8_t bits;
    bool is_signed, is_float;
} types[T_COUNT] = {
    [T_NONE] = {"", 0, 0, 0},
    [T_PRED] = {"pred", 1, 0, 0},
    [T_B8] = {"b8", 8, 0, 0},
    [T_U8] = {"u8", 8, 0, 0},
    [T_S8] = {"s8", 8, 1, 0},
    [T_B16] = {"b16", 16, 0, 0},
    [T_U16] = {"u16", 16, 0, 0},
    [T_S16] = {"s16", 16, 1, 0},
    [T_F16] = {"f16", 16, 0, 1},
    [T_BF16] = {"bf16", 16, 0, 1},
    [T_B32] = {"b32", 32, 0, 0},
    [T_U32] = {"u32", 32, 0, 0},
    [T_S32] = {"s32", 32, 1, 0},
    [T_F32] = {"f32", 32, 0, 1},
    [T_F16X2] = {"f16x2", 32, 0, 1},
    [T_BF16X2] = {"bf16x2", 32, 0, 1},
    [T_TF32] = {"tf32", 32, 0, 1},
    [T_U16X2] = {"u16x2", 32, 0, 0},
    [T_S16X2] = {"s16x2", 32, 1, 0},
    [T_B64] = {"b64", 64, 0, 0},
    [T_U64] = {"u64", 64, 0, 0},
    [T_S64] = {"s64", 64, 1, 0},
    [T_F64] = {"f64", 64, 0, 1},
    [T_B128] = {"b128", 128, 0, 0},
    [T_E4M3] = {"e4m3", 8, 0, 1},
    [T_E5M2] = {"e5m2", 8, 0, 1},
    [T_E4M3X2] = {"e4m3x2", 16, 0, 1},
    [T_E5M2X2] = {"e5m2x2", 16, 0, 1},
    [T_UE8M0X2] = {"ue8m0x2", 16, 0, 1},
};

unsigned ptx_type_bits(enum ptx_type type) {
    return types[type].bits;
}

const char *ptx_type_name(enum ptx_type type) {
    return types[type].name;
}

bool ptx_type_signed(enum ptx_type type) {
    return types[type].is_signed;
}

bool ptx_type_float(enum ptx_type type) {
    return types[type].is_float;
}

/* A type a register or variable may have, or T_NONE. */
enum ptx_type parse_type_word(const struct token *token) {
    for (int t = T_PRED; t <= T_B128; t++)
        if (t != T_TF32 && t != T_U16X2 && t != T_S16X2 &&
            token_is(token, TOKEN_DOT, types[t].name))
            return (enum ptx_type)t;
    return T_NONE;
}

/* ---- shared memory ---- */

static uint64_t align_up(uint64_t value, uint64_t align) {
    return (value + align - 1) & ~(align - 1);
}

static bool is_shared(const struct constant *c) {
    return c->variable && c->variable->space == SPACE_SHARED;
}

/* What device functions use lies at the same place for every kernel, before all else. */
static void place_common(struct parser *p) {
    uint64_t used = 0;
    for (struct constant *c = p->constants; c; c = c->next) {
        if (!is_shared(c) || c->function->entry || c->variable->external) continue;
        struct variable *v = (struct variable *)c->variable;
        if (v->placed) continue;
        v->placed = true;
        v->address = align_up(used, v->align);
        used = v->address + v->bytes;
    }
    p->module->common_shared = used;
    for (struct function *f = p->module->functions; f; f = f->next)
        if (f->entry) f->shared_bytes = used;
}

/*
 * Offset of a variable in the static shared memory of the kernel that uses it. The constants of one
 * kernel come one after the other, so that a variable need remember its latest place only.
 */
static uint64_t place_in_entry(struct parser *p, const struct constant *c) {
    struct variable *v = (struct variable *)c->variable;
    struct function *f = (struct function *)c->function;
    if (v->entry == f) return v->address;
    v->entry = f;
    v->address = align_up(f->shared_bytes, v->align);
    f->shared_bytes = v->address + v->bytes;
    if (f->shared_bytes > 48 << 10) /* static; as ptxas has it for every chip */
        parse_fail(p, v->line, "'%s' uses too much static shared memory (%llu bytes, 49152 max)",
                   f->name, (unsigned long long)f->shared_bytes);
    return v->address;
}

static uint64_t most_shared(const struct module *m) {
    uint64_t most = 0;
    for (const struct function *f = m->functions; f; f = f->next)
        if (f->entry && f->shared_bytes > most) most = f->shared_bytes;
    return most;
}

/*
 * Dynamic shared memory starts after all static memory, aligned as its declaration asks. What a
 * device function uses must lie behind that of every kernel.
 */
static void place_dynamic(const struct parser *p, struct constant *list) {
    uint64_t most = most_shared(p->module), common = 0;
    for (struct constant *c = list; c; c = c->next) {
        if (!is_shared(c) || !c->variable->external) continue;
        struct function *f = (struct function *)c->function;
        uint64_t align = c->variable->align > 16 ? c->variable->align : 16;
        uint64_t start = align_up(f->entry ? f->shared_bytes : most, align);
        c->value += SHARED_START + start;
        if (f->entry && f->dynamic_start < start) f->dynamic_start = start;
        if (!f->entry && common < start) common = start;
    }
    for (struct function *f = p->module->functions; f; f = f->next)
        if (f->dynamic_start < common) f->dynamic_start = common;
}

static void place_shared(struct parser *p) {
    place_common(p);
    /* In the order of declaration in the text: constants were pushed newest first. */
    struct constant *reversed = NULL;
    while (p->constants) {
        struct constant *c = p->constants;
        p->constants = c->next;
        c->next = reversed;
        reversed = c;
    }
    p->constants = reversed;
    for (struct constant *c = reversed; c; c = c->next) {
        if (!is_shared(c) || c->variable->external) continue;
        c->value += SHARED_START;
        c->value += c->variable->placed ? c->variable->address : place_in_entry(p, c);
    }
    for (struct function *f = p->module->functions; f; f = f->next)
        f->dynamic_start = align_up(f->shared_bytes, 16);
    place_dynamic(p, reversed);
}

/* ---- constants ---- */

static void fill_constant(uint32_t *pool, const struct constant *c, uint64_t value) {
    uint32_t *words = pool + (size_t)c->slot * LANES;
    if (c->is64) {
        for (int i = 0; i < LANES; i++) memcpy(words + 2 * i, &value, sizeof value);
    } else {
        for (int i = 0; i < LANES; i++) words[i] = (uint32_t)value;
    }
}

static void fill_constants(struct parser *p) {
    struct module *m = p->module;
    m->constants = parse_alloc(p, ((size_t)m->constant_slots + 1) * SLOT_BYTES);
    for (const struct constant *c = p->constants; c; c = c->next) {
        if (c->function && !c->variable)
            fill_constant(m->constants, c, c->function->index);
        else
            fill_constant(m->constants, c, c->value);
    }
    m->pool = p->constants;
}

void module_bind(struct module *m) {
    for (const struct constant *c = m->pool; c; c = c->next)
        if (c->variable &&
            (c->variable->space == SPACE_GLOBAL || c->variable->space == SPACE_CONST))
            fill_constant(m->constants, c, c->variable->address + c->value);
}

static void bind_functions(struct parser *p) {
    struct module *m = p->module;
    op_function *const *run = form_functions();
    m->by_index = parse_alloc(p, (m->function_count + 1) * sizeof *m->by_index);
    for (struct function *f = m->functions; f; f = f->next) {
        m->by_index[f->index] = f;
        for (uint32_t i = 0; i < f->op_count; i++)
            ((struct op *)f->ops)[i].run = form_mutated(f->ops[i].form, run[f->ops[i].form]);
    }
}

/* ---- entry ---- */

static void check_complete(struct parser *p) {
    for (const struct function *f = p->module->functions; f; f = f->next) {
        if (f->entry && !f->defined) parse_fail(p, f->line, "kernel '%s' has no body", f->name);
        if (!f->entry && !f->defined && strcmp(f->name, ASSERT_FUNCTION) != 0)
            parse_fail(p, f->line, "external function '%s' is not defined", f->name);
    }
    for (const struct variable *v = p->module->variables; v; v = v->next) {
        for (struct initial_symbol *i = (struct initial_symbol *)v->symbols; i; i = i->next)
            if (!i->variable && !i->function && !initial_find(p, i))
                parse_fail(p, i->line, "'%s' is no variable of .global or .const and no function",
                           i->name);
    }
    for (const struct variable *v = p->module->variables; v; v = v->next)
        if (v->external && v->space != SPACE_SHARED)
            parse_fail(p, v->line, "external variable '%s' is not defined", v->name);
}

static bool run_parser(struct parser *p) {
    if (setjmp(p->failed)) return false;
    p->scope_capacity = 64;
    p->scope_parent = parse_alloc(p, p->scope_capacity * sizeof *p->scope_parent);
    p->scope_count = 1;
    symbols_start(p);
    parse_module(p);
    check_complete(p);
    place_shared(p);
    fill_constants(p);
    bind_functions(p);
    return true;
}

struct module *module_parse(const char *text, size_t length, struct parse_error *error,
                            bool *out_of_memory) {
    *out_of_memory = true;
    error->line = 0;
    snprintf(error->text, sizeof error->text, "out of memory");
    if (!form_prepare()) return NULL;
    struct module *m = calloc(1, sizeof *m);
    struct parser *p = calloc(1, sizeof *p);
    if (m) m->source = arena_text(&m->arena, text, length);
    if (!m || !p || !m->source) {
        free(p);
        module_free(m);
        return NULL;
    }
    m->source_bytes = length;
    p->module = m;
    p->error = error;
    lexer_start(&p->lexer, m->source, length);
    bool good = run_parser(p);
    *out_of_memory = p->out_of_memory;
    free(p);
    if (good) return m;
    module_free(m);
    return NULL;
}

bool module_header(const char *text, size_t length, uint32_t *version, uint32_t *target,
                   char *suffix) {
    struct lexer lexer;
    struct token t;
    unsigned major, minor, number;
    char copy[32];
    lexer_start(&lexer, text, length);
    lexer_next(&lexer, &t);
    if (!token_is(&t, TOKEN_DOT, "version")) return false;
    lexer_next(&lexer, &t);
    snprintf(copy, sizeof copy, "%.*s", (int)t.length, t.text);
    if (sscanf(copy, "%2u.%2u", &major, &minor) != 2) return false;
    *version = major * 10 + minor;
    lexer_next(&lexer, &t);
    if (!token_is(&t, TOKEN_DOT, "target")) return false;
    lexer_next(&lexer, &t);
    snprintf(copy, sizeof copy, "%.*s", (int)t.length, t.text);
    *suffix = 0;
    if (sscanf(copy, "sm_%3u%c", &number, suffix) < 1) return false;
    *target = number;
    return true;
}

void module_free(struct module *m) {
    if (!m) return;
    arena_free(&m->arena);
    free(m);
}

const struct function *module_function(const struct module *m, const char *name) {
    for (const struct function *f = m->functions; f; f = f->next)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

struct variable *module_variable(const struct module *m, const char *name) {
    for (struct variable *v = m->variables; v; v = v->next)
        if (!strcmp(v->name, name)) return v;
    return NULL;
}

void module_line(const struct module *m, uint32_t line, char *out, size_t bytes) {
    const char *at = m->source;
    for (uint32_t i = 1; i < line && at; i++) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    if (!bytes) return;
    size_t n = 0;
    if (at) {
        while (*at == ' ' || *at == '\t') at++;
        for (; *at && *at != '\n' && n + 1 < bytes; at++) out[n++] = *at == '\t' ? ' ' : *at;
    }
    out[n] = 0;
}
