/* Statements of a function body: declarations, labels, instructions. */
#include <string.h>

#include "parser.h"

static bool at_punctuation(const struct parser *p, char c) {
    return p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == c;
}

void parse_loc(struct parser *p) {
    parse_integer(p);
    parse_integer(p);
    parse_integer(p);
    while (parse_accept(p, ',')) {
        uint32_t length;
        const char *name = parse_name(p, &length);
        if (length == 13 && !memcmp(name, "function_name", 13)) {
            parse_name(p, &length);
            if (parse_accept(p, '+')) parse_integer(p);
        } else if (length == 10 && !memcmp(name, "inlined_at", 10)) {
            parse_integer(p);
            parse_integer(p);
            parse_integer(p);
        } else {
            parse_fail(p, p->token.line, "unknown word '%.*s' in .loc", (int)length, name);
        }
    }
}

void parse_pragma(struct parser *p) {
    do {
        if (p->token.kind != TOKEN_STRING) parse_fail(p, p->token.line, ".pragma needs a string");
        parse_next(p);
    } while (parse_accept(p, ','));
    parse_expect(p, ';');
}

/* ---- declarations ---- */

static void add_register(struct parser *p, const char *name, uint32_t length, enum ptx_type type,
                         uint32_t count) {
    struct symbol *s = symbol_add(p, name, length, SYMBOL_REGISTER);
    s->type = type;
    s->count = count;
    uint64_t many = count ? count : 1;
    if (type == T_PRED) {
        s->first = p->next_predicate;
        if (many + p->next_predicate > MAX_PREDICATES)
            parse_fail(p, p->token.line, "more than %d predicates", MAX_PREDICATES);
        p->next_predicate += (uint32_t)many;
    } else {
        many *= ptx_type_bits(type) == 64 ? 2 : 1;
        s->first = p->next_slot;
        if (many + p->next_slot > MAX_SLOTS)
            parse_fail(p, p->token.line, "more than %d registers", MAX_SLOTS);
        p->next_slot += (uint32_t)many;
    }
}

static void parse_registers(struct parser *p) {
    enum ptx_type type = p->token.kind == TOKEN_DOT ? parse_type_word(&p->token) : T_NONE;
    if (type == T_NONE || ptx_type_bits(type) > 64)
        parse_fail(p, p->token.line, "unknown register type '.%.*s'", (int)p->token.length,
                   p->token.text);
    parse_next(p);
    do {
        uint32_t length;
        const char *name = parse_name(p, &length);
        uint32_t count = 0;
        if (parse_accept(p, '<')) {
            int64_t n = parse_integer(p);
            if (n <= 0 || n > MAX_SLOTS)
                parse_fail(p, p->token.line, "more than %d registers", MAX_SLOTS);
            count = (uint32_t)n;
            parse_expect(p, '>');
        }
        add_register(p, name, length, type, count);
    } while (parse_accept(p, ','));
    parse_expect(p, ';');
}

/* A .param variable of the body: the call's arguments and results pass through it. */
static void parse_body_param(struct parser *p) {
    uint64_t align = 0, count = 1;
    if (parse_accept_dot(p, "align")) align = (uint64_t)parse_integer(p);
    enum ptx_type type = p->token.kind == TOKEN_DOT ? parse_type_word(&p->token) : T_NONE;
    uint64_t bytes = ptx_type_bits(type) / 8;
    if (!bytes) parse_fail(p, p->token.line, "unknown type of a .param variable");
    parse_next(p);
    uint32_t length;
    const char *name = parse_name(p, &length);
    if (parse_accept(p, '[')) {
        int64_t n = parse_integer(p);
        if (n <= 0 || n > MAX_PARAM_BYTES) parse_fail(p, p->token.line, "bad array size");
        count = (uint64_t)n;
        parse_expect(p, ']');
    }
    parse_expect(p, ';');
    if (align < bytes) align = bytes;
    if (align > 128 || (align & (align - 1))) parse_fail(p, p->token.line, "bad .align");
    struct param_place *place = parse_alloc(p, sizeof *place);
    place->offset = (p->param_used + align - 1) & ~(align - 1);
    place->bytes = bytes * count;
    p->param_used = place->offset + place->bytes;
    if (p->param_used > 4 * MAX_PARAM_BYTES)
        parse_fail(p, p->token.line, "too much .param memory in a function");
    symbol_add(p, name, length, SYMBOL_PARAMETER)->object = place;
}

static void declare_parameters(struct parser *p, const struct function *f) {
    const struct parameter *lists[2] = {f->params, f->returns};
    uint32_t counts[2] = {f->param_count, f->return_count};
    for (unsigned k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < counts[k]; i++) {
            const struct parameter *item = &lists[k][i];
            struct param_place *place = parse_alloc(p, sizeof *place);
            *place = (struct param_place){item->offset, item->bytes, f->entry};
            symbol_add(p, item->name, (uint32_t)strlen(item->name), SYMBOL_PARAMETER)->object =
                place;
        }
    }
}

/* ---- operands ---- */

static void parse_operand(struct parser *p, struct operand *o, unsigned level);

static void parse_items(struct parser *p, struct operand *o, char close, unsigned level) {
    if (level > 2) parse_fail(p, p->token.line, "operands nest too deeply");
    struct operand items[MAX_ELEMENTS];
    o->item_count = 0;
    if (!at_punctuation(p, close)) {
        do {
            if (o->item_count == MAX_ELEMENTS)
                parse_fail(p, p->token.line, "a vector of more than %d elements", MAX_ELEMENTS);
            parse_operand(p, &items[o->item_count++], level + 1);
        } while (parse_accept(p, ','));
    }
    parse_expect(p, close);
    o->items = parse_alloc(p, (o->item_count + 1) * sizeof *items);
    memcpy(o->items, items, o->item_count * sizeof *items);
}

/* %tid.x and the like; the word has been read and is no declared register. */
static void parse_special(struct parser *p, struct operand *o) {
    char name[60];
    size_t n = o->name_length < 40 ? o->name_length : 40;
    memcpy(name, o->name, n);
    if (p->token.kind == TOKEN_DOT && p->token.joined && p->token.length < 4) {
        name[n++] = '.';
        memcpy(name + n, p->token.text, p->token.length);
        n += p->token.length;
        parse_next(p);
    }
    int special = special_register(name, n);
    if (special < 0) parse_fail(p, p->token.line, "unknown register '%.*s'", (int)n, name);
    o->kind = OPERAND_SPECIAL;
    o->slot = (uint32_t)special;
}

static void parse_offset(struct parser *p, struct operand *o) {
    if (parse_accept(p, '+'))
        o->integer += parse_integer(p);
    else if (at_punctuation(p, '-'))
        o->integer += parse_integer(p);
}

static void parse_word_operand(struct parser *p, struct operand *o) {
    o->name = parse_name(p, &o->name_length);
    if (o->name_length == 1 && o->name[0] == '_') {
        o->kind = OPERAND_SINK;
        return;
    }
    const struct symbol *s = register_find(p, o->name, o->name_length, &o->slot);
    if (s) {
        o->kind = OPERAND_REGISTER;
        o->type = s->type;
        return;
    }
    if (o->name[0] == '%') {
        parse_special(p, o);
        return;
    }
    if (o->name_length == 7 && !memcmp(o->name, "WARP_SZ", 7)) {
        o->kind = OPERAND_INTEGER;
        o->integer = LANES;
        return;
    }
    o->kind = OPERAND_NAME;
    o->symbol = symbol_find(p, o->name, o->name_length);
    parse_offset(p, o);
}

static void parse_number_operand(struct parser *p, struct operand *o) {
    bool negative = parse_accept(p, '-');
    uint64_t value = p->token.integer;
    o->is_unsigned = p->token.is_unsigned;
    switch (p->token.kind) {
    case TOKEN_INTEGER:
        o->kind = OPERAND_INTEGER;
        if (negative) value = 0 - value;
        break;
    case TOKEN_FLOAT:
        o->kind = OPERAND_FLOAT;
        if (negative) value ^= (uint64_t)1 << 63;
        break;
    case TOKEN_FLOAT32:
        o->kind = OPERAND_FLOAT32;
        if (negative) value ^= (uint64_t)1 << 31;
        break;
    default:
        parse_fail(p, p->token.line, "cannot read operand '%.*s'", (int)p->token.length,
                   p->token.text);
    }
    o->integer = (int64_t)value;
    parse_next(p);
}

static void parse_address(struct parser *p, struct operand *o) {
    o->kind = OPERAND_ADDRESS;
    o->items = parse_alloc(p, sizeof *o->items);
    if (p->token.kind == TOKEN_WORD)
        parse_word_operand(p, o->items);
    else
        parse_number_operand(p, o->items);
    if (o->items->kind == OPERAND_REGISTER) parse_offset(p, o);
    parse_expect(p, ']');
}

static void parse_operand(struct parser *p, struct operand *o, unsigned level) {
    memset(o, 0, sizeof *o);
    if (parse_accept(p, '[')) {
        parse_address(p, o);
    } else if (parse_accept(p, '{')) {
        o->kind = OPERAND_VECTOR;
        parse_items(p, o, '}', level);
    } else if (parse_accept(p, '(')) {
        o->kind = OPERAND_LIST;
        parse_items(p, o, ')', level);
    } else {
        bool negated = parse_accept(p, '!');
        if (p->token.kind == TOKEN_WORD)
            parse_word_operand(p, o);
        else
            parse_number_operand(p, o);
        o->negated = negated;
    }
    if (level == 0 && parse_accept(p, '|')) {
        o->second = parse_alloc(p, sizeof *o->second);
        parse_operand(p, o->second, 1);
    }
}

/* ---- instructions ---- */

static struct op *new_op(struct parser *p) {
    struct function *f = p->function;
    if (f->op_count == p->op_capacity) {
        uint32_t capacity = p->op_capacity ? p->op_capacity * 2 : 64;
        struct op *grown = parse_alloc(p, capacity * sizeof *grown);
        if (f->op_count) memcpy(grown, p->ops, f->op_count * sizeof *grown);
        p->ops = grown;
        p->op_capacity = capacity;
    }
    struct op *op = &p->ops[f->op_count++];
    *op = (struct op){.guard = -1, .p = PREDICATE_TRUE, .d2 = PREDICATE_SINK};
    return op;
}

static void parse_guard(struct parser *p, struct op *op) {
    op->guard_not = parse_accept(p, '!');
    uint32_t length, slot;
    const char *name = parse_name(p, &length);
    const struct symbol *s = register_find(p, name, length, &slot);
    if (!s || s->type != T_PRED)
        parse_fail(p, p->token.line, "'%.*s' is not a predicate", (int)length, name);
    op->guard = (int32_t)slot;
}

static void check_level(struct parser *p, const struct op *op, const struct opcode_text *opcode) {
    const struct form *form = &form_table[op->form];
    if (p->module->target < form->target)
        parse_fail(p, op->line, "'%.*s' with these modifiers needs .target sm_%u or higher",
                   (int)opcode->length[0], opcode->text[0], form->target);
    if (p->module->version < form->version)
        parse_fail(p, op->line, "'%.*s' with these modifiers needs .version %u.%u or higher",
                   (int)opcode->length[0], opcode->text[0], form->version / 10, form->version % 10);
}

/* cvt.sat between integers must be able to change something. */
static void check_saturation(struct parser *p, const struct op *op) {
    if (op->form != FORM_cvt_integer || !(op->flags & FLAG_SAT)) return;
    unsigned to = ptx_type_bits((enum ptx_type)op->type);
    unsigned from = ptx_type_bits((enum ptx_type)op->type2);
    bool to_signed = ptx_type_signed((enum ptx_type)op->type);
    bool from_signed = ptx_type_signed((enum ptx_type)op->type2);
    if (from_signed == to_signed ? from <= to : !from_signed && from < to)
        parse_fail(p, op->line, "'.sat' does not apply to this conversion");
}

/* The opcode's first word has been read into `first`. */
static void parse_instruction(struct parser *p, struct op *op, const struct token *first) {
    struct opcode_text opcode = {.count = 1};
    opcode.text[0] = first->text;
    opcode.length[0] = first->length;
    op->line = first->line;
    while (p->token.kind == TOKEN_DOT) {
        if (opcode.count == sizeof opcode.text / sizeof *opcode.text)
            parse_fail(p, op->line, "too many modifiers");
        opcode.text[opcode.count] = p->token.text;
        opcode.length[opcode.count++] = p->token.length;
        parse_next(p);
    }
    char why[200];
    if (form_match(&opcode, op, why, sizeof why) < 0) parse_fail(p, op->line, "%s", why);
    check_level(p, op, &opcode);
    check_saturation(p, op);
    struct operand operands[MAX_OPERANDS];
    uint32_t count = 0;
    if (!at_punctuation(p, ';')) {
        do {
            if (count == MAX_OPERANDS) parse_fail(p, op->line, "too many operands");
            parse_operand(p, &operands[count++], 0);
        } while (parse_accept(p, ','));
    }
    bind_operands(p, op, operands, count, op->line);
    parse_expect(p, ';');
}

/* name: .branchtargets a, b, c; */
static void parse_branch_targets(struct parser *p, const struct token *name) {
    int32_t targets[1024];
    uint32_t count = 0;
    struct branch *newest = NULL;
    do {
        if (count == 1024) parse_fail(p, name->line, "too many branch targets");
        struct branch *b = parse_alloc(p, sizeof *b);
        b->line = p->token.line;
        b->name = parse_name(p, &b->length);
        b->scope = p->scope;
        b->op = count++;
        b->next = newest;
        newest = b;
    } while (parse_accept(p, ','));
    parse_expect(p, ';');
    int32_t *list = parse_alloc(p, (count + 1) * sizeof *targets);
    list[0] = (int32_t)count;
    while (newest) {
        struct branch *b = newest;
        newest = b->next;
        b->slot = &list[b->op + 1];
        b->next = p->branches;
        p->branches = b;
    }
    symbol_add(p, name->text, name->length, SYMBOL_TARGETS)->object = list;
}

/* name: .callprototype (.param .b32 _) _ (.param .b64 _); the call itself tells all we need. */
static void parse_prototype(struct parser *p, const struct token *name) {
    while (!at_punctuation(p, ';')) {
        if (p->token.kind == TOKEN_END) parse_fail(p, name->line, ".callprototype is not closed");
        parse_next(p);
    }
    parse_next(p);
    symbol_add(p, name->text, name->length, SYMBOL_PROTOTYPE);
}

static void add_label(struct parser *p, const struct token *name) {
    if (parse_accept_dot(p, "branchtargets")) {
        parse_branch_targets(p, name);
        return;
    }
    if (parse_accept_dot(p, "callprototype")) {
        parse_prototype(p, name);
        return;
    }
    struct label *l = parse_alloc(p, sizeof *l);
    *l = (struct label){.next = p->labels,
                        .name = name->text,
                        .length = name->length,
                        .scope = p->scope,
                        .at = p->function->op_count,
                        .line = name->line};
    p->labels = l;
}

static void parse_body_directive(struct parser *p) {
    if (parse_accept_dot(p, "reg"))
        parse_registers(p);
    else if (parse_accept_dot(p, "local"))
        parse_variable(p, SPACE_LOCAL, false);
    else if (parse_accept_dot(p, "shared"))
        parse_variable(p, SPACE_SHARED, false);
    else if (parse_accept_dot(p, "global"))
        parse_variable(p, SPACE_GLOBAL, false);
    else if (parse_accept_dot(p, "const"))
        parse_variable(p, SPACE_CONST, false);
    else if (parse_accept_dot(p, "param"))
        parse_body_param(p);
    else if (parse_accept_dot(p, "loc"))
        parse_loc(p);
    else if (parse_accept_dot(p, "pragma"))
        parse_pragma(p);
    else if (parse_accept_dot(p, "extern")) {
        if (!parse_accept_dot(p, "shared"))
            parse_fail(p, p->token.line, "only .shared may be .extern in a function");
        parse_variable(p, SPACE_SHARED, true);
    } else
        parse_fail(p, p->token.line, "unknown directive '.%.*s'", (int)p->token.length,
                   p->token.text);
}

static void parse_statement(struct parser *p) {
    if (p->token.kind == TOKEN_DOT) {
        parse_body_directive(p);
        return;
    }
    if (parse_accept(p, ';')) return;
    if (parse_accept(p, '@')) {
        struct op *op = new_op(p);
        parse_guard(p, op);
        struct token first = p->token;
        uint32_t length;
        parse_name(p, &length);
        parse_instruction(p, op, &first);
        return;
    }
    struct token first = p->token;
    uint32_t length;
    parse_name(p, &length);
    if (parse_accept(p, ':')) {
        add_label(p, &first);
        return;
    }
    parse_instruction(p, new_op(p), &first);
}

/* ---- the end of a function ---- */

struct label_table {
    struct label **buckets;
    uint32_t mask;
};

static struct label **label_bucket(const struct label_table *t, const char *name, uint32_t length,
                                   uint32_t scope) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return &t->buckets[(hash ^ scope * 7919u) & t->mask];
}

static const struct label *find_in_scope(const struct label_table *t, const char *name,
                                         uint32_t length, uint32_t scope) {
    for (const struct label *l = *label_bucket(t, name, length, scope); l; l = l->next)
        if (l->scope == scope && l->length == length && !memcmp(l->name, name, length)) return l;
    return NULL;
}

/* The innermost label of that name that the branch sees. */
static const struct label *find_label(const struct parser *p, const struct label_table *t,
                                      const struct branch *b) {
    for (uint32_t scope = b->scope;; scope = p->scope_parent[scope]) {
        const struct label *l = find_in_scope(t, b->name, b->length, scope);
        if (l || scope == 0) return l;
    }
}

static void fill_labels(struct parser *p, struct label_table *t) {
    uint32_t count = 0;
    for (const struct label *l = p->labels; l; l = l->next) count++;
    t->mask = 15;
    while (t->mask < count) t->mask = t->mask * 2 + 1;
    t->buckets = parse_alloc(p, ((size_t)t->mask + 1) * sizeof(struct label *));
    while (p->labels) {
        struct label *l = p->labels;
        p->labels = l->next;
        /* The newest come first, so the one that is there already is the second of the text. */
        const struct label *later = find_in_scope(t, l->name, l->length, l->scope);
        if (later)
            parse_fail(p, later->line, "label '%.*s' is defined twice", (int)l->length, l->name);
        struct label **bucket = label_bucket(t, l->name, l->length, l->scope);
        l->next = *bucket;
        *bucket = l;
    }
}

static void resolve_branches(struct parser *p) {
    struct label_table table;
    fill_labels(p, &table);
    for (const struct branch *b = p->branches; b; b = b->next) {
        const struct label *l = find_label(p, &table, b);
        if (!l) parse_fail(p, b->line, "label '%.*s' is not defined", (int)b->length, b->name);
        if (b->slot)
            *b->slot = (int32_t)l->at;
        else
            p->ops[b->op].imm = l->at;
    }
    p->branches = NULL;
}

void parse_body(struct parser *p, struct function *f) {
    p->function = f;
    p->next_slot = FIRST_SLOT;
    p->next_predicate = FIRST_PREDICATE;
    p->local_used = 0;
    p->param_used = f->frame_param_bytes;
    scope_open(p);
    declare_parameters(p, f);
    uint32_t nested = 0;
    for (;;) {
        if (p->token.kind == TOKEN_END) parse_fail(p, f->line, "'%s' is not closed", f->name);
        if (at_punctuation(p, '{')) {
            scope_open(p);
            nested++;
            parse_next(p);
        } else if (at_punctuation(p, '}')) {
            if (nested-- == 0) break;
            scope_close(p);
            parse_next(p);
        } else {
            parse_statement(p);
        }
    }
    /* Falling off the end returns; its own operation keeps the program counter in range. */
    struct op *end = new_op(p);
    end->form = FORM_ret;
    end->line = p->token.line;
    resolve_branches(p);
    scope_close(p);
    parse_next(p);
    struct op *ops = parse_alloc(p, f->op_count * sizeof *ops);
    memcpy(ops, p->ops, f->op_count * sizeof *ops);
    f->ops = ops;
    f->slots = p->next_slot;
    f->predicates = p->next_predicate;
    f->local_bytes = (p->local_used + 15) & ~(uint64_t)15;
    f->frame_param_bytes = (p->param_used + 15) & ~(uint64_t)15;
    p->function = NULL;
}
