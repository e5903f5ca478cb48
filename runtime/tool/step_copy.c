/* Copies by rows_copy: tails to and from snapshots, and the pages of a fork. */
#include "step.h"

#include <string.h>

/* ---- tails and snapshots ---- */

uint64_t step_saved_bytes(const struct step_type *type, const struct bundle_array *array) {
    size_t length = strlen(array->name);
    const char *end = length > 7 ? array->name + length - 7 : array->name;
    if (!type->info.overlap || (strcmp(end, "tail_kb") != 0 && strcmp(end, "tail_zb") != 0))
        return 0;
    return array->slot_bytes / array->shape[0] * type->info.ratio;
}

static bool copy_rows(struct step *step, uint64_t bytes, uint32_t count, kvf_address from_ids,
                      kvf_address to_ids, kvf_address from, kvf_address to) {
    struct step_binding b = {0};
    step_bind(&b, "bytes", bytes);
    step_bind(&b, "count", count);
    step_bind(&b, "src_stride", bytes);
    step_bind(&b, "dst_stride", bytes);
    step_bind(&b, "src_ids", from_ids);
    step_bind(&b, "dst_ids", to_ids);
    step_bind(&b, "src", from);
    step_bind(&b, "dst", to);
    return step_launch(step, &step->copy, &b);
}

/* Where the tails of a request in a row of the batch lie. */
static int32_t state_id(const struct step *step, const struct step_layer *layer, uint32_t row) {
    uint32_t at = layer->state_part * step->tables_of.max_requests + row;
    int32_t id = step->tables_of.state_slot[at];
    bool elastic = step->options.pool.policy == KVF_POLICY_ELASTIC;
    if (!elastic) return id;
    bool chunk = layer->state_part < step->session->bundle->elastic->state_chunks;
    return chunk ? step_chunk(step, id) : step_envelope(step, id);
}

/*
 * The last `ratio` rows of stream b before the snapshot's position, oldest first, out of the ring
 * or back into it.
 */
static bool move_tails(struct step *step, const struct step_layer *layer, uint32_t row,
                       const kvf_snapshot *snapshot, bool save) {
    const struct step_type *type = layer->type;
    uint32_t ratio = type->info.ratio;
    uint64_t slot = (uint64_t)state_id(step, layer, row);
    int32_t part = snapshot->ids[layer->snapshot_part];
    bool elastic = step->options.pool.policy == KVF_POLICY_ELASTIC;
    uint64_t id = (uint64_t)(elastic ? step_envelope(step, part) : part);
    kvf_address saved = layer->snapshot.base + id * layer->snapshot.stride;
    kvf_address linear = buffer_address(&type->rings);
    kvf_address ring = linear + 4 * (uint64_t)((snapshot->position - ratio) % type->tail_ring);
    for (uint32_t a = 0; a < type->bundle->array_count; a++) {
        uint64_t bytes = step_saved_bytes(type, &type->bundle->arrays[a]);
        kvf_address tail = layer->state[a].base + slot * layer->state[a].stride;
        if (!bytes) continue;
        if (!copy_rows(step, bytes / ratio, ratio, save ? ring : linear, save ? linear : ring,
                       save ? tail : saved, save ? saved : tail))
            return false;
        saved += bytes;
    }
    return true;
}

static bool move_all(struct step *step, uint32_t row, const kvf_snapshot *snapshot, bool save) {
    for (uint32_t l = 0; l < step->layers; l++)
        if (step->layer[l].type->info.overlap &&
            !move_tails(step, &step->layer[l], row, snapshot, save))
            return false;
    return true;
}

/* A request that has just got its state: as new, then the tails where it resumes. */
bool step_restore(struct step *step, uint32_t row, const struct step_request *request) {
    for (uint32_t l = 0; l < step->layers; l++) {
        struct step_layer *layer = &step->layer[l];
        struct step_binding b = {0};
        uint32_t at = layer->state_part * step->tables_of.max_requests + row;
        step_bind_layer(step, layer, &b);
        step_bind(&b, "count", 1);
        step_bind(&b, "layers", 1);
        step_bind(&b, "slot_list", buffer_address(&step->state_slot) + 4 * (uint64_t)at);
        if (!step_launch(step, &layer->type->calls[STEP_RESET], &b)) return false;
    }
    if (!request->restore.position) return true;
    step->restored++;
    return move_all(step, row, &request->restore, false);
}

bool step_save(struct step *step, uint32_t row, kvf_sequence sequence) {
    kvf_snapshot list[64];
    kvf_error error;
    uint32_t count;
    if (kvf_sequence_snapshots(step->pool, sequence, list, 64, &count, &error))
        return session_fail("snapshots", &error);
    for (uint32_t i = 0; i < count; i++)
        if (!move_all(step, row, &list[i], true)) return false;
    step->saved += count;
    return true;
}

/* ---- pages ---- */

static bool copy_kind(struct step *step, const kvf_copy *copies, uint32_t count, bool chunks,
                      const struct step_array *array, uint64_t bytes) {
    int32_t *from = buffer_ints(&step->copy_from), *to = buffer_ints(&step->copy_to);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool chunk = copies[i].kind == KVF_COPY_WINDOW || copies[i].kind == KVF_COPY_STATE_CHUNK;
        if (chunk != chunks) continue;
        from[used] = chunk ? step_chunk(step, copies[i].from) : step_envelope(step, copies[i].from);
        to[used++] = chunk ? step_chunk(step, copies[i].to) : step_envelope(step, copies[i].to);
    }
    if (!used) return true;
    step->copied += used;
    return buffer_upload(step->session, &step->copy_from) &&
           buffer_upload(step->session, &step->copy_to) &&
           copy_rows(step, bytes, used, buffer_address(&step->copy_from),
                     buffer_address(&step->copy_to), array->base, array->base) &&
           session_wait(step->session);
}

bool step_copy_pages(struct step *step, const kvf_copy *copies, uint32_t count) {
    const struct bundle_elastic *e = step->session->bundle->elastic;
    if (step->options.pool.policy != KVF_POLICY_ELASTIC) return false;
    struct step_array arena = {step->memory[0], 0};
    return copy_kind(step, copies, count, true, &arena, e->chunk_bytes) &&
           copy_kind(step, copies, count, false, &arena, e->envelope_bytes);
}
