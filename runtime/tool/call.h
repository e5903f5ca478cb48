/* A kernel's parameters, filled by name, so that the order and the offsets are the manifest's. */
#ifndef KVF_TOOL_CALL_H
#define KVF_TOOL_CALL_H

#include "session.h"

#define CALL_PARAMS 64
#define CALL_BYTES  1024
#define CALL_ARRAYS 24

struct buffer;

/* An array of rows, as verify_bind has set it; its stride is the parameter NAME + what + "_stride".
 */
struct call_array {
    const char *name, *what;
    const struct buffer *buffer;
    uint64_t stride; /* bytes */
    uint32_t unit;   /* bytes that the parameter counts as one */
};

struct call {
    const kvf_kernel *kernel;
    kvf_kernel_info info;
    uint8_t bytes[CALL_BYTES];
    bool set[CALL_PARAMS];
    const char *wrong; /* a name that was set but does not exist */
    struct call_array arrays[CALL_ARRAYS];
    uint32_t array_count;
};

/* Look a kernel up; false with a message if there is none or it has too many parameters. */
bool call_open(struct session *session, const char *type, const char *kernel, struct call *out);
bool call_has(const struct call *call, const char *name);
/* Set a parameter: an integer, a pointer or a stride. A name that does not exist fails the launch.
 */
void call_set(struct call *call, const char *name, uint64_t value);
/* Set the parameter NAME + what + "_stride". */
void call_set_stride(struct call *call, const char *name, const char *what, uint64_t stride);
/* Launch and wait. Every parameter must have been set. */
bool call_launch(struct session *session, struct call *call);

#endif
