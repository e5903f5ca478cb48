#include "cubin.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

enum { INSTRUCTION_BYTES = 16 }; /* since sm_70 */

/* Bytes of section ".text.<entry>" of a cubin, which is a 64-bit ELF file; -1 if there is none. */
static long code_bytes(const char *file, size_t bytes, const char *entry) {
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    char wanted[256];
    (void)snprintf(wanted, sizeof wanted, ".text.%s", entry);
    if (bytes < sizeof head) return -1;
    memcpy(&head, file, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof section || head.e_shstrndx >= head.e_shnum ||
        head.e_shoff > bytes || (bytes - head.e_shoff) / sizeof section < head.e_shnum)
        return -1;
    const char *sections = file + head.e_shoff;
    memcpy(&names, sections + head.e_shstrndx * sizeof names, sizeof names);
    for (unsigned i = 0; i < head.e_shnum; i++) {
        memcpy(&section, sections + i * sizeof section, sizeof section);
        size_t at = names.sh_offset + section.sh_name;
        /* process_read put a 0 behind the file: a name ends at the latest there. */
        if (at < bytes && strcmp(file + at, wanted) == 0) return (long)section.sh_size;
    }
    return -1;
}

/* The number before `words` in a text; moves `at` behind the words. Where they are not there:
 * false. */
static bool number_before(const char **at, const char *words, long *out) {
    const char *end = *at ? strstr(*at, words) : NULL, *digit = end;
    if (!end) return false;
    while (digit > *at && digit[-1] >= '0' && digit[-1] <= '9') digit--;
    *out = strtol(digit, NULL, 10);
    *at = end + strlen(words);
    return digit < end;
}

/* ptxas -v names the kernel, then its spills, then its registers. */
static bool read_messages(const char *text, const char *entry, struct cubin_kernel *out) {
    char wanted[256];
    long stores, loads;
    (void)snprintf(wanted, sizeof wanted, "Function properties for %s\n", entry);
    const char *at = text ? strstr(text, wanted) : NULL;
    if (!number_before(&at, " bytes spill stores", &stores) ||
        !number_before(&at, " bytes spill loads", &loads))
        return false;
    out->spill = stores + loads;
    return number_before(&at, " registers", &out->registers);
}

bool cubin_open(const char *ptxas, const char *arch, const char *ptx, const char *scratch,
                struct cubin *out) {
    char log[128], cubin[128], target[64];
    (void)snprintf(log, sizeof log, "%s/ptxas.log", scratch);
    (void)snprintf(cubin, sizeof cubin, "%s/out.cubin", scratch);
    (void)snprintf(target, sizeof target, "-arch=%s", arch);
    const char *argv[] = {ptxas, "-v", target, ptx, "-o", cubin, NULL};
    struct process process = {.argv = argv, .err = log, .core = -1};
    bool good = process_run(&process, NULL);
    *out = (struct cubin){.messages = process_read(log, NULL)};
    out->file = good ? process_read(cubin, &out->bytes) : NULL;
    if (out->messages && out->file) return true;
    if (out->messages) fprintf(stderr, "%s", out->messages);
    cubin_close(out);
    return false;
}

bool cubin_find(const struct cubin *cubin, const char *entry, struct cubin_kernel *out) {
    long code = code_bytes(cubin->file, cubin->bytes, entry);
    out->instructions = code / INSTRUCTION_BYTES;
    return code >= 0 && read_messages(cubin->messages, entry, out);
}

void cubin_close(struct cubin *cubin) {
    free(cubin->messages);
    free(cubin->file);
    *cubin = (struct cubin){0};
}

bool cubin_measure(const char *ptxas, const char *arch, const char *ptx, const char *entry,
                   const char *scratch, struct cubin_kernel *out) {
    struct cubin cubin;
    if (!cubin_open(ptxas, arch, ptx, scratch, &cubin)) return false;
    bool good = cubin_find(&cubin, entry, out);
    cubin_close(&cubin);
    return good;
}
