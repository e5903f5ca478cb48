/* The operations once more, compiled for CPUs with avx2; form_functions.c chooses at run time. */
#ifdef __x86_64__
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXEC_ISA avx2
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,f16c,popcnt,lzcnt"))),       \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,bmi,bmi2,f16c,popcnt,lzcnt")
#endif

#include "op_all.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
