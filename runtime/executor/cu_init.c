/* cuInit, versions, error names, entry points by name; and the lock that all entry points take. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver.h"
#include "executor.h"

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors ---- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "the driver is a stub library"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the PTX was compiled with an unsupported toolchain"},
    {CUDA_ERROR_INVALID_SOURCE, "CUDA_ERROR_INVALID_SOURCE", "device kernel source is invalid"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
     "shared object symbol not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT",
     "the launch timed out and was terminated"},
    {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
     "cannot set while device is active in this process"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "an illegal instruction was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CU_EXPORT CUresult cuGetErrorName(CUresult error, const char **out);
CU_EXPORT CUresult cuGetErrorString(CUresult error, const char **out);

static int find_error(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return (int)i;
    return -1;
}

CUresult cuGetErrorName(CUresult error, const char **out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    int i = find_error(error);
    *out = i < 0 ? NULL : errors[i].name;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    int i = find_error(error);
    *out = i < 0 ? NULL : errors[i].text;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- entering and leaving ---- */

enum { FAIL_RULES = 16 };

static struct {
    char name[64];
    uint64_t nth, seen;
    int code;
} fail_rules[FAIL_RULES];
static unsigned fail_rule_count;

static void *library_handle(void);

/* Whether this is an entry point, as far as can be told: a program may hide what it links. */
static bool is_entry_point(const char *name) {
    void *handle = library_handle();
    bool known = !handle || !dlsym(handle, "cuInit") || dlsym(handle, name);
    if (handle) dlclose(handle);
    return known && !strncmp(name, "cu", 2);
}

/* "cuMemAlloc_v2:3:2,cuInit:1:100": the third cuMemAlloc_v2 fails with code 2, and so on. */
static bool read_fail_rules(const char *text, char *why, size_t why_bytes) {
    while (text && *text) {
        unsigned long long nth;
        int code, used = 0;
        char name[64];
        if (fail_rule_count == FAIL_RULES) {
            snprintf(why, why_bytes, "KVF_EXECUTOR_FAIL has more than %d rules", FAIL_RULES);
            return false;
        }
        if (sscanf(text, "%63[^:,]:%18llu:%9d%n", name, &nth, &code, &used) != 3 ||
            (text[used] && text[used] != ',') || !nth || code <= 0 || !is_entry_point(name)) {
            snprintf(why, why_bytes,
                     "KVF_EXECUTOR_FAIL: '%.60s' is not an exported entry point, which call of it "
                     "and a code, such as cuMemAlloc_v2:3:2",
                     text);
            return false;
        }
        snprintf(fail_rules[fail_rule_count].name, sizeof fail_rules->name, "%s", name);
        fail_rules[fail_rule_count].nth = nth;
        fail_rules[fail_rule_count++].code = code;
        text += used + (text[used] == ',');
    }
    return true;
}

/* What would be lost at exit is noticed at the start. */
static bool can_write(const char *variable, const char *path, char *why, size_t why_bytes) {
    if (!path || !*path) return true;
    FILE *file = fopen(path, "ae");
    if (!file) {
        snprintf(why, why_bytes, "%s: cannot write to '%s'", variable, path);
        return false;
    }
    fclose(file);
    return true;
}

static int injected_failure(const char *name) {
    for (unsigned i = 0; i < fail_rule_count; i++)
        if (!strcmp(fail_rules[i].name, name) && ++fail_rules[i].seen == fail_rules[i].nth)
            return fail_rules[i].code;
    return CUDA_SUCCESS;
}

int driver_enter(const char *name) {
    pthread_mutex_lock(&driver.lock);
    int result = injected_failure(name);
    if (result) return result;
    if (driver.finished) return CUDA_ERROR_DEINITIALIZED;
    return driver.initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

int driver_enter_context(const char *name) {
    int result = driver_enter(name);
    if (result) return result;
    struct CUctx_st *context = driver_current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context->error;
}

int driver_leave(int result) {
    pthread_mutex_unlock(&driver.lock);
    return result;
}

int driver_fault(int result) {
    struct CUctx_st *context = driver_current();
    bool sticky = result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_MISALIGNED_ADDRESS ||
                  result == CUDA_ERROR_LAUNCH_FAILED || result == CUDA_ERROR_LAUNCH_TIMEOUT ||
                  result == CUDA_ERROR_ASSERT || result == CUDA_ERROR_ILLEGAL_INSTRUCTION;
    if (sticky && context && !context->error) context->error = result;
    return result;
}

/* ---- start and end ---- */

/* After an error that stays, nothing can be freed any more. */
static void report_leaks(void) {
    uint64_t count = 0, bytes = 0;
    if (driver.primary.error) return;
    for (const struct CUctx_st *c = driver.contexts; c; c = c->next)
        if (c->error) return;
    for (size_t i = 0; i < driver.memory.count; i++) {
        const struct region *r = driver.memory.live[i];
        if (r->name || r->pinned_host) continue;
        count++;
        bytes += r->bytes;
    }
    if (count)
        report_plain(&driver.reporter, FINDING_LEAK,
                     "%llu allocations with %llu bytes of device memory were never freed",
                     (unsigned long long)count, (unsigned long long)bytes);
}

static void print_summary(void) {
    fprintf(
        driver.reporter.file,
        "kvforge executor: %llu launches, %llu blocks, %llu warp instructions, "
        "%llu lane instructions, %llu findings, %llu notes\n",
        (unsigned long long)driver.launches, (unsigned long long)driver.blocks,
        (unsigned long long)driver.warp_instructions, (unsigned long long)driver.lane_instructions,
        (unsigned long long)driver.reporter.findings, (unsigned long long)driver.reporter.notes);
}

/* Nothing must be left behind when the library is closed. */
static void free_everything(void) {
    graphs_free();
    streams_free();
    modules_free();
    while (driver.contexts) {
        struct CUctx_st *next = driver.contexts->next;
        free(driver.contexts);
        driver.contexts = next;
    }
    counters_clear();
    memory_stop(&driver.memory);
    reporter_stop(&driver.reporter);
    driver.initialised = false;
    driver.finished = true;
}

static void at_exit(void) {
    pthread_mutex_lock(&driver.lock);
    reporter_fold(&driver.reporter);
    if (driver.config.check_leaks) report_leaks();
    if (driver.config.summary) print_summary();
    if (driver.config.counters) counters_write(driver.config.counters);
    bool bad = driver.reporter.findings > 0;
    fflush(driver.reporter.file);
    free_everything();
    pthread_mutex_unlock(&driver.lock);
    if (bad && driver.config.exit_status) {
        fflush(NULL);
        _exit(driver.config.exit_status);
    }
}

static int start(void) {
    if (driver.failed) return CUDA_ERROR_UNKNOWN;
    struct config *c = &driver.config;
    char *why = driver.why;
    if (!config_read(c, why, sizeof driver.why) ||
        !read_fail_rules(c->fail, why, sizeof driver.why) ||
        !can_write("KVF_EXECUTOR_REPORT", c->report, why, sizeof driver.why) ||
        !can_write("KVF_EXECUTOR_COUNTERS", c->counters, why, sizeof driver.why)) {
        fprintf(stderr, "kvforge executor: %s\n", driver.why);
        driver.failed = true;
        return CUDA_ERROR_UNKNOWN;
    }
    int result = injected_failure("cuInit");
    if (result) return result;
    if (driver.config.no_device) return CUDA_ERROR_NO_DEVICE;
    if (!memory_start(&driver.memory, driver.config.memory_bytes) ||
        !reporter_start(&driver.reporter, &driver.config))
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver.primary.primary = true;
    driver.stack_limit = 1024;
    driver.heap_limit = 8 << 20;
    driver.fifo_limit = 1 << 20;
    driver.initialised = true;
    atexit(at_exit);
    return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuInit(unsigned flags);
CU_EXPORT CUresult cuDriverGetVersion(int *version);
CU_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                                       int *status);
CU_EXPORT CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);

CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    int result = driver.initialised ? injected_failure("cuInit") : start();
    return driver_leave(result);
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct config config;
    char why[200];
    if (driver.initialised)
        *version = driver.config.driver_version;
    else
        *version = config_read(&config, why, sizeof why) ? config.driver_version : 0;
    return driver_leave(CUDA_SUCCESS);
}

/* ---- entry points by base name ---- */

/* This library, or the program that it is linked into. */
static void *library_handle(void) {
    Dl_info self;
    if (!dladdr((void *)&driver, &self)) return NULL;
    void *handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return handle ? handle : dlopen(NULL, RTLD_LAZY);
}

/* The exported name for a base name: the newest that the asked version has. */
static void *find_symbol(const char *name, int version) {
    static const struct {
        const char *name;
        int since; /* a later form than this version is not given out */
        const char *symbol;
    } later[] = {{"cuCtxCreate", 13000, "cuCtxCreate_v4"},
                 {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
                 {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
                 {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"}};
    void *handle = library_handle();
    char full[128];
    if (!handle) return NULL;
    void *symbol = NULL;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (!strcmp(later[i].name, name) && version >= later[i].since)
            symbol = dlsym(handle, later[i].symbol);
    static const char *const suffixes[] = {"_v2", "", "_v3", "_v4"};
    for (int i = 0; i < 4 && !symbol; i++) {
        snprintf(full, sizeof full, "%s%s", name, suffixes[i]);
        bool too_new = !strcmp(full, "cuEventElapsedTime_v2") && version < 12080;
        if (!too_new) symbol = dlsym(handle, full);
    }
    dlclose(handle);
    return symbol;
}

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                             int *status) {
    (void)flags;
    if (!name || !out || strncmp(name, "cu", 2) != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = find_symbol(name, version);
    if (status) *status = *out ? 0 : 1;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

/* ---- our own ---- */

CU_EXPORT int kvfExecutorStats(kvfExecutorStatistics *out);
CU_EXPORT const char *kvfExecutorLastFinding(void);
CU_EXPORT const char *kvfExecutorVersion(void);

int kvfExecutorStats(kvfExecutorStatistics *out) {
    if (!out || out->size < sizeof(size_t)) return 1;
    pthread_mutex_lock(&driver.lock);
    kvfExecutorStatistics all = {.size = out->size < sizeof all ? out->size : sizeof all,
                                 .launches = driver.launches,
                                 .blocks = driver.blocks,
                                 .warp_instructions = driver.warp_instructions,
                                 .lane_instructions = driver.lane_instructions,
                                 .findings = driver.reporter.findings,
                                 .occurrences = driver.reporter.occurrences,
                                 .notes = driver.reporter.notes};
    memcpy(out, &all, all.size);
    pthread_mutex_unlock(&driver.lock);
    return 0;
}

const char *kvfExecutorLastFinding(void) {
    return driver.reporter.last;
}

const char *kvfExecutorVersion(void) {
    static char text[64];
    pthread_mutex_lock(&driver.lock);
    snprintf(text, sizeof text, "%s %s", KVF_VERSION, form_functions_name());
    pthread_mutex_unlock(&driver.lock);
    return text;
}
