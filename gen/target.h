/* The targets we know, the pass pipelines, and the emission of PTX text. */
#ifndef GEN_TARGET_H
#define GEN_TARGET_H

#include <llvm-c/Core.h>
#include <stdbool.h>
#include <stddef.h>

struct target {
    const char *name;    /* "sm_90": what the spec says, and the PTX header's .target */
    unsigned sm;         /* 90 */
    bool exact;          /* an "a" target: runs on this chip only */
    const char *cpu;     /* what LLVM 19 is told */
    unsigned ptx;        /* lowest PTX version that has this target: 78 */
    unsigned max_shared; /* bytes of shared memory a block can have */
};

/* The target of that name, or null. */
const struct target *target_find(const char *name);
/* The names we know, separated by ", ". */
const char *target_names(void);

/* Lowest CUDA driver (as cuDriverGetVersion counts) that takes a PTX version: 78 -> 11080. */
int target_driver(unsigned ptx);

/* Prepare LLVM once per process. */
void target_init(void);

/*
 * Verify, optimise and emit a module. Returns PTX text (free with free) and its length, or null
 * with a message (free with LLVMDisposeMessage-compatible free) in *error.
 */
char *target_emit(const struct target *target, unsigned ptx, LLVMModuleRef module,
                  const char *passes, size_t *bytes, char **error);
/* The data layout every module must have before code is built in it. */
void target_prepare(LLVMModuleRef module);

#endif
