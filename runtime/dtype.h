/* Element types of rows and state arrays. Internal. */
#ifndef KVF_DTYPE_H
#define KVF_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

enum dtype {
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_E4M3,
    DTYPE_E5M2,
    DTYPE_UE8M0,
    DTYPE_E2M1, /* two a byte */
    DTYPE_PAD,  /* bytes without meaning, written as zero */
    DTYPE_U16,
    DTYPE_I16,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_U32,
    DTYPE_I32,
    DTYPE_F32,
    DTYPE_COUNT
};

/* The type called `name`; DTYPE_COUNT if there is none. */
enum dtype dtype_find(const char *name);
const char *dtype_name(enum dtype type);
unsigned dtype_bits(enum dtype type);

/* Bytes of `count` elements, rounded up to a whole byte. `count` below 2^59. */
uint64_t dtype_bytes(enum dtype type, uint64_t count);

/* A value to set memory to: `width` bytes (1, 2 or 4), little-endian in `bits`. */
struct dtype_fill {
    uint32_t bits, width;
};

/*
 * The bits of `value`. False if the type cannot hold it exactly; the 8-bit and 4-bit floats and
 * pads take 0 only, which is all bits zero.
 */
bool dtype_fill(enum dtype type, double value, struct dtype_fill *out);

#endif
