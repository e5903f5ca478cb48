/* How a row of each format is quantised, and where its bytes lie in a page. */
#include "convert.h"
#include "reference.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SCALE_BLOCK 64 /* elements under one ue8m0 of the footer and two-plane formats */
#define FP4_BLOCK   32

static const struct {
    const char *name;
    const char *planes[REF_PLANES];
} formats[REF_FORMATS] = {
    [REF_BF16] = {"bf16", {"rows"}},
    [REF_FP8_TOKEN] = {"fp8_token", {"fp8", "rope", "inv"}},
    [REF_FP8_DS_MLA] = {"fp8_ds_mla", {"rows"}},
    [REF_FP8_TWO_PLANE] = {"fp8_two_plane", {"fp8", "rope"}},
    [REF_FP8_INDEX] = {"fp8_index", {"rows"}},
    [REF_FP4_INDEX] = {"fp4_index", {"rows"}},
};

const char *ref_format_name(enum ref_format format) {
    return formats[format].name;
}

enum ref_format ref_format_find(const char *name) {
    int format = 0;
    while (format < REF_FORMATS && strcmp(formats[format].name, name) != 0) format++;
    return (enum ref_format)format;
}

const char *ref_plane_name(enum ref_format format, uint32_t plane) {
    return plane < REF_PLANES ? formats[format].planes[plane] : NULL;
}

uint32_t ref_planes(enum ref_format format) {
    uint32_t count = 0;
    while (ref_plane_name(format, count)) count++;
    return count;
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return unit ? (value + unit - 1) / unit * unit : value;
}

/* Bytes of a data row and of a footer (or scale) row; pages with a footer also round up. */
struct sizes {
    uint64_t data, footer;
    bool rounded;
};

static struct sizes row_sizes(const struct ref_type *type, uint32_t plane) {
    uint64_t dim = type->head_dim, rope = type->rope_dim, nope = dim - rope;
    switch (type->format) {
    case REF_BF16: return (struct sizes){2 * dim, 0, false};
    case REF_FP8_TOKEN:
        return (struct sizes){plane == 0 ? nope : plane == 1 ? 2 * rope : 4, 0, false};
    case REF_FP8_DS_MLA:
        return (struct sizes){nope + 2 * rope, round_up(nope / SCALE_BLOCK, 8), true};
    case REF_FP8_TWO_PLANE: return (struct sizes){plane == 0 ? dim : 2 * rope, 0, false};
    case REF_FP8_INDEX: return (struct sizes){dim, 4, true};
    case REF_FP4_INDEX: return (struct sizes){dim / 2, dim / FP4_BLOCK, true};
    default: return (struct sizes){0, 0, false};
    }
}

uint64_t ref_page_bytes(const struct ref_type *type, uint32_t plane, uint32_t rows) {
    struct sizes size = row_sizes(type, plane);
    uint64_t bytes = rows * (size.data + size.footer);
    return size.rounded ? round_up(bytes, type->page_align) : bytes;
}

/* The largest magnitude of `count` values: NaN counts for nothing, infinity as FLT_MAX. */
static float largest(const uint16_t *value, uint32_t count) {
    float most = 0;
    for (uint32_t i = 0; i < count; i++) {
        float magnitude = fabsf(ref_bf16_value(value[i]));
        if (magnitude > most) most = magnitude;
    }
    return most < FLT_MAX ? most : FLT_MAX;
}

static void store_e4m3(uint8_t *out, const uint16_t *value, size_t count, float scale) {
    for (size_t i = 0; i < count; i++) out[i] = ref_e4m3(ref_bf16_value(value[i]) / scale);
}

/* fp8_token: one scale a row, 1 for a row of zeros, never below the smallest normal number. */
static float token_scale(const uint16_t *value, uint32_t count) {
    float most = largest(value, count);
    if (most == 0) return 1;
    float scale = most / 448;
    return scale > FLT_MIN ? scale : FLT_MIN;
}

/* fp8_ds_mla and fp8_index: the floor is on the largest magnitude, the quotient is a product. */
static uint8_t footer_scale(const uint16_t *value, uint32_t count) {
    float most = largest(value, count);
    if (most < 1e-4f) most = 1e-4f;
    return ref_ue8m0_ceil(most * (1.0f / 448));
}

/* fp8_two_plane: the floor is on the quotient. */
static uint8_t two_plane_scale(const uint16_t *value, uint32_t count) {
    float scale = largest(value, count) / 448;
    return ref_ue8m0_ceil(scale > 1e-4f ? scale : 1e-4f);
}

/* fp4_index: the floor is what gives the smallest normal scale, 2^-126. */
static uint8_t fp4_scale(const uint16_t *value, uint32_t count) {
    float most = largest(value, count), floor = 6 * FLT_MIN;
    return ref_ue8m0_ceil((most > floor ? most : floor) * (1.0f / 6));
}

/* A place's page in one plane. */
static uint8_t *page_of(const struct ref_place *place, uint32_t plane, uint64_t page) {
    return place->plane[plane].base + page * place->plane[plane].stride;
}

/* The parts of a row. */
struct parts {
    size_t nope, rope; /* elements */
};

static struct parts parts_of(const struct ref_type *type) {
    return (struct parts){type->head_dim - type->rope_dim, type->rope_dim};
}

static void store_bf16(const struct ref_type *type, uint8_t *rows, uint64_t row,
                       const uint16_t *value) {
    size_t bytes = 2 * (size_t)type->head_dim;
    memcpy(rows + row * bytes, value, bytes);
}

/* The rope part in a plane of its own. */
static void store_rope(const struct ref_type *type, uint8_t *rows, uint64_t row,
                       const uint16_t *value) {
    struct parts part = parts_of(type);
    memcpy(rows + row * 2 * part.rope, value + part.nope, 2 * part.rope);
}

static void store_token(const struct ref_type *type, uint8_t *codes, uint8_t *scales, uint64_t row,
                        const uint16_t *value) {
    struct parts part = parts_of(type);
    float scale = token_scale(value, (uint32_t)part.nope);
    store_e4m3(codes + row * part.nope, value, part.nope, scale);
    memcpy(scales + row * 4, &scale, 4);
}

static void store_ds_mla(const struct ref_type *type, uint8_t *page, uint64_t rows, uint64_t row,
                         const uint16_t *value) {
    struct parts part = parts_of(type);
    struct sizes size = row_sizes(type, 0);
    uint8_t *data = page + row * size.data;
    uint8_t *footer = page + rows * size.data + row * size.footer;
    memset(footer, 0, size.footer);
    for (size_t i = 0; i < part.nope / SCALE_BLOCK; i++) {
        const uint16_t *block = value + i * SCALE_BLOCK;
        footer[i] = footer_scale(block, SCALE_BLOCK);
        store_e4m3(data + i * SCALE_BLOCK, block, SCALE_BLOCK, ref_ue8m0_value(footer[i]));
    }
    memcpy(data + part.nope, value + part.nope, 2 * part.rope);
}

static void store_two_plane(const struct ref_type *type, uint8_t *rows, uint64_t row,
                            const uint16_t *value) {
    struct parts part = parts_of(type);
    uint8_t *data = rows + row * type->head_dim, *scale = data + part.nope;
    memset(scale, 0, part.rope);
    for (size_t i = 0; i < part.nope / SCALE_BLOCK; i++) {
        const uint16_t *block = value + i * SCALE_BLOCK;
        uint8_t byte = two_plane_scale(block, SCALE_BLOCK);
        store_e4m3(data + i * SCALE_BLOCK, block, SCALE_BLOCK, ref_ue8m0_value(byte));
        scale[2 * i] = scale[2 * i + 1] = byte;
    }
}

static void store_fp8_index(const struct ref_type *type, uint8_t *page, uint64_t rows, uint64_t row,
                            const uint16_t *value) {
    uint64_t dim = type->head_dim;
    float scale = ref_ue8m0_value(footer_scale(value, type->head_dim));
    store_e4m3(page + row * dim, value, type->head_dim, scale);
    memcpy(page + rows * dim + row * 4, &scale, 4);
}

static void store_fp4_index(const struct ref_type *type, uint8_t *page, uint64_t rows, uint64_t row,
                            const uint16_t *value) {
    struct sizes size = row_sizes(type, 0);
    uint8_t *codes = page + row * size.data;
    uint8_t *scales = page + rows * size.data + row * size.footer;
    for (size_t i = 0; i < type->head_dim; i += FP4_BLOCK) {
        uint8_t byte = fp4_scale(value + i, FP4_BLOCK);
        float scale = ref_ue8m0_value(byte);
        scales[i / FP4_BLOCK] = byte;
        for (size_t e = i; e < i + FP4_BLOCK; e += 2) {
            uint8_t low = ref_e2m1(ref_bf16_value(value[e]) / scale);
            uint8_t high = ref_e2m1(ref_bf16_value(value[e + 1]) / scale);
            codes[e / 2] = (uint8_t)(low | high << 4);
        }
    }
}

void ref_row_store(const struct ref_type *type, const struct ref_place *place, uint64_t page,
                   uint32_t row, const uint16_t *value) {
    uint8_t *first = page_of(place, 0, page);
    switch (type->format) {
    case REF_BF16: store_bf16(type, first, row, value); break;
    case REF_FP8_TOKEN:
        store_token(type, first, page_of(place, 2, page), row, value);
        store_rope(type, page_of(place, 1, page), row, value);
        break;
    case REF_FP8_DS_MLA: store_ds_mla(type, first, place->rows, row, value); break;
    case REF_FP8_TWO_PLANE:
        store_two_plane(type, first, row, value);
        store_rope(type, page_of(place, 1, page), row, value);
        break;
    case REF_FP8_INDEX: store_fp8_index(type, first, place->rows, row, value); break;
    case REF_FP4_INDEX: store_fp4_index(type, first, place->rows, row, value); break;
    default: break;
    }
}

void ref_row_copy(const struct ref_type *type, const struct ref_place *from, uint64_t from_page,
                  uint32_t from_row, const struct ref_place *to, uint64_t to_page,
                  uint32_t to_row) {
    for (uint32_t plane = 0; plane < ref_planes(type->format); plane++) {
        struct sizes size = row_sizes(type, plane);
        const uint8_t *source = page_of(from, plane, from_page);
        uint8_t *target = page_of(to, plane, to_page);
        memcpy(target + to_row * size.data, source + from_row * size.data, size.data);
        memcpy(target + to->rows * size.data + to_row * size.footer,
               source + from->rows * size.data + from_row * size.footer, size.footer);
    }
}
