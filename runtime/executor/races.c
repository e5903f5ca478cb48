#include "race_cells.h"

/* The operation behind a number that race_op_index made. */
static const struct op *op_of(const struct warp *w, uint32_t index) {
    const struct module *m = w->block->launch->module;
    uint32_t function = index >> 20, at = index & 0xfffff;
    if (!function || function > m->function_count || at >= m->by_index[function]->op_count)
        return NULL;
    return &m->by_index[function]->ops[at];
}

void race_describe_other(const struct warp *w, uint32_t index, const char *who, char *text,
                         size_t bytes) {
    const struct op *o = op_of(w, index);
    char line[120] = "";
    if (o) module_line(w->block->launch->module, o->line, line, sizeof line);
    snprintf(text, bytes, "%s at line %u: %s", who, o ? o->line : 0, line);
}

/* ---- values, to tell writes of the same from others ---- */

/* The 4 bytes that a store of this lane puts at `skip` from its address; false when not known. */
static bool stored_word(const struct access *a, uint32_t lane, uint32_t skip, uint32_t *value) {
    const struct op *o = a->o;
    if (form_table[o->form].class != CLASS_STORE) return false;
    uint32_t bytes = ptx_type_bits((enum ptx_type)o->type) / 8, k = skip / bytes;
    if (k >= o->vector) return false;
    uint64_t x =
        o->wide == WIDE_64 ? source64(a->w, o->list[k])[lane] : source32(a->w, o->list[k])[lane];
    if (bytes < 4) x &= ((uint64_t)1 << (8 * bytes)) - 1;
    *value = (uint32_t)(x >> (8 * (skip % bytes)));
    return true;
}

/* Whether the bytes that are there are what this lane stores. */
bool race_stores_what_is_there(const struct access *a, uint32_t lane, uint64_t cell) {
    uint64_t at = a->at[lane], start = cell * 4 > at ? cell * 4 : at;
    uint32_t value, bytes = a->bytes < 4 ? a->bytes : 4;
    if (!stored_word(a, lane, (uint32_t)(start - at), &value)) return false;
    return !memcmp(a->region->host + start, &value, bytes);
}

bool race_stores_the_same(const struct access *a, uint32_t lane, uint32_t other, uint64_t cell) {
    uint64_t mine = cell * 4 > a->at[lane] ? cell * 4 - a->at[lane] : 0;
    uint64_t theirs = cell * 4 > a->at[other] ? cell * 4 - a->at[other] : 0;
    uint32_t x, y;
    return stored_word(a, lane, (uint32_t)mine, &x) &&
           stored_word(a, other, (uint32_t)theirs, &y) && x == y;
}

void race_access(struct access *a) {
    if (a->in == SPACE_SHARED)
        race_shared_access(a);
    else
        race_global_access(a);
}
