/* What a device reaches: the rates that kernels are measured against. */
#ifndef KVF_TOOL_RATES_H
#define KVF_TOOL_RATES_H

#include "timing.h"

struct rates {
    double copy; /* bytes a second of a copy within the device, read and written bytes both */
    double mma;  /* bf16 multiply-adds a second by mma.sync.m16n8k16, fp32 accumulators */
};

/*
 * Measure both: the copy by cuMemcpyDtoDAsync between two pieces of `bytes`; the products by a
 * kernel that does nothing else, on `blocks` blocks of 256 threads with `steps` steps of eight
 * products a warp (below 32768); its results are checked. False with a message if something failed
 * or came out wrong.
 */
bool rates_measure(struct timing *timing, size_t bytes, uint32_t blocks, uint32_t steps,
                   struct rates *out);

#endif
