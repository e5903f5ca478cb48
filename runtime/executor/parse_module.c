/* Directives outside of function bodies: headers, variables, functions. */
#include <stdio.h>
#include <string.h>

#include "parser.h"

static void skip_section(struct parser *p) {
    parse_next(p); /* .name */
    while (p->token.kind == TOKEN_DOT) parse_next(p);
    if (p->token.kind != TOKEN_PUNCTUATION || p->token.punctuation != '{')
        parse_fail(p, p->token.line, ".section needs a body in braces");
    while (!(p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == '}')) {
        if (p->token.kind == TOKEN_END) parse_fail(p, p->token.line, ".section is not closed");
        parse_next(p);
    }
    parse_next(p);
}

static void parse_file(struct parser *p) {
    parse_integer(p);
    if (p->token.kind != TOKEN_STRING) parse_fail(p, p->token.line, ".file needs a name");
    parse_next(p);
    while (parse_accept(p, ',')) parse_integer(p);
}

/* ---- module header ---- */

static void parse_version(struct parser *p) {
    /* The number is taken from the text: 8.10 is not 8.1. */
    unsigned major, minor;
    char copy[16];
    snprintf(copy, sizeof copy, "%.*s", (int)p->token.length, p->token.text);
    if (p->token.kind != TOKEN_FLOAT || sscanf(copy, "%2u.%2u", &major, &minor) != 2)
        parse_fail(p, p->token.line, ".version needs a number such as 7.8");
    if (p->module->version) parse_fail(p, p->token.line, ".version is given twice");
    p->module->version = major * 10 + minor;
    parse_next(p);
}

static void parse_target(struct parser *p) {
    do {
        if (p->token.kind != TOKEN_WORD) parse_fail(p, p->token.line, ".target needs a name");
        char copy[32];
        unsigned number;
        char suffix = 0;
        snprintf(copy, sizeof copy, "%.*s", (int)p->token.length, p->token.text);
        int parts = sscanf(copy, "sm_%3u%c", &number, &suffix);
        if (parts >= 1) {
            if (parts == 2 && suffix != 'a' && suffix != 'f')
                parse_fail(p, p->token.line, "unknown target '%s'", copy);
            p->module->target = number;
            p->module->target_suffix = suffix;
        } else if (strcmp(copy, "debug") != 0 && strcmp(copy, "texmode_unified") != 0 &&
                   strcmp(copy, "texmode_independent") != 0) {
            parse_fail(p, p->token.line, "unknown target '%s'", copy);
        }
        parse_next(p);
    } while (parse_accept(p, ','));
    if (!p->module->target) parse_fail(p, p->token.line, ".target names no sm_ architecture");
}

/* ---- variables ---- */

static void put_bytes(struct parser *p, struct variable *v, uint64_t at, uint64_t value,
                      uint32_t bytes) {
    if (at + bytes > v->bytes)
        parse_fail(p, p->token.line, "'%s' has more initial values than elements", v->name);
    memcpy(v->initial + at, &value, bytes);
}

bool initial_find(struct parser *p, struct initial_symbol *initial) {
    const struct symbol *s = symbol_find(p, initial->name, (uint32_t)strlen(initial->name));
    if (s && s->kind == SYMBOL_VARIABLE) {
        const struct variable *v = s->object;
        if (v->space == SPACE_GLOBAL || v->space == SPACE_CONST) initial->variable = v;
    } else if (s && s->kind == SYMBOL_FUNCTION) {
        initial->function = s->object;
    }
    return initial->variable || initial->function;
}

/* The address of a symbol, as itself or generic(symbol), with an optional offset. */
static void parse_symbol_value(struct parser *p, struct variable *v, uint64_t at, uint32_t bytes) {
    struct initial_symbol *s = parse_alloc(p, sizeof *s);
    s->line = p->token.line;
    if (token_is(&p->token, TOKEN_WORD, "generic")) {
        s->generic = true;
        parse_next(p);
        parse_expect(p, '(');
    }
    uint32_t length;
    s->name = parse_name(p, &length);
    s->name = arena_text(&p->module->arena, s->name, length);
    if (!s->name) parse_fail(p, s->line, "out of memory");
    s->at = at;
    s->bytes = bytes;
    if (s->generic) parse_expect(p, ')');
    if (parse_accept(p, '+')) s->addend = parse_integer(p);
    if (bytes != 8 || at + bytes > v->bytes)
        parse_fail(p, s->line, "an address needs a 64-bit element");
    initial_find(p, s);
    s->next = (struct initial_symbol *)v->symbols;
    v->symbols = s;
}

static uint64_t float_value(uint64_t bits, uint32_t bytes) {
    if (bytes == 8) return bits;
    double value;
    memcpy(&value, &bits, sizeof value);
    float narrow = (float)value;
    uint32_t out;
    memcpy(&out, &narrow, sizeof out);
    return out;
}

static void parse_scalar_value(struct parser *p, struct variable *v, uint64_t at) {
    uint32_t bytes = ptx_type_bits(v->type) / 8;
    if (p->token.kind == TOKEN_WORD) {
        parse_symbol_value(p, v, at, bytes);
        return;
    }
    bool negative = parse_accept(p, '-');
    uint64_t value = p->token.integer;
    if (p->token.kind == TOKEN_INTEGER) {
        if (negative) value = 0 - value;
    } else if (p->token.kind == TOKEN_FLOAT && (bytes == 4 || bytes == 8)) {
        value = float_value(value, bytes) ^ ((uint64_t)negative << (bytes * 8 - 1));
    } else if (p->token.kind == TOKEN_FLOAT32 && bytes == 4) {
        value ^= (uint64_t)negative << 31;
    } else {
        parse_fail(p, p->token.line, "bad initial value '%.*s'", (int)p->token.length,
                   p->token.text);
    }
    parse_next(p);
    put_bytes(p, v, at, value, bytes);
}

/* A list in braces fills `bytes` from `at`; rows of inner lists start at multiples of their size.
 */
static void parse_values(struct parser *p, struct variable *v, uint64_t at, const uint64_t *sizes,
                         unsigned level) {
    if (level > 8) parse_fail(p, p->token.line, "initial values nest too deeply");
    if (!parse_accept(p, '{')) {
        parse_scalar_value(p, v, at);
        return;
    }
    if (parse_accept(p, '}')) return;
    uint64_t step = sizes[level] ? sizes[level] : ptx_type_bits(v->type) / 8;
    for (uint64_t i = 0;; i++) {
        parse_values(p, v, at + i * step, sizes, level + 1);
        if (!parse_accept(p, ',')) break;
    }
    parse_expect(p, '}');
}

struct declaration {
    uint64_t align, count; /* elements; 0 for [] */
    uint64_t sizes[10];    /* bytes of one element at each nesting of braces */
    enum ptx_type type;
    unsigned vector;
    const char *name;
    uint32_t length, line;
    bool unsized, pointer;
};

/* .align N .v4 .type, .ptr .space .align N: what may stand before a variable's name. */
static void parse_declaration_type(struct parser *p, struct declaration *d) {
    while (p->token.kind == TOKEN_DOT) {
        if (parse_accept_dot(p, "align")) {
            int64_t align = parse_integer(p);
            if (align <= 0 || align > 1 << 16 || (align & (align - 1)))
                parse_fail(p, p->token.line, ".align must be a power of two");
            if (!d->pointer) d->align = (uint64_t)align;
        } else if (parse_accept_dot(p, "v2")) {
            d->vector = 2;
        } else if (parse_accept_dot(p, "v4")) {
            d->vector = 4;
        } else if (parse_accept_dot(p, "ptr")) {
            d->pointer = true;
        } else if (d->pointer && (parse_accept_dot(p, "global") || parse_accept_dot(p, "shared") ||
                                  parse_accept_dot(p, "const") || parse_accept_dot(p, "local"))) {
        } else {
            enum ptx_type type = parse_type_word(&p->token);
            if (d->type || type == T_NONE || type == T_PRED || type > T_F64)
                parse_fail(p, p->token.line, "unknown type or directive '.%.*s'",
                           (int)p->token.length, p->token.text);
            d->type = type;
            parse_next(p);
        }
    }
    if (!d->type) parse_fail(p, p->token.line, "a declaration lacks its type");
}

static void parse_declaration(struct parser *p, struct declaration *d) {
    memset(d, 0, sizeof *d);
    d->vector = 1;
    parse_declaration_type(p, d);
    d->line = p->token.line;
    d->name = parse_name(p, &d->length);
    uint64_t dimensions[8];
    unsigned rank = 0;
    d->count = 1;
    while (parse_accept(p, '[')) {
        if (rank == 8) parse_fail(p, p->token.line, "too many dimensions");
        dimensions[rank] = 0;
        if (!parse_accept(p, ']')) {
            int64_t n = parse_integer(p);
            if (n <= 0) parse_fail(p, p->token.line, "an array needs a positive size");
            dimensions[rank] = (uint64_t)n;
            parse_expect(p, ']');
        } else if (rank) {
            parse_fail(p, p->token.line, "only the first dimension may be open");
        } else {
            d->unsized = true;
        }
        if (__builtin_mul_overflow(d->count, dimensions[rank], &d->count) ||
            d->count > MAX_VARIABLE_BYTES)
            parse_fail(p, d->line, "array '%.*s' is too large", (int)d->length, d->name);
        rank++;
    }
    uint64_t element = ptx_type_bits(d->type) / 8 * d->vector;
    if (!d->align) d->align = element;
    d->sizes[rank] = ptx_type_bits(d->type) / 8;
    uint64_t size = element;
    for (unsigned i = rank; i-- > 0;) {
        d->sizes[i] = size;
        if (i) size *= dimensions[i];
    }
    if (!rank) d->sizes[0] = d->sizes[1] = ptx_type_bits(d->type) / 8;
}

static uint64_t align_up(uint64_t value, uint64_t align) {
    return (value + align - 1) & ~(align - 1);
}

/* A .local variable lies in its function's frame. Constants and globals are placed at load. */
static void place_local(struct parser *p, struct variable *v) {
    if (!p->function) parse_fail(p, v->line, ".local is allowed inside a function only");
    v->address = align_up(p->local_used, v->align);
    p->local_used = v->address + v->bytes;
    if (p->local_used > 1 << 19)
        parse_fail(p, v->line, "local memory of more than 512 KiB a thread");
}

void parse_variable(struct parser *p, enum ptx_space space, bool external) {
    struct declaration d;
    do {
        parse_declaration(p, &d);
        if (d.pointer) parse_fail(p, d.line, "unknown directive '.ptr' of a variable");
        struct variable *v = parse_alloc(p, sizeof *v);
        v->name = arena_text(&p->module->arena, d.name, d.length);
        v->space = space;
        v->type = d.type;
        v->align = d.align;
        v->bytes = d.count * d.vector * (ptx_type_bits(d.type) / 8);
        v->external = external;
        v->line = d.line;
        v->owner = p->function;
        if (d.unsized && !external) parse_fail(p, d.line, "'%s' has no size", v->name);
        if (!v->name) parse_fail(p, d.line, "out of memory");
        if (v->bytes > MAX_VARIABLE_BYTES)
            parse_fail(p, d.line, "variable '%s' is too large", v->name);
        if (space == SPACE_LOCAL) place_local(p, v);
        symbol_add(p, d.name, d.length, SYMBOL_VARIABLE)->object = v;
        v->next = p->module->variables;
        p->module->variables = v;
        if (p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == '=') {
            if (space != SPACE_GLOBAL && space != SPACE_CONST)
                parse_fail(p, d.line, "'%s' cannot have an initial value", v->name);
            if (v->bytes > 1 << 28) parse_fail(p, d.line, "'%s' is too large", v->name);
            parse_next(p);
            v->initial = parse_alloc(p, v->bytes);
            parse_values(p, v, 0, d.sizes, 0);
        }
    } while (parse_accept(p, ','));
    parse_expect(p, ';');
}

/* ---- functions ---- */

struct param_list {
    struct parameter *items;
    uint32_t count, capacity;
    uint64_t used;
};

static void parse_param_list(struct parser *p, struct param_list *list) {
    parse_expect(p, '(');
    if (parse_accept(p, ')')) return;
    do {
        if (parse_accept_dot(p, "reg"))
            parse_fail(p, p->token.line, "parameters in .reg space are not supported");
        if (!parse_accept_dot(p, "param")) parse_fail(p, p->token.line, "expected .param");
        struct declaration d;
        parse_declaration(p, &d);
        if (list->count == list->capacity) {
            uint32_t capacity = list->capacity ? list->capacity * 2 : 8;
            struct parameter *grown = parse_alloc(p, capacity * sizeof *grown);
            if (list->count) memcpy(grown, list->items, list->count * sizeof *grown);
            list->items = grown;
            list->capacity = capacity;
        }
        struct parameter *item = &list->items[list->count++];
        item->name = arena_text(&p->module->arena, d.name, d.length);
        item->align = d.align;
        item->bytes = d.count * d.vector * (ptx_type_bits(d.type) / 8);
        item->offset = align_up(list->used, d.align);
        if (!item->name || item->bytes > MAX_PARAM_BYTES ||
            item->offset + item->bytes > MAX_PARAM_BYTES)
            parse_fail(p, d.line, "parameters of more than %d bytes", MAX_PARAM_BYTES);
        list->used = item->offset + item->bytes;
    } while (parse_accept(p, ','));
    parse_expect(p, ')');
}

static void parse_dimensions(struct parser *p, uint32_t out[3]) {
    out[1] = out[2] = 1;
    for (unsigned i = 0;; i++) {
        int64_t n = parse_integer(p);
        if (i > 2 || n <= 0 || n > UINT32_MAX) parse_fail(p, p->token.line, "bad dimension");
        out[i] = (uint32_t)n;
        if (!parse_accept(p, ',')) return;
    }
}

static uint32_t parse_count(struct parser *p) {
    int64_t n = parse_integer(p);
    if (n < 0 || n > UINT32_MAX) parse_fail(p, p->token.line, "number out of range");
    return (uint32_t)n;
}

static void parse_function_directives(struct parser *p, struct function *f) {
    uint32_t ignored[3];
    while (p->token.kind == TOKEN_DOT) {
        if (parse_accept_dot(p, "maxntid"))
            parse_dimensions(p, f->max_threads);
        else if (parse_accept_dot(p, "reqntid"))
            parse_dimensions(p, f->required_threads);
        else if (parse_accept_dot(p, "minnctapersm"))
            f->min_blocks = parse_count(p);
        else if (parse_accept_dot(p, "maxnctapersm"))
            f->min_blocks = parse_count(p);
        else if (parse_accept_dot(p, "maxnreg"))
            f->max_registers = parse_count(p);
        else if (parse_accept_dot(p, "reqnctapercluster"))
            parse_dimensions(p, f->cluster);
        else if (parse_accept_dot(p, "maxclusterrank"))
            ignored[0] = parse_count(p);
        else if (parse_accept_dot(p, "explicitcluster"))
            ignored[1] = 0;
        else if (parse_accept_dot(p, "noreturn"))
            ignored[2] = 0;
        else if (parse_accept_dot(p, "pragma"))
            parse_pragma(p);
        else
            parse_fail(p, p->token.line, "unknown directive '.%.*s' of a function",
                       (int)p->token.length, p->token.text);
    }
    (void)ignored;
    if (f->cluster[0] * f->cluster[1] * f->cluster[2] > 1)
        parse_fail(p, p->token.line, "clusters of more than one block are not supported");
}

static struct function *declare_function(struct parser *p, const char *name, uint32_t length,
                                         bool entry) {
    struct symbol *s = symbol_find(p, name, length);
    if (s && (s->kind != SYMBOL_FUNCTION || ((struct function *)s->object)->defined ||
              ((struct function *)s->object)->entry != entry))
        parse_fail(p, p->token.line, "'%.*s' is declared twice", (int)length, name);
    if (s) return s->object;
    struct function *f = parse_alloc(p, sizeof *f);
    f->name = arena_text(&p->module->arena, name, length);
    if (!f->name) parse_fail(p, p->token.line, "out of memory");
    f->entry = entry;
    f->line = p->token.line;
    f->index = ++p->module->function_count;
    symbol_add(p, name, length, SYMBOL_FUNCTION)->object = f;
    f->next = p->module->functions;
    p->module->functions = f;
    return f;
}

static void check_same_parameters(struct parser *p, const struct function *f,
                                  const struct param_list *list, uint64_t bytes) {
    if (f->params && (f->param_count != list->count || f->param_bytes != bytes))
        parse_fail(p, p->token.line, "'%s' has other parameters than its declaration", f->name);
}

static void parse_function(struct parser *p, bool entry, bool visible) {
    struct param_list returns = {0}, params = {0};
    if (!entry && p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == '(')
        parse_param_list(p, &returns);
    if (parse_accept_dot(p, "noreturn")) {
    }
    uint32_t length;
    const char *name = parse_name(p, &length);
    struct function *f = declare_function(p, name, length, entry);
    if (p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == '(')
        parse_param_list(p, &params);
    check_same_parameters(p, f, &params, params.used);
    f->visible = f->visible || visible;
    f->params = params.items;
    f->param_count = params.count;
    f->param_bytes = params.used;
    uint64_t base = align_up(params.used, 16);
    for (uint32_t i = 0; i < returns.count; i++) returns.items[i].offset += base;
    f->returns = returns.items;
    f->return_count = returns.count;
    f->frame_param_bytes = base + align_up(returns.used, 16);
    parse_function_directives(p, f);
    if (parse_accept(p, ';')) return;
    parse_expect(p, '{');
    f->defined = true;
    parse_body(p, f);
}

/* ---- the module ---- */

static void parse_linkage_item(struct parser *p) {
    bool external = false, visible = false, more = true;
    while (more) {
        if (parse_accept_dot(p, "extern"))
            external = true;
        else if (parse_accept_dot(p, "visible") || parse_accept_dot(p, "weak") ||
                 parse_accept_dot(p, "common"))
            visible = true;
        else
            more = false;
    }
    if (parse_accept_dot(p, "entry"))
        parse_function(p, true, visible);
    else if (parse_accept_dot(p, "func"))
        parse_function(p, false, visible);
    else if (parse_accept_dot(p, "global"))
        parse_variable(p, SPACE_GLOBAL, external);
    else if (parse_accept_dot(p, "const"))
        parse_variable(p, SPACE_CONST, external);
    else if (parse_accept_dot(p, "shared"))
        parse_variable(p, SPACE_SHARED, external);
    else if (parse_accept_dot(p, "file"))
        parse_file(p);
    else if (parse_accept_dot(p, "loc"))
        parse_loc(p);
    else if (parse_accept_dot(p, "section"))
        skip_section(p);
    else if (parse_accept_dot(p, "pragma"))
        parse_pragma(p);
    else
        parse_fail(p, p->token.line, "unknown directive '%s%.*s'",
                   p->token.kind == TOKEN_DOT ? "." : "", (int)p->token.length, p->token.text);
}

void parse_module(struct parser *p) {
    parse_next(p);
    if (!parse_accept_dot(p, "version")) parse_fail(p, p->token.line, "PTX starts with .version");
    parse_version(p);
    if (!parse_accept_dot(p, "target"))
        parse_fail(p, p->token.line, ".target must follow .version");
    parse_target(p);
    if (parse_accept_dot(p, "address_size") && parse_integer(p) != 64)
        parse_fail(p, p->token.line, "only .address_size 64 is supported");
    while (p->token.kind != TOKEN_END) parse_linkage_item(p);
}
