#include "lexer.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_START = 1, WORD_PART = 2, DIGIT = 4, HEX = 8, BLANK = 16 };

static uint8_t class_of(char c) {
    if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\n') return BLANK;
    if (c >= '0' && c <= '9') return WORD_PART | DIGIT | HEX;
    if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) return WORD_START | WORD_PART | HEX;
    if ((c >= 'g' && c <= 'z') || (c >= 'G' && c <= 'Z') || c == '_' || c == '$')
        return WORD_START | WORD_PART;
    if (c == '%') return WORD_START;
    return 0;
}

void lexer_start(struct lexer *lexer, const char *text, size_t length) {
    lexer->at = text;
    lexer->open = NULL;
    lexer->end = text + length;
    lexer->line = 1;
}

static bool skip_comment(struct lexer *l) {
    if (l->end - l->at < 2 || l->at[0] != '/') return false;
    if (l->at[1] == '/') {
        while (l->at < l->end && *l->at != '\n') l->at++;
        return true;
    }
    if (l->at[1] != '*') return false;
    const char *start = l->at;
    uint32_t line = l->line;
    l->at += 2;
    while (l->at < l->end) {
        if (*l->at == '\n') l->line++;
        if (*l->at == '*' && l->end - l->at > 1 && l->at[1] == '/') {
            l->at += 2;
            return true;
        }
        l->at++;
    }
    l->open = start;
    l->line = line;
    return false;
}

/* True if anything was skipped. */
static bool skip_blanks(struct lexer *l) {
    const char *start = l->at;
    for (;;) {
        while (l->at < l->end && (class_of(*l->at) & BLANK)) {
            if (*l->at == '\n') l->line++;
            l->at++;
        }
        if (l->at >= l->end || !skip_comment(l)) return l->at != start;
    }
}

static unsigned digit_value(char c) {
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    return (unsigned)((c | 32) - 'a') + 10;
}

/* Digits of a base; false without any or on overflow of 64 bits. */
static bool read_digits(struct lexer *l, unsigned base, unsigned limit, uint64_t *value) {
    unsigned count = 0;
    *value = 0;
    while (l->at < l->end && (class_of(*l->at) & HEX) && digit_value(*l->at) < base &&
           count < limit) {
        uint64_t next;
        if (__builtin_mul_overflow(*value, base, &next) ||
            __builtin_add_overflow(next, digit_value(*l->at), &next))
            return false;
        *value = next;
        l->at++;
        count++;
    }
    return count > 0 && (limit == UINT32_MAX || count == limit);
}

static bool decimal_is_float(const struct lexer *l) {
    const char *p = l->at;
    while (p < l->end && (class_of(*p) & DIGIT)) p++;
    if (p >= l->end) return false;
    return *p == '.' || *p == 'e' || *p == 'E';
}

static void read_decimal_float(struct lexer *l, struct token *t) {
    char copy[64];
    size_t n = 0;
    while (l->at < l->end && n + 1 < sizeof copy &&
           ((class_of(*l->at) & DIGIT) || *l->at == '.' || *l->at == 'e' || *l->at == 'E' ||
            ((*l->at == '-' || *l->at == '+') && n && (copy[n - 1] | 32) == 'e')))
        copy[n++] = *l->at++;
    copy[n] = 0;
    char *stop;
    double value = strtod(copy, &stop);
    t->kind = *stop ? TOKEN_BAD : TOKEN_FLOAT;
    memcpy(&t->integer, &value, sizeof value);
}

static void read_number(struct lexer *l, struct token *t) {
    char second = l->end - l->at > 1 ? l->at[1] : 0;
    bool good;
    t->kind = TOKEN_INTEGER;
    if (*l->at == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
        bool is_double = (second | 32) == 'd';
        l->at += 2;
        good = read_digits(l, 16, is_double ? 16 : 8, &t->integer);
        t->kind = is_double ? TOKEN_FLOAT : TOKEN_FLOAT32;
    } else if (*l->at == '0' && (second | 32) == 'x') {
        l->at += 2;
        good = read_digits(l, 16, UINT32_MAX, &t->integer);
    } else if (*l->at == '0' && (second | 32) == 'b') {
        l->at += 2;
        good = read_digits(l, 2, UINT32_MAX, &t->integer);
    } else if (decimal_is_float(l)) {
        read_decimal_float(l, t);
        good = t->kind == TOKEN_FLOAT;
    } else {
        unsigned base = *l->at == '0' ? 8 : 10;
        good = read_digits(l, base, UINT32_MAX, &t->integer);
    }
    if (good && t->kind == TOKEN_INTEGER && l->at < l->end && *l->at == 'U') {
        t->is_unsigned = true;
        l->at++;
    }
    if (!good || (l->at < l->end && (class_of(*l->at) & WORD_PART))) t->kind = TOKEN_BAD;
}

static void read_word(struct lexer *l) {
    l->at++;
    while (l->at < l->end && (class_of(*l->at) & WORD_PART)) l->at++;
}

/* After the dot: a word with ::parts, such as L1::no_allocate. */
static void read_dot(struct lexer *l, struct token *t) {
    t->text = l->at;
    for (;;) {
        while (l->at < l->end && (class_of(*l->at) & WORD_PART)) l->at++;
        if (l->end - l->at > 2 && l->at[0] == ':' && l->at[1] == ':' &&
            (class_of(l->at[2]) & WORD_PART))
            l->at += 2;
        else
            break;
    }
    t->kind = l->at == t->text ? TOKEN_BAD : TOKEN_DOT;
}

static void read_string(struct lexer *l, struct token *t) {
    t->text = l->at;
    while (l->at < l->end && *l->at != '"' && *l->at != '\n') l->at++;
    t->length = (uint32_t)(l->at - t->text);
    t->kind = l->at < l->end && *l->at == '"' ? TOKEN_STRING : TOKEN_BAD;
    if (t->kind == TOKEN_STRING) l->at++;
}

void lexer_next(struct lexer *l, struct token *t) {
    memset(t, 0, sizeof *t);
    t->joined = !skip_blanks(l);
    t->line = l->line;
    t->text = l->at;
    if (l->open) {
        t->kind = TOKEN_BAD;
        t->text = l->open;
        t->length = (uint32_t)(l->end - l->open);
        return;
    }
    if (l->at >= l->end || *l->at == 0) {
        t->kind = TOKEN_END;
        return;
    }
    char c = *l->at;
    uint8_t class = class_of(c);
    if (class & WORD_START) {
        t->kind = TOKEN_WORD;
        read_word(l);
    } else if (class & DIGIT) {
        read_number(l, t);
    } else if (c == '.') {
        l->at++;
        read_dot(l, t);
    } else if (c == '"') {
        l->at++;
        read_string(l, t);
        return;
    } else if (strchr("{}[]()<>,;:@!|+-=*&~/", c)) {
        t->kind = TOKEN_PUNCTUATION;
        t->punctuation = c;
        l->at++;
    } else {
        t->kind = TOKEN_BAD;
        l->at++;
    }
    t->length = (uint32_t)(l->at - t->text);
}

bool token_is(const struct token *t, enum token_kind kind, const char *text) {
    size_t n = strlen(text);
    return t->kind == kind && t->length == n && memcmp(t->text, text, n) == 0;
}
