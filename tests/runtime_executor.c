/*
 * The library on the executor with a bundle that the generator wrote: what may and may not be done
 * while a stream is captured into a graph, and that a captured launch is the launch.
 */
#include "device.h"
#include "fake/test_bundle.h"
#include "tap.h"

static kvf_error error;
static kvf_driver *driver;
static kvf_device *device;
static kvf_bundle *bundle;
static kvf_library *library;
static kvf_cache *cache;

enum { SLOTS = 3, SLOT = 1, MARK = 77 };

static bool good(kvf_status status) {
    if (status != KVF_OK) tap_note("%s: %s", kvf_status_name(status), error.text);
    return status == KVF_OK;
}

static void put(unsigned char *params, const kvf_param_info *param, uint64_t value) {
    uint32_t word = (uint32_t)value;
    memcpy(params + param->offset, param->size == 8 ? (void *)&value : (void *)&word, param->size);
}

static bool ends_with(const char *text, const char *end) {
    size_t bytes = strlen(text), of_end = strlen(end);
    return bytes >= of_end && strcmp(text + bytes - of_end, end) == 0;
}

/* The array that a parameter's name begins with: "tail_len_layer_stride" is of tail_len. */
static bool array_of(uint32_t layer, const char *param, kvf_array *out) {
    char name[64];
    snprintf(name, sizeof name, "%s", param);
    if (ends_with(name, "_layer_stride"))
        name[strlen(name) - strlen("_layer_stride")] = 0;
    else if (ends_with(name, "_stride"))
        name[strlen(name) - strlen("_stride")] = 0;
    return kvf_cache_array(cache, layer, name, out, NULL) == KVF_OK;
}

/* state_reset's parameters for one slot of every layer of the type, filled by name. */
static void fill(const kvf_kernel *kernel, uint32_t layer, uint32_t layers, kvf_address list,
                 unsigned char *params) {
    kvf_param_info param;
    kvf_array array;
    for (uint32_t i = 0; kvf_kernel_param(kernel, i, &param) == KVF_OK; i++) {
        if (strcmp(param.name, "count") == 0)
            put(params, &param, 1);
        else if (strcmp(param.name, "slots") == 0)
            put(params, &param, SLOTS);
        else if (strcmp(param.name, "layers") == 0)
            put(params, &param, layers);
        else if (strcmp(param.name, "slot_list") == 0)
            put(params, &param, list);
        else if (array_of(layer, param.name, &array))
            put(params, &param,
                strcmp(param.type, "ptr") == 0           ? array.base
                : ends_with(param.name, "_layer_stride") ? array.layer_stride
                                                         : array.slot_stride);
    }
}

/* tail_len of every slot of a layer is as expected. */
static bool holds(const kvf_array *array, int32_t in_slot, int32_t in_others) {
    int32_t values[SLOTS];
    if (driver->cuMemcpyDtoH_v2(values, array->base, sizeof values) != CUDA_SUCCESS) return false;
    for (int i = 0; i < SLOTS; i++)
        if (values[i] != (i == SLOT ? in_slot : in_others)) return false;
    return true;
}

static void test_capture(uint32_t layer, uint32_t layers, const kvf_kernel *kernel) {
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr list = 0;
    const int32_t slot = SLOT;
    kvf_array array;
    unsigned char params[4096] = {0};
    kvf_kernel_info info;
    kvf_kernel_describe(kernel, &info);
    kvf_cache_array(cache, layer, "tail_len", &array, NULL);
    ok(driver->cuMemAlloc_v2(&list, sizeof slot) == CUDA_SUCCESS &&
           driver->cuMemcpyHtoD_v2(list, &slot, sizeof slot) == CUDA_SUCCESS &&
           driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           driver->cuMemsetD32Async(array.base, MARK, SLOTS, stream) == CUDA_SUCCESS &&
           driver->cuStreamSynchronize(stream) == CUDA_SUCCESS,
       "a stream, and a mark in every slot");
    ok(holds(&array, MARK, MARK), "the mark is there");
    fill(kernel, layer, layers, list, params);

    driver->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    kvf_library *second = NULL;
    kvf_cache *third = NULL;
    kvf_cache_options options = {.slots = 1};
    is(kvf_library_load(device, bundle, stream, NULL, &second, &error), KVF_ERROR_CAPTURE,
       "nothing is loaded while the stream is captured");
    is(kvf_cache_create(library, &options, stream, &third, &error), KVF_ERROR_CAPTURE,
       "nor is a cache made");
    ok(!second && !third, "nothing was handed out");
    ok(good(kvf_launch(kernel, stream, params, info.params_bytes, &error)), "a launch is captured");
    ok(driver->cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph,
       "the capture is still sound");
    ok(holds(&array, MARK, MARK), "and has run nothing");
    ok(driver->cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS &&
           driver->cuGraphLaunch(exec, stream) == CUDA_SUCCESS &&
           driver->cuStreamSynchronize(stream) == CUDA_SUCCESS,
       "the graph runs");
    ok(holds(&array, 0, MARK), "and resets the one slot, no other");

    driver->cuMemsetD32Async(array.base, MARK, SLOTS, stream);
    ok(good(kvf_launch(kernel, stream, params, info.params_bytes, &error)) &&
           driver->cuStreamSynchronize(stream) == CUDA_SUCCESS && holds(&array, 0, MARK),
       "a plain launch does the same");
    driver->cuGraphExecDestroy(exec);
    driver->cuGraphDestroy(graph);
    driver->cuStreamDestroy_v2(stream);
    driver->cuMemFree_v2(list);
}

/* A layer whose type has tails; false if the bundle has none. */
static bool find_layer(uint32_t *layer, kvf_type_info *type) {
    kvf_model_info model;
    uint32_t number, of_type;
    kvf_bundle_model(bundle, &model);
    for (*layer = 0; *layer < model.layers; ++*layer) {
        kvf_bundle_layer(bundle, *layer, &number, &of_type);
        kvf_bundle_type(bundle, number, type);
        if (type->ratio && of_type == 0) return true;
    }
    return false;
}

int main(void) {
    char path[4400];
    snprintf(path, sizeof path, "%s", test_beside("../deepseek-v4-flash-ring"));
    if (access(path, R_OK) != 0) tap_skip_all("no bundle has been built");
    if (kvf_driver_open(KVF_DRIVER_EXECUTOR, NULL, &driver, &error) != KVF_OK)
        tap_skip_all("no executor has been built");
    if (!driver->cuGraphLaunch || !driver->cuStreamBeginCapture_v2 || !driver->cuMemcpyDtoH_v2)
        tap_skip_all("the executor has no graphs");
    tap_plan(15);
    is(kvf_driver_kind_of(driver), KVF_DRIVER_EXECUTOR, "the executor is known as such");
    kvf_cache_options options = {.slots = SLOTS};
    if (!ok(good(kvf_bundle_open(path, &bundle, &error)) &&
                good(kvf_device_open(driver, 0, &device, &error)) &&
                good(kvf_library_load(device, bundle, NULL, NULL, &library, &error)) &&
                good(kvf_cache_create(library, &options, NULL, &cache, &error)),
            "a generated bundle is loaded"))
        return 1;
    uint32_t layer = 0;
    kvf_type_info type = {0};
    const kvf_kernel *kernel = NULL;
    bool found = find_layer(&layer, &type) &&
                 good(kvf_library_kernel(library, type.name, "state_reset", &kernel, &error));
    if (!ok(found, "it has a layer type with tails")) return 1;
    /* Calls of our own need the context too. */
    bool pushed = false;
    ok(good(device_enter(device, &pushed, &error)), "the context is current");
    test_capture(layer, type.layers + type.draft_layers, kernel);
    device_leave(device, pushed);
    kvf_cache_destroy(cache);
    kvf_library_unload(library);
    kvf_device_close(device);
    kvf_bundle_close(bundle);
    kvf_driver_close(driver);
    return tap_done();
}
