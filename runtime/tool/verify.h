/* What the verifiers of single kernels share. */
#ifndef KVF_TOOL_VERIFY_H
#define KVF_TOOL_VERIFY_H

#include "buffer.h"
#include "call.h"
#include "input.h"

#define VERIFY_OUTPUTS 16

struct verify {
    struct session *session;
    uint64_t random;            /* state of the inputs */
    unsigned cases, failed;     /* lines printed */
    uint64_t changed, compared; /* bytes that references wrote; bytes compared */
    bool broken;                /* the driver failed: nothing more can be run */
};

/* A kernel of a layer type. */
struct subject {
    const kvf_type_info *info;
    struct ref_type rules;
    const char *kernel;
};

/* The arrays that a kernel may write, and what their images held before the reference ran. */
struct outputs {
    struct buffer *list[VERIFY_OUTPUTS];
    uint8_t *before[VERIFY_OUTPUTS];
    unsigned count;
};

/* Remember the images; false if memory is short. */
bool outputs_remember(struct outputs *outputs);

/*
 * After kernel and reference have run: compare all outputs and print a line "ok N - type/kernel:
 * WHAT (...)", with the first difference if there is one. `ran` false: the launch failed. The
 * device then gets the image, so that one difference is reported once.
 */
void verify_case(struct verify *verify, const struct subject *subject, struct outputs *outputs,
                 bool ran, const char *what, uint32_t tokens);

/* Each prints its own lines and returns false if the driver broke or memory was short. */
bool verify_swa_write(struct verify *verify, const struct subject *subject);
bool verify_state_reset(struct verify *verify, const struct subject *subject);

/* `bytes` up to a multiple of `unit`. */
static inline uint64_t verify_round_up(uint64_t bytes, uint64_t unit) {
    return unit > 1 ? (bytes + unit - 1) / unit * unit : bytes;
}

/* The alignment a call wants of a pointer, at least 1. */
uint32_t verify_align(const struct call *call, const char *name);

#endif
