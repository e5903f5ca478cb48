/*
 * Attention of one request in double, from the inputs of its whole history: it knows nothing of
 * caches, lists, tiles, splits or chunks. Window and visible entries are taken by definition.
 *
 * It follows the specification's roundings (bf16 between steps where the rules say so, each row
 * format's codes), computed here independently, and carries for every number how far a binary32
 * computation in any order may be from it (range.h). The bound on a result is thus proved for the
 * inputs at hand, not measured; its parts, with u = 2^-24:
 *   rows      elements that no error can move across a rounding boundary are exact; the few others
 *             may be one step of bf16 or of the row's code away, and count with that step
 *   scores    19 u sum |q k| for each block of 8 products (the tensor core cuts off every term)
 *   weights   exp2's argument and polynomial, a factor for each tile of 32; 2^-8 for bf16 weights
 *   values    19 u of the weighted magnitudes for each block of 8 positions
 *   results   half a step of bf16 for each rounding to it
 * It holds whatever the signs of the errors, so that it is some ten times wider than what happens.
 * Besides it there is the `noise`: the root of the mean square that independent rounding errors of
 * weights and results have. Over many numbers the differences have that size; a row too many, or a
 * factor that is one percent off, has another.
 *
 * Inputs must be finite; sinks may be -infinity. Memory is the caller's. Nothing is allocated.
 */
#ifndef KVF_REFERENCE_DENSE_H
#define KVF_REFERENCE_DENSE_H

#include "range.h"

/* The stored window row of a token: range[head_dim]. `table`: the rope table's row of its position.
 */
void ref_dense_window_row(const struct ref_type *type, const uint8_t *latent,
                          const float *norm_weight, const float *table, struct ref_range *row);

/* A compressor's inputs for positions 0, 1, 2, ...: row p is position p. */
struct ref_dense_compressor {
    uint32_t dim;              /* head_dim or indexer.dim */
    enum ref_format format;    /* of its rows */
    bool index;                /* the indexer's: Hadamard by type->hadamard, all of it quantised */
    const uint8_t *kv, *score; /* [positions][dim, or 2 dim with overlap] of type->input */
    uint64_t kv_stride, score_stride;
    const float *ape;         /* [ratio][columns] */
    const float *norm_weight; /* [dim] */
    const float *rope;        /* [positions][rope_dim] */
};

/* Entry j, of tokens ratio * j .. ratio * j + ratio - 1 (with overlap the group before them, too).
 */
void ref_dense_entry(const struct ref_type *type, const struct ref_dense_compressor *compressor,
                     uint32_t j, struct ref_range *row);

/* Rows for attention: of every position so far, and of every completed entry. */
struct ref_dense {
    const struct ref_range *window;  /* [positions][head_dim] */
    const struct ref_range *entries; /* [completed entries][head_dim]; null without ratio */
    uint32_t heads;
    float scale;
    const float *sink; /* [heads] */
    const float *rope; /* [positions][rope_dim] */
};

/* [heads][head_dim] each: a result, how far one in bf16 may be from it, and how far it mostly is.
 */
struct ref_dense_result {
    double *value, *radius, *noise;
};

/*
 * The attention output of a token at `position`, after the inverse rotation. `q`:
 * bf16[heads][head_dim] before norm and rotation. `chosen`: the entries an indexer selected; null:
 * all visible ones.
 */
void ref_dense_attention(const struct ref_type *type, const struct ref_dense *dense,
                         uint32_t position, const uint8_t *q, const int32_t *chosen,
                         uint32_t chosen_count, const struct ref_dense_result *out);

/*
 * Scores of the entries that a token sees, as ranges: keys[visible][dim] from ref_dense_entry, `q`
 * bf16[heads][dim] before rotation, `weights` [heads] before scaling. `index`: as in indexer.h.
 */
void ref_dense_scores(const struct ref_type *index, uint32_t heads, const uint8_t *q,
                      const float *weights, const float *table, const struct ref_range *keys,
                      uint32_t visible, struct ref_range *scores);

/*
 * Whether a selection may stand: min(topk, visible) entries, ascending, and none whose score lies
 * surely below another one that was left out. Returns the first offender's index, or -1.
 */
int64_t ref_dense_check_selection(const struct ref_range *scores, uint32_t visible, uint32_t topk,
                                  const int32_t *chosen, uint32_t count);

#endif
