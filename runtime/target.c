#include "target.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

bool target_parse(const char *name, struct target *out) {
    if (strncmp(name, "sm_", 3) != 0) return false;
    int capability = 0, digits = 0;
    const char *at = name + 3;
    for (; isdigit((unsigned char)*at) && digits < 4; at++, digits++)
        capability = capability * 10 + (*at - '0');
    bool exact = *at == 'a';
    if (exact) at++;
    if (digits < 2 || digits > 3 || *at || name[3] == '0') return false;
    *out = (struct target){.name = name, .capability = capability, .exact = exact};
    return true;
}

bool target_runs_on(const struct target *target, int capability) {
    return target->exact ? target->capability == capability : target->capability <= capability;
}

bool target_better(const struct target *a, const struct target *b) {
    if (a->exact != b->exact) return a->exact;
    return a->capability > b->capability;
}
