#include "executor_path.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

/* Anything that lies in the same object as this code. */
static const char here;

/* The directory of the object this code is linked into, without a final slash; false if unknown. */
static bool own_directory(char *out, size_t bytes) {
    Dl_info info;
    struct link_map *map = NULL;
    char name[4096];
    if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return false;
    /* The loader has no name for the main program itself. */
    const char *from = map->l_name[0] ? map->l_name : "/proc/self/exe";
    if (!realpath(from, name)) return false;
    char *slash = strrchr(name, '/');
    if (!slash || (size_t)(slash - name) >= bytes) return false;
    *slash = 0;
    memcpy(out, name, (size_t)(slash - name) + 1);
    return true;
}

static bool is_there(const char *path) {
    return access(path, R_OK) == 0;
}

kvf_status executor_path(char **out, kvf_error *error) {
    static const char *const beside[] = {"../executor", "../lib/kvforge", "kvforge"};
    char directory[4096];
    bool known = own_directory(directory, sizeof directory);
    for (size_t i = 0; known && i < sizeof beside / sizeof beside[0]; i++) {
        char path[4096 + 64];
        (void)snprintf(path, sizeof path, "%s/%s/libcuda.so.1", directory, beside[i]);
        if (!is_there(path)) continue;
        /* A plain name (no ..) reads better wherever the path is shown. */
        *out = realpath(path, NULL);
        return *out ? KVF_OK : error_memory(error, "looking for the executor");
    }
    const char *named = secure_getenv("KVF_EXECUTOR");
    if (named && *named) {
        *out = strdup(named);
        return *out ? KVF_OK : error_memory(error, "looking for the executor");
    }
    return error_set(error, KVF_ERROR_NO_DRIVER,
                     "libcuda.so.1 of the executor is in none of ../executor, ../lib/kvforge and "
                     "kvforge beside %.300s, and KVF_EXECUTOR names no file",
                     known ? directory : "this program");
}
