/* Clocks, and medians of what they measured. Times are milliseconds. */
#ifndef KVF_BENCH_SAMPLE_H
#define KVF_BENCH_SAMPLE_H

/* Wall clock, and CPU time of the calling process. */
double clock_wall(void);
double clock_cpu(void);

enum { SAMPLE_MAX = 512 };

/* Up to SAMPLE_MAX numbers; more are dropped. Start with {0}. */
struct sample {
    int count;
    double value[SAMPLE_MAX];
};

void sample_add(struct sample *sample, double value);

/* The middle value (of two, the lower); NaN of an empty sample. */
double sample_median(const struct sample *sample);

#endif
