/* Memory that is freed all at once. Internal; one thread at a time. */
#ifndef KVF_ARENA_H
#define KVF_ARENA_H

#include <stddef.h>

struct arena_block;

/* An arena is empty when zeroed. */
struct arena {
    struct arena_block *last;
};

/* `count` zeroed elements of `size` bytes, aligned for any type; null if memory is short. */
void *arena_take(struct arena *arena, size_t count, size_t size);

/* A copy of `bytes` bytes of `text` and a final 0; null if memory is short. */
char *arena_copy(struct arena *arena, const char *text, size_t bytes);

/* Free everything; the arena is empty again. */
void arena_free(struct arena *arena);

#endif
