#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

double clock_wall(void) {
    return read_clock(CLOCK_MONOTONIC);
}

double clock_cpu(void) {
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void sample_add(struct sample *sample, double value) {
    if (sample->count < SAMPLE_MAX) sample->value[sample->count++] = value;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sample_median(const struct sample *sample) {
    double sorted[SAMPLE_MAX];
    if (!sample->count) return NAN;
    memcpy(sorted, sample->value, (size_t)sample->count * sizeof *sorted);
    qsort(sorted, (size_t)sample->count, sizeof *sorted, compare);
    return sorted[(sample->count - 1) / 2];
}
