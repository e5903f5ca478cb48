#include "call.h"

#include <stdio.h>
#include <string.h>

bool call_open(struct session *session, const char *type, const char *kernel, struct call *out) {
    kvf_error error = {0};
    memset(out, 0, sizeof *out);
    if (kvf_library_kernel(session->library, type, kernel, &out->kernel, &error))
        return session_fail(kernel, &error);
    kvf_kernel_describe(out->kernel, &out->info);
    if (out->info.params <= CALL_PARAMS && out->info.params_bytes <= CALL_BYTES) return true;
    fprintf(stderr, "kvforge-run: %s/%s has too many parameters\n", type, kernel);
    return false;
}

static bool find(const struct call *call, const char *name, uint32_t *index, kvf_param_info *out) {
    for (*index = 0; *index < call->info.params; ++*index)
        if (!kvf_kernel_param(call->kernel, *index, out) && !strcmp(out->name, name)) return true;
    return false;
}

bool call_has(const struct call *call, const char *name) {
    kvf_param_info param;
    uint32_t index;
    return find(call, name, &index, &param);
}

void call_set(struct call *call, const char *name, uint64_t value) {
    kvf_param_info param;
    uint32_t index;
    if (!find(call, name, &index, &param)) {
        call->wrong = name;
        return;
    }
    memcpy(call->bytes + param.offset, &value, param.size); /* little-endian */
    call->set[index] = true;
}

void call_set_stride(struct call *call, const char *name, const char *what, uint64_t stride) {
    char stride_name[64];
    snprintf(stride_name, sizeof stride_name, "%s%s_stride", name, what);
    call_set(call, stride_name, stride);
}

static bool complete(const struct call *call) {
    kvf_param_info param;
    if (call->wrong) {
        fprintf(stderr, "kvforge-run: %s/%s has no parameter %s\n", call->info.type,
                call->info.name, call->wrong);
        return false;
    }
    for (uint32_t i = 0; i < call->info.params; i++) {
        if (call->set[i] || kvf_kernel_param(call->kernel, i, &param)) continue;
        fprintf(stderr, "kvforge-run: %s/%s: parameter %s is unknown here\n", call->info.type,
                call->info.name, param.name);
        return false;
    }
    return true;
}

bool call_launch(struct session *session, struct call *call) {
    kvf_error error = {0};
    if (!complete(call)) return false;
    if (kvf_launch(call->kernel, NULL, call->bytes, call->info.params_bytes, &error))
        return session_fail("launch", &error);
    return session_wait(session);
}
