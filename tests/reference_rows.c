/* Row formats: page sizes by hand arithmetic, scales by published values, bytes where they belong.
 */
#include "convert.h"
#include "reference.h"
#include "tap.h"

#include <float.h>
#include <math.h>

static struct ref_type flash(enum ref_format format) {
    return (struct ref_type){.format = format, .head_dim = 512, .rope_dim = 64, .page_align = 32};
}

static struct ref_type indexer(enum ref_format format) {
    return (struct ref_type){.format = format, .head_dim = 128, .page_align = 32};
}

static void sizes(void) {
    struct ref_type type = flash(REF_BF16);
    is(ref_page_bytes(&type, 0, 128), 128 * 1024, "bf16: 1,024 bytes a row");
    type = flash(REF_FP8_TOKEN);
    is(ref_page_bytes(&type, 0, 3), 3 * 448, "fp8_token: nope plane");
    is(ref_page_bytes(&type, 1, 3), 3 * 128, "fp8_token: rope plane");
    is(ref_page_bytes(&type, 2, 3), 3 * 4, "fp8_token: scale plane");
    type = flash(REF_FP8_DS_MLA);
    is(ref_page_bytes(&type, 0, 4), 4 * 584, "fp8_ds_mla: 584 bytes a row");
    is(ref_page_bytes(&type, 0, 1), 608, "fp8_ds_mla: a page rounds up to a sector");
    type.page_align = 576;
    is(ref_page_bytes(&type, 0, 128), 74880, "fp8_ds_mla: 74,880 bytes a 128-row page at 576");
    is(ref_page_bytes(&type, 0, 2), 1728, "fp8_ds_mla: 1,728 bytes a 2-row page at 576");
    type = flash(REF_FP8_TWO_PLANE);
    is(ref_page_bytes(&type, 0, 5), 5 * 512, "fp8_two_plane: nope plane");
    is(ref_page_bytes(&type, 1, 5), 5 * 128, "fp8_two_plane: rope plane");
    type = indexer(REF_FP8_INDEX);
    is(ref_page_bytes(&type, 0, 32), 32 * 132, "fp8_index: 132 bytes a row");
    type.page_align = 576;
    is(ref_page_bytes(&type, 0, 64), 8640, "fp8_index: 8,640 bytes a 64-row page at 576");
    type = indexer(REF_FP4_INDEX);
    is(ref_page_bytes(&type, 0, 32), 32 * 68, "fp4_index: 68 bytes a row");
    type.page_align = 576;
    is(ref_page_bytes(&type, 0, 64), 4608, "fp4_index: 4,608 bytes a 64-row page at 576");
}

static void names(void) {
    bool all = true;
    for (int f = 0; f < REF_FORMATS; f++)
        all = all && ref_format_find(ref_format_name((enum ref_format)f)) == (enum ref_format)f;
    ok(all, "every format is found by its name");
    is(ref_format_find("fp8"), REF_FORMATS, "another name is not found");
    is(ref_planes(REF_FP8_TOKEN), 3, "fp8_token has three planes");
    ok(!strcmp(ref_plane_name(REF_FP8_TOKEN, 2), "inv"), "the last one holds the inverse scales");
}

/* A page of 3 rows per plane, poisoned; row 1 of page 1 is stored. */
#define ROWS 3
#define PAGE 8192
static uint8_t memory[REF_PLANES][2 * PAGE];

static uint8_t *store(const struct ref_type *type, const uint16_t *value) {
    struct ref_place place = {.rows = ROWS};
    memset(memory, 0xa5, sizeof memory);
    for (int i = 0; i < REF_PLANES; i++) place.plane[i] = (struct ref_array){memory[i], PAGE};
    ref_row_store(type, &place, 1, 1, value);
    return memory[0] + PAGE;
}

/* Bytes of plane `plane` outside [from, to) of page 1 that are no longer poison. */
static unsigned strays(int plane, size_t from, size_t to) {
    unsigned count = 0;
    for (size_t i = 0; i < 2 * PAGE; i++)
        count += (i < PAGE + from || i >= PAGE + to) && memory[plane][i] != 0xa5;
    return count;
}

static void fill(uint16_t *value, unsigned count, float x) {
    for (unsigned i = 0; i < count; i++) value[i] = ref_bf16(x);
}

static float f32_at(const uint8_t *at) {
    float value;
    memcpy(&value, at, 4);
    return value;
}

static void token(void) {
    struct ref_type type = flash(REF_FP8_TOKEN);
    uint16_t value[512];
    const uint8_t *scale = memory[2] + PAGE + 4;
    fill(value, 512, 1);
    value[0] = ref_bf16(-3.5f);
    value[1] = ref_bf16(0.25f);
    uint8_t *codes = store(&type, value) + 448;
    ok(f32_at(scale) == 3.5f / 448, "fp8_token: the scale is amax / 448");
    is(codes[0], 0xfe, "the largest magnitude becomes -448");
    is(codes[1], ref_e4m3(0.25f / (3.5f / 448)), "others are divided by the scale");
    same(memory[1] + PAGE + 128, value + 448, 128, "rope bits are copied");
    is(strays(0, 448, 896) + strays(1, 128, 256) + strays(2, 4, 8), 0, "nothing else is touched");

    fill(value, 512, 0);
    value[500] = ref_bf16(100);
    codes = store(&type, value) + 448;
    ok(f32_at(scale) == 1 && codes[0] == 0, "zeros have scale 1; the rope part does not count");
    fill(value, 512, 1);
    value[3] = 0xffc0; /* NaN */
    value[4] = 0x7f80;
    value[5] = 0xff80;
    codes = store(&type, value) + 448;
    ok(f32_at(scale) == FLT_MAX / 448, "infinity counts as FLT_MAX");
    ok(codes[3] == 0x7f && codes[4] == 0x7e && codes[5] == 0xfe && codes[6] == 0,
       "NaN and infinities have their codes");
    value[4] = value[5] = value[0];
    codes = store(&type, value) + 448;
    ok(f32_at(scale) == 1.0f / 448 && codes[3] == 0x7f && codes[4] == 0x7e, "NaN does not scale");
    fill(value, 512, 0);
    value[9] = 1; /* the smallest subnormal bf16, 2^-133 */
    codes = store(&type, value) + 448;
    ok(f32_at(scale) == FLT_MIN && codes[9] == 4, "the scale is never below FLT_MIN");
}

static void ds_mla(void) {
    static const struct {
        float most;
        uint8_t byte;
    } known[] = {{0, 105}, {5e-5f, 105}, {1.001358e-4f, 105}, {.5f, 118}, {.875f, 118},
                 {1, 119}, {1.75f, 119}, {3.5f, 120},         {7, 121},   {448, 127}};
    struct ref_type type = flash(REF_FP8_DS_MLA);
    uint16_t value[512];
    const size_t data = 576, footer = ROWS * 576 + 8;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        fill(value, 512, 0);
        fill(value + 64, 3, -known[i].most);
        uint8_t *page = store(&type, value);
        ok(page[footer + 1] == known[i].byte && page[footer] == 105, "scale byte of amax %g is %d",
           known[i].most, known[i].byte);
    }
    fill(value, 512, 448);
    value[511] = 0x1234;
    uint8_t *page = store(&type, value);
    ok(page[data] == 0x7e && page[data + 447] == 0x7e, "448 at scale 1 is 448");
    same(page + data + 448, value + 448, 128, "rope bits are copied");
    is(page[footer + 7], 0, "the footer's pad byte is zero");
    is(strays(0, data, 2 * data) - 8, 0, "only the row and its footer are touched");
    fill(value, 64, INFINITY);
    value[1] = 0x7fc1;
    page = store(&type, value);
    ok(page[footer] == 247 && page[data] == 0x7e && page[data + 1] == 0x7f,
       "infinity saturates, NaN stays");
    fill(value, 64, NAN);
    page = store(&type, value);
    ok(page[footer] == 105 && page[data + 63] == 0x7f, "a block of NaN has the floor's scale");
    /* 2^-30 at scale 2^-22 is 2^-8, two of the smallest steps. */
    fill(value, 64, 0x1p-30f);
    page = store(&type, value);
    ok(page[footer] == 105 && page[data] == 2, "below the floor the codes go down");
}

static void two_plane(void) {
    struct ref_type type = flash(REF_FP8_TWO_PLANE);
    uint16_t value[512];
    static const uint8_t zeros[50];
    fill(value, 512, 0);
    fill(value + 64, 64, 448);
    fill(value + 128, 64, 449);
    fill(value + 192, 64, 0.0625f);
    value[64 * 2] = ref_bf16(450);
    uint8_t *row = store(&type, value) + 512;
    ok(row[448] == 114 && row[449] == 114, "a zero block has the floor 1e-4, 2^-13, twice");
    ok(row[450] == 127 && row[451] == 127 && row[64] == 0x7e, "448 needs scale 1");
    ok(row[452] == 128 && row[453] == 128, "beyond it 2");
    ok(row[454] == 115 && row[455] == 115, "1/16 over 448 rounds up to 2^-12");
    same(row + 462, zeros, 50, "the rest of the row is zero");
    same(memory[1] + PAGE + 128, value + 448, 128, "rope bits are in their own plane");
    is(strays(0, 512, 1024) + strays(1, 128, 256), 0, "nothing else is touched");
}

static void index_rows(void) {
    static const struct {
        float most;
        uint8_t byte;
    } known[] = {{0, 1}, {1, 125}, {1.5f, 125}, {3, 126}, {6, 127}};
    struct ref_type type = indexer(REF_FP4_INDEX);
    uint16_t value[128];
    const size_t scales = ROWS * 64 + 4;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        fill(value, 128, 0);
        value[33] = ref_bf16(-known[i].most);
        uint8_t *page = store(&type, value);
        ok(page[scales + 1] == known[i].byte && page[scales] == 1, "fp4 scale byte of %g is %d",
           known[i].most, known[i].byte);
    }
    fill(value, 128, 6);
    value[0] = ref_bf16(-0.5f);
    value[1] = ref_bf16(2.5f);
    value[127] = 0x7f80;
    uint8_t *page = store(&type, value);
    is(page[64], 0x49, "the even element lies in the low half: -0.5 and 2 give 0x49");
    ok(page[scales + 3] == 253 && page[127] == 0x70, "infinity saturates its block");
    is(strays(0, 64, 128) - 4, 0, "only the row and its scales are touched");

    type = indexer(REF_FP8_INDEX);
    fill(value, 128, 1);
    page = store(&type, value);
    ok(f32_at(page + ROWS * 128 + 4) == 0x1p-8f && page[128] == 0x78, "fp8_index: 1 is 256 / 2^8");
    is(strays(0, 128, 256) - 4, 0, "only the row and its scale are touched");
}

/* A row's copy is the row stored there, scales and pads included. */
static void copies(void) {
    uint16_t value[512];
    for (int i = 0; i < 512; i++) value[i] = (uint16_t)(0x3f00 + i * 3 % 256);
    for (int f = 0; f < REF_FORMATS; f++) {
        enum ref_format format = (enum ref_format)f;
        struct ref_type type = f >= REF_FP8_INDEX ? indexer(format) : flash(format);
        static uint8_t want[REF_PLANES][PAGE], other[REF_PLANES][PAGE];
        struct ref_place from = {.rows = ROWS}, to = {.rows = 2}, expected = {.rows = 2};
        memset(want, 0x11, sizeof want);
        memset(other, 0x11, sizeof other);
        for (int i = 0; i < REF_PLANES; i++) {
            from.plane[i] = (struct ref_array){memory[i], PAGE};
            to.plane[i] = (struct ref_array){other[i], PAGE};
            expected.plane[i] = (struct ref_array){want[i], PAGE};
        }
        store(&type, value);
        ref_row_store(&type, &expected, 0, 0, value);
        ref_row_copy(&type, &from, 1, 1, &to, 0, 0);
        ok(!memcmp(want, other, sizeof want), "%s: a row is copied as it is stored",
           ref_format_name(format));
    }
}

static void bf16(void) {
    struct ref_type type = flash(REF_BF16);
    uint16_t value[512];
    for (unsigned i = 0; i < 512; i++) value[i] = (uint16_t)(0x7f00 + i);
    same(store(&type, value) + 1024, value, 1024, "bf16: bits are copied, NaNs too");
    is(strays(0, 1024, 2048), 0, "nothing else is touched");
}

/* Whatever is read back and stored again is the same row: codes times power-of-two scales are
 * exact. */
static void read_back(void) {
    static const enum ref_format all[] = {REF_BF16, REF_FP8_DS_MLA, REF_FP8_TWO_PLANE,
                                          REF_FP8_INDEX, REF_FP4_INDEX};
    uint16_t value[512], once[512], twice[512];
    struct ref_place place = {.rows = ROWS};
    for (int i = 0; i < REF_PLANES; i++) place.plane[i] = (struct ref_array){memory[i], PAGE};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
        struct ref_type type = all[f] >= REF_FP8_INDEX ? indexer(all[f]) : flash(all[f]);
        uint32_t state = 7, count = type.head_dim;
        for (uint32_t i = 0; i < count; i++) {
            state = state * 1664525 + 1013904223;
            value[i] = (uint16_t)((state >> 16 & 0x83ff) | 0x3c00);
        }
        store(&type, value);
        ref_row_load(&type, &place, 1, 1, once);
        store(&type, once);
        ref_row_load(&type, &place, 1, 1, twice);
        float most = 0;
        for (uint32_t i = 0; i < count - type.rope_dim; i++)
            most = fmaxf(most, fabsf(ref_bf16_value(once[i]) - ref_bf16_value(value[i])));
        ok(!memcmp(once, twice, 2 * (size_t)count) && most < 0.26f,
           "%s: a row that was read back stores as itself", ref_format_name(all[f]));
        if (all[f] == REF_BF16) is(memcmp(once, value, 1024), 0, "bf16 loses nothing");
    }
    struct ref_type type = flash(REF_FP8_TOKEN);
    fill(value, 512, 3);
    value[0] = ref_bf16(7);
    store(&type, value);
    ref_row_load(&type, &place, 1, 1, once);
    ok(once[0] == value[0] &&
           once[447] == ref_bf16(ref_e4m3_value(ref_e4m3(3 / (7.0f / 448))) * (7.0f / 448)) &&
           once[500] == value[500],
       "fp8_token: code times scale, rounded to bf16");
}

int main(void) {
    tap_plan(1 + 14 + 4 + 10 + 17 + 7 + 10 + 2 + 7 + 6);
    ok(ref_bits(1.0f / 448) == 0x3b124925 && ref_bits(1.0f / 6) == 0x3e2aaaab,
       "the reciprocals are the published constants");
    sizes();
    names();
    token();
    ds_mla();
    two_plane();
    index_rows();
    bf16();
    copies();
    read_back();
    return tap_done();
}
