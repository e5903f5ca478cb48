#include "bundle_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST "manifest.json"

struct writer {
    char *error;
    size_t size;
};

static int fail(const struct writer *w, const char *what, const char *path) {
    snprintf(w->error, w->size, "cannot %s %s: %s", what, path, strerror(errno));
    return 1;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), e = strlen(end);
    return n > e && !strcmp(name + n - e, end);
}

/* The manifest in `dir` as text for the caller to free; null if there is none that can be read. */
static char *read_manifest(int dir) {
    enum { MOST = 16 << 20 };
    int fd = openat(dir, MANIFEST, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    char *text = NULL;
    if (fd < 0) return NULL;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size < MOST &&
        (text = malloc((size_t)info.st_size + 1))) {
        ssize_t got = read(fd, text, (size_t)info.st_size);
        text[got > 0 ? got : 0] = 0;
    }
    close(fd);
    return text;
}

static bool is_ours(const char *manifest) {
    return manifest && strstr(manifest, "\"kvforge\":") && strstr(manifest, "\"modules\":");
}

/* The manifest from "model" on, and the length of that object; it holds no other object. */
static const char *find_model(const char *manifest, size_t *bytes) {
    const char *model = strstr(manifest, "\"model\": {");
    *bytes = model ? strcspn(model, "}") : 0;
    return model;
}

/*
 * Whether a file is one that the bundle was written with: a module that the manifest names, its
 * LLVM IR, or a header and a C file called after the model. Anything else belongs to somebody.
 */
static bool is_of_bundle(const char *manifest, const char *name) {
    static const struct {
        const char *end, *before, *after;
        bool of_model;
    } kinds[] = {{".ptx", "\"", ".ptx\"", false},
                 {".cubin", "\"", ".cubin\"", false},
                 {".ll", "\"", ".ptx\"", false},
                 {".h", "\"name\": \"", "\"", true},
                 {".c", "\"name\": \"", "\"", true}};
    char wanted[300];
    size_t length;
    if (!strcmp(name, MANIFEST)) return true;
    for (size_t i = 0; manifest && i < sizeof kinds / sizeof *kinds; i++) {
        if (!ends_with(name, kinds[i].end)) continue;
        int stem = (int)(strlen(name) - strlen(kinds[i].end));
        snprintf(wanted, sizeof wanted, "%s%.*s%s", kinds[i].before, stem, name, kinds[i].after);
        if (!kinds[i].of_model) return strstr(manifest, wanted) != NULL;
        const char *model = find_model(manifest, &length);
        return model && memmem(model, length, wanted, strlen(wanted));
    }
    return false;
}

/* Whether `dir` may be replaced: 0 it may, -1 it does not exist, 1 it may not (with a sentence). */
static int check_existing(const struct writer *w, const char *dir) {
    struct stat info;
    if (lstat(dir, &info)) return errno == ENOENT ? -1 : fail(w, "look at", dir);
    if (!S_ISDIR(info.st_mode)) {
        snprintf(w->error, w->size, "%s exists and is not a directory", dir);
        return 1;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        if (fd >= 0) close(fd);
        return fail(w, "read", dir);
    }
    char *manifest = read_manifest(fd);
    int entries = 0, refused = 0;
    struct dirent *e;
    while (!refused && (e = readdir(list))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        entries++;
        if (!is_of_bundle(manifest, e->d_name)) {
            snprintf(w->error, w->size, "%s is no bundle of ours: it holds %s", dir, e->d_name);
            refused = 1;
        }
    }
    if (!refused && entries && !is_ours(manifest)) {
        snprintf(w->error, w->size, "%s is no bundle of ours: its " MANIFEST " does not say so",
                 dir);
        refused = 1;
    }
    free(manifest);
    closedir(list);
    return refused;
}

static int write_file(const struct writer *w, int dir, const struct bundle_file *file) {
    int fd = openat(dir, file->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    size_t done = 0;
    if (fd < 0) return fail(w, "create", file->name);
    while (done < file->bytes) {
        ssize_t n = write(fd, file->text + done, file->bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int code = errno;
            close(fd);
            errno = code;
            return fail(w, "write", file->name);
        }
        done += (size_t)n;
    }
    if (close(fd)) return fail(w, "write", file->name);
    return 0;
}

/* Remove a flat directory: what a bundle is, and what a failed attempt leaves. */
static void remove_directory(const char *path) {
    DIR *list = opendir(path);
    struct dirent *e;
    if (!list) return;
    int fd = dirfd(list);
    while (fd >= 0 && (e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(fd, e->d_name, 0);
    closedir(list);
    rmdir(path);
}

static int write_all(const struct writer *w, const char *path, const struct bundle_file *files,
                     size_t count) {
    mode_t mask = umask(0);
    umask(mask);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = 0;
    if (dir < 0 || fchmod(dir, 0777 & ~mask)) failed = fail(w, "open", path);
    for (size_t i = 0; i < count && !failed; i++) failed = write_file(w, dir, &files[i]);
    if (dir >= 0) close(dir);
    return failed;
}

/* Where a file system cannot exchange two names (NFS): the old bundle steps aside for a moment. */
static int replace_in_steps(const struct writer *w, const char *from, const char *to) {
    char old[4096 + 32];
    snprintf(old, sizeof old, "%s.old", from); /* `from` is a name that nobody else has */
    if (rename(to, old)) return fail(w, "rename", to);
    if (rename(from, to)) {
        fail(w, "rename to", to);
        rename(old, to);
        return 1;
    }
    remove_directory(old);
    return 0;
}

static int put_in_place(const struct writer *w, const char *from, const char *to, bool exists) {
    if (!exists) return rename(from, to) ? fail(w, "rename to", to) : 0;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE)) {
        if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
            return replace_in_steps(w, from, to);
        return fail(w, "exchange", to);
    }
    remove_directory(from);
    return 0;
}

int bundle_write(const char *dir, const struct bundle_file *files, size_t count, char *error,
                 size_t size) {
    struct writer w = {error, size};
    char path[4096], beside[4096 + 16];
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/') length--;
    if (length == 0 || length >= sizeof path) {
        snprintf(error, size, "the name of the output directory is empty or too long");
        return 1;
    }
    memcpy(path, dir, length);
    path[length] = 0;
    int existing = check_existing(&w, path);
    if (existing > 0) return 1;
    snprintf(beside, sizeof beside, "%s.new-XXXXXX", path);
    if (!mkdtemp(beside)) return fail(&w, "create a directory beside", path);
    if (write_all(&w, beside, files, count) || put_in_place(&w, beside, path, existing == 0)) {
        remove_directory(beside);
        return 1;
    }
    return 0;
}

static int write_text(const struct writer *w, FILE *file, const char *text, const char *path) {
    bool good = file && fputs(text, file) >= 0;
    int code = good ? 0 : errno;
    if (file && fclose(file) && good) code = errno;
    errno = code;
    return code ? fail(w, "write", path) : 0;
}

int file_replace(const char *path, const char *text, char *error, size_t size) {
    struct writer w = {error, size};
    struct stat info;
    if (!lstat(path, &info) && !S_ISREG(info.st_mode)) /* a device, or a link to whatever it is */
        return write_text(&w, fopen(path, "w"), text, path);
    char beside[4096 + 16];
    if (strlen(path) >= 4096) {
        snprintf(error, size, "the name of the output file is too long");
        return 1;
    }
    snprintf(beside, sizeof beside, "%s.new-XXXXXX", path);
    mode_t mask = umask(0);
    umask(mask);
    int fd = mkstemp(beside);
    if (fd < 0) return fail(&w, "create a file beside", path);
    int failed = fchmod(fd, 0666 & ~mask) ? fail(&w, "write", path) : 0;
    failed |= write_text(&w, fdopen(fd, "w"), text, path);
    if (!failed && rename(beside, path)) failed = fail(&w, "rename to", path);
    if (failed) unlink(beside);
    return failed;
}
