/* Races in global memory: between blocks, and what orders them. */
#include "race_cells.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- synchronisation between blocks ---- */

void race_launch_start(struct launch *l) {
    struct race_clock *clock = calloc(1, sizeof *clock);
    l->clock = clock;
    if (!clock) return;
    clock->now = CLOCK_START;
    clock->blocks = l->blocks;
    clock->released = calloc(l->blocks, sizeof *clock->released);
}

void race_launch_stop(struct launch *l) {
    if (!l->clock) return;
    free(l->clock->released);
    free(l->clock);
    l->clock = NULL;
}

void race_fence(struct warp *w) {
    w->block->fenced = true;
}

/* An atomic access of a block: it releases, when a fence or its own semantics says so, and
 * acquires. */
static void synchronise(struct access *a) {
    struct block *b = a->w->block;
    struct race_clock *clock = b->launch->clock;
    if (!clock || !clock->released) return;
    bool releases = (a->kind & ACCESS_WRITE) && (b->fenced || a->o->semantics >= SEM_RELEASE);
    if (releases) {
        uint32_t now = __atomic_add_fetch(&clock->now, 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&clock->released[b->linear], now, __ATOMIC_SEQ_CST);
    }
    /* The access itself is still to come: what it sees counts from the next access on. */
    b->acquires = true;
}

/* Whether what block `other` did at `time` was released before this block last acquired. */
static bool ordered_blocks(const struct block *b, uint32_t other, uint32_t time) {
    const struct race_clock *clock = b->launch->clock;
    if (!clock || !clock->released || other >= clock->blocks) return false;
    uint32_t released = __atomic_load_n(&clock->released[other], __ATOMIC_SEQ_CST);
    return released > time && b->acquired > time;
}

/* ---- global memory ---- */

void race_forget(struct region *region) {
    if (!region->races) return;
    uint64_t n = region->bytes / RACE_PAGE_BYTES + 1;
    for (uint64_t i = 0; i < n; i++) {
        struct race_page *page = atomic_load(&region->races[i]);
        for (int k = 0; page && k < RACE_SEGMENTS; k++) free(page->segments[k].narrow);
        free(page);
    }
    free(region->races);
    region->races = NULL;
}

static bool make_table(struct region *r) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&making);
    if (!r->races) {
        void *table = calloc(r->bytes / RACE_PAGE_BYTES + 1, sizeof(void *));
        __atomic_store_n(&r->races, (_Atomic(struct race_page *) *)table, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&making);
    return r->races != NULL;
}

/* The segment that holds a cell; null without memory for it. */
static struct race_segment *segment_of(struct region *r, uint64_t cell) {
    if (!__atomic_load_n(&r->races, __ATOMIC_ACQUIRE) && !make_table(r)) return NULL;
    uint64_t segment = cell / RACE_CELLS;
    _Atomic(struct race_page *) *at = &r->races[segment / RACE_SEGMENTS];
    struct race_page *page = atomic_load_explicit(at, memory_order_acquire);
    if (!page) {
        struct race_page *fresh = aligned_alloc(_Alignof(struct race_page), sizeof *fresh);
        if (!fresh) return NULL;
        memset(fresh, 0, sizeof *fresh);
        if (atomic_compare_exchange_strong(at, &page, fresh))
            page = fresh;
        else
            free(fresh);
    }
    return &page->segments[segment % RACE_SEGMENTS];
}

static void segment_lock(struct race_segment *s, uint64_t launch) {
    for (unsigned tries = 1; __atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE); tries++)
        if (tries % 64 == 0) sched_yield(); /* who holds it may not be running */
    if (s->launch == launch) return;
    memset(s->writer, 0, sizeof s->writer);
    memset(s->reader, 0, sizeof s->reader);
    __atomic_store_n(&s->settled, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&s->launch, launch, __ATOMIC_RELEASE);
}

static void segment_unlock(struct race_segment *s) {
    __atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE);
}

/* Bits of the cells k..k+n-1. */
static uint64_t cell_bits(uint32_t k, uint32_t n) {
    return (n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << k;
}

/* Once blocks synchronise, who read when has to be known. */
static bool is_settled(const struct race_segment *s, uint64_t launch, uint32_t now, uint64_t bits) {
    return now == CLOCK_START && __atomic_load_n(&s->launch, __ATOMIC_ACQUIRE) == launch &&
           (__atomic_load_n(&s->settled, __ATOMIC_RELAXED) & bits) == bits;
}

static void settle(struct race_segment *s, uint64_t bits, bool settled) {
    uint64_t all = s->settled;
    uint64_t fresh = settled ? all | bits : all & ~bits;
    if (fresh != all) __atomic_store_n(&s->settled, fresh, __ATOMIC_RELAXED);
}

static uint32_t clock_of(const struct block *b) {
    const struct race_clock *clock = b->launch->clock;
    return clock ? __atomic_load_n(&clock->now, __ATOMIC_RELAXED) : 0;
}

static void report_global(struct access *a, uint32_t lane, uint64_t cell, uint32_t other,
                          uint32_t other_op, bool with_write) {
    char who[60], details[260];
    if (other & RACE_SEVERAL)
        snprintf(who, sizeof who, "other blocks read it");
    else
        snprintf(who, sizeof who, "block number %u %s it", other - 1,
                 with_write ? "wrote" : "read");
    race_describe_other(a->w, other_op, who, details, sizeof details);
    report_lane(a->w, a->o, lane, FINDING_RACE_GLOBAL, other_op + 1, details,
                "%s by different blocks of one launch, at global address 0x%llx",
                race_conflict_name(a->kind & ACCESS_WRITE, with_write),
                (unsigned long long)(a->region->base + cell * 4));
}

/* A block's access to one cell. */
struct touch {
    struct access *a;
    const struct block *block;
    uint32_t lane, me, op, now;
    uint64_t cell;
    uint8_t bytes;
    bool is_strong;
};

static void check_global_writer(const struct touch *t, uint32_t writer, uint32_t op, uint32_t time,
                                uint8_t bytes) {
    if (!writer || writer == t->me || !(bytes & t->bytes) ||
        (t->is_strong && (bytes & RACE_ATOMIC)) || ordered_blocks(t->block, writer - 1, time))
        return;
    if ((t->a->kind & ACCESS_WRITE) && race_stores_what_is_there(t->a, t->lane, t->cell))
        report_note(t->a->w, t->a->o, t->lane, FINDING_RACE_GLOBAL, op + 1,
                    "blocks write the same value to global address 0x%llx",
                    (unsigned long long)(t->a->region->base + t->cell * 4));
    else
        report_global(t->a, t->lane, t->cell, writer, op, true);
}

/* A write after reads. When several blocks read, the last of them stands for all. */
static bool check_global_reader(const struct touch *t, uint32_t reader, uint32_t op,
                                uint32_t time) {
    if (!reader || reader == t->me) return false;
    uint32_t last = reader & ~RACE_SEVERAL;
    /* It was this block: the others are ordered if it has acquired since. */
    if (last == t->me ? t->block->acquired > time : ordered_blocks(t->block, last - 1, time))
        return false;
    report_global(t->a, t->lane, t->cell, reader, op, false);
    return true;
}

static uint32_t next_reader(const struct block *b, uint32_t old, uint32_t time, uint32_t me) {
    if (!old || old == me) return me;
    if (old == (me | RACE_SEVERAL)) return old;
    return ordered_blocks(b, (old & ~RACE_SEVERAL) - 1, time) ? me : me | RACE_SEVERAL;
}

/* What is remembered of accesses to less than a cell; null without memory. */
static struct race_narrow *narrow_of(struct race_segment *s) {
    if (!s->narrow) {
        s->narrow = calloc(1, sizeof *s->narrow);
    } else if (s->narrow->launch != s->launch) {
        memset(s->narrow->writer, 0, sizeof s->narrow->writer);
        memset(s->narrow->reader, 0, sizeof s->narrow->reader);
    }
    if (s->narrow) s->narrow->launch = s->launch;
    return s->narrow;
}

/* The same, when there has been one in this launch. */
static struct race_narrow *narrow_used(const struct race_segment *s) {
    return s->narrow && s->narrow->launch == s->launch ? s->narrow : NULL;
}

static void global_write(const struct touch *t, struct race_segment *s, uint32_t k) {
    struct race_narrow *n = narrow_used(s);
    bool found = check_global_reader(t, s->reader[k], s->read_op[k], s->read_time[k]);
    for (uint32_t h = 0; n && h < 2 && !found; h++)
        if ((t->bytes >> (2 * h) & 3) == 3)
            found = check_global_reader(t, n->reader[2 * k + h], n->read_op[2 * k + h],
                                        n->read_time[2 * k + h]);
    uint8_t left = (uint8_t)(s->write_bytes[k] & ~t->bytes);
    bool joins = s->writer[k] == t->me;
    if (n) n->write_bytes[k] &= (uint8_t)~t->bytes;
    if (s->writer[k] && !joins && (left & 15) && (n = narrow_of(s))) {
        n->writer[k] = s->writer[k];
        n->write_op[k] = s->write_op[k];
        n->write_time[k] = s->write_time[k];
        n->write_bytes[k] = left;
    }
    s->write_bytes[k] = (uint8_t)((joins ? s->write_bytes[k] & 15 : 0) | t->bytes |
                                  (t->is_strong ? RACE_ATOMIC : 0));
    s->writer[k] = t->me;
    s->write_op[k] = t->op;
    s->write_time[k] = t->now;
    settle(s, cell_bits(k, 1), false);
}

static void global_read(const struct touch *t, struct race_segment *s, uint32_t k) {
    if (t->bytes == 15) {
        s->reader[k] = next_reader(t->block, s->reader[k], s->read_time[k], t->me);
        s->read_op[k] = t->op;
        s->read_time[k] = t->now;
        return;
    }
    struct race_narrow *n = narrow_of(s);
    for (uint32_t h = 0; n && h < 2; h++) {
        uint32_t at = 2 * k + h;
        if (!(t->bytes >> (2 * h) & 3)) continue;
        n->reader[at] = next_reader(t->block, n->reader[at], n->read_time[at], t->me);
        n->read_op[at] = t->op;
        n->read_time[at] = t->now;
    }
}

static void global_cell(struct access *a, struct race_segment *s, uint32_t lane, uint64_t cell,
                        uint32_t op, bool is_strong) {
    const struct block *b = a->w->block;
    uint32_t k = (uint32_t)(cell % RACE_CELLS);
    const struct touch t = {a,        b,           lane, (uint32_t)b->linear + 1,
                            op,       clock_of(b), cell, race_bytes_in_cell(a, lane, cell),
                            is_strong};
    check_global_writer(&t, s->writer[k], s->write_op[k], s->write_time[k], s->write_bytes[k]);
    const struct race_narrow *n = narrow_used(s);
    if (n)
        check_global_writer(&t, n->writer[k], n->write_op[k], n->write_time[k], n->write_bytes[k]);
    if (a->kind & ACCESS_WRITE)
        global_write(&t, s, k);
    else if (!is_strong)
        global_read(&t, s, k);
}

/* n cells from k of one segment, written or read by block `me` alone, or read by all. */
static bool quick_write(struct race_segment *s, uint32_t k, uint32_t n, uint32_t me, uint32_t op,
                        uint32_t now) {
    const uint32_t *wr = s->writer + k, *rd = s->reader + k;
    uint32_t busy = 0;
    for (uint32_t i = 0; i < n; i++)
        busy |= ((wr[i] != 0) & (wr[i] != me)) | ((rd[i] != 0) & (rd[i] != me));
    if (busy) return false;
    memset(s->write_bytes + k, 15, n);
    for (uint32_t i = 0; i < n; i++) {
        s->writer[k + i] = me;
        s->write_op[k + i] = op;
        s->write_time[k + i] = now;
    }
    settle(s, cell_bits(k, n), false);
    return true;
}

static bool quick_read(struct race_segment *s, const struct block *b, uint32_t k, uint32_t n,
                       uint32_t me, uint32_t op, uint32_t now) {
    const uint32_t *wr = s->writer + k;
    uint32_t *rd = s->reader + k;
    uint32_t busy = 0, written = 0, few = 0, others = 0;
    for (uint32_t i = 0; i < n; i++) {
        written |= wr[i];
        busy |= (wr[i] != 0) & (wr[i] != me);
        others |= (rd[i] != 0) & (rd[i] != me);
    }
    if (busy) return false;
    if (others) {
        for (uint32_t i = 0; i < n; i++) {
            rd[i] = next_reader(b, rd[i], s->read_time[k + i], me);
            few |= ~rd[i] & RACE_SEVERAL;
        }
    } else {
        for (uint32_t i = 0; i < n; i++) rd[i] = me;
        few = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        s->read_op[k + i] = op;
        s->read_time[k + i] = now;
    }
    if (!few && !written && now == CLOCK_START) settle(s, cell_bits(k, n), true);
    return true;
}

/* All lanes side by side, where no other block has been that matters. */
static bool global_quick(struct access *a, uint32_t op) {
    if (a->lanes != ALL_LANES || (a->bytes & 3)) return false;
    uint64_t first = a->at[0], bad = 0;
    EACH_LANE bad |= a->at[i] ^ (first + (uint64_t)i * a->bytes);
    if (bad) return false;
    struct block *b = a->w->block;
    uint64_t cell = first / 4, end = cell + (uint64_t)a->bytes / 4 * LANES;
    uint64_t launch = b->launch->number;
    uint32_t me = (uint32_t)b->linear + 1, now = clock_of(b);
    bool write = a->kind & ACCESS_WRITE, good = true;
    while (cell < end && good) {
        uint32_t k = (uint32_t)(cell % RACE_CELLS);
        uint32_t n = end - cell < RACE_CELLS - k ? (uint32_t)(end - cell) : RACE_CELLS - k;
        struct race_segment *s = segment_of(a->region, cell);
        if (!s) return true;
        cell += n;
        if (!write && is_settled(s, launch, now, cell_bits(k, n))) continue;
        segment_lock(s, launch);
        good = !narrow_used(s) &&
               (write ? quick_write(s, k, n, me, op, now) : quick_read(s, b, k, n, me, op, now));
        segment_unlock(s);
    }
    return good;
}

void race_global_access(struct access *a) {
    struct block *b = a->w->block;
    struct launch *l = b->launch;
    if (l->blocks < 2 || a->region->read_only) return;
    if (b->acquires && l->clock) {
        b->acquired = __atomic_load_n(&l->clock->now, __ATOMIC_SEQ_CST);
        b->acquires = false;
    }
    uint32_t op = race_op_index(a->w, a->o);
    bool is_strong = race_strong(a);
    if (is_strong)
        synchronise(a);
    else if (global_quick(a, op))
        return;
    EACH_SET_LANE(i, a->lanes) {
        for (uint64_t cell = a->at[i] / 4; cell <= (a->at[i] + a->bytes - 1) / 4; cell++) {
            struct race_segment *s = segment_of(a->region, cell);
            if (!s) return;
            if (a->kind == ACCESS_READ &&
                is_settled(s, l->number, clock_of(b), cell_bits((uint32_t)(cell % RACE_CELLS), 1)))
                continue;
            segment_lock(s, l->number);
            global_cell(a, s, i, cell, op, is_strong);
            segment_unlock(s);
        }
    }
}
