/* What ptxas makes of a kernel. */
#ifndef KVF_BENCH_CUBIN_H
#define KVF_BENCH_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

struct cubin_kernel {
    long registers, spill; /* spill: bytes of stores and loads */
    long instructions;     /* of 16 bytes, the padding at the end included */
};

/* An assembled PTX file: ptxas' words and the code. */
struct cubin {
    char *messages, *file;
    size_t bytes; /* of the file */
};

/* Assemble the PTX file for `arch` with ptxas (a path), in `scratch`. False, with what ptxas said
 * on stderr, if it cannot be assembled. */
bool cubin_open(const char *ptxas, const char *arch, const char *ptx, const char *scratch,
                struct cubin *out);
void cubin_close(struct cubin *cubin);
/* What ptxas says of one of its kernels, and how large that kernel's code is; false: no such
 * kernel. */
bool cubin_find(const struct cubin *cubin, const char *entry, struct cubin_kernel *out);

/*
 * Both for one kernel: assemble the PTX file for `arch` with ptxas (a path), in `scratch`, and read
 * what it says of kernel `entry` and how large that kernel's code is in the cubin. False if
 * anything is missing.
 */
bool cubin_measure(const char *ptxas, const char *arch, const char *ptx, const char *entry,
                   const char *scratch, struct cubin_kernel *out);

#endif
