#include "digest.h"

#include <sha2.h>

void digest_of(const struct digest_piece *pieces, size_t count, char out[DIGEST_HEX + 1]) {
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA2_CTX context;
    SHA256Init(&context);
    for (size_t i = 0; i < count; i++)
        SHA256Update(&context, (const uint8_t *)pieces[i].text, pieces[i].bytes);
    SHA256Final(digest, &context);
    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[DIGEST_HEX] = 0;
}
