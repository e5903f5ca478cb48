#include "mirror.h"

#include "reference/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every array a state cache may have; the window's planes are added by name of plane. */
static const char *const names[] = {
    "swa_fp8",     "swa_rope",     "swa_inv",      "swa_rows",     "swa_pos",  "swa_head",
    "tail_ka",     "tail_za",      "tail_kb",      "tail_zb",      "tail_len", "idx_tail_ka",
    "idx_tail_za", "idx_tail_kb",  "idx_tail_zb",  "idx_tail_len", "tail_max", "tail_sum",
    "tail_acc",    "idx_tail_max", "idx_tail_sum", "idx_tail_acc"};

#define NAMES (sizeof names / sizeof *names)

/* Fill with one value of a dtype. */
static bool fill(uint8_t *to, uint64_t bytes, const char *dtype, double value) {
    uint8_t element[4];
    uint32_t size;
    if (!strcmp(dtype, "f32")) {
        float x = (float)value;
        memcpy(element, &x, size = 4);
    } else if (!strcmp(dtype, "i32")) {
        int32_t x = (int32_t)value;
        memcpy(element, &x, size = 4);
    } else if (!strcmp(dtype, "bf16")) {
        uint16_t x = ref_bf16((float)value);
        memcpy(element, &x, size = 2);
    } else if (value == 0) { /* bytes of any other kind */
        memset(to, 0, bytes);
        return true;
    } else {
        return false;
    }
    for (uint64_t i = 0; i < bytes; i++) to[i] = element[i % size];
    return true;
}

/* A layer of the model that is layer `wanted` of type `type`. */
static bool find_layer(const struct session *session, uint32_t type, uint32_t wanted,
                       uint32_t *out) {
    uint32_t total = session->model.layers + session->model.draft_layers, t, index;
    for (*out = 0; *out < total; ++*out)
        if (!kvf_bundle_layer(session->bundle, *out, &t, &index) && t == type && index == wanted)
            return true;
    return false;
}

static bool add(struct mirror *mirror, uint32_t type, uint32_t layers, const char *name,
                const kvf_array *array) {
    struct mirror_array *out = &mirror->arrays[mirror->count];
    *out = (struct mirror_array){.type = type,
                                 .base = array->base,
                                 .slot_stride = array->slot_stride,
                                 .layer_stride = array->layer_stride,
                                 .bytes = array->layer_stride * layers};
    snprintf(out->name, sizeof out->name, "%s", name);
    out->image = malloc(out->bytes ? out->bytes : 1);
    if (!out->image) return false;
    mirror->count++;
    mirror->bytes += out->bytes;
    if (fill(out->image, out->bytes, array->dtype, array->init)) return true;
    fprintf(stderr, "kvforge-run: array %s: initial value %g of dtype %s\n", name, array->init,
            array->dtype);
    return false;
}

static bool add_type(struct mirror *mirror, const kvf_cache *cache, uint32_t type) {
    kvf_type_info info;
    kvf_array array;
    kvf_error error;
    uint32_t layer;
    if (kvf_bundle_type(mirror->session->bundle, type, &info)) return false;
    if (!find_layer(mirror->session, type, 0, &layer)) return true; /* a type without layers */
    for (size_t i = 0; i < NAMES; i++) {
        kvf_status status = kvf_cache_array(cache, layer, names[i], &array, &error);
        if (status == KVF_ERROR_NOT_FOUND) continue;
        if (status) return session_fail(names[i], &error);
        if (!add(mirror, type, info.layers + info.draft_layers, names[i], &array)) return false;
    }
    return true;
}

bool mirror_create(struct session *session, const kvf_cache *cache, struct mirror *out) {
    uint64_t bytes = kvf_cache_bytes(cache);
    *out = (struct mirror){.session = session};
    out->arrays = calloc(session->model.types * NAMES, sizeof *out->arrays);
    if (!out->arrays) return false;
    for (uint32_t type = 0; type < session->model.types; type++)
        if (!add_type(out, cache, type)) return false;
    if (out->bytes == bytes) return true;
    fprintf(stderr, "kvforge-run: the known arrays hold %llu bytes, the cache %llu\n",
            (unsigned long long)out->bytes, (unsigned long long)bytes);
    return false;
}

void mirror_destroy(struct mirror *mirror) {
    for (size_t i = 0; i < mirror->count; i++) free(mirror->arrays[i].image);
    free(mirror->arrays);
    *mirror = (struct mirror){0};
}

struct mirror_array *mirror_find(const struct mirror *mirror, uint32_t type, const char *name) {
    for (size_t i = 0; i < mirror->count; i++)
        if (mirror->arrays[i].type == type && !strcmp(mirror->arrays[i].name, name))
            return &mirror->arrays[i];
    return NULL;
}

bool mirror_compare(const struct mirror *mirror, const struct mirror_array *array,
                    uint32_t layer_of_type, struct difference *out) {
    uint64_t offset = layer_of_type * array->layer_stride;
    uint8_t *seen = malloc(array->layer_stride);
    bool good =
        seen && session_download(mirror->session, seen, array->base + offset, array->layer_stride);
    if (good) *out = difference_of(array->name, seen, array->image + offset, array->layer_stride);
    free(seen);
    return good;
}
