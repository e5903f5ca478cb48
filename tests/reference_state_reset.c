/* state_reset's twin: the listed slots of every layer, and nothing else. */
#include "reference.h"
#include "tap.h"

#define LAYERS 3
#define SLOTS  5
#define RING   4

static int32_t positions[LAYERS][SLOTS][RING], head[LAYERS][SLOTS + 2];

static void poison(void) {
    memset(positions, 0x55, sizeof positions);
    memset(head, 0x55, sizeof head);
}

static void reset(const int32_t *list, uint32_t count, uint32_t layers) {
    struct ref_reset_array arrays[] = {
        {(uint8_t *)positions, sizeof positions[0][0], sizeof positions[0], RING, -1},
        {(uint8_t *)head, 4, sizeof head[0], 1, 0},
    };
    struct ref_state_reset args = {count, SLOTS, layers, list, arrays, 2};
    ref_state_reset(&args);
}

/* Elements that differ from "slots in `mask` of the first `layers` layers reset". */
static int wrong(unsigned mask, int layers) {
    int count = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < SLOTS + 2; s++) {
            bool hit = l < layers && s < SLOTS && (mask >> s & 1);
            count += head[l][s] != (hit ? 0 : 0x55555555);
            for (int r = 0; s < SLOTS && r < RING; r++)
                count += positions[l][s][r] != (hit ? -1 : 0x55555555);
        }
    return count;
}

int main(void) {
    tap_plan(4);
    poison();
    reset((int32_t[]){3, 0}, 2, LAYERS);
    is(wrong(1 << 3 | 1, LAYERS), 0, "two slots of all layers");
    poison();
    reset((int32_t[]){-1, SLOTS, 2, INT32_MIN, INT32_MAX}, 5, LAYERS);
    is(wrong(1 << 2, LAYERS), 0, "entries out of range are skipped");
    poison();
    reset((int32_t[]){1, 1}, 2, 2);
    is(wrong(1 << 1, 2), 0, "a slot listed twice; layers beyond the count keep theirs");
    poison();
    reset(NULL, 0, LAYERS);
    is(wrong(0, 0), 0, "an empty list resets nothing");
    return tap_done();
}
