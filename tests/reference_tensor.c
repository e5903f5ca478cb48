/* The tensor-core model against results that were measured on real chips, and by hand. */
#include "tensor.h"

#include "convert.h"
#include "tap.h"

#include <math.h>

#define VECTORS "../shared/vectors/tensor_core/"

/* `count` hexadecimal words up to a bar or the line's end. */
static bool read_words(FILE *file, uint32_t *out, int count) {
    for (int i = 0; i < count; i++)
        if (fscanf(file, " %x", &out[i]) != 1) return false;
    int next = fgetc(file);
    while (next == ' ') next = fgetc(file);
    return next == '|' || next == '\n' || next == EOF;
}

/* Lines of a file whose result the model does not give; -1 if the file cannot be read. */
static int mismatches(const char *name, struct ref_chip chip, uint32_t k, int *lines) {
    char path[256];
    uint32_t a[16], b[16], c, d;
    uint16_t x[16], y[16];
    int bad = 0;
    snprintf(path, sizeof path, VECTORS "%s", name);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    while (fgetc(file) != '\n') continue;
    for (*lines = 0; read_words(file, a, (int)k) && read_words(file, b, (int)k) &&
                     read_words(file, &c, 1) && read_words(file, &d, 1);
         ++*lines) {
        for (uint32_t i = 0; i < k; i++)
            x[i] = (uint16_t)(a[i] >> 16), y[i] = (uint16_t)(b[i] >> 16);
        bad += ref_bits(ref_mma(chip, x, y, 1, k, ref_float(c))) != d;
    }
    fclose(file);
    return bad;
}

static void measured(const char *name, int capability, uint32_t k) {
    int lines = 0, bad = mismatches(name, ref_chip_of(capability), k, &lines);
    if (bad < 0) {
        tap_skip(1, "%s is not here", name);
        return;
    }
    ok(bad == 0 && lines >= 500, "%s: all of %d measured results", name, lines);
}

static float dot(int capability, float a0, float b0, float a1, float b1, float c) {
    uint16_t a[16] = {ref_bf16(a0), ref_bf16(a1)}, b[16] = {ref_bf16(b0), ref_bf16(b1)};
    return ref_mma(ref_chip_of(capability), a, b, 1, 16, c);
}

int main(void) {
    uint16_t a[32], b[64];
    tap_plan(13);
    measured("sm_90_bf16_k16.txt", 90, 16);
    measured("sm_80_bf16_k8.txt", 80, 8);
    ok(dot(90, 2, 3, 4, 5, 7) == 33, "small whole numbers are exact");
    ok(dot(90, 0x1p12f, 0x1p12f, 1, 0x1p-1f, 0) == 0x1p24f, "half a unit is cut off");
    ok(dot(90, 0x1p12f, 0x1p12f, -1, 0x1p-1f, 0) == 0x1p24f - 1,
       "cut toward zero, so minus half takes a whole one away");
    ok(dot(90, 0x1p12f, 0x1p12f, -1, 0x1p-2f, 0) == 0x1p24f,
       "25 bits: a quarter is cut before the sum");
    ok(dot(90, 0x1p30f, 0, 1, 0x1p-20f, 0) == 0x1p-20f, "a zero product does not align the others");
    ok(isinf(dot(90, INFINITY, 2, 1, 1, 0)) && dot(90, -INFINITY, 2, 1, 1, 5) == -INFINITY,
       "infinities stay");
    is(ref_bits(dot(90, INFINITY, 0, 1, 1, 0)), 0x7fffffff, "infinity times zero is NaN");
    is(ref_bits(dot(90, INFINITY, 1, 1, 1, -INFINITY)), 0x7fffffff, "opposite infinities too");
    ok(isinf(dot(90, 0x1p127f, 4, 0, 0, 0)), "beyond the range lies infinity");
    ok(dot(90, 0x1p-80f, 0x1p-68f, 0, 0, 0) == 0x1p-148f, "results may be subnormal");
    for (int i = 0; i < 32; i++)
        a[i] = ref_bf16((float)i), b[2 * i] = ref_bf16(1), b[2 * i + 1] = 0;
    ok(ref_mma(ref_chip_of(90), a, b, 2, 32, 1) == 497, "longer sums go on, b has its step");
    return tap_done();
}
