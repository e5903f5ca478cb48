#include "timing.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 3, MOST_CALLS = 50 };

/* A sample should last so long (ms): what an event itself takes is then not seen. */
static const double LONG_ENOUGH = 0.5;

bool timing_open(struct session *session, uint32_t samples, struct timing *out) {
    const kvf_driver *driver = session->driver;
    *out = (struct timing){.session = session, .samples = samples};
    if (!driver->cuEventCreate || !driver->cuEventDestroy_v2 || !driver->cuEventRecord ||
        !driver->cuEventSynchronize || !driver->cuEventElapsedTime) {
        fprintf(stderr, "kvforge-run: %s has no events\n", kvf_driver_path(driver));
        return false;
    }
    return session_good(session, driver->cuEventCreate(&out->start, CU_EVENT_DEFAULT),
                        "cuEventCreate") &&
           session_good(session, driver->cuEventCreate(&out->end, CU_EVENT_DEFAULT),
                        "cuEventCreate");
}

void timing_close(struct timing *timing) {
    /* Fails only in a context that is broken, which was said before. */
    if (timing->start) timing->session->driver->cuEventDestroy_v2(timing->start);
    if (timing->end) timing->session->driver->cuEventDestroy_v2(timing->end);
    *timing = (struct timing){0};
}

/* `calls` calls between two events; milliseconds a call. */
static bool sample(struct timing *timing, bool (*submit)(void *), void *context, uint32_t calls,
                   double *out) {
    struct session *session = timing->session;
    const kvf_driver *driver = session->driver;
    float elapsed = 0;
    if (!session_good(session, driver->cuEventRecord(timing->start, NULL), "cuEventRecord"))
        return false;
    for (uint32_t i = 0; i < calls; i++)
        if (!submit(context)) return false;
    if (!session_good(session, driver->cuEventRecord(timing->end, NULL), "cuEventRecord") ||
        !session_good(session, driver->cuEventSynchronize(timing->end), "cuEventSynchronize") ||
        !session_good(session, driver->cuEventElapsedTime(&elapsed, timing->start, timing->end),
                      "cuEventElapsedTime"))
        return false;
    *out = (double)elapsed / calls;
    return true;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double timing_median(struct timing *timing, bool (*submit)(void *), void *context) {
    bool real = kvf_driver_kind_of(timing->session->driver) == KVF_DRIVER_CUDA;
    double list[TIMING_SAMPLES], once = 0;
    uint32_t calls = 1;
    for (int i = 0; i < (real ? WARM_UP : 1); i++)
        if (!sample(timing, submit, context, 1, &once)) return -1;
    while (real && once * calls < LONG_ENOUGH && calls < MOST_CALLS) calls++;
    for (uint32_t i = 0; i < timing->samples; i++)
        if (!sample(timing, submit, context, calls, &list[i])) return -1;
    qsort(list, timing->samples, sizeof *list, ascending);
    return list[timing->samples / 2];
}
