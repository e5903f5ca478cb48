#include "counted.h"

#include "executor/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counted {
    size_t count;
    kvfExecutorKernel kernels[];
};

typedef int counting(int on);
typedef size_t listing(kvfExecutorKernel *list, size_t count);

/* A function of the executor, or null: POSIX lets its address travel in a void *. */
static listing *lister(const struct session *session) {
    listing *list;
    void *symbol = driver_extra(session->driver, "kvfExecutorKernels");
    memcpy(&list, &symbol, sizeof list);
    return list;
}

bool counted_start(struct session *session) {
    counting *count;
    void *symbol = driver_extra(session->driver, "kvfExecutorCount");
    memcpy(&count, &symbol, sizeof count);
    if (count && lister(session)) {
        count(1);
        return true;
    }
    fprintf(stderr, "kvforge-run: only the executor counts\n");
    return false;
}

struct counted *counted_now(struct session *session) {
    listing *list = lister(session);
    size_t count = list ? list(NULL, 0) : 0;
    struct counted *out = calloc(1, sizeof *out + count * sizeof *out->kernels);
    if (!out) return NULL;
    for (size_t i = 0; i < count; i++) out->kernels[i].size = sizeof *out->kernels;
    if (list) list(out->kernels, count);
    out->count = count;
    return out;
}

static const kvfExecutorKernel *find(const struct counted *all, const char *entry) {
    for (size_t i = 0; i < all->count; i++)
        if (!strcmp(all->kernels[i].name, entry)) return &all->kernels[i];
    return NULL;
}

static const char *const class_names[KVF_CLASSES] = {
    [KVF_CLASS_INTEGER] = "integer", [KVF_CLASS_FLOAT] = "float",
    [KVF_CLASS_CONVERT] = "convert", [KVF_CLASS_MOVE] = "move",
    [KVF_CLASS_LOAD] = "load",       [KVF_CLASS_STORE] = "store",
    [KVF_CLASS_ATOMIC] = "atomic",   [KVF_CLASS_CONTROL] = "control",
    [KVF_CLASS_BARRIER] = "barrier", [KVF_CLASS_WARP] = "warp",
    [KVF_CLASS_TENSOR] = "tensor",   [KVF_CLASS_ASYNC] = "async"};

static void set(json_t *object, const char *name, uint64_t value) {
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *classes(const uint64_t *now, const uint64_t *before) {
    json_t *out = json_object();
    for (int i = 0; i < KVF_CLASSES; i++) set(out, class_names[i], now[i] - before[i]);
    return out;
}

json_t *counted_since(struct session *session, const struct counted *before, const char *entry) {
    static const kvfExecutorKernel nothing;
    struct counted *after = counted_now(session);
    const kvfExecutorKernel *now = after ? find(after, entry) : NULL, *old = find(before, entry);
    if (!old) old = &nothing;
    json_t *out = now && now->launches > old->launches ? json_object() : NULL;
    if (out) {
        json_object_set_new(out, "kernel", json_string(entry));
        json_object_set_new(out, "class_warps", classes(now->class_warps, old->class_warps));
        json_object_set_new(out, "class_lanes", classes(now->class_lanes, old->class_lanes));
#define SET(name) set(out, #name, now->name - old->name)
        SET(launches);
        SET(blocks);
        SET(threads);
        SET(warp_instructions);
        SET(lane_instructions);
        SET(global_loads);
        SET(global_stores);
        SET(global_load_bytes);
        SET(global_store_bytes);
        SET(sectors_moved);
        SET(sectors_needed);
        SET(shared_accesses);
        SET(shared_bytes);
        SET(bank_conflicts);
        SET(local_bytes);
        SET(tensor_macs);
#undef SET
    }
    free(after);
    return out;
}
