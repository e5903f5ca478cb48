/* The options that several commands share. */
#ifndef KVF_TOOL_OPTIONS_H
#define KVF_TOOL_OPTIONS_H

#include "kvforge.h"

#include <stdbool.h>

struct options {
    const char *bundle;     /* directory */
    kvf_driver_kind driver; /* auto */
    uint64_t seed;          /* 1 */
    uint64_t schedules;     /* 0: once, in the order the environment asks for */
    uint64_t jobs;          /* of them at once; 0: one */
    const char *kernel;     /* only these kernels, with commas between, or null */
    const char *type;       /* only these layer types likewise */
    const char *target;     /* force this target, or null */
    uint64_t requests;      /* of a batch; 0: the command's choice */
    uint64_t launches;      /* samples of a time; 0: the command's choice */
    const char *json;       /* where results go too, or null */
    const char *report;     /* JSON of `kvforge build --report`, or null */
};

/*
 * Parse the words of a command. `accepts` names the options it takes, by their first letters:
 * 'd'river, 's'eed, 'k'ernel, 't'ype, 'g' target, 'r'eport,
 * 'n' schedules, 'o' jobs, 'q' requests, 'l'aunches, 'j'son. `about` is a sentence for --help.
 * Returns -1 to go on; else the exit status to end with (--help was asked for, or usage is wrong).
 */
int options_parse(int argc, char **argv, const char *accepts, const char *about,
                  struct options *out);

/* Whether a list of names with commas between them, or null for all, holds a name. */
bool options_name(const char *filter, const char *name);

#endif
