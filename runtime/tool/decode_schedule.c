/*
 * Another order of blocks, warps and lanes. The executor reads its seed when it is loaded and stays
 * loaded, so this is a second process, made before the first one loads a driver.
 */
#include "decode.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the second process: wait for the store, serve, say what was compared. */
static bool serve(const struct options *options, const char *seed, FILE *store, int go,
                  struct decode_run *run) {
    struct session session;
    struct decode decode = {.session = &session};
    char word;
    if (read(go, &word, 1) != 1) return false; /* not wanted after all */
    setenv("KVF_EXECUTOR_SEED", seed, 1);
    rewind(store);
    bool good = session_open(options, &session) && decode_texts(&decode, options->seed) &&
                decode_read(&decode, store) && decode_serve_elastic(&decode, true, false, run);
    session_close(&session);
    decode_free(&decode);
    return good;
}

static void second_process(const struct options *options, const char *seed, FILE *store, int go,
                           int result) {
    struct decode_run run = {0};
    bool quiet = freopen("/dev/null", "w", stdout) != NULL;
    bool good = quiet && serve(options, seed, store, go, &run);
    struct decode_line line = run.ways[DECODE_ALL];
    good = good && write(result, &line, sizeof line) == sizeof line;
    exit(good ? 0 : 1);
}

bool decode_schedule_start(const struct options *options, const char *seed,
                           struct decode_schedule *out) {
    int go[2], result[2];
    *out = (struct decode_schedule){.store = tmpfile()};
    if (!out->store) return false;
    if (pipe(go)) return false;
    if (pipe(result)) return false;
    fflush(stdout);
    out->pid = fork();
    if (!out->pid) {
        close(go[1]);
        close(result[0]);
        second_process(options, seed, out->store, go[0], result[1]);
    }
    close(go[0]);
    close(result[1]);
    out->go = go[1];
    out->result = result[0];
    return out->pid > 0;
}

bool decode_schedule_finish(const struct decode *decode, struct decode_schedule *schedule,
                            struct decode_line *out) {
    int status = 1;
    if (!decode_write(decode, schedule->store)) return false;
    bool good =
        write(schedule->go, "g", 1) == 1 && read(schedule->result, out, sizeof *out) == sizeof *out;
    waitpid(schedule->pid, &status, 0);
    schedule->pid = 0;
    return good && !status;
}

void decode_schedule_stop(struct decode_schedule *schedule) {
    if (schedule->store) fclose(schedule->store);
    if (schedule->go) close(schedule->go);
    if (schedule->result) close(schedule->result);
    if (schedule->pid > 0) waitpid(schedule->pid, NULL, 0);
}
