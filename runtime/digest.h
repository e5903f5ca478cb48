/* SHA-256 as text. Internal. */
#ifndef KVF_DIGEST_H
#define KVF_DIGEST_H

#include <stddef.h>

enum { DIGEST_HEX = 64 };

struct digest_piece {
    const char *text;
    size_t bytes;
};

/* The digest of the pieces, one after the other, as 64 lower-case hex digits and a final 0. */
void digest_of(const struct digest_piece *pieces, size_t count, char out[DIGEST_HEX + 1]);

#endif
