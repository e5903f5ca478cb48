#include "verify_place.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The planes end with their last page, so that reads beyond are the driver's to find. */
static bool create_plane(struct verify *verify, const struct call *call, uint32_t i,
                         struct verify_place *place) {
    uint64_t align = verify_align(call, place->name[i]);
    uint64_t bytes = ref_page_bytes(&place->rules, i, place->rows);
    place->stride[i] = (bytes + align - 1) / align * align + align;
    return buffer_create(verify->session, place->name[i],
                         (place->pages - 1) * place->stride[i] + bytes, false, &place->plane[i]);
}

static void describe(const char *prefix, const struct ref_type *rules, uint32_t rows,
                     uint32_t pages, struct verify_place *out) {
    *out = (struct verify_place){
        .rules = *rules, .rows = rows, .pages = pages, .planes = ref_planes(rules->format)};
    for (uint32_t i = 0; i < out->planes; i++)
        snprintf(out->name[i], sizeof out->name[i], "%s_%s", prefix,
                 ref_plane_name(rules->format, i));
}

bool verify_place_create(struct verify *verify, const struct call *call, const char *prefix,
                         const struct ref_type *rules, uint32_t rows, uint32_t pages,
                         struct verify_place *out) {
    describe(prefix, rules, rows, pages, out);
    for (uint32_t i = 0; i < out->planes; i++)
        if (!create_plane(verify, call, i, out)) return false;
    verify_place_clear(out);
    return true;
}

bool verify_place_create_output(struct verify *verify, const struct call *call, const char *prefix,
                                const struct ref_type *rules, uint32_t rows, uint32_t pages,
                                struct verify_place *out) {
    describe(prefix, rules, rows, pages, out);
    for (uint32_t i = 0; i < out->planes; i++)
        if (!verify_output(verify, call, out->name[i], pages, ref_page_bytes(rules, i, rows),
                           &out->plane[i], &out->stride[i]))
            return false;
    return true;
}

bool verify_place_create_workspace(struct verify *verify, const struct call *call,
                                   const struct ref_type *rules, uint32_t rows,
                                   const struct batch *batch, struct verify_place *out) {
    uint32_t needed = batch->tokens + batch->requests * (rules->window - 1);
    uint32_t pages = needed ? (needed + rows - 1) / rows : 1;
    return verify_place_create_output(verify, call, "ws_swa", rules, rows, pages, out);
}

void verify_place_destroy(struct verify *verify, struct verify_place *place) {
    for (uint32_t i = 0; i < REF_PLANES; i++) buffer_destroy(verify->session, &place->plane[i]);
}

void verify_place_clear(struct verify_place *place) {
    for (uint32_t i = 0; i < place->planes; i++)
        memset(buffer_data(&place->plane[i]), 0xff, buffer_bytes(&place->plane[i]));
}

void verify_place_store(struct verify *verify, struct verify_place *place, enum input_kind kind,
                        uint32_t number) {
    struct ref_place to = verify_place_reference(place);
    uint16_t value[REF_MAX_DIM];
    input_vector(&verify->random, kind, REF_BFLOAT, value, place->rules.head_dim);
    ref_row_store(&place->rules, &to, number / place->rows, number % place->rows, value);
}

void verify_place_scramble(struct verify *verify, struct verify_place *place) {
    for (uint32_t i = 0; i < place->planes; i++)
        for (size_t at = 0; at < buffer_bytes(&place->plane[i]); at++)
            buffer_data(&place->plane[i])[at] = (uint8_t)input_next(&verify->random);
}

uint32_t verify_place_row(struct verify *verify, const struct verify_place *place) {
    return place->first * place->rows + input_below(&verify->random, place->pages * place->rows);
}

void verify_place_far(struct verify_place *place) {
    place->first = 0x80000000u / place->rows - place->pages;
}

bool verify_place_upload(struct verify *verify, const struct verify_place *place) {
    for (uint32_t i = 0; i < place->planes; i++)
        if (!buffer_upload(verify->session, &place->plane[i])) return false;
    return true;
}

bool verify_place_download(struct verify *verify, struct verify_place *place) {
    for (uint32_t i = 0; i < place->planes; i++)
        if (!session_download(verify->session, place->plane[i].image, place->plane[i].allocation,
                              place->plane[i].total))
            return false;
    return true;
}

void verify_place_outputs(struct verify_place *place, struct outputs *outputs) {
    for (uint32_t i = 0; i < place->planes; i++) outputs->list[outputs->count++] = &place->plane[i];
}

void verify_place_bind(const struct verify_place *place, struct call *call) {
    char name[64];
    for (uint32_t i = 0; i < place->planes; i++) {
        snprintf(name, sizeof name, "%s_stride", place->name[i]);
        call_set(call, place->name[i],
                 buffer_address(&place->plane[i]) - place->first * place->stride[i]);
        call_set(call, name, place->stride[i]);
    }
}

struct ref_place verify_place_reference(const struct verify_place *place) {
    struct ref_place out = {.rows = place->rows};
    for (uint32_t i = 0; i < place->planes; i++) {
        uintptr_t base = (uintptr_t)buffer_data(&place->plane[i]);
        out.plane[i] = (struct ref_array){(uint8_t *)(base - place->first * place->stride[i]),
                                          place->stride[i]};
    }
    return out;
}
