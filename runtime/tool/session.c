#include "session.h"

#include "executor/executor.h"

#include <stdio.h>
#include <string.h>

bool session_fail(const char *what, const kvf_error *error) {
    fprintf(stderr, "kvforge-run: %s: %s\n", what, error->text);
    if (*error->log) fprintf(stderr, "%s\n", error->log);
    return false;
}

bool session_good(struct session *session, CUresult code, const char *call) {
    kvf_error error;
    if (code == CUDA_SUCCESS) return true;
    memset(&error, 0, sizeof error);
    driver_fail(session->driver, code, call, "work on the device", &error);
    fprintf(stderr, "kvforge-run: %s\n", error.text);
    return false;
}

/* The commands copy memory and wait; a driver without these symbols is of no use to them. */
static bool has_copies(const kvf_driver *driver) {
    if (driver->cuMemcpyHtoD_v2 && driver->cuMemcpyDtoH_v2 && driver->cuCtxSynchronize) return true;
    fprintf(stderr, "kvforge-run: %s has no synchronous copies\n", kvf_driver_path(driver));
    return false;
}

static bool hold_context(struct session *session) {
    kvf_driver *driver = session->driver;
    CUcontext context;
    if (!session_good(session, driver->cuDevicePrimaryCtxRetain(&context, 0),
                      "cuDevicePrimaryCtxRetain"))
        return false;
    session->context_held = 1;
    return session_good(session, driver->cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
}

static void say(const struct session *session) {
    int version = kvf_driver_version(session->driver),
        capability = kvf_device_capability(session->device);
    bool real = kvf_driver_kind_of(session->driver) == KVF_DRIVER_CUDA;
    printf("# driver: %s %d.%d (%s)\n", real ? "CUDA" : "executor", version / 1000,
           version % 1000 / 10, kvf_driver_path(session->driver));
    printf("# device: %s, compute capability %d.%d\n", kvf_device_name(session->device),
           capability / 10, capability % 10);
}

bool session_open(const struct options *options, struct session *out) {
    kvf_error error = {0};
    kvf_library_options library = {.target = options->target};
    memset(out, 0, sizeof *out);
    if (kvf_bundle_open(options->bundle, &out->bundle, &error))
        return session_fail("bundle", &error);
    if (kvf_bundle_model(out->bundle, &out->model)) return false;
    if (!rules_read(options->bundle, &out->rules)) return false;
    if (kvf_driver_open(options->driver, NULL, &out->driver, &error))
        return session_fail("driver", &error);
    if (!has_copies(out->driver) || !hold_context(out)) return false;
    if (kvf_device_open(out->driver, 0, &out->device, &error))
        return session_fail("device", &error);
    say(out);
    if (kvf_library_load(out->device, out->bundle, NULL, &library, &out->library, &error))
        return session_fail("load", &error);
    return true;
}

void session_close(struct session *session) {
    CUcontext context;
    kvf_library_unload(session->library);
    kvf_device_close(session->device);
    if (session->context_held) {
        session->driver->cuCtxPopCurrent_v2(&context);
        session->driver->cuDevicePrimaryCtxRelease_v2(0);
    }
    kvf_driver_close(session->driver);
    rules_free(&session->rules);
    kvf_bundle_close(session->bundle);
    memset(session, 0, sizeof *session);
}

bool session_alloc(struct session *session, size_t bytes, kvf_address *out) {
    return session_good(session, session->driver->cuMemAlloc_v2(out, bytes), "cuMemAlloc");
}

void session_free(struct session *session, kvf_address address) {
    /* Fails only where a call before it has failed and said so: a broken context frees nothing. */
    if (address) session->driver->cuMemFree_v2(address);
}

bool session_upload(struct session *session, kvf_address to, const void *from, size_t bytes) {
    if (!bytes) return true;
    return session_good(session, session->driver->cuMemcpyHtoD_v2(to, from, bytes), "cuMemcpyHtoD");
}

bool session_download(struct session *session, void *to, kvf_address from, size_t bytes) {
    if (!bytes) return true;
    return session_good(session, session->driver->cuMemcpyDtoH_v2(to, from, bytes), "cuMemcpyDtoH");
}

bool session_wait(struct session *session) {
    return session_good(session, session->driver->cuCtxSynchronize(), "cuCtxSynchronize");
}

int64_t session_executed(const struct session *session) {
    kvfExecutorStatistics statistics = {.size = sizeof statistics};
    int (*get)(kvfExecutorStatistics *);
    void *symbol = driver_extra(session->driver, "kvfExecutorStats");
    if (!symbol) return -1;
    memcpy(&get, &symbol, sizeof get); /* POSIX lets a function's address travel in a void * */
    return get(&statistics) ? -1 : (int64_t)statistics.warp_instructions;
}
