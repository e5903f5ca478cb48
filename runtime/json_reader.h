/*
 * Strict reading of a JSON document: every getter states type and range, and the first thing that
 * does not hold becomes the error, with its path ("types[2].places[0].rows"). After an error every
 * getter returns zero and does nothing, so callers check json_reader_good() where they loop or
 * allocate, and once at the end. Internal; one thread at a time.
 */
#ifndef KVF_JSON_READER_H
#define KVF_JSON_READER_H

#include "json.h"

struct json_reader {
    struct arena *arena; /* strings are copied here */
    const char *file;    /* named in errors: "manifest.json" */
    kvf_error *error;
    kvf_status status;
};

/* A value and the way to it. Lives on the stack; `parent` must live as long. */
struct json_node {
    const struct json_value *value;
    const struct json_node *parent;
    const char *key; /* of an object's member, else null */
    size_t index;    /* of an array's item */
};

static inline bool json_reader_good(const struct json_reader *r) {
    return r->status == KVF_OK;
}

/* Refuse `node` (or its member `key`, if not null): "<path> <rule>", printf style. */
__attribute__((format(printf, 4, 5))) void json_refuse(struct json_reader *r,
                                                       const struct json_node *node,
                                                       const char *key, const char *rule, ...);
void json_no_memory(struct json_reader *r);

bool json_has(const struct json_node *object, const char *key);
struct json_node json_get_object(struct json_reader *r, const struct json_node *object,
                                 const char *key);
/* An array of at most `limit` items; its length in *count (0 after an error). */
struct json_node json_get_array(struct json_reader *r, const struct json_node *object,
                                const char *key, uint32_t limit, uint32_t *count);
struct json_node json_item(const struct json_node *array, uint32_t index);
/* An item that must be an object. */
struct json_node json_object_item(struct json_reader *r, const struct json_node *array,
                                  uint32_t index);

uint64_t json_get_u64(struct json_reader *r, const struct json_node *object, const char *key,
                      uint64_t least, uint64_t most);
uint32_t json_get_u32(struct json_reader *r, const struct json_node *object, const char *key,
                      uint32_t least, uint32_t most);
bool json_get_bool(struct json_reader *r, const struct json_node *object, const char *key);
double json_get_double(struct json_reader *r, const struct json_node *object, const char *key,
                       double least, double most);
/* Text of 1 to `most` bytes (0 to `most` if `empty`), in the arena; never null. */
const char *json_get_text(struct json_reader *r, const struct json_node *object, const char *key,
                          size_t most, bool empty);
const char *json_item_text(struct json_reader *r, const struct json_node *array, uint32_t index,
                           size_t most);
uint64_t json_item_u64(struct json_reader *r, const struct json_node *array, uint32_t index,
                       uint64_t least, uint64_t most);

#endif
