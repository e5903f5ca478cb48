/*
 * Ways of serving of which every token counts: permuted ids, the other policies, another order of
 * the executor's blocks, warps and lanes. Each runs in a process of its own beside the first one,
 * so that two cores are busy with steps of a few tokens too.
 */
#include "decode.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char schedule_seed[] = "20261129";
static const struct decode_load load = {.rounds = 1, .four = true};

/* ---- jobs ---- */

static bool has_footers(const struct decode *decode) {
    kvf_pool_options options = {.policy = KVF_POLICY_SHARED,
                                .max_requests = 1,
                                .max_tokens = decode->longest,
                                .windows = 8,
                                .blocks = 20};
    kvf_pool *pool;
    kvf_error error;
    if (kvf_pool_create(decode->session->bundle, &options, &pool, &error)) return true;
    kvf_pool_destroy(pool);
    return false;
}

static bool serve_fixed(struct decode *decode, bool shared, struct decode_run *out) {
    struct step_options options = {
        .pool = {.policy = KVF_POLICY_STATIC, .windows = 8, .blocks = 20}};
    if (shared)
        options.pool = (kvf_pool_options){
            .policy = KVF_POLICY_SHARED, .windows = 8, .blocks = 16, .lent_blocks = 16, .pins = 4};
    return decode_serve(decode, &options, load, out);
}

bool decode_job_run(struct decode *decode, enum decode_job job, struct decode_line *out) {
    struct decode_run run = {0};
    bool good = true;
    *out = (struct decode_line){.impossible = job == DECODE_SHARED && has_footers(decode)};
    if (out->impossible) return true;
    if (job == DECODE_STATIC || job == DECODE_SHARED)
        good = serve_fixed(decode, job == DECODE_SHARED, &run);
    else
        good = decode_serve_elastic(decode, 4, job == DECODE_PERMUTED, load, &run);
    *out = run.ways[DECODE_ALL];
    return good;
}

/* ---- a worker's process ---- */

static const enum decode_job first_jobs[] = {DECODE_PERMUTED, DECODE_STATIC, DECODE_SHARED};
static const enum decode_job second_jobs[] = {DECODE_SCHEDULED};

/* A way of its own to the file: processes that share one share a position in it. */
static FILE *reopen(FILE *file) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fileno(file));
    return fopen(name, "rb");
}

static bool work(const struct options *options, const struct decode_worker *self, FILE *store,
                 int go, int result) {
    struct session session = {0};
    struct decode decode = {.session = &session};
    char word;
    if (read(go, &word, 1) != 1) return false; /* not wanted after all */
    FILE *file = reopen(store);
    bool good = file && session_open(options, &session);
    if (good) {
        int64_t executed = session_executed(&session);
        good = decode_texts(&decode, options->seed) && decode_read(&decode, file);
        for (uint32_t i = 0; good && i < self->job_count; i++) {
            struct decode_line line;
            good = decode_job_run(&decode, self->jobs[i], &line) &&
                   write(result, &line, sizeof line) == sizeof line;
        }
        good = good && session_executed(&session) > executed;
    }
    session_close(&session);
    decode_free(&decode);
    if (file) fclose(file);
    return good;
}

static bool start(const struct options *options, FILE *store, const char *seed,
                  struct decode_worker *out) {
    int go[2], result[2];
    if (pipe(go)) return false;
    if (pipe(result)) return false;
    out->go = go[1];
    out->result = result[0];
    fflush(NULL);
    out->pid = fork();
    if (!out->pid) {
        close(go[1]);
        close(result[0]);
        if (seed) setenv("KVF_EXECUTOR_SEED", seed, 1);
        bool quiet = freopen("/dev/null", "w", stdout) != NULL;
        exit(quiet && work(options, out, store, go[0], result[1]) ? 0 : 1);
    }
    close(go[0]);
    close(result[1]);
    return out->pid > 0;
}

bool decode_workers_start(const struct options *options, struct decode_workers *out) {
    *out = (struct decode_workers){.store = tmpfile()};
    out->list[0] = (struct decode_worker){.jobs = first_jobs,
                                          .job_count = sizeof first_jobs / sizeof *first_jobs};
    out->list[1] = (struct decode_worker){.jobs = second_jobs,
                                          .job_count = sizeof second_jobs / sizeof *second_jobs};
    return out->store && start(options, out->store, NULL, &out->list[0]) &&
           start(options, out->store, schedule_seed, &out->list[1]);
}

bool decode_workers_go(const struct decode *decode, struct decode_workers *workers) {
    if (!decode_write(decode, workers->store)) return false;
    for (int i = 0; i < DECODE_WORKERS; i++)
        if (write(workers->list[i].go, "g", 1) != 1) return false;
    return true;
}

bool decode_workers_finish(struct decode_workers *workers, struct decode_line lines[DECODE_JOBS]) {
    bool all = true;
    for (int i = 0; i < DECODE_WORKERS; i++) {
        struct decode_worker *worker = &workers->list[i];
        bool good = true;
        int status = 1;
        for (uint32_t j = 0; good && j < worker->job_count; j++) {
            struct decode_line *line = &lines[worker->jobs[j]];
            good = read(worker->result, line, sizeof *line) == sizeof *line;
        }
        waitpid(worker->pid, &status, 0);
        worker->pid = 0;
        all = all && good && !status;
    }
    return all;
}

/* All ends first: a worker holds those of the workers before it. */
void decode_workers_stop(struct decode_workers *workers) {
    if (workers->store) fclose(workers->store);
    for (int i = 0; i < DECODE_WORKERS; i++) {
        if (workers->list[i].go) close(workers->list[i].go);
        if (workers->list[i].result) close(workers->list[i].result);
    }
    for (int i = 0; i < DECODE_WORKERS; i++)
        if (workers->list[i].pid > 0) waitpid(workers->list[i].pid, NULL, 0);
}
