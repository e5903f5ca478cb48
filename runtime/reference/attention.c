/* attn and attn_combine: a token's list in tiles, then the splits of a head together. */
#include "attention.h"

#include "convert.h"
#include "fp32.h"
#include "vector.h"

#include <math.h>
#include <string.h>

#define TILE 32

/* The rows of 32 list positions, and the same once more by columns. */
struct tile {
    uint32_t first, count; /* list positions; those beyond `count` are masked */
    bool masked[TILE];
    uint16_t row[TILE][REF_MAX_DIM];
    uint16_t column[REF_MAX_DIM][TILE];
};

/* ---- gathering ---- */

/* The stored values of one list position; false if nothing is there. */
static bool gather_row(const struct ref_type *type, const struct ref_attn *args, uint32_t token,
                       uint32_t at, uint16_t *value) {
    int32_t number = args->rows[(uint64_t)token * args->list_stride + at];
    bool window = at < (uint32_t)args->window_count[token];
    const struct ref_place *place = window ? &args->window : &args->compressed;
    if (number < 0) return false;
    ref_row_load(type, place, (uint32_t)number / place->rows, (uint32_t)number % place->rows,
                 value);
    return true;
}

static void gather(const struct ref_type *type, const struct ref_attn *args, uint32_t token,
                   struct tile *tile) {
    for (uint32_t i = 0; i < TILE; i++) {
        tile->masked[i] =
            i >= tile->count || !gather_row(type, args, token, tile->first + i, tile->row[i]);
        if (tile->masked[i]) memset(tile->row[i], 0, 2 * (size_t)type->head_dim);
        for (uint32_t d = 0; d < type->head_dim; d++) tile->column[d][i] = tile->row[i][d];
    }
}

/* ---- one tile of one head ---- */

/* The four quarters of the dims by themselves, then added in order. */
static float product(const struct ref_type *type, const struct ref_attn *args, const uint16_t *q,
                     const uint16_t *row) {
    uint32_t quarter = type->head_dim / 4;
    float sum = ref_mma_dot(args->core, q, row, quarter, 0);
    for (uint32_t at = quarter; at < type->head_dim; at += quarter)
        sum += ref_mma_dot(args->core, q + at, row + at, quarter, 0);
    return sum;
}

static void scores(const struct ref_type *type, const struct ref_attn *args,
                   const struct tile *tile, const uint16_t *q, float s[TILE]) {
    float factor = args->scale * REF_LOG2E;
    for (uint32_t i = 0; i < TILE; i++)
        s[i] = tile->masked[i] ? -INFINITY : product(type, args, q, tile->row[i]) * factor;
}

/* Pairs first, then pairs of pairs, within each eight; the four eights in order. */
static float tile_sum(const float p[TILE]) {
    float sum = 0;
    for (uint32_t eight = 0; eight < TILE; eight += 8) {
        const float *e = p + eight;
        float low = (e[0] + e[1]) + (e[2] + e[3]), high = (e[4] + e[5]) + (e[6] + e[7]);
        float all = low + high;
        sum = eight ? sum + all : all;
    }
    return sum;
}

/* What exponents are taken against: the maximum, unless there is no number yet. */
static float base_of(float largest) {
    return largest == -INFINITY ? 0 : largest;
}

static void add_tile(const struct ref_type *type, const struct ref_attn *args,
                     const struct tile *tile, const uint16_t *q, float *m, float *l, float *o) {
    float p[TILE], s[TILE], largest = -INFINITY;
    uint16_t weight[TILE];
    scores(type, args, tile, q, s);
    for (uint32_t i = 0; i < TILE; i++) largest = ref_max(largest, s[i]);
    float next = ref_max(*m, largest), base = base_of(next), alpha = ref_exp2(*m - base);
    for (uint32_t i = 0; i < TILE; i++) {
        p[i] = ref_exp2(s[i] - base);
        weight[i] = ref_bf16(p[i]);
    }
    float kept = *l * alpha;
    *l = ref_one_nan(kept + tile_sum(p));
    for (uint32_t d = 0; d < type->head_dim; d++)
        o[d] = ref_mma_dot(args->core, weight, tile->column[d], TILE, o[d] * alpha);
    *m = next;
}

/* ---- attn ---- */

static void clear_split(const struct ref_type *type, const struct ref_attn *args, uint64_t part,
                        bool empty) {
    for (uint32_t h = 0; h < args->heads; h++) {
        args->part_m[part + h] = -INFINITY;
        args->part_l[part + h] = 0;
        for (uint32_t d = 0; d < type->head_dim && !empty; d++)
            args->part_o[(part + h) * type->head_dim + d] = 0;
    }
}

static void attend_split(const struct ref_type *type, const struct ref_attn *args, uint32_t token,
                         uint32_t split, struct tile *tile) {
    uint32_t length = (uint32_t)args->window_count[token] + (uint32_t)args->entry_count[token];
    uint64_t first = (uint64_t)split * args->split_rows, end = first + args->split_rows;
    uint64_t part = ((uint64_t)token * args->splits + split) * args->heads;
    const uint8_t *q = args->q + token * args->q_stride;
    uint16_t head[REF_MAX_DIM];
    if (end > length) end = length;
    clear_split(type, args, part, first >= end);
    for (uint64_t at = first; at < end; at += TILE) {
        tile->first = (uint32_t)at;
        tile->count = (uint32_t)(end - at < TILE ? end - at : TILE);
        gather(type, args, token, tile);
        for (uint32_t h = 0; h < args->heads; h++) {
            memcpy(head, q + (uint64_t)h * type->head_dim * 2, 2 * (size_t)type->head_dim);
            add_tile(type, args, tile, head, &args->part_m[part + h], &args->part_l[part + h],
                     args->part_o + (part + h) * type->head_dim);
        }
    }
}

void ref_attn(const struct ref_type *type, const struct ref_attn *args) {
    struct tile tile;
    for (uint32_t t = 0; t < args->tokens; t++)
        for (uint32_t i = 0; i < args->splits; i++) attend_split(type, args, t, i, &tile);
}

/* ---- attn_combine ---- */

/* The splits of one head of one token: element i is at [i * step]. */
struct parts {
    const float *m, *l;
    uint32_t count, step;
};

/* Not so where all rows are masked; a NaN counts. */
static bool has_rows(const struct parts *parts, uint32_t i) {
    return parts->l[(uint64_t)i * parts->step] != 0;
}

/* 2^(m_i - base): what split i counts against that base. */
static float factor_of(const struct parts *parts, uint32_t i, float base) {
    return ref_exp2(parts->m[(uint64_t)i * parts->step] - base);
}

static float sum_l(const struct parts *parts, float base) {
    float sum = 0;
    for (uint32_t i = 0; i < parts->count; i++)
        if (has_rows(parts, i))
            sum += parts->l[(uint64_t)i * parts->step] * factor_of(parts, i, base);
    return sum;
}

static float sum_o(const struct parts *parts, const float *o, uint64_t o_step, float base) {
    float sum = 0;
    for (uint32_t i = 0; i < parts->count; i++)
        if (has_rows(parts, i)) sum += o[i * o_step] * factor_of(parts, i, base);
    return sum;
}

static void combine_head(const struct ref_type *type, const struct ref_attn_combine *args,
                         uint32_t token, uint32_t head) {
    uint64_t first = (uint64_t)token * args->splits * args->heads + head;
    struct parts parts = {args->part_m + first, args->part_l + first, args->splits, args->heads};
    uint8_t *out = args->out + token * args->out_stride + (uint64_t)head * type->head_dim * 2;
    float largest = -INFINITY, sink = args->sink[head] * REF_LOG2E;
    for (uint32_t i = 0; i < args->splits; i++)
        largest = ref_max(largest, parts.m[(uint64_t)i * parts.step]);
    float base = base_of(ref_max(largest, sink));
    float l = sum_l(&parts, base), denominator = l + ref_exp2(sink - base);
    for (uint32_t d = 0; d < type->head_dim; d++) {
        const float *o = args->part_o + first * type->head_dim + d;
        float sum = sum_o(&parts, o, (uint64_t)args->heads * type->head_dim, base);
        uint16_t value = l == 0 ? 0 : ref_bf16(sum / denominator);
        memcpy(out + 2 * (size_t)d, &value, 2);
    }
    float rows = ref_log2(sum_l(&parts, base_of(largest)));
    args->lse[(uint64_t)token * args->heads + head] = ref_one_nan((largest + rows) * REF_LN2);
}

void ref_attn_combine(const struct ref_type *type, const struct ref_attn_combine *args) {
    for (uint32_t t = 0; t < args->tokens; t++)
        for (uint32_t h = 0; h < args->heads; h++) combine_head(type, args, t, h);
}
