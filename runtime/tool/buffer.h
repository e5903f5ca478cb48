/*
 * Device memory with an image on the host of what it must hold. A reference works on the image, a
 * kernel on the memory; then both must be equal in every byte, the guards around included.
 */
#ifndef KVF_TOOL_BUFFER_H
#define KVF_TOOL_BUFFER_H

#include "session.h"

struct buffer {
    const char *name;
    kvf_address allocation;
    uint8_t *image;      /* [total]: guard, data, guard */
    size_t total, guard; /* guard bytes on each side */
};

/* Where and how two memories differ first. */
struct difference {
    const char *name; /* of the array */
    size_t count;     /* bytes that differ; 0: equal */
    size_t offset;    /* of the first one, from the start of the data; in a guard it is outside */
    uint8_t got, want;
};

/* `guarded`: with guards of 256 bytes; else exactly the bytes asked for, so that reads beyond are
 * the driver's to find. Data and guards hold a pattern until they are filled. */
bool buffer_create(struct session *session, const char *name, size_t bytes, bool guarded,
                   struct buffer *out);
void buffer_destroy(struct session *session, struct buffer *buffer);

kvf_address buffer_address(const struct buffer *buffer); /* of the data on the device */
uint8_t *buffer_data(const struct buffer *buffer);       /* of the data in the image */
float *buffer_floats(const struct buffer *buffer);       /* the same, as numbers */
int32_t *buffer_ints(const struct buffer *buffer);
uint16_t *buffer_halves(const struct buffer *buffer); /* bf16 */
size_t buffer_bytes(const struct buffer *buffer);

/* Copy the whole image to the device. */
bool buffer_upload(struct session *session, const struct buffer *buffer);
/* Compare the whole allocation with the image. */
bool buffer_compare(struct session *session, const struct buffer *buffer, struct difference *out);

/* Compare `bytes` of memory; offsets count from `start`. */
struct difference difference_of(const char *name, const uint8_t *got, const uint8_t *want,
                                size_t bytes);

#endif
