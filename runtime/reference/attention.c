/*
 * attn and attn_combine: one body for prefill and decode. A token's list is cut into splits, a
 * split into tiles of 32 rows; tiles, and in them rows, follow the list's order.
 */
#include "convert.h"
#include "reference.h"
#include "tensor.h"
#include "vector.h"

#include <math.h>
#include <string.h>

#define TILE  32
#define LOG2E 0x1.715476p+0f
#define LN2   0x1.62e43p-1f

/* The rows of a tile as bf16; masked ones are zeros. */
struct tile {
    uint32_t count; /* of list positions in the split; the others are masked */
    bool live[TILE];
    uint16_t rows[TILE][REF_MAX_DIM];
};

/* A head's running softmax. */
struct running {
    float most, sum;
    float out[REF_MAX_DIM];
};

static void gather(const struct ref_type *type, const struct ref_attn *args, uint32_t t,
                   uint32_t first, uint32_t end, struct tile *tile) {
    const int32_t *list = args->rows + (uint64_t)t * args->list_stride;
    for (uint32_t i = 0; i < TILE; i++) {
        uint32_t at = first + i;
        int32_t number = at < end ? list[at] : -1;
        tile->live[i] = number >= 0;
        memset(tile->rows[i], 0, 2 * (size_t)type->head_dim);
        if (number < 0) continue;
        const struct ref_place *place =
            at < (uint32_t)args->window_count[t] ? &args->window : &args->compressed;
        ref_row_load(type, place, (uint32_t)number / place->rows, (uint32_t)number % place->rows,
                     tile->rows[i]);
    }
}

static float safe_base(float most) {
    return most == -INFINITY ? 0 : most;
}

/* In each eight, pairs, then pairs of pairs; the eights one after the other. */
static float tile_sum(const float *weight) {
    float total = 0;
    for (uint32_t eight = 0; eight < TILE; eight += 8) {
        const float *p = weight + eight;
        float sum = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
        total = eight ? total + sum : sum;
    }
    return total;
}

static void add_tile(const struct ref_type *type, const struct ref_attn *args, const uint16_t *q,
                     const struct tile *tile, struct running *state) {
    float score[TILE], weight[TILE], most = state->most;
    uint16_t rounded[TILE];
    float scale = args->scale * LOG2E;
    for (uint32_t i = 0; i < TILE; i++) {
        float dot = ref_mma(args->chip, q, tile->rows[i], 1, type->head_dim, 0);
        score[i] = tile->live[i] ? dot * scale : -INFINITY;
        most = ref_max(most, score[i]);
    }
    float base = safe_base(most), alpha = ref_exp2(state->most - base);
    for (uint32_t i = 0; i < TILE; i++) {
        weight[i] = ref_exp2(score[i] - base);
        rounded[i] = ref_bf16(weight[i]);
    }
    state->sum = state->sum * alpha + tile_sum(weight);
    state->most = most;
    for (uint32_t d = 0; d < type->head_dim; d++)
        state->out[d] = ref_mma(args->chip, rounded, &tile->rows[0][d], REF_MAX_DIM, TILE,
                                state->out[d] * alpha);
}

/* One split of one token: every head over the same tiles. */
static void attend(const struct ref_type *type, const struct ref_attn *args, uint32_t t,
                   uint32_t begin, uint32_t end, uint64_t part) {
    struct tile tile;
    for (uint32_t h = 0; h < args->heads; h++) {
        uint16_t q[REF_MAX_DIM];
        struct running state = {.most = -INFINITY};
        memcpy(q, args->q + t * args->q_stride + (uint64_t)h * type->head_dim * 2,
               2 * (size_t)type->head_dim);
        for (uint32_t first = begin; first < end; first += TILE) {
            gather(type, args, t, first, end, &tile);
            add_tile(type, args, q, &tile, &state);
        }
        args->part_m[part + h] = ref_one_nan(state.most);
        args->part_l[part + h] = ref_one_nan(state.sum);
        float *out = args->part_o + (part + h) * type->head_dim;
        for (uint32_t d = 0; d < type->head_dim; d++) out[d] = ref_one_nan(state.out[d]);
    }
}

void ref_attn(const struct ref_type *type, const struct ref_attn *args) {
    for (uint32_t t = 0; t < args->tokens; t++) {
        uint32_t length = (uint32_t)args->window_count[t] + (uint32_t)args->entry_count[t];
        for (uint32_t split = 0; split < args->splits; split++) {
            uint64_t part = ((uint64_t)t * args->splits + split) * args->heads;
            uint32_t begin = split * args->split_rows, end = begin + args->split_rows;
            if (begin < length) {
                attend(type, args, t, begin, end < length ? end : length, part);
                continue;
            }
            for (uint32_t h = 0; h < args->heads; h++) {
                args->part_m[part + h] = -INFINITY;
                args->part_l[part + h] = 0;
            }
        }
    }
}

/* One head of one token; `part` is the number of its first split's. */
static void combine(const struct ref_type *type, const struct ref_attn_combine *args, uint64_t part,
                    float sink, uint8_t *out, float *lse) {
    float of_rows = -INFINITY, sum = 0, rows_sum = 0, acc[REF_MAX_DIM] = {0};
    for (uint32_t i = 0; i < args->splits; i++)
        of_rows = ref_max(of_rows, args->part_m[part + (uint64_t)i * args->heads]);
    float base = safe_base(ref_max(of_rows, sink)), rows_base = safe_base(of_rows);
    for (uint32_t i = 0; i < args->splits; i++) {
        uint64_t at = part + (uint64_t)i * args->heads;
        float m = args->part_m[at], l = args->part_l[at];
        if (m == -INFINITY) continue;
        float factor = ref_exp2(m - base);
        sum += l * factor;
        rows_sum += l * ref_exp2(m - rows_base);
        const float *o = args->part_o + at * type->head_dim;
        for (uint32_t d = 0; d < type->head_dim; d++) acc[d] += o[d] * factor;
    }
    float denominator = sum + ref_exp2(sink - base);
    for (uint32_t d = 0; d < type->head_dim; d++) {
        uint16_t bits = ref_bf16(sum == 0 ? 0 : acc[d] / denominator);
        memcpy(out + 2 * (size_t)d, &bits, 2);
    }
    *lse = of_rows == -INFINITY ? -INFINITY : ref_one_nan((of_rows + ref_log2(rows_sum)) * LN2);
}

void ref_attn_combine(const struct ref_type *type, const struct ref_attn_combine *args) {
    for (uint32_t t = 0; t < args->tokens; t++)
        for (uint32_t h = 0; h < args->heads; h++)
            combine(type, args, (uint64_t)t * args->splits * args->heads + h, args->sink[h] * LOG2E,
                    args->out + t * args->out_stride + (uint64_t)h * type->head_dim * 2,
                    &args->lse[(uint64_t)t * args->heads + h]);
}
