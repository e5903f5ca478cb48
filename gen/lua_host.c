#include "lua_host.h"

#include "build.h"
#include "embedded.h"
#include "ir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <lualib.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LUA_FILE (1 << 20)
#define LOADED       "host.loaded"

struct host {
    const struct host_options *options;
    size_t used;
};

static struct host *host_of(lua_State *L) {
    struct host *h;
    memcpy(&h, lua_getextraspace(L), sizeof(struct host *));
    return h;
}

/* ---- memory ---- */

static void *allocate(void *user, void *old, size_t old_bytes, size_t bytes) {
    struct host *h = user;
    size_t held = old ? old_bytes : 0;
    if (bytes == 0) {
        h->used -= held;
        free(old);
        return NULL;
    }
    if (bytes > held && h->used + (bytes - held) > h->options->memory) return NULL;
    void *now = realloc(old, bytes);
    if (now) h->used = h->used - held + bytes;
    return now;
}

/* ---- files ---- */

char *host_read_file(const char *path, size_t most, size_t *bytes, char *error) {
    /* Without waiting for the writer of a pipe that lies there instead of a file. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    struct stat info;
    char *text = NULL;
    if (!file || fstat(fileno(file), &info)) {
        snprintf(error, 256, "cannot read %.180s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        snprintf(error, 256, "cannot read %.180s: not a regular file", path);
    } else if ((size_t)info.st_size > most) {
        snprintf(error, 256, "cannot read %.180s: larger than %zu bytes", path, most);
    } else if (!(text = malloc((size_t)info.st_size + 1))) {
        snprintf(error, 256, "out of memory");
    } else {
        *bytes = fread(text, 1, (size_t)info.st_size, file);
        text[*bytes] = 0;
        if (ferror(file)) {
            snprintf(error, 256, "cannot read %.180s: %s", path, strerror(errno));
            free(text);
            text = NULL;
        }
    }
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return text;
}

/* ---- modules ---- */

static const struct embedded_file *embedded(const char *module) {
    for (const struct embedded_file *f = embedded_files; f->module; f++)
        if (!strcmp(f->module, module)) return f;
    return NULL;
}

/* Push the text and the chunk name of `module`; `dir` overrides what is embedded. 0 if there is
 * none. */
static int push_source(lua_State *L, const char *dir, const char *relative, const char *module) {
    char path[1024], error[256];
    size_t bytes;
    if (dir) {
        snprintf(path, sizeof path, "%s/%s.lua", dir, relative);
        char *text = host_read_file(path, MAX_LUA_FILE, &bytes, error);
        if (!text) return luaL_error(L, "%s", error);
        lua_pushlstring(L, text, bytes);
        free(text);
        lua_pushfstring(L, "@%s", path);
        return 2;
    }
    const struct embedded_file *f = embedded(module);
    if (!f) return 0;
    lua_pushlstring(L, f->text, f->bytes);
    lua_pushfstring(L, "@%s", f->path);
    return 2;
}

/* require(name): "ir", "host", or one of kvforge.* */
static int l_require(lua_State *L) {
    const char *name = luaL_checkstring(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, LOADED);
    if (lua_getfield(L, -1, name) != LUA_TNIL) return 1;
    lua_pop(L, 1);
    if (strncmp(name, "kvforge.", 8) != 0 || strchr(name + 8, '/'))
        return luaL_error(L, "there is no module '%s'", name);
    if (!push_source(L, host_of(L)->options->lua_dir, name + 8, name))
        return luaL_error(L, "there is no module '%s'", name);
    if (luaL_loadbufferx(L, lua_tostring(L, -2), lua_rawlen(L, -2), lua_tostring(L, -1), "t"))
        return lua_error(L);
    lua_call(L, 0, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

/* host.template_text("swa_write" or "lib/warp") -> text, chunk name, whether it is guarded already
 */
static int l_template_text(lua_State *L) {
    const char *name = luaL_checkstring(L, 1), *dir = host_of(L)->options->templates_dir;
    char module[256];
    snprintf(module, sizeof module, "templates.%s", name);
    for (char *c = module; *c; c++)
        if (*c == '/') *c = '.';
    if (!push_source(L, dir, name, module)) return luaL_error(L, "there is no template '%s'", name);
    lua_pushboolean(L, dir == NULL);
    return 3;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void push_sorted(lua_State *L, char **names, size_t count) {
    qsort(names, count, sizeof *names, by_name);
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushstring(L, names[i]);
        lua_seti(L, -2, (lua_Integer)i + 1);
        free(names[i]);
    }
}

#define MAX_TEMPLATES 256

static size_t listed_templates(lua_State *L, const char *dir, char **names) {
    DIR *d = opendir(dir);
    size_t count = 0;
    struct dirent *e;
    if (!d) {
        luaL_error(L, "cannot read %s: %s", dir, strerror(errno));
        return 0; /* never: an error does not return */
    }
    while ((e = readdir(d)) && count < MAX_TEMPLATES) {
        size_t length = strlen(e->d_name);
        if (length > 4 && e->d_name[0] != '.' && !strcmp(e->d_name + length - 4, ".lua"))
            names[count++] = strndup(e->d_name, length - 4);
    }
    closedir(d);
    return count;
}

static size_t embedded_templates(char **names) {
    size_t count = 0;
    for (const struct embedded_file *f = embedded_files; f->module && count < MAX_TEMPLATES; f++)
        if (!strncmp(f->module, "templates.", 10) && strncmp(f->module, "templates.lib.", 14) != 0)
            names[count++] = strdup(f->module + 10);
    return count;
}

/* host.template_names() -> sorted names of the kernel templates */
static int l_template_names(lua_State *L) {
    char *names[MAX_TEMPLATES];
    const char *dir = host_of(L)->options->templates_dir;
    size_t count = dir ? listed_templates(L, dir, names) : embedded_templates(names);
    push_sorted(L, names, count);
    return 1;
}

/* host.sha256(text) -> 64 hex digits */
static int l_sha256(lua_State *L) {
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    char hex[SHA256_DIGEST_STRING_LENGTH];
    SHA256Data((const uint8_t *)text, bytes, hex);
    lua_pushstring(L, hex);
    return 1;
}

static int open_host_library(lua_State *L) {
    static const luaL_Reg functions[] = {{"template_text", l_template_text},
                                         {"template_names", l_template_names},
                                         {"sha256", l_sha256},
                                         {0, 0}};
    luaL_newlib(L, functions);
    return 1;
}

/* ---- the state ---- */

static int open_libraries(lua_State *L) {
    static const luaL_Reg libraries[] = {
        {LUA_GNAME, luaopen_base},          {LUA_TABLIBNAME, luaopen_table},
        {LUA_STRLIBNAME, luaopen_string},   {LUA_MATHLIBNAME, luaopen_math},
        {LUA_UTF8LIBNAME, luaopen_utf8},    {LUA_DBLIBNAME, luaopen_debug},
        {LUA_COLIBNAME, luaopen_coroutine}, {0, 0}};
    for (const luaL_Reg *l = libraries; l->name; l++) {
        luaL_requiref(L, l->name, l->func, 1);
        lua_pop(L, 1);
    }
    static const char *const unwanted[] = {"dofile", "loadfile", "print", NULL};
    for (int i = 0; unwanted[i]; i++) {
        lua_pushnil(L);
        lua_setglobal(L, unwanted[i]);
    }
    lua_newtable(L);
    luaopen_ir(L);
    lua_setfield(L, -2, "ir");
    open_host_library(L);
    lua_setfield(L, -2, "host");
    lua_setfield(L, LUA_REGISTRYINDEX, LOADED);
    lua_pushcfunction(L, l_require);
    lua_setglobal(L, "require");
    return 0;
}

/* Lua ends the process when memory runs out in a call that nothing protects: not with a signal. */
static int give_up(lua_State *L) {
    const char *what =
        lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that is no text";
    fprintf(stderr, "kvforge: internal error: Lua: %s\n", what);
    _exit(EXIT_INTERNAL);
}

lua_State *host_open(const struct host_options *options) {
    struct host *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->options = options;
    lua_State *L = lua_newstate(allocate, h);
    if (!L) {
        free(h);
        return NULL;
    }
    memcpy(lua_getextraspace(L), &h, sizeof(struct host *));
    lua_atpanic(L, give_up);
    lua_gc(L, LUA_GCGEN, 0, 0);
    lua_pushcfunction(L, open_libraries);
    if (lua_pcall(L, 0, 0, 0)) {
        host_close(L);
        return NULL;
    }
    return L;
}

void host_close(lua_State *L) {
    struct host *h = host_of(L);
    lua_close(L);
    free(h);
}

static int handle_message(lua_State *L) {
    if (lua_type(L, 1) != LUA_TSTRING) {
        lua_settop(L, 1);
        luaL_tolstring(L, 1, NULL);
    }
    return 1;
}

int host_call(lua_State *L, int arguments, int results) {
    int handler = lua_gettop(L) - arguments;
    lua_pushcfunction(L, handle_message);
    lua_insert(L, handler);
    int failed = lua_pcall(L, arguments, results, handler);
    lua_remove(L, handler);
    return failed != LUA_OK;
}

int host_require(lua_State *L, const char *name) {
    lua_pushcfunction(L, l_require);
    lua_pushstring(L, name);
    return host_call(L, 1, 1);
}
