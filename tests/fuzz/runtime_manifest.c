/*
 * The manifest reader on any bytes. Modules are given the digest they have, and a text that has a
 * place for its checksum the right one, so that inputs which keep to the form reach the end;
 * whatever is opened is walked through as a program would.
 */
#include <sha2.h>
#include <stdlib.h>
#include <string.h>

#include "bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char ptx[] = ".version 7.8\n.target sm_80\n";

static void walk(const kvf_bundle *bundle) {
    kvf_model_info model;
    uint32_t type, number;
    uint64_t size;
    float row[4096];
    if (kvf_bundle_model(bundle, &model) != KVF_OK) __builtin_trap();
    for (uint32_t i = 0; i < model.types; i++) {
        kvf_type_info info;
        if (kvf_bundle_type(bundle, i, &info) != KVF_OK) __builtin_trap();
        if (info.rope_dim <= sizeof row / sizeof row[0])
            (void)kvf_rope_table(bundle, i, 1, row, NULL);
        (void)bundle_place(&bundle->types[i], "window");
    }
    for (uint32_t i = 0; i < model.layers + model.draft_layers; i++)
        if (kvf_bundle_layer(bundle, i, &type, &number) != KVF_OK || type >= model.types)
            __builtin_trap();
    (void)kvf_layout_bytes(bundle, 1u << 30, &size, NULL);
}

/* A copy of the input, with the checksum that it must have; free it. */
static uint8_t *sealed(const uint8_t *data, size_t bytes) {
    static const char key[] = "\"checksum\": \"";
    char hex[SHA256_DIGEST_STRING_LENGTH];
    uint8_t *text = malloc(bytes + 1);
    if (!text) abort();
    memcpy(text, data, bytes);
    uint8_t *at = memmem(text, bytes, key, sizeof key - 1);
    if (!at || bytes - (size_t)(at - text) < sizeof key - 1 + 64) return text;
    memset(at + sizeof key - 1, '0', 64);
    SHA256Data(text, bytes, hex);
    memcpy(at + sizeof key - 1, hex, 64);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint8_t *text = sealed(data, bytes);
    const kvf_file files[] = {{"manifest.json", text, bytes},
                              {"a.ptx", ptx, sizeof ptx - 1},
                              {"b.ptx", ptx, sizeof ptx - 1}};
    kvf_error error;
    kvf_bundle *bundle = NULL;
    kvf_status status = kvf_bundle_open_memory(files, 3, &bundle, &error);
    if ((status == KVF_OK) != (bundle != NULL)) __builtin_trap();
    if (status != KVF_OK && (error.status != status || !error.text[0])) __builtin_trap();
    if (bundle) walk(bundle);
    kvf_bundle_close(bundle);
    free(text);
    return 0;
}
