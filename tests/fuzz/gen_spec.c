/*
 * The spec reader on any text: a spec ends in a model or in errors that name the file and a line,
 * whatever stands in it; and whatever becomes a model can be explained, written as a manifest, and
 * judged by the templates' shape rules.
 *
 * An input that begins with a zero byte is no text but a list of edits, four bytes each, of
 * examples/tiny.lua: so that inputs of random bytes, too, come near to what a spec looks like.
 */
#include "lua_host.h"

#include <lauxlib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define MEMORY ((size_t)64 << 20) /* as the program has it */
#define SPEC   (1 << 16)
#define INPUTS 20000 /* of one Lua state, whose memory may not grow */
#define GROWTH (1 << 20)
#define EXPLAIN                                                                                    \
    "local load_spec, explain, manifest, templates = ...\n"                                        \
    "local list, sha = templates.load(), function() return '' end\n"                               \
    "return function(text)\n"                                                                      \
    "  local M, errors = load_spec(text, '@f.lua')\n"                                              \
    "  if not M then\n"                                                                            \
    "    assert(#errors > 0)\n"                                                                    \
    "    for _, e in ipairs(errors) do assert(e:find '^f.lua:%d*', e) end\n"                       \
    "    return\n"                                                                                 \
    "  end\n"                                                                                      \
    "  assert(#explain(M) > 0 and #explain(M, { json = true }) > 0)\n"                             \
    "  manifest(M, { llvm = '', version = '', modules = {}, sha256 = sha })\n"                     \
    "  templates.broken(list, M)\n"                                                                \
    "end\n"

static const char *const pieces[] = {
    "0",          "-1",          "1",          "2",
    "3",          "7",           "16",         "64",
    "128",        "256",         "512",        "576",
    "1 << 31",    "1 << 62",     "0.5",        "1e300",
    "0/0",        "-1/0",        "nil",        "true",
    "false",      "{}",          "{ 1 }",      "\"\"",
    "\"swa\"",    "\"bf16\"",    "\"ring\"",   "\"sm_80\"",
    "kv",         "kv.of",       "latent",     "kv.model",
    "...",        "overlap",     "=",          ",",
    "{",          "}",           "(",          ")",
    "do",         "end",         "return",     "#",
    "..",         "--",          "[[",         "goto x",
    "while true", "function() ", "\"f32\"",    "online",
    "drafts",     "block",       "page_align", "\"csa\"",
    "pairs(kv)",  "error",       "kv.rope",    "string.format",
    "\"%99s\"",   "table.sort",  "\"paged\"",  "\"fp8_ds_mla\"",
};
#define PIECES (sizeof pieces / sizeof pieces[0])

static const struct host_options options = {.memory = MEMORY};
static lua_State *L;
static int inputs;
static size_t memory; /* bytes after a state's first inputs */

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, L && lua_isstring(L, -1) ? lua_tostring(L, -1) : "");
    abort();
}

/* A state with the function above on its stack. */
static void open_state(void) {
    static const char *const modules[] = {"kvforge.load", "kvforge.explain", "kvforge.manifest",
                                          "kvforge.kernel_templates"};
    L = host_open(&options);
    if (!L || luaL_loadbufferx(L, EXPLAIN, strlen(EXPLAIN), "=fuzz", "t")) fail("no state");
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (host_require(L, modules[i])) fail("no module");
    if (host_call(L, 4, 1)) fail("templates");
    inputs = 0;
    memory = 0;
}

static size_t held(void) {
    lua_gc(L, LUA_GCCOLLECT);
    return (size_t)lua_gc(L, LUA_GCCOUNT) * 1024;
}

/* Every so often: nothing is kept of the inputs. */
static void check_memory(void) {
    inputs++;
    if (inputs == 100) memory = held();
    if (inputs < INPUTS) return;
    if (held() > memory + GROWTH) fail("the state's memory grows");
    host_close(L);
    L = NULL;
}

static const char *example(size_t *bytes) {
    static char text[SPEC];
    static size_t length;
    if (!length) {
        FILE *file = fopen("examples/tiny.lua", "rb");
        length = file ? fread(text, 1, sizeof text, file) : 0;
        if (file) fclose(file);
        if (!length) fail("run me where examples/tiny.lua is");
    }
    *bytes = length;
    return text;
}

static int is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '"' || c == '.';
}

/* Put `piece` over the word at or behind `at` (keep: before it). Returns the new length. */
static size_t edit(char *text, size_t length, size_t at, const char *piece, int keep) {
    while (at < length && !is_word(text[at])) at++;
    size_t end = at, put = strlen(piece);
    while (!keep && end < length && is_word(text[end])) end++;
    if (length - (end - at) + put > SPEC) return length;
    memmove(text + at + put, text + end, length - end);
    memcpy(text + at, piece, put);
    return length - (end - at) + put;
}

static size_t edited(const uint8_t *data, size_t bytes, char *text) {
    size_t length;
    const char *from = example(&length);
    for (size_t i = 0; i < length; i++) text[i] = from[i];
    for (; bytes >= 4 && length; data += 4, bytes -= 4)
        length = edit(text, length, ((size_t)data[0] << 8 | data[1]) % length,
                      pieces[data[2] % PIECES], data[3] % 4 == 0);
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static char text[SPEC + 1];
    if (!L) open_state();
    lua_pushvalue(L, -1);
    if (bytes && !data[0]) {
        lua_pushlstring(L, text, edited(data + 1, bytes - 1, text));
    } else {
        lua_pushlstring(L, bytes ? (const char *)data : "", bytes);
    }
    if (host_call(L, 1, 0)) fail("an error was raised");
    check_memory();
    return 0;
}
