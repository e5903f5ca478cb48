/* Filling a caller's kvf_error. Internal. A null error is allowed everywhere. */
#ifndef KVF_ERROR_H
#define KVF_ERROR_H

#include "kvforge.h"

/* Clear `error`, then set its status and text (printf style; too long is cut). Returns `status`. */
__attribute__((format(printf, 3, 4))) kvf_status error_set(kvf_error *error, kvf_status status,
                                                           const char *format, ...);

/* "out of memory while <what>": KVF_ERROR_MEMORY. */
kvf_status error_memory(kvf_error *error, const char *what);

/* Name the kernel that `error`, already set, is about: "csa/swa_write". */
void error_kernel(kvf_error *error, const char *type, const char *kernel);

#endif
