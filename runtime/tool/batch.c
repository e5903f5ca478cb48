#include "batch.h"

#include "call.h"

#include <stdlib.h>
#include <string.h>

void batch_clear(struct batch *batch) {
    batch->tokens = batch->requests = 0;
    batch->cu_tokens[0] = 0;
}

/* The plans of verify and demo stay below these limits; going beyond is a mistake in them. */
static void check(const struct batch *batch, uint32_t count) {
    if (batch->tokens + count > BATCH_TOKENS || batch->requests >= BATCH_REQUESTS) abort();
}

void batch_request(struct batch *batch, int32_t slot, int32_t first, uint32_t count) {
    check(batch, count);
    for (uint32_t i = 0; i < count; i++) {
        batch->batch_id[batch->tokens + i] = (int32_t)batch->requests;
        batch->position[batch->tokens + i] = first + (int32_t)i;
    }
    batch->tokens += count;
    batch->state_slot[batch->requests++] = slot;
    batch->cu_tokens[batch->requests] = (int32_t)batch->tokens;
}

void batch_pad(struct batch *batch, uint32_t count) {
    if (batch->tokens + count > BATCH_TOKENS) abort();
    for (uint32_t i = 0; i < count; i++)
        batch->batch_id[batch->tokens + i] = batch->position[batch->tokens + i] = -1;
    batch->tokens += count;
}

void batch_gap(struct batch *batch, uint32_t count) {
    check(batch, count);
    batch_pad(batch, count);
    batch->state_slot[batch->requests++] = -1;
    batch->cu_tokens[batch->requests] = (int32_t)batch->tokens;
}

static bool upload(struct session *session, const char *name, const int32_t *from, uint32_t count,
                   struct buffer *out) {
    if (!buffer_create(session, name, 4 * (size_t)count, false, out)) return false;
    memcpy(buffer_data(out), from, 4 * (size_t)count);
    return buffer_upload(session, out);
}

bool batch_upload(struct session *session, const struct batch *batch, struct batch_device *out) {
    uint32_t tokens = batch->tokens, requests = batch->requests;
    memset(out, 0, sizeof *out);
    return upload(session, "batch_id", batch->batch_id, tokens, &out->batch_id) &&
           upload(session, "position", batch->position, tokens, &out->position) &&
           upload(session, "cu_tokens", batch->cu_tokens, requests + 1, &out->cu_tokens) &&
           upload(session, "state_slot", batch->state_slot, requests, &out->state_slot);
}

void batch_free(struct session *session, struct batch_device *device) {
    buffer_destroy(session, &device->batch_id);
    buffer_destroy(session, &device->position);
    buffer_destroy(session, &device->cu_tokens);
    buffer_destroy(session, &device->state_slot);
}

/* Not every kernel has each of them; that all parameters are set is checked at the launch. */
static void set(struct call *call, const char *name, uint64_t value) {
    if (call_has(call, name)) call_set(call, name, value);
}

void batch_set(const struct batch *batch, const struct batch_device *device, uint32_t slots,
               uint32_t positions, struct call *call) {
    set(call, "tokens", batch->tokens);
    set(call, "requests", batch->requests);
    set(call, "slots", slots);
    set(call, "positions", positions);
    set(call, "batch_id", buffer_address(&device->batch_id));
    set(call, "position", buffer_address(&device->position));
    set(call, "cu_tokens", buffer_address(&device->cu_tokens));
    set(call, "state_slot", buffer_address(&device->state_slot));
}

struct ref_batch batch_reference(const struct batch *batch, uint32_t slots, uint32_t positions) {
    return (struct ref_batch){batch->tokens,    batch->requests,  slots,
                              positions,        batch->batch_id,  batch->position,
                              batch->cu_tokens, batch->state_slot};
}
