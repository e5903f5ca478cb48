/*
 * A small inference engine's side of the pool: two requests that begin alike, prompts in chunks,
 * then decode steps, at one layer of type hca. Nothing but the library's header and the bundle's.
 *
 * What a model's projections would give is made up from token and position. One layer stands for
 * all: the others differ in their kernels' names, and overlapped compressors (csa) have their tails
 * saved and restored where the pool says (kvf_sequence_snapshots, admission.restore).
 */
#include "flash-narrow.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = FLASH_NARROW_HCA_HEAD_DIM, ROPE = FLASH_NARROW_HCA_ROPE_DIM };
enum { HEADS = FLASH_NARROW_HEADS, WINDOW = FLASH_NARROW_HCA_WINDOW, BLOCK = FLASH_NARROW_BLOCK };
enum { LAYER = 2, PROMPT = 300, COMMON = 290, ANSWER = 6, CHUNK = 160, REQUESTS = 2 };
enum { LENGTH = 3 * BLOCK, COLUMNS = LENGTH / BLOCK, WINDOWS = 8, BLOCKS = 8 };
enum { LIST = WINDOW + LENGTH / FLASH_NARROW_HCA_RATIO, SPLIT_ROWS = 128 };
enum { SPLITS = (LIST + SPLIT_ROWS - 1) / SPLIT_ROWS };
/* A chunk's workspace: its rows, and of each request the window before them. */
enum { WORKSPACE = CHUNK + REQUESTS * (WINDOW - 1) };

static kvf_error error;
static void *cuda;
/* A function of the driver, by its name and the types of its parameters. */
#define CUDA(name, ...) ((int (*)(__VA_ARGS__))dlsym(cuda, name))

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

static kvf_address memory[64], *next = memory;
static kvf_address allocate(size_t bytes) {
    check_cuda(CUDA("cuMemAlloc_v2", kvf_address *, size_t)(next, bytes));
    return *next++;
}

static void upload(kvf_address to, const void *from, size_t bytes) {
    check_cuda(CUDA("cuMemcpyHtoD_v2", kvf_address, const void *, size_t)(to, from, bytes));
}

static kvf_address uploaded(const void *from, size_t bytes) {
    kvf_address to = allocate(bytes);
    upload(to, from, bytes);
    return to;
}

/* ---- what is allocated once: the layer's rows, the step's buffers ---- */

static flash_narrow_kernels kernels;
static kvf_pool *pool;
static kvf_batch *batch;
/* The pool writes these; the device has a copy of each. */
static int32_t batch_id[CHUNK], position[CHUNK], cu_tokens[REQUESTS + 1], state_slot[REQUESTS];
static int32_t write_from[REQUESTS], window_from[REQUESTS];
static int32_t block_table[REQUESTS * COLUMNS], window_table[REQUESTS * COLUMNS];
static struct {
    const void *host;
    size_t bytes;
    kvf_address device;
} tables[] = {{batch_id, sizeof batch_id, 0},       {position, sizeof position, 0},
              {cu_tokens, sizeof cu_tokens, 0},     {state_slot, sizeof state_slot, 0},
              {write_from, sizeof write_from, 0},   {window_from, sizeof window_from, 0},
              {block_table, sizeof block_table, 0}, {window_table, sizeof window_table, 0}};
enum { IDS, POSITIONS, CU, SLOTS, FROM, WINDOW_FROM, BLOCK_TABLE, WINDOW_TABLE, TABLES };

static kvf_address windows, entries, workspace, rope, latent, kv, score, query, q, out;
static kvf_address rows, window_count, entry_count, part_o, part_m, part_l, lse;
static kvf_address norm, ape, sink;
static kvf_array tail_ka, tail_za, tail_len;
static uint16_t result[CHUNK][HEADS][DIM];

static void create_pool(const kvf_bundle *bundle) {
    kvf_pool_options options = {.policy = KVF_POLICY_STATIC,
                                .max_requests = REQUESTS,
                                .max_tokens = LENGTH,
                                .windows = WINDOWS,
                                .blocks = BLOCKS};
    kvf_batch_buffers buffers = {.max_tokens = CHUNK,
                                 .max_requests = REQUESTS,
                                 .max_blocks = COLUMNS,
                                 .state_parts = 1,
                                 .batch_id = batch_id,
                                 .position = position,
                                 .cu_tokens = cu_tokens,
                                 .state_slot = state_slot,
                                 .write_from = write_from,
                                 .window_from = window_from,
                                 .block_table = {block_table},
                                 .window_table = window_table};
    check(kvf_pool_create(bundle, &options, &pool, &error));
    check(kvf_batch_create(pool, &buffers, &batch, &error));
}

static void create_memory(const kvf_bundle *bundle, const kvf_cache *cache) {
    static float angles[LENGTH * ROPE], ones[DIM], zeros[FLASH_NARROW_HCA_RATIO * DIM];
    uint32_t type, index;
    for (int i = 0; i < DIM; i++) ones[i] = 1;
    check(kvf_bundle_layer(bundle, LAYER, &type, &index));
    check(kvf_rope_table(bundle, type, LENGTH, angles, &error));
    for (int i = 0; i < TABLES; i++) tables[i].device = allocate(tables[i].bytes);
    windows = allocate((size_t)WINDOWS * FLASH_NARROW_HCA_WINDOW_PAGE_BYTES);
    entries = allocate((size_t)BLOCKS * FLASH_NARROW_HCA_COMPRESSED_PAGE_BYTES);
    workspace = allocate((size_t)(WORKSPACE / FLASH_NARROW_HCA_WINDOW_ROWS + 1) *
                         FLASH_NARROW_HCA_WINDOW_PAGE_BYTES);
    rope = uploaded(angles, sizeof angles);
    norm = uploaded(ones, sizeof ones);
    ape = uploaded(zeros, sizeof zeros);
    sink = uploaded(zeros, HEADS * sizeof(float));
    latent = allocate(CHUNK * DIM * 2), kv = allocate(CHUNK * DIM * 2);
    score = allocate(CHUNK * DIM * 2), query = allocate(sizeof result);
    q = allocate(sizeof result), out = allocate(sizeof result), rows = allocate(CHUNK * LIST * 4);
    window_count = allocate(CHUNK * 4), entry_count = allocate(CHUNK * 4);
    part_o = allocate((size_t)CHUNK * SPLITS * HEADS * DIM * 4);
    part_m = allocate((size_t)CHUNK * SPLITS * HEADS * 4);
    part_l = allocate((size_t)CHUNK * SPLITS * HEADS * 4), lse = allocate(CHUNK * HEADS * 4);
    check(kvf_cache_array(cache, LAYER, "tail_ka", &tail_ka, &error));
    check(kvf_cache_array(cache, LAYER, "tail_za", &tail_za, &error));
    check(kvf_cache_array(cache, LAYER, "tail_len", &tail_len, &error));
}

/* ---- a step ---- */

/* Where the model's projections would be: numbers from token, position and channel, as bf16. */
static void project(kvf_address to, int width, int salt, const int32_t *ids, uint32_t tokens) {
    static uint16_t row[HEADS * DIM];
    for (uint32_t t = 0; t < tokens; t++) {
        uint32_t x = (uint32_t)ids[t] * 2654435761u + (uint32_t)position[t] * 40503u;
        for (int i = 0; i < width; i++) {
            uint32_t y = (x ^ (uint32_t)(i + salt) * 0x9e3779b9u) * 0x85ebca6bu;
            row[i] = (uint16_t)((y >> 31 << 15) | (0x3f00 - (y >> 24 & 3) * 64 + (y >> 16 & 63)));
        }
        upload(to + (uint64_t)t * (uint64_t)width * 2, row, (size_t)width * 2);
    }
}

/* The types of a kernel's parameters, and its launch, by the kernel's name. */
#define RUN(kernel, ...)                                                                           \
    do {                                                                                           \
        struct kvf_flash_narrow_hca_##kernel##_params params = {__VA_ARGS__};                      \
        check(flash_narrow_hca_##kernel(&kernels, NULL, &params, &error));                         \
    } while (0)
#define TABLE(name) tables[name].device
#define PAGES       FLASH_NARROW_HCA_WINDOW_PAGE_BYTES
#define ENTRY_PAGES FLASH_NARROW_HCA_COMPRESSED_PAGE_BYTES

/*
 * One layer, in the order that kvforge.h gives. A chunk attends to the workspace, where all rows of
 * its windows stand; a decode step to the window blocks themselves.
 */
static void run_layer(uint32_t tokens, uint32_t requests, bool chunk) {
    const uint64_t row = 2 * DIM, heads = 2 * HEADS * DIM;
    if (chunk) {
        RUN(workspace_fill, tokens, requests, WINDOWS, COLUMNS, TABLE(POSITIONS), TABLE(CU),
            TABLE(WINDOW_TABLE), windows, PAGES, workspace, PAGES);
        RUN(swa_write_workspace, tokens, requests, WINDOWS, LENGTH, COLUMNS, latent, row, norm,
            rope, TABLE(IDS), TABLE(POSITIONS), TABLE(WINDOW_FROM), TABLE(WINDOW_TABLE), windows,
            PAGES, workspace, PAGES);
    } else {
        RUN(swa_write, tokens, requests, WINDOWS, LENGTH, COLUMNS, latent, row, norm, rope,
            TABLE(IDS), TABLE(POSITIONS), TABLE(WINDOW_FROM), TABLE(WINDOW_TABLE), windows, PAGES);
    }
    RUN(compress, tokens, requests, REQUESTS, BLOCKS, LENGTH, COLUMNS, kv, row, score, row, ape,
        norm, rope, TABLE(IDS), TABLE(POSITIONS), TABLE(CU), TABLE(SLOTS), TABLE(FROM),
        TABLE(BLOCK_TABLE), tail_ka.base, tail_ka.slot_stride, tail_za.base, tail_za.slot_stride,
        entries, ENTRY_PAGES);
    RUN(tail_append, tokens, requests, REQUESTS, kv, row, score, row, ape, TABLE(IDS),
        TABLE(POSITIONS), TABLE(CU), TABLE(SLOTS), tail_ka.base, tail_ka.slot_stride, tail_za.base,
        tail_za.slot_stride, tail_len.base, tail_len.slot_stride);
    RUN(q_norm_rope, tokens, HEADS, LENGTH, query, heads, rope, TABLE(POSITIONS), q, heads);
    if (chunk)
        RUN(row_lists_workspace, tokens, requests, BLOCKS, COLUMNS, LIST, TABLE(IDS),
            TABLE(POSITIONS), TABLE(BLOCK_TABLE), rows, window_count, entry_count);
    else
        RUN(row_lists, tokens, requests, WINDOWS, BLOCKS, COLUMNS, LIST, TABLE(IDS),
            TABLE(POSITIONS), TABLE(WINDOW_TABLE), TABLE(BLOCK_TABLE), rows, window_count,
            entry_count);
    RUN(attn, tokens, HEADS, SPLITS, LIST, 1 / sqrtf(DIM), q, heads, rows, window_count,
        entry_count, chunk ? workspace : windows, PAGES, entries, ENTRY_PAGES, part_o, part_m,
        part_l);
    RUN(attn_combine, tokens, HEADS, SPLITS, part_o, part_m, part_l, sink, out, heads, lse);
    RUN(inverse_rope, tokens, HEADS, LENGTH, rope, TABLE(POSITIONS), out, heads);
}

/* Compute the prepared tokens of the requests; their outputs are then in `result`. */
static void step(const kvf_sequence *sequences, uint32_t requests, const int32_t *ids) {
    check(kvf_batch_fill(batch, sequences, requests, &error));
    uint32_t tokens = (uint32_t)cu_tokens[requests];
    for (int i = 0; i < TABLES; i++) upload(tables[i].device, tables[i].host, tables[i].bytes);
    project(latent, DIM, 1, ids, tokens);
    project(kv, DIM, 2, ids, tokens);
    project(score, DIM, 3, ids, tokens);
    project(query, HEADS * DIM, 4, ids, tokens);
    run_layer(tokens, requests, tokens > requests * (FLASH_NARROW_DRAFTS + 1));
    check_cuda(CUDA("cuMemcpyDtoH_v2", void *, kvf_address, size_t)(
        result, out, (size_t)tokens * sizeof *result)); /* waits for the kernels */
}

/* A request whose slot was another's begins with empty tails. */
static void reset(const uint32_t *slot) {
    RUN(state_reset, 1, REQUESTS, 1, uploaded(slot, 4), tail_len.base, tail_len.slot_stride, 0);
}

/* Admit a prompt and compute what the cache does not have, chunk by chunk. */
static kvf_sequence prefill(const int32_t *ids, uint16_t keep[HEADS][DIM]) {
    uint32_t take, left;
    kvf_admission admission;
    check(kvf_sequence_admit(pool, ids, PROMPT, CHUNK, &admission, &error));
    reset(&admission.slot);
    printf("admitted: %d tokens, %u of them from the cache\n", PROMPT, admission.hit);
    for (uint32_t at = admission.hit; at < PROMPT; at += take) {
        left = PROMPT - at;
        check(kvf_sequence_chunk(pool, admission.sequence, left < CHUNK ? left : CHUNK, &take,
                                 &error));
        check(kvf_sequence_prepare(pool, admission.sequence, take, &error));
        step(&admission.sequence, 1, ids + at);
        check(kvf_sequence_commit(pool, admission.sequence, take, NULL, 0, &error));
        printf("  chunk: tokens %u to %u\n", at, at + take - 1);
        if (at <= COMMON - 1 && COMMON - 1 < at + take)
            memcpy(keep, result[COMMON - 1 - at], sizeof *result);
    }
    return admission.sequence;
}

int main(int argc, char **argv) {
    static int32_t prompts[REQUESTS][PROMPT];
    static uint16_t kept[REQUESTS][HEADS][DIM];
    kvf_sequence sequences[REQUESTS];
    int32_t ids[REQUESTS];
    kvf_bundle *bundle;
    kvf_driver *driver;
    kvf_device *device;
    kvf_library *library;
    kvf_cache *cache;

    /* Open, load every kernel, seal; then memory: the requests' tails, and what the pool divides.
     */
    check(kvf_bundle_open(argc > 1 ? argv[1] : "build/flash-narrow", &bundle, &error));
    check(kvf_driver_open(KVF_DRIVER_AUTO, NULL, &driver, &error));
    use_cuda(driver);
    check(kvf_device_open(driver, 0, &device, &error));
    check(kvf_library_load(device, bundle, NULL, NULL, &library, &error));
    check(flash_narrow_find(library, &kernels, &error));
    check(kvf_cache_create(library, &(kvf_cache_options){.slots = REQUESTS}, NULL, &cache, &error));
    create_pool(bundle);
    create_memory(bundle, cache);

    /* Two prompts that are the same for 290 tokens. The second one finds whole blocks computed. */
    for (int i = 0; i < PROMPT; i++) {
        prompts[0][i] = 7 * i + 1;
        prompts[1][i] = i < COMMON ? prompts[0][i] : 9 * i;
    }
    for (int r = 0; r < REQUESTS; r++) sequences[r] = prefill(prompts[r], kept[r]);
    const bool same = !memcmp(kept[0], kept[1], sizeof *kept);
    printf("token %d of both: %s\n", COMMON - 1, same ? "the same bits" : "OTHER BITS");

    /* Decode: both in one batch, a token each. */
    for (int r = 0; r < REQUESTS; r++) ids[r] = 1000 + r;
    for (int i = 0; i < ANSWER; i++) {
        for (int r = 0; r < REQUESTS; r++) {
            check(kvf_sequence_commit(pool, sequences[r], 0, &ids[r], 1, &error));
            check(kvf_sequence_prepare(pool, sequences[r], 1, &error));
        }
        step(sequences, REQUESTS, ids);
        for (int r = 0; r < REQUESTS; r++) {
            check(kvf_sequence_commit(pool, sequences[r], 1, NULL, 0, &error));
            ids[r] = 1000 + result[r][0][0] % 1000; /* a sampler would be here */
        }
        printf("decoded: %d and %d\n", ids[0], ids[1]);
    }
    for (int r = 0; r < REQUESTS; r++) check(kvf_sequence_release(pool, sequences[r], &error));
    check(kvf_pool_check(pool, &error));

    while (next > memory) check_cuda(CUDA("cuMemFree_v2", kvf_address)(*--next));
    kvf_batch_destroy(batch);
    kvf_pool_destroy(pool);
    kvf_cache_destroy(cache);
    kvf_library_unload(library);
    kvf_device_close(device);
    kvf_driver_close(driver);
    kvf_bundle_close(bundle);
    return same ? 0 : 1;
}
