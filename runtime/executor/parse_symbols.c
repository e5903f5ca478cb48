/* Names and their scopes, and the pool of constants. */
#include <string.h>

#include "parser.h"

enum { FIRST_BUCKETS = 512 };

void symbols_start(struct parser *p) {
    p->bucket_count = p->constant_bucket_count = FIRST_BUCKETS;
    p->buckets = parse_alloc(p, FIRST_BUCKETS * sizeof(struct symbol *));
    p->constant_buckets = parse_alloc(p, FIRST_BUCKETS * sizeof(struct constant *));
}

static uint32_t hash_name(const char *name, uint32_t length) {
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < length; i++) h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h ^ (h >> 13);
}

static struct symbol *find_hashed(const struct parser *p, const char *name, uint32_t length,
                                  uint32_t hash) {
    for (struct symbol *s = p->buckets[hash & (p->bucket_count - 1)]; s; s = s->chain)
        if (s->hash == hash && s->length == length && !memcmp(s->name, name, length)) return s;
    return NULL;
}

struct symbol *symbol_find(const struct parser *p, const char *name, uint32_t length) {
    return find_hashed(p, name, length, hash_name(name, length));
}

/* Twice as many buckets; each chain keeps its order, innermost scope first. */
static void grow_symbols(struct parser *p) {
    uint32_t n = p->bucket_count;
    struct symbol **grown = parse_alloc(p, 2 * (size_t)n * sizeof(struct symbol *));
    for (uint32_t i = 0; i < n; i++) {
        struct symbol **ends[2] = {&grown[i], &grown[i + n]};
        for (struct symbol *s = p->buckets[i]; s; s = s->chain) {
            struct symbol ***end = &ends[(s->hash & n) != 0];
            **end = s;
            *end = &s->chain;
        }
        *ends[0] = *ends[1] = NULL;
    }
    p->buckets = grown;
    p->bucket_count = 2 * n;
}

struct symbol *symbol_add(struct parser *p, const char *name, uint32_t length,
                          enum symbol_kind kind) {
    uint32_t hash = hash_name(name, length);
    struct symbol *old = find_hashed(p, name, length, hash);
    if (old && old->depth == p->depth)
        parse_fail(p, p->token.line, "'%.*s' is declared twice", (int)length, name);
    if (p->symbol_count++ >= 2 * p->bucket_count) grow_symbols(p);
    struct symbol *s = parse_alloc(p, sizeof *s);
    *s = (struct symbol){.chain = p->buckets[hash & (p->bucket_count - 1)],
                         .scope_next = p->newest,
                         .name = name,
                         .length = length,
                         .hash = hash,
                         .depth = p->depth,
                         .kind = kind};
    p->buckets[hash & (p->bucket_count - 1)] = s;
    p->newest = s;
    return s;
}

struct symbol *register_find(const struct parser *p, const char *name, uint32_t length,
                             uint32_t *slot) {
    struct symbol *s = symbol_find(p, name, length);
    if (s && s->kind == SYMBOL_REGISTER && !s->count) {
        *slot = s->first;
        return s;
    }
    uint32_t prefix = length;
    uint64_t number = 0;
    while (prefix && name[prefix - 1] >= '0' && name[prefix - 1] <= '9') prefix--;
    if (prefix == length || length - prefix > 9) return NULL;
    for (uint32_t i = prefix; i < length; i++) number = number * 10 + (uint64_t)(name[i] - '0');
    /* %r10 may belong to %r<20> or, with a shorter number, to %r1<5>: the longest prefix wins. */
    for (uint32_t n = length - 1; n + 1 > prefix && n; n--) {
        s = symbol_find(p, name, n);
        if (!s || s->kind != SYMBOL_REGISTER || !s->count) continue;
        uint64_t index = 0;
        for (uint32_t i = n; i < length; i++) index = index * 10 + (uint64_t)(name[i] - '0');
        if (name[n] == '0' && length - n > 1) continue;
        if (index >= s->count) continue;
        uint32_t step = ptx_type_bits(s->type) == 64 ? 2 : 1;
        *slot = s->first + (uint32_t)index * step;
        return s;
    }
    return NULL;
}

void scope_open(struct parser *p) {
    if (++p->depth > MAX_NESTING) parse_fail(p, p->token.line, "scopes nest too deeply");
    if (p->scope_count >= MAX_SCOPES) parse_fail(p, p->token.line, "too many scopes");
    if (p->scope_count == p->scope_capacity) {
        uint32_t *grown = parse_alloc(p, 2 * p->scope_capacity * sizeof *grown);
        memcpy(grown, p->scope_parent, p->scope_capacity * sizeof *grown);
        p->scope_parent = grown;
        p->scope_capacity *= 2;
    }
    p->scope_parent[p->scope_count] = p->scope;
    p->scope = p->scope_count++;
}

void scope_close(struct parser *p) {
    while (p->newest && p->newest->depth == p->depth) {
        p->buckets[p->newest->hash & (p->bucket_count - 1)] = p->newest->chain;
        p->newest = p->newest->scope_next;
        p->symbol_count--;
    }
    p->depth--;
    p->scope = p->scope_parent[p->scope];
}

static void grow_constants(struct parser *p) {
    uint32_t n = 2 * p->constant_bucket_count;
    struct constant **grown = parse_alloc(p, n * sizeof(struct constant *));
    for (struct constant *c = p->constants; c; c = c->next) {
        c->chain = grown[c->hash & (n - 1)];
        grown[c->hash & (n - 1)] = c;
    }
    p->constant_buckets = grown;
    p->constant_bucket_count = n;
}

int32_t constant_slot(struct parser *p, uint64_t value, bool is64, const struct variable *variable,
                      const struct function *function) {
    if (!is64 && !variable && !function) value &= UINT32_MAX;
    uint64_t key = (value ^ (uintptr_t)variable << 20 ^ (uintptr_t)function << 9 ^ (uint64_t)is64) *
                   0x9e3779b97f4a7c15u;
    uint32_t hash = (uint32_t)(key >> 32);
    for (struct constant *c = p->constant_buckets[hash & (p->constant_bucket_count - 1)]; c;
         c = c->chain)
        if (c->value == value && c->is64 == is64 && c->variable == variable &&
            c->function == function)
            return -1 - (int32_t)c->slot;
    if (p->constant_count++ >= 2 * p->constant_bucket_count) grow_constants(p);
    struct module *m = p->module;
    struct constant **bucket = &p->constant_buckets[hash & (p->constant_bucket_count - 1)];
    struct constant *c = parse_alloc(p, sizeof *c);
    *c = (struct constant){.chain = *bucket,
                           .next = p->constants,
                           .value = value,
                           .variable = variable,
                           .function = function,
                           .slot = m->constant_slots,
                           .hash = hash,
                           .is64 = is64};
    *bucket = c;
    p->constants = c;
    m->constant_slots += is64 ? 2 : 1;
    if (m->constant_slots > 1 << 22) parse_fail(p, p->token.line, "too many constants");
    return -1 - (int32_t)c->slot;
}
