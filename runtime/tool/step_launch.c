/* One launch: parameters are found by their names, so that no order or offset is known here. */
#include "step.h"

#include <stdio.h>
#include <string.h>

const char *const step_jobs[STEP_JOBS] = {
    [STEP_FILL] = "workspace_fill",
    [STEP_WRITE] = "swa_write",
    [STEP_WRITE_LONG] = "swa_write_workspace",
    [STEP_COMPRESS] = "compress",
    [STEP_INDEX_COMPRESS] = "index_compress",
    [STEP_APPEND] = "tail_append",
    [STEP_INDEX_APPEND] = "index_tail_append",
    [STEP_NORM_ROPE] = "q_norm_rope",
    [STEP_INDEX_QUERY_JOB] = "indexer_query",
    [STEP_SCORES] = "indexer_scores",
    [STEP_TOPK] = "indexer_topk",
    [STEP_LISTS] = "row_lists",
    [STEP_LISTS_LONG] = "row_lists_workspace",
    [STEP_PACK] = "translate_pack",
    [STEP_ATTN] = "attn",
    [STEP_COMBINE] = "attn_combine",
    [STEP_INVERSE] = "inverse_rope",
    [STEP_RESET] = "state_reset",
};

void step_bind(struct step_binding *binding, const char *name, uint64_t value) {
    if (binding->count == sizeof binding->list / sizeof *binding->list) return;
    snprintf(binding->list[binding->count].name, sizeof binding->list[0].name, "%s", name);
    binding->list[binding->count++].value = value;
}

void step_bind_array(struct step_binding *binding, const char *prefix, const char *name,
                     struct step_array array) {
    char full[32];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    step_bind(binding, full, array.base);
    snprintf(full, sizeof full, "%s%s_stride", prefix, name);
    step_bind(binding, full, array.stride);
}

void step_bind_planes(struct step_binding *binding, const char *prefix,
                      const struct bundle_place *place, const struct step_array *planes) {
    for (uint32_t i = 0; place && i < place->plane_count; i++)
        step_bind_array(binding, prefix, place->planes[i].name, planes[i]);
}

static bool find(const struct step_binding *binding, const char *name, uint64_t *value) {
    for (uint32_t i = binding->count; i-- > 0;)
        if (!strcmp(binding->list[i].name, name)) {
            *value = binding->list[i].value;
            return true;
        }
    return false;
}

bool step_launch(struct step *step, struct call *call, const struct step_binding *binding) {
    kvf_param_info param;
    kvf_error error = {0};
    uint64_t value;
    if (!call->kernel) return true;
    for (uint32_t i = 0; !kvf_kernel_param(call->kernel, i, &param); i++) {
        if (!find(binding, param.name, &value)) {
            fprintf(stderr, "kvforge-run: %s/%s: nothing is known of parameter %s\n",
                    call->info.type, call->info.name, param.name);
            return false;
        }
        memcpy(call->bytes + param.offset, &value, param.size); /* little-endian */
    }
    step->launches++;
    return !kvf_launch(call->kernel, step->stream, call->bytes, call->info.params_bytes, &error) ||
           session_fail(call->info.name, &error);
}
