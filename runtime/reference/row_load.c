/* Rows read back: where each format keeps codes and scales, and what a code is worth. */
#include "convert.h"
#include "reference.h"

#include <string.h>

/* A row's page in every plane. */
struct pages {
    const uint8_t *at[REF_PLANES];
};

static float f32_at(const uint8_t *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void decode_e4m3(const uint8_t *code, uint32_t count, float scale, uint16_t *value) {
    for (uint32_t i = 0; i < count; i++) value[i] = ref_bf16(ref_e4m3_value(code[i]) * scale);
}

static void decode_e2m1(const uint8_t *code, uint32_t count, float scale, uint16_t *value) {
    for (uint32_t i = 0; i < count; i++) {
        uint8_t nibble = code[i / 2] >> (i % 2 ? 4 : 0) & 15;
        value[i] = ref_bf16(ref_e2m1_value(nibble) * scale);
    }
}

static void load_bf16(const struct ref_type *type, struct pages page, uint64_t row,
                      uint16_t *value) {
    memcpy(value, page.at[0] + row * type->head_dim * 2, (size_t)type->head_dim * 2);
}

static void load_token(const struct ref_type *type, struct pages page, uint64_t row,
                       uint16_t *value) {
    uint32_t nope = type->head_dim - type->rope_dim;
    decode_e4m3(page.at[0] + row * nope, nope, f32_at(page.at[2] + row * 4), value);
    memcpy(value + nope, page.at[1] + row * type->rope_dim * 2, (size_t)type->rope_dim * 2);
}

/* Rows of nope codes and rope values; behind all of them, footers of scales. */
static void load_ds_mla(const struct ref_type *type, struct pages page, uint64_t rows, uint64_t row,
                        uint16_t *value) {
    uint32_t nope = type->head_dim - type->rope_dim, scales = nope / 64;
    uint64_t data = nope + (uint64_t)type->rope_dim * 2, footer = ((uint64_t)scales + 7) / 8 * 8;
    const uint8_t *codes = page.at[0] + row * data;
    const uint8_t *scale = page.at[0] + rows * data + row * footer;
    for (uint32_t i = 0; i < scales; i++)
        decode_e4m3(codes + (size_t)64 * i, 64, ref_ue8m0_value(scale[i]), value + (size_t)64 * i);
    memcpy(value + nope, codes + nope, (size_t)type->rope_dim * 2);
}

/* The scales stand behind the row's codes, each twice. */
static void load_two_plane(const struct ref_type *type, struct pages page, uint64_t row,
                           uint16_t *value) {
    uint32_t nope = type->head_dim - type->rope_dim;
    const uint8_t *codes = page.at[0] + row * type->head_dim;
    for (uint32_t i = 0; i < nope / 64; i++)
        decode_e4m3(codes + (size_t)64 * i, 64, ref_ue8m0_value(codes[nope + 2 * i]),
                    value + (size_t)64 * i);
    memcpy(value + nope, page.at[1] + row * type->rope_dim * 2, (size_t)type->rope_dim * 2);
}

static void load_fp8_index(const struct ref_type *type, struct pages page, uint64_t rows,
                           uint64_t row, uint16_t *value) {
    uint64_t dim = type->head_dim;
    decode_e4m3(page.at[0] + row * dim, type->head_dim, f32_at(page.at[0] + rows * dim + row * 4),
                value);
}

static void load_fp4_index(const struct ref_type *type, struct pages page, uint64_t rows,
                           uint64_t row, uint16_t *value) {
    uint64_t codes = type->head_dim / 2, scales = type->head_dim / 32;
    const uint8_t *code = page.at[0] + row * codes;
    const uint8_t *scale = page.at[0] + rows * codes + row * scales;
    for (uint32_t i = 0; i < scales; i++)
        decode_e2m1(code + (size_t)16 * i, 32, ref_ue8m0_value(scale[i]), value + (size_t)32 * i);
}

void ref_row_load(const struct ref_type *type, const struct ref_place *place, uint64_t page,
                  uint32_t row, uint16_t *value) {
    struct pages pages;
    for (uint32_t i = 0; i < REF_PLANES; i++) {
        uint32_t plane = i < ref_planes(type->format) ? i : 0;
        pages.at[i] = place->plane[plane].base + page * place->plane[plane].stride;
    }
    switch (type->format) {
    case REF_BF16: load_bf16(type, pages, row, value); break;
    case REF_FP8_TOKEN: load_token(type, pages, row, value); break;
    case REF_FP8_DS_MLA: load_ds_mla(type, pages, place->rows, row, value); break;
    case REF_FP8_TWO_PLANE: load_two_plane(type, pages, row, value); break;
    case REF_FP8_INDEX: load_fp8_index(type, pages, place->rows, row, value); break;
    case REF_FP4_INDEX: load_fp4_index(type, pages, place->rows, row, value); break;
    default: break;
    }
}
