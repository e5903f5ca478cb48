/* The operations once more, compiled for CPUs with avx512; form_functions.c chooses at run time. */
#ifdef __x86_64__
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXEC_ISA avx512
#ifdef __clang__
#pragma clang attribute push(                                                                      \
    __attribute__((                                                                                \
        target("avx2,fma,bmi,bmi2,f16c,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl"))),        \
    apply_to = function)
#else
#pragma GCC target("avx2,fma,bmi,bmi2,f16c,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#include "op_all.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
