/* The packed lists' twin by hand, from the published description's own words. */
#include "packed.h"
#include "tap.h"

#include <string.h>

/* Window 4, blocks of 8 positions, an entry per 2: 4 entries a block. */
static const struct ref_type type = {.window = 4, .block = 8, .ratio = 2};
static int32_t pages[2][3] = {{5, -1, 2}, {0, 7, 1}};
static int32_t batch_id[4] = {0, 1, 1, -1}, position[4] = {3, 9, 10, -1};
static const int32_t cu_tokens[3] = {0, 1, 3};
static int32_t rows[40], extend[16], count[4];

static struct ref_packed_lists make(const int32_t *indptr, bool prefill, bool indexer) {
    struct ref_table table = {pages[0], 3, 9};
    memset(rows, 0x77, sizeof rows);
    memset(extend, 0x77, sizeof extend);
    static const int32_t extend_indptr[5] = {0, 1, 2, 4, 4};
    return (struct ref_packed_lists){
        .batch = {4, 2, 0, 0, batch_id, position, cu_tokens, NULL},
        .prefill = prefill,
        .indexer = indexer,
        .window = table,
        .block = table,
        .rows = {indptr, 40, rows},
        .extend = {extend_indptr, 16, extend},
        .window_count = count,
    };
}

static bool holds(const int32_t *got, int n, const int32_t *want) {
    return !memcmp(got, want, (size_t)n * sizeof *got);
}

int main(void) {
    enum { REST = 0x77777777 };
    static const int32_t decode[5] = {1, 7, 16, 26, 26};
    tap_plan(12);

    struct ref_packed_lists args = make(decode, false, false);
    ref_packed_lists(&type, &args);
    ok(holds(rows, 7, (int32_t[]){REST, 20, 21, 40, 41, 42, 43}),
       "decode: entries at the head, the window at the tail of the slice");
    /* Token 1: positions 6..9 lie in pages 0 and 7; five entries of pages 0 and 7. */
    ok(holds(rows + 7, 9, (int32_t[]){0, 1, 2, 3, 28, 6, 7, 56, 57}), "over two blocks");
    /* Token 2: five entries, room for six. */
    ok(holds(rows + 16, 10, (int32_t[]){0, 1, 2, 3, 28, -1, 7, 56, 57, 58}),
       "a head with room is filled with -1");
    ok(rows[26] == REST && count[0] == 4 && count[2] == 4 && count[3] == 0,
       "padding has an empty slice");

    args = make(decode, false, true);
    ref_packed_lists(&type, &args);
    ok(rows[1] == REST && rows[2] == REST && holds(rows + 3, 4, (int32_t[]){40, 41, 42, 43}),
       "with an indexer the head is left alone");
    int32_t topk[4][3] = {{1, 0, 9}, {4, 2, 1}, {0, 1, 2}}, topk_count[4] = {2, 3, 3, 0};
    struct ref_packed_chosen chosen = {.batch = args.batch,
                                       .block = args.block,
                                       .topk_stride = 3,
                                       .topk = topk[0],
                                       .topk_count = topk_count,
                                       .skip = count,
                                       .rows = args.rows};
    ref_packed_chosen(&type, &chosen);
    ok(holds(rows + 1, 6, (int32_t[]){21, 20, 40, 41, 42, 43}), "chosen entries at the head");
    ok(holds(rows + 7, 9, (int32_t[]){28, 2, 1, -1, -1, 6, 7, 56, 57}), "then -1 up to the window");

    /* Prefill: request 1's chunk starts at 9; positions before it are prefix rows. */
    static const int32_t prefix[5] = {0, 2, 10, 18, 18};
    args = make(prefix, true, false);
    ref_packed_lists(&type, &args);
    ok(count[0] == 2 && count[1] == 3 && count[2] == 2, "prefill: what lies before the chunk");
    ok(holds(rows + 2, 8, (int32_t[]){6, 7, 56, 0, 1, 2, 3, 28}),
       "without an indexer: window rows at the head, entries behind them");
    ok(holds(extend, 4, (int32_t[]){0, 1, 1, 2}), "this forward's rows are token numbers");

    args = make(prefix, true, true);
    ref_packed_lists(&type, &args);
    ok(rows[2] == REST && holds(rows + 7, 3, (int32_t[]){6, 7, 56}),
       "with an indexer: window rows at the tail");

    static const int32_t bad[5] = {0, 41, -3, 2, 2};
    args = make(bad, false, false);
    ref_packed_lists(&type, &args);
    ok(rows[0] == REST && count[1] == 0, "slices that are none stay empty");
    return tap_done();
}
