#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_number(const char *name, uint64_t low, uint64_t high, uint64_t *out, char *why,
                        uint64_t why_bytes) {
    const char *text = getenv(name);
    if (!text || !*text) return true;
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    if (*end || *text == '-' || value < low || value > high) {
        snprintf(why, why_bytes, "%s must be a number from %llu to %llu, not '%s'", name,
                 (unsigned long long)low, (unsigned long long)high, text);
        return false;
    }
    *out = value;
    return true;
}

static bool read_capability(struct config *c, char *why, uint64_t why_bytes) {
    const char *text = getenv("KVF_EXECUTOR_CAPABILITY");
    c->capability_major = 9;
    c->capability_minor = 0;
    if (!text || !*text) return true;
    char rest;
    if (sscanf(text, "%2d.%1d%c", &c->capability_major, &c->capability_minor, &rest) == 2 &&
        c->capability_major >= 5)
        return true;
    snprintf(why, why_bytes, "KVF_EXECUTOR_CAPABILITY must look like 9.0, not '%s'", text);
    return false;
}

/* KVF_EXECUTOR_CHECKS: "all", "none", or names to keep, or names with a minus to drop. */
static bool read_checks(struct config *c, char *why, uint64_t why_bytes) {
    struct {
        const char *name;
        bool *value;
    } checks[] = {{"uninitialised", &c->check_uninitialised},
                  {"races", &c->check_races},
                  {"warp", &c->check_warp},
                  {"async", &c->check_async},
                  {"leaks", &c->check_leaks}};
    enum { COUNT = sizeof checks / sizeof *checks };
    const char *text = getenv("KVF_EXECUTOR_CHECKS");
    if (!text || !*text) text = "all";
    bool listed = strcmp(text, "all") != 0 && *text != '-';
    for (int i = 0; i < COUNT; i++) *checks[i].value = !listed;
    if (!strcmp(text, "all") || !strcmp(text, "none")) return true;
    while (*text) {
        size_t n = strcspn(text, ",");
        bool drop = *text == '-';
        const char *name = text + drop;
        bool known = false;
        for (int i = 0; i < COUNT; i++) {
            if (strlen(checks[i].name) != n - drop || strncmp(checks[i].name, name, n - drop) != 0)
                continue;
            *checks[i].value = !drop;
            known = true;
        }
        if (!known) {
            snprintf(why, why_bytes, "KVF_EXECUTOR_CHECKS does not know '%.*s'", (int)n, text);
            return false;
        }
        text += n;
        if (*text == ',') text++;
    }
    return true;
}

static bool read_tensor(struct config *c, char *why, uint64_t why_bytes) {
    static const char *const names[] = {"", "sm_80", "sm_89", "sm_90", "sm_100"};
    const char *text = getenv("KVF_EXECUTOR_TENSOR");
    if (!text) text = "";
    for (int i = 0; i < 5; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        c->tensor = (enum tensor_model)i;
        return true;
    }
    snprintf(why, why_bytes, "KVF_EXECUTOR_TENSOR must be sm_80, sm_89, sm_90 or sm_100, not '%s'",
             text);
    return false;
}

static bool check_isa(char *why, uint64_t why_bytes) {
    const char *text = getenv("KVF_EXECUTOR_ISA");
    if (!text || !*text || !strcmp(text, "base") || !strcmp(text, "avx2") ||
        !strcmp(text, "avx512"))
        return true;
    snprintf(why, why_bytes, "KVF_EXECUTOR_ISA must be base, avx2 or avx512, not '%s'", text);
    return false;
}

static bool flag_of(const char *name) {
    const char *text = getenv(name);
    return text && *text && strcmp(text, "0") != 0;
}

bool config_read(struct config *c, char *why, uint64_t why_bytes) {
    memset(c, 0, sizeof *c);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t threads = online > 0 ? (uint64_t)online : 1, version = 13000, megabytes = 80 << 10;
    uint64_t exit_status = 0, devices = 1;
    if (!read_number("KVF_EXECUTOR_SEED", 0, UINT64_MAX, &c->seed, why, why_bytes) ||
        !read_number("KVF_EXECUTOR_THREADS", 1, 1024, &threads, why, why_bytes) ||
        !read_number("KVF_EXECUTOR_DRIVER_VERSION", 11000, 99999, &version, why, why_bytes) ||
        !read_number("KVF_EXECUTOR_MEMORY_MB", 1, 1 << 24, &megabytes, why, why_bytes) ||
        !read_number("KVF_EXECUTOR_STEPS", 0, UINT64_MAX, &c->step_limit, why, why_bytes) ||
        !read_number("KVF_EXECUTOR_EXIT", 0, 255, &exit_status, why, why_bytes) ||
        !read_number("KVF_EXECUTOR_DEVICES", 0, 1, &devices, why, why_bytes) ||
        !read_capability(c, why, why_bytes) || !read_checks(c, why, why_bytes) ||
        !read_tensor(c, why, why_bytes) || !check_isa(why, why_bytes))
        return false;
    c->threads = (uint32_t)threads;
    c->driver_version = (int)version;
    c->memory_bytes = megabytes << 20;
    c->exit_status = (int)exit_status;
    c->no_device = devices == 0;
    const char *format = getenv("KVF_EXECUTOR_FORMAT");
    c->json = format && !strcmp(format, "json");
    if (format && !c->json && strcmp(format, "text") != 0) {
        snprintf(why, why_bytes, "KVF_EXECUTOR_FORMAT must be text or json, not '%s'", format);
        return false;
    }
    c->report = getenv("KVF_EXECUTOR_REPORT");
    c->counters = getenv("KVF_EXECUTOR_COUNTERS");
    c->count = c->counters && *c->counters;
    c->summary = flag_of("KVF_EXECUTOR_SUMMARY");
    c->notes = flag_of("KVF_EXECUTOR_NOTES");
    c->fail = getenv("KVF_EXECUTOR_FAIL");
    return true;
}
