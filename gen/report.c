#include "report.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double report_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

char *report_find_ptxas(void) {
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

/* Run ptxas on a file; its messages, or null. */
static char *run_ptxas(const char *ptxas, const char *target, const char *file) {
    int pipe_ends[2];
    char arch[64];
    snprintf(arch, sizeof arch, "-arch=%s", target);
    if (pipe(pipe_ends)) return NULL;
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], 1);
        dup2(pipe_ends[1], 2);
        close(pipe_ends[0]);
        execl(ptxas, ptxas, "-v", arch, file, "-o", "/dev/null", (char *)NULL);
        _exit(127);
    }
    close(pipe_ends[1]);
    char *text = malloc(1 << 16);
    size_t bytes = 0;
    ssize_t n;
    while (text && bytes < (1 << 16) - 1 &&
           (n = read(pipe_ends[0], text + bytes, (1 << 16) - 1 - bytes)) > 0)
        bytes += (size_t)n;
    close(pipe_ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    if (text) text[bytes] = 0;
    return text;
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
            sscanf(line, " %ld bytes stack frame, %ld bytes spill stores, %ld bytes spill loads",
                   &stack, &stores, &loads);
        } else if ((at = strstr(line, "Used ")) && *entry) {
            lua_newtable(L);
            set_count(L, "registers", strtol(at + 5, NULL, 10));
            set_count(L, "spill_bytes", stores + loads);
            set_count(L, "local_bytes", stack);
            lua_setfield(L, -2, entry);
        }
    }
}

void report_assemble(lua_State *L, const char *ptxas, const char *target, const char *ptx) {
    char file[] = "/tmp/kvforge-XXXXXX";
    int fd = mkstemp(file);
    if (fd < 0) return;
    size_t bytes = strlen(ptx);
    bool written = write(fd, ptx, bytes) == (ssize_t)bytes;
    close(fd);
    char *text = written ? run_ptxas(ptxas, target, file) : NULL;
    unlink(file);
    if (text) read_messages(L, text);
    free(text);
}
