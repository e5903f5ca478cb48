/* exp2 and log2, and what the chip does with NaN. */
#include "convert.h"
#include "fp32.h"

#include <math.h>

float ref_one_nan(float x) {
    return isnan(x) ? ref_float(0x7fffffff) : x;
}

float ref_max(float a, float b) {
    if (isnan(a)) return ref_one_nan(b);
    if (isnan(b)) return a;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}

/* x = n + f with n the nearest integer; a polynomial gives 2^f, and n moves its exponent. */
float ref_exp2(float x) {
    static const float c[7] = {1,
                               0x1.62e43p-1f,
                               0x1.ebfbdcp-3f,
                               0x1.c6aee8p-5f,
                               0x1.3b2d4cp-7f,
                               0x1.5f3e54p-10f,
                               0x1.41fbbcp-13f};
    const float magic = 0x1.8p23f; /* adding it rounds to an integer */
    if (isnan(x)) return ref_one_nan(x);
    if (x < -125) return 0;
    if (x >= 128) return INFINITY;
    float n = (x + magic) - magic, f = x - n, p = c[6];
    for (int i = 5; i >= 0; i--) p = fmaf(f, p, c[i]);
    return ref_float(ref_bits(p) + ((uint32_t)(int32_t)n << 23));
}

/* x = 2^n * m with m in [sqrt(1/2), sqrt(2)); log2(m) is odd in (m - 1) / (m + 1). */
float ref_log2(float x) {
    static const float d[4] = {0x1.715476p+1f, 0x1.ec70d6p-1f, 0x1.274d9p-1f, 0x1.b8c6dp-2f};
    if (isnan(x)) return ref_one_nan(x);
    uint32_t bits = ref_bits(x);
    int32_t above = (int32_t)(bits - 0x3f3504f3u);
    int32_t n = above >= 0 ? above / (1 << 23) : -((-(above + 1)) / (1 << 23)) - 1;
    float m = ref_float(bits - ((uint32_t)n << 23));
    float z = (m - 1) / (m + 1), u = z * z;
    float p = fmaf(u, fmaf(u, fmaf(u, d[3], d[2]), d[1]), d[0]);
    float product = z * p;
    return product + (float)n;
}
