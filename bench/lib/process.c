#include "process.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sample.h"

enum { MAX_ARGS = 64 };

static void send_output(const char *file, int number) {
    int fd = open(file ? file : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || dup2(fd, number) < 0) _exit(126);
    close(fd);
}

/* In the child: never returns. */
static void become(const struct process *process) {
    send_output(process->out, 1);
    send_output(process->err, 2);
    if (process->core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)process->core, &set);
        (void)sched_setaffinity(0, sizeof set, &set);
    }
    if (process->env) {
        char *copy = strdup(process->env), *value = copy ? strchr(copy, '=') : NULL;
        if (!value) _exit(126);
        *value = 0;
        setenv(copy, value + 1, 1);
        free(copy);
    }
    char *argv[MAX_ARGS];
    int n = 0;
    for (; process->argv[n] && n < MAX_ARGS - 1; n++) argv[n] = strdup(process->argv[n]);
    argv[n] = NULL;
    if (argv[0]) execvp(argv[0], argv);
    _exit(127);
}

static double ms_of(struct timeval t) {
    return (double)t.tv_sec * 1e3 + (double)t.tv_usec * 1e-3;
}

bool process_run(const struct process *process, struct process_cost *cost) {
    struct rusage usage;
    int status = 1;
    fflush(NULL);
    double start = clock_wall();
    pid_t child = fork();
    if (child == 0) become(process);
    if (child < 0 || wait4(child, &status, 0, &usage) != child) return false;
    if (cost) {
        cost->wall = clock_wall() - start;
        cost->cpu = ms_of(usage.ru_utime) + ms_of(usage.ru_stime);
        cost->peak = (double)usage.ru_maxrss * 1024 * 1e-6;
    }
    return status == 0;
}

int process_core(int *cores) {
    cpu_set_t set;
    *cores = 1;
    if (sched_getaffinity(0, sizeof set, &set)) return -1;
    *cores = CPU_COUNT(&set);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET((unsigned)core, &set)) return core;
    return -1;
}

const char *process_cuda_home(void) {
    const char *home = getenv("CUDA_HOME");
    return home ? home : "/usr/local/cuda";
}

bool process_find(const char *name, char *path, size_t bytes) {
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":");
        (void)snprintf(path, bytes, "%.*s/%s", (int)length, at, name);
        if (!access(path, X_OK)) return true;
        at += length + (at[length] == ':');
    }
    (void)snprintf(path, bytes, "%s/bin/%s", process_cuda_home(), name);
    return !access(path, X_OK);
}

bool process_scratch(char name[64]) {
    (void)snprintf(name, 64, "/tmp/kvforge-bench-XXXXXX");
    return mkdtemp(name) != NULL;
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *at) {
    (void)info;
    (void)flag;
    (void)at;
    return remove(path);
}

void process_remove(const char *directory) {
    (void)nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

char *process_read(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, room = 0, n = 1;
    if (!file) return NULL;
    while (n) {
        if (size + 1 >= room) {
            room = room ? 2 * room : 1 << 16;
            char *more = realloc(text, room);
            if (!more) {
                free(text);
                text = NULL;
                break;
            }
            text = more;
        }
        n = fread(text + size, 1, room - 1 - size, file);
        size += n;
        text[size] = 0;
        if (feof(file) || ferror(file)) break;
    }
    fclose(file);
    if (bytes) *bytes = size;
    return text;
}
