/*
 * A launch is made from the manifest alone: values by their names, arrays as long as their shapes
 * say.
 */
#include "load.h"

#include "input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Attention and the indexer do much for each token: fewer of them say the same. */
static const struct load loads[] = {
    {"swa_write", 256, 4, "row"},           {"swa_write_workspace", 0, 4, "row"},
    {"workspace_fill", 0, 4, "row"},        {"tail_append", 256, 4, "token"},
    {"index_tail_append", 256, 4, "token"}, {"compress", 256, 4, "row"},
    {"index_compress", 256, 4, "row"},      {"row_lists", 256, 1, "entry"},
    {"row_lists_workspace", 0, 1, "entry"}, {"translate_pack", 256, 0, "entry"},
    {"q_norm_rope", 64, 0, "head"},         {"inverse_rope", 64, 0, "head"},
    {"indexer_query", 8, 0, "head"},        {"indexer_scores", 4, 0, "entry"},
    {"indexer_topk", 4, 0, "entry"},        {"attn", 4, 0, "row"},
    {"attn_combine", 32, 0, "head"},        {"state_reset", 256, 0, "slot"},
    {"rows_copy", 64, 0, "page"},
};

enum { COPY_BYTES = 1 << 15, POOLED_ROWS = 8192 };

/* One launch: its sizes, and the arrays that were made for it. */
struct bench {
    struct session *session;
    const kvf_type_info *info;
    struct ref_type rules;
    const char *kernel;
    struct call call;
    uint32_t requests, each, tokens, positions; /* each: tokens of a request */
    uint32_t window;                            /* rows a token sees */
    uint32_t columns, pages, window_pages; /* of a block table; blocks; window pages or slots */
    uint32_t workspace_pages, entries, chosen, list; /* entries: visible at the last position */
    uint64_t random;
    struct buffer array[LOAD_ARRAYS];
    uint32_t arrays;
};

const struct load *load_find(const char *kernel) {
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (!strcmp(loads[i].kernel, kernel)) return &loads[i];
    return NULL;
}

static bool kernel_is(const struct bench *b, const char *name) {
    return !strcmp(b->kernel, name);
}

static bool compresses(const struct bench *b) {
    return kernel_is(b, "compress") || kernel_is(b, "index_compress");
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t round_up(uint32_t value, uint32_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

static uint32_t group_rows(const struct bench *b) {
    return (1 + b->rules.overlap) * b->rules.ratio;
}

static void set_sizes(struct bench *b, uint32_t requests, bool prefill) {
    const struct ref_type *rules = &b->rules;
    if (compresses(b) && !prefill && rules->ratio && !ref_keeps_running(rules))
        requests = smaller(requests, POOLED_ROWS / group_rows(b));
    b->requests = requests;
    b->positions = smaller(LOAD_LAST + 1, b->session->model.max_positions);
    b->each = prefill ? smaller(LOAD_CHUNK, b->positions) : 1;
    b->tokens = b->requests * b->each;
    b->window = smaller(rules->window, b->positions);
    b->columns = (b->positions - 1) / rules->block + 1;
    b->pages = smaller(requests * b->columns, 1024);
    if (b->session->rules.paged)
        b->window_pages = b->requests * (1 + (b->each + rules->window) / rules->block);
    else
        b->window_pages = b->requests;
    b->workspace_pages =
        (b->tokens + b->requests * rules->window) / smaller(rules->block, rules->ring) + 1;
    b->entries = rules->ratio ? b->positions / rules->ratio : 0;
    b->chosen = b->info->has_indexer ? smaller(b->info->indexer_topk, b->entries) : b->entries;
    b->list = round_up(b->window + b->chosen, 4);
}

/* ---- values ---- */

static bool value_of(const struct bench *b, const char *name, uint64_t *out) {
    uint32_t split = b->session->rules.split_rows ? b->session->rules.split_rows : 1;
    const struct {
        const char *name;
        uint64_t value;
    } list[] = {
        {"tokens", b->tokens},
        {"requests", b->requests},
        {"requests + 1", b->requests + 1},
        {"slots", b->requests},
        {"count", b->requests},
        {"layers", 1},
        {"positions", b->positions},
        {"pages", !strncmp(b->kernel, "swa_", 4) || kernel_is(b, "workspace_fill") ? b->window_pages
                                                                                   : b->pages},
        {"window_pages", b->window_pages},
        {"block_pages", b->pages},
        {"table_stride", b->columns},
        {"list_stride", b->list},
        {"topk_stride", b->chosen},
        {"scores_stride", b->entries},
        {"first", 0},
        {"heads", b->session->model.heads},
        {"splits", (b->list + split - 1) / split},
        {"scale", 0x3d3504f3}, /* 512 ^ -0.5 */
        {"bytes", COPY_BYTES},
        {"src_stride", COPY_BYTES},
        {"dst_stride", COPY_BYTES},
        {"ratio", b->rules.ratio},
        {"head_dim", b->rules.head_dim},
        {"rope_dim", b->rules.rope_dim},
        {"indexer heads", b->info->indexer_heads},
        {"indexer dim", b->info->indexer_dim},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(list[i].name, name)) {
            *out = list[i].value;
            return true;
        }
    return false;
}

/* ---- arrays ---- */

/* Elements of an array and bytes of one of them: "[tokens][512]", "pages of 608 bytes". */
struct shape {
    uint64_t count, bytes;
};

static uint64_t pages_of(const struct bench *b, const char *name) {
    if (!strncmp(name, "ws_", 3)) return b->workspace_pages;
    return !strncmp(name, "swa_", 4) ? b->window_pages : b->info->head_dim ? b->pages : b->requests;
}

static bool extent(const struct bench *b, const char *text, size_t length, uint64_t *out) {
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)length, text);
    if (value_of(b, word, out)) return true;
    char *end;
    *out = strtoull(word, &end, 10);
    return *word && !*end;
}

static uint64_t element_bytes(const char *dtype) {
    return !strcmp(dtype, "u8") ? 1 : !strcmp(dtype, "bf16") ? 2 : 4;
}

static bool read_shape(const struct bench *b, const kvf_param_info *p, struct shape *out) {
    const char *at = p->shape;
    *out = (struct shape){0, element_bytes(p->dtype)};
    if (!strncmp(at, "pages of ", 9)) {
        out->count = pages_of(b, p->name);
        return extent(b, at + 9, strcspn(at + 9, " "), &out->bytes);
    }
    while (*at == '[') {
        size_t length = strcspn(++at, "]");
        uint64_t value;
        if (!extent(b, at, length, &value)) return false;
        if (!out->count)
            out->count = value;
        else
            out->bytes *= value;
        at += length + 1;
    }
    return out->count && !*at;
}

/* A page id for every table entry; the last column of each request is a page of its own. */
static int32_t page_of(const struct bench *b, uint32_t entry, uint32_t pages) {
    uint32_t request = entry / b->columns, back = b->columns - 1 - entry % b->columns;
    return (int32_t)((back * b->requests + request) % pages);
}

/* Row numbers of a token's list: its window's rows, then the chosen entries. */
static int32_t row_of(const struct bench *b, uint32_t token, uint32_t i) {
    uint32_t per_page = b->session->rules.paged ? b->rules.block : b->rules.ring;
    uint32_t entry = i - b->window;
    if (i < b->window) return (int32_t)((token * b->window + i) % (b->window_pages * per_page));
    if (entry >= b->chosen || !b->info->k) return -1;
    return (int32_t)((token * b->entries + entry * (b->entries / b->chosen)) %
                     (b->pages * b->info->k));
}

static int32_t number_of(const struct bench *b, const char *name, uint32_t i) {
    if (!strcmp(name, "batch_id")) return (int32_t)(i / b->each);
    if (!strcmp(name, "position")) return (int32_t)(b->positions - b->each + i % b->each);
    if (!strcmp(name, "cu_tokens")) return (int32_t)(i * b->each);
    if (!strcmp(name, "block_table")) return page_of(b, i, b->pages);
    if (!strcmp(name, "window_table")) return page_of(b, i, b->window_pages);
    if (!strcmp(name, "rows")) return row_of(b, i / b->list, i % b->list);
    if (!strcmp(name, "topk")) return (int32_t)(i % b->chosen * (b->entries / b->chosen));
    if (!strcmp(name, "topk_count") || !strcmp(name, "entry_count")) return (int32_t)b->chosen;
    if (!strcmp(name, "window_count")) return (int32_t)b->window;
    if (!strcmp(name, "write_from")) return 0;
    return (int32_t)i; /* state_slot, slot_list, ids */
}

static void fill(struct bench *b, const kvf_param_info *p, const struct shape *shape,
                 struct buffer *out) {
    uint32_t total = (uint32_t)(shape->count * shape->bytes / element_bytes(p->dtype));
    bool bf16 = !strcmp(p->dtype, "bf16"), f32 = !strcmp(p->dtype, "f32");
    if (!strcmp(p->dtype, "i32"))
        for (uint32_t i = 0; i < total; i++) buffer_ints(out)[i] = number_of(b, p->name, i);
    else if ((bf16 || f32) && !strstr(p->name, "tail_"))
        input_vector(&b->random, INPUT_RANDOM, f32 ? REF_F32 : REF_BFLOAT, buffer_data(out), total);
    else /* rows as stored and tails: finite in every format */
        memset(buffer_data(out), 0x38, (size_t)(shape->count * shape->bytes));
}

static bool make_array(struct bench *b, const kvf_param_info *p) {
    struct shape shape;
    if (!read_shape(b, p, &shape) || b->arrays == LOAD_ARRAYS) {
        fprintf(stderr, "kvforge-run: profile: %s: the shape of %s is unknown here: %s\n",
                b->kernel, p->name, p->shape);
        return false;
    }
    char stride[72];
    uint64_t step = (shape.bytes + p->align - 1) / p->align * p->align;
    struct buffer *out = &b->array[b->arrays++];
    shape.bytes = step;
    if (!buffer_create(b->session, p->name, shape.count * step, false, out)) return false;
    if (strcmp(p->direction, "out") != 0) {
        fill(b, p, &shape, out);
        if (!buffer_upload(b->session, out)) return false;
    }
    call_set(&b->call, p->name, buffer_address(out));
    snprintf(stride, sizeof stride, "%s_stride", p->name);
    uint64_t elements;
    if (call_has(&b->call, stride) && !value_of(b, stride, &elements))
        call_set(&b->call, stride, step);
    snprintf(stride, sizeof stride, "%s_layer_stride", p->name);
    if (call_has(&b->call, stride)) call_set(&b->call, stride, shape.count * step);
    return true;
}

/* rows_copy's pages are as long as its stride; those of layer types say their length. */
static bool set_all(struct bench *b) {
    kvf_param_info p;
    uint64_t value;
    for (uint32_t i = 0; i < b->call.info.params; i++) {
        if (kvf_kernel_param(b->call.kernel, i, &p)) return false;
        if (!strcmp(p.type, "ptr")) {
            if (!make_array(b, &p)) return false;
        } else if (value_of(b, p.name, &value)) {
            call_set(&b->call, p.name, value);
        }
    }
    return true;
}

/* ---- what was worked on ---- */

static uint64_t units_of(const struct bench *b) {
    uint32_t ring = b->rules.ring;
    bool paged = b->session->rules.paged;
    uint64_t tokens = b->tokens, requests = b->requests;
    if (ref_keeps_running(&b->rules) && compresses(b)) return tokens; /* the rest is in the state */
    if (compresses(b))
        return requests * (b->each > 1 ? b->each / b->rules.ratio : 1) * group_rows(b);
    if (kernel_is(b, "swa_write")) return requests * (paged ? b->each : smaller(b->each, ring));
    if (kernel_is(b, "workspace_fill"))
        return requests * smaller(b->window - 1, b->positions - b->each);
    if (kernel_is(b, "row_lists") || kernel_is(b, "row_lists_workspace"))
        return tokens * (b->window + (b->info->has_indexer ? 0 : b->entries));
    if (kernel_is(b, "translate_pack")) return tokens * b->chosen;
    if (kernel_is(b, "attn")) return tokens * (b->window + b->chosen);
    if (kernel_is(b, "indexer_query")) return tokens * b->info->indexer_heads;
    if (kernel_is(b, "indexer_scores") || kernel_is(b, "indexer_topk")) return tokens * b->entries;
    if (kernel_is(b, "q_norm_rope") || kernel_is(b, "inverse_rope") || kernel_is(b, "attn_combine"))
        return tokens * b->session->model.heads;
    return tokens;
}

bool load_make(struct session *session, const kvf_type_info *info, const struct load *load,
               bool prefill, uint32_t requests, struct loaded *out) {
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return false;
    *b = (struct bench){.session = session, .info = info, .kernel = load->kernel, .random = 1};
    bool good = info->head_dim ? rules_of_type(&session->rules, info, &b->rules) : true;
    if (!info->head_dim) b->rules = (struct ref_type){.block = 128, .window = 128, .ring = 128};
    if (good) {
        if (!requests) requests = prefill ? load->prefill : load->decode;
        set_sizes(b, requests, prefill);
        good = call_open(session, info->name, load->kernel, &b->call) && set_all(b);
    }
    *out = (struct loaded){.call = b->call, .arrays = b->arrays, .units = good ? units_of(b) : 0};
    memcpy(out->array, b->array, sizeof b->array);
    free(b);
    if (!good) load_free(session, out);
    return good;
}

void load_free(struct session *session, struct loaded *loaded) {
    for (uint32_t i = 0; i < loaded->arrays; i++) buffer_destroy(session, &loaded->array[i]);
    loaded->arrays = 0;
}

bool load_run(struct session *session, const kvf_type_info *info, const struct load *load,
              bool prefill, uint64_t *units) {
    struct loaded loaded;
    if (!load_make(session, info, load, prefill, 0, &loaded)) return false;
    *units = loaded.units;
    bool good = call_launch(session, &loaded.call);
    load_free(session, &loaded);
    return good;
}
