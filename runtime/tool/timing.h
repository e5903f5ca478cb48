/* Times of work on the device, by the driver's events: medians. */
#ifndef KVF_TOOL_TIMING_H
#define KVF_TOOL_TIMING_H

#include "session.h"

enum { TIMING_SAMPLES = 1000 };

struct timing {
    struct session *session;
    CUevent start, end;
    uint32_t samples; /* 1 to TIMING_SAMPLES */
};

/* False with a message if the driver has no events. */
bool timing_open(struct session *session, uint32_t samples, struct timing *out);
void timing_close(struct timing *timing);

/*
 * The median milliseconds that one call of `submit` keeps the default stream busy, after three
 * calls that warm up. Where a call is short, a sample is several calls one after another. Negative,
 * with a message, if something failed.
 */
double timing_median(struct timing *timing, bool (*submit)(void *context), void *context);

#endif
