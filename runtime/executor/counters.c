#include "counters.h"

#include <stdlib.h>

#include "access.h"
#include "driver.h"
#include "executor.h"
#include "launch.h"

_Static_assert((int)KVF_CLASSES == (int)CLASS_COUNT, "the public classes are the table's");

void counters_sum(struct counters *total, const struct counters *part) {
    uint64_t *t = (uint64_t *)total;
    const uint64_t *p = (const uint64_t *)part;
    for (size_t i = 0; i < sizeof *total / sizeof *t; i++) t[i] += p[i];
}

/* ---- operations ---- */

/* Multiplications of one mma, from the shape in its pattern: m16n8k16 makes 2048. */
static uint64_t macs_of(const struct op *o) {
    unsigned m, n, k;
    const char *at = strstr(form_table[o->form].pattern, ".m");
    if (!at || sscanf(at, ".m%3un%3uk%3u", &m, &n, &k) != 3) return 0;
    return (uint64_t)m * n * k;
}

static void count_operation(struct worker *worker, const struct op *o, uint32_t lanes,
                            uint64_t one) {
    struct counters *c = worker->counters;
    enum form_class class = form_table[o->form].class;
    c->class_warps[class] += one;
    c->class_lanes[class] += one * (uint64_t)__builtin_popcount(lanes);
    if (class == CLASS_TENSOR && lanes) c->tensor_macs += one * macs_of(o);
}

void counter_operation(struct worker *worker, const struct warp *w, const struct op *o,
                       uint32_t lanes) {
    (void)w;
    count_operation(worker, o, lanes, 1);
}

void counter_undo(struct worker *worker, const struct warp *w, uint32_t lanes) {
    count_operation(worker, &w->code[w->pc - 1], lanes, UINT64_MAX);
}

/* ---- memory ---- */

enum { SECTOR = 32, BANKS = 32 };

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t distinct(uint64_t *list, uint64_t count) {
    if (!count) return 0;
    qsort(list, count, sizeof *list, by_number);
    uint64_t n = 1;
    for (uint64_t i = 1; i < count; i++) n += list[i] != list[i - 1];
    return n;
}

static void count_global(struct counters *c, const struct access *a) {
    uint64_t sectors[LANES * 2], starts[LANES], n = 0, lanes = 0;
    EACH_SET_LANE(i, a->lanes) {
        sectors[n++] = a->address[i] / SECTOR;
        if ((a->address[i] + a->bytes - 1) / SECTOR != a->address[i] / SECTOR)
            sectors[n++] = (a->address[i] + a->bytes - 1) / SECTOR;
        starts[lanes++] = a->address[i];
    }
    uint64_t bytes = lanes * a->bytes;
    c->sectors_moved += distinct(sectors, n);
    c->sectors_needed += (distinct(starts, lanes) * a->bytes + SECTOR - 1) / SECTOR;
    if (a->kind & ACCESS_WRITE) {
        c->global_stores++;
        c->global_store_bytes += bytes;
    } else {
        c->global_loads++;
        c->global_load_bytes += bytes;
    }
}

/* Passes of `lanes` of an access: the most distinct words that fall into one bank. */
static uint64_t passes(const struct access *a, uint32_t lanes) {
    uint64_t words[LANES * 4];
    uint32_t n = 0, in_bank[BANKS] = {0}, most = 0;
    EACH_SET_LANE(i, lanes)
    for (uint64_t word = a->at[i] / 4; word <= (a->at[i] + a->bytes - 1) / 4; word++)
        if (n < LANES * 4) words[n++] = word;
    if (!n) return 0;
    qsort(words, n, sizeof *words, by_number);
    for (uint32_t i = 0; i < n; i++) {
        if (i && words[i] == words[i - 1]) continue;
        uint32_t *bank = &in_bank[words[i] % BANKS];
        if (++*bank > most) most = *bank;
    }
    return most;
}

/* Wide accesses are served by half or quarter warps: as many bytes as all banks give at once. */
static void count_shared(struct counters *c, const struct access *a) {
    uint32_t step = a->bytes <= 4 ? 32 : a->bytes == 8 ? 16 : 8;
    c->shared_accesses++;
    c->shared_bytes += (uint64_t)__builtin_popcount(a->lanes) * a->bytes;
    for (uint32_t first = 0; first < LANES; first += step) {
        uint32_t part = step == 32 ? ALL_LANES : ((1u << step) - 1) << first;
        uint64_t n = passes(a, a->lanes & part);
        if (n > 1) c->bank_conflicts += n - 1;
    }
}

void counter_access(struct access *a) {
    struct counters *c = a->w->worker->counters;
    if (a->in == SPACE_SHARED)
        count_shared(c, a);
    else if (a->in == SPACE_LOCAL)
        c->local_bytes += (uint64_t)__builtin_popcount(a->lanes) * a->bytes;
    else
        count_global(c, a);
}

/* ---- by kernel ---- */

struct kernel_counters {
    struct kernel_counters *next;
    kvfExecutorKernel kernel;
};

static struct kernel_counters *kernels, **kernels_end = &kernels;

static kvfExecutorKernel *find_kernel(const char *name) {
    for (struct kernel_counters *k = kernels; k; k = k->next)
        if (!strcmp(k->kernel.name, name)) return &k->kernel;
    struct kernel_counters *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->kernel.size = sizeof k->kernel;
    snprintf(k->kernel.name, sizeof k->kernel.name, "%.127s", name);
    *kernels_end = k;
    kernels_end = &k->next;
    return &k->kernel;
}

void counters_add(const char *name, const struct launch *l, const struct launch_totals *t) {
    if (!l->config->count) return;
    kvfExecutorKernel *k = find_kernel(name);
    if (!k) return;
    const struct counters *c = &t->counters;
    k->launches++;
    k->blocks += t->blocks;
    k->threads += t->blocks * l->dimensions[0] * l->dimensions[1] * l->dimensions[2];
    k->warp_instructions += t->warp_instructions;
    k->lane_instructions += t->lane_instructions;
    for (int i = 0; i < CLASS_COUNT; i++) {
        k->class_warps[i] += c->class_warps[i];
        k->class_lanes[i] += c->class_lanes[i];
    }
    k->global_loads += c->global_loads;
    k->global_stores += c->global_stores;
    k->global_load_bytes += c->global_load_bytes;
    k->global_store_bytes += c->global_store_bytes;
    k->sectors_moved += c->sectors_moved;
    k->sectors_needed += c->sectors_needed;
    k->shared_accesses += c->shared_accesses;
    k->shared_bytes += c->shared_bytes;
    k->bank_conflicts += c->bank_conflicts;
    k->local_bytes += c->local_bytes;
    k->tensor_macs += c->tensor_macs;
}

static const char *const class_names[CLASS_COUNT] = {"integer", "float", "convert", "move",
                                                     "load",    "store", "atomic",  "control",
                                                     "barrier", "warp",  "tensor",  "async"};

static void write_classes(FILE *f, const char *name, const uint64_t *values) {
    fprintf(f, " \"%s\": {", name);
    for (int i = 0; i < CLASS_COUNT; i++)
        fprintf(f, "%s\"%s\": %llu", i ? ", " : "", class_names[i], (unsigned long long)values[i]);
    fprintf(f, "},\n");
}

static void write_kernel(FILE *f, const kvfExecutorKernel *k) {
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {{"launches", k->launches},
                  {"blocks", k->blocks},
                  {"threads", k->threads},
                  {"warp_instructions", k->warp_instructions},
                  {"lane_instructions", k->lane_instructions},
                  {"global_loads", k->global_loads},
                  {"global_stores", k->global_stores},
                  {"global_load_bytes", k->global_load_bytes},
                  {"global_store_bytes", k->global_store_bytes},
                  {"sectors_moved", k->sectors_moved},
                  {"sectors_needed", k->sectors_needed},
                  {"shared_accesses", k->shared_accesses},
                  {"shared_bytes", k->shared_bytes},
                  {"bank_conflicts", k->bank_conflicts},
                  {"local_bytes", k->local_bytes},
                  {"tensor_macs", k->tensor_macs}};
    fprintf(f, "{\"kernel\": \"%s\",\n", k->name);
    write_classes(f, "class_warps", k->class_warps);
    write_classes(f, "class_lanes", k->class_lanes);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        fprintf(f, "%s\"%s\": %llu", i ? ", " : " ", fields[i].name,
                (unsigned long long)fields[i].value);
    fprintf(f, "}");
}

void counters_write(const char *path) {
    FILE *f = fopen(path, "we");
    if (!f) return;
    fprintf(f, "[");
    for (const struct kernel_counters *k = kernels; k; k = k->next) {
        if (k != kernels) fprintf(f, ",\n");
        write_kernel(f, &k->kernel);
    }
    fprintf(f, "]\n");
    fclose(f);
}

void counters_clear(void) {
    while (kernels) {
        struct kernel_counters *next = kernels->next;
        free(kernels);
        kernels = next;
    }
    kernels_end = &kernels;
}

CU_EXPORT int kvfExecutorCount(int on);
CU_EXPORT size_t kvfExecutorKernels(kvfExecutorKernel *list, size_t count);

int kvfExecutorCount(int on) {
    pthread_mutex_lock(&driver.lock);
    int before = driver.config.count;
    driver.config.count = on != 0;
    return driver_leave(before);
}

size_t kvfExecutorKernels(kvfExecutorKernel *list, size_t count) {
    pthread_mutex_lock(&driver.lock);
    size_t n = 0;
    for (const struct kernel_counters *k = kernels; k; k = k->next, n++) {
        if (n >= count || !list) continue;
        size_t size =
            list[n].size && list[n].size < sizeof k->kernel ? list[n].size : sizeof k->kernel;
        memcpy(&list[n], &k->kernel, size);
    }
    pthread_mutex_unlock(&driver.lock);
    return n;
}
