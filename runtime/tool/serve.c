#include "serve.h"

#include <string.h>
#include <xxhash.h>

/* ---- what all steps share ---- */

static bool open_calls(struct session *session, const char *type, struct serve *s) {
    return call_open(session, type, "workspace_fill", &s->fill) &&
           call_open(session, type, "swa_write", &s->write) &&
           call_open(session, type, "swa_write_workspace", &s->write_both) &&
           call_open(session, type, "row_lists", &s->lists) &&
           call_open(session, type, "row_lists_workspace", &s->lists_both);
}

bool serve_open(struct verify *verify, const struct subject *subject, uint32_t positions,
                struct serve *out) {
    struct session *session = verify->session;
    *out = (struct serve){.verify = verify, .rules = subject->rules, .positions = positions};
    out->paged = session->rules.paged;
    out->rows = out->paged ? out->rules.block : out->rules.ring;
    out->table_stride = (positions + out->rules.block - 1) / out->rules.block;
    size_t angles = (size_t)positions * out->rules.rope_dim, dim = out->rules.head_dim;
    if (out->table_stride > SERVE_TABLE || !open_calls(session, subject->info->name, out) ||
        !buffer_create(session, "rope", 4 * angles, false, &out->rope) ||
        !buffer_create(session, "norm_weight", 4 * dim, false, &out->weight))
        return false;
    input_rope(&verify->random, buffer_floats(&out->rope), angles);
    input_weight(&verify->random, false, buffer_floats(&out->weight), (uint32_t)dim);
    return buffer_upload(session, &out->rope) && buffer_upload(session, &out->weight);
}

void serve_close(struct serve *serve) {
    buffer_destroy(serve->verify->session, &serve->rope);
    buffer_destroy(serve->verify->session, &serve->weight);
}

bool serve_cache_create(struct serve *serve, uint32_t pages, struct serve_cache *out) {
    struct verify *verify = serve->verify;
    const struct call *call = &serve->write;
    memset(out, 0, sizeof *out);
    if (!verify_place_create_output(verify, call, "swa", &serve->rules, serve->rows, pages,
                                    &out->window))
        return false;
    return serve->paged ||
           (verify_output(verify, call, "swa_pos", pages, 4 * (uint64_t)serve->rules.ring,
                          &out->swa_pos, &out->pos_stride) &&
            verify_output(verify, call, "swa_head", pages, 4, &out->swa_head, &out->head_stride));
}

void serve_cache_destroy(struct serve *serve, struct serve_cache *cache) {
    verify_place_destroy(serve->verify, &cache->window);
    buffer_destroy(serve->verify->session, &cache->swa_pos);
    buffer_destroy(serve->verify->session, &cache->swa_head);
}

size_t serve_latent_bytes(const struct serve *serve) {
    return (size_t)serve->rules.head_dim * (serve->rules.input == REF_F32 ? 4 : 2);
}

/* ---- one step ---- */

/* Its arrays on the device. Lists have room for the window and no more. */
struct arrays {
    struct batch_device batch;
    struct buffer latent, table, write_from, rows, window_count, entry_count;
    struct verify_place workspace;
};

static bool upload(struct session *session, const char *name, const void *from, size_t bytes,
                   struct buffer *out) {
    if (!buffer_create(session, name, bytes, false, out)) return false;
    memcpy(buffer_data(out), from, bytes);
    return buffer_upload(session, out);
}

static bool make(struct serve *s, const struct serve_step *step, struct arrays *out) {
    struct session *session = s->verify->session;
    size_t tokens = step->batch.tokens, requests = step->batch.requests;
    return batch_upload(session, &step->batch, &out->batch) &&
           upload(session, "latent", step->latent, tokens * serve_latent_bytes(s), &out->latent) &&
           upload(session, "table", step->table, 4 * requests * s->table_stride, &out->table) &&
           upload(session, "write_from", step->write_from, 4 * requests, &out->write_from) &&
           buffer_create(session, "rows", 4 * tokens * s->rules.window, false, &out->rows) &&
           buffer_create(session, "window_count", 4 * tokens, false, &out->window_count) &&
           buffer_create(session, "entry_count", 4 * tokens, false, &out->entry_count) &&
           (!step->workspace ||
            verify_place_create_workspace(s->verify, &s->fill, &s->rules, s->rows, &step->batch,
                                          &out->workspace));
}

static void free_arrays(struct serve *s, struct arrays *arrays) {
    struct session *session = s->verify->session;
    struct buffer *all[] = {&arrays->latent, &arrays->table,        &arrays->write_from,
                            &arrays->rows,   &arrays->window_count, &arrays->entry_count};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(session, all[i]);
    batch_free(session, &arrays->batch);
    verify_place_destroy(s->verify, &arrays->workspace);
}

static void set(struct call *call, const char *name, uint64_t value) {
    if (call_has(call, name)) call_set(call, name, value);
}

/* A kernel with whatever it has of a step's parameters; that none is missing call_launch checks. */
static bool launch(struct serve *s, const struct serve_cache *cache, const struct serve_step *step,
                   const struct arrays *arrays, struct call *call) {
    uint32_t pages = cache->window.pages;
    batch_set(&step->batch, &arrays->batch, pages, s->positions, call);
    set(call, "pages", pages);
    set(call, "window_pages", pages);
    set(call, "block_pages", 0); /* no entry is backed */
    set(call, "table_stride", s->table_stride);
    set(call, "list_stride", s->rules.window);
    set(call, "latent", buffer_address(&arrays->latent));
    set(call, "latent_stride", serve_latent_bytes(s));
    set(call, "norm_weight", buffer_address(&s->weight));
    set(call, "rope", buffer_address(&s->rope));
    set(call, "write_from", buffer_address(&arrays->write_from));
    set(call, "window_table", buffer_address(&arrays->table));
    set(call, "block_table", buffer_address(&arrays->table));
    set(call, "rows", buffer_address(&arrays->rows));
    set(call, "window_count", buffer_address(&arrays->window_count));
    set(call, "entry_count", buffer_address(&arrays->entry_count));
    set(call, "swa_pos", buffer_address(&cache->swa_pos));
    set(call, "swa_pos_stride", cache->pos_stride);
    set(call, "swa_head", buffer_address(&cache->swa_head));
    set(call, "swa_head_stride", cache->head_stride);
    if (call != &s->lists && call != &s->lists_both) {
        verify_place_bind(&cache->window, call);
        if (call != &s->write) verify_place_bind(&arrays->workspace, call);
    }
    return call_launch(s->verify->session, call);
}

static bool fetch(struct serve *s, const struct buffer *buffer) {
    return session_download(s->verify->session, buffer->image, buffer->allocation, buffer->total);
}

/* Rows one by one into a page of one row, which is hashed with the digest so far as the seed. */
static uint64_t digest_list(const struct serve *s, const struct verify_place *place,
                            const int32_t *rows, uint32_t count) {
    uint8_t bytes[REF_PLANES][2 * REF_MAX_DIM];
    struct ref_type rules = s->rules;
    struct ref_place from = verify_place_reference(place), one = {.rows = 1};
    uint64_t digest = 1;
    rules.page_align = 1;
    for (uint32_t i = 0; i < place->planes; i++) one.plane[i].base = bytes[i];
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] < 0 || (uint32_t)rows[i] >= place->rows * place->pages) return 0;
        ref_row_copy(&rules, &from, (uint32_t)rows[i] / place->rows,
                     (uint32_t)rows[i] % place->rows, &one, 0, 0);
        for (uint32_t plane = 0; plane < place->planes; plane++)
            digest = XXH64(bytes[plane], ref_page_bytes(&rules, plane, 1), digest);
    }
    return digest;
}

static bool read_back(struct serve *s, struct verify_place *place, const struct arrays *arrays,
                      struct serve_step *step) {
    if (!fetch(s, &arrays->rows) || !fetch(s, &arrays->window_count) ||
        !verify_place_download(s->verify, place))
        return false;
    for (uint32_t t = 0; t < step->batch.tokens; t++) {
        uint32_t count = (uint32_t)buffer_ints(&arrays->window_count)[t];
        step->count[t] = count;
        step->digest[t] =
            count > s->rules.window
                ? 0
                : digest_list(s, place, buffer_ints(&arrays->rows) + (size_t)t * s->rules.window,
                              count);
    }
    return true;
}

bool serve_run(struct serve *serve, struct serve_cache *cache, struct serve_step *step) {
    struct arrays arrays = {0};
    bool good = make(serve, step, &arrays);
    if (step->workspace)
        good = good && launch(serve, cache, step, &arrays, &serve->fill) &&
               launch(serve, cache, step, &arrays, &serve->write_both) &&
               launch(serve, cache, step, &arrays, &serve->lists_both);
    else
        good = good && launch(serve, cache, step, &arrays, &serve->write) &&
               launch(serve, cache, step, &arrays, &serve->lists);
    good = good &&
           read_back(serve, step->workspace ? &arrays.workspace : &cache->window, &arrays, step);
    free_arrays(serve, &arrays);
    return good;
}
