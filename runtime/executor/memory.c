#include "memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "races.h"

enum { ALIGNMENT = 512, RED_ZONE = 4096, FREED_KEPT = 256 };

bool memory_start(struct memory *m, uint64_t total_bytes) {
    memset(m, 0, sizeof *m);
    if (pthread_rwlock_init(&m->lock, NULL)) return false;
    m->next = DEVICE_BASE;
    m->total_bytes = total_bytes;
    m->freed = calloc(FREED_KEPT, sizeof(struct region *));
    return m->freed != NULL;
}

/* Fresh zero pages, so that gigabytes cost nothing until touched. */
static void *map_pages(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t pages(uint64_t bytes) {
    return (bytes + 4095) & ~(uint64_t)4095;
}

static uint64_t defined_bytes(uint64_t bytes) {
    return pages((bytes + 7) / 8 + 8);
}

static void region_free(struct region *r) {
    if (!r) return;
    if (r->host && r->host_owned) munmap(r->host, pages(r->bytes));
    if (r->defined) munmap(r->defined, defined_bytes(r->bytes));
    race_forget(r);
    free(r);
}

void memory_stop(struct memory *m) {
    for (size_t i = 0; i < m->count; i++) region_free(m->live[i]);
    for (size_t i = 0; i < m->freed_count; i++) region_free(m->freed[i]);
    free(m->live);
    free(m->freed);
    pthread_rwlock_destroy(&m->lock);
    memset(m, 0, sizeof *m);
}

/* Index of the first region whose base is above the address. */
static size_t upper_bound(const struct memory *m, uint64_t address) {
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->live[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert_region(struct memory *m, struct region *r) {
    if (m->count == m->capacity) {
        size_t capacity = m->capacity ? m->capacity * 2 : 64;
        struct region **grown = realloc(m->live, capacity * sizeof(struct region *));
        if (!grown) return false;
        m->live = grown;
        m->capacity = capacity;
    }
    size_t at = upper_bound(m, r->base);
    memmove(m->live + at + 1, m->live + at, (m->count - at) * sizeof(struct region *));
    m->live[at] = r;
    m->count++;
    return true;
}

enum memory_result memory_allocate(struct memory *m, uint64_t bytes, struct region **out) {
    if (bytes > m->total_bytes) return MEMORY_DEVICE_FULL;
    struct region *r = calloc(1, sizeof *r);
    if (!r) return MEMORY_HOST_FULL;
    r->bytes = bytes;
    r->host_owned = true;
    r->space = SPACE_GLOBAL;
    r->host = map_pages(pages(bytes));
    r->defined = map_pages(defined_bytes(bytes));
    if (!r->host || !r->defined) {
        region_free(r);
        return MEMORY_HOST_FULL;
    }
    pthread_rwlock_wrlock(&m->lock);
    enum memory_result result = MEMORY_OK;
    if (m->used_bytes + bytes > m->total_bytes) {
        result = MEMORY_DEVICE_FULL;
    } else {
        r->base = m->next;
        r->id = ++m->next_id;
        if (!insert_region(m, r)) {
            result = MEMORY_HOST_FULL;
        } else {
            m->used_bytes += bytes;
            /* Addresses are never used again: what was freed can always be told from what lives. */
            m->next += (bytes + 2 * RED_ZONE + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
        }
    }
    pthread_rwlock_unlock(&m->lock);
    if (result != MEMORY_OK)
        region_free(r);
    else
        *out = r;
    return result;
}

enum memory_result memory_adopt(struct memory *m, void *host, uint64_t bytes, struct region **out) {
    struct region *r = calloc(1, sizeof *r);
    if (!r) return MEMORY_HOST_FULL;
    r->base = (uint64_t)(uintptr_t)host;
    r->bytes = bytes;
    r->host = host;
    r->all_defined = true;
    r->pinned_host = true;
    r->space = SPACE_GLOBAL;
    pthread_rwlock_wrlock(&m->lock);
    r->id = ++m->next_id;
    bool good = insert_region(m, r);
    pthread_rwlock_unlock(&m->lock);
    if (!good) {
        region_free(r);
        return MEMORY_HOST_FULL;
    }
    *out = r;
    return MEMORY_OK;
}

/* Keep the description of a freed region, without its memory, until the ring comes round. */
static void remember_freed(struct memory *m, struct region *r) {
    if (r->host && r->host_owned) munmap(r->host, pages(r->bytes));
    if (r->defined) munmap(r->defined, defined_bytes(r->bytes));
    race_forget(r);
    r->host = r->defined = NULL;
    r->freed = true;
    if (m->freed_count == FREED_KEPT)
        region_free(m->freed[m->freed_at]);
    else
        m->freed_count++;
    m->freed[m->freed_at] = r;
    m->freed_at = (m->freed_at + 1) % FREED_KEPT;
}

enum memory_result memory_release(struct memory *m, uint64_t base) {
    pthread_rwlock_wrlock(&m->lock);
    size_t at = upper_bound(m, base);
    enum memory_result result = MEMORY_UNKNOWN;
    if (at && m->live[at - 1]->base == base) {
        struct region *r = m->live[at - 1];
        memmove(m->live + at - 1, m->live + at, (m->count - at) * sizeof(struct region *));
        m->count--;
        if (!r->pinned_host) m->used_bytes -= r->bytes;
        remember_freed(m, r);
        result = MEMORY_OK;
    }
    pthread_rwlock_unlock(&m->lock);
    return result;
}

struct region *memory_find(struct memory *m, uint64_t address) {
    pthread_rwlock_rdlock(&m->lock);
    size_t at = upper_bound(m, address);
    struct region *r = at ? m->live[at - 1] : NULL;
    if (r && address - r->base >= r->bytes) r = NULL;
    pthread_rwlock_unlock(&m->lock);
    return r;
}

struct region *memory_find_freed(struct memory *m, uint64_t address) {
    pthread_rwlock_rdlock(&m->lock);
    struct region *found = NULL;
    for (size_t i = 0; i < m->freed_count && !found; i++)
        if (address - m->freed[i]->base < m->freed[i]->bytes) found = m->freed[i];
    pthread_rwlock_unlock(&m->lock);
    return found;
}

static uint64_t distance(const struct region *r, uint64_t address) {
    if (address < r->base) return r->base - address;
    return address - r->base < r->bytes ? 0 : address - r->base - r->bytes + 1;
}

struct region *memory_nearest(struct memory *m, uint64_t address) {
    pthread_rwlock_rdlock(&m->lock);
    size_t at = upper_bound(m, address);
    struct region *below = at ? m->live[at - 1] : NULL;
    struct region *above = at < m->count ? m->live[at] : NULL;
    struct region *best = below;
    if (!best || (above && distance(above, address) < distance(best, address))) best = above;
    if (best && distance(best, address) > (uint64_t)1 << 30) best = NULL;
    pthread_rwlock_unlock(&m->lock);
    return best;
}

/* ---- definedness ---- */

/* Other threads may set neighbouring bits of the same byte: change it atomically, if at all. */
static void change_bits(uint8_t *byte, uint8_t bits, bool set) {
    uint8_t old = __atomic_load_n(byte, __ATOMIC_RELAXED);
    if (set ? (old & bits) == bits : (old & bits) == 0) return;
    if (set)
        __atomic_fetch_or(byte, bits, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(byte, (uint8_t)~bits, __ATOMIC_RELAXED);
}

void region_forget_definedness(struct region *r) {
    if (r->defined) munmap(r->defined, defined_bytes(r->bytes));
    r->defined = NULL;
}

void region_define(struct region *r, uint64_t at, uint64_t bytes, bool defined) {
    if (!r->defined || !bytes || (defined && r->all_defined)) return;
    if (!defined) r->all_defined = false;
    uint64_t end = at + bytes;
    while (at < end && (at & 7)) {
        change_bits(&r->defined[at >> 3], (uint8_t)(1u << (at & 7)), defined);
        at++;
    }
    if (end - at >= 8) {
        memset(&r->defined[at >> 3], defined ? 0xff : 0, (end - at) >> 3);
        at += (end - at) & ~(uint64_t)7;
    }
    while (at < end) {
        change_bits(&r->defined[at >> 3], (uint8_t)(1u << (at & 7)), defined);
        at++;
    }
}

bool region_is_defined(const struct region *r, uint64_t at, uint64_t bytes) {
    if (!r->defined || r->all_defined) return true;
    for (uint64_t end = at + bytes; at < end;) {
        if ((at & 7) == 0 && end - at >= 8) {
            if (r->defined[at >> 3] != 0xff) return false;
            at += 8;
        } else {
            if (!(r->defined[at >> 3] >> (at & 7) & 1)) return false;
            at++;
        }
    }
    return true;
}

void region_refresh(struct region *r) {
    if (!r->fresh) return;
    r->fresh = false;
    if (!r->all_defined && region_is_defined(r, 0, r->bytes)) r->all_defined = true;
}
