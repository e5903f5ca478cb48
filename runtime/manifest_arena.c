/* The manifest's `arena`: how a pool of one allocation lays out windows, blocks and state. */
#include "manifest.h"

#include <string.h>

static uint32_t read_type(struct json_reader *r, const struct kvf_bundle *bundle,
                          const struct json_node *node) {
    const char *name = manifest_name(r, node, "type");
    uint32_t type = 0;
    while (type < bundle->info.types && strcmp(bundle->types[type].info.name, name) != 0) type++;
    if (json_reader_good(r) && type == bundle->info.types)
        json_refuse(r, node, "type", "is \"%s\", which is no layer type", name);
    return type;
}

/* All layers of a place must end inside the chunk or the envelope that an id stands for. */
static void check_place(struct json_reader *r, const struct kvf_bundle *bundle,
                        const struct bundle_elastic_place *place, const struct json_node *node) {
    if (!json_reader_good(r)) return;
    const struct bundle_elastic *e = bundle->elastic;
    const struct bundle_type *type = &bundle->types[place->type];
    const struct bundle_place *rows = bundle_place(type, place->place);
    uint32_t plane = 0;
    while (rows && plane < rows->plane_count && strcmp(rows->planes[plane].name, place->plane) != 0)
        plane++;
    uint64_t layers = (uint64_t)type->info.layers + type->info.draft_layers;
    if (place->id_stride != e->chunk_bytes && place->id_stride != e->envelope_bytes)
        json_refuse(r, node, "id_stride", "is neither a chunk's nor an envelope's bytes");
    else if (!rows || plane == rows->plane_count)
        json_refuse(r, node, "plane", "is \"%s\" of \"%s\", which type \"%s\" has not",
                    place->plane, place->place, type->info.name);
    /* Sizes are at most 2^40 and layers at most 2^13: no sum comes near 2^64. */
    else if (layers &&
             place->offset + (layers - 1) * place->layer_stride + rows->planes[plane].page_bytes >
                 place->id_stride)
        json_refuse(r, node, NULL, "reaches beyond its id_stride of %llu bytes",
                    (unsigned long long)place->id_stride);
}

static void read_places(struct json_reader *r, struct kvf_bundle *bundle,
                        const struct json_node *arena) {
    struct bundle_elastic *e = bundle->elastic;
    struct json_node list =
        json_get_array(r, arena, "places", MANIFEST_TYPES * MANIFEST_PLACES, &e->place_count);
    if (!json_reader_good(r)) return;
    e->places = arena_take(r->arena, e->place_count, sizeof *e->places);
    if (!e->places) return json_no_memory(r);
    for (uint32_t i = 0; i < e->place_count && json_reader_good(r); i++) {
        struct json_node node = json_object_item(r, &list, i);
        struct bundle_elastic_place *place = &e->places[i];
        place->type = read_type(r, bundle, &node);
        place->place = manifest_name(r, &node, "place");
        place->plane = manifest_name(r, &node, "plane");
        place->offset = json_get_u64(r, &node, "offset", 0, e->chunk_bytes);
        place->layer_stride = json_get_u64(r, &node, "layer_stride", 0, e->chunk_bytes);
        place->id_stride = json_get_u64(r, &node, "id_stride", 1, e->chunk_bytes);
        check_place(r, bundle, place, &node);
    }
}

/* Layers in parts: `state` and `snapshot`. */
static struct bundle_elastic_layer *read_layers(struct json_reader *r, struct kvf_bundle *bundle,
                                                const struct json_node *object, uint32_t parts,
                                                uint32_t *count) {
    struct bundle_elastic *e = bundle->elastic;
    struct json_node list = json_get_array(r, object, "layers", MANIFEST_LAYERS, count);
    if (!json_reader_good(r)) return NULL;
    struct bundle_elastic_layer *layers = arena_take(r->arena, *count, sizeof *layers);
    if (!layers) {
        json_no_memory(r);
        return NULL;
    }
    uint32_t most = bundle->info.layers + bundle->info.draft_layers;
    for (uint32_t i = 0; i < *count && json_reader_good(r); i++) {
        struct json_node node = json_object_item(r, &list, i);
        layers[i].layer = json_get_u32(r, &node, "layer", 0, most ? most - 1 : 0);
        layers[i].part = json_get_u32(r, &node, "part", 0, parts ? parts - 1 : 0);
        layers[i].offset = json_get_u64(r, &node, "offset", 0, e->chunk_bytes);
    }
    return layers;
}

void manifest_arena(struct json_reader *r, struct kvf_bundle *bundle,
                    const struct json_node *root) {
    if (!json_reader_good(r) || !json_has(root, "arena")) return;
    struct json_node arena = json_get_object(r, root, "arena");
    struct bundle_elastic *e = bundle->elastic = arena_take(r->arena, 1, sizeof *e);
    if (!e) return json_no_memory(r);
    e->align = json_get_u32(r, &arena, "align", 1, MANIFEST_DIM);
    e->n = json_get_u32(r, &arena, "n", 1, 1024);
    e->envelope_bytes = json_get_u64(r, &arena, "envelope_bytes", 1, MANIFEST_SIZE);
    e->chunk_bytes = json_get_u64(r, &arena, "chunk_bytes", 1, MANIFEST_SIZE);
    if (json_reader_good(r) && e->chunk_bytes != e->n * e->envelope_bytes)
        json_refuse(r, &arena, "chunk_bytes", "is not n envelopes");
    read_places(r, bundle, &arena);
    struct json_node state = json_get_object(r, &arena, "state");
    e->state_chunks = json_get_u32(r, &state, "chunks", 0, MANIFEST_LAYERS);
    e->state_envelopes = json_get_u32(r, &state, "envelopes", 0, MANIFEST_LAYERS);
    e->state =
        read_layers(r, bundle, &state, e->state_chunks + e->state_envelopes, &e->state_count);
    struct json_node snapshot = json_get_object(r, &arena, "snapshot");
    e->snapshot_bytes = json_get_u64(r, &snapshot, "bytes", 0, MANIFEST_SIZE);
    e->snapshot_envelopes = json_get_u32(r, &snapshot, "envelopes", 0, MANIFEST_LAYERS);
    e->snapshot = read_layers(r, bundle, &snapshot, e->snapshot_envelopes, &e->snapshot_count);
}
