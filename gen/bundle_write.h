/* Put a bundle's files into place: all of them or none. */
#ifndef GEN_BUNDLE_WRITE_H
#define GEN_BUNDLE_WRITE_H

#include <stddef.h>

struct bundle_file {
    const char *name; /* a plain name inside the directory */
    const char *text;
    size_t bytes;
};

/*
 * Write `files` as directory `dir`. They are written beside it and exchanged into place, so that a
 * reader sees the old bundle or the new one. A directory that is not a bundle is refused.
 * Returns 0, or 1 with a sentence in `error` (of `size` bytes); then `dir` is as it was.
 */
int bundle_write(const char *dir, const struct bundle_file *files, size_t count, char *error,
                 size_t size);

/*
 * Write one text file as a whole: beside its place, then renamed over what was there. What is there
 * and no plain file (a device, a pipe, a link) stays, and is written to.
 */
int file_replace(const char *path, const char *text, char *error, size_t size);

#endif
