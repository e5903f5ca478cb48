/* Races: to come. */
#include "access.h"

void race_forget(struct region *region);

void race_forget(struct region *region) {
    (void)region;
}

void race_access(struct access *a) {
    (void)a;
}

void race_async(struct warp *w, const struct op *o, uint32_t lane, uint64_t at, uint32_t bytes);

void race_async(struct warp *w, const struct op *o, uint32_t lane, uint64_t at, uint32_t bytes) {
    (void)w;
    (void)o;
    (void)lane;
    (void)at;
    (void)bytes;
}
