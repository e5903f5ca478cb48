/* From operands as written to slots and numbers, by the signature of the form. */
#include <string.h>

#include "parser.h"

static const char *const special_names[SPECIAL_COUNT] = {
    [SPECIAL_TID_X] = "%tid.x",
    [SPECIAL_TID_Y] = "%tid.y",
    [SPECIAL_TID_Z] = "%tid.z",
    [SPECIAL_NTID_X] = "%ntid.x",
    [SPECIAL_NTID_Y] = "%ntid.y",
    [SPECIAL_NTID_Z] = "%ntid.z",
    [SPECIAL_CTAID_X] = "%ctaid.x",
    [SPECIAL_CTAID_Y] = "%ctaid.y",
    [SPECIAL_CTAID_Z] = "%ctaid.z",
    [SPECIAL_NCTAID_X] = "%nctaid.x",
    [SPECIAL_NCTAID_Y] = "%nctaid.y",
    [SPECIAL_NCTAID_Z] = "%nctaid.z",
    [SPECIAL_LANEID] = "%laneid",
    [SPECIAL_WARPID] = "%warpid",
    [SPECIAL_NWARPID] = "%nwarpid",
    [SPECIAL_SMID] = "%smid",
    [SPECIAL_NSMID] = "%nsmid",
    [SPECIAL_GRIDID] = "%gridid",
    [SPECIAL_LANEMASK_EQ] = "%lanemask_eq",
    [SPECIAL_LANEMASK_LE] = "%lanemask_le",
    [SPECIAL_LANEMASK_LT] = "%lanemask_lt",
    [SPECIAL_LANEMASK_GE] = "%lanemask_ge",
    [SPECIAL_LANEMASK_GT] = "%lanemask_gt",
    [SPECIAL_CLOCK] = "%clock",
    [SPECIAL_CLOCK_HI] = "%clock_hi",
    [SPECIAL_CLOCK64] = "%clock64",
    [SPECIAL_GLOBALTIMER] = "%globaltimer",
    [SPECIAL_GLOBALTIMER_LO] = "%globaltimer_lo",
    [SPECIAL_DYNAMIC_SMEM] = "%dynamic_smem_size",
    [SPECIAL_TOTAL_SMEM] = "%total_smem_size",
    [SPECIAL_CLUSTER_CTARANK] = "%cluster_ctarank",
    [SPECIAL_CLUSTER_NCTARANK] = "%cluster_nctarank",
};

int special_register(const char *name, size_t length) {
    for (int i = 0; i < SPECIAL_COUNT; i++)
        if (!strncmp(special_names[i], name, length) && !special_names[i][length]) return i;
    return -1;
}

struct binder {
    struct parser *p;
    struct op *op;
    uint32_t line;
    uint32_t number; /* of the operand being bound, from 1 */
    unsigned destinations, sources, predicates, immediates, addresses;
    int32_t list[4 * MAX_ELEMENTS];
    uint32_t list_count;
};

static _Noreturn void bad(struct binder *b, const char *wanted) {
    parse_fail(b->p, b->line, "operand %u of '%s' must be %s", b->number,
               form_table[b->op->form].pattern, wanted);
}

/* ---- where a bound operand goes ---- */

static void put_destination(struct binder *b, int32_t slot) {
    if (b->destinations++ == 0)
        b->op->d = slot;
    else
        b->op->d2 = slot;
}

static void put_source(struct binder *b, int32_t slot) {
    switch (b->sources++) {
    case 0: b->op->a = slot; break;
    case 1: b->op->b = slot; break;
    case 2: b->op->c = slot; break;
    default: b->op->e = slot; break;
    }
}

static void put_list(struct binder *b, int32_t slot) {
    if (b->list_count == sizeof b->list / sizeof *b->list) bad(b, "shorter");
    b->list[b->list_count++] = slot;
}

/* ---- values ---- */

static bool size_fits(unsigned register_bits, unsigned bits, bool relaxed) {
    if (register_bits == 8) register_bits = 16;
    return relaxed ? register_bits >= bits : register_bits == (bits < 16 ? 16 : bits);
}

static const char *wanted_register(unsigned bits) {
    switch (bits) {
    case 1: return "a predicate";
    case 64: return "a 64-bit register or value";
    case 32: return "a 32-bit register or value";
    default: return "a 16-bit register or value";
    }
}

static uint64_t immediate_bits(struct binder *b, const struct operand *o, enum ptx_type type,
                               unsigned bits) {
    if (o->kind == OPERAND_INTEGER) {
        if (type != T_NONE && ptx_type_float(type) && bits >= 32 && type != T_F16X2 &&
            type != T_BF16X2 && type != T_TF32)
            bad(b, "a floating-point value");
        return bits == 64 ? (uint64_t)o->integer
                          : (uint64_t)o->integer & (((uint64_t)1 << bits) - 1);
    }
    if (o->kind == OPERAND_FLOAT32 && bits == 32) return (uint64_t)o->integer;
    if (o->kind == OPERAND_FLOAT && bits == 64) return (uint64_t)o->integer;
    if (o->kind == OPERAND_FLOAT && bits == 32) {
        double wide;
        memcpy(&wide, &o->integer, sizeof wide);
        float narrow = (float)wide;
        uint32_t out;
        memcpy(&out, &narrow, sizeof out);
        return out;
    }
    bad(b, wanted_register(bits));
}

static const struct function *function_context(const struct binder *b, const struct variable *v) {
    return v->space == SPACE_SHARED ? b->p->function : NULL;
}

/* The address that a name stands for, as a constant of `bits`. */
static int32_t name_slot(struct binder *b, const struct operand *o, bool is64) {
    const struct symbol *s = o->symbol;
    if (!s) parse_fail(b->p, b->line, "'%.*s' is not declared", (int)o->name_length, o->name);
    uint64_t offset = (uint64_t)o->integer;
    if (s->kind == SYMBOL_PARAMETER) {
        const struct param_place *place = s->object;
        b->op->local_symbol = SPACE_PARAM;
        return constant_slot(b->p, place->offset + offset, is64, NULL, NULL);
    }
    if (s->kind == SYMBOL_FUNCTION) return constant_slot(b->p, 0, is64, NULL, s->object);
    if (s->kind != SYMBOL_VARIABLE) bad(b, "a variable or a function");
    const struct variable *v = s->object;
    if (v->space == SPACE_LOCAL) {
        b->op->local_symbol = SPACE_LOCAL;
        return constant_slot(b->p, v->address + offset, is64, NULL, NULL);
    }
    return constant_slot(b->p, offset, is64, v, function_context(b, v));
}

static int32_t source_slot(struct binder *b, const struct operand *o, enum ptx_type type,
                           unsigned bits, bool relaxed) {
    switch (o->kind) {
    case OPERAND_REGISTER:
        if (o->negated || o->second || o->type == T_PRED ||
            !size_fits(ptx_type_bits(o->type), bits, relaxed))
            bad(b, wanted_register(bits));
        return (int32_t)o->slot;
    case OPERAND_INTEGER:
    case OPERAND_FLOAT:
    case OPERAND_FLOAT32:
        return constant_slot(b->p, immediate_bits(b, o, type, bits), bits == 64, NULL, NULL);
    default: bad(b, wanted_register(bits));
    }
}

static int32_t destination_slot(struct binder *b, const struct operand *o, unsigned bits,
                                bool relaxed) {
    if (o->kind == OPERAND_SINK) return SLOT_SINK;
    if (o->kind != OPERAND_REGISTER || o->negated || o->type == T_PRED ||
        !size_fits(ptx_type_bits(o->type), bits, relaxed))
        bad(b, bits == 64   ? "a 64-bit register"
               : bits == 32 ? "a 32-bit register"
                            : "a 16-bit register");
    return (int32_t)o->slot;
}

static int32_t predicate_slot(struct binder *b, const struct operand *o) {
    if (o->kind != OPERAND_REGISTER || o->type != T_PRED) bad(b, "a predicate");
    return (int32_t)o->slot;
}

static uint8_t wide_of(enum ptx_type type) {
    unsigned bits = ptx_type_bits(type);
    return bits == 64 ? WIDE_64 : bits == 32 ? WIDE_32 : WIDE_16;
}

/* ---- one letter ---- */

static void bind_source_predicate(struct binder *b, const struct operand *o) {
    if (o->kind == OPERAND_INTEGER) {
        b->op->p = o->integer ? PREDICATE_TRUE : PREDICATE_FALSE;
        return;
    }
    b->op->p = predicate_slot(b, o);
    b->op->p_not = o->negated;
}

static void bind_pair(struct binder *b, const struct operand *o, bool first_predicate,
                      unsigned bits) {
    struct operand first = *o;
    first.second = NULL;
    if (first_predicate)
        put_destination(b, o->kind == OPERAND_SINK ? PREDICATE_SINK : predicate_slot(b, &first));
    else
        put_destination(b, destination_slot(b, &first, bits, false));
    if (o->second)
        put_destination(b, o->second->kind == OPERAND_SINK ? PREDICATE_SINK
                                                           : predicate_slot(b, o->second));
}

static void bind_address(struct binder *b, const struct operand *o) {
    if (o->kind != OPERAND_ADDRESS) bad(b, "an address in brackets");
    const struct operand *base = o->items;
    int32_t slot;
    bool is64 = true;
    int64_t offset = o->integer;
    switch (base->kind) {
    case OPERAND_REGISTER: {
        unsigned bits = ptx_type_bits(base->type);
        if (bits != 64 && bits != 32) bad(b, "an address in a 32- or 64-bit register");
        is64 = bits == 64;
        slot = (int32_t)base->slot;
        break;
    }
    case OPERAND_NAME: slot = name_slot(b, base, true); break;
    case OPERAND_INTEGER:
        slot = constant_slot(b->p, (uint64_t)base->integer, true, NULL, NULL);
        break;
    default: bad(b, "an address");
    }
    if (offset < INT32_MIN || offset > UINT32_MAX) bad(b, "within 32 bits of its base");
    if (b->addresses++ == 0) {
        b->op->imm = offset;
        b->op->address64 |= (uint8_t)is64;
    } else {
        /* The second address of an asynchronous copy: its offset travels in e. */
        if (offset > INT32_MAX) bad(b, "within 31 bits of its base");
        b->op->e = (int32_t)offset;
        b->op->address64 |= (uint8_t)(is64 << 1);
    }
    put_source(b, slot);
}

/* A register or a vector of op->vector of them: data of ld and st. */
static void bind_data(struct binder *b, const struct operand *o, bool load) {
    enum ptx_type type = b->op->type;
    unsigned bits = ptx_type_bits(type);
    const struct operand *items = o;
    uint32_t count = 1;
    if (b->op->vector > 1) {
        if (o->kind != OPERAND_VECTOR || o->item_count != b->op->vector)
            bad(b, "a vector in braces of as many registers as .v says");
        items = o->items;
        count = o->item_count;
    }
    uint8_t wide = WIDE_16;
    for (uint32_t i = 0; i < count; i++) {
        int32_t slot = load ? destination_slot(b, &items[i], bits, true)
                            : source_slot(b, &items[i], type, bits, true);
        put_list(b, slot);
        uint8_t this_wide = items[i].kind == OPERAND_REGISTER ? wide_of(items[i].type)
                            : bits == 64                      ? WIDE_64
                                                              : WIDE_32;
        if (items[i].kind == OPERAND_SINK) this_wide = bits == 64 ? WIDE_64 : WIDE_32;
        if (i && this_wide != wide && (this_wide == WIDE_64 || wide == WIDE_64))
            bad(b, "a vector of registers of one size");
        wide = this_wide;
    }
    b->op->wide = wide;
    if (b->op->vector == 0) b->op->vector = 1;
}

static void bind_letter(struct binder *b, char letter, const struct operand *o);

static void bind_vector(struct binder *b, char letter, uint32_t count, const struct operand *o) {
    const struct operand *items = o;
    if (o->kind == OPERAND_VECTOR) {
        if (o->item_count != count) bad(b, "a vector of another length");
        items = o->items;
    } else if (count != 1) {
        bad(b, "a vector in braces");
    }
    enum ptx_type type = b->op->type;
    for (uint32_t i = 0; i < count; i++) {
        switch (letter) {
        case 'w':
        case 'g': put_list(b, destination_slot(b, &items[i], 32, false)); break;
        case 'd': put_list(b, destination_slot(b, &items[i], ptx_type_bits(type), false)); break;
        case ':': put_list(b, source_slot(b, &items[i], T_B32, 32, false)); break;
        case 'f': put_list(b, source_slot(b, &items[i], T_F32, 32, false)); break;
        default: bad(b, "known to the signature");
        }
    }
}

static void bind_letter(struct binder *b, char letter, const struct operand *o) {
    struct op *op = b->op;
    enum ptx_type type = op->type, type2 = op->type2 ? op->type2 : type;
    unsigned bits = ptx_type_bits(type);
    switch (letter) {
    case 'd': put_destination(b, destination_slot(b, o, bits, false)); break;
    case 'D': put_destination(b, destination_slot(b, o, bits * 2, false)); break;
    case 'h': put_destination(b, destination_slot(b, o, 16, false)); break;
    case 'w': put_destination(b, destination_slot(b, o, 32, false)); break;
    case 'W': put_destination(b, destination_slot(b, o, 64, false)); break;
    case 'e':
        put_destination(b, destination_slot(b, o, bits, true));
        op->wide = o->kind == OPERAND_REGISTER ? wide_of(o->type) : WIDE_32;
        break;
    case 'R': bind_pair(b, o, false, 32); break;
    case 'k':
        if (o->negated) bad(b, "a predicate without '!'");
        put_source(b, predicate_slot(b, o));
        break;
    case 'n':
        put_source(b, o->kind == OPERAND_NAME ? name_slot(b, o, bits == 64)
                                              : source_slot(b, o, type, bits, false));
        break;
    case 'q':
        if (o->second) bad(b, "one predicate");
        bind_pair(b, o, true, 0);
        break;
    case 'Q': bind_pair(b, o, true, 0); break;
    case 's': put_source(b, source_slot(b, o, type, bits, false)); break;
    case 'S': put_source(b, source_slot(b, o, T_NONE, bits * 2, false)); break;
    case 'u': put_source(b, source_slot(b, o, type2, ptx_type_bits(type2), false)); break;
    case 'v': put_source(b, source_slot(b, o, op->type3, ptx_type_bits(op->type3), false)); break;
    case 'r':
        put_source(b, source_slot(b, o, type2, ptx_type_bits(type2), true));
        op->wide2 = o->kind == OPERAND_REGISTER  ? wide_of(o->type)
                    : ptx_type_bits(type2) == 64 ? WIDE_64
                                                 : WIDE_32;
        break;
    case '2': put_source(b, source_slot(b, o, T_B16, 16, false)); break;
    case '4': put_source(b, source_slot(b, o, T_B32, 32, false)); break;
    case '8': put_source(b, source_slot(b, o, T_B64, 64, false)); break;
    case 'p': bind_source_predicate(b, o); break;
    case 'x': bind_data(b, o, true); break;
    case 'y': bind_data(b, o, false); break;
    case 'a':
    case 'A': bind_address(b, o); break;
    case 'j': /* the size of an asynchronous copy, kept in mode */
        if (o->kind != OPERAND_INTEGER || (o->integer != 4 && o->integer != 8 && o->integer != 16))
            bad(b, "4, 8 or 16");
        if (op->form == FORM_cp_async_cg && o->integer != 16) bad(b, "16");
        op->mode = (uint8_t)o->integer;
        break;
    case 'c': /* the source size of an asynchronous copy, or a predicate that ignores the source */
        if (o->kind == OPERAND_REGISTER && o->type == T_PRED)
            bind_source_predicate(b, o);
        else
            op->c = source_slot(b, o, T_B32, 32, false);
        break;
    case 'i':
        if (o->kind != OPERAND_INTEGER) bad(b, "an integer");
        if (b->immediates++ == 0 && b->addresses == 0)
            op->imm = o->integer;
        else
            op->e = (int32_t)o->integer;
        break;
    default: bad(b, "known to the signature");
    }
}

/* ---- forms that bind themselves ---- */

static void bind_branch(struct binder *b, const struct operand *o) {
    if (o->kind != OPERAND_NAME) bad(b, "a label");
    struct parser *p = b->p;
    struct branch *branch = parse_alloc(p, sizeof *branch);
    *branch = (struct branch){.next = p->branches,
                              .name = o->name,
                              .length = o->name_length,
                              .scope = p->scope,
                              .op = p->function->op_count - 1,
                              .line = b->line};
    p->branches = branch;
}

static void bind_indexed_branch(struct binder *b, struct operand *o, uint32_t count) {
    if (count != 2) parse_fail(b->p, b->line, "brx.idx takes an index and a list of targets");
    b->number = 1;
    put_source(b, source_slot(b, &o[0], T_U32, 32, false));
    b->number = 2;
    if (o[1].kind != OPERAND_NAME || !o[1].symbol || o[1].symbol->kind != SYMBOL_TARGETS)
        bad(b, "the name of a list of branch targets");
    const int32_t *targets = o[1].symbol->object;
    b->op->list = targets + 1;
    b->op->list_count = (uint16_t)targets[0];
}

/* mov of a register, a value, a special register, an address; packing and unpacking. */
static void bind_mov(struct binder *b, struct operand *o, uint32_t count) {
    struct op *op = b->op;
    if (count != 2) parse_fail(b->p, b->line, "mov takes two operands");
    unsigned bits = ptx_type_bits(op->type);
    b->number = 1;
    if (o[0].kind == OPERAND_VECTOR || o[1].kind == OPERAND_VECTOR) {
        bool pack = o[1].kind == OPERAND_VECTOR;
        const struct operand *vector = pack ? &o[1] : &o[0];
        if (vector->item_count != 2 && vector->item_count != 4)
            bad(b, "a vector of two or four elements");
        unsigned part = bits / vector->item_count;
        if (part < 16 && part != 8) bad(b, "a vector whose elements have 8, 16 or 32 bits");
        if (pack) op->d = destination_slot(b, &o[0], bits, false);
        b->number = 2;
        if (!pack) op->a = source_slot(b, &o[1], op->type, bits, false);
        for (uint32_t i = 0; i < vector->item_count; i++)
            put_list(b, pack ? source_slot(b, &vector->items[i], T_NONE, part, part == 8)
                             : destination_slot(b, &vector->items[i], part, part == 8));
        op->mode = (uint8_t)part;
        op->form = pack ? FORM_mov_pack : FORM_mov_unpack;
        return;
    }
    op->d = destination_slot(b, &o[0], bits, false);
    op->wide = bits == 64 ? WIDE_64 : WIDE_32;
    b->number = 2;
    if (o[1].kind == OPERAND_SPECIAL) {
        op->form = FORM_mov_special;
        op->imm = o[1].slot;
        bool is64 = o[1].slot == SPECIAL_CLOCK64 || o[1].slot == SPECIAL_GLOBALTIMER ||
                    o[1].slot == SPECIAL_GRIDID;
        if (bits < 16 || (is64 && bits != 64 && o[1].slot != SPECIAL_GRIDID))
            bad(b, "read with its own size");
        return;
    }
    if (o[1].kind == OPERAND_NAME) {
        if (bits != 64 && bits != 32) bad(b, "moved into a 32- or 64-bit register");
        op->a = name_slot(b, &o[1], bits == 64);
        if (op->local_symbol) op->form = FORM_mov_local;
        return;
    }
    op->a = source_slot(b, &o[1], op->type, bits, false);
}

static void bind_mov_predicate(struct binder *b, struct operand *o, uint32_t count) {
    if (count != 2) parse_fail(b->p, b->line, "mov takes two operands");
    b->number = 1;
    b->op->d = predicate_slot(b, &o[0]);
    b->number = 2;
    bind_source_predicate(b, &o[1]);
}

/* Offsets of a call's .param variables: (returns..., arguments...) pairs of caller and length. */
static void bind_call_list(struct binder *b, const struct operand *list) {
    for (uint32_t i = 0; i < list->item_count; i++) {
        const struct operand *o = &list->items[i];
        if (o->kind != OPERAND_NAME || !o->symbol || o->symbol->kind != SYMBOL_PARAMETER)
            bad(b, "a list of .param variables");
        const struct param_place *place = o->symbol->object;
        put_list(b, (int32_t)place->offset);
        put_list(b, (int32_t)place->bytes);
    }
}

static void bind_call(struct binder *b, struct operand *o, uint32_t count) {
    struct op *op = b->op;
    uint32_t at = 0;
    b->number = 1;
    if (at < count && o[at].kind == OPERAND_LIST) {
        bind_call_list(b, &o[at]);
        op->c = (int32_t)o[at].item_count;
        at++;
    }
    b->number = at + 1;
    if (at >= count) parse_fail(b->p, b->line, "call lacks the function");
    if (o[at].kind == OPERAND_NAME && o[at].symbol && o[at].symbol->kind == SYMBOL_FUNCTION) {
        op->imm = ((const struct function *)o[at].symbol->object)->index;
    } else if (o[at].kind == OPERAND_REGISTER && ptx_type_bits(o[at].type) == 64) {
        op->a = (int32_t)o[at].slot;
    } else {
        bad(b, "a function or a 64-bit register");
    }
    at++;
    b->number = at + 1;
    if (at < count && o[at].kind == OPERAND_LIST) {
        bind_call_list(b, &o[at]);
        op->e = (int32_t)o[at].item_count;
        at++;
    }
    if (at < count && o[at].kind == OPERAND_NAME && o[at].symbol &&
        (o[at].symbol->kind == SYMBOL_PROTOTYPE || o[at].symbol->kind == SYMBOL_TARGETS))
        at++;
    if (at != count) parse_fail(b->p, b->line, "call has operands that are not understood");
    b->p->function->calls = true;
}

static bool bind_special_form(struct binder *b, struct operand *o, uint32_t count) {
    switch (b->op->form) {
    case FORM_mov: bind_mov(b, o, count); return true;
    case FORM_mov_pred: bind_mov_predicate(b, o, count); return true;
    case FORM_call: bind_call(b, o, count); return true;
    case FORM_brx: bind_indexed_branch(b, o, count); return true;
    case FORM_bra:
        if (count != 1) parse_fail(b->p, b->line, "bra takes a label");
        b->number = 1;
        bind_branch(b, &o[0]);
        return true;
    default: return false;
    }
}

/* Operands that the rest of a signature cannot do without. */
static uint32_t required(const char *s) {
    uint32_t n = 0;
    for (; *s; s++) {
        if (*s == 'L')
            while (s[1] >= '0' && s[1] <= '9') s++;
        if (*s == 'L' || *s == '{') s++;
        if (s[1] == '?')
            s++;
        else
            n++;
    }
    return n;
}

static void bind_by_signature(struct binder *b, struct operand *o, uint32_t count) {
    uint32_t at = 0;
    for (const char *s = form_table[b->op->form].signature; *s; s++) {
        char letter = *s;
        uint32_t length = 0;
        if (letter == 'L') {
            for (s++; *s >= '0' && *s <= '9'; s++) length = length * 10 + (uint32_t)(*s - '0');
            letter = *s;
        }
        if (letter == '{') { /* as many as .x says */
            letter = *++s;
            length = b->op->vector;
        }
        bool optional = s[1] == '?';
        if (optional) s++;
        b->number = at + 1;
        if (optional && count - at <= required(s + 1)) continue;
        if (at >= count) {
            parse_fail(b->p, b->line, "'%s' takes more operands", form_table[b->op->form].pattern);
        }
        if (length)
            bind_vector(b, letter, length, &o[at]);
        else
            bind_letter(b, letter, &o[at]);
        at++;
    }
    if (at != count)
        parse_fail(b->p, b->line, "'%s' takes fewer operands", form_table[b->op->form].pattern);
}

void bind_operands(struct parser *p, struct op *op, struct operand *operands, uint32_t count,
                   uint32_t line) {
    struct binder b = {.p = p, .op = op, .line = line};
    if (!bind_special_form(&b, operands, count)) bind_by_signature(&b, operands, count);
    if (!b.list_count) return;
    int32_t *list = parse_alloc(p, b.list_count * sizeof *list);
    memcpy(list, b.list, b.list_count * sizeof *list);
    op->list = list;
    op->list_count = (uint16_t)b.list_count;
}
