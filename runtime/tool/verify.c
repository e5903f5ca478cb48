/* kvforge-run verify: every kernel of a bundle against its reference, case by case, as TAP. */
#include "verify.h"

#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct verifier {
    const char *kernel;
    bool (*run)(struct verify *verify, const struct subject *subject);
} verifiers[] = {
    {"swa_write", verify_swa_write},
    {"state_reset", verify_state_reset},
    {"tail_append", verify_tail_append},
    {"index_tail_append", verify_tail_append},
    {"compress", verify_compress},
    {"index_compress", verify_compress},
    {"swa_write_workspace", verify_swa_write},
    {"workspace_fill", verify_workspace_fill},
    {"row_lists", verify_lists},
    {"row_lists_workspace", verify_lists},
    {"translate_pack", verify_lists},
    {"row_lists_packed", verify_packed},
    {"row_lists_packed_prefill", verify_packed},
    {"translate_pack_packed", verify_packed},
    {"q_norm_rope", verify_query},
    {"inverse_rope", verify_query},
    {"indexer_query", verify_indexer_query},
    {"indexer_scores", verify_indexer_scores},
    {"indexer_topk", verify_indexer_topk},
    {"attn", verify_attn},
    {"attn_combine", verify_attn_combine},
    {"rows_copy", verify_rows_copy},
};

bool outputs_remember(struct outputs *outputs) {
    for (unsigned i = 0; i < outputs->count; i++) {
        size_t total = outputs->list[i]->total;
        outputs->before[i] = malloc(total);
        if (!outputs->before[i]) return false;
        memcpy(outputs->before[i], outputs->list[i]->image, total);
    }
    return true;
}

static void forget(struct outputs *outputs) {
    for (unsigned i = 0; i < VERIFY_OUTPUTS; i++) {
        free(outputs->before[i]);
        outputs->before[i] = NULL;
    }
}

static uint64_t count_changed(const struct outputs *outputs) {
    uint64_t count = 0;
    for (unsigned i = 0; i < outputs->count; i++)
        count +=
            difference_of("", outputs->list[i]->image, outputs->before[i], outputs->list[i]->total)
                .count;
    return count;
}

static void explain(const struct difference *at) {
    printf("#   %s: %zu bytes differ, first at byte %zd: got %02x, want %02x\n", at->name,
           at->count, (ssize_t)at->offset, at->got, at->want);
}

static void print_case(struct verify *verify, const struct subject *subject, bool good,
                       const char *what, uint32_t tokens, uint64_t changed, uint64_t compared) {
    verify->compared += compared;
    verify->failed += !good;
    printf("%sok %u - %s/%s: %s (%u tokens, %llu bytes written, %llu compared)\n",
           good ? "" : "not ", ++verify->cases, subject->info->name, subject->kernel, what, tokens,
           (unsigned long long)changed, (unsigned long long)compared);
}

void verify_property(struct verify *verify, const struct subject *subject, bool good,
                     const char *what, uint32_t tokens, uint64_t compared) {
    print_case(verify, subject, good, what, tokens, 0, compared);
}

void verify_case(struct verify *verify, const struct subject *subject, struct outputs *outputs,
                 bool ran, const char *what, uint32_t tokens) {
    struct difference differences[VERIFY_OUTPUTS] = {0};
    uint64_t changed = count_changed(outputs), compared = 0;
    bool equal = ran;
    for (unsigned i = 0; i < outputs->count && ran; i++) {
        ran = buffer_compare(verify->session, outputs->list[i], &differences[i]);
        equal = equal && ran && !differences[i].count;
        compared += outputs->list[i]->total;
    }
    verify->broken = verify->broken || !ran;
    verify->changed += changed;
    print_case(verify, subject, equal, what, tokens, changed, compared);
    if (!ran) printf("#   the launch failed\n");
    for (unsigned i = 0; i < outputs->count; i++) {
        if (!differences[i].count) continue;
        explain(&differences[i]);
        buffer_upload(verify->session, outputs->list[i]);
    }
    fflush(stdout);
    forget(outputs);
}

static const struct verifier *find(const char *kernel) {
    for (size_t i = 0; i < sizeof verifiers / sizeof *verifiers; i++)
        if (!strcmp(verifiers[i].kernel, kernel)) return &verifiers[i];
    return NULL;
}

/* One kernel of one type. A kernel that wrote nothing in any of its cases was not verified. */
static bool run_one(struct verify *verify, const struct subject *subject) {
    const struct verifier *verifier = find(subject->kernel);
    uint64_t changed = verify->changed;
    int64_t executed = session_executed(verify->session);
    bool good = verifier && verifier->run(verify, subject);
    bool ran = executed < 0 || session_executed(verify->session) > executed;
    bool real = good && ran && verify->changed > changed;
    verify->failed += !real;
    printf("%sok %u - %s/%s: %s\n", real ? "" : "not ", ++verify->cases, subject->info->name,
           subject->kernel,
           real        ? "was really executed"
           : !verifier ? "there is no reference for this kernel"
                       : "the kernel did not run, or wrote nothing");
    return !verify->broken;
}

/* All kernels of a layer type, or of the common module. */
static bool run_kernels(struct verify *verify, const struct options *options,
                        struct subject *subject) {
    const struct rules *rules = &verify->session->rules;
    for (size_t i = 0; i < rules->kernel_count; i++) {
        const struct rules_kernel *kernel = &rules->kernels[i];
        if (strcmp(kernel->type, subject->info->name) != 0 || rules_seen_before(rules, i)) continue;
        if (!options_name(options->kernel, kernel->name)) continue;
        subject->kernel = kernel->name;
        if (!run_one(verify, subject)) return false;
    }
    return true;
}

static bool run_type(struct verify *verify, const struct options *options, uint32_t type) {
    kvf_type_info info;
    struct subject subject = {.info = &info};
    if (kvf_bundle_type(verify->session->bundle, type, &info)) return false;
    if (!options_name(options->type, info.name)) return true;
    return rules_of_type(&verify->session->rules, &info, &subject.rules) &&
           run_kernels(verify, options, &subject);
}

static bool run_common(struct verify *verify, const struct options *options) {
    const kvf_type_info info = {.name = "common"};
    struct subject subject = {.info = &info};
    return !options_name(options->type, info.name) || run_kernels(verify, options, &subject);
}

static const char *name_of(const struct rules_kernel *kernel, bool type) {
    return type ? kernel->type : kernel->name;
}

/* Whether the bundle has a kernel, or a layer type, of that name; if not, say which it has. */
static bool known(const struct rules *rules, const char *filter, bool type) {
    for (size_t i = 0; i < rules->kernel_count; i++)
        if (options_name(filter, name_of(&rules->kernels[i], type))) return true;
    fprintf(stderr, "kvforge-run verify: the bundle has no %s \"%s\"; it has",
            type ? "layer type" : "kernel", filter);
    for (size_t i = 0; i < rules->kernel_count; i++) {
        const char *name = name_of(&rules->kernels[i], type);
        size_t first = 0;
        while (strcmp(name_of(&rules->kernels[first], type), name) != 0) first++;
        if (first == i) fprintf(stderr, "%s %s", i ? "," : "", name);
    }
    fprintf(stderr, "\n");
    return false;
}

/* Everything that is wanted, once; true if all of it was executed and equal. */
static bool verify_once(const struct options *options) {
    struct session session;
    struct verify verify = {.session = &session, .random = options->seed * 2 + 1};
    bool good = session_open(options, &session) && known(&session.rules, options->type, true) &&
                known(&session.rules, options->kernel, false);
    for (uint32_t type = 0; good && type < session.model.types; type++)
        good = run_type(&verify, options, type);
    good = good && run_common(&verify, options);
    good = good && verify.cases > 0 && !verify.failed;
    printf("1..%u\n# %u cases, %u failed, %llu bytes written, %llu compared\n", verify.cases,
           verify.cases, verify.failed, (unsigned long long)verify.changed,
           (unsigned long long)verify.compared);
    if (!verify.cases) printf("# nothing was executed\n");
    session_close(&session);
    return good;
}

int tool_verify(int argc, char **argv) {
    struct options options;
    int status = options_parse(argc, argv, "dsktgno",
                               "Run every kernel of BUNDLE on random and adversarial inputs, and "
                               "compare every byte with the\nreferences. Prints TAP.",
                               &options);
    if (status >= 0) return status;
    bool good = options.schedules ? verify_schedules(&options, verify_once) : verify_once(&options);
    return good ? TOOL_GOOD : TOOL_FAILED;
}
