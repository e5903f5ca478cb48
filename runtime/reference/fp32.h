/*
 * The chip's binary32 where C leaves something open, and the two functions of our own.
 *
 * Formulas and coefficients: docs/kernels.md, "Rules for all". All functions are pure.
 */
#ifndef KVF_REFERENCE_FP32_H
#define KVF_REFERENCE_FP32_H

#define REF_LOG2E 0x1.715476p+0f /* fl(1.44269504) */
#define REF_LN2   0x1.62e43p-1f  /* fl(ln 2) */

/* The chip's arithmetic has one NaN, 0x7fffffff; what is stored as binary32 must have its bits. */
float ref_one_nan(float x);

/* The larger one: a NaN loses against a number, and +0 is above -0. Two NaNs give 0x7fffffff. */
float ref_max(float a, float b);

/*
 * 2^x: +0 below -125, +infinity from 128 on, never subnormal. At most REF_EXP2_ULP units in the
 * last place from the exact value, measured over every binary32.
 */
#define REF_EXP2_ULP 0.952
float ref_exp2(float x);

/*
 * log2(x) of a positive normal number, within REF_LOG2_ERROR of the exact value, or within that
 * part of it where it is above 1. Of anything else: what the formula makes of the bits, a NaN's
 * being 0x7fffffff.
 */
#define REF_LOG2_ERROR 0x1p-23
float ref_log2(float x);

#endif
