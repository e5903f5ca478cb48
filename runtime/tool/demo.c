/*
 * kvforge-run demo: a state cache for eight requests, prompts and decode steps through every layer
 * type, and the proof that every byte of the cache is what it must be.
 */
#include "demo.h"

#include "report.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- setting up ---- */

static void choose_layers(struct demo_type *at) {
    uint32_t total = at->info.layers + at->info.draft_layers;
    const uint32_t wish[DEMO_LAYERS] = {0, total / 2, total - 1};
    for (uint32_t i = 0; i < DEMO_LAYERS && total; i++)
        if (!at->driven || at->layers[at->driven - 1] != wish[i])
            at->layers[at->driven++] = wish[i];
}

static bool make_rope(struct demo *demo, struct demo_type *at, uint32_t type) {
    size_t bytes = 4 * (size_t)SCHEDULE_POSITIONS * at->rules.rope_dim;
    kvf_error error;
    if (!buffer_create(&demo->session, "rope", bytes, false, &at->rope)) return false;
    if (kvf_rope_table(demo->session.bundle, type, SCHEDULE_POSITIONS, buffer_floats(&at->rope),
                       &error))
        return session_fail("rope table", &error);
    return buffer_upload(&demo->session, &at->rope);
}

static bool make_tables(struct demo *demo, struct demo_type *at, uint32_t type) {
    return make_rope(demo, at, type) &&
           demo_weights(demo, "norm_weight", at->rules.head_dim, &at->weight) &&
           demo_compressor_open(demo, type, false) && demo_compressor_open(demo, type, true);
}

static int find_job(const char *name) {
    int job = 0;
    while (job < DEMO_JOBS && strcmp(demo_job_names[job], name) != 0) job++;
    return job;
}

/* The kernels of the type that write the state cache and the pages. */
static bool open_kernels(struct demo *demo, struct demo_type *at) {
    const struct rules *rules = &demo->session.rules;
    for (size_t i = 0; i < rules->kernel_count; i++) {
        if (strcmp(rules->kernels[i].type, at->info.name) != 0) continue;
        int job = find_job(rules->kernels[i].name);
        if (job == DEMO_JOBS || at->kernels[job].present) continue; /* or for another target */
        at->kernels[job].present = true;
        if (!call_open(&demo->session, at->info.name, demo_job_names[job], &at->kernels[job].call))
            return false;
    }
    return true;
}

static bool open_type(struct demo *demo, uint32_t type) {
    struct demo_type *at = &demo->types[type];
    struct session *session = &demo->session;
    if (kvf_bundle_type(session->bundle, type, &at->info) ||
        !rules_of_type(&session->rules, &at->info, &at->rules))
        return false;
    choose_layers(at);
    return !at->driven || (make_tables(demo, at, type) && open_kernels(demo, at));
}

static bool open_all(struct demo *demo, const struct options *options) {
    struct session *session = &demo->session;
    kvf_cache_options cache = {.slots = SCHEDULE_SLOTS};
    kvf_error error;
    if (!session_open(options, session)) return false;
    if (session->rules.paged) {
        fprintf(stderr,
                "kvforge-run: the demo fills a state cache: it needs window_mode = \"ring\"\n");
        return false;
    }
    if (session->model.types > DEMO_TYPES) {
        fprintf(stderr, "kvforge-run: more than %d layer types\n", DEMO_TYPES);
        return false;
    }
    if (kvf_cache_create(session->library, &cache, NULL, &demo->cache, &error))
        return session_fail("state cache", &error);
    if (!session_wait(session) || !mirror_create(session, demo->cache, &demo->mirror)) return false;
    for (uint32_t type = 0; type < session->model.types; type++)
        if (!open_type(demo, type)) return false;
    return true;
}

static void close_all(struct demo *demo) {
    for (uint32_t type = 0; type < DEMO_TYPES; type++) {
        buffer_destroy(&demo->session, &demo->types[type].rope);
        buffer_destroy(&demo->session, &demo->types[type].weight);
        demo_compressor_close(demo, &demo->types[type].compressors[0]);
        demo_compressor_close(demo, &demo->types[type].compressors[1]);
    }
    mirror_destroy(&demo->mirror);
    kvf_cache_destroy(demo->cache);
    session_close(&demo->session);
}

/* ---- proving ---- */

/* The kernel that writes an array. */
static struct demo_kernel *writer(struct demo *demo, const struct mirror_array *array) {
    struct demo_kernel *kernels = demo->types[array->type].kernels;
    if (!strncmp(array->name, "tail_", 5)) return &kernels[DEMO_TAIL_APPEND];
    if (!strncmp(array->name, "idx_tail_", 9)) return &kernels[DEMO_INDEX_TAIL_APPEND];
    return &kernels[DEMO_SWA_WRITE];
}

static bool is_driven(const struct demo_type *at, uint32_t layer) {
    for (uint32_t i = 0; i < at->driven; i++)
        if (at->layers[i] == layer) return true;
    return false;
}

static void explain(const struct demo_type *at, const struct mirror_array *array, uint32_t layer,
                    const struct difference *difference) {
    printf("# %s layer %u of the type, %s: %zu bytes differ, first in slot %llu at byte %llu: got "
           "%02x, want %02x\n",
           at->info.name, layer, array->name, difference->count,
           (unsigned long long)(difference->offset / array->slot_stride),
           (unsigned long long)(difference->offset % array->slot_stride), difference->got,
           difference->want);
}

/*
 * Compare an array in its driven layers, or in all: in a layer that is not driven the image is the
 * initial value. `*others` counts the bytes of such layers.
 */
static bool prove_array(struct demo *demo, const struct mirror_array *array, bool all,
                        uint64_t *others) {
    struct demo_type *at = &demo->types[array->type];
    struct demo_kernel *kernel = writer(demo, array);
    struct difference difference;
    for (uint32_t layer = 0; layer < at->info.layers + at->info.draft_layers; layer++) {
        bool driven = is_driven(at, layer) && kernel->present;
        if (!driven && !all) continue;
        if (!mirror_compare(&demo->mirror, array, layer, &difference)) return false;
        *(driven ? &kernel->compared : others) += array->layer_stride;
        if (!difference.count) continue;
        kernel->differs = true;
        explain(at, array, layer, &difference);
    }
    return true;
}

static bool prove(struct demo *demo, bool all, uint64_t *others) {
    for (size_t i = 0; i < demo->mirror.count; i++)
        if (!prove_array(demo, &demo->mirror.arrays[i], all, others)) return false;
    for (uint32_t type = 0; all && type < demo->session.model.types; type++)
        if (!demo_compressor_prove(demo, type, false) || !demo_compressor_prove(demo, type, true))
            return false;
    return true;
}

/* ---- serving ---- */

/* What was written is compared first: a reset would hide a wrong position, head or length. */
static bool reset_slots(struct demo *demo, const struct schedule *schedule) {
    uint64_t others = 0;
    if (schedule->reset_count && !prove(demo, false, &others)) return false;
    for (uint32_t type = 0; type < demo->session.model.types && schedule->reset_count; type++)
        if (demo->types[type].kernels[DEMO_STATE_RESET].present &&
            !demo_state_reset(demo, type, schedule->reset, schedule->reset_count))
            return false;
    return true;
}

/* All driven layers of a type, in step order in each. */
static bool run_type(struct demo *demo, uint32_t type, const struct demo_step *step) {
    const struct demo_type *at = &demo->types[type];
    for (uint32_t n = 0; n < at->driven; n++)
        if (!demo_swa_write(demo, type, n, step) ||
            !demo_compressor_run(demo, type, false, n, step) ||
            !demo_compressor_run(demo, type, true, n, step))
            return false;
    return true;
}

static bool run_step(struct demo *demo) {
    struct demo_step step;
    bool good = demo_step_open(demo, &step);
    for (uint32_t type = 0; good && type < demo->session.model.types; type++)
        good = run_type(demo, type, &step);
    demo_step_close(demo, &step);
    return good;
}

static bool serve(struct demo *demo) {
    struct schedule *schedule = &demo->schedule;
    bool more = true;
    schedule_init(schedule);
    while (more) {
        if (!schedule_step(schedule, demo->cache, &demo->batch, &more)) return false;
        if (!reset_slots(demo, schedule)) return false;
        if (more && !run_step(demo)) return false;
    }
    return true;
}

/* ---- the table ---- */

static bool kernel_good(const struct demo_kernel *kernel) {
    return kernel->work && kernel->executed && kernel->compared && !kernel->differs;
}

static bool show_kernel(const struct demo_kernel *kernel, const struct report *report,
                        const char *unit) {
    const kvf_kernel_info *info = &kernel->call.info;
    struct report_kernel figures = report_find(report, info->type, info->name, info->target);
    char ms[16] = "-", registers[16] = "-";
    if (figures.ms >= 0) snprintf(ms, sizeof ms, "%.1f", figures.ms);
    if (figures.registers >= 0) snprintf(registers, sizeof registers, "%d", figures.registers);
    printf("%-10s %-17s %-7s %9llu %7s %5s %9llu %-6s  %s\n", info->type, info->name, info->target,
           (unsigned long long)info->ptx_bytes, ms, registers, (unsigned long long)kernel->work,
           unit,
           kernel_good(kernel) ? "equal"
           : kernel->differs   ? "DIFFERS"
                               : "NOT RUN");
    return kernel_good(kernel);
}

static bool show_table(const struct demo *demo, const struct report *report) {
    bool good = true;
    printf("\n%-10s %-17s %-7s %9s %7s %5s %16s  %s\n", "layer type", "kernel", "target",
           "PTX bytes", "gen ms", "regs", "tokens", "result");
    for (uint32_t type = 0; type < demo->session.model.types; type++)
        for (int job = 0; job < DEMO_JOBS; job++) {
            const struct demo_kernel *kernel = &demo->types[type].kernels[job];
            if (!kernel->present) continue;
            const char *unit = job == DEMO_STATE_RESET ? "slots" : "tokens";
            good = show_kernel(kernel, report, unit) && good;
        }
    return good;
}

static void show_run(const struct demo *demo, uint64_t undriven) {
    const struct schedule *schedule = &demo->schedule;
    const kvf_model_info *model = &demo->session.model;
    printf("\n%u requests over %u slots (%u slots reused), %u steps (%u of decode only), %u tokens "
           "and %u padded\n",
           SCHEDULE_REQUESTS, SCHEDULE_SLOTS, schedule->slots_reused, schedule->steps,
           schedule->decode_steps, schedule->tokens, schedule->padding);
    uint64_t pages = 0;
    for (uint32_t type = 0; type < model->types; type++)
        pages += demo->types[type].kernels[DEMO_COMPRESS].compared +
                 demo->types[type].kernels[DEMO_INDEX_COMPRESS].compared;
    printf("state cache of %u layers and %u draft layers: %llu bytes, all compared, %llu of them "
           "in layers that were not driven; pages: %llu bytes\n",
           model->layers, model->draft_layers, (unsigned long long)demo->mirror.bytes,
           (unsigned long long)undriven, (unsigned long long)pages);
}

static bool run(struct demo *demo, const struct options *options, const struct report *report) {
    uint64_t undriven = 0;
    if (!open_all(demo, options) || !serve(demo)) return false;
    if (!prove(demo, true, &undriven)) return false;
    bool good = show_table(demo, report);
    show_run(demo, undriven);
    printf("%s\n", good ? "every byte is what it must be" : "FAILED");
    return good;
}

int tool_demo(int argc, char **argv) {
    struct options options;
    int status =
        options_parse(argc, argv, "dsgr",
                      "Serve prompts and decode steps of several requests through BUNDLE's "
                      "kernels on a state cache,\nand compare every byte of it.",
                      &options);
    if (status >= 0) return status;
    struct report *report = report_read(options.report);
    struct demo *demo = calloc(1, sizeof *demo);
    bool good = report && demo;
    if (good) {
        demo->random = options.seed * 2 + 1;
        good = run(demo, &options, report);
        close_all(demo);
    }
    free(demo);
    report_free(report);
    return good ? TOOL_GOOD : TOOL_FAILED;
}
