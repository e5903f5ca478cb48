/*
 * The dense reference against the kernels' references, step for step from the same inputs: results
 * must lie within the stated bound, the bound must be narrow, and mistakes must leave it.
 */
#include "attention.h"
#include "convert.h"
#include "dense.h"
#include "indexer.h"
#include "tap.h"

#include <math.h>

#define TOKENS  150
#define DIM     128
#define ROPE    64
#define HEADS   2
#define BLOCK   128
#define PAGES   4
#define COLUMNS 2
#define IHEADS  4
#define IDIM    64
#define ENTRIES (TOKENS / 4)
#define STRIDE  64
#define TOPK    8
#define PAGE    (BLOCK * DIM * 2 + 4096)

static const int32_t window_table[COLUMNS] = {2, 1}, block_table[COLUMNS] = {3, 0};
static const int32_t cu_tokens[2] = {0, TOKENS}, write_from[1] = {0};

/* ---- inputs ---- */

static uint16_t latent[TOKENS][DIM], kv[TOKENS][2 * DIM], score[TOKENS][2 * DIM];
static uint16_t ikv[TOKENS][2 * IDIM], iscore[TOKENS][2 * IDIM];
static uint16_t q[TOKENS][HEADS * DIM], iq[TOKENS][IHEADS * IDIM];
static float weights[TOKENS][IHEADS], norm_weight[DIM], ape[16 * 2 * DIM], rope[TOKENS][ROPE];
static float sink[HEADS] = {.5f, -INFINITY};
#define SCALE 0x1.6a09e6p-4f
static float kernel_scale = SCALE;
static int32_t batch_id[TOKENS], position[TOKENS];

/* ---- what the kernels' references make of them ---- */

static uint8_t window[REF_PLANES][PAGES][PAGE], compressed[REF_PLANES][PAGES][PAGE];
static uint8_t keys[PAGES][PAGE];
static uint16_t q_out[TOKENS][HEADS * DIM], iq_out[TOKENS][IHEADS * IDIM], out[TOKENS][HEADS * DIM];
static float w_out[TOKENS][IHEADS], scores[TOKENS][ENTRIES];
static int32_t rows[TOKENS][STRIDE], window_count[TOKENS], entry_count[TOKENS];
static int32_t topk[TOKENS][TOPK], topk_count[TOKENS];
static float part_o[TOKENS][2][HEADS][DIM], part_m[TOKENS][2][HEADS], part_l[TOKENS][2][HEADS];
static float lse[TOKENS][HEADS];

/* ---- and the dense reference ---- */

static struct ref_range dense_window[TOKENS][DIM], dense_entries[ENTRIES][DIM];
static struct ref_range dense_keys[ENTRIES][IDIM];
static double value[HEADS * DIM], radius[HEADS * DIM], noise[HEADS * DIM];

static uint32_t state = 5;

static float uniform(void) {
    state = state * 1664525 + 1013904223;
    return (float)(int32_t)(state & 0xffffff00) * 0x1p-31f;
}

static void fill(uint16_t *to, size_t count, float size) {
    for (size_t i = 0; i < count; i++) to[i] = ref_bf16(size * (uniform() + uniform() + uniform()));
}

static void make_inputs(void) {
    for (int32_t t = 0; t < TOKENS; t++) {
        position[t] = t;
        for (uint32_t i = 0; i < ROPE / 2; i++) {
            double angle = t * pow(10000, -2.0 * i / ROPE);
            rope[t][i] = (float)cos(angle);
            rope[t][ROPE / 2 + i] = (float)sin(angle);
        }
        for (uint32_t h = 0; h < IHEADS; h++) weights[t][h] = uniform();
    }
    for (uint32_t i = 0; i < DIM; i++) norm_weight[i] = 1 + uniform() / 4;
    for (uint32_t i = 0; i < 16 * 2 * DIM; i++) ape[i] = uniform();
    fill(latent[0], sizeof latent / 2, 1);
    fill(kv[0], sizeof kv / 2, 1);
    fill(score[0], sizeof score / 2, 2);
    fill(ikv[0], sizeof ikv / 2, 1);
    fill(iscore[0], sizeof iscore / 2, 2);
    fill(q[0], sizeof q / 2, 1);
    fill(iq[0], sizeof iq / 2, 1);
}

static struct ref_batch batch_of(void) {
    return (struct ref_batch){.tokens = TOKENS,
                              .requests = 1,
                              .slots = 1,
                              .positions = TOKENS,
                              .batch_id = batch_id,
                              .position = position,
                              .cu_tokens = cu_tokens,
                              .state_slot = batch_id};
}

static struct ref_place place_of(uint8_t planes[REF_PLANES][PAGES][PAGE], uint32_t count) {
    struct ref_place place = {.rows = count};
    for (uint32_t i = 0; i < REF_PLANES; i++)
        place.plane[i] = (struct ref_array){planes[i][0], PAGE};
    return place;
}

static struct ref_place key_place(const struct ref_type *type) {
    return (struct ref_place){.plane = {{keys[0], PAGE}}, .rows = BLOCK / type->ratio};
}

static struct ref_type index_of(const struct ref_type *type, enum ref_format format) {
    struct ref_type index = *type;
    index.format = format;
    index.head_dim = IDIM;
    return index;
}

/* ---- the kernels' references, one chunk for the whole history ---- */

static void write_rows(const struct ref_type *type, enum ref_format index_format, bool indexer) {
    struct ref_swa_write_paged write = {.batch = batch_of(),
                                        .latent = (const uint8_t *)latent,
                                        .latent_stride = sizeof latent[0],
                                        .norm_weight = norm_weight,
                                        .rope = rope[0],
                                        .write_from = write_from,
                                        .window_table = window_table,
                                        .pages = PAGES,
                                        .table_stride = COLUMNS,
                                        .window = place_of(window, BLOCK)};
    ref_swa_write_paged(type, &write);
    if (!type->ratio) return;
    uint32_t wide = type->overlap ? 2 : 1;
    static uint8_t tail[64 * DIM * 8];
    struct ref_array tails = {tail, sizeof tail};
    struct ref_compress compress = {.batch = batch_of(),
                                    .dim = DIM,
                                    .format = type->format,
                                    .kv = (const uint8_t *)kv,
                                    .score = (const uint8_t *)score,
                                    .kv_stride = 2ull * wide * DIM,
                                    .score_stride = 2ull * wide * DIM,
                                    .ape = ape,
                                    .norm_weight = norm_weight,
                                    .rope = rope[0],
                                    .write_from = write_from,
                                    .block_table = block_table,
                                    .pages = PAGES,
                                    .table_stride = COLUMNS,
                                    .ka = tails,
                                    .za = tails,
                                    .kb = tails,
                                    .zb = tails,
                                    .place = place_of(compressed, BLOCK / type->ratio)};
    ref_compress(type, &compress);
    if (!indexer) return;
    compress.dim = IDIM;
    compress.format = index_format;
    compress.index = true;
    compress.kv = (const uint8_t *)ikv;
    compress.score = (const uint8_t *)iscore;
    compress.kv_stride = compress.score_stride = 2ull * wide * IDIM;
    compress.place = key_place(type);
    ref_compress(type, &compress);
}

static void select_entries(const struct ref_type *index) {
    struct ref_table table = {block_table, COLUMNS, PAGES};
    struct ref_indexer_query query = {TOKENS,
                                      TOKENS,
                                      IHEADS,
                                      (const uint8_t *)iq,
                                      sizeof iq[0],
                                      (const uint8_t *)weights,
                                      sizeof weights[0],
                                      rope[0],
                                      position,
                                      iq_out[0],
                                      w_out[0]};
    struct ref_indexer_scores score_args = {.core = ref_tensor_core_of("sm_90"),
                                            .tokens = TOKENS,
                                            .requests = 1,
                                            .heads = IHEADS,
                                            .scores_stride = ENTRIES,
                                            .batch_id = batch_id,
                                            .position = position,
                                            .q = iq_out[0],
                                            .w = w_out[0],
                                            .block_table = table,
                                            .keys = key_place(index),
                                            .scores = scores[0]};
    struct ref_indexer_topk best = {TOKENS,   TOPK,      ENTRIES, TOPK,
                                    position, scores[0], topk[0], topk_count};
    struct ref_translate_pack pack = {.batch = batch_of(),
                                      .block = table,
                                      .list_stride = STRIDE,
                                      .topk_stride = TOPK,
                                      .topk = topk[0],
                                      .topk_count = topk_count,
                                      .window_count = window_count,
                                      .rows = rows[0],
                                      .entry_count = entry_count};
    ref_indexer_query(index, &query);
    ref_indexer_scores(index, &score_args);
    ref_indexer_topk(index, &best);
    ref_translate_pack(index, &pack);
}

static void attend(const struct ref_type *type, bool undo_rotation) {
    struct ref_query heads = {TOKENS,           HEADS,       TOKENS,
                              position,         rope[0],     (const uint8_t *)q,
                              (uint8_t *)q_out, sizeof q[0], sizeof q_out[0]};
    struct ref_attn attn = {.core = ref_tensor_core_of("sm_80"),
                            .tokens = TOKENS,
                            .heads = HEADS,
                            .splits = 2,
                            .split_rows = 32,
                            .list_stride = STRIDE,
                            .scale = kernel_scale,
                            .q = (const uint8_t *)q_out,
                            .q_stride = sizeof q_out[0],
                            .rows = rows[0],
                            .window_count = window_count,
                            .entry_count = entry_count,
                            .window = place_of(window, BLOCK),
                            .part_o = part_o[0][0][0],
                            .part_m = part_m[0][0],
                            .part_l = part_l[0][0]};
    if (type->ratio) attn.compressed = place_of(compressed, BLOCK / type->ratio);
    struct ref_attn_combine combine = {TOKENS,        HEADS,        2,    part_o[0][0][0],
                                       part_m[0][0],  part_l[0][0], sink, (uint8_t *)out,
                                       sizeof out[0], lse[0]};
    ref_q_norm_rope(type, &heads);
    ref_attn(type, &attn);
    ref_attn_combine(type, &combine);
    heads.out = (uint8_t *)out;
    if (undo_rotation) ref_inverse_rope(type, &heads);
}

static void run_kernels(const struct ref_type *type, enum ref_format index_format, bool indexer) {
    struct ref_type index = index_of(type, index_format);
    struct ref_row_lists lists = {.batch = batch_of(),
                                  .paged = true,
                                  .window = {window_table, COLUMNS, PAGES},
                                  .block = {block_table, COLUMNS, PAGES},
                                  .indexer = indexer,
                                  .list_stride = STRIDE,
                                  .rows = rows[0],
                                  .window_count = window_count,
                                  .entry_count = entry_count};
    write_rows(type, index_format, indexer);
    ref_row_lists(type, &lists);
    if (indexer) select_entries(&index);
    attend(type, true);
}

/* ---- the dense side ---- */

static struct ref_dense_compressor compressor_of(const struct ref_type *type, bool index,
                                                 enum ref_format format) {
    uint32_t dim = index ? IDIM : DIM, wide = type->overlap ? 2 : 1;
    return (struct ref_dense_compressor){
        .dim = dim,
        .format = format,
        .index = index,
        .kv = (const uint8_t *)(index ? ikv[0] : kv[0]),
        .score = (const uint8_t *)(index ? iscore[0] : score[0]),
        .kv_stride = 2ull * wide * dim,
        .score_stride = 2ull * wide * dim,
        .ape = ape,
        .norm_weight = norm_weight,
        .rope = rope[0],
    };
}

static void make_dense(const struct ref_type *type, enum ref_format index_format) {
    struct ref_dense_compressor main = compressor_of(type, false, type->format);
    struct ref_dense_compressor index = compressor_of(type, true, index_format);
    for (uint32_t t = 0; t < TOKENS; t++)
        ref_dense_window_row(type, (const uint8_t *)latent[t], norm_weight, rope[t],
                             dense_window[t]);
    for (uint32_t j = 0; type->ratio && j < TOKENS / type->ratio; j++) {
        ref_dense_entry(type, &main, j, dense_entries[j]);
        ref_dense_entry(type, &index, j, dense_keys[j]);
    }
}

/*
 * The worst difference over its bound, the largest bound, its mean; the differences' size over the
 * expected one (root mean squares).
 */
struct outcome {
    double worst, widest, mean, size;
    unsigned outside;
    int64_t bad_selection;
};

static struct outcome compare(const struct ref_type *type, enum ref_format index_format,
                              bool indexer) {
    struct outcome outcome = {.bad_selection = -1};
    struct ref_type index = index_of(type, index_format);
    struct ref_range dense_scores[ENTRIES];
    struct ref_dense dense = {
        dense_window[0], type->ratio ? dense_entries[0] : NULL, HEADS, SCALE, sink, rope[0]};
    uint32_t count = 0;
    const struct ref_dense_result out_of = {value, radius, noise};
    for (uint32_t t = 0; t < TOKENS; t += 7) {
        if (indexer) {
            uint32_t visible = (t + 1) / type->ratio;
            ref_dense_scores(&index, IHEADS, (const uint8_t *)iq[t], weights[t], rope[t],
                             dense_keys[0], visible, dense_scores);
            int64_t bad = ref_dense_check_selection(dense_scores, visible, TOPK, topk[t],
                                                    (uint32_t)topk_count[t]);
            if (bad >= 0) outcome.bad_selection = t;
            for (uint32_t j = 0; j < visible; j++)
                if ((double)scores[t][j] < dense_scores[j].lo ||
                    (double)scores[t][j] > dense_scores[j].hi)
                    outcome.bad_selection = t;
        }
        ref_dense_attention(type, &dense, t, (const uint8_t *)q[t], indexer ? topk[t] : NULL,
                            indexer ? (uint32_t)topk_count[t] : 0, &out_of);
        for (uint32_t i = 0; i < HEADS * DIM; i++) {
            double off = fabs((double)ref_bf16_value(out[t][i]) - value[i]);
            outcome.outside += off > radius[i];
            if (radius[i] > 0) outcome.worst = fmax(outcome.worst, off / radius[i]);
            outcome.widest = fmax(outcome.widest, radius[i]);
            outcome.mean += radius[i];
            if (noise[i] > 0) outcome.size += off * off / (noise[i] * noise[i]);
            count++;
        }
    }
    outcome.mean /= count;
    outcome.size = sqrt(outcome.size / count);
    return outcome;
}

static const struct world {
    const char *name;
    enum ref_format format, index_format;
    uint32_t ratio;
    enum ref_dtype state;
    bool overlap, indexer, kv_norm, ape_on_write, before_norm, before_rope, hadamard;
} worlds[] = {
    {"window only, bf16", REF_BF16, REF_FP8_INDEX, 0, REF_F32, false, false, false, false, false,
     false, false},
    {"window only, fp8_token, norm", REF_FP8_TOKEN, REF_FP8_INDEX, 0, REF_F32, false, false, true,
     false, false, true, false},
    {"ratio 16, fp8_ds_mla", REF_FP8_DS_MLA, REF_FP8_INDEX, 16, REF_F32, false, false, true, true,
     true, true, false},
    {"ratio 16, two planes, bf16 tails", REF_FP8_TWO_PLANE, REF_FP8_INDEX, 16, REF_BFLOAT, false,
     false, true, false, false, false, false},
    {"overlap, indexer fp8", REF_FP8_DS_MLA, REF_FP8_INDEX, 4, REF_F32, true, true, true, true,
     true, true, false},
    {"overlap, indexer fp4 with Hadamard", REF_FP8_TOKEN, REF_FP4_INDEX, 4, REF_BFLOAT, true, true,
     true, true, true, true, true},
};

static struct ref_type type_of(const struct world *world) {
    return (struct ref_type){
        .format = world->format,
        .head_dim = DIM,
        .rope_dim = ROPE,
        .window = 16,
        .ring = 16,
        .block = BLOCK,
        .page_align = 32,
        .ratio = world->ratio,
        .overlap = world->overlap,
        .input = REF_BFLOAT,
        .state = world->state,
        .kv_norm = world->kv_norm,
        .ape_on_write = world->ape_on_write,
        .round_before_norm = world->before_norm,
        .round_before_rope = world->before_rope,
        .hadamard = world->hadamard,
        .norm_eps = 1e-6f,
    };
}

static void run_world(const struct world *world) {
    struct ref_type type = type_of(world);
    make_dense(&type, world->index_format);
    run_kernels(&type, world->index_format, world->indexer);
    struct outcome got = compare(&type, world->index_format, world->indexer);
    tap_note("%s: at most %.2f of the bound; bound %.4f at most, %.4f on average; differences %.2f "
             "of their expected size",
             world->name, got.worst, got.widest, got.mean, got.size);
    ok(got.outside == 0 && got.bad_selection < 0, "%s: within the bound", world->name);
    ok(got.mean < .02 && got.widest < .2, "%s: which is narrow", world->name);
    ok(got.size > .5 && got.size < 1.1, "%s: differences have the size of roundings", world->name);
}

/* Mistakes that the comparison must see, each in one step of the kernels' side. */
static void mistakes(void) {
    struct ref_type type = type_of(&worlds[4]);
    make_dense(&type, REF_FP8_INDEX);
    run_kernels(&type, REF_FP8_INDEX, true);

    attend(&type, false);
    ok(compare(&type, REF_FP8_INDEX, true).outside > 100, "the inverse rotation left out is seen");

    for (uint32_t t = 0; t < TOKENS; t++) rows[t][0] = -1;
    attend(&type, true);
    ok(compare(&type, REF_FP8_INDEX, true).outside > 100, "the oldest window row left out is seen");

    run_kernels(&type, REF_FP8_INDEX, true);
    for (uint32_t t = 0; t < TOKENS; t++) entry_count[t] -= entry_count[t] > 0;
    attend(&type, true);
    ok(compare(&type, REF_FP8_INDEX, true).outside > 100, "an entry left out is seen");

    sink[0] = .75f;
    run_kernels(&type, REF_FP8_INDEX, true);
    sink[0] = .5f;
    ok(compare(&type, REF_FP8_INDEX, true).outside > 10, "another sink is seen");

    kernel_scale = SCALE * 1.01f;
    run_kernels(&type, REF_FP8_INDEX, true);
    kernel_scale = SCALE;
    struct outcome got = compare(&type, REF_FP8_INDEX, true);
    tap_note("a scale one percent off: %u outside, differences %.2f of their size", got.outside,
             got.size);
    ok(got.size > 1.5, "a scale that is one percent off is seen by the differences' size");

    run_kernels(&type, REF_FP8_INDEX, true);
    ok(compare(&type, REF_FP8_INDEX, true).outside == 0, "and without a mistake nothing is");
    topk[147][3] = topk[147][3] == topk[147][2] + 1 ? topk[147][2] : topk[147][3] - 1;
    ok(compare(&type, REF_FP8_INDEX, true).bad_selection == 147, "a wrong selection is refused");

    type.overlap = false;
    run_kernels(&type, REF_FP8_INDEX, false);
    type.overlap = true;
    ok(compare(&type, REF_FP8_INDEX, false).outside > 100, "a lost overlap is seen");
}

/* Published: with values that are the token's number and equal scores, entry j is 4 j - 1/2. */
static void known_entries(void) {
    struct ref_type type = type_of(&worlds[4]);
    struct ref_dense_compressor compressor = compressor_of(&type, false, REF_BF16);
    struct ref_range row[DIM];
    static float no_ape[16 * 2 * DIM], sizes[2];
    type.format = REF_BF16;
    type.norm_eps = 0;
    compressor.ape = no_ape;
    memset(score, 0, sizeof score);
    for (uint32_t j = 0; j < 2; j++) {
        /* The norm hides a common factor: the first channel alone carries the token's number. */
        for (uint32_t t = 0; t < TOKENS; t++)
            for (uint32_t i = 0; i < 2 * DIM; i++) kv[t][i] = ref_bf16(i % DIM ? 4 : (float)t);
        ref_dense_entry(&type, &compressor, j, row);
        sizes[j] = (float)(ref_range_middle(row[0]) / ref_range_middle(row[1]) * 4 /
                           (double)norm_weight[0] * (double)norm_weight[1]);
    }
    ok(fabsf(sizes[0] - 1.5f) < .02f && fabsf(sizes[1] - 3.5f) < .04f,
       "entries 0 and 1 of an overlapped compressor are 1.5 and 3.5");
}

int main(void) {
    tap_plan(3 * 6 + 8 + 1);
    make_inputs();
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) run_world(&worlds[i]);
    mistakes();
    known_entries();
    return tap_done();
}
