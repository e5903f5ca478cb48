/* What building cost and what ptxas makes of it: for `--report`, never part of the bundle. */
#ifndef GEN_REPORT_H
#define GEN_REPORT_H

#include <lua.h>

/* The path of ptxas ($KVF_PTXAS, then PATH, then /usr/local/cuda/bin), or null; free it. */
char *report_find_ptxas(void);

/*
 * Assemble PTX text with ptxas -v for `target` and add to the table on top of the Lua stack, for
 * every entry: table[entry] = { registers =, spill_bytes =, local_bytes = }. If ptxas refuses, its
 * message goes to table.error.
 */
void report_assemble(lua_State *L, const char *ptxas, const char *target, const char *ptx);

/* Milliseconds of a steady clock. */
double report_now(void);

#endif
