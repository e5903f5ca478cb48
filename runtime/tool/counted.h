/* The executor's counters of one launch, as JSON with the executor's own names. */
#ifndef KVF_TOOL_COUNTED_H
#define KVF_TOOL_COUNTED_H

#include "session.h"

#include <jansson.h>

struct counted; /* the totals of all kernels at one moment */

/* Start counting; false with a message if the driver is no executor. */
bool counted_start(struct session *session);
/* The totals now, for counted_since; free() it. Null if memory is short. */
struct counted *counted_now(struct session *session);
/* What kernel `entry` (a PTX symbol) did since then; null if it did nothing. */
json_t *counted_since(struct session *session, const struct counted *before, const char *entry);

#endif
