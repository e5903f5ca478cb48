/* Arrays that the verifiers of single kernels have in common. */
#include "verify.h"

#include <stdio.h>
#include <string.h>

uint32_t verify_align(const struct call *call, const char *name) {
    kvf_param_info param;
    for (uint32_t i = 0; i < call->info.params; i++)
        if (!kvf_kernel_param(call->kernel, i, &param) && !strcmp(param.name, name))
            return param.align ? param.align : 1;
    return 1;
}

struct ref_tensor_core verify_core(const struct verify *verify) {
    char device[16];
    snprintf(device, sizeof device, "sm_%d", kvf_device_capability(verify->session->device));
    return ref_tensor_core_of(device);
}

bool verify_output(struct verify *verify, const struct call *call, const char *name, uint32_t slots,
                   uint64_t bytes, struct buffer *out, uint64_t *stride) {
    uint64_t align = verify_align(call, name);
    *stride = (bytes + align - 1) / align * align + 3 * align;
    return buffer_create(verify->session, name, slots * *stride, true, out) &&
           buffer_upload(verify->session, out);
}

bool verify_matrix(struct verify *verify, const struct call *call, const char *name, uint32_t rows,
                   uint32_t columns, enum ref_dtype dtype, enum input_kind kind, struct buffer *out,
                   uint64_t *stride) {
    uint64_t row = (uint64_t)columns * (dtype == REF_F32 ? 4 : 2);
    *stride = row + (verify->cases % 2 ? verify_align(call, name) : 0);
    if (!buffer_create(verify->session, name, rows ? (rows - 1) * *stride + row : 0, false, out))
        return false;
    for (uint32_t i = 0; i < rows; i++)
        input_vector(&verify->random, kind, dtype, buffer_data(out) + i * *stride, columns);
    return buffer_upload(verify->session, out);
}

void verify_bind_as(struct call *call, const struct call_array *array) {
    call_set(call, array->name, buffer_address(array->buffer));
    call_set_stride(call, array->name, array->what, array->stride / array->unit);
    if (call->array_count < CALL_ARRAYS) call->arrays[call->array_count++] = *array;
}

void verify_bind(struct call *call, const char *name, const struct buffer *buffer,
                 uint64_t stride) {
    verify_bind_as(call, &(struct call_array){name, "", buffer, stride, 1});
}

void verify_bind_far(const struct verify *verify, struct call *call, const char *name,
                     const struct buffer *buffer, uint64_t stride) {
    if (!verify->far) {
        verify_bind(call, name, buffer, stride);
        return;
    }
    call_set(call, name, buffer_address(buffer) - verify->far_slot * verify->far);
    call_set_stride(call, name, "", stride + verify->far);
}

struct ref_type verify_index(const struct verify *verify, const struct subject *subject) {
    struct ref_type index = subject->rules;
    index.format = rules_index_format(&verify->session->rules, subject->info->name);
    index.head_dim = subject->info->indexer_dim;
    return index;
}
