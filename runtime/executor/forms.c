#include "forms.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

const struct form form_table[FORM_COUNT] = {
#define FORM(name, pattern, signature, class, target, version)                                     \
    {#name, pattern, signature, CLASS_##class, target, version},
#include "forms.def"
#undef FORM
};

struct word {
    const char *spelling;
    uint8_t type, round, compare, mode;
    uint16_t flags;
    uint8_t space, vector, semantics, scope;
};

static const struct word word_table[] = {
#define WORD(s, type, round, compare, mode, flags, space, vector, semantics, scope)                \
    {s, type, round, compare, mode, flags, space, vector, semantics, scope},
#include "words.def"
#undef WORD
};

enum { WORD_COUNT = sizeof word_table / sizeof *word_table, BUCKETS = 512 };

static uint32_t hash_text(const char *text, size_t length) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++) h = (h ^ (uint8_t)text[i]) * 16777619u;
    return h ^ (h >> 15);
}

/* ---- the index: first row of each opcode's base word, and the words by hash ---- */

static int16_t base_bucket[BUCKETS], base_next[FORM_COUNT];
static int16_t word_bucket[BUCKETS], word_next[WORD_COUNT];
static uint8_t base_length[FORM_COUNT];
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void build_index(void) {
    memset(base_bucket, -1, sizeof base_bucket);
    memset(word_bucket, -1, sizeof word_bucket);
    /* Backwards, so that a bucket lists its rows in the table's order. */
    for (int i = FORM_COUNT - 1; i >= 0; i--) {
        size_t n = strcspn(form_table[i].pattern, ".");
        uint32_t h = hash_text(form_table[i].pattern, n) % BUCKETS;
        base_length[i] = (uint8_t)n;
        base_next[i] = base_bucket[h];
        base_bucket[h] = (int16_t)i;
    }
    for (int i = (int)WORD_COUNT - 1; i >= 0; i--) {
        uint32_t h = hash_text(word_table[i].spelling, strlen(word_table[i].spelling)) % BUCKETS;
        word_next[i] = word_bucket[h];
        word_bucket[h] = (int16_t)i;
    }
}

bool form_prepare(void) {
    return pthread_once(&prepared, build_index) == 0;
}

static void apply_word(const char *text, uint32_t length, struct op *op) {
    for (int i = word_bucket[hash_text(text, length) % BUCKETS]; i >= 0; i = word_next[i]) {
        const struct word *w = &word_table[i];
        if (strncmp(w->spelling, text, length) != 0 || w->spelling[length]) continue;
        if (w->type) {
            if (!op->type)
                op->type = w->type;
            else if (!op->type2)
                op->type2 = w->type;
            else if (!op->type3)
                op->type3 = w->type;
            else
                op->type4 = w->type;
        }
        if (w->space) {
            if (!op->space)
                op->space = w->space;
            else
                op->space2 = w->space;
        }
        if (w->round) op->round = w->round;
        if (w->compare) op->compare = w->compare;
        if (w->mode) op->mode = w->mode;
        if (w->vector) op->vector = w->vector;
        if (w->semantics) op->semantics = w->semantics;
        if (w->scope) op->scope = w->scope;
        op->flags |= w->flags;
        return;
    }
}

/* ---- matching ---- */

/* A piece of a pattern: its choices start at text, `length` characters without the brackets. */
struct piece {
    const char *text;
    size_t length;
    bool optional;
};

/* The piece at *at (after the dot); advances. False at the end of the pattern. */
static bool next_piece(const char **at, struct piece *piece) {
    const char *p = *at;
    if (*p == '.') p++;
    if (!*p) return false;
    if (*p == '(') {
        piece->text = p + 1;
        piece->length = strcspn(piece->text, ")");
        p = piece->text + piece->length + 1;
    } else {
        piece->text = p;
        piece->length = strcspn(p, ".?");
        p += piece->length;
    }
    piece->optional = *p == '?';
    if (piece->optional) p++;
    *at = p;
    return true;
}

static bool piece_has(const struct piece *piece, const char *text, size_t length) {
    const char *p = piece->text, *end = p + piece->length;
    while (p < end) {
        const char *bar = memchr(p, '|', (size_t)(end - p));
        size_t n = (size_t)((bar ? bar : end) - p);
        if (n == length && memcmp(p, text, n) == 0) return true;
        p += n + 1;
    }
    return false;
}

/* How many words matched; sets *whole when pattern and opcode ended together. */
static unsigned match_row(const char *pattern, const struct opcode_text *opcode, bool *whole) {
    const char *at = pattern;
    struct piece piece;
    unsigned word = 0;
    *whole = false;
    while (next_piece(&at, &piece)) {
        if (word < opcode->count && piece_has(&piece, opcode->text[word], opcode->length[word]))
            word++;
        else if (!piece.optional)
            return word;
    }
    *whole = word == opcode->count;
    return word;
}

static bool word_is_one_of(const struct opcode_text *o, unsigned k, const char *words) {
    struct piece all = {words, strlen(words), false};
    return piece_has(&all, o->text[k], o->length[k]);
}

static void swap_words(struct opcode_text *o, unsigned k) {
    const char *text = o->text[k];
    uint32_t length = o->length[k];
    o->text[k] = o->text[k - 1];
    o->length[k] = o->length[k - 1];
    o->text[k - 1] = text;
    o->length[k - 1] = length;
}

/* Where a modifier stands among those that may come in any order; 9: where it is. */
static unsigned order_of(const struct opcode_text *o, unsigned k) {
    if (word_is_one_of(o, k, "weak|volatile|relaxed|acquire|release|acq_rel")) return 0;
    if (word_is_one_of(o, k, "cta|cluster|gpu|sys")) return 1;
    if (word_is_one_of(o, k, "global|shared|shared::cta|local|const")) return 2;
    return 9;
}

/*
 * The patterns have one order of modifiers; ptxas takes the semantics, scope and space of a memory
 * access in any, nvcc writes atom.global.cta.add, and .relu may follow or go before .satfinite.
 */
static void put_in_order(struct opcode_text *o) {
    bool memory = word_is_one_of(o, 0, "atom|red|ld|st");
    if (memory) {
        for (unsigned i = 2; i < o->count; i++)
            for (unsigned k = i; k > 1 && order_of(o, k) < order_of(o, k - 1); k--)
                swap_words(o, k);
    } else if (word_is_one_of(o, 0, "cvt")) {
        for (unsigned k = 1; k + 1 < o->count; k++)
            if (word_is_one_of(o, k, "relu") && word_is_one_of(o, k + 1, "satfinite"))
                swap_words(o, k + 1);
    }
}

int form_match(const struct opcode_text *written, struct op *op, char *why, size_t why_bytes) {
    struct opcode_text ordered = *written, *opcode = &ordered;
    put_in_order(opcode);
    uint32_t h = hash_text(opcode->text[0], opcode->length[0]) % BUCKETS;
    unsigned best = 0;
    for (int i = base_bucket[h]; i >= 0; i = base_next[i]) {
        if (base_length[i] != opcode->length[0] ||
            memcmp(form_table[i].pattern, opcode->text[0], base_length[i]) != 0)
            continue;
        bool whole;
        unsigned words = match_row(form_table[i].pattern, opcode, &whole);
        if (words > best) best = words;
        if (!whole) continue;
        for (unsigned k = 1; k < opcode->count; k++)
            apply_word(opcode->text[k], opcode->length[k], op);
        op->form = (uint16_t)i;
        return i;
    }
    if (best == 0)
        snprintf(why, why_bytes, "unknown instruction '%.*s'", (int)opcode->length[0],
                 opcode->text[0]);
    else if (best < opcode->count)
        snprintf(why, why_bytes, "unknown or misplaced modifier '.%.*s' of '%.*s'",
                 (int)opcode->length[best], opcode->text[best], (int)opcode->length[0],
                 opcode->text[0]);
    else
        snprintf(why, why_bytes, "'%.*s' lacks a modifier after '%.*s'", (int)opcode->length[0],
                 opcode->text[0], (int)opcode->length[best - 1], opcode->text[best - 1]);
    return -1;
}

/* ---- spelling, for tests ---- */

struct speller {
    bool (*each)(void *, const char *);
    void *context;
    char text[256];
};

static bool spell_from(struct speller *s, size_t used, const char *at) {
    struct piece piece;
    if (!next_piece(&at, &piece)) return s->each(s->context, s->text);
    if (piece.optional) {
        s->text[used] = 0;
        if (!spell_from(s, used, at)) return false;
    }
    const char *p = piece.text, *end = p + piece.length;
    while (p < end) {
        const char *bar = memchr(p, '|', (size_t)(end - p));
        size_t n = (size_t)((bar ? bar : end) - p);
        int wrote =
            snprintf(s->text + used, sizeof s->text - used, "%s%.*s", used ? "." : "", (int)n, p);
        if (!spell_from(s, used + (size_t)wrote, at)) return false;
        p += n + 1;
    }
    return true;
}

void form_spell(int form, bool (*each)(void *context, const char *opcode), void *context) {
    struct speller s = {.each = each, .context = context};
    spell_from(&s, 0, form_table[form].pattern);
}
