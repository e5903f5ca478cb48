/* Rows of the dense reference: window rows, compressed entries, queries. */
#include "dense_rows.h"
#include "dense.h"
#include "vector.h"

#include <math.h>

static double input(enum ref_dtype dtype, const uint8_t *row, uint32_t i) {
    return (double)ref_element(dtype, row, i);
}

/* Over the root mean square of itself, times a weight where there is one. */
void ref_dense_norm(struct ref_range *x, uint32_t count, const float *weight, float eps) {
    struct ref_range sum = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        double least = ref_range_least(x[i]), most = ref_range_most(x[i]);
        sum.lo += least * least;
        sum.hi += most * most;
    }
    /* Sums of up to count terms, a division, a root, another division: all of them positive. */
    double units = (double)count / 32 + 16;
    struct ref_range root = {sqrt(sum.lo / count + (double)eps),
                             sqrt(sum.hi / count + (double)eps)};
    for (uint32_t i = 0; i < count; i++) {
        struct ref_range y = {x[i].lo / (x[i].lo < 0 ? root.lo : root.hi),
                              x[i].hi / (x[i].hi < 0 ? root.hi : root.lo)};
        if (root.lo == 0) y = ref_range_of(0); /* all zero, and no eps */
        x[i] = ref_range_round(weight ? ref_range_scale(y, (double)weight[i]) : y, units, 0);
    }
}

void ref_dense_rotate(struct ref_range *x, uint32_t rope_dim, const float *table, bool back) {
    for (size_t i = 0; i < rope_dim / 2; i++) {
        struct ref_range a = x[2 * i], b = x[2 * i + 1];
        double c = (double)table[i], s = (double)table[rope_dim / 2 + i] * (back ? -1 : 1);
        double size = ref_range_most(a) + ref_range_most(b);
        x[2 * i] =
            ref_range_round(ref_range_add(ref_range_scale(a, c), ref_range_scale(b, -s)), 2, size);
        x[2 * i + 1] =
            ref_range_round(ref_range_add(ref_range_scale(a, s), ref_range_scale(b, c)), 2, size);
    }
}

static void to_bf16(struct ref_range *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) x[i] = ref_range_bf16(x[i]);
}

/* From the normalised vector to its bf16 row, the last rope_dim elements rotated. */
static void finish(const struct ref_type *type, uint32_t dim, const float *table,
                   struct ref_range *x) {
    uint32_t nope = dim - type->rope_dim;
    if (type->round_before_rope) to_bf16(x, dim);
    ref_dense_rotate(x + nope, type->rope_dim, table, false);
    to_bf16(x, dim);
}

void ref_dense_window_row(const struct ref_type *type, const uint8_t *latent,
                          const float *norm_weight, const float *table, struct ref_range *row) {
    uint32_t dim = type->head_dim;
    for (uint32_t i = 0; i < dim; i++) row[i] = ref_range_of(input(type->input, latent, i));
    if (type->kv_norm) ref_dense_norm(row, dim, norm_weight, type->norm_eps);
    finish(type, dim, table, row);
    ref_range_store(type->format, dim, type->rope_dim, row);
}

void ref_dense_query(const struct ref_type *type, const uint8_t *q, const float *table,
                     struct ref_range *row) {
    for (uint32_t i = 0; i < type->head_dim; i++) row[i] = ref_range_of(input(REF_BFLOAT, q, i));
    ref_dense_norm(row, type->head_dim, NULL, type->norm_eps);
    finish(type, type->head_dim, table, row);
}

/* ---- index rows ---- */

/* The Walsh-Hadamard matrix over the root of its size; entry (i, k) is -1 to the bits of i & k. */
static void hadamard(struct ref_range *x, uint32_t count) {
    struct ref_range y[REF_MAX_DIM];
    double root = sqrt((double)count), size = 0;
    for (uint32_t k = 0; k < count; k++) size += ref_range_most(x[k]);
    for (uint32_t i = 0; i < count; i++) {
        struct ref_range sum = {0, 0};
        for (uint32_t k = 0; k < count; k++)
            sum = ref_range_add(sum, ref_range_scale(x[k], __builtin_popcount(i & k) % 2 ? -1 : 1));
        y[i] = ref_range_round(ref_range_scale(sum, 1 / root), log2(count) + 2, size / root);
    }
    for (uint32_t i = 0; i < count; i++) x[i] = y[i];
}

void ref_dense_index_row(const struct ref_type *type, uint32_t dim, enum ref_format format,
                         struct ref_range *row) {
    if (type->hadamard) {
        hadamard(row, dim);
        to_bf16(row, dim);
    }
    ref_range_store(format, dim, type->rope_dim, row);
}

void ref_dense_index_query(const struct ref_type *index, const uint8_t *q, const float *table,
                           struct ref_range *row) {
    uint32_t dim = index->head_dim, nope = dim - index->rope_dim;
    for (uint32_t i = 0; i < dim; i++) row[i] = ref_range_of(input(REF_BFLOAT, q, i));
    ref_dense_rotate(row + nope, index->rope_dim, table, false);
    to_bf16(row, dim);
    ref_dense_index_row(index, dim, index->format, row);
}

/* ---- entries ---- */

static double single(double x) {
    return (double)(float)x;
}

/* A number on its way through the tail's dtype; a running softmax has no rows to round. */
static double through_tail(const struct ref_type *type, double x) {
    return type->state == REF_F32 || ref_keeps_running(type) ? x : ref_grid(x, 7, -126, INFINITY);
}

static uint32_t columns_of(const struct ref_type *type, const struct ref_dense_compressor *c) {
    return type->overlap ? 2 * c->dim : c->dim;
}

static double score_of(const struct ref_type *type, const struct ref_dense_compressor *c,
                       uint32_t position, uint32_t column) {
    double score = input(type->input, c->score + position * c->score_stride, column);
    double ape = (double)c->ape[(uint64_t)(position % type->ratio) * columns_of(type, c) + column];
    if (type->ape_on_write) return through_tail(type, single(score + ape));
    return single(through_tail(type, score) + ape);
}

static double value_of(const struct ref_type *type, const struct ref_dense_compressor *c,
                       uint32_t position, uint32_t column) {
    return through_tail(type, input(type->input, c->kv + position * c->kv_stride, column));
}

/*
 * The weighted mean of one channel over positions first .. last. Tokens of entry j contribute by
 * the second half of their columns, those of the entry before by the first half.
 */
static struct ref_range pool(const struct ref_type *type, const struct ref_dense_compressor *c,
                             uint32_t j, uint32_t channel) {
    uint32_t own = j * type->ratio, last = own + type->ratio - 1;
    uint32_t first = type->overlap && j > 0 ? own - type->ratio : own;
    double most = -INFINITY, sum = 0, top = 0, size = 0, spread = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t p = first; p <= last; p++) {
            uint32_t column = type->overlap && p >= own ? c->dim + channel : channel;
            double score = score_of(type, c, p, column), value = value_of(type, c, p, column);
            if (pass == 0) {
                most = fmax(most, score);
                continue;
            }
            double weight = most == -INFINITY ? 0 : exp(score - most);
            sum += weight;
            top += weight * value;
            size += weight * fabs(value);
            if (weight > 0) spread = fmax(spread, most - score);
        }
    if (sum == 0) return ref_range_of(0);
    /* exp2 errs by two units and by its argument's three; sums by a unit a row. Where the maximum
     * runs, a row may bring a product and an exp2 besides; the arguments add up to the spread. */
    double rows = (last - first + 1) * (ref_keeps_running(type) ? 4.0 : 1.0);
    double units = 2 * (3 * fmin(spread, 90) + 4 + rows) + 2;
    return ref_range_round(ref_range_of(top / sum), units, size / sum);
}

void ref_dense_entry(const struct ref_type *type, const struct ref_dense_compressor *compressor,
                     uint32_t j, struct ref_range *row) {
    uint32_t dim = compressor->dim;
    for (uint32_t i = 0; i < dim; i++) row[i] = pool(type, compressor, j, i);
    if (type->round_before_norm) to_bf16(row, dim);
    ref_dense_norm(row, dim, compressor->norm_weight, type->norm_eps);
    finish(type, dim, compressor->rope + (uint64_t)j * type->ratio * type->rope_dim, row);
    if (compressor->index)
        ref_dense_index_row(type, dim, compressor->format, row);
    else
        ref_range_store(compressor->format, dim, type->rope_dim, row);
}
