/*
 * Launches whose rows lie gigabytes apart. Some of the launches of every kernel are made with the
 * arrays that have a stride of their own copied, row by row, into memory of five times 2^30 bytes
 * each: an offset computed in 32 bits, or in 31 and a sign, misses its row. The memory between the
 * rows is never touched; the executor has none there.
 */
#include "verify.h"

#include <stdio.h>

#define SPAN ((uint64_t)5 << 30)

struct far_array {
    kvf_address address;
    uint64_t stride;
};

static uint64_t rows_of(const struct call_array *array) {
    return array->stride ? (buffer_bytes(array->buffer) + array->stride - 1) / array->stride : 0;
}

/* To where the rows are far apart, or back. */
static bool copy_rows(struct session *session, const struct call_array *array,
                      const struct far_array *there, bool back) {
    const struct kvf_driver *driver = session->driver;
    uint64_t rows = rows_of(array), bytes = buffer_bytes(array->buffer);
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t left = bytes - i * array->stride;
        kvf_address near = buffer_address(array->buffer) + i * array->stride;
        kvf_address far = there->address + i * there->stride;
        if (driver->cuMemcpyDtoD_v2(back ? near : far, back ? far : near,
                                    left < array->stride ? left : array->stride))
            return false;
    }
    return true;
}

/* False where there is no room: then the array stays where it is. */
static bool move(struct session *session, struct call *call, const struct call_array *array,
                 struct far_array *out) {
    uint64_t rows = rows_of(array);
    if (rows < 2) return false;
    out->stride = array->stride + SPAN / (rows - 1) / 512 * 512;
    uint64_t bytes = buffer_bytes(array->buffer) + (rows - 1) * (out->stride - array->stride);
    if (session->driver->cuMemAlloc_v2(&out->address, bytes)) {
        out->address = 0;
        return false;
    }
    call_set(call, array->name, out->address);
    call_set_stride(call, array->name, array->what, out->stride / array->unit);
    return copy_rows(session, array, out, false);
}

static bool launch_far(struct session *session, struct call *call) {
    struct far_array far[CALL_ARRAYS] = {0};
    for (uint32_t i = 0; i < call->array_count; i++) move(session, call, &call->arrays[i], &far[i]);
    bool good = call_launch(session, call);
    for (uint32_t i = 0; i < call->array_count; i++) {
        good = good && (!far[i].address || copy_rows(session, &call->arrays[i], &far[i], true));
        session_free(session, far[i].address);
    }
    return good;
}

/* Early ones, so that the shortest list of cases has some; not all, for they take their time. */
static bool is_far(unsigned launch) {
    return launch == 2 || launch == 3 || launch == 6 || launch == 11;
}

bool verify_launch(struct verify *verify, struct call *call) {
    verify->spread = verify->session->driver->cuMemcpyDtoD_v2 && is_far(++verify->launches);
    bool good =
        verify->spread ? launch_far(verify->session, call) : call_launch(verify->session, call);
    call->array_count = 0;
    return good;
}
