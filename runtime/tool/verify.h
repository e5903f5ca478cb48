/* What the verifiers of single kernels share. */
#ifndef KVF_TOOL_VERIFY_H
#define KVF_TOOL_VERIFY_H

#include "buffer.h"
#include "call.h"
#include "input.h"
#include "reference/tensor_core.h"

#define VERIFY_OUTPUTS 16

struct verify {
    struct session *session;
    uint64_t random;            /* state of the inputs */
    unsigned cases, failed;     /* lines printed */
    uint64_t changed, compared; /* bytes that references wrote; bytes compared */
    unsigned launches;          /* of the kernel, by verify_launch */
    bool spread;                /* the last of them had its rows far apart */
    bool broken;                /* the driver failed: nothing more can be run */
    uint32_t far_slot;          /* the only slot or page that a case uses when far is not 0 */
    uint64_t far;               /* added to the strides of slots and pages, see verify_bind_far */
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

/*
 * Run `once` in options->schedules orders of blocks and warps, each in a process of its own because
 * a driver takes its settings when it starts. Prints a line for each; true if all were good.
 */
bool verify_schedules(const struct options *options, bool (*once)(const struct options *));

/* A line for what is no comparison with a reference: "ok N - type/kernel: WHAT (...)". */
void verify_property(struct verify *verify, const struct subject *subject, bool good,
                     const char *what, uint32_t tokens, uint64_t compared);

/* Each prints its own lines and returns false if the driver broke or memory was short. */

/* swa_write and swa_write_workspace. */
bool verify_swa_write(struct verify *verify, const struct subject *subject);
bool verify_swa_paged(struct verify *verify, const struct subject *subject); /* by swa_write */
bool verify_state_reset(struct verify *verify, const struct subject *subject);
/* These two with their forms for the indexer: index_tail_append, index_compress. */
bool verify_tail_append(struct verify *verify, const struct subject *subject);
bool verify_compress(struct verify *verify, const struct subject *subject);
/* compress and tail_append together, or the indexer's; run by (index_)compress. */
bool verify_drafts(struct verify *verify, const struct subject *subject);
bool verify_workspace_fill(struct verify *verify, const struct subject *subject);
/* All kernels of window and workspace together; run by workspace_fill. */
bool verify_history(struct verify *verify, const struct subject *subject);
/* row_lists, row_lists_workspace and translate_pack. */
bool verify_lists(struct verify *verify, const struct subject *subject);
/* Their packed forms. */
bool verify_packed(struct verify *verify, const struct subject *subject);
/* q_norm_rope and inverse_rope. */
bool verify_query(struct verify *verify, const struct subject *subject);
bool verify_indexer_query(struct verify *verify, const struct subject *subject);
bool verify_indexer_scores(struct verify *verify, const struct subject *subject);
bool verify_indexer_topk(struct verify *verify, const struct subject *subject);
bool verify_attn(struct verify *verify, const struct subject *subject);
bool verify_attn_combine(struct verify *verify, const struct subject *subject);
bool verify_rows_copy(struct verify *verify, const struct subject *subject); /* of no layer type */

/*
 * A guarded array of `slots` elements of `bytes`, with a gap after each that nothing may touch.
 * The stride is a multiple of what the call wants the pointer aligned to.
 */
bool verify_output(struct verify *verify, const struct call *call, const char *name, uint32_t slots,
                   uint64_t bytes, struct buffer *out, uint64_t *stride);

/*
 * An input of `rows` x `columns` numbers of a kind; in every other case there are bytes between the
 * rows. It ends with its last number.
 */
bool verify_matrix(struct verify *verify, const struct call *call, const char *name, uint32_t rows,
                   uint32_t columns, enum ref_dtype dtype, enum input_kind kind, struct buffer *out,
                   uint64_t *stride);

/*
 * Launch and wait, as call_launch does. In some launches the arrays that verify_bind has set since
 * the last one lie elsewhere, their rows gigabytes apart; afterwards they hold what was written.
 */
bool verify_launch(struct verify *verify, struct call *call);

/* Set "<name>" and "<name>_stride" of a call; the buffer must live until it is launched. */
void verify_bind(struct call *call, const char *name, const struct buffer *buffer, uint64_t stride);

/* The same for an array whose stride counts elements, or is that of its layers. */
void verify_bind_as(struct call *call, const struct call_array *array);

/*
 * The same for an array of slots or pages. With verify->far its stride grows by that, and its base
 * moves down so that slot far_slot stays where it is: offsets beyond 2^32 without the memory.
 */
void verify_bind_far(const struct verify *verify, struct call *call, const char *name,
                     const struct buffer *buffer, uint64_t stride);

/* What `far` is in the cases that use it: 5 GiB, and aligned as anything may be. */
#define VERIFY_FAR ((uint64_t)5 << 30)

/* The type's rules with its indexer's dim and row format. */
struct ref_type verify_index(const struct verify *verify, const struct subject *subject);

/* The arithmetic of the device's tensor cores, whatever the module's target is. */
struct ref_tensor_core verify_core(const struct verify *verify);

/* The alignment a call wants of a pointer, at least 1. */
uint32_t verify_align(const struct call *call, const char *name);

#endif
