/* A kernel's parameters, filled by name, so that the order and the offsets are the manifest's. */
#ifndef KVF_TOOL_CALL_H
#define KVF_TOOL_CALL_H

#include "session.h"

#define CALL_PARAMS 64
#define CALL_BYTES  1024

struct call {
    const kvf_kernel *kernel;
    kvf_kernel_info info;
    uint8_t bytes[CALL_BYTES];
    bool set[CALL_PARAMS];
    const char *wrong; /* a name that was set but does not exist */
};

/* Look a kernel up; false with a message if there is none or it has too many parameters. */
bool call_open(struct session *session, const char *type, const char *kernel, struct call *out);
bool call_has(const struct call *call, const char *name);
/* Set a parameter: an integer, a pointer or a stride. A name that does not exist fails the launch.
 */
void call_set(struct call *call, const char *name, uint64_t value);
/* Launch and wait. Every parameter must have been set. */
bool call_launch(struct session *session, struct call *call);

#endif
