/* TAP for a test program in C: plan first, one line per check, exit status by tap_done(). */
#ifndef KVF_TESTS_TAP_H
#define KVF_TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_planned, tap_ran, tap_failed;

/* Announce `count` checks. Call once, before the first of them. */
static inline void tap_plan(int count) {
    tap_planned = count;
    printf("1..%d\n", count);
    fflush(stdout);
}

/* A program that cannot run here at all: says why and ends with success. */
static inline void tap_skip_all(const char *why) {
    printf("1..0 # SKIP %s\n", why);
    exit(0);
}

/* A line of explanation, shown by `prove -v`. */
__attribute__((format(printf, 1, 2))) static inline void tap_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("# ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

__attribute__((format(printf, 4, 5))) static inline bool
tap_check(bool good, const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tap_ran++;
    printf("%sok %d - ", good ? "" : "not ", tap_ran);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    if (!good) {
        tap_failed++;
        printf("# failed at %s:%d\n", file, line);
    }
    fflush(stdout);
    return good;
}

/* ok(condition, "what should hold, printf style", ...) */
#define ok(condition, ...) tap_check((condition), __FILE__, __LINE__, __VA_ARGS__)

static inline bool tap_equal(long long got, long long want, const char *file, int line,
                             const char *what) {
    bool good = tap_check(got == want, file, line, "%s", what);
    if (!good) printf("#  got %lld\n# want %lld\n", got, want);
    return good;
}

/* is(got, want, "what") for integers. */
#define is(got, want, what)                                                                        \
    tap_equal((long long)(got), (long long)(want), __FILE__, __LINE__, (what))

static inline bool tap_same(const void *got, const void *want, size_t bytes, const char *file,
                            int line, const char *what) {
    const uint8_t *g = got, *w = want;
    size_t at = 0;
    while (at < bytes && g[at] == w[at]) at++;
    bool good = tap_check(at == bytes, file, line, "%s", what);
    if (!good)
        printf("# first difference at byte %zu of %zu: got %02x, want %02x\n", at, bytes, g[at],
               w[at]);
    return good;
}

/* same(got, want, bytes, "what"): equal memory; says where the first difference lies. */
#define same(got, want, bytes, what) tap_same((got), (want), (bytes), __FILE__, __LINE__, (what))

static inline bool tap_contains(const char *text, const char *part, const char *file, int line,
                                const char *what) {
    bool good = tap_check(text && strstr(text, part), file, line, "%s", what);
    if (!good) printf("# text: %s\n# lacks: %s\n", text ? text : "(null)", part);
    return good;
}

/* contains(text, part, "what"): `part` occurs in `text`. */
#define contains(text, part, what) tap_contains((text), (part), __FILE__, __LINE__, (what))

__attribute__((format(printf, 2, 3))) static inline void tap_skip(int count, const char *format,
                                                                  ...) {
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    for (int i = 0; i < count; i++) printf("ok %d # SKIP %s\n", ++tap_ran, why);
    fflush(stdout);
}

/* The exit status of main(): 0 only if every planned check ran and held. */
static inline int tap_done(void) {
    if (tap_ran != tap_planned) printf("# planned %d, ran %d\n", tap_planned, tap_ran);
    return tap_failed || tap_ran != tap_planned;
}

#endif
