/* kvforge-run info: what a bundle holds; no driver is needed. */
#include "options.h"
#include "rules.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

static void show_type(const struct rules *rules, const kvf_type_info *type) {
    printf("\n%s: head_dim %u = %u + %u rotated, window %u, ring %u, %s\n", type->name,
           type->head_dim, type->nope_dim, type->rope_dim, type->window, type->ring, type->format);
    if (type->ratio)
        printf("  one entry per %u tokens%s, %u a block\n", type->ratio,
               type->overlap ? ", overlapping" : "", type->k);
    if (type->has_indexer)
        printf("  indexer: %u heads of %u, top %u\n", type->indexer_heads, type->indexer_dim,
               type->indexer_topk);
    printf("  layers: %u, draft layers: %u\n", type->layers, type->draft_layers);
    printf("  bytes a layer: row %llu, block %llu, window block %llu, request %llu\n",
           (unsigned long long)type->row_bytes, (unsigned long long)type->block_bytes,
           (unsigned long long)type->window_block_bytes, (unsigned long long)type->request_bytes);
    for (size_t i = 0; i < rules->kernel_count; i++)
        if (!strcmp(rules->kernels[i].type, type->name))
            printf("  kernel %s for %s\n", rules->kernels[i].name, rules->kernels[i].target);
}

static bool show(const kvf_bundle *bundle, const struct rules *rules) {
    kvf_model_info model;
    kvf_type_info type;
    if (kvf_bundle_model(bundle, &model)) return false;
    printf("%s: %u layer types, %u layers, %u draft layers, block %u, window in %s\n", model.name,
           model.types, model.layers, model.draft_layers, model.block,
           rules->paged ? "pages" : "rings");
    printf("digest %s\n", model.digest);
    printf("bytes, all layers: block %llu, window block %llu, request %llu\n",
           (unsigned long long)model.block_bytes, (unsigned long long)model.window_block_bytes,
           (unsigned long long)model.request_bytes);
    for (uint32_t i = 0; i < model.types; i++) {
        if (kvf_bundle_type(bundle, i, &type)) return false;
        show_type(rules, &type);
    }
    return true;
}

int tool_info(int argc, char **argv) {
    struct options options;
    struct rules rules = {0};
    kvf_bundle *bundle = NULL;
    kvf_error error = {0};
    int status = options_parse(argc, argv, "", "Show what BUNDLE holds.", &options);
    if (status >= 0) return status;
    bool good = !kvf_bundle_open(options.bundle, &bundle, &error);
    if (!good) fprintf(stderr, "kvforge-run: %s\n", error.text);
    good = good && rules_read(options.bundle, &rules) && show(bundle, &rules);
    rules_free(&rules);
    kvf_bundle_close(bundle);
    return good ? TOOL_GOOD : TOOL_FAILED;
}
