/* Slots of the policy `shared`; see type_slots.h. */
#include "type_slots.h"

#include <stdlib.h>

uint32_t slots_own(uint32_t blocks, uint32_t ratio) {
    return blocks / ratio + (blocks % ratio != 0);
}

/* ---- what is live ---- */

/* Add or take away what a window slot contributes to `idle` and to the types' capacities. */
static void contribute(struct slots *s, int32_t window, bool add) {
    struct slots_window *w = &s->window[window];
    uint64_t sign = add ? 1 : UINT64_MAX;
    if (w->held) return;
    if (!w->live_subs) {
        s->idle += sign;
        return;
    }
    for (uint32_t t = 0; t < s->types; t++)
        s->type[t].capacity += sign * (s->type[t].ratio - s->type[t].slots[window].live);
}

void slots_live(struct slots *s, uint32_t type, int32_t block, bool live) {
    struct slots_type *t = &s->type[type];
    int32_t slot = block / (int32_t)t->ratio;
    bool lent = (uint32_t)slot < s->windows;
    if (lent) contribute(s, slot, false);
    t->slots[slot].live = (uint16_t)(t->slots[slot].live + (live ? 1 : -1));
    if (lent) {
        s->window[slot].live_subs += live ? 1u : UINT32_MAX;
        contribute(s, slot, true);
    } else {
        t->capacity += live ? UINT64_MAX : 1;
    }
}

uint64_t slots_missing(const struct slots *s, uint64_t windows, uint64_t blocks) {
    uint64_t borrowed = 0;
    for (uint32_t t = 0; t < s->types; t++) {
        uint64_t rest = blocks > s->type[t].capacity ? blocks - s->type[t].capacity : 0;
        uint64_t slots = (rest + s->type[t].ratio - 1) / s->type[t].ratio;
        if (slots > borrowed) borrowed = slots;
    }
    return windows + borrowed > s->idle ? windows + borrowed - s->idle : 0;
}

/* ---- window slots ---- */

static void free_add(struct slots *s, int32_t window, bool cached) {
    struct slots_window *w = &s->window[window];
    w->free = true;
    w->cached = cached;
    w->lendable = true;
    pool_list_push_tail(&s->free, window);
    pool_list_push_tail(&s->lendable, window);
}

static void free_remove(struct slots *s, int32_t window) {
    struct slots_window *w = &s->window[window];
    pool_list_remove(&s->free, window);
    if (w->lendable) pool_list_remove(&s->lendable, window);
    w->free = w->lendable = false;
}

/* The content goes before the slot gets another owner. */
static void evict(struct slots *s, int32_t window) {
    if (s->window[window].cached && s->evicted) s->evicted(s->who, window);
    s->window[window].cached = false;
}

static void hold(struct slots *s, int32_t window) {
    free_remove(s, window);
    contribute(s, window, false);
    s->window[window].held = true;
    s->held++;
    s->window[window].cached = false;
}

int32_t slots_take_window(struct slots *s) {
    int32_t window = s->free.head;
    if (window < 0) return -1;
    evict(s, window);
    hold(s, window);
    return window;
}

bool slots_window_free(const struct slots *s, int32_t window) {
    return window >= 0 && (uint32_t)window < s->windows && s->window[window].free;
}

bool slots_claim_window(struct slots *s, int32_t window) {
    if (!slots_window_free(s, window)) return false;
    hold(s, window);
    return true;
}

bool slots_give_window(struct slots *s, int32_t window, bool cached) {
    if (window < 0 || (uint32_t)window >= s->windows || !s->window[window].held) return false;
    s->window[window].held = false;
    s->held--;
    contribute(s, window, true);
    free_add(s, window, cached);
    return true;
}

/* ---- compressed blocks ---- */

static bool is_own(const struct slots *s, int32_t slot) {
    return (uint32_t)slot >= s->windows;
}

static void open_add(struct slots *s, struct slots_type *t, int32_t slot) {
    uint32_t used = t->slots[slot].used;
    if (!used || used == t->ratio) return;
    bool own = is_own(s, slot);
    pool_list_push_tail(&(own ? t->own_open : t->lent_open)[used], slot);
    (own ? t->own_bits : t->lent_bits)[used / 64] |= UINT64_C(1) << (used % 64);
    t->open_free += t->ratio - used;
}

static void open_remove(struct slots *s, struct slots_type *t, int32_t slot) {
    uint32_t used = t->slots[slot].used;
    if (!used || used == t->ratio) return;
    bool own = is_own(s, slot);
    struct pool_list *list = &(own ? t->own_open : t->lent_open)[used];
    pool_list_remove(list, slot);
    if (!list->length)
        (own ? t->own_bits : t->lent_bits)[used / 64] &= ~(UINT64_C(1) << (used % 64));
    t->open_free -= t->ratio - used;
}

static int32_t fullest(const struct slots_type *t, const struct pool_list *lists,
                       const uint64_t *bits) {
    for (uint32_t word = t->ratio / 64 + 1; word-- > 0;)
        if (bits[word]) return lists[word * 64 + 63 - (uint32_t)__builtin_clzll(bits[word])].head;
    return -1;
}

/* The first block of a type in a window slot: the slot leaves the windows, if it had not before. */
static void borrow_slot(struct slots *s, uint32_t type, int32_t slot) {
    struct slots_window *w = &s->window[slot];
    if (w->borrowers++ == 0) {
        evict(s, slot);
        free_remove(s, slot);
        for (uint32_t u = 0; u < s->types; u++)
            if (u != type) pool_list_push_tail(&s->type[u].joint, slot);
    } else {
        pool_list_remove(&s->type[type].joint, slot);
    }
}

static void return_slot(struct slots *s, uint32_t type, int32_t slot) {
    struct slots_window *w = &s->window[slot];
    if (--w->borrowers) {
        pool_list_push_tail(&s->type[type].joint, slot);
        return;
    }
    for (uint32_t u = 0; u < s->types; u++)
        if (u != type) pool_list_remove(&s->type[u].joint, slot);
    free_add(s, slot, false);
}

/* Where the next block of a type goes; -1: nowhere. */
static int32_t choose(const struct slots *s, uint32_t type, bool borrow) {
    const struct slots_type *t = &s->type[type];
    int32_t slot = fullest(t, t->own_open, t->own_bits);
    if (slot >= 0) return slot;
    if (t->own_free.head >= 0) return t->own_free.head;
    slot = fullest(t, t->lent_open, t->lent_bits);
    if (slot >= 0 && (borrow || s->window[slot].live_subs)) return slot;
    slot = t->joint.head;
    if (slot >= 0 && (borrow || s->window[slot].live_subs)) return slot;
    if (!borrow) return -1;
    return s->lendable.head >= 0 ? s->lendable.head : s->free.head;
}

static uint32_t lowest_sub(struct slots_type *t, int32_t slot) {
    uint64_t *mask = t->masks + (size_t)slot * t->words;
    for (uint32_t word = 0;; word++) {
        if (mask[word] == UINT64_MAX) continue;
        uint32_t bit = (uint32_t)__builtin_ctzll(~mask[word]);
        mask[word] |= UINT64_C(1) << bit;
        return word * 64 + bit;
    }
}

int32_t slots_take(struct slots *s, uint32_t type, bool borrow) {
    struct slots_type *t = &s->type[type];
    int32_t slot = choose(s, type, borrow);
    if (slot < 0) return -1;
    if (t->slots[slot].used) {
        open_remove(s, t, slot);
    } else if (is_own(s, slot)) {
        pool_list_remove(&t->own_free, slot);
    } else {
        borrow_slot(s, type, slot);
    }
    int32_t block = slot * (int32_t)t->ratio + (int32_t)lowest_sub(t, slot);
    t->slots[slot].used++;
    open_add(s, t, slot);
    slots_live(s, type, block, true);
    return block;
}

bool slots_give(struct slots *s, uint32_t type, int32_t block) {
    struct slots_type *t = &s->type[type];
    if (block < 0 || (uint64_t)block >= (uint64_t)t->count * t->ratio) return false;
    int32_t slot = block / (int32_t)t->ratio;
    uint32_t sub = (uint32_t)block % t->ratio;
    uint64_t *word = t->masks + (size_t)slot * t->words + sub / 64;
    if (!(*word >> (sub % 64) & 1)) return false;
    *word &= ~(UINT64_C(1) << (sub % 64));
    open_remove(s, t, slot);
    t->slots[slot].used--;
    if (t->slots[slot].used)
        open_add(s, t, slot);
    else if (is_own(s, slot))
        pool_list_push_tail(&t->own_free, slot);
    else
        return_slot(s, type, slot);
    return true;
}

uint64_t slots_free(const struct slots *s, uint32_t type) {
    const struct slots_type *t = &s->type[type];
    uint64_t whole = (uint64_t)t->own_free.length + t->joint.length + s->lendable.length;
    return t->open_free + whole * t->ratio;
}

/* ---- opening ---- */

static bool make(void *where, size_t count, size_t size) {
    void **at = where;
    return (*at = calloc(count ? count : 1, size)) != NULL;
}

static bool open_type(struct slots *s, struct slots_type *t, uint32_t ratio, uint32_t own) {
    uint32_t lists = ratio + 1, words = ratio / 64 + 1;
    *t = (struct slots_type){
        .ratio = ratio, .own = own, .count = s->windows + own, .words = (ratio + 63) / 64};
    bool made = make(&t->slots, t->count, sizeof t->slots[0]);
    made = make(&t->masks, (size_t)t->count * t->words, sizeof t->masks[0]) && made;
    made = make(&t->own_open, lists, sizeof t->own_open[0]) && made;
    made = make(&t->lent_open, lists, sizeof t->lent_open[0]) && made;
    made = make(&t->own_bits, words, sizeof t->own_bits[0]) && made;
    made = make(&t->lent_bits, words, sizeof t->lent_bits[0]) && made;
    if (!made) return false;
    pool_list_open(&t->own_free, &t->slots[0].link, sizeof t->slots[0]);
    pool_list_open(&t->joint, &t->slots[0].link, sizeof t->slots[0]);
    for (uint32_t i = 0; i < lists; i++) {
        pool_list_open(&t->own_open[i], &t->slots[0].link, sizeof t->slots[0]);
        pool_list_open(&t->lent_open[i], &t->slots[0].link, sizeof t->slots[0]);
    }
    for (uint32_t i = 0; i < t->count; i++) {
        if (i >= s->windows) pool_list_push_tail(&t->own_free, (int32_t)i);
        if (ratio % 64) t->masks[(size_t)(i + 1) * t->words - 1] = UINT64_MAX << (ratio % 64);
    }
    t->capacity = (uint64_t)own * ratio;
    return true;
}

bool slots_open(struct slots *s, uint32_t windows, const uint32_t *ratios, const uint32_t *own,
                uint32_t types, bool all_lendable) {
    *s = (struct slots){.windows = windows, .types = types, .idle = windows};
    bool made = make(&s->window, windows, sizeof s->window[0]);
    for (uint32_t t = 0; t < types; t++)
        made = open_type(s, &s->type[t], ratios[t], own[t]) && made;
    if (!made) {
        slots_close(s);
        return false;
    }
    pool_list_open(&s->free, &s->window[0].link, sizeof s->window[0]);
    pool_list_open(&s->lendable, &s->window[0].lend, sizeof s->window[0]);
    for (uint32_t i = 0; i < windows; i++) {
        s->window[i].free = true;
        pool_list_push_tail(&s->free, (int32_t)i);
        s->window[i].lendable = all_lendable;
        if (all_lendable) pool_list_push_tail(&s->lendable, (int32_t)i);
    }
    return true;
}

void slots_close(struct slots *s) {
    free(s->window);
    for (uint32_t t = 0; t < s->types; t++) {
        free(s->type[t].slots);
        free(s->type[t].masks);
        free(s->type[t].own_open);
        free(s->type[t].lent_open);
        free(s->type[t].own_bits);
        free(s->type[t].lent_bits);
    }
    *s = (struct slots){0};
}

/* ---- checking ---- */

static const char *check_type(const struct slots *s, uint32_t type) {
    const struct slots_type *t = &s->type[type];
    uint64_t open = 0, capacity = 0, own_free = 0, joint = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t used = 0;
        for (uint32_t sub = 0; sub < t->ratio; sub++)
            used += (uint32_t)(t->masks[(size_t)i * t->words + sub / 64] >> (sub % 64) & 1);
        if (used != t->slots[i].used) return "a slot's count differs from its mask";
        if (t->slots[i].live > used) return "a slot has more live blocks than bound ones";
        if (used && used < t->ratio) open += t->ratio - used;
        bool own = i >= s->windows;
        if (own) {
            own_free += !used;
            capacity += t->ratio - t->slots[i].live;
        } else {
            const struct slots_window *w = &s->window[i];
            if (used && (w->held || w->free)) return "a slot has two owners";
            joint += !used && w->borrowers;
            if (!w->held && w->live_subs) capacity += t->ratio - t->slots[i].live;
        }
    }
    if (open != t->open_free) return "free blocks in open slots are miscounted";
    if (own_free != t->own_free.length) return "own free slots are miscounted";
    if (joint != t->joint.length) return "jointly borrowed slots are miscounted";
    if (capacity != t->capacity) return "a type's capacity is miscounted";
    return NULL;
}

const char *slots_check(const struct slots *s) {
    uint64_t free_count = 0, idle = 0, held = 0;
    for (uint32_t i = 0; i < s->windows; i++) {
        const struct slots_window *w = &s->window[i];
        uint32_t borrowers = 0, live = 0;
        for (uint32_t t = 0; t < s->types; t++) {
            borrowers += s->type[t].slots[i].used > 0;
            live += s->type[t].slots[i].live;
        }
        if (borrowers != w->borrowers || live != w->live_subs) return "a lent slot is miscounted";
        if (w->free + w->held + (borrowers > 0) != 1) return "a window slot has no owner, or two";
        if (w->cached && !w->free) return "cached content in a slot that has an owner";
        free_count += w->free;
        held += w->held;
        idle += !w->held && !live;
    }
    if (free_count != s->free.length) return "free window slots are miscounted";
    if (held != s->held) return "held window slots are miscounted";
    if (idle != s->idle) return "idle window slots are miscounted";
    for (uint32_t t = 0; t < s->types; t++) {
        const char *broken = check_type(s, t);
        if (broken) return broken;
    }
    return NULL;
}
