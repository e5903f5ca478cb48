/* A bump allocator: everything that lives as long as a module or a launch comes from one arena. */
#ifndef EXECUTOR_ARENA_H
#define EXECUTOR_ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
    size_t used, size; /* of the newest chunk */
    size_t total;      /* bytes handed out, for limits */
};

/* Zeroed memory, 64-byte aligned for sizes of 64 and up, else 16. Null when the host is out of
 * memory. */
void *arena_alloc(struct arena *arena, size_t bytes);
/* A NUL-terminated copy of text[0..length). Null when out of memory. */
char *arena_text(struct arena *arena, const char *text, size_t length);
void arena_free(struct arena *arena);

#endif
