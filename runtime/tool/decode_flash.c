/*
 * A long context at the model's own geometry: 4,096 tokens are written into the cache without
 * attention, in chunks; then eight decode steps, each compared with the dense reference, and the
 * same eight tokens again as one chunk that works in the workspace: the same bits.
 */
#include "decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILLED = 4096, QUERIES = 8, CHUNK = 512, LENGTH = FILLED + QUERIES };

struct flash {
    struct session *session;
    struct step step;
    int32_t ids[LENGTH];
    uint8_t *kept[STEP_LAYERS]; /* outputs of the eight */
    int32_t *chosen[STEP_LAYERS], counts[STEP_LAYERS][QUERIES];
    uint64_t differ, bytes;
};

/* Compute `take` tokens from `at` on. */
static bool advance(struct flash *f, struct step_request *request, uint32_t at, uint32_t take,
                    bool attend) {
    kvf_error error;
    if (kvf_sequence_prepare(f->step.pool, request->sequence, take, &error))
        return session_fail("prepare", &error);
    if (!step_forward(&f->step, request, 1, f->ids + at, attend)) return false;
    request->fresh = false;
    if (kvf_sequence_commit(f->step.pool, request->sequence, take, NULL, 0, &error))
        return session_fail("commit", &error);
    return true;
}

static bool begin(struct flash *f, struct step_request *request) {
    kvf_admission admission;
    kvf_error error;
    if (kvf_sequence_admit(f->step.pool, f->ids, LENGTH, CHUNK, &admission, &error))
        return session_fail("admit", &error);
    *request = (struct step_request){admission.sequence, true, admission.restore, 0};
    for (uint32_t at = 0; at < FILLED; at += CHUNK)
        if (!advance(f, request, at, CHUNK, false)) return false;
    return true;
}

static bool keep(struct flash *f, uint32_t query) {
    for (uint32_t l = 0; l < f->step.layers; l++) {
        const struct step_layer *layer = &f->step.layer[l];
        uint64_t bytes = step_output_bytes(&f->step, layer);
        size_t topk = layer->type->info.indexer_topk;
        if (!f->kept[l]) f->kept[l] = malloc(QUERIES * bytes);
        if (!f->chosen[l]) f->chosen[l] = malloc(sizeof(int32_t) * QUERIES * (topk + 1));
        if (!f->kept[l] || !f->chosen[l]) return false;
        memcpy(f->kept[l] + query * bytes, step_output(&f->step, layer, 0), bytes);
        f->counts[l][query] = layer->host_chosen_count[0];
        memcpy(f->chosen[l] + query * topk, layer->host_chosen, 4 * topk);
    }
    return true;
}

static bool decode_steps(struct flash *f) {
    struct step_request request = {0};
    kvf_error error;
    if (!begin(f, &request)) return false;
    for (uint32_t i = 0; i < QUERIES; i++)
        if (!advance(f, &request, FILLED + i, 1, true) || !keep(f, i)) return false;
    return !kvf_sequence_release(f->step.pool, request.sequence, &error);
}

static bool one_chunk(struct flash *f) {
    struct step_request request = {0};
    if (!begin(f, &request) || !advance(f, &request, FILLED, QUERIES, true)) return false;
    for (uint32_t l = 0; l < f->step.layers; l++) {
        uint64_t bytes = step_output_bytes(&f->step, &f->step.layer[l]);
        f->bytes += QUERIES * bytes;
        for (uint32_t i = 0; i < QUERIES; i++)
            f->differ += memcmp(f->kept[l] + i * bytes, step_output(&f->step, &f->step.layer[l], i),
                                bytes) != 0;
    }
    return true;
}

static bool dense(struct flash *f) {
    bool good = true;
    for (uint32_t l = 0; l < f->step.layers; l++) {
        const struct step_layer *layer = &f->step.layer[l];
        struct decode_dense d = {0};
        char name[64];
        struct decode_history *h = decode_history_open(f->session, layer->layer, f->ids, LENGTH);
        if (!h) return false;
        for (uint32_t i = 0; i < QUERIES; i++)
            decode_history_check(h, FILLED + i, f->kept[l] + i * step_output_bytes(&f->step, layer),
                                 f->chosen[l] + i * (size_t)layer->type->info.indexer_topk,
                                 (uint32_t)f->counts[l][i], &d);
        decode_history_close(h);
        bool holds = d.tokens == QUERIES && decode_dense_holds(&d);
        snprintf(name, sizeof name, "%s, %u behind %u tokens: dense float64",
                 layer->type->info.name, QUERIES, FILLED);
        printf("%-44s %7u %6u %12" PRIu64 "  %s (differences %.2f of a rounding's; %.2f of the "
               "bound at most)\n",
               name, QUERIES, 1, 2 * d.numbers, holds ? "holds" : "FAILED", decode_dense_size(&d),
               d.worst);
        fflush(stdout);
        good = good && holds;
    }
    return good;
}

bool decode_flash(struct session *session) {
    struct flash *f = calloc(1, sizeof *f);
    struct step_options options = {.pool = {.policy = KVF_POLICY_STATIC,
                                            .max_requests = 1,
                                            .max_tokens = LENGTH,
                                            .windows = 8,
                                            .blocks = LENGTH / 128 + 2,
                                            .prefix_cache_off = true},
                                   .batch_tokens = CHUNK,
                                   .batch_requests = 1,
                                   .one_layer_each = true};
    if (!f) return false;
    f->session = session;
    for (uint32_t i = 0; i < LENGTH; i++) f->ids[i] = (int32_t)(i * 2654435761u >> 12);
    bool good =
        step_open(session, &options, &f->step) && decode_steps(f) && dense(f) && one_chunk(f);
    if (good) {
        printf("%-44s %7u %6u %12" PRIu64 "  %s\n", "decode steps = one chunk", QUERIES,
               f->step.layers, f->bytes, f->differ ? "DIFFERS" : "equal");
        good = !f->differ;
    }
    for (uint32_t l = 0; l < STEP_LAYERS; l++) {
        free(f->kept[l]);
        free(f->chosen[l]);
    }
    step_close(&f->step);
    free(f);
    return good;
}
