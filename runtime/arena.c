#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One malloc per piece: a bundle has hundreds of them, and sanitizers see each one's bounds. */
struct arena_block {
    struct arena_block *before;
    max_align_t data[];
};

void *arena_take(struct arena *arena, size_t count, size_t size) {
    if (size && count > (SIZE_MAX - sizeof(struct arena_block)) / size) return NULL;
    struct arena_block *block = calloc(1, sizeof *block + count * size);
    if (!block) return NULL;
    block->before = arena->last;
    arena->last = block;
    return block->data;
}

char *arena_copy(struct arena *arena, const char *text, size_t bytes) {
    if (bytes == SIZE_MAX) return NULL;
    char *copy = arena_take(arena, bytes + 1, 1);
    if (copy && bytes) memcpy(copy, text, bytes);
    return copy;
}

void arena_free(struct arena *arena) {
    struct arena_block *block = arena->last;
    while (block) {
        struct arena_block *before = block->before;
        free(block);
        block = before;
    }
    arena->last = NULL;
}
