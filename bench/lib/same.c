#include "same.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deepseek-v4-flash-ring.h"
#include "driver.h"
#include "process.h"

#define FLASH(name) DEEPSEEK_V4_FLASH_RING_SWA_##name

typedef struct kvf_deepseek_v4_flash_ring_swa_swa_write_params params;

enum {
    TOKENS = 200, /* more than a ring of one request, which wraps */
    REQUESTS = 3,
    SLOTS = 4,
    POSITIONS = 512,
    PER_BLOCK = 4,
    DIM = FLASH(HEAD_DIM),
    ROPE = FLASH(ROPE_DIM),
    OUTPUTS = 5,
};

/* Bytes a slot has of each array that is written. */
static const size_t slot_bytes[OUTPUTS] = {FLASH(STATE_SWA_FP8_BYTES), FLASH(STATE_SWA_ROPE_BYTES),
                                           FLASH(STATE_SWA_INV_BYTES), FLASH(STATE_SWA_POS_BYTES),
                                           FLASH(STATE_SWA_HEAD_BYTES)};
static const char *const output_name[OUTPUTS] = {"swa_fp8", "swa_rope", "swa_inv", "swa_pos",
                                                 "swa_head"};

struct input {
    uint16_t latent[TOKENS][DIM];
    float weight[DIM], rope[POSITIONS][ROPE];
    int32_t batch[TOKENS], position[TOKENS], cu_tokens[REQUESTS + 1], slot[REQUESTS];
};

struct same_run {
    const kvf_driver *driver;
    const struct input *input;
    uint8_t *result[2]; /* of both kernels: the outputs one after another */
    size_t bytes;       /* of a result */
    char *said;
    size_t room;
};

__attribute__((format(printf, 2, 3))) static bool say(struct same_run *run, const char *format,
                                                      ...) {
    va_list args;
    va_start(args, format);
    (void)vsnprintf(run->said, run->room, format, args);
    va_end(args);
    return false;
}

/* ---- the input ---- */

static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Magnitudes from far below to far above 1, and now and then a NaN, an infinity, a subnormal. */
static uint16_t draw_bf16(uint32_t *state) {
    static const uint16_t odd[] = {0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffff, 1, 0x7f7f};
    uint32_t bits = draw(state);
    if (bits % 1009 == 0) return odd[bits / 1009 % 8];
    uint32_t exponent = 118 + draw(state) % 12;
    return (uint16_t)((bits & 0x807f) | exponent << 7);
}

static float draw_float(uint32_t *state, float least, float most) {
    return least + (most - least) * (float)(draw(state) & 0xffff) / 65535;
}

static void fill_input(struct input *in) {
    /* A long request that wraps its ring, one of a single token, one in the middle of its ring. */
    static const int32_t length[REQUESTS] = {150, 1, 46}, first[REQUESTS] = {90, 0, 300};
    uint32_t state = 1;
    int32_t t = 0;
    for (int i = 0; i < TOKENS; i++) in->batch[i] = in->position[i] = -1; /* padding at the end */
    for (int r = 0; r < REQUESTS; r++) {
        in->cu_tokens[r] = t;
        in->slot[r] = (r + 2) % SLOTS;
        for (int32_t i = 0; i < length[r]; i++, t++) {
            in->batch[t] = r;
            in->position[t] = first[r] + i;
        }
    }
    in->cu_tokens[REQUESTS] = t;
    for (int i = 0; i < TOKENS; i++)
        for (int e = 0; e < DIM; e++) in->latent[i][e] = i == 7 ? 0 : draw_bf16(&state);
    for (int e = 0; e < DIM; e++) in->weight[e] = draw_float(&state, -2, 2);
}

/* ---- one kernel ---- */

static bool good(struct same_run *run, CUresult code, const char *call, const char *file) {
    if (code == CUDA_SUCCESS) return true;
    const char *name = driver_result_name(code);
    return say(run, "%s: %s gave %s", file, call, name ? name : "an error");
}

/* Device memory of one launch, freed together. */
struct memory {
    struct same_run *run;
    CUdeviceptr block[16];
    int count;
    bool failed;
};

static CUdeviceptr put(struct memory *memory, const void *data, size_t bytes) {
    const kvf_driver *driver = memory->run->driver;
    CUdeviceptr at = 0;
    if (driver->cuMemAlloc_v2(&at, bytes) != CUDA_SUCCESS) {
        memory->failed = true;
        return 0;
    }
    memory->block[memory->count++] = at;
    CUresult code = data ? driver->cuMemcpyHtoD_v2(at, data, bytes)
                         : driver->cuMemsetD8Async(at, 0xa5, bytes, NULL);
    if (code != CUDA_SUCCESS) memory->failed = true;
    return at;
}

static params make_params(struct memory *memory, CUdeviceptr out[OUTPUTS]) {
    const struct input *in = memory->run->input;
    for (int i = 0; i < OUTPUTS; i++) out[i] = put(memory, NULL, SLOTS * slot_bytes[i]);
    return (params){
        .tokens = TOKENS,
        .requests = REQUESTS,
        .slots = SLOTS,
        .positions = POSITIONS,
        .latent = put(memory, in->latent, sizeof in->latent),
        .latent_stride = sizeof in->latent[0],
        .norm_weight = put(memory, in->weight, sizeof in->weight),
        .rope = put(memory, in->rope, sizeof in->rope),
        .batch_id = put(memory, in->batch, sizeof in->batch),
        .position = put(memory, in->position, sizeof in->position),
        .cu_tokens = put(memory, in->cu_tokens, sizeof in->cu_tokens),
        .state_slot = put(memory, in->slot, sizeof in->slot),
        .swa_fp8 = out[0],
        .swa_fp8_stride = slot_bytes[0],
        .swa_rope = out[1],
        .swa_rope_stride = slot_bytes[1],
        .swa_inv = out[2],
        .swa_inv_stride = slot_bytes[2],
        .swa_pos = out[3],
        .swa_pos_stride = slot_bytes[3],
        .swa_head = out[4],
        .swa_head_stride = slot_bytes[4],
    };
}

static bool launch(struct same_run *run, CUfunction function, const char *file, uint8_t *result) {
    const kvf_driver *driver = run->driver;
    struct memory memory = {.run = run};
    CUdeviceptr out[OUTPUTS];
    params p = make_params(&memory, out);
    size_t bytes = sizeof p;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    bool fine = memory.failed ? say(run, "no device memory") : true;
    if (fine)
        fine = good(run,
                    driver->cuLaunchKernel(function, (TOKENS + PER_BLOCK - 1) / PER_BLOCK, 1, 1,
                                           32 * PER_BLOCK, 1, 1, 0, NULL, NULL, extra),
                    "cuLaunchKernel", file);
    if (fine) fine = good(run, driver->cuCtxSynchronize(), "cuCtxSynchronize", file);
    for (int i = 0; fine && i < OUTPUTS; i++) {
        fine = good(run, driver->cuMemcpyDtoH_v2(result, out[i], SLOTS * slot_bytes[i]),
                    "cuMemcpyDtoH", file);
        result += SLOTS * slot_bytes[i];
    }
    for (int i = 0; i < memory.count; i++) (void)driver->cuMemFree_v2(memory.block[i]);
    return fine;
}

static bool run_kernel(struct same_run *run, const struct same_kernel *kernel, uint8_t *result) {
    const kvf_driver *driver = run->driver;
    CUmodule module;
    CUfunction function;
    char *text = process_read(kernel->file, NULL);
    if (!text) return say(run, "%s cannot be read", kernel->file);
    bool fine = good(run, driver->cuModuleLoadDataEx(&module, text, 0, NULL, NULL),
                     "cuModuleLoadDataEx", kernel->file);
    free(text);
    if (!fine) return false;
    fine = good(run, driver->cuModuleGetFunction(&function, module, kernel->entry),
                "cuModuleGetFunction", kernel->file) &&
           launch(run, function, kernel->file, result);
    (void)driver->cuModuleUnload(module);
    return fine;
}

/* ---- both ---- */

static enum same compare(struct same_run *run) {
    size_t written = 0;
    const uint8_t *a = run->result[0], *b = run->result[1];
    for (int i = 0; i < OUTPUTS; i++)
        for (size_t at = 0; at < SLOTS * slot_bytes[i]; at++, a++, b++) {
            written += *a != 0xa5;
            if (*a == *b) continue;
            (void)say(run, "%s differs at byte %zu: %02x and %02x", output_name[i], at, *a, *b);
            return SAME_NO;
        }
    /* The requests write 128, 1 and 46 of the slots' 512 rows: about a third of the bytes. */
    if (written < run->bytes / 4) {
        (void)say(run, "only %zu of %zu bytes were written", written, run->bytes);
        return SAME_NO;
    }
    (void)say(run, "%zu bytes equal, %zu of them written", run->bytes, written);
    return SAME_YES;
}

static enum same run_both(struct same_run *run, const struct same_kernel kernels[2]) {
    const kvf_driver *driver = run->driver;
    CUdevice device;
    CUcontext context;
    if (!good(run, driver->cuDeviceGet(&device, 0), "cuDeviceGet", "device 0") ||
        !good(run, driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain",
              "device 0"))
        return SAME_UNKNOWN;
    enum same same = SAME_UNKNOWN;
    if (good(run, driver->cuCtxPushCurrent_v2(context), "cuCtxPushCurrent", "device 0")) {
        bool ran = true;
        for (int i = 0; i < 2 && ran; i++) ran = run_kernel(run, &kernels[i], run->result[i]);
        if (ran) same = compare(run);
        (void)driver->cuCtxPopCurrent_v2(&context);
    }
    (void)driver->cuDevicePrimaryCtxRelease_v2(device);
    return same;
}

static bool fill_rope(const char *directory, struct input *in, char *said, size_t bytes) {
    kvf_bundle *bundle;
    kvf_error error = {0};
    kvf_type_info type = {0};
    if (kvf_bundle_open(directory, &bundle, &error) != KVF_OK) {
        (void)snprintf(said, bytes, "%s", error.text);
        return false;
    }
    uint32_t i = 0;
    while (kvf_bundle_type(bundle, i, &type) == KVF_OK && strcmp(type.name, "swa") != 0) i++;
    kvf_status status = kvf_rope_table(bundle, i, POSITIONS, in->rope[0], &error);
    kvf_bundle_close(bundle);
    if (status != KVF_OK) (void)snprintf(said, bytes, "%s", error.text);
    return status == KVF_OK;
}

enum same same_swa_write(const char *bundle, const struct same_kernel kernels[2], char *said,
                         size_t bytes) {
    kvf_error error = {0};
    kvf_driver *driver;
    struct same_run run = {.said = said, .room = bytes};
    if (kvf_driver_open(KVF_DRIVER_EXECUTOR, NULL, &driver, &error) != KVF_OK) {
        (void)say(&run, "no executor: %s", error.text);
        return SAME_UNKNOWN;
    }
    for (int i = 0; i < OUTPUTS; i++) run.bytes += SLOTS * slot_bytes[i];
    struct input *in = calloc(1, sizeof *in);
    enum same same = SAME_UNKNOWN;
    for (int i = 0; i < 2; i++) run.result[i] = calloc(1, run.bytes);
    run.driver = driver;
    run.input = in;
    if (in && run.result[0] && run.result[1] && fill_rope(bundle, in, said, bytes)) {
        fill_input(in);
        same = run_both(&run, kernels);
    }
    for (int i = 0; i < 2; i++) free(run.result[i]);
    free(in);
    kvf_driver_close(driver);
    return same;
}
