/*
 * Several threads at once on one bundle, library and cache: all that the header calls reading, and
 * launches. Worth most under the thread sanitizer.
 */
#include <pthread.h>

#include "fake/test_bundle.h"
#include "tap.h"

enum { THREADS = 4, ROUNDS = 2000 };

struct csa_state_reset {
    int32_t count;
    uint32_t layers;
    kvf_address list;
};

static struct shared {
    kvf_driver *driver;
    kvf_device *device;
    kvf_bundle *bundle;
    kvf_library *library;
    kvf_cache *cache;
} all;

static bool read_bundle(void) {
    kvf_model_info model;
    kvf_type_info type;
    uint32_t number, of_type;
    float table[16];
    return kvf_bundle_model(all.bundle, &model) == KVF_OK && model.layers == 3 &&
           kvf_bundle_type(all.bundle, 0, &type) == KVF_OK && type.ratio == 4 &&
           kvf_bundle_layer(all.bundle, 2, &number, &of_type) == KVF_OK && of_type == 1 &&
           kvf_rope_table(all.bundle, 1, 1, table, NULL) == KVF_OK && table[0] == 1;
}

static bool read_library(const kvf_kernel **kernel) {
    kvf_kernel_info info;
    kvf_param_info param;
    kvf_array array;
    if (kvf_library_kernel(all.library, "csa", "state_reset", kernel, NULL) != KVF_OK) return false;
    kvf_kernel_describe(*kernel, &info);
    return info.params == 3 && kvf_kernel_param(*kernel, 2, &param) == KVF_OK &&
           param.offset == 8 && kvf_cache_array(all.cache, 1, "swa_pos", &array, NULL) == KVF_OK &&
           array.slot_stride == 64;
}

/* Every thread has errors of its own, among the launches that succeed. */
static bool launch(const kvf_kernel *kernel, int32_t round) {
    kvf_error error;
    struct csa_state_reset good = {.count = round % 7, .layers = 2, .list = 0x4000};
    struct csa_state_reset bad = {.count = round, .layers = 2, .list = 0x4002};
    char want[32];
    snprintf(want, sizeof want, "0x%x", 0x4002);
    return kvf_launch(kernel, NULL, &good, sizeof good, &error) == KVF_OK &&
           kvf_launch(kernel, NULL, &bad, sizeof bad, &error) == KVF_ERROR_ARGUMENT &&
           strstr(error.text, want);
}

static void *work(void *result) {
    uint64_t *good = result;
    for (int32_t round = 0; round < ROUNDS; round++) {
        const kvf_kernel *kernel;
        *good += read_bundle() && read_library(&kernel) && launch(kernel, round);
    }
    return NULL;
}

/* Opening and closing bundles of one's own meanwhile disturbs nobody. */
static void *work_apart(void *result) {
    uint64_t *good = result;
    json_t *manifest = test_manifest();
    for (int round = 0; round < 50; round++) {
        kvf_bundle *own = NULL;
        *good += test_open(manifest, &own, NULL) == KVF_OK;
        kvf_bundle_close(own);
    }
    json_decref(manifest);
    return NULL;
}

int main(void) {
    kvf_error error = {0};
    struct fake_state *fake = fake_reset();
    json_t *manifest = test_manifest();
    kvf_cache_options options = {.slots = 4};
    pthread_t threads[THREADS + 1];
    uint64_t good[THREADS + 1] = {0};
    tap_plan(4);
    /* A caller's context that is current keeps the fake's one context stack out of it. */
    fake->current = FAKE_CALLERS;
    fake->current_device = 70;
    bool opened =
        test_open(manifest, &all.bundle, &error) == KVF_OK &&
        kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), &all.driver, &error) == KVF_OK &&
        kvf_device_open(all.driver, 0, &all.device, &error) == KVF_OK &&
        kvf_library_load(all.device, all.bundle, NULL, NULL, &all.library, &error) == KVF_OK &&
        kvf_cache_create(all.library, &options, NULL, &all.cache, &error) == KVF_OK;
    if (!ok(opened, "everything is open %s", error.text)) return 1;
    for (int i = 0; i <= THREADS; i++)
        pthread_create(&threads[i], NULL, i < THREADS ? work : work_apart, &good[i]);
    for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    uint64_t sum = good[0] + good[1] + good[2] + good[3];
    is(sum, THREADS * ROUNDS, "every thread saw what it should");
    is(good[THREADS], 50, "and so did the one with bundles of its own");
    /* Counts of round % 7, of which 0 launches nothing. */
    is(fake->launches, THREADS * (ROUNDS - (ROUNDS + 6) / 7), "every launch arrived");
    kvf_cache_destroy(all.cache);
    kvf_library_unload(all.library);
    kvf_device_close(all.device);
    kvf_driver_close(all.driver);
    kvf_bundle_close(all.bundle);
    json_decref(manifest);
    return tap_done();
}
