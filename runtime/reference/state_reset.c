/* state_reset: the listed slots of every layer get back their positions, heads and lengths. */
#include "reference.h"

#include <string.h>

void ref_state_reset(const struct ref_state_reset *args) {
    for (uint32_t i = 0; i < args->count; i++) {
        int32_t slot = args->slot_list[i];
        if (slot < 0 || (uint32_t)slot >= args->slots) continue;
        for (uint32_t layer = 0; layer < args->layers; layer++)
            for (uint32_t a = 0; a < args->array_count; a++) {
                const struct ref_reset_array *array = &args->arrays[a];
                uint8_t *at =
                    array->base + layer * array->layer_stride + (uint64_t)slot * array->stride;
                for (uint32_t e = 0; e < array->count; e++)
                    memcpy(at + 4 * (uint64_t)e, &array->value, 4);
            }
    }
}
