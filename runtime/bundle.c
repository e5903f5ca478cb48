/* Opening a bundle, and what it says about itself. */
#include "bundle.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "digest.h"
#include "error.h"
#include "manifest.h"

/*
 * Read a module's file. What is checked here is what will be given to the driver: it stays in
 * memory.
 */
static kvf_status read_checked(struct kvf_bundle *bundle, const struct bundle_source *source,
                               const char *file, uint64_t want, const char *sha256,
                               const char **out, kvf_error *error) {
    char *text;
    uint64_t bytes;
    kvf_status status =
        source->read(source, &bundle->arena, file, MANIFEST_PTX, &text, &bytes, error);
    if (status != KVF_OK) return status;
    if (bytes != want)
        return error_set(error, KVF_ERROR_BUNDLE, "%s has %llu bytes, the manifest says %llu", file,
                         (unsigned long long)bytes, (unsigned long long)want);
    char hex[DIGEST_HEX + 1];
    digest_of(&(struct digest_piece){text, bytes}, 1, hex);
    if (strcmp(hex, sha256) != 0)
        return error_set(error, KVF_ERROR_BUNDLE,
                         "%s is not the file the manifest names: its SHA-256 is %s, not %s", file,
                         hex, sha256);
    *out = text;
    return KVF_OK;
}

static kvf_status read_module(struct kvf_bundle *bundle, const struct bundle_source *source,
                              struct bundle_module *module, kvf_error *error) {
    kvf_status status = read_checked(bundle, source, module->file, module->bytes, module->sha256,
                                     &module->text, error);
    if (status != KVF_OK) return status;
    /* The driver reads PTX up to a 0 byte, so one inside would hide the rest. */
    if (memchr(module->text, 0, module->bytes))
        return error_set(error, KVF_ERROR_BUNDLE, "%s holds a 0 byte: it is not PTX text",
                         module->file);
    if (!module->cubin_file) return KVF_OK;
    return read_checked(bundle, source, module->cubin_file, module->cubin_bytes,
                        module->cubin_sha256, &module->cubin, error);
}

static kvf_status read_bundle(struct kvf_bundle *bundle, const struct bundle_source *source,
                              kvf_error *error) {
    char *text;
    uint64_t bytes;
    struct arena scratch = {0}; /* the manifest's text; what is kept of it is copied */
    kvf_status status =
        source->read(source, &scratch, "manifest.json", MANIFEST_BYTES, &text, &bytes, error);
    if (status == KVF_OK) status = manifest_read(bundle, text, bytes, error);
    arena_free(&scratch);
    for (uint32_t i = 0; i < bundle->module_count && status == KVF_OK; i++)
        status = read_module(bundle, source, &bundle->modules[i], error);
    return status;
}

static kvf_status open_source(const struct bundle_source *source, kvf_bundle **out,
                              kvf_error *error) {
    struct kvf_bundle *bundle = calloc(1, sizeof *bundle);
    if (!bundle) return error_memory(error, "opening the bundle");
    kvf_status status = read_bundle(bundle, source, error);
    if (status == KVF_OK)
        *out = bundle;
    else
        kvf_bundle_close(bundle);
    return status;
}

kvf_status kvf_bundle_open(const char *directory, kvf_bundle **out, kvf_error *error) {
    if (!directory || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_bundle_open: %s is null",
                         directory ? "out" : "directory");
    struct bundle_source source;
    kvf_status status = bundle_directory(&source, directory, error);
    if (status != KVF_OK) return status;
    status = open_source(&source, out, error);
    close(source.directory);
    return status;
}

kvf_status kvf_bundle_open_memory(const kvf_file *files, uint32_t count, kvf_bundle **out,
                                  kvf_error *error) {
    if (!files || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_bundle_open_memory: %s is null",
                         files ? "out" : "files");
    struct bundle_source source;
    bundle_memory(&source, files, count);
    return open_source(&source, out, error);
}

void kvf_bundle_close(kvf_bundle *bundle) {
    if (!bundle) return;
    arena_free(&bundle->arena);
    free(bundle);
}

kvf_status kvf_bundle_model(const kvf_bundle *bundle, kvf_model_info *out) {
    if (!bundle || !out) return KVF_ERROR_ARGUMENT;
    *out = bundle->info;
    return KVF_OK;
}

kvf_status kvf_bundle_type(const kvf_bundle *bundle, uint32_t type, kvf_type_info *out) {
    if (!bundle || !out) return KVF_ERROR_ARGUMENT;
    if (type >= bundle->info.types) return KVF_ERROR_NOT_FOUND;
    *out = bundle->types[type].info;
    return KVF_OK;
}

kvf_status kvf_bundle_layer(const kvf_bundle *bundle, uint32_t layer, uint32_t *type,
                            uint32_t *layer_of_type) {
    if (!bundle || !type || !layer_of_type) return KVF_ERROR_ARGUMENT;
    if (layer >= bundle->info.layers + bundle->info.draft_layers) return KVF_ERROR_NOT_FOUND;
    *type = bundle->layers[layer].type;
    *layer_of_type = bundle->layers[layer].layer_of_type;
    return KVF_OK;
}

const struct bundle_place *bundle_place(const struct bundle_type *type, const char *name) {
    for (uint32_t i = 0; i < type->place_count; i++)
        if (strcmp(type->places[i].name, name) == 0) return &type->places[i];
    return NULL;
}
