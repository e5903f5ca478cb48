/* Do two kernels compute the same? Asked of the executor: one input, both PTX texts, every byte. */
#ifndef KVF_BENCH_SAME_H
#define KVF_BENCH_SAME_H

#include <stddef.h>

enum same { SAME_NO, SAME_YES, SAME_UNKNOWN };

struct same_kernel {
    const char *file, *entry; /* PTX */
};

/*
 * Run swa_write of Flash's swa type and its CUDA C twin, four tokens a block. `bundle` gives the
 * RoPE table. `said` gets one sentence: how much was compared, the first difference, or why it is
 * unknown (there is no executor, or it does not take the PTX).
 */
enum same same_swa_write(const char *bundle, const struct same_kernel kernels[2], char *said,
                         size_t bytes);

#endif
