/*
 * A place of rows: pages at a stride of their own.
 *
 * Of one that a kernel reads, only some rows hold numbers. All other bytes, gaps and pads too, are
 * 0xff, which is NaN in every field: whoever reads a row that nobody named shows it. One that a
 * kernel writes is guarded and holds the buffers' pattern, pages and the gaps between them.
 */
#ifndef KVF_TOOL_VERIFY_PLACE_H
#define KVF_TOOL_VERIFY_PLACE_H

#include "batch.h"
#include "verify.h"

struct verify_place {
    struct ref_type rules; /* with the format and dims of the place's rows */
    uint32_t rows, pages;  /* rows a page; pages there are */
    uint32_t first;        /* id of the first page: `base` then lies before the planes, so that
                              byte offsets of any size can be tried with little memory */
    struct buffer plane[REF_PLANES];
    uint64_t stride[REF_PLANES];
    uint32_t planes;
    char name[REF_PLANES][32]; /* of the parameters: prefix_plane */
};

/* Make the planes and fill them with 0xff. False with a message if memory is short. */
bool verify_place_create(struct verify *verify, const struct call *call, const char *prefix,
                         const struct ref_type *rules, uint32_t rows, uint32_t pages,
                         struct verify_place *out);
/* The same for a place that a kernel writes, and on the device at once. */
bool verify_place_create_output(struct verify *verify, const struct call *call, const char *prefix,
                                const struct ref_type *rules, uint32_t rows, uint32_t pages,
                                struct verify_place *out);
/* The workspace that a batch needs, of pages of `rows` rows; an output. */
bool verify_place_create_workspace(struct verify *verify, const struct call *call,
                                   const struct ref_type *rules, uint32_t rows,
                                   const struct batch *batch, struct verify_place *out);
void verify_place_destroy(struct verify *verify, struct verify_place *place);

/* Everything to 0xff again. */
void verify_place_clear(struct verify_place *place);
/* Give row `number` (from first * rows on) numbers of a kind. */
void verify_place_store(struct verify *verify, struct verify_place *place, enum input_kind kind,
                        uint32_t number);
/* Give every byte a random value, gaps too: for kernels that move bytes. */
void verify_place_scramble(struct verify *verify, struct verify_place *place);
/* The number of a row at random. */
uint32_t verify_place_row(struct verify *verify, const struct verify_place *place);
/* Let the last page have the highest id that int32 row numbers allow. */
void verify_place_far(struct verify_place *place);
bool verify_place_upload(struct verify *verify, const struct verify_place *place);
/* Fetch what the device holds into the images. */
bool verify_place_download(struct verify *verify, struct verify_place *place);

/* Add the planes to what a case compares; a place that was not made has none. */
void verify_place_outputs(struct verify_place *place, struct outputs *outputs);

/* Set the planes' parameters of a call; the same for a reference. A place that was not made has no
 * parameters, and no rows for a reference. */
void verify_place_bind(const struct verify_place *place, struct call *call);
struct ref_place verify_place_reference(const struct verify_place *place);

#endif
