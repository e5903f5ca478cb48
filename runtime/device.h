/* A device and its context. Internal. Read-only once open. */
#ifndef KVF_DEVICE_H
#define KVF_DEVICE_H

#include "driver.h"

struct kvf_device {
    const struct kvf_driver *driver;
    CUdevice device;
    CUcontext context;
    bool retained; /* the primary context, to be released */
    int capability;
    int max_block_threads;
    int max_grid[3];
    int max_shared; /* bytes a block may opt in to */
    char name[256];
};

/*
 * Make the device's context current on this thread, if it is not; *pushed says whether device_leave
 * has something to undo. Cheap where the caller keeps the context current.
 */
kvf_status device_enter(const struct kvf_device *device, bool *pushed, kvf_error *error);
void device_leave(const struct kvf_device *device, bool pushed);

/* KVF_ERROR_CAPTURE if `stream` is being captured; `what` is the call that is refused. In context.
 */
kvf_status device_refuse_capture(const struct kvf_device *device, kvf_stream stream,
                                 const char *what, kvf_error *error);

#endif
