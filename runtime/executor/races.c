#include "races.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MANY   UINT32_MAX
#define ATOMIC 0x80

static bool strong(const struct access *a) {
    return (a->kind & ACCESS_ATOMIC) || (a->o->flags & FLAG_VOLATILE) || a->o->semantics;
}

static uint32_t op_index(const struct warp *w, const struct op *o) {
    return (uint32_t)(o - w->code) | w->frame->function->index << 20;
}

/* The operation behind a number that op_index made. */
static const struct op *op_of(const struct warp *w, uint32_t index) {
    const struct module *m = w->block->launch->module;
    uint32_t function = index >> 20, at = index & 0xfffff;
    if (!function || function > m->function_count || at >= m->by_index[function]->op_count)
        return NULL;
    return &m->by_index[function]->ops[at];
}

static void describe_other(const struct warp *w, uint32_t index, const char *who, char *text,
                           size_t bytes) {
    const struct op *o = op_of(w, index);
    char line[120] = "";
    if (o) module_line(w->block->launch->module, o->line, line, sizeof line);
    snprintf(text, bytes, "%s at line %u: %s", who, o ? o->line : 0, line);
}

/* ---- values, to tell writes of the same from others ---- */

/* The 4 bytes that a store of this lane puts at `skip` from its address; false when not known. */
static bool stored_word(const struct access *a, uint32_t lane, uint32_t skip, uint32_t *value) {
    const struct op *o = a->o;
    if (form_table[o->form].class != CLASS_STORE) return false;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8, k = skip / bytes;
    if (k >= o->vector) return false;
    uint64_t x =
        o->wide == WIDE_64 ? source64(a->w, o->list[k])[lane] : source32(a->w, o->list[k])[lane];
    if (bytes < 4) x &= ((uint64_t)1 << (8 * bytes)) - 1;
    *value = (uint32_t)(x >> (8 * (skip % bytes)));
    return true;
}

/* Whether the bytes that are there are what this lane stores. */
static bool stores_what_is_there(const struct access *a, uint32_t lane, uint64_t cell) {
    uint64_t at = a->at[lane], start = cell * 4 > at ? cell * 4 : at;
    uint32_t value, bytes = a->bytes < 4 ? a->bytes : 4;
    if (!stored_word(a, lane, (uint32_t)(start - at), &value)) return false;
    return !memcmp(a->region->host + start, &value, bytes);
}

static bool stores_the_same(const struct access *a, uint32_t lane, uint32_t other, uint64_t cell) {
    uint64_t mine = cell * 4 > a->at[lane] ? cell * 4 - a->at[lane] : 0;
    uint64_t theirs = cell * 4 > a->at[other] ? cell * 4 - a->at[other] : 0;
    uint32_t x, y;
    return stored_word(a, lane, (uint32_t)mine, &x) &&
           stored_word(a, other, (uint32_t)theirs, &y) && x == y;
}

static const char *conflict_name(bool write, bool with_write) {
    return write ? with_write ? "write after write" : "write after read" : "read after write";
}

/* ---- shared memory ---- */

bool race_block_new(struct block *b) {
    struct race_shared *r = arena_alloc(&b->worker->arena, sizeof *r);
    if (!r) return false;
    r->cells = (b->shared.bytes + 3) / 4;
    size_t n = r->cells + 16;
    uint32_t *words = arena_alloc(&b->worker->arena, 6 * n * sizeof *words);
    r->write_bytes = arena_alloc(&b->worker->arena, n);
    if (!words || !r->write_bytes) return false;
    uint32_t **parts[6] = {&r->write_epoch, &r->write_key, &r->write_op,
                           &r->read.epoch,  &r->read.key,  &r->read.op};
    for (size_t i = 0; i < 6; i++) *parts[i] = words + i * n;
    b->races = r;
    return true;
}

/* A thread with its warp's epoch; ordered by the epochs within a warp. */
static uint32_t key_of(const struct warp *w, uint32_t lane) {
    return (w->index * LANES + lane) | w->epoch << 10;
}

static uint32_t thread_of(uint32_t key) {
    return key & 1023;
}

static bool unordered(uint32_t key, uint32_t other) {
    if (thread_of(key) == thread_of(other)) return false;
    if (thread_of(key) / LANES != thread_of(other) / LANES) return true;
    return key >> 10 == other >> 10;
}

static uint8_t bytes_in_cell(const struct access *a, uint32_t lane, uint64_t cell) {
    if (a->bytes >= 4) return 15;
    uint64_t first = a->at[lane] - cell * 4;
    return (uint8_t)(((1u << a->bytes) - 1) << first);
}

static void report_shared(struct access *a, uint32_t lane, uint64_t cell, uint32_t other_key,
                          uint32_t other_op, bool with_write) {
    char who[60], details[260];
    bool write = a->kind & ACCESS_WRITE;
    bool lanes = thread_of(other_key) / LANES == a->w->index;
    if (other_key == MANY)
        snprintf(who, sizeof who, "other threads read it");
    else
        snprintf(who, sizeof who, "thread %u %s it", thread_of(other_key),
                 with_write ? "wrote" : "read");
    describe_other(a->w, other_op, who, details, sizeof details);
    report_lane(a->w, a->o, lane, FINDING_RACE_SHARED, other_op + 1, details,
                "%s without %s between them, at shared address 0x%llx",
                conflict_name(write, with_write),
                lanes ? "a synchronisation of the warp" : "a barrier",
                (unsigned long long)(a->region->base + cell * 4));
}

static bool same_write(const struct access *a, uint32_t lane, uint64_t cell, uint32_t other_key,
                       uint32_t other_op) {
    /* Lanes of this very operation have not stored yet: compare their registers. */
    if (other_op == op_index(a->w, a->o) && thread_of(other_key) / LANES == a->w->index &&
        (a->lanes >> (thread_of(other_key) % LANES) & 1))
        return stores_the_same(a, lane, thread_of(other_key) % LANES, cell);
    return stores_what_is_there(a, lane, cell);
}

static void add_reader(struct race_readers *r, uint64_t at, uint32_t epoch, uint32_t key,
                       uint32_t op) {
    bool others = r->epoch[at] == epoch && r->key[at] != key;
    if (others && r->key[at] != MANY) {
        /* Two threads, or one thread at two epochs of its warp. */
        bool same = thread_of(r->key[at]) == thread_of(key);
        bool same_warp = thread_of(r->key[at]) / LANES == thread_of(key) / LANES &&
                         r->key[at] >> 10 != key >> 10;
        r->key[at] = same || same_warp ? key : MANY;
    } else if (!others) {
        r->key[at] = key;
    }
    r->epoch[at] = epoch;
    r->op[at] = op;
}

/* Room for the readers of halves; they have been used in this epoch. */
static bool halves_ready(struct block *b, struct race_shared *r) {
    r->halves_used = b->epoch;
    if (r->half.epoch) return true;
    size_t n = 2 * (r->cells + 16);
    uint32_t *words = arena_alloc(&b->worker->arena, 3 * n * sizeof *words);
    if (!words) return false;
    r->half = (struct race_readers){words, words + n, words + 2 * n};
    return true;
}

static bool read_by_others(const struct race_readers *r, uint64_t at, uint32_t epoch,
                           uint32_t key) {
    return r->epoch[at] == epoch && (r->key[at] == MANY || unordered(key, r->key[at]));
}

/* A write of these bytes after reads. Of single bytes it is not known who read which. */
static void check_readers(struct access *a, const struct race_shared *r, uint32_t lane,
                          uint64_t cell, uint32_t key, uint8_t bytes) {
    uint32_t epoch = a->w->block->epoch;
    if (read_by_others(&r->read, cell, epoch, key)) {
        report_shared(a, lane, cell, r->read.key[cell], r->read.op[cell], false);
        return;
    }
    if (r->halves_used != epoch || !r->half.epoch) return;
    for (unsigned h = 0; h < 2; h++) {
        uint64_t at = 2 * cell + h;
        if ((bytes >> (2 * h) & 3) != 3 || !read_by_others(&r->half, at, epoch, key)) continue;
        report_shared(a, lane, cell, r->half.key[at], r->half.op[at], false);
        return;
    }
}

static void shared_cell(struct access *a, struct race_shared *r, uint32_t lane, uint64_t cell,
                        uint32_t key, uint32_t op, bool is_strong) {
    uint32_t epoch = a->w->block->epoch;
    bool write = a->kind & ACCESS_WRITE;
    uint8_t bytes = bytes_in_cell(a, lane, cell);
    if (r->write_epoch[cell] == epoch && unordered(key, r->write_key[cell]) &&
        (r->write_bytes[cell] & bytes) && !(is_strong && (r->write_bytes[cell] & ATOMIC))) {
        if (write && same_write(a, lane, cell, r->write_key[cell], r->write_op[cell]))
            report_note(a->w, a->o, lane, FINDING_RACE_SHARED, r->write_op[cell] + 1,
                        "threads write the same value to shared address 0x%llx without a barrier",
                        (unsigned long long)(a->region->base + cell * 4));
        else
            report_shared(a, lane, cell, r->write_key[cell], r->write_op[cell], true);
    }
    if (write) {
        if (!is_strong) check_readers(a, r, lane, cell, key, bytes);
        bool joins = r->write_epoch[cell] == epoch && r->write_key[cell] == key;
        r->write_bytes[cell] =
            (uint8_t)((joins ? r->write_bytes[cell] & 15 : 0) | bytes | (is_strong ? ATOMIC : 0));
        r->write_epoch[cell] = epoch;
        r->write_key[cell] = key;
        r->write_op[cell] = op;
    }
    if ((a->kind & ACCESS_READ) && !is_strong) {
        if (bytes == 15)
            add_reader(&r->read, cell, epoch, key, op);
        else if (halves_ready(a->w->block, r))
            for (unsigned h = 0; h < 2; h++)
                if (bytes >> (2 * h) & 3) add_reader(&r->half, 2 * cell + h, epoch, key, op);
    }
}

/*
 * The usual access, all lanes side by side and nobody else near: the cells need no look one by one.
 * Returns false when any of them does.
 */
static bool shared_quick(struct access *a, struct race_shared *r, uint32_t op) {
    if (a->lanes != ALL_LANES || (a->bytes & 3)) return false;
    uint64_t first = a->at[0], bad = 0;
    EACH_LANE bad |= a->at[i] ^ (first + (uint64_t)i * a->bytes);
    if (bad || (first & 3)) return false;
    uint32_t per = a->bytes / 4, epoch = a->w->block->epoch, base = key_of(a->w, 0);
    uint64_t cell = first / 4, n = (uint64_t)per * LANES;
    uint32_t busy = 0;
    const uint32_t *we = r->write_epoch + cell, *re = r->read.epoch + cell;
    if (a->kind & ACCESS_WRITE) {
        for (uint64_t i = 0; i < n; i++) busy |= (we[i] == epoch) | (re[i] == epoch);
        if (busy || r->halves_used == epoch) return false;
        memset(r->write_bytes + cell, 15, n);
        for (uint64_t i = 0; i < n; i++) {
            r->write_epoch[cell + i] = epoch;
            r->write_key[cell + i] = base + (uint32_t)i / per;
            r->write_op[cell + i] = op;
        }
    } else {
        for (uint64_t i = 0; i < n; i++) busy |= (we[i] == epoch) | (re[i] == epoch);
        if (busy) return false;
        for (uint64_t i = 0; i < n; i++) {
            r->read.epoch[cell + i] = epoch;
            r->read.key[cell + i] = base + (uint32_t)i / per;
            r->read.op[cell + i] = op;
        }
    }
    return true;
}

static void race_in_shared(struct access *a) {
    struct race_shared *r = a->w->block->races;
    if (!r || (a->kind & ACCESS_ASYNC)) return; /* a copy counts when it completes */
    uint32_t op = op_index(a->w, a->o);
    bool is_strong = strong(a);
    if (!is_strong && shared_quick(a, r, op)) return;
    EACH_SET_LANE(i, a->lanes) {
        uint32_t key = key_of(a->w, i);
        for (uint64_t cell = a->at[i] / 4; cell <= (a->at[i] + a->bytes - 1) / 4; cell++)
            shared_cell(a, r, i, cell, key, op, is_strong);
    }
}

/* A completed asynchronous copy is a write by the thread that asked for it, when it waits. */
void race_async(struct warp *w, const struct op *o, uint32_t lane, uint64_t at, uint32_t bytes) {
    struct access a = {.w = w,
                       .o = o,
                       .lanes = 1u << lane,
                       .bytes = bytes,
                       .kind = ACCESS_WRITE,
                       .in = SPACE_SHARED,
                       .region = &w->block->shared};
    a.at[lane] = at;
    a.address[lane] = at;
    race_in_shared(&a);
}

/* ---- synchronisation between blocks ---- */

void race_launch_start(struct launch *l) {
    struct race_clock *clock = calloc(1, sizeof *clock);
    l->clock = clock;
    if (!clock) return;
    clock->now = 1;
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
    for (uint64_t i = 0; i < n; i++) free(atomic_load(&region->races[i]));
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

static bool is_settled(const struct race_segment *s, uint64_t launch, uint64_t bits) {
    return __atomic_load_n(&s->launch, __ATOMIC_ACQUIRE) == launch &&
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
    if (other == MANY)
        snprintf(who, sizeof who, "other blocks read it");
    else
        snprintf(who, sizeof who, "block number %u %s it", other - 1,
                 with_write ? "wrote" : "read");
    describe_other(a->w, other_op, who, details, sizeof details);
    report_lane(a->w, a->o, lane, FINDING_RACE_GLOBAL, other_op + 1, details,
                "%s by different blocks of one launch, at global address 0x%llx",
                conflict_name(a->kind & ACCESS_WRITE, with_write),
                (unsigned long long)(a->region->base + cell * 4));
}

static void global_cell(struct access *a, struct race_segment *p, uint32_t lane, uint64_t cell,
                        uint32_t op, bool is_strong) {
    struct block *b = a->w->block;
    uint32_t me = (uint32_t)b->linear + 1, k = (uint32_t)(cell % RACE_CELLS);
    uint8_t bytes = bytes_in_cell(a, lane, cell);
    bool write = a->kind & ACCESS_WRITE;
    uint32_t now = clock_of(b);
    if (p->writer[k] && p->writer[k] != me && (p->write_bytes[k] & bytes) &&
        !(is_strong && (p->write_bytes[k] & ATOMIC)) &&
        !ordered_blocks(b, p->writer[k] - 1, p->write_time[k])) {
        if (write && stores_what_is_there(a, lane, cell))
            report_note(a->w, a->o, lane, FINDING_RACE_GLOBAL, p->write_op[k] + 1,
                        "blocks write the same value to global address 0x%llx",
                        (unsigned long long)(a->region->base + cell * 4));
        else
            report_global(a, lane, cell, p->writer[k], p->write_op[k], true);
    }
    if (write) {
        if (!is_strong && bytes == 15 && p->reader[k] && p->reader[k] != me &&
            (p->reader[k] == MANY || !ordered_blocks(b, p->reader[k] - 1, 0)))
            report_global(a, lane, cell, p->reader[k], p->read_op[k], false);
        bool joins = p->writer[k] == me;
        p->write_bytes[k] =
            (uint8_t)((joins ? p->write_bytes[k] & 15 : 0) | bytes | (is_strong ? ATOMIC : 0));
        p->writer[k] = me;
        p->write_op[k] = op;
        p->write_time[k] = now;
        settle(p, cell_bits(k, 1), false);
    } else if (!is_strong) {
        p->reader[k] = p->reader[k] && p->reader[k] != me ? MANY : me;
        p->read_op[k] = op;
    }
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

static bool quick_read(struct race_segment *s, uint32_t k, uint32_t n, uint32_t me, uint32_t op) {
    const uint32_t *wr = s->writer + k;
    uint32_t busy = 0, written = 0, few = 0;
    for (uint32_t i = 0; i < n; i++) {
        written |= wr[i];
        busy |= (wr[i] != 0) & (wr[i] != me);
    }
    if (busy) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t old = s->reader[k + i];
        uint32_t fresh = ((old != 0) & (old != me)) ? MANY : me;
        few |= fresh ^ MANY;
        s->reader[k + i] = fresh;
        s->read_op[k + i] = op;
    }
    if (!few && !written) settle(s, cell_bits(k, n), true);
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
        if (!write && is_settled(s, launch, cell_bits(k, n))) continue;
        segment_lock(s, launch);
        good = write ? quick_write(s, k, n, me, op, now) : quick_read(s, k, n, me, op);
        segment_unlock(s);
    }
    return good;
}

static void race_in_global(struct access *a) {
    struct block *b = a->w->block;
    struct launch *l = b->launch;
    if (l->blocks < 2 || a->region->read_only) return;
    if (b->acquires && l->clock) {
        b->acquired = __atomic_load_n(&l->clock->now, __ATOMIC_SEQ_CST);
        b->acquires = false;
    }
    uint32_t op = op_index(a->w, a->o);
    bool is_strong = strong(a);
    if (is_strong)
        synchronise(a);
    else if (global_quick(a, op))
        return;
    EACH_SET_LANE(i, a->lanes) {
        for (uint64_t cell = a->at[i] / 4; cell <= (a->at[i] + a->bytes - 1) / 4; cell++) {
            struct race_segment *s = segment_of(a->region, cell);
            if (!s) return;
            if (a->kind == ACCESS_READ &&
                is_settled(s, l->number, cell_bits((uint32_t)(cell % RACE_CELLS), 1)))
                continue;
            segment_lock(s, l->number);
            global_cell(a, s, i, cell, op, is_strong);
            segment_unlock(s);
        }
    }
}

void race_access(struct access *a) {
    if (a->in == SPACE_SHARED)
        race_in_shared(a);
    else
        race_in_global(a);
}
