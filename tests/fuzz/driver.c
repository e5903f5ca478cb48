/*
 * A stand-in for libFuzzer where clang has none: calls LLVMFuzzerTestOneInput on the files of the
 * given directories and on random changes of them. Understands -runs=N and -seed=N; ignores other
 * options. It follows no coverage, so it finds less.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { SEEDS = 256, LONGEST = 1 << 20 };

static struct seed {
    uint8_t *data;
    size_t bytes;
} seeds[SEEDS];
static size_t seed_count;
static uint64_t state = 1;

static uint32_t next(size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % (below ? below : 1));
}

static void add_seed(const char *path) {
    FILE *file = seed_count < SEEDS ? fopen(path, "rb") : NULL;
    if (!file) return;
    uint8_t *data = malloc(LONGEST);
    size_t bytes = data ? fread(data, 1, LONGEST, file) : 0;
    fclose(file);
    if (data) seeds[seed_count++] = (struct seed){data, bytes};
}

static void add_directory(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char name[4096];
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') add_seed(name);
    }
    closedir(directory);
}

/* A seed, cut, with bytes changed and pieces of another seed put in. */
static size_t change(uint8_t *out, size_t room) {
    if (seed_count == 0) {
        size_t bytes = next(256);
        for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)next(256);
        return bytes;
    }
    const struct seed *seed = &seeds[next(seed_count)], *other = &seeds[next(seed_count)];
    size_t bytes = seed->bytes < room ? seed->bytes : room;
    memcpy(out, seed->data, bytes);
    for (uint32_t i = next(8); i > 0 && bytes > 0; i--) out[next(bytes)] = (uint8_t)next(256);
    if (next(4) == 0 && other->bytes > 0 && bytes > 0) {
        size_t from = next(other->bytes), to = next(bytes), count = next(64);
        if (count > other->bytes - from) count = other->bytes - from;
        if (count > bytes - to) count = bytes - to;
        memcpy(out + to, other->data + from, count);
    }
    return next(8) == 0 ? next(bytes + 1) : bytes;
}

int main(int argc, char **argv) {
    unsigned long runs = 100000;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0)
            runs = strtoul(argv[i] + 6, NULL, 10);
        else if (strncmp(argv[i], "-seed=", 6) == 0)
            state = strtoul(argv[i] + 6, NULL, 10);
        else if (argv[i][0] != '-')
            add_directory(argv[i]);
    }
    uint8_t *data = malloc(LONGEST);
    if (!data) return 1;
    for (unsigned long run = 0; run < runs; run++) {
        size_t bytes = change(data, LONGEST);
        /* Exactly as large as the input, so that a sanitizer sees every byte read beyond it. */
        uint8_t *exact = malloc(bytes ? bytes : 1);
        if (!exact) break;
        memcpy(exact, data, bytes);
        LLVMFuzzerTestOneInput(exact, bytes);
        free(exact);
    }
    free(data);
    for (size_t i = 0; i < seed_count; i++) free(seeds[i].data);
    printf("%lu inputs from %zu seeds\n", runs, seed_count);
    return 0;
}
