#include "ptxas.h"

#include "lua_host.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char *ptxas_find(void) {
    char path[4096];
    const char *named = getenv("KVF_PTXAS"), *at = getenv("PATH");
    if (named) return access(named, X_OK) ? NULL : strdup(named);
    while (at && *at) {
        size_t length = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/ptxas", (int)length, at);
        if (!access(path, X_OK)) return strdup(path);
        at += length + (at[length] == ':');
    }
    return access("/usr/local/cuda/bin/ptxas", X_OK) ? NULL : strdup("/usr/local/cuda/bin/ptxas");
}

#define MAX_MESSAGES ((size_t)1 << 16)

static char *read_messages_of(int fd) {
    char *text = malloc(MAX_MESSAGES);
    size_t bytes = 0;
    ssize_t n;
    while (text && bytes < MAX_MESSAGES - 1 &&
           (n = read(fd, text + bytes, MAX_MESSAGES - 1 - bytes)) > 0)
        bytes += (size_t)n;
    if (text) text[bytes] = 0;
    return text;
}

/* Run ptxas on `file`; its messages (free them) and whether it succeeded. */
static char *run(const char *ptxas, const char *target, const char *file, const char *out,
                 bool *good) {
    int ends[2], status = 1;
    char arch[64];
    snprintf(arch, sizeof arch, "-arch=%s", target);
    if (pipe(ends)) return NULL;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        execl(ptxas, ptxas, "-v", arch, file, "-o", out, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    char *text = read_messages_of(ends[0]);
    close(ends[0]);
    if (child > 0) waitpid(child, &status, 0);
    *good = child > 0 && status == 0;
    return text;
}

/*
 * Write the text to module.ptx in a directory of its own and assemble it there: a cubin may hold
 * its input's name, which must not change from run to run.
 */
static char *assemble(const char *ptxas, const char *target, const char *ptx, char **cubin,
                      size_t *bytes, bool *good) {
    char dir[] = "/tmp/kvforge-XXXXXX", in[64], out[64], error[256];
    *good = false;
    if (!mkdtemp(dir)) return NULL;
    snprintf(in, sizeof in, "%s/module.ptx", dir);
    snprintf(out, sizeof out, "%s/module.cubin", dir);
    FILE *file = fopen(in, "w");
    bool written = file && fputs(ptx, file) >= 0;
    if (file && fclose(file)) written = false;
    char *messages = written ? run(ptxas, target, in, out, good) : NULL;
    if (*good && cubin) *cubin = host_read_file(out, (size_t)64 << 20, bytes, error);
    unlink(in);
    unlink(out);
    rmdir(dir);
    return messages;
}

static void set_count(lua_State *L, const char *name, long value) {
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

/* ptxas -v says for each entry, in this order: its name, stack and spills, registers. */
static void read_messages(lua_State *L, char *text) {
    char entry[256] = "";
    long stack = 0, stores = 0, loads = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *at;
        if (strstr(line, "error") || strstr(line, "fatal")) {
            lua_pushstring(L, line);
            lua_setfield(L, -2, "error");
        } else if ((at = strstr(line, "Function properties for "))) {
            sscanf(at + 24, "%255s", entry);
        } else if (strstr(line, "bytes stack frame")) {
            char *number = line;
            stack = strtol(number, &number, 10);
            stores = strtol(number + strcspn(number, "0123456789"), &number, 10);
            loads = strtol(number + strcspn(number, "0123456789"), &number, 10);
        } else if ((at = strstr(line, "Used ")) && *entry) {
            lua_newtable(L);
            set_count(L, "registers", strtol(at + 5, NULL, 10));
            set_count(L, "spill_bytes", stores + loads);
            set_count(L, "local_bytes", stack);
            lua_setfield(L, -2, entry);
        }
    }
}

void ptxas_report(lua_State *L, const char *ptxas, const char *target, const char *ptx) {
    bool good;
    char *text = assemble(ptxas, target, ptx, NULL, NULL, &good);
    if (text) read_messages(L, text);
    free(text);
}

char *ptxas_cubin(const char *ptxas, const char *target, const char *ptx, size_t *bytes,
                  char *error, size_t error_size) {
    bool good;
    char *cubin = NULL;
    char *text = assemble(ptxas, target, ptx, &cubin, bytes, &good);
    if (!cubin) snprintf(error, error_size, "%s", text && *text ? text : "no output");
    free(text);
    return cubin;
}
