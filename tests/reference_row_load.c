/*
 * Rows read back as stored: single bytes put where each format's definition has them, and rows
 * that were stored before, against the nearest code by double arithmetic.
 */
#include "convert.h"
#include "reference.h"
#include "tap.h"

#include <math.h>

#define ROWS  3
#define PAGES 2

static uint8_t memory[REF_PLANES][PAGES * 8192];
static uint16_t value[512];

static struct ref_type type_of(enum ref_format format, uint32_t dim, uint32_t rope) {
    return (struct ref_type){.format = format, .head_dim = dim, .rope_dim = rope, .page_align = 32};
}

static struct ref_place place_of(const struct ref_type *type) {
    struct ref_place place = {.rows = ROWS};
    memset(memory, 0, sizeof memory);
    for (uint32_t i = 0; i < ref_planes(type->format); i++)
        place.plane[i] = (struct ref_array){memory[i], ref_page_bytes(type, i, ROWS) + 16};
    return place;
}

/* Element `index` of row 2 in page 1, when only the bytes that the caller set are not zero. */
static float element(const struct ref_type *type, const struct ref_place *place, uint32_t index) {
    ref_row_load(type, place, 1, 2, value);
    return ref_bf16_value(value[index]);
}

static void put(uint32_t plane, const struct ref_place *place, size_t offset, uint8_t byte) {
    memory[plane][place->plane[plane].stride + offset] = byte;
}

static void put_f32(uint32_t plane, const struct ref_place *place, size_t offset, float x) {
    memcpy(memory[plane] + place->plane[plane].stride + offset, &x, 4);
}

static void bytes_of_latents(void) {
    struct ref_type type = type_of(REF_BF16, 512, 64);
    struct ref_place place = place_of(&type);
    put(0, &place, 2 * 1024 + 2 * 500 + 1, 0x40);
    ok(element(&type, &place, 500) == 2, "bf16: element 500 of row 2");

    type = type_of(REF_FP8_TOKEN, 512, 64);
    place = place_of(&type);
    put(0, &place, 2 * 448 + 447, 0x38 + 4); /* 1.5 */
    put(1, &place, 2 * 128 + 2 * 63 + 1, 0xc0);
    put_f32(2, &place, 8, 1 / 3.0f);
    ok(element(&type, &place, 447) == .5f, "fp8_token: code times the row's scale");
    ok(element(&type, &place, 511) == -2, "fp8_token: the last rotated element");
    put_f32(2, &place, 8, 0x1.0102p0f); /* 1.5 times it lies between two bf16 numbers */
    ok(element(&type, &place, 447) == 0x1.82p0f, "fp8_token: the product is rounded to bf16");

    type = type_of(REF_FP8_DS_MLA, 512, 64);
    place = place_of(&type);
    put(0, &place, 2 * 576 + 64 * 6 + 1, 0xb8 + 7); /* -1.875 */
    put(0, &place, 2 * 576 + 448 + 2 * 63 + 1, 0x40);
    put(0, &place, 3 * 576 + 2 * 8 + 6, 127 + 5);
    ok(element(&type, &place, 64 * 6 + 1) == -60, "fp8_ds_mla: code times its block's scale");
    ok(element(&type, &place, 511) == 2, "fp8_ds_mla: the last rotated element");

    type = type_of(REF_FP8_TWO_PLANE, 512, 64);
    place = place_of(&type);
    put(0, &place, 2 * 512 + 64 * 6 + 1, 0x7e);
    put(0, &place, 2 * 512 + 448 + 12, 127 - 5);
    put(0, &place, 2 * 512 + 448 + 13, 127 - 5);
    put(1, &place, 2 * 128 + 1, 0x40);
    ok(element(&type, &place, 64 * 6 + 1) == 14, "fp8_two_plane: code times its block's scale");
    ok(element(&type, &place, 448) == 2, "fp8_two_plane: the first rotated element");
}

static void bytes_of_index_rows(void) {
    struct ref_type type = type_of(REF_FP8_INDEX, 128, 64);
    struct ref_place place = place_of(&type);
    put(0, &place, 2 * 128 + 127, 0x38);
    put_f32(0, &place, 3 * 128 + 8, 0x1p-22f);
    ok(element(&type, &place, 127) == 0x1p-22f, "fp8_index: code times the row's scale");

    type = type_of(REF_FP4_INDEX, 128, 64);
    place = place_of(&type);
    put(0, &place, 2 * 64 + 63, 0x7d); /* element 126: -3, element 127: 6 */
    put(0, &place, 3 * 64 + 2 * 4 + 3, 127 + 2);
    ok(element(&type, &place, 126) == -12, "fp4_index: the even element in the low half");
    ok(element(&type, &place, 127) == 24, "fp4_index: the odd element in the high half");
}

static void numbers(void) {
    struct ref_type type = type_of(REF_FP8_DS_MLA, 128, 64);
    struct ref_place place = place_of(&type);
    put(0, &place, (size_t)2 * 192, 0xff);
    put(0, &place, 2 * 192 + 1, 1);
    put(0, &place, 2 * 192 + 2, 0x7e);
    put(0, &place, 3 * 192 + 2 * 8, 127);
    ref_row_load(&type, &place, 1, 2, value);
    ok(value[0] == 0x7fff, "a NaN code becomes the NaN of bf16");
    ok(ref_bf16_value(value[1]) == 0x1p-9f, "the smallest code");
    put(0, &place, 3 * 192 + 2 * 8, 254);
    ref_row_load(&type, &place, 1, 2, value);
    ok(value[2] == 0x7f80, "a product beyond bf16 is infinite");
}

/* Whether `got` is within half a step (and bf16's own rounding) of `x` in a format whose steps are
 * scale * 2^-9 and wider. */
static bool near(float got, float x, double scale, double step) {
    double size = fabs((double)x) / scale, unit = step;
    int exponent;
    frexp(size, &exponent);
    if (step < .1 && exponent > -5) unit = ldexp(1, exponent - 4); /* e4m3 */
    if (step > .1 && exponent > 1) unit = ldexp(1, exponent - 2);  /* e2m1 */
    return fabs((double)got - (double)x) <= unit * scale / 2 * (1 + 0x1p-4);
}

/* Random rows of three rows in two pages: all of them, each within half a step of the input. */
static void round_trip(enum ref_format format, uint32_t dim, uint32_t rope) {
    struct ref_type type = type_of(format, dim, rope);
    struct ref_place place = place_of(&type);
    static uint16_t in[PAGES][ROWS][512];
    uint32_t state = 12345, wrong = 0, moved = 0;
    bool index = format == REF_FP8_INDEX || format == REF_FP4_INDEX;
    for (uint32_t p = 0; p < PAGES; p++)
        for (uint32_t r = 0; r < ROWS; r++) {
            for (uint32_t i = 0; i < dim; i++) {
                state = state * 1664525 + 1013904223;
                float x = (float)(int32_t)state * ldexpf(1, -31 - (int)(i % 3));
                in[p][r][i] = ref_bf16(i % 32 == 0 ? 3.75f : x);
            }
            ref_row_store(&type, &place, p, r, in[p][r]);
        }
    for (uint32_t p = 0; p < PAGES; p++)
        for (uint32_t r = 0; r < ROWS; r++) {
            ref_row_load(&type, &place, p, r, value);
            for (uint32_t i = 0; i < dim; i++) {
                bool exact = format == REF_BF16 || (!index && i >= dim - rope);
                float x = ref_bf16_value(in[p][r][i]), got = ref_bf16_value(value[i]);
                double scale = format == REF_FP4_INDEX   ? 1
                               : format == REF_FP8_TOKEN ? 3.75 / 448
                                                         : 0x1p-6;
                double step = format == REF_FP4_INDEX ? .5 : 0x1p-9;
                wrong += exact ? value[i] != in[p][r][i] : !near(got, x, scale, step);
                moved += value[i] != in[p][r][i];
            }
        }
    ok(wrong == 0, "%s: rows come back, each element within half a step", ref_format_name(format));
    ok((moved == 0) == (format == REF_BF16), "%s: and they were really quantised",
       ref_format_name(format));
}

int main(void) {
    tap_plan(8 + 3 + 3 + 12);
    bytes_of_latents();
    bytes_of_index_rows();
    numbers();
    round_trip(REF_BF16, 512, 64);
    round_trip(REF_FP8_TOKEN, 512, 64);
    round_trip(REF_FP8_DS_MLA, 512, 64);
    round_trip(REF_FP8_TWO_PLANE, 512, 64);
    round_trip(REF_FP8_INDEX, 128, 64);
    round_trip(REF_FP4_INDEX, 128, 64);
    return tap_done();
}
