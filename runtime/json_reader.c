#include "json_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

/* Write the path of `node` into `out`, the innermost parts last; too long a path loses its end. */
static size_t write_path(const struct json_node *node, char *out, size_t bytes) {
    if (!node->parent) return 0;
    size_t at = write_path(node->parent, out, bytes);
    int wrote = node->key ? snprintf(out + at, bytes - at, "%s%s", at ? "." : "", node->key)
                          : snprintf(out + at, bytes - at, "[%zu]", node->index);
    size_t end = at + (wrote > 0 ? (size_t)wrote : 0);
    return end < bytes ? end : bytes - 1;
}

void json_refuse(struct json_reader *r, const struct json_node *node, const char *key,
                 const char *rule, ...) {
    if (r->status != KVF_OK) return;
    char path[200] = "", why[280];
    struct json_node member = {.parent = node, .key = key};
    write_path(key ? &member : node, path, sizeof path);
    va_list args;
    va_start(args, rule);
    (void)vsnprintf(why, sizeof why, rule, args);
    va_end(args);
    r->status = error_set(r->error, KVF_ERROR_BUNDLE, "%s: %s %s", r->file,
                          path[0] ? path : "the document", why);
}

void json_no_memory(struct json_reader *r) {
    if (r->status == KVF_OK) r->status = error_memory(r->error, "reading the bundle");
}

static bool is_kind(const struct json_value *value, enum json_kind kind) {
    return value && value->kind == kind;
}

bool json_has(const struct json_node *object, const char *key) {
    return json_member(object->value, key) != NULL;
}

/* The member `key`, or an empty node after an error. */
static struct json_node member(struct json_reader *r, const struct json_node *object,
                               const char *key) {
    struct json_node node = {.parent = object, .key = key};
    if (r->status != KVF_OK) return node;
    node.value = json_member(object->value, key);
    if (!node.value) json_refuse(r, &node, NULL, "is missing");
    return node;
}

struct json_node json_get_object(struct json_reader *r, const struct json_node *object,
                                 const char *key) {
    struct json_node node = member(r, object, key);
    if (node.value && !is_kind(node.value, JSON_KIND_OBJECT)) {
        json_refuse(r, &node, NULL, "is not an object");
        node.value = NULL;
    }
    return node;
}

struct json_node json_get_array(struct json_reader *r, const struct json_node *object,
                                const char *key, uint32_t limit, uint32_t *count) {
    *count = 0;
    struct json_node node = member(r, object, key);
    if (!node.value) return node;
    if (!is_kind(node.value, JSON_KIND_ARRAY)) {
        json_refuse(r, &node, NULL, "is not an array");
        node.value = NULL;
    } else if (node.value->count > limit) {
        json_refuse(r, &node, NULL, "has %" PRIu32 " items, more than %" PRIu32, node.value->count,
                    limit);
        node.value = NULL;
    } else {
        *count = node.value->count;
    }
    return node;
}

struct json_node json_item(const struct json_node *array, uint32_t index) {
    return (struct json_node){.value =
                                  index < array->value->count ? array->value->items[index] : NULL,
                              .parent = array,
                              .index = index};
}

struct json_node json_object_item(struct json_reader *r, const struct json_node *array,
                                  uint32_t index) {
    struct json_node node = json_item(array, index);
    if (!is_kind(node.value, JSON_KIND_OBJECT)) {
        json_refuse(r, &node, NULL, "is not an object");
        node.value = NULL;
    }
    return node;
}

static uint64_t check_u64(struct json_reader *r, const struct json_node *node, uint64_t least,
                          uint64_t most) {
    if (!node->value) return 0;
    if (!is_kind(node->value, JSON_KIND_INTEGER)) {
        json_refuse(r, node, NULL, "is not an integer");
        return 0;
    }
    int64_t value = node->value->integer;
    if (value < 0 || (uint64_t)value < least || (uint64_t)value > most) {
        json_refuse(r, node, NULL, "is %" PRId64 ", allowed are %" PRIu64 " to %" PRIu64, value,
                    least, most);
        return 0;
    }
    return (uint64_t)value;
}

uint64_t json_get_u64(struct json_reader *r, const struct json_node *object, const char *key,
                      uint64_t least, uint64_t most) {
    struct json_node node = member(r, object, key);
    return check_u64(r, &node, least, most);
}

uint32_t json_get_u32(struct json_reader *r, const struct json_node *object, const char *key,
                      uint32_t least, uint32_t most) {
    return (uint32_t)json_get_u64(r, object, key, least, most);
}

uint64_t json_item_u64(struct json_reader *r, const struct json_node *array, uint32_t index,
                       uint64_t least, uint64_t most) {
    struct json_node node = json_item(array, index);
    return r->status == KVF_OK ? check_u64(r, &node, least, most) : 0;
}

bool json_get_bool(struct json_reader *r, const struct json_node *object, const char *key) {
    struct json_node node = member(r, object, key);
    if (!node.value) return false;
    if (!is_kind(node.value, JSON_KIND_BOOL)) {
        json_refuse(r, &node, NULL, "is not true or false");
        return false;
    }
    return node.value->truth;
}

double json_get_double(struct json_reader *r, const struct json_node *object, const char *key,
                       double least, double most) {
    struct json_node node = member(r, object, key);
    if (!node.value) return 0;
    bool integer = is_kind(node.value, JSON_KIND_INTEGER);
    if (!integer && !is_kind(node.value, JSON_KIND_REAL)) {
        json_refuse(r, &node, NULL, "is not a number");
        return 0;
    }
    double value = integer ? (double)node.value->integer : node.value->real;
    if (!(value >= least && value <= most)) {
        json_refuse(r, &node, NULL, "is %g, allowed are %g to %g", value, least, most);
        return 0;
    }
    return value;
}

static const char *check_text(struct json_reader *r, const struct json_node *node, size_t most,
                              bool empty) {
    if (!node->value) return "";
    if (!is_kind(node->value, JSON_KIND_TEXT)) {
        json_refuse(r, node, NULL, "is not a string");
        return "";
    }
    size_t bytes = node->value->bytes;
    if (bytes > most || (bytes == 0 && !empty)) {
        json_refuse(r, node, NULL, "has %zu bytes, allowed are %d to %zu", bytes, empty ? 0 : 1,
                    most);
        return "";
    }
    const char *copy = arena_copy(r->arena, node->value->text, bytes);
    if (!copy) json_no_memory(r);
    return copy ? copy : "";
}

const char *json_get_text(struct json_reader *r, const struct json_node *object, const char *key,
                          size_t most, bool empty) {
    struct json_node node = member(r, object, key);
    return check_text(r, &node, most, empty);
}

const char *json_item_text(struct json_reader *r, const struct json_node *array, uint32_t index,
                           size_t most) {
    struct json_node node = json_item(array, index);
    return r->status == KVF_OK ? check_text(r, &node, most, false) : "";
}
