/* The state cache: where everything lies, initial values, bound memory, request slots. */
#include "cache/cache.h"

#include "fake/test_bundle.h"
#include "tap.h"

static kvf_error error;
static struct fake_state *fake;
static kvf_driver *driver;
static kvf_device *device;
static kvf_bundle *bundle;
static kvf_library *library;

static void open_all(void) {
    json_t *manifest = test_manifest();
    fake = fake_reset();
    if (test_open(manifest, &bundle, &error) != KVF_OK ||
        kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), &driver, &error) != KVF_OK ||
        kvf_device_open(driver, 0, &device, &error) != KVF_OK ||
        kvf_library_load(device, bundle, NULL, NULL, &library, &error) != KVF_OK) {
        tap_note("%s", error.text);
        exit(1);
    }
    json_decref(manifest);
}

static void close_all(void) {
    kvf_library_unload(library);
    kvf_device_close(device);
    kvf_bundle_close(bundle);
    kvf_driver_close(driver);
}

/*
 * What the test bundle's cache must be, by hand: for each layer (swa, csa, csa, swa draft) its
 * arrays with the bytes of one slot and of one element's initial value.
 */
static const struct expected {
    uint32_t layer;
    const char *name;
    uint64_t slot_bytes;
    uint32_t element, value; /* bytes and bits */
} expected[] = {
    {0, "swa_rows", 2048, 2, 0},       {0, "swa_pos", 64, 4, 0xffffffff},
    {0, "swa_head", 4, 4, 0},          {1, "swa_fp8", 768, 1, 0},
    {1, "swa_rope", 512, 2, 0xc020}, /* bf16 -2.5 */
    {1, "swa_inv", 64, 4, 0x3f800000}, {1, "swa_pos", 64, 4, 0xffffffff},
    {1, "tail_len", 4, 4, 0},          {2, "swa_fp8", 768, 1, 0},
    {2, "swa_rope", 512, 2, 0xc020},   {2, "swa_inv", 64, 4, 0x3f800000},
    {2, "swa_pos", 64, 4, 0xffffffff}, {2, "tail_len", 4, 4, 0},
    {3, "swa_rows", 2048, 2, 0},       {3, "swa_pos", 64, 4, 0xffffffff},
    {3, "swa_head", 4, 4, 0},
};
enum { EXPECTED = sizeof expected / sizeof expected[0], SLOT_BYTES = 2 * 2116 + 2 * 1412 };

static bool has_value(const unsigned char *at, uint64_t bytes, uint32_t element, uint32_t value) {
    for (uint64_t i = 0; i < bytes; i += element)
        if (memcmp(at + i, &value, element) != 0) return false;
    return true;
}

/*
 * Every array of every layer: strides, value, alignment; and together they cover the memory
 * exactly: each byte is marked by one array and no other.
 */
static void check_arrays(const kvf_cache *cache, uint32_t slots, kvf_address memory,
                         const char *what) {
    uint64_t total = (uint64_t)slots * SLOT_BYTES;
    unsigned char *owner = calloc(total, 1);
    int bad = 0;
    for (size_t i = 0; i < EXPECTED; i++) {
        const struct expected *e = &expected[i];
        kvf_array array = {0};
        bool good = kvf_cache_array(cache, e->layer, e->name, &array, &error) == KVF_OK &&
                    strcmp(array.name, e->name) == 0 && array.slot_stride == e->slot_bytes &&
                    array.bytes == slots * e->slot_bytes && array.layer_stride == array.bytes;
        uint64_t at = array.base - memory;
        good = good && array.base >= memory && at + array.bytes <= total &&
               array.base % (e->slot_bytes >= 512 ? 16 : 4) == 0;
        /* NOLINTNEXTLINE(performance-no-int-to-ptr): the fake's device memory is host memory */
        good = good && has_value((const unsigned char *)(uintptr_t)array.base, array.bytes,
                                 e->element, e->value);
        for (uint64_t j = 0; good && j < array.bytes; j++) good = owner[at + j]++ == 0;
        if (!good) tap_note("layer %u %s: %s", e->layer, e->name, error.text);
        bad += !good;
    }
    for (uint64_t j = 0; j < total; j++) bad += owner[j] != 1;
    free(owner);
    ok(bad == 0, "%s, %u slots: every byte has one owner and its initial value", what, slots);
}

static void test_owned(uint32_t slots) {
    kvf_cache *cache = NULL;
    kvf_cache_options options = {.slots = slots};
    uint64_t bytes = 0;
    is(kvf_layout_bytes(bundle, slots, &bytes, &error), KVF_OK, "the size is known ahead");
    is(bytes, (uint64_t)slots * SLOT_BYTES, "and is the sum of the arrays");
    kvf_stream stream = (kvf_stream)0x99;
    is(kvf_cache_create(library, &options, stream, &cache, &error), KVF_OK, "a cache is created");
    if (!cache) exit(1);
    ok(fake->stream == stream && !fake->pushed, "on the caller's stream");
    is(kvf_cache_bytes(cache), bytes, "it says the same size");
    is(fake->memory, bytes, "and this is what was allocated");
    check_arrays(cache, slots, cache->memory, "owned");
    kvf_cache_destroy(cache);
    is(fake->memory, 0, "all of it is freed");
}

static void test_bound(void) {
    enum {
        SLOTS = 5,
        GUARD = 256,
        BYTES = SLOTS * SLOT_BYTES,
        ROOM = (BYTES + 2 * GUARD + 255) / 256 * 256
    };
    unsigned char *memory = aligned_alloc(256, (size_t)ROOM);
    memset(memory, 0x5a, BYTES + 2 * GUARD);
    kvf_address base = (kvf_address)(uintptr_t)memory + GUARD;
    kvf_cache *cache = NULL;
    kvf_cache_options options = {.slots = SLOTS, .memory = base, .bytes = BYTES};
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_OK,
       "a cache in given memory");
    is(fake->memory, 0, "allocates none");
    check_arrays(cache, SLOTS, base, "bound");
    ok(has_value(memory, GUARD, 1, 0x5a) && has_value(memory + GUARD + BYTES, GUARD, 1, 0x5a),
       "nothing beside the given memory is touched");
    kvf_cache_destroy(cache);
    ok(has_value(memory, GUARD, 1, 0x5a), "nor freed");
    cache = NULL;
    options.bytes = BYTES - 1;
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_ERROR_ARGUMENT,
       "memory that is too small");
    contains(error.text, "has 35279 bytes, 5 slots take 35280", "with both sizes");
    options.bytes = BYTES;
    options.memory = base + 128;
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_ERROR_ARGUMENT,
       "memory that is not aligned");
    ok(!cache, "nothing was handed out");
    free(memory);
}

static void test_refused(void) {
    kvf_cache *cache = NULL;
    uint64_t bytes;
    kvf_cache_options options = {.slots = 0};
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_ERROR_ARGUMENT, "no slots");
    options.slots = 1u << 31;
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_ERROR_ARGUMENT, "2^31 slots");
    options.slots = 1000000;
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_ERROR_DEVICE_MEMORY,
       "more than the device has");
    is(error.driver_code, 2, "as the driver says");
    options.slots = 1;
    fake->capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    is(kvf_cache_create(library, &options, NULL, &cache, &error), KVF_ERROR_CAPTURE,
       "while a stream is captured");
    fake->capturing = 0;
    is(kvf_cache_create(NULL, &options, NULL, &cache, &error), KVF_ERROR_ARGUMENT, "no library");
    is(kvf_cache_create(library, NULL, NULL, &cache, &error), KVF_ERROR_ARGUMENT, "no options");
    is(kvf_cache_create(library, &options, NULL, NULL, &error), KVF_ERROR_ARGUMENT, "no out");
    is(kvf_layout_bytes(NULL, 1, &bytes, &error), KVF_ERROR_ARGUMENT, "no bundle");
    ok(!cache && fake->memory == 0 && !fake->pushed, "nothing was made");
    kvf_cache_destroy(NULL);
}

/* Paged windows without compression leave a type nothing to keep per request. */
static void test_stateless(void) {
    json_t *manifest = test_manifest();
    test_set(manifest, "types.0", "state", json_array());
    test_set(manifest, "types.1", "state", json_array());
    kvf_bundle *other = NULL;
    kvf_library *loaded = NULL;
    kvf_cache *cache = NULL;
    kvf_cache_options options = {.slots = 9};
    ok(test_open(manifest, &other, &error) == KVF_OK &&
           kvf_library_load(device, other, NULL, NULL, &loaded, &error) == KVF_OK,
       "a bundle without state");
    is(kvf_cache_create(loaded, &options, NULL, &cache, &error), KVF_OK, "has a cache");
    ok(cache && kvf_cache_bytes(cache) == 0 && fake->memory == 0 && kvf_slots_free(cache) == 9,
       "of no bytes and all slots");
    kvf_cache_destroy(cache);
    kvf_library_unload(loaded);
    kvf_bundle_close(other);
    json_decref(manifest);
}

/* Sizes near 2^64: one array of 2^40 bytes a slot, thousands of layers, 2^31 slots. */
static void test_overflow(void) {
    json_t *manifest = test_manifest();
    test_set(manifest, "", "arena", NULL);
    json_t *layers = json_array();
    for (int i = 0; i < 4000; i++) json_array_append_new(layers, json_string("swa"));
    test_set(manifest, "", "layers", layers);
    test_set(manifest, "types.0", "layers", json_integer(0));
    test_set(manifest, "types.1", "layers", json_integer(4000));
    json_t *array = test_at(manifest, "types.1.state.0");
    json_object_set_new(array, "shape", json_pack("[i,i,i]", 1 << 20, 1 << 18, 2));
    json_object_set_new(array, "slot_bytes", json_integer((json_int_t)1 << 40));
    kvf_bundle *huge = NULL;
    is(test_open(manifest, &huge, &error), KVF_OK, "a bundle of enormous state");
    uint64_t bytes = 7;
    is(kvf_layout_bytes(huge, 1000, &bytes, &error), KVF_OK, "of 1000 slots has a size");
    /* 4000 layers and a draft layer; swa_pos and swa_head beside the enormous array */
    is(bytes / 1000 / 4001, ((uint64_t)1 << 40) + 68, "which is right");
    is(kvf_layout_bytes(huge, 2000000000, &bytes, &error), KVF_ERROR_LIMIT,
       "of 2 thousand million it has none");
    kvf_bundle_close(huge);
    json_decref(manifest);
}

static void test_arrays(void) {
    kvf_cache *cache = NULL;
    kvf_array array;
    kvf_cache_options options = {.slots = 1};
    kvf_cache_create(library, &options, NULL, &cache, &error);
    is(kvf_cache_array(cache, 0, "tail_len", &array, &error), KVF_ERROR_NOT_FOUND,
       "an array that the layer's type lacks");
    contains(error.text, "layer 0 (swa) has no state array \"tail_len\"", "is named");
    is(kvf_cache_array(cache, 4, "swa_pos", &array, &error), KVF_ERROR_NOT_FOUND, "a fifth layer");
    is(kvf_cache_array(cache, 0, NULL, &array, &error), KVF_ERROR_ARGUMENT, "no name");
    is(kvf_cache_array(cache, 1, "swa_rope", &array, &error), KVF_OK, "an array");
    ok(array.init == -2.5 && strcmp(array.dtype, "bf16") == 0, "with dtype and initial value");
    kvf_array first = array;
    kvf_cache_array(cache, 2, "swa_rope", &array, &error);
    is(array.base - first.base, first.layer_stride, "layers of a type lie a layer stride apart");
    kvf_cache_destroy(cache);
}

static void test_slots(void) {
    enum { SLOTS = 131 };
    kvf_cache *cache = NULL;
    kvf_cache_options options = {.slots = SLOTS};
    kvf_cache_create(library, &options, NULL, &cache, &error);
    int32_t slot = -7;
    bool good = true;
    for (int32_t i = 0; i < SLOTS; i++)
        good = good && kvf_slot_acquire(cache, &slot, &error) == KVF_OK && slot == i;
    ok(good, "slots come lowest first");
    is(kvf_slots_free(cache), 0, "until all are taken");
    slot = -7;
    is(kvf_slot_acquire(cache, &slot, &error), KVF_ERROR_SLOTS, "then there is none");
    contains(error.text, "all 131 request slots are taken", "");
    is(slot, -7, "and the caller's variable is untouched");
    is(kvf_slot_release(cache, 130, &error), KVF_OK, "the last is given back");
    is(kvf_slot_release(cache, 130, &error), KVF_ERROR_STATE, "but not twice");
    contains(error.text, "slot 130 is not taken: released twice?", "");
    is(kvf_slot_release(cache, 131, &error), KVF_ERROR_ARGUMENT, "there is no slot 131");
    is(kvf_slot_release(cache, -1, &error), KVF_ERROR_ARGUMENT, "nor -1");
    is(kvf_slot_release(NULL, 0, &error), KVF_ERROR_ARGUMENT, "nor a null cache");
    is(kvf_slot_acquire(cache, NULL, &error), KVF_ERROR_ARGUMENT, "nor a place to put it");
    is(kvf_slots_free(cache), 1, "one is free");
    static const int32_t first[] = {0};
    is(kvf_slot_release(cache, 0, &error), KVF_OK, "the first is given back");
    is(kvf_slots_check(cache, first, 1, &error), KVF_ERROR_STATE, "and is then a free one");
    is(kvf_slot_acquire(cache, &slot, &error), KVF_OK, "taken again");
    static const int32_t batch[] = {5, -1, 0, 129, 130, 131};
    static const int32_t below[] = {-2};
    is(kvf_slots_check(cache, batch, 4, &error), KVF_OK, "taken slots and padding pass");
    is(kvf_slots_check(cache, batch, 5, &error), KVF_ERROR_STATE, "a free slot does not");
    contains(error.text, "entry 4: slot 130 is not taken", "");
    is(kvf_slots_check(cache, batch + 5, 1, &error), KVF_ERROR_ARGUMENT, "nor one too high");
    is(kvf_slots_check(cache, below, 1, &error), KVF_ERROR_ARGUMENT, "nor one below -1");
    is(kvf_slots_check(cache, NULL, 1, &error), KVF_ERROR_ARGUMENT, "nor null");
    is(kvf_slots_check(cache, NULL, 0, &error), KVF_OK, "an empty batch does");
    kvf_cache_destroy(cache);
}

/* A hundred thousand random operations beside an array of flags. */
static void test_slots_random(void) {
    enum { SLOTS = 200 };
    struct slot_map map;
    bool taken[SLOTS] = {0};
    uint32_t free_slots = SLOTS;
    uint64_t seed = 99;
    int bad = 0;
    if (!slot_map_create(&map, SLOTS)) exit(1);
    for (int i = 0; i < 100000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t pick = (uint32_t)(seed >> 33) % SLOTS;
        /* Phases that fill and phases that empty. */
        if ((seed >> 60) < (i / 5000 % 2 ? 6u : 10u)) {
            int32_t want = -1;
            for (int32_t s = SLOTS - 1; s >= 0; s--)
                if (!taken[s]) want = s;
            int32_t got = slot_map_take(&map);
            bad += got != want;
            if (want >= 0) {
                taken[want] = true;
                free_slots--;
            }
        } else {
            bad += slot_map_is_taken(&map, (int32_t)pick) != taken[pick];
            if (taken[pick]) {
                slot_map_give(&map, (int32_t)pick);
                taken[pick] = false;
                free_slots++;
            }
        }
        bad += map.free != free_slots;
    }
    is(bad, 0, "a hundred thousand operations agree with an array of flags");
    slot_map_destroy(&map);
}

/* ---- bits of initial values ---- */

static void test_fill(void) {
    static const struct {
        const char *dtype;
        double value;
        int64_t bits; /* -1: not exact */
        uint32_t width;
    } cases[] = {
        {"u8", 255, 255, 1},
        {"u8", 256, -1, 1},
        {"u8", -1, -1, 1},
        {"i8", -128, 0x80, 1},
        {"i8", 128, -1, 1},
        {"i16", -2, 0xfffe, 2},
        {"u16", 65535, 65535, 2},
        {"i32", -1, 0xffffffff, 4},
        {"i32", 2147483647, 0x7fffffff, 4},
        {"i32", 2147483648, -1, 4},
        {"u32", 4294967295, 0xffffffff, 4},
        {"u32", 0.5, -1, 4},
        {"f32", 1, 0x3f800000, 4},
        {"f32", -0.0, 0x80000000, 4},
        {"f32", 0.1, -1, 4},
        {"f32", 1e39, -1, 4},
        {"bf16", 1.5, 0x3fc0, 2},
        {"bf16", 1.00390625, -1, 2},
        {"bf16", -3.3895313892515355e38, 0xff7f, 2},
        {"f16", 1, 0x3c00, 2},
        {"f16", -2, 0xc000, 2},
        {"f16", 65504, 0x7bff, 2},
        {"f16", 65520, -1, 2},
        {"f16", 0x1p-24, 1, 2},
        {"f16", 0x1p-25, -1, 2},
        {"f16", 0x1p-14, 0x400, 2},
        {"f16", 0x1.ff8p-15, 0x3ff, 2},
        {"f16", -0.0, 0x8000, 2},
        {"f16", 0.333251953125, 0x3555, 2},
        {"e4m3", 0, 0, 1},
        {"e4m3", 1, -1, 1},
        {"e2m1", 0, 0, 1},
        {"pad", 0, 0, 1},
        {"ue8m0", 1, -1, 1},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dtype_fill fill = {0};
        bool exact = dtype_fill(dtype_find(cases[i].dtype), cases[i].value, &fill);
        bool good = exact == (cases[i].bits >= 0) &&
                    (!exact || (fill.bits == cases[i].bits && fill.width == cases[i].width));
        if (!good) tap_note("%s %g: %d %x", cases[i].dtype, cases[i].value, exact, fill.bits);
        bad += !good;
    }
    is(bad, 0, "initial values become the right bits or are refused");
    ok(dtype_bytes(DTYPE_E2M1, 7) == 4 && dtype_bytes(DTYPE_BF16, 7) == 14,
       "bytes of elements, two a byte rounded up");
    is(dtype_find("f64"), DTYPE_COUNT, "no dtype of another name");
}

int main(void) {
    tap_plan(85);
    open_all();
    test_owned(1);
    test_owned(3);
    test_owned(8);
    test_bound();
    test_refused();
    test_stateless();
    test_overflow();
    test_arrays();
    test_slots();
    test_slots_random();
    test_fill();
    close_all();
    is(fake->memory, 0, "no device memory is left");
    return tap_done();
}
