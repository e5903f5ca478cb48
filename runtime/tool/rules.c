#include "rules.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail(const char *directory, const char *text) {
    fprintf(stderr, "kvforge-run: %s/manifest.json: %s\n", directory, text);
    return false;
}

static bool flag(json_t *model, const char *name) {
    return json_is_true(json_object_get(model, name));
}

static bool text_is(json_t *model, const char *name, const char *text) {
    const char *value = json_string_value(json_object_get(model, name));
    return value && !strcmp(value, text);
}

static void read_rules(json_t *model, struct rules *out) {
    out->split_rows = (uint32_t)json_integer_value(json_object_get(model, "split_rows"));
    out->paged = text_is(model, "window_mode", "paged");
    out->model = (struct ref_type){
        .block = (uint32_t)json_integer_value(json_object_get(model, "block")),
        .drafts = (uint32_t)json_integer_value(json_object_get(model, "drafts")),
        .page_align = (uint32_t)json_integer_value(json_object_get(model, "page_align")),
        .input = text_is(model, "input_dtype", "f32") ? REF_F32 : REF_BFLOAT,
        .state = text_is(model, "state_dtype", "f32") ? REF_F32 : REF_BFLOAT,
        .kv_norm = flag(model, "kv_norm"),
        .ape_on_write = flag(model, "ape_on_write"),
        .round_before_norm = flag(model, "round_before_norm"),
        .round_before_rope = flag(model, "round_before_rope"),
        .hadamard = flag(model, "hadamard"),
        .online = flag(model, "online"),
        .norm_eps = (float)json_number_value(json_object_get(model, "norm_eps")),
    };
}

static void copy_name(char *to, size_t bytes, json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(to, bytes, "%s", text ? text : "");
}

static bool read_kernels(json_t *modules, struct rules *out) {
    size_t m, k, total = 0;
    json_t *module, *kernel;
    json_array_foreach(modules, m, module) total +=
        json_array_size(json_object_get(module, "kernels"));
    out->kernels = calloc(total ? total : 1, sizeof *out->kernels);
    if (!out->kernels) return false;
    json_array_foreach(modules, m, module)
        json_array_foreach(json_object_get(module, "kernels"), k, kernel) {
        struct rules_kernel *at = &out->kernels[out->kernel_count++];
        copy_name(at->type, sizeof at->type, module, "type");
        copy_name(at->target, sizeof at->target, module, "target");
        copy_name(at->name, sizeof at->name, kernel, "name");
    }
    return true;
}

static bool read_indexes(json_t *types, struct rules *out) {
    size_t i;
    json_t *type;
    size_t total = json_array_size(types);
    out->indexes = calloc(total ? total : 1, sizeof *out->indexes);
    if (!out->indexes) return false;
    json_array_foreach(types, i, type) {
        json_t *indexer = json_object_get(type, "indexer");
        if (!indexer) continue;
        struct rules_index *at = &out->indexes[out->index_count++];
        copy_name(at->type, sizeof at->type, type, "name");
        copy_name(at->format, sizeof at->format, indexer, "format");
    }
    return true;
}

bool rules_read(const char *directory, struct rules *out) {
    char path[4096];
    json_error_t error;
    memset(out, 0, sizeof *out);
    if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", directory) >= sizeof path)
        return fail(directory, "the path is too long");
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) return fail(directory, error.text);
    json_t *model = json_object_get(root, "model");
    bool good = json_is_object(model);
    if (good) read_rules(model, out);
    good = good && read_kernels(json_object_get(root, "modules"), out) &&
           read_indexes(json_object_get(root, "types"), out);
    json_decref(root);
    return good || fail(directory, "there is no model in it, or memory is short");
}

void rules_free(struct rules *rules) {
    free(rules->kernels);
    free(rules->indexes);
    memset(rules, 0, sizeof *rules);
}

enum ref_format rules_index_format(const struct rules *rules, const char *type) {
    for (size_t i = 0; i < rules->index_count; i++)
        if (!strcmp(rules->indexes[i].type, type)) return ref_format_find(rules->indexes[i].format);
    return REF_FORMATS;
}

bool rules_of_type(const struct rules *rules, const kvf_type_info *info, struct ref_type *out) {
    *out = rules->model;
    out->format = ref_format_find(info->format);
    out->head_dim = info->head_dim;
    out->rope_dim = info->rope_dim;
    out->window = info->window;
    out->ring = info->ring;
    out->ratio = info->ratio;
    out->overlap = info->overlap;
    if (out->format != REF_FORMATS) return true;
    fprintf(stderr, "kvforge-run: layer type %s: there is no reference for row format %s\n",
            info->name, info->format);
    return false;
}

bool rules_seen_before(const struct rules *rules, size_t index) {
    const struct rules_kernel *list = rules->kernels, *at = &list[index];
    for (size_t i = 0; i < index; i++)
        if (!strcmp(list[i].type, at->type) && !strcmp(list[i].name, at->name)) return true;
    return false;
}
