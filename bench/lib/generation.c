#include "generation.h"

#include <math.h>
#include <stdio.h>

#include "cubin.h"

enum { MS_TARGET = 10, MB_TARGET = 60, RATIO_TARGET = 10 };

void generation_ptx(const struct generation *g, const char *compiler, int form, char name[128]) {
    (void)snprintf(name, 128, "%s/%s.%d.ptx", g->scratch, compiler, form);
}

static void print_number(double value, int width, int decimals) {
    if (isnan(value))
        printf("%*s", width, "-");
    else
        printf("%*.*f", width, decimals, value);
}

struct row {
    double wall, cpu; /* ms */
    int kernels;      /* that they are for */
    double peak, count;
};

static void print_row(const char *name, struct row row) {
    printf("%-46s", name);
    print_number(row.wall, 9, 1);
    print_number(row.cpu, 9, 1);
    print_number(row.wall / row.kernels, 9, 2);
    print_number(row.cpu / row.kernels, 9, 2);
    print_number(row.peak, 9, 1);
    print_number(row.count / 1e6, 12, 1);
    printf("\n");
}

static void print_kvforge(const struct generation *g) {
    print_row("kvforge build, the whole process",
              (struct row){sample_median(&g->wall), sample_median(&g->cpu), g->kernels,
                           sample_median(&g->peak), g->count});
    print_row("  its own report", (struct row){sample_median(&g->own), NAN, g->kernels, NAN, NAN});
    for (int t = 0; t < g->types; t++) {
        char name[80];
        const struct type_times *type = &g->type[t];
        (void)snprintf(name, sizeof name, "    module %s, %d kernel%s", type->name, type->kernels,
                       type->kernels == 1 ? "" : "s");
        print_row(name, (struct row){sample_median(&type->ms) * type->kernels, NAN, type->kernels,
                                     NAN, NAN});
    }
}

static void print_nvrtc(const struct generation *g, int form) {
    const struct twin_times *t = &g->nvrtc[form];
    char name[80];
    (void)snprintf(name, sizeof name, "NVRTC, %s: first", twin_form_name((enum twin_form)form));
    print_row(name, (struct row){sample_median(&t->first_wall), sample_median(&t->first_cpu), 1,
                                 sample_median(&t->peak), NAN});
    (void)snprintf(name, sizeof name, "NVRTC, %s: later", twin_form_name((enum twin_form)form));
    print_row(name, (struct row){sample_median(&t->wall), sample_median(&t->cpu), 1,
                                 sample_median(&t->peak), g->nvrtc_count[form]});
}

static void print_nvcc(const struct generation *g, int form) {
    const struct twin_times *t = &g->nvcc_times[form];
    char name[80];
    (void)snprintf(name, sizeof name, "nvcc -ptx, %s", twin_form_name((enum twin_form)form));
    print_row(name, (struct row){sample_median(&t->wall), sample_median(&t->cpu), 1,
                                 sample_median(&t->peak), NAN});
}

void generation_print_times(const struct generation *g) {
    printf("%-46s%18s%18s\n", "", "ms in all", "ms a kernel");
    printf("%-46s%9s%9s%9s%9s%9s%12s\n", "", "wall", "CPU", "wall", "CPU", "peak MB", "10^6 instr");
    print_kvforge(g);
    for (int form = 0; form < TWIN_FORMS; form++)
        if (g->has_nvrtc[form]) print_nvrtc(g, form);
    for (int form = 0; g->has_nvcc && form < TWIN_FORMS; form++) print_nvcc(g, form);
}

static void print_target(const char *what, double value, const char *unit, double target,
                         bool at_least) {
    if (isnan(value)) return;
    bool met = at_least ? value >= target : value <= target;
    printf("  %-52s%8.1f %-3s %s %3.0f: %s\n", what, value, unit, at_least ? "at least" : "at most",
           target, met ? "met" : "MISSED");
}

/* Others' work on the machine stretches wall time, and CPU time hardly. */
static void print_quiet(const struct generation *g) {
    double wall = sample_median(&g->wall), cpu = sample_median(&g->cpu);
    if (wall > 1.2 * cpu)
        printf("  The machine was busy: a wall time of %.1f times the CPU time. Go by CPU time.\n",
               wall / cpu);
}

void generation_print_targets(const struct generation *g) {
    const struct twin_times *t = &g->nvrtc[TWIN_HEADERS];
    printf("\nAgainst the targets\n");
    print_quiet(g);
    print_target("a kernel, the whole process, wall", sample_median(&g->wall) / g->kernels, "ms",
                 MS_TARGET, false);
    print_target("  CPU time", sample_median(&g->cpu) / g->kernels, "ms", MS_TARGET, false);
    print_target("peak memory", sample_median(&g->peak), "MB", MB_TARGET, false);
    if (!g->has_nvrtc[TWIN_HEADERS]) return;
    print_target("NVRTC with headers / kvforge a kernel, wall",
                 sample_median(&t->wall) * g->kernels / sample_median(&g->wall), "x", RATIO_TARGET,
                 true);
    print_target("  CPU time", sample_median(&t->cpu) * g->kernels / sample_median(&g->cpu), "x",
                 RATIO_TARGET, true);
    print_target("  instructions", g->nvrtc_count[TWIN_HEADERS] * g->kernels / g->count, "x",
                 RATIO_TARGET, true);
}

static void print_code_row(const struct generation *g, const char *name, const char *ptx,
                           const char *entry) {
    struct cubin_kernel kernel;
    if (cubin_measure(g->ptxas, GENERATION_ARCH, ptx, entry, g->scratch, &kernel))
        printf("  %-44s%10ld%12ld%14ld\n", name, kernel.registers, kernel.spill,
               kernel.instructions);
    else
        printf("  %-44s ptxas refused it\n", name);
}

void generation_print_code(const struct generation *g) {
    char ptx[192], name[80];
    if (!g->has_ptxas) {
        printf("\nNo ptxas: no registers and instructions.\n");
        return;
    }
    printf("\n" GENERATION_KERNEL " of " GENERATION_TYPE ", assembled by ptxas for " GENERATION_ARCH
           "\n  %-44s%10s%12s%14s\n",
           "", "registers", "spill bytes", "instructions");
    (void)snprintf(ptx, sizeof ptx, "%s/" GENERATION_TYPE "." GENERATION_ARCH ".ptx", g->bundle);
    print_code_row(g, "kvforge", ptx, "kvf_" GENERATION_TYPE "_" GENERATION_KERNEL);
    for (int form = 0; form < TWIN_FORMS; form++) {
        const char *compilers[] = {g->has_nvrtc[form] ? "nvrtc" : NULL,
                                   g->has_nvcc ? "nvcc" : NULL};
        for (int i = 0; i < 2; i++) {
            if (!compilers[i]) continue;
            generation_ptx(g, compilers[i], form, ptx);
            (void)snprintf(name, sizeof name, "%s, %s", compilers[i],
                           twin_form_name((enum twin_form)form));
            print_code_row(g, name, ptx, TWIN_ENTRY);
        }
    }
}
