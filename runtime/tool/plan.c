/* kvforge-run plan: how many requests and tokens a memory holds under each policy of the pool. */
#include "tool.h"

#include "kvforge.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wish {
    const char *bundle;
    uint64_t memory;
    uint32_t context, requests;
};

static void usage(FILE *out) {
    fprintf(out, "usage: kvforge-run plan --memory SIZE [options] BUNDLE\n\n"
                 "Say how many requests and tokens fit into a memory, and what takes its bytes.\n\n"
                 "  --memory SIZE    of the pool, request state included: 80GiB, 500MB, or bytes\n"
                 "  --context N      tokens of each request (8192, or the model's positions)\n"
                 "  --requests M     request states that static and shared set aside (256)\n");
}

/* "80GiB", "80GB", "1000000": powers of 1024 with an i, of 1000 without. 0: not a size. */
static uint64_t parse_size(const char *text) {
    static const char letters[] = "KMGT";
    char *rest;
    double value = strtod(text, &rest);
    if (rest == text || !(value > 0)) return 0;
    const char *letter = *rest ? strchr(letters, *rest) : NULL;
    if (*rest && !letter) return 0;
    if (letter) {
        bool binary = rest[1] == 'i';
        if (strcmp(rest + 1 + binary, "B") != 0) return 0;
        for (int i = 0; i <= (int)(letter - letters); i++) value *= binary ? 1024 : 1000;
    }
    return value < 1e18 ? (uint64_t)value : 0;
}

static uint32_t parse_count(const char *text) {
    char *rest;
    unsigned long value = strtoul(text, &rest, 10);
    return *rest || rest == text || *text == '-' || value > INT32_MAX ? 0 : (uint32_t)value;
}

/* -1 to go on, else an exit status. */
static int parse(int argc, char **argv, struct wish *wish) {
    *wish = (struct wish){.requests = 256};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        bool good = true;
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return usage(stdout), TOOL_GOOD;
        if (word[0] != '-') {
            if (wish->bundle)
                return fprintf(stderr, "kvforge-run: one bundle is enough\n"), usage(stderr),
                       TOOL_USAGE;
            wish->bundle = word;
            continue;
        }
        if (!strcmp(word, "--memory"))
            good = (wish->memory = parse_size(value)) > 0;
        else if (!strcmp(word, "--context"))
            good = (wish->context = parse_count(value)) > 0;
        else if (!strcmp(word, "--requests"))
            good = (wish->requests = parse_count(value)) > 0;
        else
            return fprintf(stderr, "kvforge-run: there is no option \"%s\"\n", word), usage(stderr),
                   TOOL_USAGE;
        if (!good)
            return fprintf(stderr, "kvforge-run: %s: \"%s\" is not a value\n", word, value),
                   TOOL_USAGE;
        i++;
    }
    if (wish->bundle && wish->memory) return -1;
    fprintf(stderr, "kvforge-run: %s is missing\n", wish->bundle ? "--memory" : "a bundle");
    usage(stderr);
    return TOOL_USAGE;
}

static double gib(uint64_t bytes) {
    return (double)bytes / (1 << 30);
}

static void show_policy(const kvf_bundle *bundle, kvf_policy policy, const char *name,
                        const struct wish *wish) {
    kvf_pool_options options = {
        .policy = policy, .bytes = wish->memory, .max_requests = wish->requests};
    kvf_plan plan;
    kvf_error error;
    if (kvf_pool_plan(bundle, &options, wish->context, &plan, &error)) {
        printf("\n%s: not possible: %s\n", name, error.text);
        return;
    }
    printf("\n%s:", name);
    if (plan.chunks) printf(" %u chunks;", plan.chunks);
    if (plan.states) printf(" %u request states;", plan.states);
    printf(" %u window blocks %s %u blocks\n", plan.windows, plan.chunks ? "or" : "and",
           plan.blocks);
    printf("  %u requests of %u tokens at once: %" PRIu64 " tokens; one alone: %u tokens\n",
           plan.requests, wish->context, plan.tokens, plan.longest);
    printf("  a request takes %.2f MiB\n", (double)plan.request_bytes / (1 << 20));
    printf("  GiB: state %.2f, windows %.2f, saved tails %.2f, blocks %.2f, left for the cache "
           "%.2f, of %.2f\n",
           gib(plan.state_bytes), gib(plan.window_bytes), gib(plan.snapshot_bytes),
           gib(plan.block_bytes), gib(plan.unused_bytes), gib(plan.bytes));
}

static void show_model(const kvf_bundle *bundle, const kvf_model_info *model) {
    printf("%s: block %u tokens\n", model->name, model->block);
    printf("  bytes, all layers: block %" PRIu64 ", window block %" PRIu64
           ", request state %" PRIu64 "\n",
           model->block_bytes, model->window_block_bytes, model->request_bytes);
    for (uint32_t i = 0; i < model->types; i++) {
        kvf_type_info type;
        if (kvf_bundle_type(bundle, i, &type)) continue;
        printf("  %s, %u layers: row %" PRIu64 ", block %" PRIu64 ", window block %" PRIu64
               ", request state %" PRIu64 " a layer\n",
               type.name, type.layers + type.draft_layers, type.row_bytes, type.block_bytes,
               type.window_block_bytes, type.request_bytes);
    }
}

int tool_plan(int argc, char **argv) {
    struct wish wish;
    kvf_bundle *bundle = NULL;
    kvf_model_info model;
    kvf_error error;
    int status = parse(argc, argv, &wish);
    if (status >= 0) return status;
    if (kvf_bundle_open(wish.bundle, &bundle, &error) || kvf_bundle_model(bundle, &model)) {
        fprintf(stderr, "kvforge-run: %s\n", error.text);
        return TOOL_FAILED;
    }
    bool good = !strcmp(model.window_mode, "paged");
    if (!wish.context) wish.context = model.max_positions < 8192 ? model.max_positions : 8192;
    if (!good)
        fprintf(stderr, "kvforge-run: a pool needs window_mode \"paged\"; the bundle has \"%s\"\n",
                model.window_mode);
    if (good && wish.context > model.max_positions) {
        fprintf(stderr, "kvforge-run: the model has %u positions\n", model.max_positions);
        good = false;
    }
    if (good) {
        show_model(bundle, &model);
        printf("  memory %.2f GiB\n", gib(wish.memory));
        show_policy(bundle, KVF_POLICY_ELASTIC, "elastic", &wish);
        show_policy(bundle, KVF_POLICY_STATIC, "static", &wish);
        show_policy(bundle, KVF_POLICY_SHARED, "shared", &wish);
    }
    kvf_bundle_close(bundle);
    return good ? TOOL_GOOD : TOOL_FAILED;
}
