/* What a table was measured on. */
#ifndef KVF_BENCH_MACHINE_H
#define KVF_BENCH_MACHINE_H

/* One line: date, processor, cores, load. */
void machine_print(void);

#endif
