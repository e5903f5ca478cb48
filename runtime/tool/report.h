/* What `kvforge build --report FILE` wrote: times and registers of each kernel. */
#ifndef KVF_TOOL_REPORT_H
#define KVF_TOOL_REPORT_H

#include <stdbool.h>

struct report;

struct report_kernel {
    double ms;     /* of generation; below 0: not known */
    int registers; /* as ptxas says; below 0: not known */
};

/* Read a report; null with a message on stderr if it cannot be read. Null `path` gives an empty
 * one. */
struct report *report_read(const char *path);
void report_free(struct report *report);
/* A kernel's figures; what is not in the report is negative. */
struct report_kernel report_find(const struct report *report, const char *type, const char *kernel,
                                 const char *target);

#endif
