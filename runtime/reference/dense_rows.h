/* Steps that the parts of the dense reference share; dense.h says what it is. */
#ifndef KVF_REFERENCE_DENSE_ROWS_H
#define KVF_REFERENCE_DENSE_ROWS_H

#include "range.h"

/* Over the root mean square, times weight[count] unless that is null. */
void ref_dense_norm(struct ref_range *x, uint32_t count, const float *weight, float eps);
/* The rotation of pairs by a row of the table, or the conjugate one. */
void ref_dense_rotate(struct ref_range *x, uint32_t rope_dim, const float *table, bool back);
/* A query head as attention reads it: bf16, normalised and rotated. */
void ref_dense_query(const struct ref_type *type, const uint8_t *q, const float *table,
                     struct ref_range *row);
/* A bf16 row through the Hadamard transform (by type->hadamard) and an index format. */
void ref_dense_index_row(const struct ref_type *type, uint32_t dim, enum ref_format format,
                         struct ref_range *row);
/* A head of the indexer's query as scores read it. */
void ref_dense_index_query(const struct ref_type *index, const uint8_t *q, const float *table,
                           struct ref_range *row);

#endif
