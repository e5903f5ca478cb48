/* Tokens of PTX text. The text need not end in NUL; a token points into it. */
#ifndef EXECUTOR_LEXER_H
#define EXECUTOR_LEXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,        /* name, register, opcode: [A-Za-z_$%][A-Za-z0-9_$]* */
    TOKEN_DOT,         /* .word, with any ::parts; text excludes the dot */
    TOKEN_INTEGER,     /* value in `integer` */
    TOKEN_FLOAT,       /* value as binary64 bits in `integer` */
    TOKEN_FLOAT32,     /* 0fXXXXXXXX: bits in `integer` */
    TOKEN_STRING,      /* text excludes the quotes */
    TOKEN_PUNCTUATION, /* one character in `punctuation` */
    TOKEN_BAD          /* text is what could not be read */
};

struct token {
    enum token_kind kind;
    char punctuation;
    bool joined; /* follows the previous token without a blank */
    bool is_unsigned;
    const char *text;
    uint32_t length;
    uint32_t line;
    uint64_t integer;
};

struct lexer {
    const char *at, *end;
    const char *open; /* a comment that nothing closes, or null */
    uint32_t line;
};

void lexer_start(struct lexer *lexer, const char *text, size_t length);
void lexer_next(struct lexer *lexer, struct token *token);
bool token_is(const struct token *token, enum token_kind kind, const char *text);

#endif
