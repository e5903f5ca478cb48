#include "report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report {
    json_t *root; /* null: empty */
};

struct report *report_read(const char *path) {
    json_error_t error;
    struct report *report = calloc(1, sizeof *report);
    if (!report || !path) return report;
    report->root = json_load_file(path, 0, &error);
    if (report->root && json_is_array(json_object_get(report->root, "kernels"))) return report;
    fprintf(stderr, "kvforge-run: %s: %s\n", path,
            report->root ? "there is no array \"kernels\" in it" : error.text);
    report_free(report);
    return NULL;
}

void report_free(struct report *report) {
    if (!report) return;
    json_decref(report->root);
    free(report);
}

static bool is(json_t *kernel, const char *key, const char *text) {
    const char *value = json_string_value(json_object_get(kernel, key));
    return value && !strcmp(value, text);
}

struct report_kernel report_find(const struct report *report, const char *type, const char *kernel,
                                 const char *target) {
    struct report_kernel out = {-1, -1};
    size_t i;
    json_t *at;
    json_array_foreach(json_object_get(report->root, "kernels"), i, at) {
        if (!is(at, "type", type) || !is(at, "kernel", kernel) || !is(at, "target", target))
            continue;
        json_t *ms = json_object_get(at, "ms"), *registers = json_object_get(at, "registers");
        if (json_is_number(ms)) out.ms = json_number_value(ms);
        if (json_is_integer(registers)) out.registers = (int)json_integer_value(registers);
    }
    return out;
}
