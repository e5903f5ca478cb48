/* RoPE tables: golden frequencies, every entry against long double, limits. */
#include <float.h>
#include <math.h>

#include "fake/test_bundle.h"
#include "tap.h"

static kvf_error error;

/* DeepSeek's geometry on the test bundle: 64 rotated dims of 512, a million positions. */
static kvf_bundle *open_bundle(void) {
    json_t *manifest = test_manifest();
    for (int type = 0; type < 2; type++) {
        char path[16];
        snprintf(path, sizeof path, "types.%d", type);
        test_set(manifest, path, "head_dim", json_integer(512));
        test_set(manifest, path, "rope_dim", json_integer(64));
        test_set(manifest, path, "nope_dim", json_integer(448));
    }
    test_set(manifest, "model", "max_positions", json_integer(1048576));
    kvf_bundle *bundle = NULL;
    if (test_open(manifest, &bundle, &error) != KVF_OK) {
        tap_note("%s", error.text);
        exit(1);
    }
    json_decref(manifest);
    return bundle;
}

/* The frequency of pair i, read back from the table: the angle at position 1, by its sine. */
static double table_frequency(const float *table, int i) {
    return asin((double)table[64 + 32 + i]);
}

/* YaRN at theta 160000, factor 16, original 65536, betas 32 and 1: low 15, high 25. */
static void test_golden(const kvf_bundle *bundle) {
    static const struct {
        int pair;
        double frequency;
    } golden[] = {{14, 0.00528685632}, {15, 0.00363553858},  {16, 0.002265625},
                  {17, 0.00139680129}, {20, 0.000296977778}, {24, 1.953125e-05},
                  {31, 5.68052904e-07}};
    static float table[2][64];
    is(kvf_rope_table(bundle, 0, 2, &table[0][0], &error), KVF_OK, "a table with YaRN");
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        double got = table_frequency(&table[0][0], golden[i].pair);
        ok(fabs(got / golden[i].frequency - 1) < 3e-7, "frequency of pair %d is %.9g, got %.9g",
           golden[i].pair, golden[i].frequency, got);
    }
    bool start = true;
    for (int i = 0; i < 32; i++) start = start && table[0][i] == 1 && table[0][32 + i] == 0;
    ok(start, "at position 0 nothing turns");
}

/* The angle by another way: powers by repeated multiplication, ramp written out, long double. */
static long double frequency(int type, int pair) {
    long double base = type == 0 ? 160000 : 10000, step = 1 / powl(base, 1.0L / 32), f = 1;
    for (int i = 0; i < pair; i++) f *= step;
    if (type == 1 || pair <= 15) return (float)f;
    if (pair >= 25) return (float)(f / 16);
    long double ramp = (pair - 15) / 10.0L;
    return (float)(f * (ramp / 16 + (1 - ramp)));
}

static void test_every_entry(const kvf_bundle *bundle) {
    enum { POSITIONS = 5000 };
    float *table = malloc(sizeof(float) * POSITIONS * 64);
    for (uint32_t type = 0; type < 2; type++) {
        is(kvf_rope_table(bundle, type, POSITIONS, table, &error), KVF_OK, "a table");
        double worst = 0;
        for (int p = 0; p < POSITIONS; p++) {
            for (int i = 0; i < 32; i++) {
                long double angle = p * frequency((int)type, i);
                double cosine = fabs((double)(table[p * 64 + i] - cosl(angle)));
                double sine = fabs((double)(table[p * 64 + 32 + i] - sinl(angle)));
                worst = fmax(worst, fmax(cosine, sine));
            }
        }
        /* Half a unit in the last place of numbers up to 1. */
        ok(worst < 3.0e-8, "type %u: every entry is rounded once: within %g", type, worst);
    }
    free(table);
}

/* Betas so far apart that both ends of the ramp are held: low at 0, high at the last dim, 15. */
static void test_held_ramp(void) {
    json_t *manifest = test_manifest();
    test_set(manifest, "types.0.rope", "beta_fast", json_real(1e8));
    test_set(manifest, "types.0.rope", "beta_slow", json_real(1e-6));
    kvf_bundle *bundle = NULL;
    float table[2][16];
    int bad = test_open(manifest, &bundle, &error) != KVF_OK ||
              kvf_rope_table(bundle, 0, 2, &table[0][0], &error) != KVF_OK;
    for (int i = 0; i < 8 && !bad; i++) {
        double f = pow(160000, -i / 8.0), slowed = i / 15.0;
        float want = (float)sin((double)(float)(f / 16 * slowed + f * (1 - slowed)));
        bad += fabsf(table[1][8 + i] - want) > 1e-7f;
    }
    is(bad, 0, "a ramp that is held at both ends");
    kvf_bundle_close(bundle);
    json_decref(manifest);
}

static void test_limits(const kvf_bundle *bundle) {
    float one[64] = {7};
    is(kvf_rope_table(bundle, 2, 1, one, &error), KVF_ERROR_NOT_FOUND, "no third type");
    is(kvf_rope_table(bundle, 0, 1048577, one, &error), KVF_ERROR_LIMIT,
       "more positions than the model has");
    contains(error.text, "1048577 positions: the model has at most 1048576", "");
    is(kvf_rope_table(NULL, 0, 1, one, &error), KVF_ERROR_ARGUMENT, "no bundle");
    is(kvf_rope_table(bundle, 0, 1, NULL, &error), KVF_ERROR_ARGUMENT, "no table");
    is(kvf_rope_table(bundle, 0, 0, one, &error), KVF_OK, "no positions are nothing to do");
    is(one[0], 7, "and nothing is written");
}

int main(void) {
    tap_plan(21);
    kvf_bundle *bundle = open_bundle();
    test_golden(bundle);
    test_every_entry(bundle);
    test_held_ramp();
    test_limits(bundle);
    kvf_bundle_close(bundle);
    return tap_done();
}
