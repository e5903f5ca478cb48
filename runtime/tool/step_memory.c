/*
 * Where rows, tails and snapshots lie. Kernels see a base and a stride for every layer and plane;
 * this file alone knows which allocation they point into.
 *
 *   elastic  one arena: base + offset of the place + layer * layer stride, stride of a chunk or an
 *            envelope (manifest, `arena`)
 *   static   an array of pages for each layer, place and plane; tails in a state cache
 *   shared   rows of a layer in one array, window blocks and compressed blocks in the same slots;
 *            index rows by block id; tails in a state cache
 */
#include "step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Bytes that are NaNs as any number a kernel stores: what was never written must not reach an
 * output, but whole pages are copied where a request is forked.
 */
static bool poison(struct step *step, kvf_address at, uint64_t bytes) {
    if (!bytes || !step->session->driver->cuMemsetD8Async(at, 0xff, bytes, NULL)) return true;
    fprintf(stderr, "kvforge-run: memory could not be set\n");
    return false;
}

static bool take(struct step *step, uint64_t bytes, kvf_address *out) {
    if (step->memory_count == sizeof step->memory / sizeof *step->memory) return false;
    if (!session_alloc(step->session, bytes ? bytes : 16, out)) return false;
    step->memory[step->memory_count++] = *out;
    step->memory_bytes += bytes;
    return poison(step, *out, bytes);
}

static struct step_array *planes_of(struct step_layer *layer, const char *place) {
    if (!strcmp(place, "window")) return layer->window;
    return !strcmp(place, "compressed") ? layer->compressed : &layer->index;
}

static uint32_t plane_index(const struct bundle_place *place, const char *name) {
    uint32_t i = 0;
    while (i < place->plane_count && strcmp(place->planes[i].name, name) != 0) i++;
    return i;
}

/* ---- elastic ---- */

static void place_elastic(struct step *step, const struct bundle_elastic *e, kvf_address arena) {
    for (uint32_t i = 0; i < e->place_count; i++) {
        const struct bundle_elastic_place *p = &e->places[i];
        for (uint32_t l = 0; l < step->layers; l++) {
            struct step_layer *layer = &step->layer[l];
            if (layer->type->bundle != &step->session->bundle->types[p->type]) continue;
            uint32_t plane = plane_index(bundle_place(layer->type->bundle, p->place), p->plane);
            planes_of(layer, p->place)[plane] = (struct step_array){
                arena + p->offset + layer->of_type * p->layer_stride, p->id_stride};
        }
    }
}

static void state_elastic(struct step_layer *layer, const struct bundle_elastic *e,
                          kvf_address arena) {
    const struct bundle_type *type = layer->type->bundle;
    for (uint32_t i = 0; i < e->state_count; i++) {
        const struct bundle_elastic_layer *at = &e->state[i];
        if (at->layer != layer->layer) continue;
        uint64_t stride = at->part < e->state_chunks ? e->chunk_bytes : e->envelope_bytes;
        uint64_t offset = at->offset;
        layer->state_part = at->part;
        for (uint32_t a = 0; a < type->array_count; offset += type->arrays[a++].slot_bytes)
            layer->state[a] = (struct step_array){arena + offset, stride};
    }
}

static void snapshot_parts(struct step *step, kvf_address base) {
    const struct bundle_elastic *e = step->session->bundle->elastic;
    for (uint32_t i = 0; e && i < e->snapshot_count; i++)
        for (uint32_t l = 0; l < step->layers; l++) {
            if (step->layer[l].layer != e->snapshot[i].layer) continue;
            step->layer[l].snapshot_part = e->snapshot[i].part;
            step->layer[l].snapshot =
                (struct step_array){base + e->snapshot[i].offset, e->envelope_bytes};
        }
}

/* A multiplier without a common divisor, so that every chunk has one place. */
static void make_permutation(struct step *step) {
    static const uint32_t primes[] = {7, 11, 13, 17, 19, 23};
    step->multiplier = 1;
    if (!step->options.permute) return;
    for (size_t i = 0; step->multiplier == 1 && i < sizeof primes / sizeof *primes; i++)
        if (step->shape.chunks % primes[i]) step->multiplier = primes[i];
    step->offset = step->shape.chunks / 2;
}

static bool open_elastic(struct step *step) {
    const struct bundle_elastic *e = step->session->bundle->elastic;
    kvf_address arena;
    step->roles = calloc(step->shape.chunks, 1);
    if (!step->roles || !take(step, step->shape.chunks * e->chunk_bytes, &arena)) return false;
    make_permutation(step);
    place_elastic(step, e, arena);
    snapshot_parts(step, arena);
    for (uint32_t l = 0; l < step->layers; l++) state_elastic(&step->layer[l], e, arena);
    return true;
}

/* ---- static and shared ---- */

static bool state_cache(struct step *step) {
    kvf_cache_options options = {.slots = step->options.pool.max_requests};
    kvf_error error = {0};
    kvf_array array;
    if (kvf_cache_create(step->session->library, &options, NULL, &step->cache, &error))
        return session_fail("state cache", &error);
    for (uint32_t l = 0; l < step->layers; l++) {
        struct step_layer *layer = &step->layer[l];
        for (uint32_t a = 0; a < layer->type->bundle->array_count; a++) {
            if (kvf_cache_array(step->cache, layer->layer, layer->type->bundle->arrays[a].name,
                                &array, &error))
                return session_fail("state cache", &error);
            layer->state[a] = (struct step_array){array.base, array.slot_stride};
        }
    }
    return true;
}

/* Pages of a place for every layer of its type, one array a plane. */
static bool take_pages(struct step *step, struct step_type *type, const struct bundle_place *place,
                       uint64_t pages) {
    for (uint32_t i = 0; place && i < place->plane_count; i++) {
        uint64_t layer_bytes = pages * place->planes[i].page_bytes;
        layer_bytes = (layer_bytes + 255) / 256 * 256;
        kvf_address base;
        if (!take(step, layer_bytes * (type->info.layers + type->info.draft_layers), &base))
            return false;
        for (uint32_t l = 0; l < step->layers; l++)
            if (step->layer[l].type == type)
                planes_of(&step->layer[l], place->name)[i] = (struct step_array){
                    base + step->layer[l].of_type * layer_bytes, place->planes[i].page_bytes};
    }
    return true;
}

static bool open_static(struct step *step) {
    static const char *const names[] = {"window", "compressed", "index"};
    const struct bundle_elastic *e = step->session->bundle->elastic;
    kvf_address snapshots;
    for (uint32_t t = 0; t < step->types; t++)
        for (int i = 0; i < 3; i++)
            if (!take_pages(step, &step->type[t], bundle_place(step->type[t].bundle, names[i]),
                            i ? step->shape.blocks : step->shape.windows))
                return false;
    /* Snapshots have ids of blocks. */
    if (!take(step, e ? step->shape.blocks * e->envelope_bytes : 0, &snapshots)) return false;
    snapshot_parts(step, snapshots);
    return state_cache(step);
}

/* Slots of `block` rows that a type has under `shared`: window blocks, and its own for blocks. */
static uint64_t shared_slots(const struct step *step, const struct step_type *type) {
    uint64_t own = step->shape.blocks - step->options.pool.lent_blocks;
    uint32_t ratio = type->info.ratio;
    return step->shape.windows + (ratio ? (own + ratio - 1) / ratio : 0);
}

static bool take_rows(struct step *step, struct step_type *type) {
    const struct bundle_place *window = bundle_place(type->bundle, "window");
    for (uint32_t i = 0; i < window->plane_count; i++) {
        uint64_t page = window->planes[i].page_bytes, slots = shared_slots(step, type);
        kvf_address base;
        if (!take(step, slots * page * (type->info.layers + type->info.draft_layers), &base))
            return false;
        for (uint32_t l = 0; l < step->layers; l++) {
            struct step_layer *layer = &step->layer[l];
            if (layer->type != type) continue;
            kvf_address at = base + layer->of_type * slots * page;
            layer->window[i] = (struct step_array){at, page};
            if (type->info.ratio)
                layer->compressed[i] = (struct step_array){at, page / type->info.ratio};
        }
    }
    return take_pages(step, type, bundle_place(type->bundle, "index"), step->shape.blocks);
}

/* A snapshot belongs to a window block: layer after layer, the arrays of stream b. */
static bool shared_snapshots(struct step *step) {
    uint64_t bytes = 0, offset = 0;
    kvf_address base;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t l = 0; l < step->layers; l++) {
            struct step_layer *layer = &step->layer[l];
            if (pass) layer->snapshot = (struct step_array){base + offset, bytes};
            for (uint32_t a = 0; a < layer->type->bundle->array_count; a++)
                offset += step_saved_bytes(layer->type, &layer->type->bundle->arrays[a]);
        }
        if (pass) break;
        bytes = offset;
        offset = 0;
        if (!take(step, step->shape.windows * bytes, &base)) return false;
    }
    return true;
}

static bool open_shared(struct step *step) {
    for (uint32_t t = 0; t < step->types; t++)
        if (!take_rows(step, &step->type[t])) return false;
    return shared_snapshots(step) && state_cache(step);
}

/* ---- for all ---- */

bool step_memory_open(struct step *step) {
    switch (step->options.pool.policy) {
    case KVF_POLICY_ELASTIC: return open_elastic(step);
    case KVF_POLICY_STATIC: return open_static(step);
    case KVF_POLICY_SHARED: return open_shared(step);
    }
    return false;
}

uint32_t step_pages(const struct step *step, const struct step_type *type, const char *place) {
    bool shared = step->options.pool.policy == KVF_POLICY_SHARED;
    if (!strcmp(place, "window")) return step->shape.windows;
    if (shared && !strcmp(place, "compressed"))
        return (uint32_t)shared_slots(step, type) * type->info.ratio;
    return step->shape.blocks;
}

uint32_t step_slots(const struct step *step, uint32_t part) {
    if (step->options.pool.policy != KVF_POLICY_ELASTIC) return step->options.pool.max_requests;
    bool chunk = part < step->session->bundle->elastic->state_chunks;
    return chunk ? step->shape.chunks : step->shape.blocks;
}

int32_t step_chunk(const struct step *step, int32_t id) {
    if (id < 0 || !step->options.permute) return id;
    uint64_t at = (uint64_t)(uint32_t)id * step->multiplier + step->offset;
    return (int32_t)(at % step->shape.chunks);
}

/* Envelopes move with their chunk, and inside it to the other end. */
int32_t step_envelope(const struct step *step, int32_t id) {
    if (id < 0 || !step->options.permute) return id;
    int32_t n = (int32_t)step->session->bundle->elastic->n;
    return step_chunk(step, id / n) * n + (n - 1 - id % n);
}

/* ---- roles of chunks ---- */

/* The low half of an entry: roles so far; the high half: the one it has now. */
static void note(struct step *step, int32_t chunk, unsigned role) {
    unsigned roles = step->roles[chunk];
    if (roles && roles >> 4 != role) step->role_changes++;
    step->roles[chunk] = (uint8_t)((roles & 15) | role | role << 4);
}

void step_note_roles(struct step *step) {
    const kvf_batch_buffers *b = &step->tables_of;
    if (!step->roles) return;
    int32_t n = (int32_t)step->session->bundle->elastic->n;
    for (size_t i = 0; i < (size_t)step->requests * b->max_blocks; i++) {
        if (b->window_table[i] >= 0) note(step, b->window_table[i], STEP_ROLE_WINDOW);
        if (b->block_table[0][i] >= 0) note(step, b->block_table[0][i] / n, STEP_ROLE_ROWS);
    }
    for (uint32_t part = 0; part < step->parts; part++)
        for (uint32_t r = 0; r < step->requests; r++) {
            int32_t id = b->state_slot[part * b->max_requests + r];
            bool whole = part < step->session->bundle->elastic->state_chunks;
            note(step, whole ? id : id / n, whole ? STEP_ROLE_STATE : STEP_ROLE_ROWS);
        }
}

bool step_was_lent(const struct step *step, uint32_t row) {
    const kvf_batch_buffers *b = &step->tables_of;
    if (!step->roles) return false;
    int32_t n = (int32_t)step->session->bundle->elastic->n;
    for (size_t i = (size_t)row * b->max_blocks; i < (size_t)(row + 1) * b->max_blocks; i++) {
        int32_t window = b->window_table[i], rows = b->block_table[0][i];
        if (window >= 0 && step->roles[window] & 15 & ~STEP_ROLE_WINDOW) return true;
        if (rows >= 0 && step->roles[rows / n] & 15 & ~STEP_ROLE_ROWS) return true;
    }
    return false;
}
