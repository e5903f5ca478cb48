/*
 * The generator with little memory for Lua: whatever the limit, a build succeeds or ends with the
 * exit status of an internal error, never with a signal, and leaves a whole bundle or none.
 */
#include "build.h"
#include "tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/kvforge-test-XXXXXX";
static char bundle[64];

/* Build the example in a process of its own: its exit status, or minus the signal that ended it. */
static int build_with(size_t memory) {
    pid_t child = fork();
    if (child == 0) {
        struct build_options options = {.host = {.memory = memory},
                                        .spec = "examples/tiny.lua",
                                        .out = bundle,
                                        .keep_ir = true};
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDERR_FILENO);
        _exit(build_bundle(&options));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static bool has_manifest(void) {
    char path[96];
    struct stat info;
    snprintf(path, sizeof path, "%s/manifest.json", bundle);
    return !stat(path, &info);
}

int main(void) {
    int good = 0, internal = 0, other = 0, partial = 0;
    tap_plan(4);
    if (!mkdtemp(directory)) return 1;
    snprintf(bundle, sizeof bundle, "%s/bundle", directory);
    for (size_t memory = 1 << 16; good < 2; memory += memory / 8) {
        bool before = has_manifest();
        int status = build_with(memory);
        good += status == EXIT_GOOD;
        internal += status == EXIT_INTERNAL;
        partial += has_manifest() != (before || status == EXIT_GOOD);
        if (status == EXIT_GOOD || status == EXIT_INTERNAL) continue;
        tap_note("%zu bytes: status %d", memory, status);
        other++;
    }
    is(other, 0, "no limit ends the program in another way");
    is(partial, 0, "a build that fails leaves nothing");
    ok(internal > 5, "memory ran out at many places");
    is(good, 2, "and was enough in the end");
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command) || tap_done();
}
