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
    for (size_t i = 0; i < rope_dim / 2; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = a * sine[i] + b * cosine[i];
    }
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

void ref_round_bf16(float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) x[i] = ref_bf16_value(ref_bf16(x[i]));
}
