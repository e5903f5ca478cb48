/*
 * Numbers known to lie between two others, in double: what the dense reference computes with.
 *
 * A range holds the exact result and whatever a binary32 computation of it may give. Steps that
 * round to a grid (bf16, a row format's codes) are monotone, so rounding both ends is enough: a
 * value that no rounding error can move across a boundary becomes one number again.
 */
#ifndef KVF_REFERENCE_RANGE_H
#define KVF_REFERENCE_RANGE_H

#include "reference.h"

#define REF_UNIT 0x1p-24 /* what one binary32 operation errs, relative */

struct ref_range {
    double lo, hi;
};

struct ref_range ref_range_of(double x);
double ref_range_middle(struct ref_range x);
double ref_range_radius(struct ref_range x);
/* The largest magnitude in it, and the smallest. */
double ref_range_most(struct ref_range x);
double ref_range_least(struct ref_range x);

/* Wider by `units` binary32 roundings of a number as large as `size`, or of its own ends. */
struct ref_range ref_range_round(struct ref_range x, double units, double size);
struct ref_range ref_range_add(struct ref_range a, struct ref_range b);
struct ref_range ref_range_scale(struct ref_range a, double factor);
/* Both ends to bf16. */
struct ref_range ref_range_bf16(struct ref_range x);

/*
 * The nearest number with `mantissa` bits behind the leading one, ties to even; below 2^lowest the
 * grid is even, beyond `largest` it ends.
 */
double ref_grid(double x, int mantissa, int lowest, double largest);

/*
 * A row of bf16 ranges as a format stores and returns it (`x` is replaced): latent formats leave
 * the last rope_dim elements as they are.
 */
void ref_range_store(enum ref_format format, uint32_t dim, uint32_t rope_dim, struct ref_range *x);

#endif
