/* Devices, contexts, choosing and loading modules, launching: all on the fake driver. */
#include "library.h"

#include <time.h>

#include "fake/test_bundle.h"
#include "tap.h"

/* Sanitizers and profiles take their time. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || !defined __OPTIMIZE__
#define TIME_SCALE 50
#else
#define TIME_SCALE 1
#endif

static kvf_error error;
static struct fake_state *fake;

struct loaded {
    kvf_driver *driver;
    kvf_device *device;
    kvf_bundle *bundle;
    kvf_library *library;
};

/* Open everything from a manifest; the state of the fake is as the caller set it. */
static kvf_status load(struct loaded *l, json_t *manifest, const char *target, kvf_stream stream) {
    *l = (struct loaded){0};
    memset(&error, 0, sizeof error);
    kvf_library_options options = {.target = target};
    kvf_status status = test_open(manifest, &l->bundle, &error);
    if (status == KVF_OK)
        status = kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), &l->driver, &error);
    if (status == KVF_OK) status = kvf_device_open(l->driver, 0, &l->device, &error);
    if (status == KVF_OK)
        status = kvf_library_load(l->device, l->bundle, stream, target ? &options : NULL,
                                  &l->library, &error);
    return status;
}

static void unload(struct loaded *l) {
    kvf_library_unload(l->library);
    kvf_device_close(l->device);
    kvf_bundle_close(l->bundle);
    kvf_driver_close(l->driver);
}

static bool nothing_lives(void) {
    return fake->modules == 0 && fake->retained == 0 && fake->pushed == 0 && fake->memory == 0;
}

/* Load the good bundle with the fake as it is set, and unload; the status, -1 if something stayed.
 */
static int try_load(void) {
    struct loaded l;
    json_t *manifest = test_manifest();
    kvf_status status = load(&l, manifest, NULL, NULL);
    bool handed = l.library != NULL;
    unload(&l);
    json_decref(manifest);
    if (handed != (status == KVF_OK) || !nothing_lives()) tap_note("something was left behind");
    return nothing_lives() && handed == (status == KVF_OK) ? (int)status : -1;
}

static void test_good(void) {
    struct loaded l;
    json_t *manifest = test_manifest();
    fake = fake_reset();
    fake->local_bytes = 24;
    fake->jit_info = "ptxas info: 32 registers\n";
    is(load(&l, manifest, NULL, NULL), KVF_OK, "a good bundle loads");
    if (!l.library) exit(1);
    ok(strcmp(kvf_device_name(l.device), "Fake GPU 0") == 0 &&
           kvf_device_capability(l.device) == 90,
       "the device has name and capability");
    is(fake->modules, 2, "both modules are loaded");
    is(fake->funcs_loaded, 3, "every kernel is loaded ahead");
    is(fake->dynamic_shared, 65536, "more than 48 KiB of shared memory are asked for");
    is(fake->retained, 1, "the primary context is retained once");
    is(fake->pushed, 0, "no context is left pushed");
    const kvf_kernel *kernel = NULL;
    is(kvf_library_kernel(l.library, "csa", "swa_write", &kernel, &error), KVF_OK,
       "a kernel by name");
    kvf_kernel_info info;
    kvf_kernel_describe(kernel, &info);
    ok(strcmp(info.type, "csa") == 0 && strcmp(info.name, "swa_write") == 0 &&
           strcmp(info.entry, "csa_swa_write") == 0 && strcmp(info.target, "sm_80") == 0,
       "says its names");
    ok(info.params == 5 && info.params_bytes == 40 && info.block == 128 && info.shared == 0 &&
           info.ptx_bytes == 278 && info.registers == 32 && info.local_bytes == 24,
       "and its numbers, local memory too");
    ok(strcmp(info.log, "ptxas info: 32 registers") == 0, "and what the JIT said");
    kvf_param_info param;
    is(kvf_kernel_param(kernel, 1, &param), KVF_OK, "a parameter by index");
    ok(strcmp(param.name, "latent") == 0 && strcmp(param.type, "ptr") == 0 && param.offset == 8 &&
           param.size == 8 && strcmp(param.direction, "in") == 0 &&
           strcmp(param.dtype, "bf16") == 0 && strcmp(param.shape, "[tokens][64]") == 0 &&
           param.align == 16 && !param.optional,
       "with all that is known of it");
    is(kvf_kernel_param(kernel, 5, &param), KVF_ERROR_NOT_FOUND, "a sixth there is not");
    is(kvf_library_kernel(l.library, "csa", "attn", &kernel, &error), KVF_ERROR_NOT_FOUND,
       "no kernel of another name");
    contains(error.text, "no kernel \"attn\" for \"csa\"", "and it is named");
    ok(strcmp(error.kernel, "csa/attn") == 0, "in its own field too");
    is(kvf_library_kernel(l.library, NULL, "attn", &kernel, &error), KVF_ERROR_ARGUMENT, "null");
    char all[128] = "";
    uint32_t index = 0;
    for (; kvf_library_kernel_at(l.library, index, &kernel) == KVF_OK; index++) {
        kvf_kernel_describe(kernel, &info);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s/%s ", info.type, info.name);
    }
    ok(index == 3 && strcmp(all, "csa/swa_write csa/state_reset swa/swa_write ") == 0,
       "all kernels in turn: %s", all);
    is(kvf_library_kernel_at(NULL, 0, &kernel), KVF_ERROR_ARGUMENT, "but not of null");
    unload(&l);
    ok(nothing_lives(), "nothing is left loaded, retained or pushed");
    json_decref(manifest);
    kvf_library_unload(NULL);
    kvf_device_close(NULL);
}

static void test_contexts(void) {
    struct loaded l;
    json_t *manifest = test_manifest();
    fake = fake_reset();
    fake->current = FAKE_CALLERS;
    fake->current_device = 70;
    is(load(&l, manifest, NULL, NULL), KVF_OK, "with the caller's own context");
    is(fake->retained, 0, "the primary one is not touched");
    ok(fake->current == FAKE_CALLERS, "and the caller's stays current");
    unload(&l);
    fake = fake_reset();
    fake->current = FAKE_CALLERS;
    fake->current_device = 71;
    is(load(&l, manifest, NULL, NULL), KVF_OK, "with a context of another device");
    is(fake->retained, 1, "the primary one is taken");
    ok(fake->current == FAKE_CALLERS && !fake->pushed, "and the caller's is current again");
    unload(&l);
    ok(nothing_lives(), "nothing is left behind");
    json_decref(manifest);
}

static void test_device_arguments(void) {
    kvf_driver *driver = NULL;
    kvf_device *device = NULL;
    fake = fake_reset();
    is(kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), &driver, &error), KVF_OK, "the driver opens");
    is(kvf_device_open(driver, 1, &device, &error), KVF_ERROR_ARGUMENT, "no second device");
    contains(error.text, "device 1: the driver has devices 0 to 0", "and the range is said");
    is(kvf_device_open(driver, -1, &device, &error), KVF_ERROR_ARGUMENT, "no device -1");
    is(kvf_device_open(NULL, 0, &device, &error), KVF_ERROR_ARGUMENT, "no driver");
    is(kvf_device_open(driver, 0, NULL, &error), KVF_ERROR_ARGUMENT, "nowhere to put it");
    is(kvf_library_load(NULL, NULL, NULL, NULL, NULL, &error), KVF_ERROR_ARGUMENT, "no library");
    ok(!device && nothing_lives(), "nothing was opened");
    kvf_driver_close(driver);
}

/* ---- choice of targets ---- */

/* The csa module for each of `targets` (spaces between), with the same text. */
static json_t *with_targets(const char *targets) {
    json_t *manifest = test_manifest();
    json_t *modules = test_at(manifest, "modules");
    json_t *csa = json_deep_copy(json_array_get(modules, 0));
    json_array_clear(modules);
    char copy[128];
    snprintf(copy, sizeof copy, "%s", targets);
    for (char *save, *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        json_t *module = json_deep_copy(csa);
        json_object_set_new(module, "target", json_string(name));
        json_array_append_new(modules, module);
    }
    json_decref(csa);
    return manifest;
}

static const char *target_of(const struct loaded *l, const char *name) {
    const kvf_kernel *kernel;
    static kvf_kernel_info info;
    if (kvf_library_kernel(l->library, "csa", name, &kernel, NULL) != KVF_OK) return "none";
    kvf_kernel_describe(kernel, &info);
    static char target[16];
    snprintf(target, sizeof target, "%s", info.target);
    return target;
}

static void test_targets(void) {
    static const struct {
        int major, minor;
        const char *targets, *forced, *chosen; /* chosen null: KVF_ERROR_NO_TARGET */
    } cases[] = {
        {8, 0, "sm_80 sm_89 sm_90", NULL, "sm_80"},
        {8, 6, "sm_80 sm_89 sm_90", NULL, "sm_80"},
        {8, 9, "sm_80 sm_89 sm_90", NULL, "sm_89"},
        {9, 0, "sm_80 sm_89 sm_90", NULL, "sm_90"},
        {9, 0, "sm_90 sm_90a sm_80", NULL, "sm_90a"},
        {9, 0, "sm_90a sm_90", NULL, "sm_90a"},
        {10, 0, "sm_80 sm_90 sm_90a", NULL, "sm_90"},
        {10, 0, "sm_90a sm_100a sm_90", NULL, "sm_100a"},
        {12, 0, "sm_100a sm_90", NULL, "sm_90"},
        {12, 0, "sm_120a sm_90", NULL, "sm_120a"},
        {10, 3, "sm_100a sm_90", NULL, "sm_90"},
        {7, 5, "sm_80 sm_90", NULL, NULL},
        {9, 0, "sm_100a", NULL, NULL},
        {9, 0, "sm_80 sm_90", "sm_80", "sm_80"},
        {9, 0, "sm_80 sm_90 sm_90a", "sm_90", "sm_90"},
        {9, 0, "sm_80 sm_90", "sm_89", NULL},
        {9, 0, "sm_80 sm_100a", "sm_100a", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct loaded l;
        json_t *manifest = with_targets(cases[i].targets);
        fake = fake_reset();
        fake->major = cases[i].major;
        fake->minor = cases[i].minor;
        kvf_status status = load(&l, manifest, cases[i].forced, NULL);
        bool good = cases[i].chosen ? status == KVF_OK && fake->modules == 1 &&
                                          strcmp(target_of(&l, "swa_write"), cases[i].chosen) == 0
                                    : status == KVF_ERROR_NO_TARGET && error.text[0];
        unload(&l);
        ok(good && nothing_lives(), "capability %d.%d of %s%s%s: %s", cases[i].major,
           cases[i].minor, cases[i].targets, cases[i].forced ? " forced to " : "",
           cases[i].forced ? cases[i].forced : "", cases[i].chosen ? cases[i].chosen : "none");
        json_decref(manifest);
    }
}

/* A target with an "a" that holds one kernel of two: the other comes from the portable module. */
static void test_partial_target(void) {
    struct loaded l;
    json_t *manifest = with_targets("sm_90 sm_90a");
    json_array_remove(test_at(manifest, "modules.1.kernels"), 1);
    fake = fake_reset();
    is(load(&l, manifest, NULL, NULL), KVF_OK, "a partial target loads");
    ok(strcmp(target_of(&l, "swa_write"), "sm_90a") == 0, "its kernel is taken from it");
    ok(strcmp(target_of(&l, "state_reset"), "sm_90") == 0, "the other from the portable one");
    unload(&l);
    is(load(&l, manifest, "sm_90a", NULL), KVF_ERROR_NO_TARGET, "forced, it lacks the other");
    ok(strcmp(error.kernel, "csa/state_reset") == 0, "which is named");
    unload(&l);
    is(load(&l, manifest, "hopper", NULL), KVF_ERROR_ARGUMENT, "a target that is none");
    unload(&l);
    json_decref(manifest);
}

/* ---- what can go wrong while loading ---- */

static void test_bad_loads(void) {
    fake = fake_reset();
    fake->version = 11070;
    is(try_load(), KVF_ERROR_OLD_DRIVER, "a driver too old for the PTX");
    contains(error.text,
             "csa.sm_80.ptx is PTX 7.8, which needs a driver for CUDA 11.8; this one is for 11.7",
             "with both versions");

    fake = fake_reset();
    fake->jit_code = 222;
    is(try_load(), KVF_ERROR_OLD_DRIVER, "a driver that says so itself");

    fake = fake_reset();
    fake->jit_code = 218;
    fake->jit_error = "ptxas application ptx input, line 7; error : unknown modifier\n";
    is(try_load(), KVF_ERROR_COMPILE, "PTX that the JIT refuses");
    ok(strcmp(error.log, "ptxas application ptx input, line 7; error : unknown modifier") == 0,
       "with its log");
    ok(error.driver_code == 218 && strcmp(error.driver_name, "CUDA_ERROR_INVALID_PTX") == 0,
       "and the driver's name");
    contains(error.text, "loading csa.sm_80.ptx", "and the file");

    static char long_log[40001];
    memset(long_log, 'x', sizeof long_log - 1);
    fake = fake_reset();
    fake->jit_code = 218;
    fake->jit_error = long_log;
    is(try_load(), KVF_ERROR_COMPILE, "with a log longer than any buffer");
    is(strlen(error.log), sizeof error.log - 1, "it is cut");

    fake = fake_reset();
    fake->jit_info = long_log;
    struct loaded l;
    json_t *manifest = test_manifest();
    is(load(&l, manifest, NULL, NULL), KVF_OK, "an information log as long");
    const kvf_kernel *kernel;
    kvf_kernel_info info = {.log = ""};
    if (kvf_library_kernel(l.library, "swa", "swa_write", &kernel, &error) == KVF_OK)
        kvf_kernel_describe(kernel, &info);
    is(strlen(info.log), 16383, "is cut too");
    unload(&l);

    fake = fake_reset();
    fake->capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    is(try_load(), KVF_ERROR_CAPTURE, "while the stream is captured");
    contains(error.text, "do this before the capture", "with advice");

    fake = fake_reset();
    fake->param_shift = 4;
    is(try_load(), KVF_ERROR_BUNDLE, "parameters that lie elsewhere");
    contains(error.text, "parameter tokens lies at 4 with 4 bytes, the manifest says 0 with 4", "");
    ok(strcmp(error.kernel, "csa/swa_write") == 0, "the kernel is named");
    fake = fake_reset();
    fake->param_count_add = -1;
    is(try_load(), KVF_ERROR_BUNDLE, "a parameter too few");
    contains(error.text, "has 4 parameters, the manifest says 5", "");
    fake = fake_reset();
    fake->param_count_add = 1;
    is(try_load(), KVF_ERROR_BUNDLE, "a parameter too many");
    contains(error.text, "more than the 5 parameters", "");

    fake = fake_reset();
    fake->max_threads = 64;
    is(try_load(), KVF_ERROR_LIMIT, "a block larger than the device's");
    contains(error.text, "wants 128 threads a block, the device can give it 64", "");
    fake = fake_reset();
    fake->static_shared = 232448 - 65535;
    is(try_load(), KVF_ERROR_LIMIT, "more shared memory than the device's");
    contains(error.text, "wants 232449 bytes of shared memory, the device has 232448", "");
    fake = fake_reset();
    fake->static_shared = 232448 - 65536;
    is(try_load(), KVF_OK, "exactly the device's");

    test_set(manifest, "modules.1.kernels.0", "entry", json_string("nowhere"));
    fake = fake_reset();
    is(load(&l, manifest, NULL, NULL), KVF_ERROR_BUNDLE, "an entry that the PTX lacks");
    contains(error.text, "swa.sm_80.ptx has no entry nowhere", "");
    unload(&l);
    ok(nothing_lives(), "nothing is left behind");
    json_decref(manifest);
}

/* ---- cubins ---- */

static kvf_status load_cubin(struct loaded *l, const char *target, bool *is_cubin) {
    static const char cubin[] = "CUBIN" TEST_SWA_PTX;
    json_t *manifest = test_manifest();
    json_array_remove(test_at(manifest, "modules"), 0);
    test_set(manifest, "modules.0", "target", json_string(target));
    test_set(manifest, "modules.0", "cubin",
             json_pack("{s:s,s:i,s:s}", "file", "swa.cubin", "bytes", (int)sizeof cubin - 1,
                       "sha256",
                       "9f99bd2a0a9f6531c12c51243300996ee0f32374d8954a74eca316b1a3441fcc"));
    char *text = test_text(manifest, 0);
    json_decref(manifest);
    const kvf_file files[] = {{"manifest.json", text, strlen(text)},
                              {"swa.cubin", cubin, sizeof cubin - 1},
                              {"swa.sm_80.ptx", TEST_SWA_PTX, strlen(TEST_SWA_PTX)}};
    *l = (struct loaded){0};
    kvf_status status = kvf_bundle_open_memory(files, 3, &l->bundle, &error);
    free(text);
    if (status == KVF_OK)
        status = kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), &l->driver, &error);
    if (status == KVF_OK) status = kvf_device_open(l->driver, 0, &l->device, &error);
    if (status == KVF_OK)
        status = kvf_library_load(l->device, l->bundle, NULL, NULL, &l->library, &error);
    const kvf_kernel *kernel;
    kvf_kernel_info info = {0};
    if (status == KVF_OK &&
        kvf_library_kernel(l->library, "swa", "swa_write", &kernel, &error) == KVF_OK)
        kvf_kernel_describe(kernel, &info);
    *is_cubin = info.cubin;
    return status;
}

static void test_cubin(void) {
    struct loaded l;
    bool is_cubin;
    fake = fake_reset();
    ok(load_cubin(&l, "sm_90", &is_cubin) == KVF_OK && is_cubin && fake->modules == 1,
       "the cubin is taken on the chip it was made for");
    unload(&l);
    fake = fake_reset();
    ok(load_cubin(&l, "sm_80", &is_cubin) == KVF_OK && !is_cubin, "the PTX on another");
    unload(&l);
    fake = fake_reset();
    fake->cubin_code = 209;
    ok(load_cubin(&l, "sm_90", &is_cubin) == KVF_OK && !is_cubin && fake->modules == 1,
       "and where the driver does not take the cubin");
    unload(&l);
    fake = fake_reset();
    fake->cubin_code = 900;
    is(load_cubin(&l, "sm_90", &is_cubin), KVF_ERROR_CAPTURE, "but not while one is captured");
    unload(&l);
    ok(nothing_lives(), "nothing is left behind");
}

/* ---- launches ---- */

struct csa_swa_write {
    uint32_t tokens;
    kvf_address latent;
    uint64_t stride;
    float scale;
    kvf_address out;
};

struct csa_state_reset {
    int32_t count;
    uint32_t layers;
    kvf_address list;
};

static void test_launch(void) {
    struct loaded l;
    json_t *manifest = test_manifest();
    fake = fake_reset();
    is(load(&l, manifest, NULL, NULL), KVF_OK, "a bundle to launch from");
    const kvf_kernel *write, *reset;
    kvf_library_kernel(l.library, "csa", "swa_write", &write, NULL);
    kvf_library_kernel(l.library, "csa", "state_reset", &reset, NULL);
    kvf_stream stream = (kvf_stream)0x77;

    struct csa_swa_write p;
    memset(&p, 0, sizeof p);
    p.tokens = 9;
    p.latent = 0x1000;
    p.stride = 128;
    p.scale = 0.5f;
    p.out = 0x2001;
    fake->capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE; /* launching into a graph is the point */
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_OK, "a launch");
    ok(fake->launches == 1 && fake->grid[0] == 3 && fake->grid[1] == 1 && fake->grid[2] == 1 &&
           fake->block == 128 && fake->shared == 0,
       "has the manifest's grid and block");
    ok(fake->stream == stream && fake->params_bytes == sizeof p && !fake->pushed,
       "goes to the caller's stream");
    same(fake->params, &p, sizeof p, "with the caller's parameters");
    p.out = 0;
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_OK, "an optional pointer may be null");
    p.tokens = 0;
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_OK, "an empty grid succeeds");
    is(fake->launches, 2, "without reaching the driver");
    p.tokens = 4096;
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_OK, "as many tokens as allowed");
    is(fake->grid[0], 1024, "in whole blocks");

    int before = fake->calls;
    p.tokens = 4097;
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_ERROR_LIMIT, "one more is refused");
    contains(error.text, "launch of csa/swa_write: parameter tokens is 4097, at most 4096", "");
    ok(strcmp(error.kernel, "csa/swa_write") == 0, "the kernel is named");
    p.tokens = 1;
    p.latent = 0;
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_ERROR_ARGUMENT, "a null pointer");
    contains(error.text, "parameter latent is a null pointer", "");
    p.latent = 0x1008;
    is(kvf_launch(write, stream, &p, sizeof p, &error), KVF_ERROR_ARGUMENT, "a misaligned one");
    contains(error.text, "parameter latent is 0x1008, not a multiple of 16", "");
    p.latent = 0x1000;
    is(kvf_launch(write, stream, &p, sizeof p - 8, &error), KVF_ERROR_ARGUMENT,
       "a struct too small");
    contains(error.text, "32 bytes, the kernel takes 40", "");
    is(kvf_launch(NULL, stream, &p, sizeof p, &error), KVF_ERROR_ARGUMENT, "no kernel");
    is(kvf_launch(write, stream, NULL, sizeof p, &error), KVF_ERROR_ARGUMENT, "no parameters");
    struct csa_state_reset r = {.count = -1, .layers = 1, .list = 0x4000};
    is(kvf_launch(reset, stream, &r, sizeof r, &error), KVF_ERROR_ARGUMENT, "a negative count");
    contains(error.text, "parameter count is -1", "");
    r.count = 5;
    r.layers = 65536;
    is(kvf_launch(reset, stream, &r, sizeof r, &error), KVF_ERROR_LIMIT, "too large a grid");
    contains(error.text, "the grid's dimension y is 65536, the device allows 65535", "");
    is(fake->calls, before, "none of them reached the driver");
    r.layers = 65535;
    is(kvf_launch(reset, NULL, &r, sizeof r, NULL), KVF_OK, "the largest grid");
    ok(fake->grid[0] == 5 && fake->grid[1] == 65535 && fake->shared == 65536, "as asked");

    fake->fail_in = 3; /* current, push, launch */
    fake->fail_code = 719;
    is(kvf_launch(reset, NULL, &r, sizeof r, &error), KVF_ERROR_DRIVER, "a launch that fails");
    ok(error.driver_code == 719 && strcmp(error.kernel, "csa/state_reset") == 0 && !fake->pushed,
       "is reported with code and kernel");
    unload(&l);
    json_decref(manifest);
}

/* Up to 48 KiB of shared memory are there without asking. */
static void test_shared(void) {
    static const struct {
        int fixed, dynamic, asked;
    } cases[] = {{0, 49152, 0}, {0, 49153, 49153}, {1, 49152, 49152}, {49153, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct loaded l;
        json_t *manifest = test_manifest();
        test_set(manifest, "modules.0.kernels.1", "shared", json_integer(cases[i].dynamic));
        fake = fake_reset();
        fake->static_shared = cases[i].fixed;
        kvf_status status = load(&l, manifest, NULL, NULL);
        ok(status == KVF_OK && fake->dynamic_shared == cases[i].asked,
           "%d fixed and %d dynamic bytes of shared memory: asked for %d", cases[i].fixed,
           cases[i].dynamic, cases[i].asked);
        unload(&l);
        json_decref(manifest);
    }
}

/* Kernels that belong to no layer type. */
static void test_common(void) {
    struct loaded l;
    json_t *manifest = test_manifest();
    test_set(manifest, "modules.1", "type", json_string("common"));
    fake = fake_reset();
    is(load(&l, manifest, NULL, NULL), KVF_OK, "a common module loads");
    const kvf_kernel *kernel;
    is(kvf_library_kernel(l.library, "common", "swa_write", &kernel, &error), KVF_OK,
       "its kernels are found");
    is(kvf_library_kernel(l.library, "swa", "swa_write", &kernel, &error), KVF_ERROR_NOT_FOUND,
       "under no other name");
    unload(&l);
    json_decref(manifest);
}

/* A kernel without parameters needs no struct. */
static void test_no_params(void) {
    struct loaded l;
    json_t *manifest = test_manifest();
    json_array_remove(test_at(manifest, "modules"), 0);
    test_set(manifest, "modules.0.kernels.0", "params", json_array());
    test_set(manifest, "modules.0.kernels.0", "params_bytes", json_integer(0));
    test_set(manifest, "modules.0.kernels.0.grid.0", "const", json_integer(7));
    fake = fake_reset();
    fake->param_count_add = -2; /* its PTX has two */
    is(load(&l, manifest, NULL, NULL), KVF_OK, "a kernel without parameters loads");
    const kvf_kernel *kernel = NULL;
    kvf_library_kernel(l.library, "swa", "swa_write", &kernel, &error);
    is(kvf_launch(kernel, NULL, NULL, 0, &error), KVF_OK, "and is launched");
    ok(fake->launches == 1 && fake->grid[0] == 7 && fake->params_bytes == 0, "with nothing");
    unload(&l);
    json_decref(manifest);
}

/* ---- a bundle that the generator wrote, where the build has made one ---- */

/* Of this thread's own work: the machine may be busy with other tests. */
static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/*
 * The fake finds parameters by its own reading of the PTX, so this compares manifest and PTX; and
 * as it compiles nothing, the time is the library's own.
 */
static void test_real_bundle(void) {
    const char *directory = test_beside("../deepseek-v4-flash-ring");
    if (access(directory, R_OK) != 0) {
        tap_skip(2, "no bundle has been built");
        return;
    }
    struct loaded l = {0};
    double best_open = 1e9, best_load = 1e9;
    kvf_status status = KVF_OK;
    for (int i = 0; i < 5 && status == KVF_OK; i++) {
        char path[4400];
        snprintf(path, sizeof path, "%s", test_beside("../deepseek-v4-flash-ring"));
        l = (struct loaded){0};
        fake = fake_reset();
        double start = milliseconds();
        status = kvf_bundle_open(path, &l.bundle, &error);
        double opened = milliseconds();
        if (status == KVF_OK)
            status = kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), &l.driver, &error);
        if (status == KVF_OK) status = kvf_device_open(l.driver, 0, &l.device, &error);
        double before = milliseconds();
        if (status == KVF_OK)
            status = kvf_library_load(l.device, l.bundle, NULL, NULL, &l.library, &error);
        double loaded = milliseconds();
        if (opened - start < best_open) best_open = opened - start;
        if (loaded - before < best_load) best_load = loaded - before;
        unload(&l);
    }
    if (!is(status, KVF_OK, "DeepSeek-V4-Flash loads, its PTX agreeing with its manifest"))
        tap_note("%s", error.text);
    ok(best_load < 10 * TIME_SCALE, "in less than 10 ms, the driver apart: %.2f ms", best_load);
    tap_note("opening it, with every digest, took %.2f ms", best_open);
}

/* ---- every driver call failing in turn ---- */

/*
 * Calls whose failure nobody can be told of: all of giving back, and the popping of a context. And
 * one whose failure is an answer: "invalid value" is how the driver says that there is no such
 * parameter.
 */
static bool may_pass(int call, int code, int work_calls) {
    return call > work_calls || strcmp(fake->failed_call, "cuCtxPopCurrent_v2") == 0 ||
           (code == CUDA_ERROR_INVALID_VALUE &&
            strcmp(fake->failed_call, "cuFuncGetParamInfo") == 0);
}

static int work_calls; /* of the last whole life, before anything was given back */

/* Load, make a cache, launch, and give everything back; the first status that is not OK. */
static kvf_status whole_life(json_t *manifest) {
    struct loaded l;
    kvf_cache *cache = NULL;
    kvf_status status = load(&l, manifest, NULL, NULL);
    kvf_cache_options options = {.slots = 3};
    if (status == KVF_OK) status = kvf_cache_create(l.library, &options, NULL, &cache, &error);
    const kvf_kernel *reset;
    if (status == KVF_OK)
        status = kvf_library_kernel(l.library, "csa", "state_reset", &reset, &error);
    struct csa_state_reset r = {.count = 1, .layers = 1, .list = 0x4000};
    if (status == KVF_OK) status = kvf_launch(reset, NULL, &r, sizeof r, &error);
    if (status == KVF_OK) work_calls = fake->calls;
    kvf_cache_destroy(cache);
    unload(&l);
    return status;
}

static void test_failures(int code) {
    json_t *manifest = test_manifest();
    fake = fake_reset();
    kvf_status status = whole_life(manifest);
    int failed = 0, passed = 0, bad = status != KVF_OK;
    for (int call = 1, last = fake->calls; call <= last; call++) {
        fake = fake_reset();
        fake->fail_in = call;
        fake->fail_code = code;
        status = whole_life(manifest);
        if (status == KVF_OK && may_pass(call, code, work_calls)) {
            passed++;
            continue;
        }
        failed++;
        if (status != KVF_OK && error.status == status && error.text[0] && nothing_lives())
            continue;
        bad++;
        tap_note("call %d, %s: status %d, %s; left %d modules, %d contexts, %d pushed, %zu bytes",
                 call, fake->failed_call, status, error.text, fake->modules, fake->retained,
                 fake->pushed, fake->memory);
    }
    ok(failed > 55 && passed > 8 && bad == 0,
       "code %d from each of %d calls is reported and leaves nothing behind", code, failed);
    json_decref(manifest);
}

int main(void) {
    tap_plan(138);
    test_good();
    test_contexts();
    test_device_arguments();
    test_targets();
    test_partial_target();
    test_bad_loads();
    test_cubin();
    test_launch();
    test_shared();
    test_common();
    test_no_params();
    test_real_bundle();
    test_failures(CUDA_ERROR_INVALID_VALUE);
    test_failures(700);
    test_failures(CUDA_ERROR_STUB_LIBRARY);
    test_failures(900);
    return tap_done();
}
