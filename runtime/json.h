/*
 * A strict JSON parser (RFC 8259) into an arena. Its own, because a failed allocation must be told
 * from a bad document, and a hostile document must cost neither the stack nor much memory.
 * Internal.
 *
 * Beyond the grammar it refuses: duplicate keys, a 0 in a string, numbers beyond int64 or double,
 * nesting deeper than JSON_DEPTH, objects of more than JSON_MEMBERS members, more than JSON_VALUES
 * values. Text must be UTF-8.
 */
#ifndef KVF_JSON_H
#define KVF_JSON_H

#include "arena.h"
#include "kvforge.h"

enum { JSON_DEPTH = 64, JSON_MEMBERS = 256, JSON_VALUES = 1 << 18 };

enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INTEGER, /* a number without fraction and exponent */
    JSON_KIND_REAL,
    JSON_KIND_TEXT,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT
};

struct json_value {
    enum json_kind kind;
    const char *key; /* of an object's member, else null */
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            const char *text; /* UTF-8 with a final 0 */
            size_t bytes;
        };
        struct {
            struct json_value **items; /* of an array, or members in the order of the text */
            uint32_t count;
        };
    };
};

/* Parse `text`. `file` is named in errors, with line and column. Everything lives in the arena. */
kvf_status json_parse(struct arena *arena, const char *file, const char *text, size_t bytes,
                      const struct json_value **out, kvf_error *error);

/* The member `key` of an object; null if there is none or the value is no object (or null). */
const struct json_value *json_member(const struct json_value *object, const char *key);

#endif
