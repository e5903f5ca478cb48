/* What ptxas makes of a kernel. */
#ifndef KVF_BENCH_CUBIN_H
#define KVF_BENCH_CUBIN_H

#include <stdbool.h>

struct cubin_kernel {
    long registers, spill; /* spill: bytes of stores and loads */
    long instructions;     /* of 16 bytes, the padding at the end included */
};

/*
 * Assemble the PTX file for `arch` with ptxas (a path), in `scratch`, and read what it says of
 * kernel `entry` and how large that kernel's code is in the cubin. False if anything is missing.
 */
bool cubin_measure(const char *ptxas, const char *arch, const char *ptx, const char *entry,
                   const char *scratch, struct cubin_kernel *out);

#endif
