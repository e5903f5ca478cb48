/* What a launch is about, put together request by request: the common inputs of design section 6.
 */
#ifndef KVF_TOOL_BATCH_H
#define KVF_TOOL_BATCH_H

#include "buffer.h"
#include "reference/reference.h"

#define BATCH_TOKENS   4096
#define BATCH_REQUESTS 64

struct batch {
    uint32_t tokens, requests;
    int32_t batch_id[BATCH_TOKENS], position[BATCH_TOKENS];
    int32_t cu_tokens[BATCH_REQUESTS + 1], state_slot[BATCH_REQUESTS];
};

/* Its copy on the device; each array is exactly as long as it must be. */
struct batch_device {
    struct buffer batch_id, position, cu_tokens, state_slot;
};

void batch_clear(struct batch *batch);
/* Add `count` tokens from position `first` of the request in `slot`; count may be 0. */
void batch_request(struct batch *batch, int32_t slot, int32_t first, uint32_t count);
/* Padding among the requests: a request without a slot, whose tokens are all -1. */
void batch_gap(struct batch *batch, uint32_t count);
/* Padding behind the last request, as a captured graph has it. Nothing can be added after it. */
void batch_pad(struct batch *batch, uint32_t count);

bool batch_upload(struct session *session, const struct batch *batch, struct batch_device *out);
void batch_free(struct session *session, struct batch_device *device);

struct call;
/* Set what a call has of tokens, requests, slots, positions and the four arrays. */
void batch_set(const struct batch *batch, const struct batch_device *device, uint32_t slots,
               uint32_t positions, struct call *call);
struct ref_batch batch_reference(const struct batch *batch, uint32_t slots, uint32_t positions);

#endif
