/* row_lists' and translate_pack's twins, by hand. */
#include "reference.h"
#include "tap.h"

#define TOKENS 4
#define STRIDE 16

static int32_t batch_id[TOKENS], position[TOKENS], state_slot[2] = {3, 8};
static int32_t rows[TOKENS][STRIDE], window_count[TOKENS], entry_count[TOKENS];
static int32_t blocks[2][3] = {{5, -1, 2}, {0, 7, 1}};

/* Window 4, ring 6, blocks of 8 positions, an entry per 2: 4 entries a block. */
static struct ref_type type_of(uint32_t ratio) {
    return (struct ref_type){.window = 4, .ring = 6, .block = 8, .ratio = ratio};
}

static struct ref_row_lists make(void) {
    for (int i = 0; i < TOKENS * STRIDE; i++) rows[i / STRIDE][i % STRIDE] = -99;
    for (int t = 0; t < TOKENS; t++)
        batch_id[t] = position[t] = -1, window_count[t] = entry_count[t] = -99;
    return (struct ref_row_lists){
        .batch = {TOKENS, 2, 8, 0, batch_id, position, NULL, state_slot},
        .window = {blocks[0], 3, 7},
        .block = {blocks[0], 3, 7},
        .list_stride = STRIDE,
        .rows = rows[0],
        .window_count = window_count,
        .entry_count = entry_count,
    };
}

static void token(int t, int request, int at) {
    batch_id[t] = request;
    position[t] = at;
}

static bool is_row(int t, int count, const int32_t *want) {
    bool good = rows[t][count] == -99;
    for (int i = 0; i < count; i++) good = good && rows[t][i] == want[i];
    return good;
}

static void windows(void) {
    struct ref_type type = type_of(0);
    struct ref_row_lists args = make();
    token(0, 0, 0);
    token(1, 0, 7);
    token(3, 1, 7);
    ref_row_lists(&type, &args);
    ok(window_count[0] == 1 && is_row(0, 1, (int32_t[]){18}), "the first token sees itself");
    ok(window_count[1] == 4 && is_row(1, 4, (int32_t[]){22, 23, 18, 19}),
       "the last four positions, oldest first, round the ring of slot 3");
    ok(window_count[2] == 0 && entry_count[2] == 0 && rows[2][0] == -99,
       "padding has an empty list");
    ok(is_row(3, 4, (int32_t[]){-1, -1, -1, -1}), "a slot out of range gives -1");
    ok(entry_count[0] == 0 && entry_count[1] == 0, "without a ratio there are no entries");
    args = make();
    args.paged = true;
    token(0, 0, 9);
    token(1, 1, 17);
    ref_row_lists(&type, &args);
    ok(is_row(0, 4, (int32_t[]){46, 47, -1, -1}), "paged: a block that is not backed gives -1");
    ok(is_row(1, 4, (int32_t[]){-1, -1, 8, 9}), "a page beyond the pool too");
}

/* Window 4: token t of request b is row t + (b + 1) * 3, the three before it its request's past. */
static void workspace(void) {
    struct ref_type type = type_of(0);
    struct ref_row_lists args = make();
    args.workspace = true;
    token(0, 0, 9);
    token(1, 0, 10);
    token(3, 1, 1);
    state_slot[0] = -1; /* not read */
    ref_row_lists(&type, &args);
    ok(is_row(0, 4, (int32_t[]){0, 1, 2, 3}) && is_row(1, 4, (int32_t[]){1, 2, 3, 4}),
       "a workspace: the rows before the launch, then the launch's");
    ok(is_row(3, 2, (int32_t[]){8, 9}), "a later request's begin behind those before it");
    state_slot[0] = 3;
}

static void entries(void) {
    struct ref_type type = type_of(2);
    struct ref_row_lists args = make();
    token(0, 0, 18);
    ref_row_lists(&type, &args);
    ok(window_count[0] == 4 && entry_count[0] == 9, "(position + 1) / ratio entries are visible");
    ok(is_row(0, 13, (int32_t[]){21, 22, 23, 18, 20, 21, 22, 23, -1, -1, -1, -1, 8}),
       "behind the window rows, block by block");
    token(0, 0, 27);
    args.list_stride = 8;
    ref_row_lists(&type, &args);
    ok(rows[0][4] == 20, "entries begin with the first");
    args = make();
    args.paged = true;
    token(0, 0, 25);
    token(1, 0, 19);
    ref_row_lists(&type, &args);
    ok(rows[0][0] == 22 && rows[0][1] == 23 && rows[0][2] == -1 && rows[0][3] == -1,
       "a block beyond the table's columns gives -1");
    is(entry_count[1], 10, "a token that completes an entry sees it");
    args = make();
    args.list_stride = 6;
    token(0, 0, 18);
    ref_row_lists(&type, &args);
    ok(window_count[0] == 4 && entry_count[0] == 2 && rows[0][5] == 21 && rows[0][6] == -99,
       "a list that is too short keeps the first entries");
    args = make();
    args.list_stride = 3;
    token(0, 0, 18);
    ref_row_lists(&type, &args);
    ok(window_count[0] == 3 && entry_count[0] == 0 && rows[0][2] == 23, "or the first window rows");
    args = make();
    args.indexer = true;
    token(0, 0, 18);
    ref_row_lists(&type, &args);
    ok(entry_count[0] == -99 && entry_count[1] == -99 && rows[0][4] == -99,
       "with an indexer the entries are left alone");
}

static void translation(void) {
    struct ref_type type = type_of(2);
    int32_t topk[TOKENS][5] = {{0, 3, 8, 5, 77}}, topk_count[TOKENS] = {4, 2, 0, 5};
    struct ref_row_lists lists = make();
    struct ref_translate_pack args = {
        .batch = lists.batch,
        .block = lists.block,
        .list_stride = 6,
        .topk_stride = 5,
        .topk = topk[0],
        .topk_count = topk_count,
        .window_count = (int32_t[]){1, 0, 0, 3},
        .rows = rows[0],
        .entry_count = entry_count,
    };
    token(0, 0, 20);
    token(3, 0, 20);
    ref_translate_pack(&type, &args);
    ok(entry_count[0] == 4 && rows[0][0] == -99 && rows[0][1] == 20 && rows[0][2] == 23 &&
           rows[0][3] == 8 && rows[0][4] == -1 && rows[0][5] == -99,
       "chosen entries stand behind the window rows, -1 where unbacked");
    is(entry_count[1], 0, "padding has no entries");
    is(entry_count[3], 3, "as many as the list has room for");
}

int main(void) {
    tap_plan(7 + 2 + 8 + 3);
    windows();
    workspace();
    entries();
    translation();
    return tap_done();
}
