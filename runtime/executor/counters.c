/* Counters: to come. */
#include "access.h"

void counter_access(struct access *a) {
    (void)a;
}

void counter_operation(struct worker *worker, const struct warp *w, const struct op *o,
                       uint32_t lanes) {
    (void)worker;
    (void)w;
    (void)o;
    (void)lanes;
}
