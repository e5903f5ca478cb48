/* The pool's geometry from a bundle: what the manifest says, nothing computed a second time. */
#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "pool.h"

/* Bytes of the rows of stream b that a snapshot of one layer keeps. */
static uint64_t snapshot_bytes(const struct bundle_type *type) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; type->info.overlap && i < type->array_count; i++) {
        const struct bundle_array *array = &type->arrays[i];
        size_t length = strlen(array->name);
        bool b = length > 7 && (!strcmp(array->name + length - 7, "tail_kb") ||
                                !strcmp(array->name + length - 7, "tail_zb"));
        b = b || !strcmp(array->name, "tail_kb") || !strcmp(array->name, "tail_zb");
        if (b && array->rank && array->shape[0])
            bytes += array->slot_bytes / array->shape[0] * type->info.ratio;
    }
    return bytes;
}

/* Rows of a page lie at row * row bytes in every plane, or the page ends in footers. */
static void fill_planes(struct pool_type *t, const struct bundle_place *place) {
    t->planes = place->plane_count;
    for (uint32_t i = 0; i < place->plane_count && i < POOL_MAX_PLANES; i++)
        t->plane_row_bytes[i] = place->planes[i].page_bytes / place->rows;
    for (uint32_t i = 0; i < place->field_count; i++) {
        const struct bundle_field *field = &place->fields[i];
        if (field->plane < POOL_MAX_PLANES && field->stride != t->plane_row_bytes[field->plane])
            t->footers = true;
    }
}

static kvf_status fill_type(const struct bundle_type *from, struct pool_type *t, kvf_error *error) {
    const kvf_type_info *info = &from->info;
    const struct bundle_place *window = bundle_place(from, "window");
    const struct bundle_place *rows = bundle_place(from, "compressed");
    const struct bundle_place *index = bundle_place(from, "index");
    *t = (struct pool_type){.ratio = info->ratio,
                            .k = info->k,
                            .layers = info->layers + info->draft_layers,
                            .state_bytes = info->request_bytes,
                            .snapshot_bytes = snapshot_bytes(from)};
    snprintf(t->name, sizeof t->name, "%s", info->name);
    if (!window || window->plane_count > POOL_MAX_PLANES || !window->rows)
        return pool_fail(error, KVF_ERROR_BUNDLE, "type %s has no window place to pool", t->name);
    fill_planes(t, window);
    t->window_page_bytes = window->page_bytes;
    t->block_page_bytes = rows ? rows->page_bytes : 0;
    t->index_page_bytes = index ? index->page_bytes : 0;
    return KVF_OK;
}

static void fill_totals(struct pool_geometry *g, const kvf_bundle *bundle) {
    g->window_bytes = bundle->info.window_block_bytes;
    g->block_bytes = bundle->info.block_bytes;
    g->state_bytes = bundle->info.request_bytes;
    for (uint32_t i = 0; i < g->types; i++)
        g->snapshot_bytes += g->type[i].layers * g->type[i].snapshot_bytes;
    const struct bundle_elastic *e = bundle->elastic;
    if (!e) return;
    g->per_chunk = e->n;
    g->envelope_bytes = e->envelope_bytes;
    g->chunk_bytes = e->chunk_bytes;
    g->state_chunks = e->state_chunks;
    g->state_envelopes = e->state_envelopes;
    g->snapshot_envelopes = e->snapshot_envelopes;
    g->snapshot_bytes = e->snapshot_bytes;
}

kvf_status pool_geometry_from_bundle(const kvf_bundle *bundle, struct pool_geometry *out,
                                     kvf_error *error) {
    struct pool_geometry g = {.block = bundle->info.block,
                              .drafts = bundle->info.drafts,
                              .max_positions = bundle->info.max_positions,
                              .checkpoint = bundle->model.checkpoint,
                              .types = bundle->info.types};
    if (strcmp(bundle->info.window_mode, "paged") != 0)
        return pool_fail(error, KVF_ERROR_BUNDLE,
                         "a pool needs window_mode \"paged\"; the bundle has \"%s\"",
                         bundle->info.window_mode);
    if (g.types > POOL_MAX_TYPES)
        return pool_fail(error, KVF_ERROR_LIMIT, "%u layer types; a pool takes %d", g.types,
                         POOL_MAX_TYPES);
    for (uint32_t i = 0; i < g.types; i++) {
        kvf_status status = fill_type(&bundle->types[i], &g.type[i], error);
        if (status) return status;
        uint32_t window = bundle->types[i].info.window;
        if (g.type[i].layers && window > g.window) g.window = window;
    }
    fill_totals(&g, bundle);
    kvf_status status = pool_geometry_check(&g, error);
    if (!status) *out = g;
    return status;
}

kvf_status kvf_pool_create(const kvf_bundle *bundle, const kvf_pool_options *options,
                           kvf_pool **out, kvf_error *error) {
    struct pool_geometry g;
    if (!bundle || !options || !out)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "pool: null argument");
    kvf_status status = pool_geometry_from_bundle(bundle, &g, error);
    return status ? status : pool_create(&g, options, out, error);
}

kvf_status kvf_pool_plan(const kvf_bundle *bundle, const kvf_pool_options *options,
                         uint32_t context, kvf_plan *out, kvf_error *error) {
    struct pool_geometry g;
    if (!bundle || !options || !out)
        return pool_fail(error, KVF_ERROR_ARGUMENT, "plan: null argument");
    kvf_status status = pool_geometry_from_bundle(bundle, &g, error);
    return status ? status : pool_plan(&g, options, context, out, error);
}
