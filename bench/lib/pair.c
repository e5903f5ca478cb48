#include "pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/counted.h"
#include "tool/input.h"

/* Of DeepSeek-V4-Flash with fp8_ds_mla and fp8_index rows, as bench/cuda/twin.cuh has them. */
enum { ROW = 576, NOPE = 448, FOOTER = 8, INDEX_DIM = 128, LATENT = ROW + FOOTER };

/* ---- inputs that tell one row from another ---- */

static uint8_t code(uint64_t *random) {
    uint32_t bits = input_next(random);
    return (uint8_t)((bits & 0x80) | (0x20 + bits % 0x20)); /* e4m3: 0.125 to 1.875 */
}

/* A page: rows of codes and rotated bf16, then a footer each of scales around 1. */
static void fill_latent_page(uint64_t *random, uint8_t *page, uint64_t bytes) {
    uint64_t rows = bytes / LATENT;
    for (uint64_t r = 0; r < rows; r++) {
        for (int i = 0; i < NOPE; i++) page[r * ROW + (uint64_t)i] = code(random);
        input_vector(random, INPUT_RANDOM, REF_BFLOAT, page + r * ROW + NOPE, (ROW - NOPE) / 2);
        for (int i = 0; i < FOOTER; i++)
            page[rows * ROW + r * FOOTER + (uint64_t)i] = (uint8_t)(126 + input_below(random, 3));
    }
}

static void fill_index_page(uint64_t *random, uint8_t *page, uint64_t bytes) {
    uint64_t rows = bytes / (INDEX_DIM + 4);
    for (uint64_t i = 0; i < rows * INDEX_DIM; i++) page[i] = code(random);
    for (uint64_t r = 0; r < rows; r++) {
        float scale = 1.0f / (float)(1u << input_below(random, 3));
        memcpy(page + rows * INDEX_DIM + 4 * r, &scale, 4);
    }
}

/* Stored rows and tails, which a load fills with one number all over. */
static void enrich(uint64_t *random, const kvf_param_info *param, struct buffer *array) {
    static const char words[] = "pages of ";
    bool pages = !strncmp(param->shape, words, sizeof words - 1);
    uint64_t bytes = pages ? strtoull(param->shape + sizeof words - 1, NULL, 10) : 0;
    uint64_t total = buffer_bytes(array);
    if (strstr(param->name, "tail_k") || strstr(param->name, "tail_z"))
        input_vector(random, INPUT_RANDOM, REF_F32, buffer_data(array), (uint32_t)(total / 4));
    else if (!strcmp(param->name, "src"))
        for (uint64_t i = 0; i < total; i++) buffer_data(array)[i] = (uint8_t)input_next(random);
    else if (!strcmp(param->name, "part_l")) /* sums of weights */
        for (uint64_t i = 0; i < total / 4; i++)
            buffer_floats(array)[i] = fabsf(buffer_floats(array)[i]);
    for (uint64_t at = 0; pages && bytes && at + bytes <= total; at += bytes) {
        if (!strcmp(param->name, "index_rows"))
            fill_index_page(random, buffer_data(array) + at, bytes);
        else
            fill_latent_page(random, buffer_data(array) + at, bytes);
    }
}

/* ---- results ---- */

static bool is_output(const kvf_param_info *param) {
    return !strcmp(param->type, "ptr") && strcmp(param->direction, "in") != 0;
}

/* The pointer parameter that array `index` belongs to. */
static bool param_of(const struct loaded *loaded, uint32_t index, kvf_param_info *out) {
    for (uint32_t i = 0; i < loaded->call.info.params; i++)
        if (!kvf_kernel_param(loaded->call.kernel, i, out) &&
            !strcmp(out->name, loaded->array[index].name) && !strcmp(out->type, "ptr"))
            return true;
    return false;
}

struct agreement {
    uint64_t bytes, changed, differ; /* bytes; written by ours; that differ */
    double worst;                    /* share of code bytes, or of the largest magnitude */
};

static double number(const uint8_t *at, bool bf16) {
    uint32_t bits = 0;
    float x;
    memcpy(bf16 ? (uint8_t *)&bits + 2 : (uint8_t *)&bits, at, bf16 ? 2 : 4);
    memcpy(&x, &bits, 4);
    return (double)x;
}

/* The largest difference over the largest magnitude; a NaN or infinity must be met by the same. */
static double distance(const uint8_t *a, const uint8_t *b, uint64_t bytes, bool bf16) {
    double most = 0, apart = 0;
    for (uint64_t i = 0; i < bytes; i += bf16 ? 2 : 4) {
        double x = number(a + i, bf16), y = number(b + i, bf16);
        if (!memcmp(a + i, b + i, bf16 ? 2 : 4)) {
            if (isfinite(x)) most = fmax(most, fabs(x));
            continue;
        }
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        most = fmax(most, fabs(x));
        apart = fmax(apart, fabs(x - y));
    }
    return apart > 0 ? apart / most : 0;
}

static void compare(const char *dtype, const uint8_t *ours, const uint8_t *theirs,
                    const uint8_t *before, uint64_t bytes, struct agreement *out) {
    uint64_t differ = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        differ += ours[i] != theirs[i];
        out->changed += ours[i] != before[i];
    }
    out->bytes += bytes;
    out->differ += differ;
    bool numbers = !strcmp(dtype, "f32") || !strcmp(dtype, "bf16");
    double worst = numbers                ? distance(ours, theirs, bytes, *dtype == 'b')
                   : !strcmp(dtype, "u8") ? (double)differ / (double)bytes
                   : differ               ? INFINITY /* numbers of rows, counts */
                                          : 0;
    out->worst = fmax(out->worst, worst);
}

/* ---- one side ---- */

struct side {
    struct session *session;
    struct timing *timing; /* null: count */
    const struct pair_job *job;
    struct loaded *loaded;
    CUfunction function; /* of theirs; null: launch ours */
};

static uint64_t value_of(const struct loaded *loaded, const char *name) {
    kvf_param_info param;
    uint64_t value = 0;
    for (uint32_t i = 0; i < loaded->call.info.params; i++)
        if (!kvf_kernel_param(loaded->call.kernel, i, &param) && !strcmp(param.name, name))
            memcpy(&value, loaded->call.bytes + param.offset, param.size);
    return value;
}

static unsigned extent(const struct loaded *loaded, const struct pair_extent *extent) {
    if (!extent->param) return extent->per ? extent->per : 1;
    return (unsigned)((value_of(loaded, extent->param) + extent->per - 1) / extent->per);
}

/* Launch without waiting. */
static bool launch(void *context) {
    const struct side *side = context;
    const struct pair_extent *grid = side->job->grid;
    struct loaded *loaded = side->loaded;
    size_t bytes = loaded->call.info.params_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, loaded->call.bytes,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    kvf_error error = {0};
    if (!side->function)
        return !kvf_launch(loaded->call.kernel, NULL, loaded->call.bytes, bytes, &error) ||
               session_fail("launch", &error);
    return session_good(side->session,
                        side->session->driver->cuLaunchKernel(
                            side->function, extent(loaded, &grid[0]), extent(loaded, &grid[1]),
                            extent(loaded, &grid[2]), side->job->block, 1, 1, side->job->shared,
                            NULL, NULL, extra),
                        "cuLaunchKernel");
}

/* Put the images on the device, launch once, and count. */
static bool run(struct side *side, const char *entry, json_t **counters) {
    struct loaded *loaded = side->loaded;
    for (uint32_t i = 0; i < loaded->arrays; i++)
        if (!buffer_upload(side->session, &loaded->array[i])) return false;
    struct counted *before = side->timing ? NULL : counted_now(side->session);
    bool good = launch(side) && session_wait(side->session);
    if (good && before) *counters = counted_since(side->session, before, entry);
    good = good && (side->timing || *counters);
    free(before);
    if (!good) fprintf(stderr, "twins: %s did not run\n", entry);
    return good;
}

/* All outputs as they are now, one after another; the caller frees them. */
static uint8_t *outputs(const struct side *side) {
    struct loaded *loaded = side->loaded;
    kvf_param_info param;
    size_t total = 1, at = 0;
    for (uint32_t i = 0; i < loaded->arrays; i++) total += buffer_bytes(&loaded->array[i]);
    uint8_t *out = malloc(total);
    for (uint32_t i = 0; out && i < loaded->arrays; i++) {
        const struct buffer *array = &loaded->array[i];
        if (!param_of(loaded, i, &param) || !is_output(&param)) continue;
        if (!session_download(side->session, out + at, buffer_address(array),
                              buffer_bytes(array))) {
            free(out);
            return NULL;
        }
        at += buffer_bytes(array);
    }
    return out;
}

/* ---- both ---- */

static void judge(struct loaded *loaded, const struct pair_job *job, const uint8_t *ours,
                  const uint8_t *theirs, struct pair_result *out) {
    struct agreement all = {0};
    kvf_param_info param;
    for (uint32_t i = 0; i < loaded->arrays; i++) {
        struct buffer *array = &loaded->array[i];
        if (!param_of(loaded, i, &param) || !is_output(&param)) continue;
        compare(param.dtype, ours, theirs, buffer_data(array), buffer_bytes(array), &all);
        ours += buffer_bytes(array);
        theirs += buffer_bytes(array);
    }
    out->same = all.changed && (job->tolerance > 0 ? all.worst <= job->tolerance : !all.differ);
    if (!all.changed)
        (void)snprintf(out->said, sizeof out->said, "nothing was written");
    else if (!all.differ)
        (void)snprintf(out->said, sizeof out->said, "equal");
    else
        (void)snprintf(out->said, sizeof out->said, "%.1e apart, at most %.0e", all.worst,
                       job->tolerance);
}

static bool type_of(const struct session *session, const char *name, kvf_type_info *out) {
    for (uint32_t i = 0; i < session->model.types; i++)
        if (!kvf_bundle_type(session->bundle, i, out) && !strcmp(out->name, name)) return true;
    *out = (kvf_type_info){.name = "common"};
    return !strcmp(name, "common");
}

static bool run_both(struct side *side, CUmodule theirs, struct pair_result *out) {
    const kvf_driver *driver = side->session->driver;
    struct loaded *loaded = side->loaded;
    uint8_t *results[SIDES] = {0};
    CUfunction function;
    uint64_t random = 1;
    kvf_param_info param;
    for (uint32_t i = 0; i < loaded->arrays; i++)
        if (param_of(loaded, i, &param) && !is_output(&param))
            enrich(&random, &param, &loaded->array[i]);
    if (driver->cuModuleGetFunction(&function, theirs, side->job->entry) != CUDA_SUCCESS) {
        fprintf(stderr, "twins: %s.cu has no kernel %s\n", side->job->file, side->job->entry);
        return false;
    }
    if (driver->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   (int)side->job->shared) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < SIDES; i++) {
        side->function = i == THEIRS ? function : NULL;
        const char *entry = i == THEIRS ? side->job->entry : loaded->call.info.entry;
        if (run(side, entry, &out->counters[i])) results[i] = outputs(side);
        if (results[i] && side->timing) out->ms[i] = timing_median(side->timing, launch, side);
    }
    bool good = results[OURS] && results[THEIRS] && out->ms[OURS] >= 0 && out->ms[THEIRS] >= 0;
    if (good) judge(loaded, side->job, results[OURS], results[THEIRS], out);
    free(results[OURS]);
    free(results[THEIRS]);
    return good;
}

bool pair_run(struct session *session, struct timing *timing, const struct pair_job *job,
              bool prefill, uint32_t requests, CUmodule theirs, struct pair_result *out) {
    const struct load *load = load_find(job->kernel);
    struct loaded loaded;
    kvf_type_info info;
    *out = (struct pair_result){0};
    if (!load || !type_of(session, job->type, &info)) return false;
    if (!load_make(session, &info, load, prefill, requests, &loaded)) return false;
    struct side side = {session, timing, job, &loaded, NULL};
    bool good = run_both(&side, theirs, out);
    load_free(session, &loaded);
    if (!good) pair_free(out);
    return good;
}

void pair_free(struct pair_result *result) {
    for (int i = 0; i < SIDES; i++) json_decref(result->counters[i]);
    *result = (struct pair_result){0};
}
