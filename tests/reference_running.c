/* The running softmax's twin: exact means, the true softmax, chunking that changes no bit, and
 * edges. */
#include "reference.h"
#include "tap.h"

#include <math.h>

#define DIM    8
#define RATIO  16
#define TOKENS 53

static float kv[TOKENS][DIM], score[TOKENS][DIM], ape[RATIO][DIM], state[3][DIM];
static int32_t batch_id[TOKENS], position[TOKENS], cu_tokens[2], state_slot[1], length;
static uint32_t seed = 1;

static const struct ref_type type = {.ratio = RATIO, .input = REF_F32, .online = true};

static float random_float(void) {
    seed = seed * 1664525 + 1013904223;
    return (float)((int32_t)seed >> 8) * 0x1p-21f;
}

static void randomise(void) {
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < DIM; c++) kv[t][c] = random_float(), score[t][c] = random_float();
    for (int i = 0; i < RATIO; i++)
        for (int c = 0; c < DIM; c++) ape[i][c] = random_float();
}

/* Tokens first .. first + count - 1 of a sequence as a launch. */
static struct ref_running launch(int first, int count) {
    cu_tokens[1] = count;
    for (int t = 0; t < count; t++) position[t] = first + t;
    return (struct ref_running){
        .batch = {(uint32_t)count, 1, 1, 0, batch_id, position, cu_tokens, state_slot},
        .dim = DIM,
        .kv = (const uint8_t *)kv[first],
        .score = (const uint8_t *)score[first],
        .kv_stride = sizeof kv[0],
        .score_stride = sizeof score[0],
        .ape = ape[0],
        .most = {(uint8_t *)state[0], sizeof state[0]},
        .sum = {(uint8_t *)state[1], sizeof state[1]},
        .total = {(uint8_t *)state[2], sizeof state[2]}};
}

/* Serve all tokens in chunks of `chunk`; the means of each group, as the launch that ends it sees
 * them. */
static void serve(int chunk, float means[TOKENS / RATIO][DIM]) {
    memset(state, 0xff, sizeof state);
    for (int first = 0; first < TOKENS; first += chunk) {
        int count = first + chunk > TOKENS ? TOKENS - first : chunk;
        struct ref_running in = launch(first, count);
        for (int t = 0; t < count; t++)
            if ((first + t + 1) % RATIO == 0)
                ref_running_pool(&type, &in, (uint32_t)t, means[(first + t) / RATIO]);
        ref_running_append(&type, &in, (struct ref_array){(uint8_t *)&length, 4});
    }
}

static void equal_scores(void) {
    float means[TOKENS / RATIO][DIM];
    memset(ape, 0, sizeof ape);
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < DIM; c++) kv[t][c] = (float)(t * (c + 1)), score[t][c] = 0.25f;
    serve(TOKENS, means);
    ok(means[0][0] == 7.5f && means[1][0] == 23.5f && means[2][1] == 79.0f,
       "equal scores give the mean of each group");
    is(length, TOKENS % RATIO, "the tail length counts what is left");
}

static void true_softmax(void) {
    float means[TOKENS / RATIO][DIM];
    double worst = 0;
    randomise();
    serve(TOKENS, means);
    for (int g = 0; g < TOKENS / RATIO; g++)
        for (int c = 0; c < DIM; c++) {
            double sum = 0, total = 0;
            for (int i = 0; i < RATIO; i++) {
                double w = exp((double)score[g * RATIO + i][c] + (double)ape[i][c]);
                sum += w, total += w * (double)kv[g * RATIO + i][c];
            }
            double error = fabs(total / sum - (double)means[g][c]);
            worst = error > worst ? error : worst;
        }
    ok(worst > 0 && worst < 4e-6, "the softmax in double precision");
    printf("# largest error %.2g\n", worst);
}

static bool same_bits(const void *a, const void *b, size_t bytes) {
    return !memcmp(a, b, bytes);
}

static void chunks(void) {
    float whole[TOKENS / RATIO][DIM], parts[TOKENS / RATIO][DIM], left[3][DIM];
    bool means = true, states = true;
    randomise();
    serve(TOKENS, whole);
    memcpy(left, state, sizeof left);
    for (int chunk = 1; chunk < TOKENS; chunk++) {
        serve(chunk, parts);
        means = means && same_bits(whole, parts, sizeof whole);
        states = states && same_bits(left, state, sizeof left);
    }
    ok(means, "chunks of every length give the same means, bit for bit");
    ok(states, "and leave the same state");
}

/* Group 0 of channel 0 with these scores, and values 1, 2, 3, ... */
static float mean_of(const float *scores) {
    float means[TOKENS / RATIO][DIM];
    memset(ape, 0, sizeof ape);
    for (int t = 0; t < RATIO; t++) kv[t][0] = (float)(t + 1), score[t][0] = scores[t];
    serve(3, means);
    return means[0][0];
}

static void edges(void) {
    float scores[RATIO];
    for (int i = 0; i < RATIO; i++) scores[i] = -INFINITY;
    ok(mean_of(scores) == 0.0f, "no score at all gives 0");
    scores[5] = -3e38f;
    ok(mean_of(scores) == 6.0f, "one score among none takes all");
    scores[9] = INFINITY;
    ok(mean_of(scores) == 10.0f, "so does one infinite score");
    scores[12] = INFINITY;
    ok(isnan(mean_of(scores)), "two have no weights");
    scores[9] = scores[12] = 1;
    scores[2] = NAN;
    ok(isnan(mean_of(scores)), "NaN among the scores is not forgotten");
}

int main(void) {
    tap_plan(10);
    equal_scores();
    true_softmax();
    chunks();
    edges();
    return tap_done();
}
