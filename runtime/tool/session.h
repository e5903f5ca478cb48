/*
 * One open driver, device, bundle and sealed library, and device memory to work with. The primary
 * context is current on the calling thread from session_open to session_close. Functions that
 * return bool print what failed on stderr.
 */
#ifndef KVF_TOOL_SESSION_H
#define KVF_TOOL_SESSION_H

#include "driver.h"
#include "kvforge.h"
#include "options.h"
#include "rules.h"

struct session {
    kvf_driver *driver;
    kvf_device *device;
    kvf_bundle *bundle;
    kvf_library *library;
    kvf_model_info model;
    struct rules rules;
    int context_held; /* the primary context of device 0 is retained and current */
};

/* Open everything of the options and print one line that says which driver and device. */
bool session_open(const struct options *options, struct session *out);
void session_close(struct session *session);

/* Print the details of a failed call as "kvforge-run: WHAT: text" and the log; returns false. */
bool session_fail(const char *what, const kvf_error *error);

/* Whether a driver call of our own succeeded; if not, say which one and why. */
bool session_good(struct session *session, CUresult code, const char *call);

/* Device memory; uploads and downloads are complete on return. */
bool session_alloc(struct session *session, size_t bytes, kvf_address *out);
void session_free(struct session *session, kvf_address address);
bool session_upload(struct session *session, kvf_address to, const void *from, size_t bytes);
bool session_download(struct session *session, void *to, kvf_address from, size_t bytes);
/* Wait for all work; reports what a kernel did wrong. */
bool session_wait(struct session *session);

/*
 * Warp instructions executed so far, where the driver counts them (the executor does); -1 where it
 * does not.
 */
int64_t session_executed(const struct session *session);

#endif
