#include "async.h"

#include <stdlib.h>

/* One byte of the block for 4 bytes of its shared memory: how many pending copies write there. */
static bool mark(struct block *b, uint64_t at, uint64_t bytes, int step) {
    for (uint64_t i = at / 4; i < (at + bytes + 3) / 4; i++)
        b->pending[i] = (uint8_t)(b->pending[i] + step);
    return true;
}

bool async_add(struct warp *w, const struct async_copy *copy) {
    struct block *b = w->block;
    struct async_state *s = w->async;
    if (!s) {
        s = arena_alloc(&w->worker->arena, sizeof *s);
        if (!s) return false;
        w->async = s;
    }
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity ? s->capacity * 2 : 256;
        struct async_copy *grown = arena_alloc(&w->worker->arena, capacity * sizeof *grown);
        if (!grown) return false;
        if (s->count) memcpy(grown, s->copies, s->count * sizeof *grown);
        s->copies = grown;
        s->capacity = capacity;
    }
    if (!b->pending) {
        b->pending = arena_alloc(&w->worker->arena, b->shared.bytes / 4 + 16);
        if (!b->pending) return false;
    }
    struct async_copy *c = &s->copies[s->count++];
    *c = *copy;
    c->group = s->committed[copy->lane];
    region_define(&b->shared, c->at, c->bytes, false);
    mark(b, c->at, c->bytes, 1);
    b->pending_count++;
    return true;
}

void async_commit(struct warp *w, uint32_t lanes) {
    if (!w->async) return;
    EACH_SET_LANE(i, lanes) w->async->committed[i]++;
}

static void complete(struct warp *w, const struct op *wait, const struct async_copy *c) {
    struct block *b = w->block;
    memcpy(b->shared.host + c->at, c->data, c->bytes);
    for (uint32_t i = 0; i < c->bytes; i++)
        region_define(&b->shared, c->at + i, 1, c->known >> i & 1);
    mark(b, c->at, c->bytes, -1);
    b->pending_count--;
    (void)wait;
    if (b->launch->config->check_races) race_async(w, c->op, c->lane, c->at, c->bytes);
}

void async_wait(struct warp *w, const struct op *o, uint32_t lanes, uint32_t left, bool all) {
    struct async_state *s = w->async;
    if (!s) return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct async_copy *c = &s->copies[i];
        uint32_t done = s->committed[c->lane] > left ? s->committed[c->lane] - left : 0;
        if ((lanes >> c->lane & 1) && (all || c->group < done))
            complete(w, o, c);
        else
            s->copies[kept++] = *c;
    }
    s->count = kept;
}

uint32_t async_pending(const struct warp *w, uint32_t lane) {
    uint32_t n = 0;
    for (uint32_t i = 0; w->async && i < w->async->count; i++)
        n += w->async->copies[i].lane == lane;
    return n;
}

void async_reset(struct block *b) {
    if (b->pending && b->pending_count) memset(b->pending, 0, b->shared.bytes / 4 + 16);
    b->pending_count = 0;
    for (uint32_t i = 0; i < b->warp_count; i++) {
        struct async_state *s = b->warps[i].async;
        if (!s) continue;
        s->count = 0;
        memset(s->committed, 0, sizeof s->committed);
    }
}

/* Which copy writes to these bytes, and whose it is. */
static const struct async_copy *find_copy(const struct block *b, uint64_t at, uint64_t bytes,
                                          const struct warp **owner) {
    for (uint32_t i = 0; i < b->warp_count; i++) {
        const struct async_state *s = b->warps[i].async;
        for (uint32_t k = 0; s && k < s->count; k++) {
            const struct async_copy *c = &s->copies[k];
            if (c->at >= at + bytes || at >= c->at + c->bytes) continue;
            *owner = &b->warps[i];
            return c;
        }
    }
    return NULL;
}

static void report_pending(struct access *a, uint32_t lane) {
    const struct warp *owner;
    const struct async_copy *c = find_copy(a->w->block, a->at[lane], a->bytes, &owner);
    char details[200] = "", line[120];
    if (!c) return;
    module_line(a->w->block->launch->module, c->op->line, line, sizeof line);
    snprintf(details, sizeof details, "copied by thread %u at line %u: %s",
             owner->index * LANES + c->lane, c->op->line, line);
    report_lane(a->w, a->o, lane, FINDING_ASYNC, (uint32_t)c->op->line, details,
                "%s of shared memory while an asynchronous copy into it has not been waited for",
                a->kind & ACCESS_WRITE ? "write" : "read");
}

void async_access(struct access *a) {
    const struct block *b = a->w->block;
    if (a->in != SPACE_SHARED || !b->pending_count || (a->kind & ACCESS_ASYNC)) return;
    EACH_SET_LANE(i, a->lanes)
    for (uint64_t at = a->at[i] / 4; at < (a->at[i] + a->bytes + 3) / 4; at++)
        if (b->pending[at]) {
            report_pending(a, i);
            break;
        }
}
