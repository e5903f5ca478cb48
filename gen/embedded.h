/* The Lua files built into the program; build/embedded.c is written by embed.lua. */
#ifndef GEN_EMBEDDED_H
#define GEN_EMBEDDED_H

#include <stddef.h>

struct embedded_file {
    const char *module; /* name for `require`: "kvforge.layout", "templates.swa_write" */
    const char *path;   /* where it lies in the source tree, for messages */
    const char *text;   /* a template's is guarded already (lua/kvforge/guard.lua) */
    size_t bytes;
};

extern const struct embedded_file embedded_files[]; /* ends with a null module */

#endif
