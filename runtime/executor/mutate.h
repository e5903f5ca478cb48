/*
 * Planting a fault, for the tests of the tests: the function of one form is replaced by one that
 * does something slightly different in lane 9. Modules loaded afterwards are affected.
 */
#ifndef EXECUTOR_MUTATE_H
#define EXECUTOR_MUTATE_H

#include "ptx.h"

/* form -1: no fault. */
void form_mutate(int form);
/* The function to use for a form: `original`, or the mutant. */
op_function *form_mutated(int form, op_function *original);

#endif
