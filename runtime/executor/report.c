#include "report.h"

#include <stdarg.h>
#include <stdlib.h>

#include "config.h"
#include "cuda_types.h"

struct finding_entry {
    struct finding_entry *next;
    uint32_t module, function, op, other;
    enum finding_kind kind;
    uint64_t count, folded;
    char title[160];
};

static const struct {
    const char *name;
    int result; /* what the launch fails with */
    bool fatal; /* the launch stops at once */
} kinds[FINDING_COUNT] = {
    [FINDING_BOUNDS] = {"out-of-bounds", CUDA_ERROR_ILLEGAL_ADDRESS, true},
    [FINDING_FREED] = {"use-after-free", CUDA_ERROR_ILLEGAL_ADDRESS, true},
    [FINDING_MISALIGNED] = {"misaligned", CUDA_ERROR_MISALIGNED_ADDRESS, true},
    [FINDING_READ_ONLY] = {"read-only", CUDA_ERROR_ILLEGAL_ADDRESS, true},
    [FINDING_UNINITIALISED_BRANCH] = {"uninitialised-branch", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_UNINITIALISED_ADDRESS] = {"uninitialised-address", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_UNINITIALISED_STORE] = {"uninitialised-store", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_SHUFFLE] = {"shuffle", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_WARP_MASK] = {"warp-mask", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_DIVERGENT_BARRIER] = {"divergent-barrier", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_BARRIER] = {"barrier", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_DEADLOCK] = {"deadlock", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_STEPS] = {"step-limit", CUDA_ERROR_LAUNCH_TIMEOUT, true},
    [FINDING_RACE_SHARED] = {"race-shared", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_RACE_GLOBAL] = {"race-global", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_ASYNC] = {"async", CUDA_ERROR_LAUNCH_FAILED, false},
    [FINDING_MBARRIER] = {"mbarrier", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_STACK] = {"stack", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_CALL] = {"call", CUDA_ERROR_LAUNCH_FAILED, true},
    [FINDING_ASSERT] = {"assert", CUDA_ERROR_ASSERT, true},
    [FINDING_LEAK] = {"leak", 0, false},
};

bool reporter_start(struct reporter *r, const struct config *config) {
    memset(r, 0, sizeof *r);
    if (pthread_mutex_init(&r->lock, NULL)) return false;
    r->json = config->json;
    r->show_notes = config->notes;
    r->file = stderr;
    if (config->report && *config->report) {
        FILE *file = fopen(config->report, "we");
        if (file) {
            r->file = file;
            r->owned = true;
            r->show_notes = true;
        }
    }
    return true;
}

void reporter_stop(struct reporter *r) {
    while (r->entries) {
        struct finding_entry *next = r->entries->next;
        free(r->entries);
        r->entries = next;
    }
    if (r->owned) fclose(r->file);
    pthread_mutex_destroy(&r->lock);
    memset(r, 0, sizeof *r);
}

void reporter_fold(struct reporter *r) {
    pthread_mutex_lock(&r->lock);
    for (struct finding_entry *e = r->entries; e; e = e->next) {
        uint64_t again = e->count - 1 - e->folded;
        bool note = e->other & 0x80000000u;
        if (!again || (note && !r->show_notes)) continue;
        e->folded += again;
        if (r->json)
            fprintf(r->file, "{\"repeat\": \"%s\", \"times\": %llu}\n", e->title,
                    (unsigned long long)again);
        else
            fprintf(r->file, "kvforge executor: again %llu times: %s\n", (unsigned long long)again,
                    e->title);
    }
    fflush(r->file);
    pthread_mutex_unlock(&r->lock);
}

/* The entry of a finding, made at its first occurrence; null when it is an old one. */
static struct finding_entry *first_time(struct reporter *r, const struct finding_entry *key) {
    for (struct finding_entry *e = r->entries; e; e = e->next) {
        if (e->module != key->module || e->function != key->function || e->op != key->op ||
            e->other != key->other || e->kind != key->kind)
            continue;
        e->count++;
        r->occurrences++;
        return NULL;
    }
    struct finding_entry *e = malloc(sizeof *e);
    if (!e) return NULL;
    *e = *key;
    e->count = 1;
    e->next = r->entries;
    r->entries = e;
    r->occurrences++;
    return e;
}

static void print_json_text(FILE *file, const char *name, const char *text) {
    fprintf(file, ", \"%s\": \"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", file);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    }
    fputc('"', file);
}

struct place {
    const char *kernel, *function;
    uint32_t line, block[3], thread[3];
    char text[200];
    bool known;
};

static void place_of(struct place *p, const struct warp *w, const struct op *o, uint32_t lane) {
    const struct launch *l = w->block->launch;
    uint32_t t = w->index * LANES + lane;
    p->kernel = l->function->name;
    p->function = w->frame ? w->frame->function->name : p->kernel;
    p->line = o->line;
    memcpy(p->block, w->block->id, sizeof p->block);
    p->thread[0] = t % l->dimensions[0];
    p->thread[1] = t / l->dimensions[0] % l->dimensions[1];
    p->thread[2] = t / l->dimensions[0] / l->dimensions[1];
    module_line(l->module, o->line, p->text, sizeof p->text);
    p->known = true;
}

static void print_finding(struct reporter *r, const char *kind, const char *title,
                          const struct place *p, const char *details, bool note) {
    FILE *f = r->file;
    snprintf(r->last, sizeof r->last, "%s", title);
    if (r->json) {
        fprintf(f, "{\"%s\": \"%s\"", note ? "note" : "finding", kind);
        print_json_text(f, "text", title);
        if (p->known) {
            print_json_text(f, "kernel", p->kernel);
            print_json_text(f, "function", p->function);
            fprintf(f, ", \"line\": %u", p->line);
            print_json_text(f, "instruction", p->text);
            fprintf(f, ", \"block\": [%u, %u, %u], \"thread\": [%u, %u, %u]", p->block[0],
                    p->block[1], p->block[2], p->thread[0], p->thread[1], p->thread[2]);
        }
        if (details && *details) print_json_text(f, "details", details);
        fputs("}\n", f);
    } else {
        fprintf(f, "kvforge executor: %s%s: %s\n", note ? "note: " : "", kind, title);
        if (p->known) {
            fprintf(f, "  kernel %s", p->kernel);
            if (strcmp(p->kernel, p->function) != 0) fprintf(f, ", in %s", p->function);
            fprintf(f, ", line %u: %s\n  block (%u,%u,%u), thread (%u,%u,%u)\n", p->line, p->text,
                    p->block[0], p->block[1], p->block[2], p->thread[0], p->thread[1],
                    p->thread[2]);
        }
        if (details && *details) fprintf(f, "  %s\n", details);
    }
    fflush(f);
}

uint32_t op_number(const struct warp *w, const struct op *o) {
    return w->code ? (uint32_t)(o - w->code) : 0;
}

static void stop_launch(struct warp *w, enum finding_kind kind) {
    struct launch *l = w->block->launch;
    int none = 0;
    __atomic_compare_exchange_n((int *)&l->result, &none, kinds[kind].result, false,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (!kinds[kind].fatal) return;
    __atomic_store_n((int *)&l->stop, 1, __ATOMIC_SEQ_CST);
    warp_yield(w);
}

void report_lane(struct warp *w, const struct op *o, uint32_t lane, enum finding_kind kind,
                 uint32_t other, const char *details, const char *format, ...) {
    struct launch *l = w->block->launch;
    struct reporter *r = l->reporter;
    struct finding_entry key = {.module = l->module->id,
                                .function = w->frame ? w->frame->function->index : 0,
                                .op = op_number(w, o),
                                .other = other,
                                .kind = kind};
    pthread_mutex_lock(&r->lock);
    struct finding_entry *e = first_time(r, &key);
    if (e) {
        char title[800];
        va_list args;
        va_start(args, format);
        vsnprintf(title, sizeof title, format, args);
        va_end(args);
        snprintf(e->title, sizeof e->title, "%s at line %u of %s", kinds[kind].name, o->line,
                 l->function->name);
        struct place place = {0};
        place_of(&place, w, o, lane);
        r->findings++;
        print_finding(r, kinds[kind].name, title, &place, details, false);
    }
    pthread_mutex_unlock(&r->lock);
    stop_launch(w, kind);
}

void report_note(struct warp *w, const struct op *o, uint32_t lane, enum finding_kind kind,
                 uint32_t other, const char *format, ...) {
    struct launch *l = w->block->launch;
    struct reporter *r = l->reporter;
    struct finding_entry key = {.module = l->module->id,
                                .function = w->frame ? w->frame->function->index : 0,
                                .op = op_number(w, o),
                                .other = other | 0x80000000u,
                                .kind = kind};
    pthread_mutex_lock(&r->lock);
    struct finding_entry *e = first_time(r, &key);
    if (e) {
        char title[800];
        va_list args;
        va_start(args, format);
        vsnprintf(title, sizeof title, format, args);
        va_end(args);
        snprintf(e->title, sizeof e->title, "%s at line %u of %s", kinds[kind].name, o->line,
                 l->function->name);
        struct place place = {0};
        place_of(&place, w, o, lane);
        r->notes++;
        if (r->show_notes) print_finding(r, kinds[kind].name, title, &place, NULL, true);
    }
    pthread_mutex_unlock(&r->lock);
}

void report_plain(struct reporter *r, enum finding_kind kind, const char *format, ...) {
    char title[800];
    va_list args;
    va_start(args, format);
    vsnprintf(title, sizeof title, format, args);
    va_end(args);
    struct place none = {0};
    pthread_mutex_lock(&r->lock);
    r->findings++;
    r->occurrences++;
    print_finding(r, kinds[kind].name, title, &none, NULL, false);
    pthread_mutex_unlock(&r->lock);
}
