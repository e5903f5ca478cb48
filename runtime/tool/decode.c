/* kvforge-run decode: which runs are made, and the table of what they were compared with. */
#include "decode.h"

#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const way_names[DECODE_WAYS] = {
    [DECODE_CHUNKS] = "one chunk = many chunks",
    [DECODE_STEPS] = "prefill = decode steps, drafts rejected",
    [DECODE_GRAPH] = "launches = a captured graph's replay",
    [DECODE_BATCH] = "alone = in a batch",
    [DECODE_RESUMED] = "cold = resumed from the prefix cache",
    [DECODE_PREEMPTED] = "before = after preemption",
    [DECODE_FORKED] = "alone = after a fork, child and parent",
    [DECODE_LENT] = "memory as new = lent back and forth",
};

static const char *const job_names[DECODE_JOBS] = {
    [DECODE_PERMUTED] = "ids as given = permuted physical ids",
    [DECODE_STATIC] = "elastic = policy static",
    [DECODE_SHARED] = "elastic = policy shared",
    [DECODE_SCHEDULED] = "natural order = another schedule",
};

/* ---- the table ---- */

static void head(void) {
    printf("%-44s %7s %6s %12s  %s\n", "comparison", "tokens", "layers", "bytes", "result");
}

/* A comparison without a token proves nothing. */
static bool show(const char *name, const struct decode_line *line) {
    bool good = line->tokens && !line->differ;
    if (line->impossible) {
        printf("%-44s %7s %6s %12s  not possible: the row format has page footers\n", name, "-",
               "-", "-");
        return true;
    }
    printf("%-44s %7" PRIu64 " %6" PRIu64 " %12" PRIu64 "  %s", name, line->tokens, line->layers,
           line->bytes,
           good           ? "equal"
           : line->tokens ? "DIFFERS"
                          : "NOTHING COMPARED");
    if (line->differ) printf(": %" PRIu64 " tokens, first %s", line->differ, line->first);
    printf("\n");
    fflush(stdout);
    return good;
}

static bool show_dense(struct decode *decode) {
    struct decode_dense dense;
    if (!decode_check_dense(decode, &dense)) return false;
    bool good = decode_dense_holds(&dense);
    printf("%-44s %7" PRIu64 " %6u %12" PRIu64 "  %s (differences %.2f of a rounding's; %.2f of "
           "the bound at most)\n",
           "dense float64 reference", dense.tokens / decode->store.layers, decode->store.layers,
           2 * dense.numbers, good ? "holds" : "FAILED", decode_dense_size(&dense), dense.worst);
    if (dense.outside) printf("#   %" PRIu64 " numbers outside\n", dense.outside);
    if (dense.bad_selections)
        printf("#   %" PRIu64 " selections that may not stand\n", dense.bad_selections);
    fflush(stdout);
    return good;
}

static void show_run(const struct decode_run *run) {
    printf(
        "#   %u chunks; %u steps, %" PRIu64
        " launches, %u replays of a graph; %u drafts rejected, %u preemptions, %u forks; %" PRIu64
        " tokens from the cache, tails saved %" PRIu64 " times and restored %" PRIu64 "; %u "
        "changes of a chunk's role; evicted: %" PRIu64 " windows, %" PRIu64 " blocks\n",
        run->stats.chunks, run->steps, run->launches, run->replays, run->rejected, run->preempted,
        run->forks, run->hit_tokens, run->saved, run->restored, run->role_changes,
        run->stats.evicted_windows, run->stats.evicted_blocks);
}

/* ---- the runs ---- */

/* Chunks that the longest text alone needs. */
static uint32_t least_chunks(const struct decode *decode) {
    kvf_pool_options options = {
        .policy = KVF_POLICY_ELASTIC, .max_requests = DECODE_LIVE, .max_tokens = decode->longest};
    kvf_plan plan;
    kvf_error error;
    for (options.chunks = 1; options.chunks < 10000; options.chunks++)
        if (!kvf_pool_plan(decode->session->bundle, &options, decode->longest, &plan, &error) &&
            plan.requests)
            return options.chunks;
    return 0;
}

bool decode_serve_elastic(struct decode *decode, uint32_t more, bool permute,
                          struct decode_load load, struct decode_run *out) {
    struct step_options options = {
        .pool = {.policy = KVF_POLICY_ELASTIC, .chunks = least_chunks(decode) + more},
        .permute = permute,
        .graphs = true};
    return decode_serve(decode, &options, load, out);
}

/* Everything at once, on as little memory as the longest text needs. */
static bool tight(struct decode *decode, uint32_t rounds) {
    struct decode_run run;
    struct decode_load load = {.rounds = rounds};
    if (!decode_serve_elastic(decode, 0, false, load, &run)) return false;
    bool good = true;
    for (int way = 0; way < DECODE_ALL; way++) good = show(way_names[way], &run.ways[way]) && good;
    show_run(&run);
    return good;
}

/* Here, where there was no process for them: on a real device, whose order is its own. */
static bool jobs_here(struct decode *decode, struct decode_line lines[DECODE_JOBS]) {
    bool good = true;
    for (int job = 0; job < DECODE_SCHEDULED; job++)
        good = decode_job_run(decode, (enum decode_job)job, &lines[job]) && good;
    return good;
}

/* ---- the command ---- */

struct wish {
    struct options options;
    bool quick, flash;
    const char *record, *against; /* files of outputs */
};

/* What everything is compared with: computed here, or recorded elsewhere. */
static bool first_outputs(struct decode *decode, const struct wish *wish) {
    FILE *file;
    bool good;
    if (!decode_texts(decode, wish->options.seed)) return false;
    if (wish->against) {
        file = fopen(wish->against, "rb");
        good = file && decode_read(decode, file);
        if (!file) perror(wish->against);
        printf("# compared with the outputs in %s\n", wish->against);
    } else {
        good = decode_alone(decode);
        printf("# %u texts, %u tokens; each alone in one chunk is what the others are compared "
               "with\n",
               DECODE_TEXTS, decode->store.tokens);
        if (!good || !wish->record) return good;
        file = fopen(wish->record, "wb");
        good = file && decode_write(decode, file);
        if (!file) perror(wish->record);
    }
    return (!file || !fclose(file)) && good;
}

static bool run_all(struct decode *decode, const struct wish *wish,
                    struct decode_workers *workers) {
    struct decode_line lines[DECODE_JOBS] = {0};
    int64_t executed = session_executed(decode->session);
    bool beside = kvf_driver_kind_of(decode->session->driver) == KVF_DRIVER_EXECUTOR;
    if (!first_outputs(decode, wish)) return false;
    if (!wish->quick && beside && !decode_workers_go(decode, workers)) return false;
    head();
    bool good = wish->against || show_dense(decode);
    if (good || !wish->quick) good = tight(decode, wish->quick ? 1 : 2) && good;
    if (!wish->quick) {
        good = (beside ? decode_workers_finish(workers, lines) : jobs_here(decode, lines)) && good;
        for (int job = 0; job < (beside ? DECODE_JOBS : DECODE_SCHEDULED); job++)
            good = show(job_names[job], &lines[job]) && good;
    }
    if (executed >= 0 && session_executed(decode->session) <= executed) {
        printf("the executor executed nothing\n");
        good = false;
    }
    if (good) printf("all outputs are the same bits\n");
    return good;
}

/* Take an option, and the word after it, out of the words. */
static bool take(int *argc, char **argv, const char *name, const char **value) {
    int words = value ? 2 : 1;
    for (int i = 1; i + words <= *argc; i++) {
        if (strcmp(argv[i], name) != 0) continue;
        if (value) *value = argv[i + 1];
        memmove(&argv[i], &argv[i + words], (size_t)(*argc - i - words + 1) * sizeof *argv);
        *argc -= words;
        return true;
    }
    return false;
}

static int parse(int argc, char **argv, struct wish *out) {
    *out = (struct wish){.quick = take(&argc, argv, "--quick", NULL),
                         .flash = take(&argc, argv, "--flash", NULL)};
    take(&argc, argv, "--record", &out->record);
    take(&argc, argv, "--against", &out->against);
    return options_parse(
        argc, argv, "dsg",
        "Serve requests through whole steps of BUNDLE's kernels on the pool, in many ways, and "
        "compare every\nattention output bit for bit.\n\n"
        "  --quick                      one way of serving only, and none if the first outputs are "
        "wrong\n"
        "  --flash                      instead: 8 decode steps behind 4,096 tokens, one layer of "
        "each type\n"
        "  --record FILE                keep the outputs, for --against on another device\n"
        "  --against FILE               compare with outputs that were recorded",
        &out->options);
}

int tool_decode(int argc, char **argv) {
    struct wish wish;
    struct session session;
    struct decode_workers workers = {0};
    struct decode decode = {.session = &session};
    int status = parse(argc, argv, &wish);
    if (status >= 0) return status;
    bool beside = !wish.quick && !wish.flash && wish.options.driver != KVF_DRIVER_CUDA;
    if (beside && !decode_workers_start(&wish.options, &workers)) {
        fprintf(stderr, "kvforge-run: further processes could not be made\n");
        return TOOL_FAILED;
    }
    bool good = session_open(&wish.options, &session);
    if (good && !session.rules.paged) {
        fprintf(stderr, "kvforge-run: the pool needs window_mode = \"paged\"\n");
        good = false;
    }
    if (good && wish.flash) head();
    good = good && (wish.flash ? decode_flash(&session) : run_all(&decode, &wish, &workers));
    if (!good) printf("FAILED\n");
    decode_workers_stop(&workers);
    decode_free(&decode);
    session_close(&session);
    return good ? TOOL_GOOD : TOOL_FAILED;
}
