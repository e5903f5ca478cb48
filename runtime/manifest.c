/* The manifest's top: the document itself, the model, and which type each layer has. */
#include "manifest.h"

#include <ctype.h>
#include <string.h>

#include "digest.h"
#include "error.h"

const char *manifest_name(struct json_reader *r, const struct json_node *object, const char *key) {
    const char *name = json_get_text(r, object, key, MANIFEST_NAME, false);
    if (!json_reader_good(r)) return name;
    bool good = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *at = name; *at; at++)
        good = good && (isalnum((unsigned char)*at) || strchr("_-.", *at));
    if (!good) json_refuse(r, object, key, "is \"%s\", which is not a name", name);
    return name;
}

enum dtype manifest_dtype(struct json_reader *r, const struct json_node *object, const char *key) {
    const char *name = json_get_text(r, object, key, MANIFEST_NAME, false);
    enum dtype type = dtype_find(name);
    if (type != DTYPE_COUNT) return type;
    if (json_reader_good(r)) json_refuse(r, object, key, "is \"%s\", an unknown dtype", name);
    return DTYPE_U8;
}

const char *manifest_sha256(struct json_reader *r, const struct json_node *object,
                            const char *key) {
    const char *hex = json_get_text(r, object, key, MANIFEST_TEXT, false);
    if (json_reader_good(r) &&
        (strlen(hex) != DIGEST_HEX || strspn(hex, "0123456789abcdef") != DIGEST_HEX))
        json_refuse(r, object, key, "is not 64 lower-case hex digits");
    return hex;
}

static void read_targets(struct json_reader *r, const struct json_node *model) {
    uint32_t count;
    struct json_node targets = json_get_array(r, model, "targets", MANIFEST_MODULES, &count);
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct target target;
        const char *name = json_item_text(r, &targets, i, MANIFEST_NAME);
        struct json_node item = json_item(&targets, i);
        if (json_reader_good(r) && !target_parse(name, &target))
            json_refuse(r, &item, NULL, "is \"%s\", which is not a target", name);
    }
}

static void read_model(struct json_reader *r, struct kvf_bundle *bundle,
                       const struct json_node *root) {
    struct json_node model = json_get_object(r, root, "model");
    kvf_model_info *info = &bundle->info;
    struct bundle_model *more = &bundle->model;
    info->name = manifest_name(r, &model, "name");
    info->heads = json_get_u32(r, &model, "heads", 1, 65536);
    info->block = json_get_u32(r, &model, "block", 1, 65536);
    info->drafts = json_get_u32(r, &model, "drafts", 0, 65536);
    info->max_positions = json_get_u32(r, &model, "max_positions", 1, INT32_MAX);
    info->window_mode = json_get_text(r, &model, "window_mode", MANIFEST_NAME, false);
    if (json_reader_good(r) && strcmp(info->window_mode, "ring") != 0 &&
        strcmp(info->window_mode, "paged") != 0)
        json_refuse(r, &model, "window_mode", "is \"%s\", allowed are \"ring\" and \"paged\"",
                    info->window_mode);
    more->input_dtype = dtype_name(manifest_dtype(r, &model, "input_dtype"));
    more->state_dtype = dtype_name(manifest_dtype(r, &model, "state_dtype"));
    more->norm_eps = json_get_double(r, &model, "norm_eps", 0, 1);
    more->kv_norm = json_get_bool(r, &model, "kv_norm");
    more->ape_on_write = json_get_bool(r, &model, "ape_on_write");
    more->round_before_norm = json_get_bool(r, &model, "round_before_norm");
    more->round_before_rope = json_get_bool(r, &model, "round_before_rope");
    more->hadamard = json_get_bool(r, &model, "hadamard");
    more->online = json_get_bool(r, &model, "online");
    more->page_align = json_get_u32(r, &model, "page_align", 1, 65536);
    more->split_rows = json_get_u32(r, &model, "split_rows", 0, MANIFEST_DIM);
    more->checkpoint = json_get_u32(r, &model, "checkpoint", 0, MANIFEST_DIM);
    read_targets(r, &model);
}

static void read_types(struct json_reader *r, struct kvf_bundle *bundle,
                       const struct json_node *root) {
    uint32_t count;
    struct json_node types = json_get_array(r, root, "types", MANIFEST_TYPES, &count);
    if (!json_reader_good(r)) return;
    bundle->types = arena_take(r->arena, count, sizeof *bundle->types);
    if (!bundle->types) return json_no_memory(r);
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node type = json_object_item(r, &types, i);
        manifest_type(r, bundle, i, &type);
        bundle->info.types = i + 1;
        if (json_reader_good(r) && i > 0 &&
            strcmp(bundle->types[i - 1].info.name, bundle->types[i].info.name) >= 0)
            json_refuse(r, &type, "name", "is \"%s\", not in order after \"%s\"",
                        bundle->types[i].info.name, bundle->types[i - 1].info.name);
    }
}

/* Read one list of type names into `layers`, continuing the count of each type in `seen`. */
static void read_layers(struct json_reader *r, struct kvf_bundle *bundle,
                        const struct json_node *list, uint32_t count, struct bundle_layer *layers,
                        uint32_t *seen) {
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        const char *name = json_item_text(r, list, i, MANIFEST_NAME);
        uint32_t type = 0;
        while (type < bundle->info.types && strcmp(bundle->types[type].info.name, name) != 0)
            type++;
        struct json_node item = json_item(list, i);
        if (json_reader_good(r) && type == bundle->info.types)
            json_refuse(r, &item, NULL, "is \"%s\", which is no layer type", name);
        if (json_reader_good(r))
            layers[i] = (struct bundle_layer){.type = type, .layer_of_type = seen[type]++};
    }
}

static void check_layer_counts(struct json_reader *r, const struct kvf_bundle *bundle,
                               const struct json_node *root, const uint32_t *main,
                               const uint32_t *all) {
    for (uint32_t i = 0; i < bundle->info.types && json_reader_good(r); i++) {
        const kvf_type_info *type = &bundle->types[i].info;
        if (type->layers != main[i] || type->draft_layers != all[i] - main[i])
            json_refuse(r, root, "layers",
                        "name type \"%s\" %u + %u times, but the type says %u + %u (drafts)",
                        type->name, main[i], all[i] - main[i], type->layers, type->draft_layers);
    }
}

static void read_layer_lists(struct json_reader *r, struct kvf_bundle *bundle,
                             const struct json_node *root) {
    uint32_t seen[MANIFEST_TYPES] = {0}, main[MANIFEST_TYPES];
    uint32_t layers, drafts;
    struct json_node main_list = json_get_array(r, root, "layers", MANIFEST_LAYERS, &layers);
    struct json_node draft_list = json_get_array(r, root, "draft_layers", MANIFEST_LAYERS, &drafts);
    if (!json_reader_good(r)) return;
    bundle->layers = arena_take(r->arena, layers + drafts, sizeof *bundle->layers);
    if (!bundle->layers) return json_no_memory(r);
    bundle->info.layers = layers;
    bundle->info.draft_layers = drafts;
    read_layers(r, bundle, &main_list, layers, bundle->layers, seen);
    memcpy(main, seen, sizeof main);
    read_layers(r, bundle, &draft_list, drafts, bundle->layers + layers, seen);
    check_layer_counts(r, bundle, root, main, seen);
}

static void read_totals(struct json_reader *r, struct kvf_bundle *bundle,
                        const struct json_node *root) {
    struct json_node bytes = json_get_object(r, root, "bytes");
    bundle->info.block_bytes = json_get_u64(r, &bytes, "block", 0, MANIFEST_SIZE);
    bundle->info.window_block_bytes = json_get_u64(r, &bytes, "window_block", 0, MANIFEST_SIZE);
    bundle->info.request_bytes = json_get_u64(r, &bytes, "request", 0, MANIFEST_SIZE);
}

/*
 * The text must be the one that was written, to the last byte: an offset that is another one reads
 * as well as the right one. Last of all, because what else is wrong says more.
 */
static void check_checksum(struct json_reader *r, const struct json_node *root, const char *text,
                           uint64_t bytes) {
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    _Static_assert(sizeof zeros == DIGEST_HEX + 1, "as many zeros as a digest has digits");
    const char *sum = manifest_sha256(r, root, "checksum");
    if (!json_reader_good(r)) return;
    const char *at = memmem(text, bytes, sum, DIGEST_HEX);
    if (!at) {
        json_refuse(r, root, "checksum", "is written in another way than as 64 hex digits");
        return;
    }
    char hex[DIGEST_HEX + 1];
    const char *behind = at + DIGEST_HEX;
    const struct digest_piece pieces[] = {{text, (size_t)(at - text)},
                                          {zeros, DIGEST_HEX},
                                          {behind, bytes - (size_t)(behind - text)}};
    digest_of(pieces, 3, hex);
    if (strcmp(hex, sum) != 0)
        json_refuse(r, root, "checksum", "is %s, but that of the file as it is now is %s", sum,
                    hex);
}

static void read_document(struct json_reader *r, struct kvf_bundle *bundle,
                          const struct json_value *document, const char *text, uint64_t bytes) {
    struct json_node root = {.value = document};
    if (document->kind != JSON_KIND_OBJECT) {
        json_refuse(r, &root, NULL, "is not an object");
        return;
    }
    /* The format first: nothing else means anything in another one. */
    uint64_t format = json_get_u64(r, &root, "format", 0, UINT32_MAX);
    if (json_reader_good(r) && format != 1)
        json_refuse(r, &root, "format", "is %llu; this library reads format 1",
                    (unsigned long long)format);
    bundle->generator = json_get_text(r, &root, "kvforge", MANIFEST_TEXT, false);
    bundle->llvm = json_get_text(r, &root, "llvm", MANIFEST_TEXT, false);
    bundle->info.digest = json_get_text(r, &root, "digest", MANIFEST_TEXT, false);
    read_model(r, bundle, &root);
    read_types(r, bundle, &root);
    read_layer_lists(r, bundle, &root);
    read_totals(r, bundle, &root);
    manifest_arena(r, bundle, &root);
    manifest_modules(r, bundle, &root);
    check_checksum(r, &root, text, bytes);
}

kvf_status manifest_read(struct kvf_bundle *bundle, const char *text, uint64_t bytes,
                         kvf_error *error) {
    struct arena scratch = {0}; /* the document itself; what is kept is copied */
    const struct json_value *document;
    kvf_status status = json_parse(&scratch, "manifest.json", text, bytes, &document, error);
    if (status == KVF_OK) {
        struct json_reader reader = {
            .arena = &bundle->arena, .file = "manifest.json", .error = error, .status = KVF_OK};
        read_document(&reader, bundle, document, text, bytes);
        status = reader.status;
    }
    arena_free(&scratch);
    return status;
}
