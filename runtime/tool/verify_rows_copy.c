/* rows_copy: pages of every size by lists of every kind. */
#include "reference/lists.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGES 9
#define COUNT 12 /* entries of a list, at most */

struct bench {
    struct verify *verify;
    const struct subject *subject;
    struct call call;
    struct buffer src, dst, src_ids, dst_ids;
    uint64_t bytes, src_stride, dst_stride;
};

/* No page is written twice in a launch. */
static const struct plan {
    const char *name;
    uint32_t count;
    int32_t src[COUNT], dst[COUNT];
} plans[] = {
    {"one page", 1, {3}, {5}},
    {"pages in another order", 6, {8, 0, 3, 1, 7, 2}, {0, 8, 2, 4, 1, 3}},
    {"one page to many", 4, {2, 2, 2, 2}, {1, 3, 5, 7}},
    {"-1 on either side", 7, {-1, 4, 5, -1, 6, 0, 1}, {2, -1, 3, -1, 8, 0, 6}},
    {"only -1", 3, {-1, -1, 2}, {1, -1, -1}},
    {"an empty list", 0, {0}, {0}},
};

static bool make_ids(struct bench *b, const char *name, const int32_t *ids, uint32_t count,
                     struct buffer *out) {
    if (!buffer_create(b->verify->session, name, 4 * (size_t)count, false, out)) return false;
    memcpy(buffer_data(out), ids, 4 * (size_t)count);
    return buffer_upload(b->verify->session, out);
}

/* The source ends with its last page. */
static bool make_pages(struct bench *b) {
    struct session *session = b->verify->session;
    b->src_stride = b->bytes + 16;
    b->dst_stride = b->bytes + 48;
    if (!buffer_create(session, "src", (PAGES - 1) * b->src_stride + b->bytes, false, &b->src) ||
        !buffer_create(session, "dst", PAGES * b->dst_stride, true, &b->dst))
        return false;
    uint8_t *bytes = buffer_data(&b->src);
    for (size_t i = 0; i < buffer_bytes(&b->src); i++)
        bytes[i] = (uint8_t)input_next(&b->verify->random);
    return buffer_upload(session, &b->src) && buffer_upload(session, &b->dst);
}

static bool launch(struct bench *b, uint32_t count) {
    struct call *call = &b->call;
    call_set(call, "bytes", b->bytes);
    call_set(call, "count", count);
    verify_bind(call, "src", &b->src, b->src_stride);
    verify_bind(call, "dst", &b->dst, b->dst_stride);
    call_set(call, "src_ids", buffer_address(&b->src_ids));
    call_set(call, "dst_ids", buffer_address(&b->dst_ids));
    return call_launch(b->verify->session, call);
}

static bool run_case(struct bench *b, const struct plan *plan) {
    struct session *session = b->verify->session;
    struct outputs outputs = {.list = {&b->dst}, .count = 1};
    char what[96];
    bool good = make_pages(b) && make_ids(b, "src_ids", plan->src, plan->count, &b->src_ids) &&
                make_ids(b, "dst_ids", plan->dst, plan->count, &b->dst_ids) &&
                outputs_remember(&outputs);
    if (good) {
        struct ref_rows_copy args = {
            b->bytes,  plan->count, b->src_stride,        b->dst_stride,
            plan->src, plan->dst,   buffer_data(&b->src), buffer_data(&b->dst)};
        bool ran = launch(b, plan->count);
        ref_rows_copy(&args);
        snprintf(what, sizeof what, "%s of %llu bytes", plan->name, (unsigned long long)b->bytes);
        verify_case(b->verify, b->subject, &outputs, ran, what, plan->count);
    }
    struct buffer *all[] = {&b->src, &b->dst, &b->src_ids, &b->dst_ids};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_destroy(session, all[i]);
    return good && !b->verify->broken;
}

bool verify_rows_copy(struct verify *verify, const struct subject *subject) {
    static const uint64_t sizes[] = {16, 4096 - 16, 16384, 16384 + 16, 74880, 0};
    struct bench b = {.verify = verify, .subject = subject};
    bool good = call_open(verify->session, subject->info->name, subject->kernel, &b.call);
    for (size_t s = 0; good && s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; good && i < sizeof plans / sizeof *plans; i++) {
            b.bytes = sizes[s];
            good = run_case(&b, &plans[i]);
        }
    return good;
}
