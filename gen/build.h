/* From a spec to a bundle. */
#ifndef GEN_BUILD_H
#define GEN_BUILD_H

#include "lua_host.h"

#include <stdbool.h>

enum { EXIT_GOOD = 0, EXIT_BAD_SPEC = 1, EXIT_BAD_USAGE = 2, EXIT_INTERNAL = 70 };

#define BUILD_MAX_TARGETS 16

struct build_options {
    struct host_options host;
    const char *spec; /* the Lua file */
    const char *out;  /* the bundle's directory; null: build/NAME after the model's name */
    const char *targets[BUILD_MAX_TARGETS]; /* instead of the spec's, if any */
    int n_targets;
    bool keep_ir;       /* also write the LLVM IR of every module */
    bool embed;         /* also write <model>.c with the bundle inside */
    bool cubin;         /* also assemble every module with ptxas */
    const char *report; /* write timings and registers to this file, or null */
};

/* Load a spec into a new state. Leaves the resolved model on the stack and returns the state; or
 * prints the errors, sets *status and returns null. */
lua_State *build_load(const struct host_options *host, const char *spec, int *status);

/* Load a spec and ask the templates whether they can build its shapes. Prints errors. */
int build_check(const struct build_options *options);

/* The whole pipeline. Prints errors; returns the exit status. */
int build_bundle(const struct build_options *options);

#endif
