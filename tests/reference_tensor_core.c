/* The tensor-core model: cases worked out by hand, and results that real chips gave. */
#include "convert.h"
#include "tap.h"
#include "tensor_core.h"

#include <math.h>

#define VECTORS "../shared/vectors/tensor_core/"

static const struct ref_tensor_core ampere = {8, 24}, hopper = {16, 25};

/* c + sum of x[i] * y[i] over 16 products; what is not listed is zero. */
static float dot(struct ref_tensor_core core, const float *x, const float *y, uint32_t count,
                 float c) {
    uint16_t a[16] = {0}, b[16] = {0};
    for (uint32_t i = 0; i < count; i++) {
        a[i] = ref_bf16(x[i]);
        b[i] = ref_bf16(y[i]);
    }
    return ref_mma_dot(core, a, b, 16, c);
}

static bool equal(float got, float want) {
    if (ref_bits(got) == ref_bits(want)) return true;
    tap_note("got %a (%08x), want %a", (double)got, ref_bits(got), (double)want);
    return false;
}

static void targets(void) {
    static const struct {
        const char *name;
        uint32_t block;
        int fraction;
    } list[] = {{"sm_80", 8, 24},   {"sm_89", 8, 24},    {"sm_90", 16, 25},
                {"sm_90a", 16, 25}, {"sm_100a", 16, 25}, {"sm_120a", 16, 25}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct ref_tensor_core core = ref_tensor_core_of(list[i].name);
        ok(core.block == list[i].block && core.fraction == list[i].fraction, "%s has its numbers",
           list[i].name);
    }
}

static void alignment(void) {
    const float half24[4] = {0x1p-24f, 0x1p-24f},
                one[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const float quarter[4] = {0x1p-25f, 0x1p-25f, 0x1p-25f, 0x1p-25f};
    const float eighth[8] = {0x1p-26f, 0x1p-26f, 0x1p-26f, 0x1p-26f,
                             0x1p-26f, 0x1p-26f, 0x1p-26f, 0x1p-26f};
    ok(equal(dot(ampere, half24, one, 2, 1), 1 + 0x1p-23f), "two of 2^-24 beside 1 are kept");
    ok(equal(dot(ampere, quarter, one, 4, 1), 1), "four of 2^-25 are lost with 24 bits");
    ok(equal(dot(hopper, quarter, one, 4, 1), 1 + 0x1p-23f), "and kept with 25");
    ok(equal(dot(hopper, eighth, one, 8, 1), 1), "eight of 2^-26 are lost with 25");
    ok(equal(dot(hopper, half24, one, 1, 1), 1), "the sum is cut off, not rounded");
    ok(equal(dot(hopper, half24, one, 1, -1), -1 + 0x1p-24f), "below 1 the unit is smaller");
    /* 1.5 * 1.5 is above 2 but has the exponent 0: one bit more of the others is kept. */
    const float x[3] = {1.5f, -1.5f, 0x1.8p-12f}, y[3] = {1.5f, 1.5f, 0x1p-13f};
    ok(equal(dot(hopper, x, y, 3, 0), 0x1p-25f), "a product's exponent is not normalised");
    ok(equal(dot(ampere, x, y, 3, 0), 0), "with 24 bits that one is cut off as well");
}

/* One large pair that cancels in the first half, a small term in the second. */
static void blocks(void) {
    float x[16] = {0x1p30f, -0x1p30f}, y[16];
    for (int i = 0; i < 16; i++) y[i] = 1;
    x[8] = 1;
    ok(equal(dot(ampere, x, y, 16, 0), 1), "eight products at once: the second half starts anew");
    ok(equal(dot(hopper, x, y, 16, 0), 0), "sixteen at once: the large pair hides the small term");
    x[8] = 0;
    x[2] = 1;
    ok(equal(dot(ampere, x, y, 16, 0), 0), "in the same half it is hidden, too");
    ok(equal(dot(ampere, x, y, 16, 0x1p30f), 0x1p30f), "and the accumulator stands beside them");
}

static void specials(void) {
    const float inf[2] = {INFINITY, 1}, minus[2] = {-INFINITY, INFINITY}, zero[2] = {0, 1};
    const float one[2] = {1, 1}, nan[2] = {NAN, 1}, huge[2] = {0x1.fep127f, 0x1.fep127f};
    const float tiny[2] = {-0x1p-100f, 0}, big[2] = {0x1p126f, 0x1p126f}, cancel[2] = {4, -4};
    ok(equal(dot(hopper, inf, one, 2, 1), INFINITY), "infinity stays");
    ok(equal(dot(hopper, inf, one, 2, -INFINITY), ref_float(0x7fffffff)), "inf - inf is the NaN");
    ok(equal(dot(hopper, minus, one, 2, 0), ref_float(0x7fffffff)), "also between products");
    ok(equal(dot(hopper, inf, zero, 2, 0), ref_float(0x7fffffff)), "inf * 0 is the NaN");
    ok(equal(dot(hopper, nan, zero, 2, INFINITY), ref_float(0x7fffffff)), "a NaN wins");
    ok(equal(dot(hopper, one, one, 2, -NAN), ref_float(0x7fffffff)), "the accumulator's too");
    ok(equal(dot(hopper, huge, huge, 2, 0), INFINITY), "beyond the largest number: infinity");
    ok(equal(dot(hopper, big, cancel, 2, 3), 0), "products beyond it cancel; 3 is cut off");
    ok(equal(dot(hopper, zero, one, 1, -0.0f), 0), "an exact zero is +0");
    ok(equal(dot(hopper, tiny, one, 1, 0), -0x1p-100f), "a small number alone is itself");
    const float least[1] = {0x1p-133f}, other[1] = {0x1p-10f};
    ok(equal(dot(hopper, least, other, 1, 0x1p-140f), 0x1p-140f + 0x1p-143f),
       "subnormal factors, accumulator and result");
    const float far[2] = {0x1p120f, 0x1p-20f}, none[2] = {0, 1};
    ok(equal(dot(hopper, far, none, 2, 0), 0x1p-20f), "a product of zero hides nothing");
}

/* The next number of a line: a binary32 pattern in hex, after a bar or not. */
static uint32_t next_bits(char **at) {
    while (**at == ' ' || **at == '|') ++*at;
    return (uint32_t)strtoul(*at, at, 16);
}

/* One line of a file of recorded results: a | b | c | d. */
static bool read_line(FILE *file, uint32_t k, uint16_t *a, uint16_t *b, uint32_t *c, uint32_t *d) {
    char line[1024], *at = line;
    if (!fgets(line, sizeof line, file)) return false;
    for (uint32_t i = 0; i < k; i++) a[i] = (uint16_t)(next_bits(&at) >> 16);
    for (uint32_t i = 0; i < k; i++) b[i] = (uint16_t)(next_bits(&at) >> 16);
    *c = next_bits(&at);
    *d = next_bits(&at);
    return true;
}

static void recorded(const char *name, struct ref_tensor_core core, uint32_t k) {
    char path[256], head[256];
    snprintf(path, sizeof path, VECTORS "%s", name);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(head, sizeof head, file)) {
        tap_skip(2, "%s is not here", path);
        if (file) fclose(file);
        return;
    }
    uint16_t a[16] = {0}, b[16] = {0};
    uint32_t c, d, lines = 0, wrong = 0;
    for (; read_line(file, k, a, b, &c, &d); lines++)
        wrong += ref_bits(ref_mma_dot(core, a, b, core.block, ref_float(c))) != d;
    fclose(file);
    ok(lines >= 500, "%s holds %u results", name, lines);
    ok(wrong == 0, "all of them as the chip gave them (%u differ)", wrong);
}

int main(void) {
    tap_plan(6 + 8 + 4 + 12 + 4);
    targets();
    alignment();
    blocks();
    specials();
    recorded("sm_80_bf16_k8.txt", ampere, 8);
    recorded("sm_90_bf16_k16.txt", hopper, 16);
    return tap_done();
}
