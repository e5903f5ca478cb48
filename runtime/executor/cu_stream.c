/* Streams and events. Work is done when it is submitted, so that everything is always complete. */
#include <stdlib.h>
#include <time.h>

#include "driver.h"

#define STREAM_LEGACY     ((CUstream)0x1)
#define STREAM_PER_THREAD ((CUstream)0x2)

bool stream_valid(CUstream stream) {
    if (!stream || stream == STREAM_LEGACY || stream == STREAM_PER_THREAD) return true;
    return stream_of(stream) != NULL;
}

struct CUstream_st *stream_of(CUstream stream) {
    for (struct CUstream_st *s = driver.streams; s; s = s->next)
        if (s == stream) return s;
    return NULL;
}

int work_run(const struct work *w) {
    switch (w->kind) {
    case WORK_KERNEL: return kernel_run(w);
    case WORK_COPY: return copy_run(w);
    case WORK_SET: return set_run(w);
    case WORK_HOST: w->callback(w->user); return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
    }
}

CU_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CU_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
CU_EXPORT CUresult cuStreamSynchronize(CUstream stream);
CU_EXPORT CUresult cuStreamQuery(CUstream stream);
CU_EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned *flags);
CU_EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority);
CU_EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long *id);
CU_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CU_EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *user);

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    ENTER_CONTEXT("cuStreamCreate");
    if (!stream || flags > 1) DONE(CUDA_ERROR_INVALID_VALUE);
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    s->flags = flags;
    s->priority = priority;
    s->id = ++driver.stream_ids;
    s->next = driver.streams;
    driver.streams = s;
    *stream = s;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    ENTER_CONTEXT("cuStreamDestroy_v2");
    for (struct CUstream_st **link = &driver.streams; *link; link = &(*link)->next) {
        if (*link != stream) continue;
        *link = stream->next;
        capture_drop(stream);
        free(stream);
        DONE(CUDA_SUCCESS);
    }
    DONE(CUDA_ERROR_INVALID_HANDLE);
}

static int must_not_capture(CUstream stream) {
    if (!stream_valid(stream)) return CUDA_ERROR_INVALID_HANDLE;
    struct CUstream_st *s = stream_of(stream);
    if (s && s->capture) {
        s->capture_broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!s && capture_active()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    ENTER_CONTEXT("cuStreamSynchronize");
    DONE(must_not_capture(stream));
}

CUresult cuStreamQuery(CUstream stream) {
    ENTER_CONTEXT("cuStreamQuery");
    DONE(must_not_capture(stream));
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    ENTER_CONTEXT("cuStreamGetFlags");
    if (!flags) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    const struct CUstream_st *s = stream_of(stream);
    *flags = s ? s->flags : 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    ENTER_CONTEXT("cuStreamGetPriority");
    if (!priority) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    const struct CUstream_st *s = stream_of(stream);
    *priority = s ? s->priority : 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
    ENTER_CONTEXT("cuStreamGetId");
    if (!id) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    const struct CUstream_st *s = stream_of(stream);
    *id = s ? s->id : 0;
    DONE(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    ENTER_CONTEXT("cuStreamGetCtx");
    if (!context) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *context = driver_current();
    DONE(CUDA_SUCCESS);
}

CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *user) {
    ENTER_CONTEXT("cuLaunchHostFunc");
    if (!function) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct work work = {.kind = WORK_HOST, .callback = function, .user = user};
    DONE(stream_submit(stream, &work));
}

/* ---- events ---- */

CU_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags);
CU_EXPORT CUresult cuEventDestroy_v2(CUevent event);
CU_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream);
CU_EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CU_EXPORT CUresult cuEventSynchronize(CUevent event);
CU_EXPORT CUresult cuEventQuery(CUevent event);
CU_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CU_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end);

static bool event_valid(CUevent event) {
    for (struct CUevent_st *e = driver.events; e; e = e->next)
        if (e == event) return true;
    return false;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER_CONTEXT("cuEventCreate");
    if (!event || flags > 7) DONE(CUDA_ERROR_INVALID_VALUE);
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    e->flags = flags;
    e->next = driver.events;
    driver.events = e;
    *event = e;
    DONE(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent event) {
    ENTER_CONTEXT("cuEventDestroy_v2");
    for (struct CUevent_st **link = &driver.events; *link; link = &(*link)->next) {
        if (*link != event) continue;
        *link = event->next;
        free(event);
        DONE(CUDA_SUCCESS);
    }
    DONE(CUDA_ERROR_INVALID_HANDLE);
}

static double now_milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuEventRecord");
    if (!event_valid(event) || !stream_valid(stream)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUstream_st *s = stream_of(stream);
    event->capture = s ? s->capture : NULL;
    event->recorded = true;
    event->milliseconds = now_milliseconds();
    DONE(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, 0);
}

static int event_ready(CUevent event) {
    if (!event_valid(event)) return CUDA_ERROR_INVALID_HANDLE;
    return event->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER_CONTEXT("cuEventSynchronize");
    DONE(event_ready(event));
}

CUresult cuEventQuery(CUevent event) {
    ENTER_CONTEXT("cuEventQuery");
    DONE(event_ready(event));
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    ENTER_CONTEXT("cuEventElapsedTime");
    if (!milliseconds) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!event_valid(start) || !event_valid(end)) DONE(CUDA_ERROR_INVALID_HANDLE);
    enum { NO_TIMING = 2 };
    if (!start->recorded || !end->recorded || ((start->flags | end->flags) & NO_TIMING))
        DONE(CUDA_ERROR_INVALID_HANDLE);
    *milliseconds = (float)(end->milliseconds - start->milliseconds);
    DONE(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

void streams_free(void) {
    while (driver.streams) {
        struct CUstream_st *next = driver.streams->next;
        capture_drop(driver.streams);
        free(driver.streams);
        driver.streams = next;
    }
    while (driver.events) {
        struct CUevent_st *next = driver.events->next;
        free(driver.events);
        driver.events = next;
    }
}
