/* cp.async: copies from global to shared memory that complete at a wait. */
#include "async.h"

/* The second address: slot b with its own offset in e. */
static void read_sources(struct warp *w, const struct op *o, uint32_t m, uint32_t size,
                         const uint32_t *wanted, struct async_copy *copies, uint32_t *good) {
    *good = m;
    uint32_t reading = 0;
    EACH_SET_LANE(i, m) reading |= (uint32_t)(wanted[i] > 0) << i;
    struct access a;
    if (!reading) return;
    access_start(&a, w, o, reading, o->b, o->e, o->address64 >> 1 & 1, SPACE_GLOBAL, size,
                 ACCESS_READ);
    uint32_t served = 0;
    while (access_next(&a)) {
        served |= a.lanes;
        EACH_SET_LANE(i, a.lanes) {
            memcpy(copies[i].data, a.region->host + a.at[i], wanted[i]);
            copies[i].known = 0;
            for (uint32_t k = 0; k < wanted[i]; k++)
                copies[i].known |= (uint32_t)region_is_defined(a.region, a.at[i] + k, 1) << k;
        }
    }
    *good = (m & ~reading) | served;
}

/* How many bytes each lane reads; the rest of the `size` bytes is filled with zeros. */
static bool source_sizes(struct warp *w, const struct op *o, uint32_t m, uint32_t size,
                         uint32_t *wanted) {
    const uint32_t *count = o->c ? source32(w, o->c) : NULL;
    uint32_t ignored = o->p != PREDICATE_TRUE ? predicate_of(w, o) : 0;
    EACH_SET_LANE(i, m) {
        wanted[i] = count ? count[i] : size;
        if (ignored >> i & 1) wanted[i] = 0;
        if (wanted[i] <= size) continue;
        report_lane(w, o, i, FINDING_BOUNDS, 0, NULL,
                    "the source size %u of an asynchronous copy is above its size %u", wanted[i],
                    size);
        return false;
    }
    return true;
}

static void copy_async(struct warp *w, const struct op *o, uint32_t m) {
    uint32_t size = (uint32_t)o->mode;
    uint32_t wanted[LANES], good;
    struct async_copy copies[LANES];
    if (!source_sizes(w, o, m, size, wanted)) return;
    EACH_SET_LANE(i, m)
    copies[i] = (struct async_copy){
        .op = o, .lane = (uint8_t)i, .bytes = (uint8_t)size, .known = (1u << size) - 1};
    read_sources(w, o, m, size, wanted, copies, &good);
    EACH_SET_LANE(i, good)
    copies[i].known |= ((1u << size) - 1) & ~((1u << wanted[i]) - 1); /* the zeros */
    bool now = !w->block->launch->config->check_async;
    struct access a;
    access_start(&a, w, o, good, o->a, o->imm, o->address64 & 1, SPACE_SHARED, size,
                 ACCESS_WRITE | (now ? 0 : ACCESS_ASYNC));
    while (access_next(&a)) {
        EACH_SET_LANE(i, a.lanes) {
            copies[i].at = a.at[i];
            if (now) {
                memcpy(a.region->host + a.at[i], copies[i].data, size);
                for (uint32_t k = 0; k < size; k++)
                    region_define(a.region, a.at[i] + k, 1, copies[i].known >> k & 1);
            } else if (!async_add(w, &copies[i])) {
                report_lane(w, o, i, FINDING_STACK, 0, NULL,
                            "out of memory for asynchronous copies");
                return;
            }
        }
    }
}

#define CP_ASYNC(name)                                                                             \
    OP_FUNCTION(name) {                                                                            \
        copy_async(w, o, m);                                                                       \
    }
CP_ASYNC(cp_async_ca)
CP_ASYNC(cp_async_cg)

OP_FUNCTION(cp_async_commit) {
    (void)o;
    async_commit(w, m);
}

OP_FUNCTION(cp_async_wait_group) {
    async_wait(w, o, m, (uint32_t)o->imm, false);
}

OP_FUNCTION(cp_async_wait_all) {
    async_wait(w, o, m, 0, true);
}
