#include "access.h"

struct region *access_find(struct access *a, uint64_t address) {
    struct worker *worker = a->w->worker;
    size_t slot = (size_t)(a->o - a->w->code) & 63;
    struct region *r = worker->cache[slot];
    if (r && address - r->base < r->bytes) return r;
    r = memory_find(worker->launch->memory, address);
    if (r) worker->cache[slot] = r;
    return r;
}

static const char *space_name(enum ptx_space space) {
    switch (space) {
    case SPACE_SHARED: return "shared";
    case SPACE_LOCAL: return "local";
    case SPACE_CONST: return "constant";
    case SPACE_PARAM: return "parameter";
    default: return "global";
    }
}

static const char *kind_name(const struct access *a) {
    if (a->kind & ACCESS_ATOMIC) return "atomic operation";
    return a->kind & ACCESS_WRITE ? "write" : "read";
}

static void describe_region(const struct region *r, uint64_t address, char *text, size_t bytes) {
    char what[120];
    if (r->name)
        snprintf(what, sizeof what, "variable %s", r->name);
    else
        snprintf(what, sizeof what, "allocation %u", r->id);
    unsigned long long size = (unsigned long long)r->bytes;
    if (address < r->base)
        snprintf(text, bytes, "%llu bytes before %s (0x%llx, %llu bytes)",
                 (unsigned long long)(r->base - address), what, (unsigned long long)r->base, size);
    else if (address - r->base >= r->bytes)
        snprintf(text, bytes, "%llu bytes after %s (0x%llx, %llu bytes)",
                 (unsigned long long)(address - r->base - r->bytes), what,
                 (unsigned long long)r->base, size);
    else
        snprintf(text, bytes, "at byte %llu of %s (0x%llx, %llu bytes)",
                 (unsigned long long)(address - r->base), what, (unsigned long long)r->base, size);
}

static void describe_place(const struct access *a, uint64_t address, char *text, size_t bytes) {
    const struct warp *w = a->w;
    struct memory *memory = w->block->launch->memory;
    if (a->in == SPACE_SHARED) {
        snprintf(text, bytes, "the block has shared memory from %d to %llu", SHARED_START,
                 (unsigned long long)(SHARED_START + w->block->shared.bytes));
    } else if (a->in == SPACE_LOCAL) {
        snprintf(text, bytes, "the thread has local memory from %d to %llu", LOCAL_START,
                 (unsigned long long)(LOCAL_START + w->local_stride));
    } else {
        struct region *r = memory_find(memory, address);
        if (!r) r = memory_nearest(memory, address);
        if (r)
            describe_region(r, address, text, bytes);
        else
            snprintf(text, bytes, "nothing is allocated near it");
    }
}

void access_bad(struct access *a, uint32_t lanes, enum finding_kind kind) {
    uint32_t lane = (uint32_t)__builtin_ctz(lanes);
    uint64_t address = a->address[lane];
    char details[256];
    struct region *freed = NULL;
    if (kind == FINDING_BOUNDS && a->in != SPACE_SHARED && a->in != SPACE_LOCAL) {
        freed = memory_find_freed(a->w->block->launch->memory, address);
        if (freed) kind = FINDING_FREED;
    }
    if (freed) {
        describe_region(freed, address, details, sizeof details);
        strncat(details, ", which was freed", sizeof details - strlen(details) - 1);
    } else {
        describe_place(a, address, details, sizeof details);
    }
    const char *what = kind == FINDING_BOUNDS       ? "out of bounds"
                       : kind == FINDING_FREED      ? "of freed memory"
                       : kind == FINDING_MISALIGNED ? "not aligned to its size"
                                                    : "to read-only memory";
    report_lane(a->w, a->o, lane, kind, 0, details, "%s of %u bytes %s, at %s address 0x%llx",
                kind_name(a), a->bytes, what, space_name(a->in), (unsigned long long)address);
}

void access_undefined_address(struct access *a, uint32_t lanes, int32_t slot) {
    char details[256];
    undefined_origin(a->w, slot, details, sizeof details);
    report_lane(a->w, a->o, (uint32_t)__builtin_ctz(lanes), FINDING_UNINITIALISED_ADDRESS, 0,
                details, "%s at an address that was never initialised", kind_name(a));
}

void access_undefined_store(struct access *a, uint32_t lanes, int32_t slot, uint32_t element) {
    char details[256];
    uint32_t lane = (uint32_t)__builtin_ctz(lanes);
    undefined_origin(a->w, slot, details, sizeof details);
    report_lane(a->w, a->o, lane, FINDING_UNINITIALISED_STORE, element, details,
                "store of a value that was never initialised (element %u), to %s address 0x%llx",
                element, space_name(a->in), (unsigned long long)a->address[lane]);
}
