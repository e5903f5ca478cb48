/* Names of GPU targets: "sm_90", "sm_90a". Internal. */
#ifndef KVF_TARGET_H
#define KVF_TARGET_H

#include <stdbool.h>

struct target {
    const char *name;
    int capability; /* times ten: 90 */
    bool exact;     /* the "a" form: runs on this very capability only */
};

/* Parse `name`; false if it is not sm_ and two or three digits and perhaps an "a". */
bool target_parse(const char *name, struct target *out);

/* Can a device of `capability` run it? */
bool target_runs_on(const struct target *target, int capability);

/*
 * Order of preference among targets that run on a device: the exact one before any portable one,
 * then the higher one. True if `a` is to be preferred.
 */
bool target_better(const struct target *a, const struct target *b);

#endif
