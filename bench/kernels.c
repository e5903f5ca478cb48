/*
 * What each kernel template costs to build: kvforge runs with a directory of templates that holds
 * this one alone, and, for what every build costs, with one that holds none.
 *
 *     build/bench/kernels [rounds]       from the root of the source tree
 *
 * Rounds alternate between the templates; docs/bench.md says how to read the table.
 */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/machine.h"
#include "lib/process.h"
#include "lib/sample.h"

#define SPEC "examples/deepseek-v4-flash-ring.lua"

enum { ROUNDS = 5, MAX_TEMPLATES = 64 };

struct template_times {
    char name[64], directory[160];
    int kernels; /* that the spec's layer types have of it */
    struct sample wall, cpu, peak;
};

struct bench {
    char scratch[64], kvforge[512], root[512];
    int core, rounds, count;
    struct template_times template[MAX_TEMPLATES]; /* [0]: no template */
};

/* ---- a directory for each template ---- */

static bool add_template(struct bench *b, const char *name) {
    char to[256], from[800];
    if (b->count == MAX_TEMPLATES || strlen(name) >= sizeof b->template[0].name) return false;
    struct template_times *t = &b->template[b->count++];
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    (void)snprintf(to, sizeof to, "%s/%d", b->scratch, b->count);
    memcpy(t->directory, to, sizeof t->directory - 1); /* zero behind it: from calloc */
    if (mkdir(t->directory, 0777)) return false;
    (void)snprintf(from, sizeof from, "%s/templates/lib", b->root);
    (void)snprintf(to, sizeof to, "%s/lib", t->directory);
    if (symlink(from, to)) return false;
    if (b->count == 1) return true;
    (void)snprintf(from, sizeof from, "%s/templates/%s.lua", b->root, name);
    (void)snprintf(to, sizeof to, "%s/%s.lua", t->directory, name);
    return symlink(from, to) == 0;
}

static int by_name(const void *a, const void *b) {
    const struct template_times *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool add_all(struct bench *b) {
    DIR *directory = opendir("templates");
    struct dirent *entry;
    bool good = directory && add_template(b, "(none)");
    while (good && (entry = readdir(directory))) {
        char name[256];
        (void)snprintf(name, sizeof name, "%s", entry->d_name);
        char *end = strrchr(name, '.');
        if (name[0] == '.' || !end || strcmp(end, ".lua") != 0) continue;
        *end = 0;
        good = add_template(b, name);
    }
    if (directory) closedir(directory);
    if (good) qsort(b->template + 1, (size_t)b->count - 1, sizeof *b->template, by_name);
    return good;
}

/* ---- rounds ---- */

static bool build(struct bench *b, struct template_times *t) {
    char out[128], report[128];
    struct process_cost cost;
    (void)snprintf(out, sizeof out, "%s/bundle", b->scratch);
    (void)snprintf(report, sizeof report, "%s/report.json", b->scratch);
    const char *argv[] = {b->kvforge, "build", SPEC,          "-o",         out,
                          "--report", report,  "--templates", t->directory, NULL};
    struct process process = {.argv = argv, .env = "KVF_PTXAS=", .core = b->core};
    if (!process_run(&process, &cost)) return false;
    json_t *tree = json_load_file(report, 0, NULL);
    t->kernels = (int)json_array_size(json_object_get(tree, "kernels"));
    json_decref(tree);
    sample_add(&t->wall, cost.wall);
    sample_add(&t->cpu, cost.cpu);
    sample_add(&t->peak, cost.peak);
    return true;
}

/* ---- the table ---- */

static void print_table(const struct bench *b) {
    double none = sample_median(&b->template[0].cpu), all = none;
    printf("%-20s%9s%10s%10s%10s%22s\n", "template", "kernels", "ms wall", "ms CPU", "peak MB",
           "ms CPU a kernel more");
    for (int i = 0; i < b->count; i++) {
        const struct template_times *t = &b->template[i];
        double cpu = sample_median(&t->cpu);
        printf("%-20s%9d%10.1f%10.1f%10.1f", t->name, t->kernels, sample_median(&t->wall), cpu,
               sample_median(&t->peak));
        if (t->kernels) printf("%22.2f", (cpu - none) / t->kernels);
        printf("\n");
        all += cpu - none;
    }
    printf("%-20s%29.1f\n", "sum, none once", all);
}

static bool run_bench(struct bench *b) {
    int cores;
    const char *built = getenv("KVF_BUILD");
    if (!process_scratch(b->scratch) || !getcwd(b->root, sizeof b->root) || !add_all(b))
        return false;
    b->core = process_core(&cores);
    (void)snprintf(b->kvforge, sizeof b->kvforge, "%s/bin/kvforge", built ? built : "build");
    machine_print();
    printf("%s, one target, medians of %d alternating rounds on core %d\n\n", SPEC, b->rounds,
           b->core);
    for (int round = 0; round < b->rounds; round++)
        for (int i = 0; i < b->count; i++)
            if (!build(b, &b->template[i])) {
                fprintf(stderr, "kernels: %s does not build alone\n", b->template[i].name);
                return false;
            }
    print_table(b);
    return true;
}

int main(int argc, char **argv) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return 1;
    b->rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : ROUNDS;
    bool good = b->rounds > 0 && b->rounds <= SAMPLE_MAX && run_bench(b);
    if (!good) fprintf(stderr, "kernels: failed\n");
    if (b->scratch[0]) process_remove(b->scratch);
    free(b);
    return good ? 0 : 1;
}
