/* The table of functions, one compilation of op_*.c for each instruction set, and the choice. */
#include <stdlib.h>
#include <string.h>

#include "exec.h"

static op_function *const functions_base[FORM_COUNT] = {
#define FORM(name, pattern, signature, class, target, version) op_##name##_base,
#include "forms.def"
#undef FORM
};

#ifdef __x86_64__
static op_function *const functions_avx2[FORM_COUNT] = {
#define FORM(name, pattern, signature, class, target, version) op_##name##_avx2,
#include "forms.def"
#undef FORM
};

static op_function *const functions_avx512[FORM_COUNT] = {
#define FORM(name, pattern, signature, class, target, version) op_##name##_avx512,
#include "forms.def"
#undef FORM
};

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

struct choice {
    const char *name;
    op_function *const *functions;
};

static struct choice choose(void) {
    struct choice base = {"base", functions_base};
#ifdef __x86_64__
    const char *wanted = getenv("KVF_EXECUTOR_ISA");
    bool any = !wanted || !*wanted;
    if ((any || !strcmp(wanted, "avx512")) && has_avx512())
        return (struct choice){"avx512", functions_avx512};
    if ((any || !strcmp(wanted, "avx2")) && has_avx2())
        return (struct choice){"avx2", functions_avx2};
#endif
    return base;
}

op_function *const *form_functions(void) {
    return choose().functions;
}

const char *form_functions_name(void) {
    return choose().name;
}
