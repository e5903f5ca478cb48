/*
 * A state cache in a user's program: two requests write their window rows at layer 0, one row's
 * position is read back, and a request that ends gives its slot back.
 *
 * Sizes and launches come from the bundle's header. Your program would link libcuda for memory and
 * copies; this one takes them from the driver that the library chose, a GPU's or the executor.
 */
#include "deepseek-v4-flash-ring.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = DEEPSEEK_V4_FLASH_RING_SWA_HEAD_DIM, ROPE = DEEPSEEK_V4_FLASH_RING_SWA_ROPE_DIM };
enum { TOKENS = 8, REQUESTS = 2, SLOTS = 4, POSITIONS = 64, LAYER = 0 };
static kvf_error error;
static void *cuda;
/* A function of the driver, by its name and the types of its parameters. */
#define CUDA(name, ...) ((int (*)(__VA_ARGS__))dlsym(cuda, name))

/* The library says what went wrong in `error`, the driver with a number. */
static void check(kvf_status status) {
    if (status) fprintf(stderr, "%s: %s\n", kvf_status_name(status), error.text), exit(1);
}

static void check_cuda(int result) {
    if (result) fprintf(stderr, "CUDA error %d\n", result), exit(1);
}

/* Make the device's primary context current: the library then uses it as well. */
static void use_cuda(const kvf_driver *driver) {
    void *context;
    cuda = dlopen(kvf_driver_path(driver), RTLD_NOW);
    if (!cuda) fprintf(stderr, "%s\n", dlerror()), exit(1);
    check_cuda(CUDA("cuDevicePrimaryCtxRetain", void **, int)(&context, 0));
    check_cuda(CUDA("cuCtxSetCurrent", void *)(context));
}

static kvf_address memory[16], *next = memory;
static kvf_address upload(const void *from, size_t bytes) {
    kvf_address *to = next++;
    check_cuda(CUDA("cuMemAlloc_v2", kvf_address *, size_t)(to, bytes));
    check_cuda(CUDA("cuMemcpyHtoD_v2", kvf_address, const void *, size_t)(*to, from, bytes));
    return *to;
}

/* Put an array of the layer, and its stride from slot to slot, into a kernel's parameters. */
static kvf_array array;
#define ARRAY(params, name)                                                                        \
    (check(kvf_cache_array(cache, LAYER, #name, &array, &error)), (params).name = array.base,      \
     (params).name##_stride = array.slot_stride)

int main(int argc, char **argv) {
    kvf_bundle *bundle;
    kvf_driver *driver;
    kvf_device *device;
    kvf_library *library;
    kvf_cache *cache;
    deepseek_v4_flash_ring_kernels kernels;
    struct kvf_deepseek_v4_flash_ring_swa_swa_write_params write = {
        .tokens = TOKENS, .requests = REQUESTS, .slots = SLOTS, .positions = POSITIONS};
    struct kvf_deepseek_v4_flash_ring_swa_state_reset_params reset = {
        .count = 1, .slots = SLOTS, .layers = 1};

    /* Open, load every kernel, seal; then the memory of four requests at all layers. */
    check(kvf_bundle_open(argc > 1 ? argv[1] : "build/deepseek-v4-flash-ring", &bundle, &error));
    check(kvf_driver_open(KVF_DRIVER_AUTO, NULL, &driver, &error));
    use_cuda(driver);
    check(kvf_device_open(driver, 0, &device, &error));
    check(kvf_library_load(device, bundle, NULL, NULL, &library, &error));
    check(deepseek_v4_flash_ring_find(library, &kernels, &error));
    check(kvf_cache_create(library, &(kvf_cache_options){.slots = SLOTS}, NULL, &cache, &error));

    /* The batch: five tokens of one request and three of the other, from position 0. */
    uint32_t type, index;
    int32_t stored, slot[REQUESTS], cu_tokens[REQUESTS + 1] = {0, 5, 8};
    int32_t batch_id[TOKENS] = {0, 0, 0, 0, 0, 1, 1, 1}, position[] = {0, 1, 2, 3, 4, 0, 1, 2};
    for (int r = 0; r < REQUESTS; r++) check(kvf_slot_acquire(cache, &slot[r], &error));
    write.batch_id = upload(batch_id, sizeof batch_id);
    write.position = upload(position, sizeof position);
    write.cu_tokens = upload(cu_tokens, sizeof cu_tokens);
    write.state_slot = reset.slot_list = upload(slot, sizeof slot);

    /* What a model brings: latents in bf16, here numbers below 2, and norm weights. */
    static uint16_t latent[TOKENS * DIM];
    static float weight[DIM], rope[POSITIONS * ROPE];
    for (int i = 0; i < TOKENS * DIM; i++)
        latent[i] = (uint16_t)(0x3f00 + i % 251), weight[i % DIM] = 1;
    check(kvf_bundle_layer(bundle, LAYER, &type, &index));
    check(kvf_rope_table(bundle, type, POSITIONS, rope, &error));
    write.latent = upload(latent, sizeof latent);
    write.latent_stride = DIM * sizeof latent[0];
    write.norm_weight = upload(weight, sizeof weight);
    write.rope = upload(rope, sizeof rope);

    ARRAY(write, swa_fp8), ARRAY(write, swa_rope), ARRAY(write, swa_inv);
    ARRAY(write, swa_pos), ARRAY(write, swa_head);
    check(deepseek_v4_flash_ring_swa_swa_write(&kernels, NULL, &write, &error));

    /* What does the third row of the second request's ring hold? A copy waits for the kernel. */
    kvf_address third =
        write.swa_pos + (uint64_t)slot[1] * write.swa_pos_stride + 2 * sizeof stored;
    check_cuda(CUDA("cuMemcpyDtoH_v2", void *, kvf_address, size_t)(&stored, third, 4));
    printf("slot %d row 2 holds position %d\n", slot[1], stored);

    /* The first request ends: its slot becomes as new in the layer used, and is given back. */
    ARRAY(reset, swa_pos), ARRAY(reset, swa_head);
    check(deepseek_v4_flash_ring_swa_state_reset(&kernels, NULL, &reset, &error));
    check_cuda(CUDA("cuMemcpyDtoH_v2", void *, kvf_address, size_t)(&stored, reset.swa_pos, 4));
    check(kvf_slot_release(cache, slot[0], &error));
    printf("slot %d is as new (%d), %u slots are free\n", slot[0], stored, kvf_slots_free(cache));

    while (next > memory) check_cuda(CUDA("cuMemFree_v2", kvf_address)(*--next));
    kvf_cache_destroy(cache);
    kvf_library_unload(library);
    kvf_device_close(device);
    kvf_driver_close(driver);
    kvf_bundle_close(bundle);
    return stored == -1 ? 0 : 1;
}
