/*
 * row_lists, translate_pack and rows_copy against lists written out by hand and against the
 * definition of what a token may see.
 */
#include "lists.h"
#include "tap.h"

#define TOKENS   12
#define REQUESTS 3
#define STRIDE   200 /* of a list */
#define COLUMNS  6   /* of a table */
#define FILL     0x55555555

static int32_t rows[TOKENS][STRIDE], window_count[TOKENS], entry_count[TOKENS];
static int32_t batch_id[TOKENS], position[TOKENS], slot[REQUESTS] = {4, 0, 2};
static int32_t window_table[REQUESTS][COLUMNS], block_table[REQUESTS][COLUMNS];

static const struct ref_type csa = {.window = 128, .ring = 130, .block = 128, .ratio = 4},
                             hca = {.window = 128, .ring = 128, .block = 128, .ratio = 128},
                             small = {.window = 16, .ring = 18, .block = 128, .ratio = 16};

static void clear(void) {
    for (uint32_t t = 0; t < TOKENS; t++) {
        batch_id[t] = position[t] = -1;
        window_count[t] = entry_count[t] = FILL;
        for (uint32_t i = 0; i < STRIDE; i++) rows[t][i] = FILL;
    }
    for (int32_t r = 0; r < REQUESTS; r++)
        for (int32_t c = 0; c < COLUMNS; c++) {
            window_table[r][c] = (r * 11 + c * 5) % 20;
            block_table[r][c] = (r * 7 + c * 3 + 1) % 20;
        }
}

static void token(uint32_t t, int32_t request, int32_t at) {
    batch_id[t] = request;
    position[t] = at;
}

static struct ref_row_lists list_args(bool paged, bool entries) {
    return (struct ref_row_lists){
        .tokens = TOKENS,
        .requests = REQUESTS,
        .batch_id = batch_id,
        .position = position,
        .paged = paged,
        .state_slot = slot,
        .slots = 5,
        .window_table = {window_table[0], COLUMNS, 20},
        .entries = entries,
        .block_table = {block_table[0], COLUMNS, 20},
        .list_stride = STRIDE,
        .rows = rows[0],
        .window_count = window_count,
        .entry_count = entry_count,
    };
}

static bool untouched_from(uint32_t t, uint32_t from) {
    for (uint32_t i = from; i < STRIDE; i++)
        if (rows[t][i] != FILL) return false;
    return true;
}

/* Published: p = 126 sees 127 rows, 127 and later 128; the newest row is last, at p mod ring. */
static void window_ring(void) {
    static const int32_t at[] = {0, 126, 127, 128, 255, 389};
    clear();
    for (uint32_t i = 0; i < 6; i++) token(i, 1, at[i]);
    struct ref_row_lists args = list_args(false, false);
    struct ref_type type = csa;
    type.ring = 128;
    ref_row_lists(&type, &args);
    is(window_count[0], 1, "position 0 sees itself");
    is(rows[0][0], 0, "in row 0 of slot 0");
    is(window_count[1], 127, "position 126 sees 127 rows");
    ok(window_count[2] == 128 && rows[2][0] == 0 && rows[2][127] == 127, "127 sees 0 .. 127");
    ok(window_count[3] == 128 && rows[3][0] == 1 && rows[3][126] == 127 && rows[3][127] == 0,
       "128 sees 1 .. 127, 0");
    ok(rows[4][0] == 0 && rows[4][127] == 127, "255 sees 0 .. 127 once more");
    type.ring = 130;
    slot[1] = 3;
    ref_row_lists(&type, &args);
    slot[1] = 0;
    ok(rows[5][0] == 3 * 130 + 2 && rows[5][127] == 3 * 130 + 389 % 130,
       "with drafts the ring is longer");
    ok(untouched_from(5, 128) && entry_count[5] == 0, "nothing behind the list, no entries");
}

static void visible(void) {
    static const int32_t at[] = {2, 3, 126, 127, 130, 131, 255, 256};
    static const int32_t csa_sees[] = {0, 1, 31, 32, 32, 33, 64, 64};
    static const int32_t hca_sees[] = {0, 0, 0, 1, 1, 1, 2, 2};
    bool good[2] = {true, true};
    clear();
    for (uint32_t i = 0; i < 8; i++) token(i, 2, at[i]);
    struct ref_row_lists args = list_args(true, true);
    ref_row_lists(&csa, &args);
    for (uint32_t i = 0; i < 8; i++) good[0] &= entry_count[i] == csa_sees[i];
    ok(good[0], "ratio 4: entries visible at 2, 3, 126, 127, 130, 131, 255, 256");
    ok(rows[1][4] == block_table[2][0] * 32, "entry 0 follows the four window rows of position 3");
    ok(rows[6][128 + 33] == block_table[2][1] * 32 + 1, "entry 33 is row 1 of the second block");
    clear();
    for (uint32_t i = 0; i < 8; i++) token(i, 2, at[i]);
    ref_row_lists(&hca, &args);
    for (uint32_t i = 0; i < 8; i++) good[1] &= entry_count[i] == hca_sees[i];
    ok(good[1], "ratio 128: visible at the same positions");
    ok(rows[6][128] == block_table[2][0] && rows[6][129] == block_table[2][1],
       "one entry a block: the row is the block's id");
}

/* What stands at each place of a list, by the definition of a token's view. */
static bool as_defined(const struct ref_type *type, uint32_t t) {
    uint32_t count = 0;
    for (int64_t p = 0; p <= position[t]; p++) {
        if (p + type->window <= position[t]) continue;
        int32_t page = window_table[batch_id[t]][p / 128];
        if (rows[t][count++] != (page < 0 ? -1 : page * 128 + p % 128)) return false;
    }
    if (window_count[t] != (int32_t)count) return false;
    for (int64_t j = 0; j * type->ratio + type->ratio - 1 <= position[t]; j++) {
        int64_t k = 128 / type->ratio;
        int32_t page = block_table[batch_id[t]][j / k];
        if (rows[t][count++] != (page < 0 ? -1 : page * k + j % k)) return false;
    }
    return entry_count[t] == (int32_t)count - window_count[t] && untouched_from(t, count);
}

static void paged(void) {
    unsigned wrong = 0;
    struct ref_row_lists args = list_args(true, true);
    for (int32_t first = 0; first < 700; first += TOKENS) {
        clear();
        window_table[0][1] = window_table[1][2] = block_table[1][0] = block_table[2][3] = -1;
        for (uint32_t t = 0; t < TOKENS; t++) token(t, first / TOKENS % 3, first + (int32_t)t);
        ref_row_lists(&small, &args);
        for (uint32_t t = 0; t < TOKENS; t++) wrong += !as_defined(&small, t);
    }
    is(wrong, 0, "708 positions of three requests as defined, with missing blocks");
}

static void edges(void) {
    clear();
    token(0, 0, 40);
    token(1, -1, 40);
    token(2, REQUESTS, 40);
    token(3, 0, INT32_MIN);
    token(4, 1, 40);
    struct ref_row_lists args = list_args(false, true);
    slot[1] = 5;
    ref_row_lists(&small, &args);
    slot[1] = 0;
    bool empty = true;
    for (uint32_t t = 1; t < 4; t++)
        empty &= window_count[t] == 0 && entry_count[t] == 0 && untouched_from(t, 0);
    ok(empty, "padding has empty lists and no rows");
    ok(window_count[4] == 16 && rows[4][0] == -1 && rows[4][15] == -1,
       "a slot that does not exist has no rows");
    clear();
    token(0, 0, 767);
    token(1, 0, 799);
    args = list_args(true, true);
    ref_row_lists(&small, &args);
    ok(rows[0][16 + 47] == block_table[0][5] * 8 + 7 && entry_count[0] == 48,
       "the last block of the table");
    ok(rows[1][15] == -1 && rows[1][16 + 48] == -1 && entry_count[1] == 50,
       "positions beyond the table have no rows");
    window_table[0][0] = 20;
    block_table[0][0] = INT32_MAX;
    token(0, 0, 20);
    ref_row_lists(&small, &args);
    ok(rows[0][0] == -1 && rows[0][16] == -1, "pages that do not exist have none");
    args.list_stride = 17;
    ref_row_lists(&small, &args);
    ok(window_count[1] == 16 && entry_count[1] == 1, "a short list is cut and counted so");
    args.list_stride = 5;
    ref_row_lists(&small, &args);
    ok(window_count[1] == 5 && entry_count[1] == 0, "even in the window");
    args.indexer = true;
    entry_count[1] = 77;
    ref_row_lists(&small, &args);
    is(entry_count[1], 77, "with an indexer entries are counted elsewhere");
}

static void packed(void) {
    static int32_t topk[TOKENS][8], topk_count[TOKENS];
    clear();
    for (uint32_t i = 0; i < 8; i++) topk[0][i] = topk[1][i] = topk[3][i] = (int32_t)(31 * i);
    token(0, 1, 1000);
    token(1, 2, 1000);
    token(2, -1, 5);
    token(3, 1, 900);
    window_count[0] = window_count[1] = 128;
    window_count[3] = STRIDE - 3;
    topk_count[0] = 8;
    topk_count[1] = 3;
    topk_count[3] = 8;
    block_table[1][3] = -1;
    struct ref_translate_pack args = {
        .tokens = 4,
        .requests = REQUESTS,
        .batch_id = batch_id,
        .position = position,
        .topk = topk[0],
        .topk_count = topk_count,
        .topk_stride = 8,
        .block_table = {block_table[0], COLUMNS, 20},
        .list_stride = STRIDE,
        .window_count = window_count,
        .rows = rows[0],
        .entry_count = entry_count,
    };
    ref_translate_pack(&csa, &args);
    is(entry_count[0], 8, "eight entries were chosen");
    ok(rows[0][128] == block_table[1][0] * 32 && rows[0][130] == block_table[1][1] * 32 + 30,
       "entries 0 and 62 by the request's blocks");
    ok(rows[0][132] == -1 && rows[0][131] == block_table[1][2] * 32 + 29,
       "entry 124 lies in a block that is not backed");
    ok(rows[0][135] == -1, "entry 217 lies beyond the table");
    ok(rows[0][0] == FILL && untouched_from(0, 136), "the window's rows and the rest stay");
    ok(entry_count[1] == 3 && untouched_from(1, 131), "only as many as were chosen");
    is(entry_count[2], 0, "padding has none");
    ok(entry_count[3] == 3 && rows[3][STRIDE - 1] == block_table[1][1] * 32 + 30,
       "a full list takes no more");
}

static void copies(void) {
    static uint8_t from[6][40], to[5][50], want[5][50];
    static const int32_t src[] = {5, 0, -1, 2, 0}, dst[] = {0, 4, 3, -1, 1};
    for (uint32_t i = 0; i < sizeof from; i++) from[i / 40][i % 40] = (uint8_t)(i * 7 + 1);
    memset(to, 0xee, sizeof to);
    memset(want, 0xee, sizeof want);
    memcpy(want[0], from[5], 32);
    memcpy(want[4], from[0], 32);
    memcpy(want[1], from[0], 32);
    struct ref_rows_copy args = {32, 5, 40, 50, src, dst, from[0], to[0]};
    ref_rows_copy(&args);
    same(to, want, sizeof to, "pages go where the lists say, -1 copies nothing");
}

int main(void) {
    tap_plan(8 + 5 + 1 + 8 + 8 + 1);
    window_ring();
    visible();
    paged();
    edges();
    packed();
    copies();
    return tap_done();
}
