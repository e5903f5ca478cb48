#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    uint8_t pad[56]; /* payload starts 64-byte aligned */
};

enum { CHUNK_BYTES = 1 << 16, HEADER = sizeof(struct arena_chunk) };

static int arena_grow(struct arena *arena, size_t bytes) {
    size_t size = bytes > CHUNK_BYTES - HEADER ? bytes + HEADER : CHUNK_BYTES;
    size = (size + 63) & ~(size_t)63;
    struct arena_chunk *chunk = aligned_alloc(64, size);
    if (!chunk) return -1;
    memset(chunk, 0, size);
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->used = HEADER;
    arena->size = size;
    return 0;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 4) return NULL;
    size_t align = bytes >= 64 ? 64 : 16;
    size_t at = (arena->used + align - 1) & ~(align - 1);
    if (!arena->chunks || at + bytes > arena->size) {
        if (arena_grow(arena, bytes)) return NULL;
        at = arena->used;
    }
    arena->used = at + bytes;
    arena->total += bytes;
    return (uint8_t *)arena->chunks + at;
}

char *arena_text(struct arena *arena, const char *text, size_t length) {
    char *copy = arena_alloc(arena, length + 1);
    if (copy) memcpy(copy, text, length);
    return copy;
}

void arena_free(struct arena *arena) {
    while (arena->chunks) {
        struct arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
    memset(arena, 0, sizeof *arena);
}
