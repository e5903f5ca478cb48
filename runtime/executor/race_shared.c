/* Races in shared memory: between threads of a block. */
#include "race_cells.h"

#include <stdlib.h>

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
    return ((w->index * LANES + lane) | w->epoch << 10) & ~RACE_SEVERAL;
}

static uint32_t thread_of(uint32_t key) {
    return key & 1023;
}

static bool same_warp(uint32_t key, uint32_t other) {
    return other != RACE_MANY && thread_of(key) / LANES == thread_of(other) / LANES;
}

static bool unordered(uint32_t key, uint32_t other) {
    if (!same_warp(key, other)) return true;
    if ((key ^ other) << 1 >> 11) return false; /* a synchronisation of the warp lies between */
    return (other & RACE_SEVERAL) || thread_of(key) != thread_of(other);
}

static void report_shared(struct access *a, uint32_t lane, uint64_t cell, uint32_t other_key,
                          uint32_t other_op, bool with_write) {
    char who[60], details[260];
    bool write = a->kind & ACCESS_WRITE;
    bool lanes = same_warp(key_of(a->w, lane), other_key);
    if (other_key & RACE_SEVERAL)
        snprintf(who, sizeof who, "other %s read it", lanes ? "lanes" : "threads");
    else
        snprintf(who, sizeof who, "thread %u %s it", thread_of(other_key),
                 with_write ? "wrote" : "read");
    race_describe_other(a->w, other_op, who, details, sizeof details);
    report_lane(a->w, a->o, lane, FINDING_RACE_SHARED, other_op + 1, details,
                "%s without %s between them, at shared address 0x%llx",
                race_conflict_name(write, with_write),
                lanes ? "a synchronisation of the warp" : "a barrier",
                (unsigned long long)(a->region->base + cell * 4));
}

static bool same_write(const struct access *a, uint32_t lane, uint64_t cell, uint32_t other_key,
                       uint32_t other_op) {
    /* Lanes of this very operation have not stored yet: compare their registers. */
    if (other_op == race_op_index(a->w, a->o) && thread_of(other_key) / LANES == a->w->index &&
        (a->lanes >> (thread_of(other_key) % LANES) & 1))
        return race_stores_the_same(a, lane, thread_of(other_key) % LANES, cell);
    return race_stores_what_is_there(a, lane, cell);
}

static void add_reader(struct race_readers *r, uint64_t at, uint32_t epoch, uint32_t key,
                       uint32_t op) {
    uint32_t old = r->key[at];
    if (r->epoch[at] != epoch || !unordered(key, old))
        r->key[at] = key; /* what is ordered before this read matters no more */
    else
        r->key[at] = same_warp(key, old) ? key | RACE_SEVERAL : RACE_MANY;
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
    return r->epoch[at] == epoch && unordered(key, r->key[at]);
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

/* Whether a write that is remembered races with an access of these bytes. */
static bool conflicts(const struct race_write *w, uint32_t epoch, uint32_t key, uint8_t bytes,
                      bool is_strong) {
    return w->epoch == epoch && (w->bytes & bytes) && unordered(key, w->key) &&
           !(is_strong && (w->bytes & RACE_ATOMIC));
}

static void check_writer(struct access *a, const struct race_write *last, uint32_t lane,
                         uint64_t cell, uint32_t key, uint8_t bytes, bool is_strong) {
    if (!conflicts(last, a->w->block->epoch, key, bytes, is_strong)) return;
    if (!(a->kind & ACCESS_ASYNC) && (a->kind & ACCESS_WRITE) &&
        same_write(a, lane, cell, last->key, last->op))
        report_note(a->w, a->o, lane, FINDING_RACE_SHARED, last->op + 1,
                    "threads write the same value to shared address 0x%llx without a barrier",
                    (unsigned long long)(a->region->base + cell * 4));
    else
        report_shared(a, lane, cell, last->key, last->op, true);
}

/*
 * Another thread wrote some of the cell: what it wrote beside these bytes is kept. Of 16-bit values
 * nothing is forgotten so; of single bytes, what two others wrote.
 */
static void displace(struct block *b, struct race_shared *r, uint64_t cell,
                     const struct race_write *last, uint8_t bytes) {
    uint8_t left = (uint8_t)(last->bytes & ~bytes);
    if (!(left & 15)) return;
    if (!r->displaced)
        r->displaced = arena_alloc(&b->worker->arena, (r->cells + 16) * sizeof *r->displaced);
    if (!r->displaced) return;
    r->displaced[cell] = *last;
    r->displaced[cell].bytes = left;
    r->displaced_used = b->epoch;
}

static void remember_write(struct block *b, struct race_shared *r, uint64_t cell,
                           const struct race_write *last, const struct race_write *now) {
    uint8_t joined = 0;
    if (r->displaced && r->displaced_used == now->epoch)
        r->displaced[cell].bytes &= (uint8_t) ~(now->bytes & 15);
    if (last->epoch == now->epoch) {
        if (last->key == now->key)
            joined = last->bytes & 15;
        else
            displace(b, r, cell, last, now->bytes & 15);
    }
    r->write_bytes[cell] = now->bytes | joined;
    r->write_epoch[cell] = now->epoch;
    r->write_key[cell] = now->key;
    r->write_op[cell] = now->op;
}

static void shared_cell(struct access *a, struct race_shared *r, uint32_t lane, uint64_t cell,
                        uint32_t key, uint32_t op, bool is_strong) {
    struct block *b = a->w->block;
    uint8_t bytes = race_bytes_in_cell(a, lane, cell);
    struct race_write last = {r->write_epoch[cell], r->write_key[cell], r->write_op[cell],
                              r->write_bytes[cell]};
    check_writer(a, &last, lane, cell, key, bytes, is_strong);
    if (r->displaced && r->displaced_used == b->epoch)
        check_writer(a, &r->displaced[cell], lane, cell, key, bytes, is_strong);
    if (a->kind & ACCESS_WRITE) {
        check_readers(a, r, lane, cell, key, bytes);
        if (a->kind & ACCESS_ASYNC) return; /* written when it completes */
        struct race_write now = {b->epoch, key, op,
                                 (uint8_t)(bytes | (is_strong ? RACE_ATOMIC : 0))};
        remember_write(b, r, cell, &last, &now);
    }
    if ((a->kind & ACCESS_READ) && !is_strong) {
        if (bytes == 15)
            add_reader(&r->read, cell, b->epoch, key, op);
        else if (halves_ready(b, r))
            for (unsigned h = 0; h < 2; h++)
                if (bytes >> (2 * h) & 3) add_reader(&r->half, 2 * cell + h, b->epoch, key, op);
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

void race_shared_access(struct access *a) {
    struct race_shared *r = a->w->block->races;
    if (!r) return;
    uint32_t op = race_op_index(a->w, a->o);
    bool is_strong = race_strong(a);
    if (!is_strong && !(a->kind & ACCESS_ASYNC) && shared_quick(a, r, op)) return;
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
    race_shared_access(&a);
}
