/* rows_copy: pages of any size, ids on either side that are not there. */
#include "verify.h"

#include "reference/lists.h"

#include <stdio.h>
#include <string.h>

#define PAGES 7

static const struct plan {
    const char *name;
    uint64_t bytes;
    uint32_t count;
    int32_t src[8], dst[8]; /* destinations differ */
} plans[] = {
    {"one page of 16 bytes", 16, 1, {3}, {5}},
    {"pages in another order", 592, 5, {0, 1, 2, 3, 6}, {4, 3, 2, 6, 0}},
    {"ids that are not there", 1024, 6, {-1, 2, 5, -1, 0, INT32_MIN}, {1, -1, 3, -1, 2, 4}},
    {"one page to many", 4096, 4, {6, 6, 6, 6}, {0, 1, 2, 3}},
    {"pages longer than a block copies", 40000, 2, {1, 2}, {5, 0}},
    {"no page", 64, 0, {0}, {0}},
    {"no bytes", 0, 2, {0, 1}, {2, 3}},
};

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct call call;
    struct buffer src, dst, src_ids, dst_ids;
    uint64_t src_stride, dst_stride;
};

static bool make_ids(struct bench *b, const char *name, const int32_t *ids, uint32_t count,
                     struct buffer *out) {
    if (!buffer_create(b->verify->session, name, 4 * (size_t)count, false, out)) return false;
    memcpy(buffer_data(out), ids, 4 * (size_t)count);
    return buffer_upload(b->verify->session, out);
}

static bool make(struct bench *b, const struct plan *plan) {
    struct session *session = b->verify->session;
    b->src_stride = plan->bytes + 16;
    b->dst_stride = plan->bytes + 48;
    if (!buffer_create(session, "src", PAGES * b->src_stride, false, &b->src) ||
        !buffer_create(session, "dst", PAGES * b->dst_stride, true, &b->dst))
        return false;
    for (size_t i = 0; i < buffer_bytes(&b->src); i++)
        buffer_data(&b->src)[i] = (uint8_t)input_next(&b->verify->random);
    return buffer_upload(session, &b->src) && buffer_upload(session, &b->dst) &&
           make_ids(b, "src_ids", plan->src, plan->count, &b->src_ids) &&
           make_ids(b, "dst_ids", plan->dst, plan->count, &b->dst_ids);
}

static bool launch(struct bench *b, const struct plan *plan) {
    call_set(&b->call, "bytes", plan->bytes);
    call_set(&b->call, "count", plan->count);
    verify_bind(&b->call, "src", &b->src, b->src_stride);
    verify_bind(&b->call, "dst", &b->dst, b->dst_stride);
    call_set(&b->call, "src_ids", buffer_address(&b->src_ids));
    call_set(&b->call, "dst_ids", buffer_address(&b->dst_ids));
    return verify_launch(b->verify, &b->call);
}

static bool run_case(struct bench *b, const struct plan *plan) {
    struct session *session = b->verify->session;
    struct outputs outputs = {.list = {&b->dst}, .count = 1};
    bool good = make(b, plan) && outputs_remember(&outputs);
    if (good) {
        struct ref_rows_copy args = {
            .bytes = plan->bytes,
            .count = plan->count,
            .src_stride = b->src_stride,
            .dst_stride = b->dst_stride,
            .src_ids = plan->src,
            .dst_ids = plan->dst,
            .src = buffer_data(&b->src),
            .dst = buffer_data(&b->dst),
        };
        bool ran = launch(b, plan);
        ref_rows_copy(&args);
        verify_case(b->verify, b->subject, &outputs, ran, plan->name, 0);
    }
    buffer_destroy(session, &b->src);
    buffer_destroy(session, &b->dst);
    buffer_destroy(session, &b->src_ids);
    buffer_destroy(session, &b->dst_ids);
    return good && !b->verify->broken;
}

bool verify_rows_copy(struct verify *verify, const struct subject *subject) {
    struct bench b = {.verify = verify, .subject = subject};
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b.call);
    for (size_t i = 0; good && i < sizeof plans / sizeof *plans; i++)
        good = run_case(&b, &plans[i]);
    return good;
}
