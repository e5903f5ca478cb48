/* Attention, scores and the check of a selection, over rows that dense_rows.c made. */
#include "dense.h"

#include "dense_rows.h"

#include <math.h>

/* Half a step of bf16, relative: at most, and in the mean square over a binade. */
#define HALF_BF16    0x1p-8
#define TYPICAL_BF16 (HALF_BF16 * .4247) /* sqrt(1/3 * 3/(8 ln 2)) */

/* What the tensor core errs in a sum of `count` products, over the sum of their magnitudes. */
static double tensor_error(uint32_t count) {
    return 19 * REF_UNIT * ((double)count / 8 + 1);
}

/* q . k with everything that may move it. */
static struct ref_range dot(const struct ref_range *q, const struct ref_range *k, uint32_t dim) {
    double sum = 0, size = 0, slack = 0;
    for (uint32_t i = 0; i < dim; i++) {
        double a = ref_range_middle(q[i]), b = ref_range_middle(k[i]);
        double ra = ref_range_radius(q[i]), rb = ref_range_radius(k[i]);
        sum += a * b;
        slack += ra * fabs(b) + rb * fabs(a) + ra * rb;
        size += ref_range_most(q[i]) * ref_range_most(k[i]);
    }
    slack += size * tensor_error(dim);
    return (struct ref_range){sum - slack, sum + slack};
}

/* ---- attention ---- */

/* The rows one token attends to, in any order. */
struct view {
    const struct ref_type *type;
    const struct ref_dense *dense;
    uint32_t first, window;  /* positions first .. first + window - 1 */
    const int32_t *chosen;   /* null: entries 0 .. entries - 1 */
    uint32_t entries, count; /* count = window + entries */
};

static const struct ref_range *view_row(const struct view *view, uint32_t i) {
    uint64_t dim = view->type->head_dim;
    if (i < view->window) return view->dense->window + (view->first + i) * dim;
    i -= view->window;
    if (view->chosen) i = (uint32_t)view->chosen[i];
    return view->dense->entries + i * dim;
}

/* The sums of one head: weights against the largest score, and what they may err. */
struct sums {
    double largest, total, total_error, sink;
    double top[REF_MAX_DIM], size[REF_MAX_DIM], error[REF_MAX_DIM];
    double square[REF_MAX_DIM]; /* of what rounded weights and unsure row elements typically err */
};

/* Relative error of a weight besides its score's: exp2, its argument, a rescaling a tile. */
static double weight_error(const struct view *view, double distance) {
    double tiles = (double)view->count / 32 + 4;
    return REF_UNIT * (6 + 3 * fmin(distance, 90) + 4 * tiles + tiles);
}

static void add_row(const struct view *view, const struct ref_range *row, struct ref_range score,
                    struct sums *sums) {
    double middle = ref_range_middle(score), weight = exp(middle - sums->largest);
    double off = expm1(ref_range_radius(score)) + weight_error(view, sums->largest - middle);
    sums->total += weight;
    sums->total_error += weight * off + 0x1p-124;
    for (uint32_t d = 0; d < view->type->head_dim; d++) {
        double value = ref_range_middle(row[d]), most = ref_range_most(row[d]);
        sums->top[d] += weight * value;
        sums->size[d] += weight * most;
        sums->error[d] +=
            weight * (most * (off + HALF_BF16 * (1 + off)) + ref_range_radius(row[d]));
        sums->error[d] += most * 0x1p-124;
        double typical = weight * value * TYPICAL_BF16, unsure = weight * ref_range_radius(row[d]);
        sums->square[d] += typical * typical + unsure * unsure;
    }
}

static void add_all(const struct view *view, const struct ref_range *q, double sink,
                    struct sums *sums) {
    uint32_t dim = view->type->head_dim;
    double scale = (double)view->dense->scale;
    *sums = (struct sums){.largest = sink};
    for (uint32_t i = 0; i < view->count; i++) {
        double score = ref_range_middle(dot(q, view_row(view, i), dim)) * scale;
        sums->largest = fmax(sums->largest, score);
    }
    for (uint32_t i = 0; i < view->count; i++) {
        const struct ref_range *row = view_row(view, i);
        struct ref_range score = ref_range_scale(dot(q, row, dim), scale);
        add_row(view, row, ref_range_round(score, 3, 0), sums);
    }
    sums->sink = sink == -INFINITY ? 0 : exp(sink - sums->largest);
}

/* The quotient before it is rounded; everything it may err. */
static struct ref_range element(const struct view *view, const struct sums *sums, uint32_t d) {
    double below = sums->total + sums->sink, value = sums->top[d] / below;
    double sink_error = sums->sink * REF_UNIT * (8 + 3 * fmin(fabs(log(sums->sink + 1e-300)), 90));
    double below_error = sums->total_error + sink_error + below * 4 * REF_UNIT;
    double above_error = sums->error[d] + sums->size[d] * 2 * tensor_error(view->count + 32);
    double least = below - below_error;
    double slack = (above_error + fabs(value) * below_error) / least;
    slack += 4 * REF_UNIT * (fabs(value) + slack);
    return (struct ref_range){value - slack, value + slack};
}

/* Half a step of bf16 at the largest magnitude of a range: what the last rounding may err. */
static double half_step(struct ref_range x) {
    int exponent;
    double most = ref_range_most(x);
    if (most == 0) return 0;
    frexp(most, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 9);
}

/* `noise` with what a rounding to bf16 adds to it. */
static double rounded_noise(double noise, struct ref_range x) {
    return hypot(noise, half_step(x) / sqrt(3));
}

/* The noise of pairs turned by an angle, once more before rounding. */
static void rotate_noise(double *noise, uint32_t rope, const float *table) {
    for (size_t i = 0; i < rope / 2; i++) {
        double c = (double)table[i], s = (double)table[rope / 2 + i];
        double a = noise[2 * i], b = noise[2 * i + 1];
        noise[2 * i] = hypot(a * c, b * s);
        noise[2 * i + 1] = hypot(b * c, a * s);
    }
}

static void attend_head(const struct view *view, const struct ref_range *q, double sink,
                        const float *table, struct ref_dense_result *to) {
    uint32_t dim = view->type->head_dim, rope = view->type->rope_dim;
    struct sums sums;
    struct ref_range out[REF_MAX_DIM];
    double noise[REF_MAX_DIM];
    add_all(view, q, sink, &sums);
    for (uint32_t d = 0; d < dim; d++) {
        out[d] = element(view, &sums, d);
        noise[d] = sqrt(sums.square[d]) / (sums.total + sums.sink);
        if (d < dim - rope) continue;
        noise[d] = rounded_noise(noise[d], out[d]);
        out[d] = ref_range_bf16(out[d]);
    }
    ref_dense_rotate(out + dim - rope, rope, table, true);
    rotate_noise(noise + dim - rope, rope, table);
    for (uint32_t d = 0; d < dim; d++) {
        to->value[d] = ref_range_middle(out[d]);
        to->radius[d] = ref_range_radius(out[d]) + half_step(out[d]);
        to->noise[d] = rounded_noise(noise[d], out[d]);
    }
}

void ref_dense_attention(const struct ref_type *type, const struct ref_dense *dense,
                         uint32_t position, const uint8_t *q, const int32_t *chosen,
                         uint32_t chosen_count, const struct ref_dense_result *out) {
    struct ref_range head[REF_MAX_DIM];
    const float *table = dense->rope + (uint64_t)position * type->rope_dim;
    uint32_t seen = position + 1;
    struct view view = {.type = type, .dense = dense, .chosen = chosen};
    view.window = seen < type->window ? seen : type->window;
    view.first = seen - view.window;
    if (type->ratio && dense->entries) view.entries = chosen ? chosen_count : seen / type->ratio;
    view.count = view.window + view.entries;
    for (uint32_t h = 0; h < dense->heads; h++) {
        uint64_t at = (uint64_t)h * type->head_dim;
        ref_dense_query(type, q + 2 * at, table, head);
        struct ref_dense_result to = {out->value + at, out->radius + at, out->noise + at};
        attend_head(&view, head, (double)dense->sink[h], table, &to);
    }
}

/* ---- the indexer ---- */

void ref_dense_scores(const struct ref_type *index, uint32_t heads, const uint8_t *q,
                      const float *weights, const float *table, const struct ref_range *keys,
                      uint32_t visible, struct ref_range *scores) {
    struct ref_range head[REF_MAX_DIM];
    double factor = 1 / sqrt((double)index->head_dim * heads);
    for (uint32_t j = 0; j < visible; j++) scores[j] = ref_range_of(0);
    for (uint32_t h = 0; h < heads; h++) {
        double weight = (double)weights[h] * factor;
        ref_dense_index_query(index, q + 2 * (uint64_t)h * index->head_dim, table, head);
        for (uint32_t j = 0; j < visible; j++) {
            struct ref_range part =
                dot(head, keys + (uint64_t)j * index->head_dim, index->head_dim);
            part = (struct ref_range){fmax(part.lo, 0), fmax(part.hi, 0)};
            part = ref_range_scale(part, weight);
            /* The weight's own rounding, the product's, and one for each of the sums that follow.
             */
            scores[j] = ref_range_add(scores[j], ref_range_round(part, heads + 4.0, 0));
        }
    }
}

int64_t ref_dense_check_selection(const struct ref_range *scores, uint32_t visible, uint32_t topk,
                                  const int32_t *chosen, uint32_t count) {
    double best = -INFINITY; /* what the best entry that was left out surely has */
    if (count != (visible < topk ? visible : topk)) return count;
    for (uint32_t i = 0; i < count; i++)
        if (chosen[i] < 0 || (uint32_t)chosen[i] >= visible || (i && chosen[i] <= chosen[i - 1]))
            return i;
    for (uint32_t j = 0, next = 0; j < visible; j++) {
        if (next < count && chosen[next] == (int32_t)j)
            next++;
        else
            best = fmax(best, scores[j].lo);
    }
    for (uint32_t i = 0; i < count; i++)
        if (scores[chosen[i]].hi < best) return i;
    return -1;
}
