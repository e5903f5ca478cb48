/* compress's twin: published means, chunking that changes no bit, and where entries go. */
#include "convert.h"
#include "reference.h"
#include "tap.h"
#include "vector.h"

#include <math.h>

#define DIM       128
#define ROPE      64
#define TOKENS    300
#define POSITIONS 320
#define SLOTS     2
#define PAGES     4
#define PAGE      (32 * DIM * 2)

static float kv[TOKENS][2 * DIM], score[TOKENS][2 * DIM], ape[128][2 * DIM], weight[DIM];
static float rope[POSITIONS][ROPE], tail[4][SLOTS][128 * DIM];
static uint8_t pages[(PAGES + 1) * PAGE]; /* one too many as a guard */
static int32_t tail_len[SLOTS], batch_id[TOKENS], position[TOKENS], cu_tokens[2];
static int32_t state_slot[1], write_from[1], table[4];
static uint32_t table_stride, positions;
static uint32_t seed;

static struct ref_type csa(void) {
    return (struct ref_type){.format = REF_BF16,
                             .head_dim = DIM,
                             .rope_dim = ROPE,
                             .block = 128,
                             .page_align = 32,
                             .ratio = 4,
                             .overlap = true,
                             .input = REF_F32,
                             .state = REF_F32,
                             .ape_on_write = true,
                             .round_before_norm = true,
                             .round_before_rope = true,
                             .norm_eps = 1e-6f};
}

static struct ref_type hca(void) {
    struct ref_type type = csa();
    type.ratio = 128;
    type.overlap = false;
    return type;
}

static float random_float(void) {
    seed = seed * 1664525 + 1013904223;
    return (float)((int32_t)seed >> 8) * 0x1p-20f;
}

static void clear(void) {
    seed = 1;
    memset(pages, 0xa5, sizeof pages);
    memset(tail, 0xa5, sizeof tail);
    memset(ape, 0, sizeof ape);
    table[0] = 2, table[1] = 0, table[2] = 3, table[3] = 1;
    table_stride = 3;
    positions = POSITIONS;
    state_slot[0] = 1;
    write_from[0] = 0;
    for (int i = 0; i < DIM; i++) weight[i] = 1;
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < ROPE; i++) rope[p][i] = i < ROPE / 2 ? 1 : 0;
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < 2 * DIM; c++) kv[t][c] = (float)t, score[t][c] = 0.5f;
}

static void randomise(void) {
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < 2 * DIM; c++)
            kv[t][c] = random_float() / 64, score[t][c] = random_float() / 64;
    for (int i = 0; i < 128 * 2 * DIM; i++)
        ape[i / (2 * DIM)][i % (2 * DIM)] = random_float() / 256;
}

static struct ref_compress make(const struct ref_type *type) {
    return (struct ref_compress){
        .batch = {0, 1, SLOTS, positions, batch_id, position, cu_tokens, state_slot},
        .dim = DIM,
        .format = type->format,
        .kv_stride = sizeof kv[0],
        .score_stride = sizeof score[0],
        .ape = ape[0],
        .norm_weight = weight,
        .rope = rope[0],
        .write_from = write_from,
        .block_table = table,
        .pages = PAGES,
        .table_stride = table_stride,
        .ka = {(uint8_t *)tail[0], sizeof tail[0][0]},
        .za = {(uint8_t *)tail[1], sizeof tail[0][0]},
        .kb = {(uint8_t *)tail[2], sizeof tail[0][0]},
        .zb = {(uint8_t *)tail[3], sizeof tail[0][0]},
        .place = {.plane = {{pages, PAGE}}, .rows = 128 / type->ratio}};
}

/* Tokens `first` .. first + count - 1 of the sequence as one launch: compress, then append. */
static void launch(const struct ref_type *type, int first, int count) {
    struct ref_compress args = make(type);
    args.batch.tokens = (uint32_t)count;
    args.kv = (uint8_t *)kv[first];
    args.score = (uint8_t *)score[first];
    cu_tokens[1] = count;
    for (int t = 0; t < count; t++) batch_id[t] = 0, position[t] = first + t;
    ref_compress(type, &args);
    struct ref_tail_append append = {.batch = args.batch,
                                     .dim = DIM,
                                     .kv = args.kv,
                                     .score = args.score,
                                     .kv_stride = args.kv_stride,
                                     .score_stride = args.score_stride,
                                     .ape = args.ape,
                                     .ka = args.ka,
                                     .za = args.za,
                                     .kb = args.kb,
                                     .zb = args.zb,
                                     .len = {(uint8_t *)tail_len, 4}};
    ref_tail_append(type, &append);
}

/* The pooled value of channel 0 for the group that ends with token t of one launch from 0. */
static float pooled(const struct ref_type *type, int t) {
    struct ref_compress args = make(type);
    float x[DIM];
    args.batch.tokens = TOKENS;
    args.kv = (uint8_t *)kv;
    args.score = (uint8_t *)score;
    cu_tokens[1] = TOKENS;
    for (int i = 0; i < TOKENS; i++) batch_id[i] = 0, position[i] = i;
    ref_compress_pool(type, &args, (uint32_t)t, x);
    return x[0];
}

static void means(void) {
    struct ref_type type = csa();
    clear();
    ok(pooled(&type, 3) == 1.5f, "equal scores: CSA entry 0 is the mean of its own group, 1.5");
    ok(pooled(&type, 7) == 3.5f, "entry 1 of two groups, 3.5");
    ok(pooled(&type, 4 * 50 + 3) == 4 * 50 - 0.5f, "entry j is 4j - 0.5");
    type = hca();
    ok(pooled(&type, 127) == 63.5f && pooled(&type, 255) == 128 + 63.5f,
       "HCA entry j is 128j + 63.5");
    type = csa();
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < DIM; c++) kv[t][c] = 1000; /* stream b */
    ok(pooled(&type, 7) == (4 * 1000 + 4 + 5 + 6 + 7) / 8.0f,
       "the previous group gives its stream b, the own one its stream a");
    score[5][DIM] = 1e4f;
    ok(pooled(&type, 7) == 5, "a score far above the others takes all");
    ape[2][DIM] = 2e4f;
    ok(pooled(&type, 7) == 6, "ape counts, by position modulo ratio");
    for (int t = 0; t < 8; t++) score[t][0] = score[t][DIM] = -INFINITY;
    ape[2][DIM] = 0;
    ok(pooled(&type, 7) == 0, "no weight at all gives 0");
    score[6][DIM] = NAN;
    ok(isnan(pooled(&type, 7)), "a NaN score makes a NaN");
}

/* A sequence of TOKENS in chunks of `chunk` gives these pages. */
static void in_chunks(const struct ref_type *type, int chunk, uint8_t *out) {
    clear();
    randomise();
    for (int first = 0; first < TOKENS; first += chunk)
        launch(type, first, first + chunk < TOKENS ? chunk : TOKENS - first);
    memcpy(out, pages, sizeof pages);
}

static void chunking(void) {
    static uint8_t whole[sizeof pages], parts[sizeof pages];
    static const int chunks[] = {1, 3, 5, 127, 128};
    for (int variant = 0; variant < 4; variant++) {
        struct ref_type type = variant % 2 ? hca() : csa();
        type.state = variant / 2 ? REF_BFLOAT : REF_F32;
        type.ape_on_write = variant != 3;
        in_chunks(&type, TOKENS, whole);
        bool equal = true;
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            in_chunks(&type, chunks[i], parts);
            equal = equal && !memcmp(whole, parts, sizeof whole);
        }
        ok(equal, "%s, %s tails: chunks change no bit", variant % 2 ? "hca" : "csa",
           variant / 2 ? "bf16" : "f32");
    }
    struct ref_type type = csa();
    in_chunks(&type, 7, whole);
    type.state = REF_BFLOAT;
    in_chunks(&type, 7, parts);
    ok(memcmp(whole, parts, sizeof whole) != 0, "the tail's dtype shows");
}

static uint16_t element(int page, int row, int e) {
    uint16_t bits;
    memcpy(&bits, pages + page * PAGE + row * DIM * 2 + e * 2, 2);
    return bits;
}

/* Rows of all pages that are no longer poison. */
static int rows_written(void) {
    int count = 0;
    for (int i = 0; i < (PAGES + 1) * 32; i++) count += element(i / 32, i % 32, 0) != 0xa5a5;
    return count;
}

static void placement(void) {
    struct ref_type type = csa();
    clear();
    launch(&type, 0, 300);
    is(rows_written(), 75, "300 tokens complete 75 groups");
    ok(element(2, 0, 0) != 0xa5a5 && element(2, 31, 0) != 0xa5a5 && element(0, 31, 0) != 0xa5a5 &&
           element(3, 10, 0) != 0xa5a5 && element(3, 11, 0) == 0xa5a5,
       "in the rows of the pages that the table names");
    clear();
    write_from[0] = 7;
    table[1] = -1, table[2] = PAGES;
    launch(&type, 0, 300);
    is(rows_written(), 31, "nothing below write_from, in unbacked pages or beyond the pool");
    clear();
    table_stride = 2;
    launch(&type, 0, 300);
    is(rows_written(), 64, "nothing beyond the table's columns");
    clear();
    positions = 299;
    launch(&type, 0, 300);
    is(rows_written(), 74, "nothing beyond the rope table");
    clear();
    state_slot[0] = SLOTS;
    launch(&type, 0, 300);
    is(rows_written(), 0, "nothing for a slot out of range");
    clear();
    for (int i = 0; i < ROPE; i++) rope[4][i] = i < ROPE / 2 ? 0 : 1; /* 90 degrees */
    for (int t = 0; t < TOKENS; t++) kv[t][DIM + ROPE] = -3; /* one rotated channel of stream a */
    launch(&type, 0, 8);
    ok((element(2, 1, ROPE + 1) & 0x8000) && !(element(2, 0, ROPE + 1) & 0x8000),
       "an entry is rotated at its group's first position");
}

static void rounding(void) {
    struct ref_type type = csa();
    uint16_t bits[3];
    clear();
    for (int c = 0; c < DIM; c++) weight[c] = 1 + 0x1p-8f + (float)c * 0x1p-12f;
    randomise();
    launch(&type, 0, 8);
    bits[0] = element(2, 1, 9);
    uint8_t with[DIM * 2], without[DIM * 2];
    memcpy(with, pages + 2 * PAGE + DIM * 2, sizeof with);
    type.round_before_norm = false;
    launch(&type, 0, 8);
    memcpy(without, pages + 2 * PAGE + DIM * 2, sizeof without);
    ok(memcmp(with, without, sizeof with) != 0, "round_before_norm shows");
    for (int i = 0; i < ROPE / 2; i++) rope[4][i] = 1.7f;
    launch(&type, 0, 8);
    memcpy(with, pages + 2 * PAGE + DIM * 2, sizeof with);
    type.round_before_rope = false;
    launch(&type, 0, 8);
    memcpy(without, pages + 2 * PAGE + DIM * 2, sizeof without);
    ok(memcmp(with, without, sizeof with) != 0 && !memcmp(with, without, (DIM - ROPE) * 2),
       "round_before_rope shows in the rotated part");
    /* Scaling all values by a power of two does not change the normed row, save for eps. */
    type.norm_eps = 0;
    launch(&type, 0, 8);
    bits[1] = element(2, 1, 9);
    for (int t = 0; t < 8; t++)
        for (int c = 0; c < 2 * DIM; c++) kv[t][c] *= 0x1p10f;
    launch(&type, 0, 8);
    bits[2] = element(2, 1, 9);
    ok(bits[1] == bits[2] && bits[0] != 0xa5a5, "the norm takes the scale away");
}

static void index_entries(void) {
    struct ref_type type = csa();
    type.hadamard = true;
    clear();
    randomise();
    struct ref_compress args = make(&type);
    float x[DIM];
    args.batch.tokens = 8;
    args.kv = (uint8_t *)kv;
    args.score = (uint8_t *)score;
    args.index = true;
    args.format = REF_BF16; /* to see the row before its format */
    cu_tokens[1] = 8;
    for (int t = 0; t < 8; t++) batch_id[t] = 0, position[t] = t;
    ref_compress(&type, &args);
    static uint8_t turned[DIM * 2];
    memcpy(turned, pages + 2 * PAGE + DIM * 2, sizeof turned);
    args.index = false;
    ref_compress(&type, &args);
    for (int i = 0; i < DIM; i++) x[i] = ref_bf16_value(element(2, 1, i));
    ref_hadamard(x, DIM);
    bool equal = true;
    for (int i = 0; i < DIM; i++) {
        uint16_t want = ref_bf16(x[i]);
        equal = equal && !memcmp(turned + 2 * i, &want, 2);
    }
    ok(equal, "an index row is the rotated row's transform, rounded once more");
    args.index = true;
    args.format = REF_FP8_INDEX;
    ref_compress(&type, &args);
    float scale;
    memcpy(&scale, pages + 2 * PAGE + 32 * DIM + 4, 4);
    float most = 0;
    for (int i = 0; i < DIM; i++) most = fmaxf(most, fabsf(ref_bf16_value(ref_bf16(x[i]))));
    ok(scale >= most / 448 && scale / 2 < most / 448,
       "and is stored with its scale behind the codes");
}

int main(void) {
    tap_plan(9 + 5 + 7 + 3 + 2);
    means();
    chunking();
    placement();
    rounding();
    index_entries();
    return tap_done();
}
