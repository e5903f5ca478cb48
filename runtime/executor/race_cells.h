/* Of races.c, race_shared.c and race_global.c alone: what they share. */
#ifndef EXECUTOR_RACE_CELLS_H
#define EXECUTOR_RACE_CELLS_H

#include "races.h"

#define RACE_MANY    UINT32_MAX
#define RACE_SEVERAL 0x80000000u /* in a key: more lanes of its warp; in a block: more blocks */
#define RACE_ATOMIC  0x80

static inline bool race_strong(const struct access *a) {
    return (a->kind & ACCESS_ATOMIC) || (a->o->flags & FLAG_VOLATILE) || a->o->semantics;
}

static inline uint32_t race_op_index(const struct warp *w, const struct op *o) {
    return (uint32_t)(o - w->code) | w->frame->function->index << 20;
}

static inline const char *race_conflict_name(bool write, bool with_write) {
    return write ? with_write ? "write after write" : "write after read" : "read after write";
}

static inline uint8_t race_bytes_in_cell(const struct access *a, uint32_t lane, uint64_t cell) {
    if (a->bytes >= 4) return 15;
    uint64_t first = a->at[lane] - cell * 4;
    return (uint8_t)(((1u << a->bytes) - 1) << first);
}

/* Write "`who` at line N: its text" of the operation whose race_op_index is `index`. */
void race_describe_other(const struct warp *w, uint32_t index, const char *who, char *text,
                         size_t bytes);
/* Whether the bytes that are there are what this lane stores. */
bool race_stores_what_is_there(const struct access *a, uint32_t lane, uint64_t cell);
bool race_stores_the_same(const struct access *a, uint32_t lane, uint32_t other, uint64_t cell);

void race_shared_access(struct access *a);
void race_global_access(struct access *a);

#endif
