/* The requests' texts, the store of outputs, and the run that fills it. */
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * How each text begins (the first `shared` tokens are those of text `from`), its prompt, in tokens
 * beyond whole blocks: {blocks, rest}; what is given later, and its answer.
 */
static const struct plan {
    uint32_t from, shared_blocks, shared, prompt_blocks, prompt, given, answer, arrival;
} plans[DECODE_TEXTS] = {
    {0, 0, 0, 2, 34, 0, 20, 0},    /* the first one */
    {0, 1, 72, 2, 14, 0, 16, 3},   /* leaves it inside the second block */
    {0, 2, 14, 2, 44, 0, 14, 8},   /* shares all of its whole blocks */
    {0, 1, 12, 1, 22, 0, 30, 9},   /* shares the first block */
    {0, 2, 54, 2, 84, 0, 8, 16},   /* its next turn: prompt and answer, and more */
    {3, 1, 37, 1, 37, 120, 22, 0}, /* forked off the fourth while that one decodes */
};

static int32_t token_id(uint64_t seed, uint32_t text, uint32_t position) {
    uint64_t x = (seed << 40) + ((uint64_t)text << 32) + position + 1;
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return (int32_t)((x ^ x >> 33) % 129280);
}

bool decode_texts(struct decode *decode, uint64_t seed) {
    uint32_t block = decode->session->model.block;
    for (uint32_t i = 0; i < DECODE_TEXTS; i++) {
        struct decode_text *text = &decode->texts[i];
        const struct plan *plan = &plans[i];
        uint32_t shared = plan->shared_blocks * block + plan->shared;
        text->prompt = plan->prompt_blocks * block + plan->prompt;
        text->given = plan->given;
        text->count = text->prompt + plan->given + plan->answer;
        text->arrival = plan->arrival;
        text->from = plan->from;
        text->shared = shared;
        text->ids = malloc(text->count * sizeof *text->ids);
        if (!text->ids) return false;
        for (uint32_t p = 0; p < text->count; p++)
            text->ids[p] = p < shared ? decode->texts[plan->from].ids[p] : token_id(seed, i, p);
        decode->store.first[i + 1] = decode->store.first[i] + text->count;
        if (text->count > decode->longest) decode->longest = text->count;
    }
    decode->store.tokens = decode->store.first[DECODE_TEXTS];
    return true;
}

void decode_free(struct decode *decode) {
    for (uint32_t i = 0; i < DECODE_TEXTS; i++) free(decode->texts[i].ids);
    for (uint32_t l = 0; l < STEP_LAYERS; l++) {
        free(decode->store.chosen[l]);
        free(decode->store.chosen_count[l]);
    }
    free(decode->store.bytes);
}

/* ---- the store ---- */

static bool make_store(struct decode_store *store, const struct step *step) {
    store->layers = step->layers;
    for (uint32_t l = 0; l < step->layers; l++) {
        const struct step_layer *layer = &step->layer[l];
        size_t topk = layer->type->info.indexer_topk;
        store->offset[l + 1] = store->offset[l] + step_output_bytes(step, layer);
        store->topk[l] = (uint32_t)topk;
        store->chosen[l] = calloc(topk ? topk * store->tokens : 1, sizeof(int32_t));
        store->chosen_count[l] = calloc(store->tokens, sizeof(int32_t));
        if (!store->chosen[l] || !store->chosen_count[l]) return false;
    }
    store->bytes = malloc(store->tokens * store->offset[step->layers]);
    return store->bytes != NULL;
}

static uint8_t *record(const struct decode_store *store, uint32_t text, uint32_t position) {
    return store->bytes + (store->first[text] + position) * store->offset[store->layers];
}

void decode_keep(struct decode *decode, const struct step *step, uint32_t token, uint32_t text,
                 uint32_t position) {
    struct decode_store *store = &decode->store;
    uint32_t at = store->first[text] + position;
    for (uint32_t l = 0; l < step->layers; l++) {
        const struct step_layer *layer = &step->layer[l];
        uint32_t topk = store->topk[l];
        memcpy(record(store, text, position) + store->offset[l], step_output(step, layer, token),
               step_output_bytes(step, layer));
        if (!topk) continue;
        store->chosen_count[l][at] = layer->host_chosen_count[token];
        memcpy(store->chosen[l] + (size_t)at * topk, layer->host_chosen + (size_t)token * topk,
               4 * (size_t)topk);
    }
}

uint64_t decode_compare(const struct decode *decode, const struct step *step, uint32_t token,
                        uint32_t text, uint32_t position, int *layer) {
    const struct decode_store *store = &decode->store;
    *layer = -1;
    for (uint32_t l = 0; l < step->layers; l++)
        if (*layer < 0 && memcmp(record(store, text, position) + store->offset[l],
                                 step_output(step, &step->layer[l], token),
                                 step_output_bytes(step, &step->layer[l])) != 0)
            *layer = (int)l;
    return store->offset[store->layers];
}

/* ---- in a file: what one device gave, for another ---- */

struct header {
    char magic[8], digest[80];
    uint32_t tokens, layers;
    uint64_t record, texts; /* bytes of a token; a sum over the ids */
};

static struct header header_of(const struct decode *decode) {
    const struct decode_store *store = &decode->store;
    struct header h = {.magic = "kvfout1",
                       .tokens = store->tokens,
                       .layers = store->layers,
                       .record = store->offset[store->layers]};
    snprintf(h.digest, sizeof h.digest, "%s", decode->session->model.digest);
    for (uint32_t i = 0; i < DECODE_TEXTS; i++)
        for (uint32_t p = 0; p < decode->texts[i].count; p++)
            h.texts = h.texts * 31 + (uint32_t)decode->texts[i].ids[p];
    return h;
}

bool decode_write(const struct decode *decode, FILE *file) {
    struct header h = header_of(decode);
    size_t bytes = h.tokens * h.record;
    if (fwrite(&h, sizeof h, 1, file) == 1 &&
        fwrite(decode->store.bytes, 1, bytes, file) == bytes && !fflush(file))
        return true;
    fprintf(stderr, "kvforge-run: the outputs could not be written\n");
    return false;
}

bool decode_read(struct decode *decode, FILE *file) {
    struct header want, got;
    struct decode_store *store = &decode->store;
    store->layers = decode->session->model.layers + decode->session->model.draft_layers;
    if (store->layers > STEP_LAYERS) return false;
    for (uint32_t l = 0; l < store->layers; l++) {
        kvf_type_info info;
        uint32_t type, of_type;
        if (kvf_bundle_layer(decode->session->bundle, l, &type, &of_type) ||
            kvf_bundle_type(decode->session->bundle, type, &info))
            return false;
        store->offset[l + 1] =
            store->offset[l] + 2 * (uint64_t)decode->session->model.heads * info.head_dim;
    }
    want = header_of(decode);
    size_t bytes = want.tokens * want.record;
    store->bytes = malloc(bytes);
    if (store->bytes && fread(&got, sizeof got, 1, file) == 1 && !memcmp(&got, &want, sizeof got) &&
        fread(store->bytes, 1, bytes, file) == bytes)
        return true;
    fprintf(stderr, "kvforge-run: the recorded outputs are of another model or other texts\n");
    return false;
}

/* ---- every text alone ---- */

/* A token that two texts share, and all before it: what was kept for the one stands for the other.
 */
static void keep_shared(struct decode *decode, uint32_t index) {
    struct decode_store *store = &decode->store;
    const struct decode_text *text = &decode->texts[index];
    size_t from = store->first[text->from], to = store->first[index], count = text->shared;
    memcpy(record(store, index, 0), record(store, text->from, 0),
           count * store->offset[store->layers]);
    for (uint32_t l = 0; l < store->layers; l++) {
        size_t topk = store->topk[l];
        memcpy(store->chosen_count[l] + to, store->chosen_count[l] + from, 4 * count);
        memcpy(store->chosen[l] + to * topk, store->chosen[l] + from * topk, 4 * count * topk);
    }
}

static bool compute_whole(struct decode *decode, struct step *step, uint32_t index) {
    const struct decode_text *text = &decode->texts[index];
    kvf_admission admission;
    kvf_error error;
    if (kvf_sequence_admit(step->pool, text->ids, text->count, text->count, &admission, &error) ||
        kvf_sequence_prepare(step->pool, admission.sequence, text->count, &error))
        return session_fail("one chunk", &error);
    struct step_request request = {admission.sequence, true, admission.restore, text->shared};
    if (!step_forward(step, &request, 1, text->ids, true)) return false;
    for (uint32_t p = text->shared; p < text->count; p++) decode_keep(decode, step, p, index, p);
    keep_shared(decode, index);
    if (kvf_sequence_commit(step->pool, admission.sequence, text->count, NULL, 0, &error) ||
        kvf_sequence_release(step->pool, admission.sequence, &error))
        return session_fail("one chunk", &error);
    return true;
}

bool decode_alone(struct decode *decode) {
    struct step step;
    struct step_options options = {.pool = {.policy = KVF_POLICY_STATIC,
                                            .max_requests = 1,
                                            .max_tokens = decode->longest,
                                            .windows = 4,
                                            .blocks = 8,
                                            .prefix_cache_off = true},
                                   .batch_tokens = (decode->longest + 7) / 8 * 8,
                                   .batch_requests = 1};
    bool good = step_open(decode->session, &options, &step) && make_store(&decode->store, &step);
    for (uint32_t i = 0; good && i < DECODE_TEXTS; i++) good = compute_whole(decode, &step, i);
    step_close(&step);
    return good;
}
