/* Random and adversarial numbers, the same for the same seed everywhere. */
#ifndef KVF_TOOL_INPUT_H
#define KVF_TOOL_INPUT_H

#include "reference/reference.h"

enum input_kind {
    INPUT_RANDOM,    /* magnitudes from 2^-6 to 2^3 */
    INPUT_ZERO,      /* zeros of both signs */
    INPUT_NAN,       /* NaNs of any payload and sign among random values */
    INPUT_INFINITY,  /* infinities among them */
    INPUT_TIES,      /* half way between two e4m3 codes, and between two bf16 values */
    INPUT_SUBNORMAL, /* subnormal and smallest normal numbers */
    INPUT_HUGE,      /* up to the largest finite numbers */
    INPUT_BLOCKS,    /* every block of 64 in another binade, some below the scale's floor */
    INPUT_BITS,      /* any bit pattern at all */
    INPUT_KINDS
};

extern const char *const input_names[INPUT_KINDS];

/* xorshift64*: any state but 0. */
uint32_t input_next(uint64_t *state);
/* 0..limit-1, limit > 0. */
uint32_t input_below(uint64_t *state, uint32_t limit);

/* `count` elements of a latent. */
void input_vector(uint64_t *state, enum input_kind kind, enum ref_dtype dtype, void *out,
                  uint32_t count);
/* Norm weights around 1; `special`: with zeros, NaN, infinities, huge and tiny ones among them. */
void input_weight(uint64_t *state, bool special, float *out, uint32_t count);
/* A rope table: any numbers in [-1, 1], among them 0, -0, 1 and -1; one in 512 is NaN or infinite.
 */
void input_rope(uint64_t *state, float *out, size_t count);

#endif
