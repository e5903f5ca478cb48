/* Reading a bundle's files, from a directory or from memory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bundle.h"
#include "error.h"

static kvf_status fail_errno(const char *name, const char *what, kvf_error *error) {
    int code = errno;
    if (code == ELOOP)
        return error_set(error, KVF_ERROR_BUNDLE,
                         "%s is a symbolic link, which a bundle must not "
                         "contain",
                         name);
    kvf_status status = code == ENOMEM ? KVF_ERROR_MEMORY : KVF_ERROR_IO;
    return error_set(error, status, "%s cannot be %s: %s", name, what, strerror(code));
}

static kvf_status too_big(const char *name, uint64_t bytes, uint64_t most, kvf_error *error) {
    return error_set(error, KVF_ERROR_LIMIT, "%s has %llu bytes, more than the allowed %llu", name,
                     (unsigned long long)bytes, (unsigned long long)most);
}

/* Read exactly `bytes` bytes; a file that shrinks or grows meanwhile is refused. */
static kvf_status read_all(int file, const char *name, char *text, uint64_t bytes,
                           kvf_error *error) {
    uint64_t at = 0;
    while (at <= bytes) {
        char more;
        char *to = at < bytes ? text + at : &more;
        ssize_t got = read(file, to, at < bytes ? bytes - at : 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(name, "read", error);
        if (got == 0) break;
        at += (uint64_t)got;
    }
    if (at != bytes)
        return error_set(error, KVF_ERROR_IO, "%s changed while it was being read", name);
    return KVF_OK;
}

static kvf_status read_open(int file, struct arena *arena, const char *name, uint64_t most,
                            char **text, uint64_t *bytes, kvf_error *error) {
    struct stat about;
    if (fstat(file, &about) != 0) return fail_errno(name, "read", error);
    if (!S_ISREG(about.st_mode))
        return error_set(error, KVF_ERROR_BUNDLE, "%s is not a regular file", name);
    uint64_t size = (uint64_t)about.st_size;
    if (size > most) return too_big(name, size, most, error);
    char *data = arena_take(arena, size + 1, 1);
    if (!data) return error_memory(error, "reading the bundle");
    kvf_status status = read_all(file, name, data, size, error);
    if (status != KVF_OK) return status;
    *text = data;
    *bytes = size;
    return KVF_OK;
}

static kvf_status read_from_directory(const struct bundle_source *source, struct arena *arena,
                                      const char *name, uint64_t most, char **text, uint64_t *bytes,
                                      kvf_error *error) {
    /* Not through links, and without waiting on a pipe that lies there instead of a file. */
    int file = openat(source->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return fail_errno(name, "opened", error);
    kvf_status status = read_open(file, arena, name, most, text, bytes, error);
    close(file);
    return status;
}

kvf_status bundle_directory(struct bundle_source *source, const char *path, kvf_error *error) {
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return fail_errno(path, "opened as a directory", error);
    *source = (struct bundle_source){.read = read_from_directory, .directory = directory};
    return KVF_OK;
}

static kvf_status read_from_memory(const struct bundle_source *source, struct arena *arena,
                                   const char *name, uint64_t most, char **text, uint64_t *bytes,
                                   kvf_error *error) {
    for (uint32_t i = 0; i < source->file_count; i++) {
        const kvf_file *file = &source->files[i];
        if (!file->name || strcmp(file->name, name) != 0) continue;
        if (!file->data && file->bytes)
            return error_set(error, KVF_ERROR_ARGUMENT, "%s has %llu bytes, but its data is null",
                             name, (unsigned long long)file->bytes);
        if (file->bytes > most) return too_big(name, file->bytes, most, error);
        *text = arena_copy(arena, file->data, file->bytes);
        *bytes = file->bytes;
        return *text ? KVF_OK : error_memory(error, "reading the bundle");
    }
    return error_set(error, KVF_ERROR_IO, "%s is not among the bundle's files", name);
}

void bundle_memory(struct bundle_source *source, const kvf_file *files, uint32_t count) {
    *source = (struct bundle_source){
        .read = read_from_memory, .directory = -1, .files = files, .file_count = count};
}
