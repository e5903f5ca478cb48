/* Which tokens of a launch a kernel with a ring works on. */
#ifndef KVF_REFERENCE_BATCH_H
#define KVF_REFERENCE_BATCH_H

#include "reference.h"

/*
 * The request of token t and its slot, if the token is real (not padding, request and slot in
 * range, position not negative) and among the last `ring` of its request in this launch: only
 * those survive in a ring of that length.
 */
bool ref_survives(const struct ref_batch *batch, uint32_t t, uint32_t ring, int32_t *request,
                  int32_t *slot);

/* Whether t is the last token of its request in this launch. */
bool ref_is_last(const struct ref_batch *batch, uint32_t t, int32_t request);

/* Element `index` of an int32 array of a slot. */
void ref_put_i32(struct ref_array array, int32_t slot, uint32_t index, int32_t value);

#endif
