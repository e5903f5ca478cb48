/* q_norm_rope's and inverse_rope's twins. */
#include "convert.h"
#include "reference.h"
#include "tap.h"
#include "vector.h"

#include <math.h>

#define DIM    32
#define ROPE   8
#define HEADS  3
#define TOKENS 3

static uint16_t q[TOKENS][HEADS * DIM + 8], out[TOKENS][HEADS * DIM + 16];
static float table[4][ROPE];
static int32_t position[TOKENS] = {2, -1, 4};

static struct ref_query make(void) {
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < HEADS * DIM + 8; i++)
            q[t][i] = ref_bf16((float)((i * 29 + t * 7) % 41 - 20) / 8);
        for (int i = 0; i < HEADS * DIM + 16; i++) out[t][i] = 0xa5a5;
    }
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < ROPE / 2; i++) {
            table[p][i] = cosf((float)p / (float)(i + 1));
            table[p][ROPE / 2 + i] = sinf((float)p / (float)(i + 1));
        }
    return (struct ref_query){TOKENS,       HEADS,          4,           position,     table[0],
                              (uint8_t *)q, (uint8_t *)out, sizeof q[0], sizeof out[0]};
}

/* Head 1 of token 0 in doubles. */
static double worst_error(void) {
    double x[DIM], mean = 0, most = 0;
    for (int i = 0; i < DIM; i++) {
        x[i] = ref_bf16_value(q[0][DIM + i]);
        mean += x[i] * x[i] / DIM;
    }
    for (int i = 0; i < DIM; i++) x[i] /= sqrt(mean + 1e-6);
    for (int i = 0; i < ROPE / 2; i++) {
        double *a = &x[DIM - ROPE + 2 * i], *b = a + 1, angle = 2.0 / (i + 1);
        double turned[2] = {*a * cos(angle) - *b * sin(angle), *a * sin(angle) + *b * cos(angle)};
        *a = turned[0], *b = turned[1];
    }
    for (int i = 0; i < DIM; i++)
        most = fmax(most, fabs(x[i] - (double)ref_bf16_value(out[0][DIM + i])));
    return most;
}

int main(void) {
    struct ref_type type = {.head_dim = DIM, .rope_dim = ROPE, .norm_eps = 1e-6f};
    struct ref_query args = make();
    tap_plan(9);
    ref_q_norm_rope(&type, &args);
    ok(worst_error() < 0x1p-7, "a head is normalised and rotated, within bf16's rounding");
    ok(out[0][HEADS * DIM] == 0xa5a5 && out[1][0] == 0xa5a5 && out[2][0] == 0xa5a5,
       "padding, positions beyond the table and the bytes between tokens are left");
    uint16_t plain[DIM], before[DIM];
    memcpy(plain, &out[0][DIM], sizeof plain);
    type.round_before_rope = true;
    ref_q_norm_rope(&type, &args);
    ok(!memcmp(plain, &out[0][DIM], 2 * (DIM - ROPE)), "round_before_rope leaves the nope part");
    ok(memcmp(plain, &out[0][DIM], sizeof plain) != 0, "and shows in the rotated one");
    type.round_before_rope = false;
    for (int i = 0; i < DIM; i++) q[0][i] = ref_bf16(0);
    ref_q_norm_rope(&type, &args);
    is(out[0][3] | out[0][DIM - 1], 0, "a head of zeros stays zero");

    make();
    for (int i = 0; i < HEADS * DIM; i++) out[0][i] = ref_bf16((float)(i % 13) - 6);
    memcpy(before, out[0], sizeof before);
    ref_inverse_rope(&type, &args);
    same(out[0], before, 2 * (DIM - ROPE), "inverse_rope leaves the nope part");
    float turned[ROPE];
    for (int i = 0; i < ROPE; i++) turned[i] = ref_bf16_value(out[0][DIM - ROPE + i]);
    ref_rotate(turned, ROPE, table[2]);
    double most = 0;
    for (int i = 0; i < ROPE; i++)
        most = fmax(most, fabs((double)(turned[i] - ref_bf16_value(before[DIM - ROPE + i]))));
    ok(most < 0.05, "and the rotation turns it back");
    ok(memcmp(&out[0][DIM - ROPE], &before[DIM - ROPE], 2 * ROPE) != 0, "which was turned");
    is(out[1][5], 0xa5a5, "padding is left");
    return tap_done();
}
