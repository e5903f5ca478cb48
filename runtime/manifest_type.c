/* One object of the manifest's `types`: geometry, places, state arrays. */
#include "manifest.h"

#include <string.h>

static void read_rope(struct json_reader *r, struct bundle_rope *rope,
                      const struct json_node *type) {
    struct json_node node = json_get_object(r, type, "rope");
    /* The frequencies need log(theta) above 0. */
    rope->theta = json_get_double(r, &node, "theta", 1.0000001, 1e30);
    rope->yarn = json_reader_good(r) && json_has(&node, "factor");
    if (!rope->yarn) return;
    rope->factor = json_get_double(r, &node, "factor", 1, 1e9);
    rope->original = json_get_double(r, &node, "original", 1, 1e12);
    rope->beta_fast = json_get_double(r, &node, "beta_fast", 1e-6, 1e9);
    rope->beta_slow = json_get_double(r, &node, "beta_slow", 1e-6, 1e9);
}

static void read_indexer(struct json_reader *r, struct bundle_type *type,
                         const struct json_node *node) {
    type->indexer_format = "";
    type->info.has_indexer = json_has(node, "indexer");
    if (!type->info.has_indexer) return;
    struct json_node indexer = json_get_object(r, node, "indexer");
    type->info.indexer_heads = json_get_u32(r, &indexer, "heads", 1, 65536);
    type->info.indexer_dim = json_get_u32(r, &indexer, "dim", 1, MANIFEST_DIM);
    type->info.indexer_topk = json_get_u32(r, &indexer, "topk", 1, MANIFEST_DIM);
    type->indexer_format = manifest_name(r, &indexer, "format");
}

static void read_planes(struct json_reader *r, struct bundle_place *place,
                        const struct json_node *node) {
    uint32_t count;
    struct json_node list = json_get_array(r, node, "planes", MANIFEST_PLANES, &count);
    if (!json_reader_good(r)) return;
    place->planes = arena_take(r->arena, count, sizeof *place->planes);
    if (!place->planes) return json_no_memory(r);
    place->plane_count = count;
    uint64_t total = 0;
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        struct bundle_plane *plane = &place->planes[i];
        plane->name = manifest_name(r, &item, "name");
        plane->page_bytes = json_get_u64(r, &item, "page_bytes", 1, MANIFEST_SIZE);
        plane->align = json_get_u32(r, &item, "align", 1, 65536);
        total += plane->page_bytes;
    }
    if (json_reader_good(r) && total != place->page_bytes)
        json_refuse(r, node, "page_bytes", "is %llu, but its planes add up to %llu",
                    (unsigned long long)place->page_bytes, (unsigned long long)total);
}

static void read_field(struct json_reader *r, const struct bundle_place *place,
                       struct bundle_field *field, const struct json_node *node) {
    field->name = manifest_name(r, node, "name");
    const char *plane = manifest_name(r, node, "plane");
    field->dtype = manifest_dtype(r, node, "dtype");
    field->count = json_get_u32(r, node, "count", 1, MANIFEST_DIM);
    field->offset = json_get_u64(r, node, "offset", 0, MANIFEST_SIZE);
    field->stride = json_get_u64(r, node, "stride", 0, MANIFEST_DIM);
    if (!json_reader_good(r)) return;
    while (field->plane < place->plane_count &&
           strcmp(place->planes[field->plane].name, plane) != 0)
        field->plane++;
    if (field->plane == place->plane_count)
        return json_refuse(r, node, "plane", "is \"%s\", which is no plane of the place", plane);
    uint64_t end =
        field->offset + (place->rows - 1) * field->stride + dtype_bytes(field->dtype, field->count);
    if (end > place->planes[field->plane].page_bytes)
        json_refuse(r, node, NULL, "ends at byte %llu of a page of %llu", (unsigned long long)end,
                    (unsigned long long)place->planes[field->plane].page_bytes);
}

static void read_fields(struct json_reader *r, struct bundle_place *place,
                        const struct json_node *node) {
    uint32_t count;
    struct json_node list = json_get_array(r, node, "fields", MANIFEST_FIELDS, &count);
    if (!json_reader_good(r)) return;
    place->fields = arena_take(r->arena, count, sizeof *place->fields);
    if (!place->fields) return json_no_memory(r);
    place->field_count = count;
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        read_field(r, place, &place->fields[i], &item);
    }
}

static void read_place(struct json_reader *r, struct bundle_place *place,
                       const struct json_node *node) {
    place->name = manifest_name(r, node, "name");
    place->id = json_get_text(r, node, "id", MANIFEST_NAME, false);
    if (json_reader_good(r) && strcmp(place->id, "slot") != 0 &&
        strcmp(place->id, "window_block") != 0 && strcmp(place->id, "block") != 0)
        json_refuse(r, node, "id",
                    "is \"%s\", allowed are \"slot\", \"window_block\" and \"block\"", place->id);
    place->rows = json_get_u32(r, node, "rows", 1, MANIFEST_DIM);
    place->row_bytes = json_get_u64(r, node, "row_bytes", 1, MANIFEST_SIZE);
    place->page_bytes = json_get_u64(r, node, "page_bytes", 1, MANIFEST_SIZE);
    read_planes(r, place, node);
    read_fields(r, place, node);
}

static void read_places(struct json_reader *r, struct bundle_type *type,
                        const struct json_node *node) {
    uint32_t count;
    struct json_node list = json_get_array(r, node, "places", MANIFEST_PLACES, &count);
    if (!json_reader_good(r)) return;
    type->places = arena_take(r->arena, count, sizeof *type->places);
    if (!type->places) return json_no_memory(r);
    type->place_count = count;
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        read_place(r, &type->places[i], &item);
    }
}

/* The number of elements of one slot; 0 after an error. */
static uint64_t read_shape(struct json_reader *r, struct bundle_array *array,
                           const struct json_node *node) {
    struct json_node shape = json_get_array(r, node, "shape", BUNDLE_RANK, &array->rank);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < array->rank && json_reader_good(r); i++) {
        array->shape[i] = json_item_u64(r, &shape, i, 1, MANIFEST_DIM);
        elements *= array->shape[i];
        if (elements > MANIFEST_SIZE) json_refuse(r, node, "shape", "has too many elements");
    }
    return json_reader_good(r) ? elements : 0;
}

static void read_array(struct json_reader *r, struct bundle_array *array,
                       const struct json_node *node) {
    array->name = manifest_name(r, node, "name");
    array->dtype = manifest_dtype(r, node, "dtype");
    uint64_t elements = read_shape(r, array, node);
    array->init = json_get_double(r, node, "init", -1e300, 1e300);
    array->slot_bytes = json_get_u64(r, node, "slot_bytes", 1, MANIFEST_SIZE);
    array->align = json_get_u32(r, node, "align", 1, 256);
    if (!json_reader_good(r)) return;
    if (array->slot_bytes != dtype_bytes(array->dtype, elements))
        return json_refuse(r, node, "slot_bytes", "is %llu, but dtype and shape make %llu",
                           (unsigned long long)array->slot_bytes,
                           (unsigned long long)dtype_bytes(array->dtype, elements));
    if (!dtype_fill(array->dtype, array->init, &array->fill))
        return json_refuse(r, node, "init", "is %g, which %s cannot hold exactly", array->init,
                           dtype_name(array->dtype));
    if (array->align & (array->align - 1) || array->slot_bytes % array->align)
        json_refuse(r, node, "align", "is %u: it must be a power of two that divides slot_bytes",
                    array->align);
    /* Memory is set in whole elements. */
    else if (array->align < array->fill.width)
        json_refuse(r, node, "align", "is %u, less than an element's %u bytes", array->align,
                    array->fill.width);
}

static void read_state(struct json_reader *r, struct bundle_type *type,
                       const struct json_node *node) {
    uint32_t count;
    struct json_node list = json_get_array(r, node, "state", MANIFEST_ARRAYS, &count);
    if (!json_reader_good(r)) return;
    type->arrays = arena_take(r->arena, count, sizeof *type->arrays);
    if (!type->arrays) return json_no_memory(r);
    type->array_count = count;
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        read_array(r, &type->arrays[i], &item);
        for (uint32_t j = 0; j < i && json_reader_good(r); j++)
            if (strcmp(type->arrays[j].name, type->arrays[i].name) == 0)
                json_refuse(r, &item, "name", "is \"%s\" a second time", type->arrays[i].name);
    }
}

static void check_geometry(struct json_reader *r, const kvf_bundle *bundle,
                           const kvf_type_info *info, const struct json_node *node) {
    if (!json_reader_good(r)) return;
    if (info->rope_dim % 2 || info->rope_dim >= info->head_dim)
        json_refuse(r, node, "rope_dim", "is %u: it must be even and below head_dim",
                    info->rope_dim);
    else if (info->nope_dim != info->head_dim - info->rope_dim)
        json_refuse(r, node, "nope_dim", "is %u, not head_dim - rope_dim", info->nope_dim);
    else if (info->ring != info->window + bundle->info.drafts)
        json_refuse(r, node, "ring", "is %u, not window + drafts", info->ring);
    else if (info->ratio && bundle->info.block % info->ratio)
        json_refuse(r, node, "ratio", "is %u, which does not divide block", info->ratio);
    else if (info->k != (info->ratio ? bundle->info.block / info->ratio : 0))
        json_refuse(r, node, "k", "is %u, not block / ratio", info->k);
    else if (info->overlap && !info->ratio)
        json_refuse(r, node, "overlap", "is true without a ratio");
}

void manifest_type(struct json_reader *r, struct kvf_bundle *bundle, uint32_t index,
                   const struct json_node *node) {
    struct bundle_type *type = &bundle->types[index];
    kvf_type_info *info = &type->info;
    info->name = manifest_name(r, node, "name");
    info->format = manifest_name(r, node, "format");
    info->head_dim = json_get_u32(r, node, "head_dim", 1, MANIFEST_DIM);
    info->rope_dim = json_get_u32(r, node, "rope_dim", 0, MANIFEST_DIM);
    info->nope_dim = json_get_u32(r, node, "nope_dim", 0, MANIFEST_DIM);
    info->window = json_get_u32(r, node, "window", 1, MANIFEST_DIM);
    info->ring = json_get_u32(r, node, "ring", 1, MANIFEST_DIM);
    info->ratio = json_get_u32(r, node, "ratio", 0, MANIFEST_DIM);
    info->k = json_get_u32(r, node, "k", 0, MANIFEST_DIM);
    info->overlap = json_get_bool(r, node, "overlap");
    info->layers = json_get_u32(r, node, "layers", 0, MANIFEST_LAYERS);
    info->draft_layers = json_get_u32(r, node, "draft_layers", 0, MANIFEST_LAYERS);
    struct json_node bytes = json_get_object(r, node, "bytes");
    info->row_bytes = json_get_u64(r, &bytes, "row", 0, MANIFEST_SIZE);
    info->block_bytes = json_get_u64(r, &bytes, "block", 0, MANIFEST_SIZE);
    info->window_block_bytes = json_get_u64(r, &bytes, "window_block", 0, MANIFEST_SIZE);
    info->request_bytes = json_get_u64(r, &bytes, "request", 0, MANIFEST_SIZE);
    read_rope(r, &type->rope, node);
    read_indexer(r, type, node);
    read_places(r, type, node);
    read_state(r, type, node);
    check_geometry(r, bundle, info, node);
}
