/*
 * The Lua side of the program: one state with the embedded modules, a memory limit, and `require`
 * for our modules alone. Specs run inside it in a sandbox of their own (lua/kvforge/sandbox.lua).
 */
#ifndef GEN_LUA_HOST_H
#define GEN_LUA_HOST_H

#include <lua.h>
#include <stddef.h>

struct host_options {
    const char *lua_dir;       /* read lua/kvforge from here instead, or null */
    const char *templates_dir; /* read templates from here instead, or null */
    size_t memory;             /* most bytes the state may hold */
};

/* Open a state; null only if memory runs out. `options` must outlive it. */
lua_State *host_open(const struct host_options *options);
void host_close(lua_State *L);

/* Push module `name` (as `require` would). Returns 0, or pushes an error message and returns 1. */
int host_require(lua_State *L, const char *name);

/* lua_pcall with a message handler that adds where a template's error came from. */
int host_call(lua_State *L, int arguments, int results);

/* Read a whole file of at most `most` bytes. Null with a message in `error` (of 256 bytes). */
char *host_read_file(const char *path, size_t most, size_t *bytes, char *error);

#endif
