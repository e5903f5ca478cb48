/*
 * The n-th allocation fails, for every n of a whole life: open, load, create, launch, give back.
 * Each time the status is "out of memory" and nothing is left behind.
 *
 * Normally this program's malloc stands in front of everybody's, libraries included. Sanitizers
 * have their own; there only the library's calls are led here (by the linker's --wrap).
 */
#include <errno.h>

#include "fake/test_bundle.h"
#include "library.h"
#include "tap.h"

static bool counting;
static long fail_in, live; /* 0: none fails; blocks of the counted span that are not freed */
static long allocations;
static bool failed_inside; /* the call that failed came from this program, the library included */

static bool must_fail(const void *caller) {
    extern const char __executable_start, etext;
    if (!counting) return false;
    allocations++;
    if (fail_in == 0) return false;
    fail_in--;
    if (fail_in > 0) return false;
    errno = ENOMEM; /* as malloc does */
    failed_inside = (const char *)caller >= &__executable_start && (const char *)caller < &etext;
    return true;
}

#ifndef __has_feature /* gcc has none, and says by a macro that it sanitizes */
#define __has_feature(feature) 0
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ ||                                 \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *at, size_t bytes);
char *__real_strdup(const char *text);
char *__real_realpath(const char *path, char *out);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_realpath(const char *path, char *out);

void *__wrap_malloc(size_t bytes) {
    return must_fail(__builtin_return_address(0)) ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    return must_fail(__builtin_return_address(0)) ? NULL : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *at, size_t bytes) {
    return must_fail(__builtin_return_address(0)) ? NULL : __real_realloc(at, bytes);
}
char *__wrap_strdup(const char *text) {
    return must_fail(__builtin_return_address(0)) ? NULL : __real_strdup(text);
}
char *__wrap_realpath(const char *path, char *out) {
    return !out && must_fail(__builtin_return_address(0)) ? NULL : __real_realpath(path, out);
}
#else
#define SANITIZED false
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void __libc_free(void *at);

__attribute__((visibility("default"))) void *malloc(size_t bytes) {
    if (must_fail(__builtin_return_address(0))) return NULL;
    void *at = __libc_malloc(bytes);
    if (counting && at) live++;
    return at;
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes) {
    if (must_fail(__builtin_return_address(0))) return NULL;
    void *at = __libc_calloc(count, bytes);
    if (counting && at) live++;
    return at;
}
__attribute__((visibility("default"))) void *realloc(void *at, size_t bytes) {
    if (must_fail(__builtin_return_address(0))) return NULL;
    void *to = __libc_realloc(at, bytes);
    if (counting && !at && to) live++;
    return to;
}
__attribute__((visibility("default"))) void free(void *at) {
    if (counting && at) live--;
    __libc_free(at);
}
#endif

static struct fake_state *fake;
static kvf_error error;
static char directory[64];

struct csa_state_reset {
    int32_t count;
    uint32_t layers;
    kvf_address list;
};

/* Everything a program does with the library, once; the first status that is not OK. */
static kvf_status whole_life(kvf_driver_kind kind, const char *path) {
    kvf_bundle *bundle = NULL;
    kvf_driver *driver = NULL;
    kvf_device *device = NULL;
    kvf_library *library = NULL;
    kvf_cache *cache = NULL;
    const kvf_kernel *reset = NULL;
    kvf_cache_options options = {.slots = 100};
    struct csa_state_reset r = {.count = 1, .layers = 1, .list = 0x4000};
    float table[16];
    uint64_t bytes;
    kvf_status status = kvf_bundle_open(directory, &bundle, &error);
    if (status == KVF_OK) status = kvf_rope_table(bundle, 0, 1, table, &error);
    if (status == KVF_OK) status = kvf_layout_bytes(bundle, 7, &bytes, &error);
    if (status == KVF_OK) status = kvf_driver_open(kind, path, &driver, &error);
    if (status == KVF_OK) status = kvf_device_open(driver, 0, &device, &error);
    if (status == KVF_OK) status = kvf_library_load(device, bundle, NULL, NULL, &library, &error);
    if (status == KVF_OK) status = kvf_cache_create(library, &options, NULL, &cache, &error);
    if (status == KVF_OK)
        status = kvf_library_kernel(library, "csa", "state_reset", &reset, &error);
    if (status == KVF_OK) status = kvf_launch(reset, NULL, &r, sizeof r, &error);
    kvf_cache_destroy(cache);
    kvf_library_unload(library);
    kvf_device_close(device);
    kvf_driver_close(driver);
    kvf_bundle_close(bundle);
    return status;
}

static kvf_status counted_life(long fail) {
    fake = fake_reset();
    fake->jit_info = "a log to be kept";
    memset(&error, 0, sizeof error);
    counting = true;
    live = allocations = 0;
    fail_in = fail;
    kvf_status status = whole_life(KVF_DRIVER_CUDA, fake_path());
    /* The loader keeps its last message, for one question after the one that gets it. */
    (void)dlerror();
    (void)dlerror();
    counting = false;
    return status;
}

static void test_every_allocation(void) {
    is(counted_life(0), KVF_OK, "with all memory there is, everything works");
    is(counted_life(0), KVF_OK, "and again");
    is(live, 0, "what was allocated is freed");
    long all = allocations;
    tap_note("%ld allocations%s", all, SANITIZED ? " of the library itself" : "");
    ok(all > (SANITIZED ? 60 : 1000), "there are allocations to fail: %ld", all);
    int bad = 0, harmless = 0;
    for (long n = 1; n <= all; n++) {
        kvf_status status = counted_life(n);
        bool clean = live == 0 && fake->modules == 0 && fake->retained == 0 && fake->memory == 0;
        if (status == KVF_ERROR_MEMORY && error.status == status && error.text[0] && clean)
            continue;
        /* The C library does without memory where it only keeps a message about a missing symbol.
         */
        if (status == KVF_OK && clean && !failed_inside && ++harmless < 40) continue;
        bad++;
        if (bad < 20)
            tap_note("allocation %ld: status %d, %s; %ld blocks left", n, status, error.text, live);
    }
    is(bad, 0, "each of them failing is reported as such and leaves nothing behind");
    is(counted_life(0), KVF_OK, "afterwards everything still works");
}

int main(void) {
    tap_plan(6);
    test_write_bundle(directory);
    test_every_allocation();
    test_remove_bundle(directory);
    return tap_done();
}
