#include "verify_place.h"

#include <stdio.h>
#include <stdlib.h>
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

bool verify_place_create(struct verify *verify, const struct call *call, const char *prefix,
                         const struct ref_type *rules, uint32_t rows, uint32_t pages,
                         struct verify_place *out) {
    memset(out, 0, sizeof *out);
    out->rules = *rules;
    out->rows = rows;
    out->pages = pages;
    for (uint32_t i = 0; i < ref_planes(rules->format); i++) {
        snprintf(out->name[i], sizeof out->name[i], "%s_%s", prefix,
                 ref_plane_name(rules->format, i));
        if (!create_plane(verify, call, i, out)) return false;
    }
    verify_place_clear(out);
    return true;
}

void verify_place_destroy(struct verify *verify, struct verify_place *place) {
    for (uint32_t i = 0; i < REF_PLANES; i++) buffer_destroy(verify->session, &place->plane[i]);
}

void verify_place_clear(struct verify_place *place) {
    for (uint32_t i = 0; i < ref_planes(place->rules.format); i++)
        memset(buffer_data(&place->plane[i]), 0xff, buffer_bytes(&place->plane[i]));
}

void verify_place_store(struct verify *verify, struct verify_place *place, enum input_kind kind,
                        uint32_t number) {
    struct ref_place to = verify_place_reference(place);
    uint16_t value[REF_MAX_DIM];
    input_vector(&verify->random, kind, REF_BFLOAT, value, place->rules.head_dim);
    ref_row_store(&place->rules, &to, number / place->rows, number % place->rows, value);
}

bool verify_place_upload(struct verify *verify, const struct verify_place *place) {
    for (uint32_t i = 0; i < ref_planes(place->rules.format); i++)
        if (!buffer_upload(verify->session, &place->plane[i])) return false;
    return true;
}

void verify_place_bind(const struct verify_place *place, struct call *call) {
    for (uint32_t i = 0; i < ref_planes(place->rules.format); i++)
        verify_bind(call, place->name[i], &place->plane[i], place->stride[i]);
}

struct ref_place verify_place_reference(const struct verify_place *place) {
    struct ref_place out = {.rows = place->rows};
    for (uint32_t i = 0; i < ref_planes(place->rules.format); i++)
        out.plane[i] = (struct ref_array){buffer_data(&place->plane[i]), place->stride[i]};
    return out;
}
