/* Sizes of the arena from the sizes of pages: the arithmetic of docs/manifest.md, `arena`. */
#include <stdio.h>
#include <string.h>

#include "pool.h"

static uint64_t round_up(uint64_t value, uint64_t to) {
    return (value + to - 1) / to * to;
}

static uint64_t common_multiple(uint64_t a, uint64_t b) {
    uint64_t x = a, y = b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

uint32_t pool_geometry_tail_blocks(const struct pool_geometry *g) {
    uint32_t blocks = (g->window - 1 + g->block - 1) / g->block;
    return blocks ? blocks : 1;
}

kvf_status pool_geometry_check(const struct pool_geometry *g, kvf_error *error) {
    if (!g->block || !g->window || !g->max_positions || !g->checkpoint || !g->types ||
        g->types > POOL_MAX_TYPES)
        return pool_fail(error, KVF_ERROR_BUNDLE, "the model lacks a block, a window or types");
    if (g->checkpoint % g->block)
        return pool_fail(error, KVF_ERROR_BUNDLE, "checkpoint (%u) is not a multiple of block (%u)",
                         g->checkpoint, g->block);
    if (g->drafts >= 32 || pool_geometry_tail_blocks(g) > 64)
        return pool_fail(error, KVF_ERROR_LIMIT, "at most 31 drafts and a window of 64 blocks");
    bool compressed = false;
    for (uint32_t i = 0; i < g->types; i++) {
        const struct pool_type *t = &g->type[i];
        compressed |= t->ratio && t->layers;
        if (t->ratio && (g->block % t->ratio || t->k != g->block / t->ratio))
            return pool_fail(error, KVF_ERROR_BUNDLE, "type %s: block %u and ratio %u do not fit",
                             t->name, g->block, t->ratio);
    }
    if (!compressed)
        return pool_fail(error, KVF_ERROR_LIMIT,
                         "the model has no compressed layers: windows have nothing to share with");
    if (!g->window_bytes || !g->block_bytes)
        return pool_fail(error, KVF_ERROR_BUNDLE, "a window block or a block has no bytes");
    return KVF_OK;
}

static void add_totals(struct pool_geometry *g) {
    g->window_bytes = g->block_bytes = g->state_bytes = g->snapshot_bytes = 0;
    for (uint32_t i = 0; i < g->types; i++) {
        const struct pool_type *t = &g->type[i];
        g->window_bytes += t->layers * t->window_page_bytes;
        g->block_bytes += t->layers * (t->block_page_bytes + t->index_page_bytes);
        g->state_bytes += t->layers * t->state_bytes;
        g->snapshot_bytes += t->layers * t->snapshot_bytes;
    }
}

/* Step 3: envelopes in a chunk. */
static uint32_t choose_per_chunk(uint64_t w, uint64_t e) {
    uint64_t low = w / e ? w / e : 1, high = low + 1;
    if (w > e && w != low * e && (high * e - w) * w < (w - low * e) * (high * e)) low = high;
    return low > POOL_MAX_PER_CHUNK ? POOL_MAX_PER_CHUNK : (uint32_t)low;
}

/* Steps 5 and 6: layers of falling size, each into the first part with room for it. */
struct packing {
    uint64_t chunk_bytes, envelope_bytes, at[POOL_MAX_PARTS];
    uint32_t chunks, parts; /* the parts: first whole chunks, then envelopes */
};

/* False if a layer is too large, or a request would have too many parts. */
static bool pack_layer(struct packing *p, uint64_t bytes) {
    uint32_t part = 0;
    uint64_t at = 0;
    for (; part < p->parts; part++) {
        uint64_t size = part < p->chunks ? p->chunk_bytes : p->envelope_bytes;
        at = round_up(p->at[part], 16);
        if (at + bytes <= size) break;
    }
    if (part == POOL_MAX_PARTS) return false;
    if (part == p->parts) {
        at = 0;
        p->parts++;
        if (part >= p->chunks && bytes > p->envelope_bytes) p->chunks = p->parts;
        if (bytes > (part < p->chunks ? p->chunk_bytes : p->envelope_bytes)) return false;
    }
    p->at[part] = at + bytes;
    return true;
}

static bool pack_state(struct pool_geometry *g) {
    struct packing p = {.chunk_bytes = g->chunk_bytes, .envelope_bytes = g->envelope_bytes};
    bool done[POOL_MAX_TYPES] = {false};
    uint64_t chunks = g->state_bytes / g->chunk_bytes;
    if (chunks > POOL_MAX_PARTS) return false;
    p.chunks = (uint32_t)chunks;
    for (uint32_t round = 0; round < g->types; round++) {
        uint32_t largest = g->types;
        for (uint32_t i = 0; i < g->types; i++)
            if (!done[i] &&
                (largest == g->types || g->type[i].state_bytes > g->type[largest].state_bytes))
                largest = i;
        done[largest] = true;
        for (uint32_t i = 0; g->type[largest].state_bytes && i < g->type[largest].layers; i++)
            if (!pack_layer(&p, g->type[largest].state_bytes)) return false;
    }
    g->state_chunks = p.chunks;
    g->state_envelopes = p.parts > p.chunks ? p.parts - p.chunks : 0;
    return true;
}

static bool pack_snapshot(struct pool_geometry *g) {
    struct packing p = {.chunk_bytes = g->envelope_bytes, .envelope_bytes = g->envelope_bytes};
    for (uint32_t t = 0; t < g->types; t++)
        for (uint32_t i = 0; g->type[t].snapshot_bytes && i < g->type[t].layers; i++)
            if (!pack_layer(&p, g->type[t].snapshot_bytes)) return false;
    g->snapshot_envelopes = p.parts;
    return true;
}

kvf_status pool_geometry_derive(struct pool_geometry *g, uint32_t page_align, kvf_error *error) {
    uint64_t align = common_multiple(page_align, 128), w = 0, e = 0;
    add_totals(g);
    for (uint32_t i = 0; i < g->types; i++) {
        const struct pool_type *t = &g->type[i];
        w += t->layers * round_up(t->window_page_bytes, page_align);
        e += t->layers * (round_up(t->block_page_bytes, page_align) +
                          round_up(t->index_page_bytes, page_align));
    }
    w = round_up(w, align);
    e = round_up(e, align);
    kvf_status status = pool_geometry_check(g, error);
    if (status) return status;
    g->per_chunk = choose_per_chunk(w, e);
    uint64_t share = round_up((w + g->per_chunk - 1) / g->per_chunk, align);
    g->envelope_bytes = e > share ? e : share;
    g->chunk_bytes = g->per_chunk * g->envelope_bytes;
    if (!pack_state(g) || !pack_snapshot(g))
        return pool_fail(error, KVF_ERROR_LIMIT,
                         "one layer's state is larger than a chunk, or its "
                         "snapshot larger than an envelope: no arena");
    return KVF_OK;
}

/* A type of the reference shape: rows of 584 bytes, pages rounded to 576, state in bf16. */
static struct pool_type flash_type(const char *name, uint32_t ratio, uint32_t layers) {
    struct pool_type t = {.ratio = ratio,
                          .k = ratio ? 128 / ratio : 0,
                          .layers = layers,
                          .planes = 1,
                          .footers = true};
    snprintf(t.name, sizeof t.name, "%s", name);
    t.plane_row_bytes[0] = 584;
    t.window_page_bytes = round_up(UINT64_C(128) * 584, 576);
    t.block_page_bytes = ratio ? round_up(t.k * UINT64_C(584), 576) : 0;
    return t;
}

void pool_geometry_flash(struct pool_geometry *g) {
    *g = (struct pool_geometry){
        .block = 128, .window = 128, .max_positions = 1048576, .checkpoint = 512, .types = 3};
    g->type[0] = flash_type("csa", 4, 21);
    g->type[0].index_page_bytes = round_up(UINT64_C(32) * 132, 576);
    g->type[0].state_bytes = UINT64_C(8) * 2 * (512 + 128) * 2 * 2;
    g->type[0].snapshot_bytes = UINT64_C(4) * (512 + 128) * 2 * 4;
    g->type[1] = flash_type("hca", 128, 20);
    g->type[1].state_bytes = UINT64_C(128) * 512 * 2 * 2;
    g->type[2] = flash_type("swa", 0, 2);
    kvf_error error;
    pool_geometry_derive(g, 576, &error);
}
