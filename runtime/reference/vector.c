#include "vector.h"

#include "convert.h"
#include "reference.h"

#include <math.h>
#include <string.h>

float ref_sum_squares(const float *x, uint32_t count) {
    float lane[32] = {0}, other[32];
    for (uint32_t i = 0; i < count; i++) lane[i / 8 % 32] += x[i] * x[i];
    for (uint32_t m = 16; m >= 1; m /= 2) {
        memcpy(other, lane, sizeof other);
        for (uint32_t l = 0; l < 32; l++) lane[l] += other[l ^ m];
    }
    return lane[0];
}

void ref_rms_norm(float *x, uint32_t count, const float *weight, float eps) {
    float mean = ref_sum_squares(x, count) / (float)count;
    float r = 1 / sqrtf(mean + eps);
    for (uint32_t i = 0; i < count; i++) x[i] = x[i] * r * weight[i];
}

void ref_rotate(float *x, uint32_t rope_dim, const float *table) {
    const float *cosine = table, *sine = table + rope_dim / 2;
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = a * sine[i] + b * cosine[i];
    }
}

float ref_exp2(float x) {
    if (isnan(x)) return x;
    if (x < -125) return 0;
    if (x >= 128) return INFINITY;
    float whole = (x + 0x1.8p23f) - 0x1.8p23f; /* to the nearest integer, ties to even */
    float f = x - whole;
    float p = fmaf(f, 0x1.41fbbcp-13f, 0x1.5f3e54p-10f);
    p = fmaf(f, p, 0x1.3b2d4cp-7f);
    p = fmaf(f, p, 0x1.c6aee8p-5f);
    p = fmaf(f, p, 0x1.ebfbdcp-3f);
    p = fmaf(f, p, 0x1.62e43p-1f);
    p = fmaf(f, p, 1);
    return ref_float(ref_bits(p) + ((uint32_t)(int32_t)whole << 23));
}

float ref_max(float a, float b) {
    if (isnan(a)) return b;
    if (isnan(b)) return a;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}

float ref_log2(float v) {
    int32_t bits = (int32_t)ref_bits(v), from_root = bits - 0x3f3504f3; /* of sqrt(1/2) */
    int32_t n = from_root >= 0 ? from_root >> 23 : -((-from_root + 0x7fffff) >> 23);
    float m = ref_float((uint32_t)bits - ((uint32_t)n << 23));
    float z = (m - 1) / (m + 1), u = z * z;
    float q = fmaf(u, 0x1.b8c6dp-2f, 0x1.274d9p-1f);
    q = fmaf(u, q, 0x1.ec70d6p-1f);
    q = fmaf(u, q, 0x1.715476p+1f);
    return z * q + (float)n;
}

void ref_hadamard(float *x, uint32_t count) {
    for (uint32_t stride = 1; stride < count; stride *= 2)
        for (uint32_t i = 0; i < count; i++) {
            if (i & stride) continue;
            float a = x[i], b = x[i + stride];
            x[i] = a + b;
            x[i + stride] = a - b;
        }
    float scale = (float)(1 / sqrt((double)count));
    for (uint32_t i = 0; i < count; i++) x[i] *= scale;
}

float ref_element(enum ref_dtype dtype, const uint8_t *row, uint32_t column) {
    uint16_t half;
    float value;
    if (dtype == REF_F32) {
        memcpy(&value, row + 4 * (size_t)column, 4);
        return value;
    }
    memcpy(&half, row + 2 * (size_t)column, 2);
    return ref_bf16_value(half);
}

float ref_one_nan(float x) {
    return isnan(x) ? ref_float(0x7fffffff) : x;
}

void ref_round_bf16(float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) x[i] = ref_bf16_value(ref_bf16(x[i]));
}
