/*
 * The RoPE table of a layer type. Pair i of a row turns by the angle p * f(i) at position p.
 *
 *   f(i) = theta^(-2i / rope_dim)                                         without YaRN
 *   f(i) = f/factor * ramp(i) + f * (1 - ramp(i))                         with it
 *   ramp(i) = clamp((i - low) / (high - low), 0, 1)
 *   low  = max(floor(turns(beta_fast)), 0),  high = min(ceil(turns(beta_slow)), rope_dim - 1)
 *   turns(b) = rope_dim * ln(original / (2 pi b)) / (2 ln theta)
 *
 * (YaRN, arXiv 2309.00071, as DeepSeek uses it: no attention temperature.) Frequencies are worked
 * out in double and rounded to fp32, which is what models keep; the angle is their product with the
 * position in double, so that the phase is still right at a million tokens.
 */
#include <math.h>
#include <stdlib.h>

#include "bundle.h"
#include "error.h"

static double turns(const struct bundle_rope *rope, double dim, double beta) {
    static const double pi = 3.14159265358979323846;
    return dim * log(rope->original / (beta * 2 * pi)) / (2 * log(rope->theta));
}

/* The share of pair `i` that is slowed down by `factor`: 0 for fast pairs, 1 for slow ones. */
static double ramp(const struct bundle_rope *rope, uint32_t dim, uint32_t i) {
    double low = floor(turns(rope, dim, rope->beta_fast));
    double high = ceil(turns(rope, dim, rope->beta_slow));
    if (low < 0) low = 0;
    if (high > dim - 1.0) high = dim - 1.0;
    if (low == high) high += 0.001;
    double at = (i - low) / (high - low);
    return at < 0 ? 0 : at > 1 ? 1 : at;
}

static float frequency(const struct bundle_rope *rope, uint32_t dim, uint32_t i) {
    double f = pow(rope->theta, -2.0 * i / dim);
    if (rope->yarn) {
        double slowed = ramp(rope, dim, i);
        f = f / rope->factor * slowed + f * (1 - slowed);
    }
    return (float)f;
}

kvf_status kvf_rope_table(const kvf_bundle *bundle, uint32_t type, uint32_t positions, float *out,
                          kvf_error *error) {
    if (!bundle || !out)
        return error_set(error, KVF_ERROR_ARGUMENT, "kvf_rope_table: %s is null",
                         bundle ? "out" : "bundle");
    if (type >= bundle->info.types)
        return error_set(error, KVF_ERROR_NOT_FOUND, "there is no layer type %u of %u", type,
                         bundle->info.types);
    if (positions > bundle->info.max_positions)
        return error_set(error, KVF_ERROR_LIMIT, "%u positions: the model has at most %u",
                         positions, bundle->info.max_positions);
    uint32_t dim = bundle->types[type].info.rope_dim, pairs = dim / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        double f = frequency(&bundle->types[type].rope, dim, i);
        for (uint32_t p = 0; p < positions; p++) {
            float *row = out + (size_t)p * dim;
            row[i] = (float)cos(p * f);
            row[pairs + i] = (float)sin(p * f);
        }
    }
    return KVF_OK;
}
