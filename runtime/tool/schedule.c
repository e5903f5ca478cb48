#include "schedule.h"

#include <stdio.h>
#include <string.h>

#define BUDGET 192 /* tokens of a step */
#define ROUND  32  /* batches are padded to a multiple, with at least one padded entry */

/* Around the ring's length, one token, several chunks; more requests than slots. */
static const uint32_t prompts[SCHEDULE_REQUESTS] = {1,   300, 127, 128, 129, 64,  5,
                                                    256, 17,  255, 2,   33,  299, 126};

void schedule_init(struct schedule *schedule) {
    memset(schedule, 0, sizeof *schedule);
    for (uint32_t i = 0; i < SCHEDULE_REQUESTS; i++)
        schedule->requests[i] = (struct schedule_request){.prompt = prompts[i], .slot = -1};
}

static bool finish(struct schedule *schedule, kvf_cache *cache) {
    kvf_error error;
    schedule->reset_count = 0;
    for (uint32_t i = 0; i < schedule->waiting; i++) {
        struct schedule_request *request = &schedule->requests[i];
        if (request->slot < 0 || request->done < request->prompt + SCHEDULE_DECODE) continue;
        if (kvf_slot_release(cache, request->slot, &error))
            return session_fail("release of a slot", &error);
        schedule->reset[schedule->reset_count++] = request->slot;
        request->slot = -1;
    }
    return true;
}

static bool admit(struct schedule *schedule, kvf_cache *cache) {
    kvf_error error;
    while (schedule->waiting < SCHEDULE_REQUESTS && kvf_slots_free(cache) > 0) {
        struct schedule_request *request = &schedule->requests[schedule->waiting++];
        if (kvf_slot_acquire(cache, &request->slot, &error))
            return session_fail("a request slot", &error);
        uint32_t bit = 1u << request->slot;
        schedule->slots_reused += (schedule->used & bit) != 0;
        schedule->used |= bit;
    }
    return true;
}

/* A token of each request that decodes. One token always fits: there are fewer slots than budget.
 */
static void add_decodes(struct schedule *schedule, struct batch *batch) {
    for (uint32_t i = 0; i < schedule->waiting; i++) {
        struct schedule_request *request = &schedule->requests[i];
        if (request->slot < 0 || request->done < request->prompt) continue;
        schedule->who[batch->requests] = i;
        batch_request(batch, request->slot, (int32_t)request->done++, 1);
    }
}

/* Prompts share what is left of the budget; one that comes last is cut. */
static void add_prompts(struct schedule *schedule, struct batch *batch) {
    for (uint32_t i = 0; i < schedule->waiting && batch->tokens < BUDGET; i++) {
        struct schedule_request *request = &schedule->requests[i];
        if (request->slot < 0 || request->done >= request->prompt) continue;
        uint32_t count = request->prompt - request->done, left = BUDGET - batch->tokens;
        if (count > left) count = left;
        schedule->who[batch->requests] = i;
        batch_request(batch, request->slot, (int32_t)request->done, count);
        request->done += count;
    }
}

bool schedule_step(struct schedule *schedule, kvf_cache *cache, struct batch *batch, bool *more) {
    batch_clear(batch);
    if (!finish(schedule, cache) || !admit(schedule, cache)) return false;
    add_decodes(schedule, batch);
    uint32_t decoding = batch->tokens;
    add_prompts(schedule, batch);
    *more = batch->tokens > 0;
    if (!*more) return true;
    schedule->steps++;
    schedule->decode_steps += decoding == batch->tokens;
    schedule->tokens += batch->tokens;
    uint32_t padding = ROUND - batch->tokens % ROUND;
    schedule->padding += padding;
    batch_pad(batch, padding);
    return true;
}
