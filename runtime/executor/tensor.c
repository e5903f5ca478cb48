#include "tensor.h"

#include "fp.h"

struct tensor_rule tensor_rule(enum ptx_type type, enum tensor_model model, unsigned target) {
    if (model == TENSOR_BY_TARGET)
        model = target < 89    ? TENSOR_SM80
                : target < 90  ? TENSOR_SM89
                : target < 100 ? TENSOR_SM90
                               : TENSOR_SM100;
    bool old = model == TENSOR_SM80 || model == TENSOR_SM89;
    bool fp8 = type == T_E4M3 || type == T_E5M2;
    if (fp8 && old) return (struct tensor_rule){16, 13, 13, false};
    if (fp8) return (struct tensor_rule){16, 25, 23, true};
    int block = old ? 8 : 16;
    if (type == T_TF32) block /= 2;
    return (struct tensor_rule){block, old ? 24 : 25, 23, false};
}

struct tensor_format tensor_format(enum ptx_type type) {
    switch (type) {
    case T_F16: return (struct tensor_format){10, 15, 5, true};
    case T_BF16: return (struct tensor_format){7, 127, 8, true};
    case T_E4M3: return (struct tensor_format){3, 7, 4, false};
    case T_E5M2: return (struct tensor_format){2, 15, 5, true};
    default: return (struct tensor_format){10, 127, 8, true}; /* tf32, 19 bits */
    }
}

#include "tensor_lanes.h"

enum { K_MAX = 64 };

uint32_t tensor_dot(struct tensor_rule rule, enum ptx_type type, const uint32_t *a,
                    const uint32_t *b, int k, uint32_t c) {
    struct tensor_format format = tensor_format(type);
    struct tensor_factor fa[K_MAX], fb[K_MAX];
    int32_t as[K_MAX], ae[K_MAX], bs[K_MAX][TENSOR_COLUMNS] = {0}, be[K_MAX][TENSOR_COLUMNS] = {0};
    for (int i = 0; i < k; i++) {
        fa[i] = tensor_unpack(&format, a[i]);
        fb[i] = tensor_unpack(&format, b[i]);
        as[i] = fa[i].significand;
        ae[i] = fa[i].exponent;
        bs[i][0] = fb[i].significand;
        be[i][0] = fb[i].exponent;
    }
    uint32_t acc[TENSOR_COLUMNS] = {rule.add_after ? 0 : c};
    for (int i = 0; i < k; i += rule.block) {
        int step = rule.block < k - i ? rule.block : k - i;
        uint32_t special = tensor_special(fa + i, fb + i, 1, step, acc[0]);
        tensor_step(as + i, ae + i, (const int32_t(*)[TENSOR_COLUMNS])bs + i,
                    (const int32_t(*)[TENSOR_COLUMNS])be + i, step, 2 * format.fraction,
                    rule.fraction, rule.result, acc);
        if (special) acc[0] = special;
    }
    if (rule.add_after) return f32_result(f32_of(acc[0]) + f32_of(c));
    return acc[0];
}
