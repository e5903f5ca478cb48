/* ptxas, where it is found: registers for `--report`, cubins for `--cubin`. */
#ifndef GEN_PTXAS_H
#define GEN_PTXAS_H

#include <lua.h>
#include <stddef.h>

/* The path of ptxas ($KVF_PTXAS, then PATH, then /usr/local/cuda/bin), or null; free it. */
char *ptxas_find(void);

/*
 * Assemble PTX text with ptxas -v for `target` and add to the table on top of the Lua stack, for
 * every entry: table[entry] = { registers =, spill_bytes =, local_bytes = }. If ptxas refuses, its
 * message goes to table.error.
 */
void ptxas_report(lua_State *L, const char *ptxas, const char *target, const char *ptx);

/* The cubin of PTX text for `target` (free it), or null with ptxas' message in `error`. */
char *ptxas_cubin(const char *ptxas, const char *target, const char *ptx, size_t *bytes,
                  char *error, size_t error_size);

#endif
