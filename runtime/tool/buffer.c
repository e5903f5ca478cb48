#include "buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 256

/* A pattern without a period that a stride could hit, and that is a NaN nowhere by rule. */
static void poison(uint8_t *bytes, size_t count) {
    uint32_t state = 0x9e3779b9u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(state >> 24);
    }
}

bool buffer_create(struct session *session, const char *name, size_t bytes, bool guarded,
                   struct buffer *out) {
    size_t guard = guarded ? GUARD : 0, total = bytes + 2 * guard;
    *out = (struct buffer){.name = name, .guard = guard, .total = total ? total : 16};
    out->image = malloc(out->total);
    if (!out->image) {
        fprintf(stderr, "kvforge-run: out of memory for %s\n", name);
        return false;
    }
    poison(out->image, out->total);
    if (session_alloc(session, out->total, &out->allocation)) return true;
    buffer_destroy(session, out);
    return false;
}

void buffer_destroy(struct session *session, struct buffer *buffer) {
    session_free(session, buffer->allocation);
    free(buffer->image);
    *buffer = (struct buffer){0};
}

kvf_address buffer_address(const struct buffer *buffer) {
    return buffer->allocation + buffer->guard;
}

uint8_t *buffer_data(const struct buffer *buffer) {
    return buffer->image + buffer->guard;
}

/* Images come from malloc and data begins at a multiple of 256 behind it: aligned for any number.
 */
float *buffer_floats(const struct buffer *buffer) {
    void *data = buffer_data(buffer);
    return data;
}

int32_t *buffer_ints(const struct buffer *buffer) {
    void *data = buffer_data(buffer);
    return data;
}

uint16_t *buffer_halves(const struct buffer *buffer) {
    void *data = buffer_data(buffer);
    return data;
}

size_t buffer_bytes(const struct buffer *buffer) {
    return buffer->total - 2 * buffer->guard;
}

bool buffer_upload(struct session *session, const struct buffer *buffer) {
    return session_upload(session, buffer->allocation, buffer->image, buffer->total);
}

struct difference difference_of(const char *name, const uint8_t *got, const uint8_t *want,
                                size_t bytes) {
    struct difference out = {.name = name};
    if (!memcmp(got, want, bytes)) return out;
    for (size_t i = 0; i < bytes; i++) {
        if (got[i] == want[i]) continue;
        if (!out.count++) {
            out.offset = i;
            out.got = got[i];
            out.want = want[i];
        }
    }
    return out;
}

bool buffer_compare(struct session *session, const struct buffer *buffer, struct difference *out) {
    uint8_t *seen = malloc(buffer->total);
    bool good = seen && session_download(session, seen, buffer->allocation, buffer->total);
    if (good) {
        *out = difference_of(buffer->name, seen, buffer->image, buffer->total);
        out->offset -= buffer->guard;
    }
    free(seen);
    return good;
}
