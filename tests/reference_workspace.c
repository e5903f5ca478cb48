/* The workspace's twins by hand: where its rows lie, what swa_write and workspace_fill put there.
 */
#include "convert.h"
#include "reference.h"
#include "tap.h"

#define DIM       4
#define ROPE      2
#define ROW       ((uint64_t)2 * DIM)
#define WINDOW    4 /* so 3 rows stand before each request's tokens */
#define RING      6
#define BLOCK     8
#define POSITIONS 40
#define TOKENS    24
#define REQUESTS  4
#define SLOTS     3
#define PAGES     4
#define ROWS      48 /* of the workspace */
#define NOTHING   (-1)

static uint16_t latent[TOKENS][DIM], window_rows[PAGES * BLOCK][DIM], workspace[ROWS][DIM];
static float rope[POSITIONS][ROPE];
static int32_t batch_id[TOKENS], position[TOKENS], cu_tokens[REQUESTS + 1], state_slot[REQUESTS];
static int32_t swa_pos[SLOTS][RING], swa_head[SLOTS];

static struct ref_type tiny(void) {
    return (struct ref_type){.format = REF_BF16,
                             .head_dim = DIM,
                             .rope_dim = ROPE,
                             .window = WINDOW,
                             .ring = RING,
                             .block = BLOCK,
                             .input = REF_BFLOAT};
}

/* Latents are 100 + token, window rows their number, the workspace holds nothing; no rotation. */
static void clear(void) {
    for (int t = 0; t < TOKENS; t++) {
        batch_id[t] = position[t] = -1;
        for (int e = 0; e < DIM; e++) latent[t][e] = ref_bf16((float)(100 + t));
    }
    for (int r = 0; r < PAGES * BLOCK; r++)
        for (int e = 0; e < DIM; e++) window_rows[r][e] = ref_bf16((float)r);
    for (int r = 0; r < ROWS; r++)
        for (int e = 0; e < DIM; e++) workspace[r][e] = ref_bf16(NOTHING);
    for (int p = 0; p < POSITIONS; p++) rope[p][0] = 1, rope[p][1] = 0;
    memset(cu_tokens, 0, sizeof cu_tokens);
    memset(swa_pos, 0xff, sizeof swa_pos);
}

/* Request b takes `count` tokens from position `first`, in a slot; requests come in order. */
static void request(int b, int count, int first, int slot) {
    cu_tokens[b + 1] = cu_tokens[b] + count;
    state_slot[b] = slot;
    for (int i = 0; i < count; i++) {
        batch_id[cu_tokens[b] + i] = b;
        position[cu_tokens[b] + i] = first + i;
    }
}

static struct ref_batch batch(uint32_t requests) {
    return (struct ref_batch){TOKENS,   requests, SLOTS,     POSITIONS,
                              batch_id, position, cu_tokens, state_slot};
}

static struct ref_place window_place(uint32_t rows) {
    return (struct ref_place){{{(uint8_t *)window_rows, rows * ROW}}, rows};
}

static struct ref_place workspace_place(uint32_t rows) {
    return (struct ref_place){{{(uint8_t *)workspace, rows * ROW}}, rows};
}

/* The value that a whole row holds; -2 if its elements differ. */
static int value(const uint16_t *row) {
    for (int e = 1; e < DIM; e++)
        if (row[e] != row[0]) return -2;
    return (int)ref_bf16_value(row[0]);
}

/* Whether the workspace holds `want` from row `first` on. */
static bool holds(int first, int count, const int *want) {
    for (int i = 0; i < count; i++) {
        if (value(workspace[first + i]) == want[i]) continue;
        tap_note("row %d holds %d, not %d", first + i, value(workspace[first + i]), want[i]);
        return false;
    }
    return true;
}
#define HOLDS(first, ...)                                                                          \
    holds((first), sizeof((int[]){__VA_ARGS__}) / sizeof(int), (int[]){__VA_ARGS__})

static int filled(void) {
    int count = 0;
    for (int r = 0; r < ROWS; r++) count += value(workspace[r]) != NOTHING;
    return count;
}

static void numbers(void) {
    struct ref_type type = tiny();
    is(ref_workspace_row(&type, 0, 0), 3, "the first token stands behind the window before it");
    is(ref_workspace_row(&type, 5, 2), 14, "every request has such a window");
    is(ref_workspace_row(&type, 4000000000u, 999999999), 7000000000, "row numbers are 64-bit");
    type.window = 1;
    is(ref_workspace_row(&type, 5, 2), 5, "with a window of 1 rows are tokens");
}

static void write_ring(void) {
    struct ref_type type = tiny();
    clear();
    request(0, 8, 2, 1);                /* positions 2..9; the ring keeps 4..9 */
    request(1, 2, 0, -1);               /* no slot */
    request(2, 0, 5, 0);                /* no token */
    request(3, 3, POSITIONS - 2, 2);    /* the last position is not in the table */
    batch_id[15] = 3;                   /* position -1 */
    batch_id[16] = 4, position[16] = 1; /* no such request */
    struct ref_swa_write args = {
        .batch = batch(4),
        .latent = (uint8_t *)latent,
        .latent_stride = sizeof latent[0],
        .rope = rope[0],
        .window = window_place(RING),
        .swa_pos = {(uint8_t *)swa_pos, sizeof swa_pos[0]},
        .swa_head = {(uint8_t *)swa_head, sizeof swa_head[0]},
        .workspace = workspace_place(RING),
    };
    ref_swa_write(&type, &args);
    ok(HOLDS(3, 100, 101, 102, 103, 104, 105, 106, 107),
       "ring: every token of a chunk longer than the ring has its row");
    ok(value(window_rows[RING + 3]) == 107 && value(window_rows[RING + 4]) == 102 &&
           swa_pos[1][3] == 9 && swa_head[1] == 4,
       "and the ring the last of them");
    ok(HOLDS(14, 108, 109), "a request without a slot has rows there too");
    ok(HOLDS(22, 110, 111, NOTHING), "a position beyond the table has none");
    is(filled(), 12, "nor has padding, or an unknown request");
    ok(value(window_rows[0]) == 0 && value(window_rows[5]) == 5,
       "the slot of no token is untouched");
}

static void write_paged(void) {
    struct ref_type type = tiny();
    int32_t write_from[2] = {8, 0}, table[2][2] = {{1, 3}, {-1, 0}};
    clear();
    request(0, 4, 6, 0); /* positions 6 and 7 are shared */
    request(1, 3, 6, 0); /* positions 6 and 7 are not backed */
    struct ref_swa_write_paged args = {
        .batch = batch(2),
        .latent = (uint8_t *)latent,
        .latent_stride = sizeof latent[0],
        .rope = rope[0],
        .write_from = write_from,
        .window_table = table[0],
        .pages = PAGES,
        .table_stride = 2,
        .window = window_place(BLOCK),
        .workspace = workspace_place(BLOCK),
    };
    ref_swa_write_paged(&type, &args);
    ok(HOLDS(3, 100, 101, 102, 103), "paged: rows below write_from are in the workspace");
    ok(value(window_rows[8 + 6]) == 14 && value(window_rows[24]) == 102 &&
           value(window_rows[25]) == 103,
       "and not in the page that is shared");
    ok(HOLDS(10, 104, 105, 106) && value(window_rows[0]) == 106,
       "rows of a block that is not backed are there too");
    is(filled(), 7, "and nothing else");
}

static void fill_ring(void) {
    struct ref_type type = tiny();
    clear();
    request(0, 5, 7, 2);  /* rows of positions 4, 5, 6 */
    request(1, 0, 30, 0); /* no token */
    request(2, 2, 2, 0);  /* of 0 and 1 */
    request(3, 1, 9, SLOTS);
    struct ref_workspace_fill args = {
        .batch = batch(4), .window = window_place(RING), .workspace = workspace_place(RING)};
    ref_workspace_fill(&type, &args);
    ok(HOLDS(0, 12 + 4, 12 + 5, 12 + 0, NOTHING), "ring: the rows before the chunk, oldest first");
    ok(HOLDS(5 + 6, NOTHING, 0, 1, NOTHING), "of a chunk near the start those there are");
    is(filled(), 5, "no rows of a request without a token or a slot");
    clear();
    request(0, 1, 0, 0);
    request(1, 1, INT32_MIN, 1);
    request(2, 1, -1, 1);
    args.batch = batch(3);
    ref_workspace_fill(&type, &args);
    is(filled(), 0, "nothing stands before position 0, or before padding");
}

static void fill_paged(void) {
    struct ref_type type = tiny();
    int32_t table[4][2] = {{3, 1}, {-1, 2}, {0, PAGES}, {1, 1}};
    clear();
    request(0, 2, 10, -1); /* 7 in page 3; 8 and 9 in page 1 */
    request(1, 1, 9, -1);  /* 6 and 7 are not backed */
    request(2, 1, 11, -1); /* a page beyond the pool */
    request(3, 1, 18, -1); /* 15; 16 and 17 lie beyond the table */
    struct ref_workspace_fill args = {
        .batch = batch(4),
        .paged = true,
        .table = {table[0], 2, PAGES},
        .window = window_place(BLOCK),
        .workspace = workspace_place(BLOCK),
    };
    ref_workspace_fill(&type, &args);
    ok(HOLDS(0, 31, 8, 9, NOTHING), "paged: across two blocks");
    ok(HOLDS(5, NOTHING, NOTHING, 16, NOTHING), "what is not backed is left alone");
    ok(HOLDS(13, 15, NOTHING, NOTHING), "what the table does not name too");
    is(filled(), 5, "and nothing else is written");
}

static void lists(void) {
    struct ref_type type = tiny();
    int32_t rows[TOKENS][8], window_count[TOKENS], entry_count[TOKENS];
    int32_t blocks[2] = {2, 1};
    clear();
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < 8; i++) rows[t][i] = -99;
    request(0, 2, 0, -1);
    request(1, 2, 9, -1);
    struct ref_row_lists args = {
        .batch = batch(2),
        .workspace = true,
        .block = {blocks, 1, 3},
        .list_stride = 8,
        .rows = rows[0],
        .window_count = window_count,
        .entry_count = entry_count,
    };
    ref_row_lists(&type, &args);
    ok(window_count[0] == 1 && rows[0][0] == 3 && rows[0][1] == -99, "the first token sees itself");
    ok(window_count[1] == 2 && rows[1][0] == 3 && rows[1][1] == 4, "the second both");
    ok(window_count[3] == 4 && rows[3][0] == 6 && rows[3][1] == 7 && rows[3][2] == 8 &&
           rows[3][3] == 9 && rows[3][4] == -99,
       "a later one rows before the chunk too, though it has no slot");
    ok(window_count[4] == 0 && rows[4][0] == -99, "padding sees nothing");
    type.ratio = 4;
    args.batch.state_slot = NULL;
    ref_row_lists(&type, &args);
    ok(entry_count[3] == 2 && rows[3][4] == 2 && rows[3][5] == 3, "entries follow as ever");
    args.list_stride = 3;
    ref_row_lists(&type, &args);
    ok(window_count[3] == 3 && entry_count[3] == 0 && rows[1][1] == 6 && rows[1][3] == 8,
       "a short list keeps the first window rows");
}

int main(void) {
    tap_plan(4 + 6 + 4 + 4 + 4 + 6);
    numbers();
    write_ring();
    write_paged();
    fill_ring();
    fill_paged();
    lists();
    return tap_done();
}
