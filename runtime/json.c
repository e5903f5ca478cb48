#include "json.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

struct parser {
    struct arena *arena;
    const char *text, *end, *at;
    const char *why; /* of the first error, else null */
    bool no_memory;
    uint32_t values;
};

static struct json_value *parse_value(struct parser *p, unsigned depth);

/* Always null, so that callers can return it. */
static struct json_value *refuse(struct parser *p, const char *why) {
    if (!p->why) p->why = why;
    return NULL;
}

static void *take(struct parser *p, size_t count, size_t size) {
    void *memory = arena_take(p->arena, count, size);
    if (!memory) {
        p->no_memory = true;
        refuse(p, "out of memory");
    }
    return memory;
}

static void skip_space(struct parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool accept(struct parser *p, char c) {
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static struct json_value *new_value(struct parser *p, enum json_kind kind) {
    if (++p->values > JSON_VALUES) return refuse(p, "the document has too many values");
    struct json_value *value = take(p, 1, sizeof *value);
    if (value) value->kind = kind;
    return value;
}

/* ---- strings ---- */

/* Length of the UTF-8 sequence at `at`, 0 if it is none (overlong forms and surrogates are none).
 */
static size_t utf8_length(const unsigned char *at, const unsigned char *end) {
    size_t more = *at < 0x80                  ? 0
                  : *at >= 0xc2 && *at < 0xe0 ? 1
                  : *at >= 0xe0 && *at < 0xf0 ? 2
                  : *at >= 0xf0 && *at < 0xf5 ? 3
                                              : 4;
    if (more == 4 || (size_t)(end - at) <= more) return 0;
    for (size_t i = 1; i <= more; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool overlong = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xf0 && at[1] < 0x90);
    bool beyond = (*at == 0xed && at[1] >= 0xa0) || (*at == 0xf4 && at[1] >= 0x90);
    return overlong || beyond ? 0 : more + 1;
}

static char *put_utf8(char *out, uint32_t code) {
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 63));
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    }
    return out;
}

/* Four hex digits; false if they are not there. */
static bool read_hex(struct parser *p, uint32_t *out) {
    if (p->end - p->at < 4) return false;
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        char c = *p->at;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) return false;
        *out = *out << 4 | digit;
    }
    return true;
}

/* What follows "\u": one unit, or a pair of surrogates. */
static bool read_unicode(struct parser *p, uint32_t *code) {
    uint32_t low;
    if (!read_hex(p, code)) return false;
    if (*code < 0xd800 || *code >= 0xe000) return *code != 0;
    if (*code >= 0xdc00 || !accept(p, '\\') || !accept(p, 'u') || !read_hex(p, &low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return false;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* What follows a backslash; null if it is no escape. */
static char *read_escape(struct parser *p, char *out) {
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end) return NULL;
    char c = *p->at++;
    const char *found = c ? strchr(names, c) : NULL;
    if (found) {
        *out = means[found - names];
        return out + 1;
    }
    uint32_t code;
    if (c != 'u' || !read_unicode(p, &code)) return NULL;
    return put_utf8(out, code);
}

/* The closing quote of the string whose opening one was just read, or null. */
static const char *find_quote(const struct parser *p) {
    for (const char *at = p->at; at < p->end; at++) {
        if (*at == '"') return at;
        if (*at == '\\') at++;
    }
    return NULL;
}

/* A string after its opening quote; no escape is shorter than what it stands for. */
static const char *parse_string(struct parser *p, size_t *bytes) {
    const char *quote = find_quote(p);
    if (!quote) return (void)refuse(p, "a string has no end"), NULL;
    char *text = take(p, (size_t)(quote - p->at) + 1, 1);
    if (!text) return NULL;
    char *out = text;
    while (p->at < quote) {
        unsigned char c = (unsigned char)*p->at;
        if (c == '\\') {
            p->at++;
            out = read_escape(p, out);
            if (!out) return (void)refuse(p, "a bad escape in a string"), NULL;
            continue;
        }
        if (c < 0x20) return (void)refuse(p, "a control character in a string"), NULL;
        size_t length = utf8_length((const unsigned char *)p->at, (const unsigned char *)quote);
        if (length == 0) return (void)refuse(p, "a string is not UTF-8"), NULL;
        memcpy(out, p->at, length);
        out += length;
        p->at += length;
    }
    p->at = quote + 1;
    *bytes = (size_t)(out - text);
    return text;
}

/* ---- numbers ---- */

static bool skip_digits(struct parser *p) {
    const char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > start;
}

/* strtod wants the locale's decimal point, whatever the host program has set. */
static double to_double(const char *number, size_t bytes) {
    char copy[512];
    const char *point = memchr(number, '.', bytes);
    if (!point)
        (void)snprintf(copy, sizeof copy, "%.*s", (int)bytes, number);
    else
        (void)snprintf(copy, sizeof copy, "%.*s%s%.*s", (int)(point - number), number,
                       nl_langinfo(RADIXCHAR), (int)(number + bytes - point - 1), point + 1);
    return strtod(copy, NULL);
}

static bool to_integer(const char *number, size_t bytes, int64_t *out) {
    bool negative = *number == '-';
    int64_t value = 0;
    for (size_t i = negative; i < bytes; i++) {
        int64_t digit = number[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) /* downwards: INT64_MIN fits */
            return false;
    }
    if (!negative && value == INT64_MIN) return false;
    *out = negative ? value : -value;
    return true;
}

static struct json_value *parse_number(struct parser *p) {
    const char *start = p->at;
    bool real = false;
    (void)accept(p, '-');
    if (!accept(p, '0') && !skip_digits(p)) return refuse(p, "a value is expected");
    if (accept(p, '.')) {
        real = true;
        if (!skip_digits(p)) return refuse(p, "digits are missing after the decimal point");
    }
    if (accept(p, 'e') || accept(p, 'E')) {
        real = true;
        if (!accept(p, '+')) (void)accept(p, '-');
        if (!skip_digits(p)) return refuse(p, "digits are missing in the exponent");
    }
    size_t bytes = (size_t)(p->at - start);
    if (bytes > 400) return refuse(p, "a number is too long");
    struct json_value *value = new_value(p, real ? JSON_KIND_REAL : JSON_KIND_INTEGER);
    if (!value) return NULL;
    if (real) {
        value->real = to_double(start, bytes);
        if (!isfinite(value->real)) return refuse(p, "a number is too large");
    } else if (!to_integer(start, bytes, &value->integer)) {
        return refuse(p, "an integer is too large");
    }
    return value;
}

/* ---- containers ---- */

/* Items of one container while it is being read: a list, made an array at its end. */
struct link {
    struct json_value *value;
    struct link *before;
};

static bool add_item(struct parser *p, struct link **last, struct json_value *value,
                     struct json_value *item) {
    struct link *link = item ? take(p, 1, sizeof *link) : NULL;
    if (!link) return false;
    *link = (struct link){.value = item, .before = *last};
    *last = link;
    value->count++;
    return true;
}

static struct json_value *end_items(struct parser *p, struct json_value *value,
                                    const struct link *last) {
    value->items = take(p, value->count, sizeof *value->items);
    if (!value->items) return NULL;
    for (uint32_t i = value->count; last; last = last->before) value->items[--i] = last->value;
    return value;
}

static struct json_value *parse_array(struct parser *p, unsigned depth) {
    struct json_value *value = new_value(p, JSON_KIND_ARRAY);
    struct link *last = NULL;
    if (!value) return NULL;
    skip_space(p);
    if (accept(p, ']')) return end_items(p, value, last);
    for (;;) {
        if (!add_item(p, &last, value, parse_value(p, depth))) return NULL;
        skip_space(p);
        if (accept(p, ']')) return end_items(p, value, last);
        if (!accept(p, ',')) return refuse(p, "',' or ']' is expected");
    }
}

static bool has_key(const struct link *link, const char *key) {
    for (; link; link = link->before)
        if (strcmp(link->value->key, key) == 0) return true;
    return false;
}

static struct json_value *parse_member(struct parser *p, const struct link *others,
                                       unsigned depth) {
    size_t bytes;
    skip_space(p);
    if (!accept(p, '"')) return refuse(p, "a key is expected");
    const char *key = parse_string(p, &bytes);
    if (!key) return NULL;
    if (has_key(others, key)) return refuse(p, "a duplicate key");
    skip_space(p);
    if (!accept(p, ':')) return refuse(p, "':' is expected");
    struct json_value *value = parse_value(p, depth);
    if (value) value->key = key;
    return value;
}

static struct json_value *parse_object(struct parser *p, unsigned depth) {
    struct json_value *value = new_value(p, JSON_KIND_OBJECT);
    struct link *last = NULL;
    if (!value) return NULL;
    skip_space(p);
    if (accept(p, '}')) return end_items(p, value, last);
    for (;;) {
        if (value->count == JSON_MEMBERS) return refuse(p, "an object has too many members");
        if (!add_item(p, &last, value, parse_member(p, last, depth))) return NULL;
        skip_space(p);
        if (accept(p, '}')) return end_items(p, value, last);
        if (!accept(p, ',')) return refuse(p, "',' or '}' is expected");
    }
}

/* ---- any value ---- */

static bool accept_word(struct parser *p, const char *word) {
    size_t bytes = strlen(word);
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, word, bytes) != 0) return false;
    p->at += bytes;
    return true;
}

static struct json_value *parse_word(struct parser *p) {
    bool truth = accept_word(p, "true");
    if (truth || accept_word(p, "false")) {
        struct json_value *value = new_value(p, JSON_KIND_BOOL);
        if (value) value->truth = truth;
        return value;
    }
    if (accept_word(p, "null")) return new_value(p, JSON_KIND_NULL);
    return parse_number(p);
}

static struct json_value *parse_value(struct parser *p, unsigned depth) {
    skip_space(p);
    if (depth == JSON_DEPTH) return refuse(p, "the document is nested too deeply");
    if (accept(p, '{')) return parse_object(p, depth + 1);
    if (accept(p, '[')) return parse_array(p, depth + 1);
    if (!accept(p, '"')) return parse_word(p);
    struct json_value *value = new_value(p, JSON_KIND_TEXT);
    if (value) value->text = parse_string(p, &value->bytes);
    return value && value->text ? value : NULL;
}

static kvf_status fail(const struct parser *p, const char *file, kvf_error *error) {
    if (p->no_memory) return error_memory(error, "reading the bundle");
    unsigned line = 1, column = 1;
    for (const char *at = p->text; at < p->at; at++) {
        column = *at == '\n' ? 1 : column + 1;
        line += *at == '\n';
    }
    return error_set(error, KVF_ERROR_BUNDLE, "%s:%u:%u: %s", file, line, column, p->why);
}

kvf_status json_parse(struct arena *arena, const char *file, const char *text, size_t bytes,
                      const struct json_value **out, kvf_error *error) {
    struct parser p = {.arena = arena, .text = text, .end = text + bytes, .at = text};
    const struct json_value *value = parse_value(&p, 0);
    if (!value) return fail(&p, file, error);
    skip_space(&p);
    if (p.at != p.end) {
        refuse(&p, "something follows the document");
        return fail(&p, file, error);
    }
    *out = value;
    return KVF_OK;
}

const struct json_value *json_member(const struct json_value *object, const char *key) {
    if (!object || object->kind != JSON_KIND_OBJECT) return NULL;
    for (uint32_t i = 0; i < object->count; i++)
        if (strcmp(object->items[i]->key, key) == 0) return object->items[i];
    return NULL;
}
