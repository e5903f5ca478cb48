/* Opening a driver: every way there is none, or not enough of one; finding the executor. */
#include "driver.h"

#include <dlfcn.h>
#include <sys/wait.h>

#include "fake/test_bundle.h"
#include "tap.h"

static kvf_error error;
static struct fake_state *fake;

static kvf_status open_fake(kvf_driver **out) {
    *out = NULL;
    memset(&error, 0, sizeof error);
    return kvf_driver_open(KVF_DRIVER_CUDA, fake_path(), out, &error);
}

static void test_good(void) {
    kvf_driver *driver;
    fake = fake_reset();
    is(open_fake(&driver), KVF_OK, "a healthy driver opens");
    if (!driver) exit(1);
    is(kvf_driver_kind_of(driver), KVF_DRIVER_CUDA, "as what it was asked for");
    is(kvf_driver_version(driver), 13000, "with its version");
    contains(kvf_driver_path(driver), "fake/libcuda.so.1", "and its file");
    ok(driver->cuLaunchKernel && driver->cuMemAlloc_v2 && driver->cuFuncLoad,
       "its symbols are there");
    ok(!driver->cuStreamCreate, "and null where the driver has none");
    ok(fake->asked_version == 12040, "no row asks for a version beyond what introduced it");
    ok(driver_extra(driver, "fake_cuda_state") && !driver_extra(driver, "no_such_symbol"),
       "symbols outside the table");
    kvf_driver_close(driver);
    is(kvf_driver_open(KVF_DRIVER_EXECUTOR, fake_path(), &driver, &error), KVF_OK,
       "a file may be opened as the executor");
    is(kvf_driver_kind_of(driver), KVF_DRIVER_EXECUTOR, "and is then called so");
    kvf_driver_close(driver);
    kvf_driver_close(NULL);
}

static void test_none(void) {
    kvf_driver *driver = NULL;
    is(kvf_driver_open(KVF_DRIVER_CUDA, "/nonexistent/libcuda.so.1", &driver, &error),
       KVF_ERROR_NO_DRIVER, "no such file");
    contains(error.text, "/nonexistent/libcuda.so.1", "is named");
    is(kvf_driver_open(KVF_DRIVER_CUDA, "libm.so.6", &driver, &error), KVF_ERROR_NO_DRIVER,
       "a library that is no driver");
    contains(error.text, "libm.so.6 is not a CUDA driver", "is told from one");
    /* NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): that is the point */
    is(kvf_driver_open((kvf_driver_kind)3, NULL, &driver, &error), KVF_ERROR_ARGUMENT,
       "no such kind");
    is(kvf_driver_open(KVF_DRIVER_CUDA, NULL, NULL, &error), KVF_ERROR_ARGUMENT, "out null");
    ok(!driver, "nothing was handed out");
}

static void test_stub(void) {
    kvf_driver *driver;
    fake = fake_reset();
    fake->stub = 1;
    is(open_fake(&driver), KVF_ERROR_NO_DRIVER, "the stub library is no driver");
    is(error.driver_code, 34, "with its code");
    ok(strcmp(error.driver_name, "CUDA_ERROR_STUB_LIBRARY") == 0, "with its name");
    contains(error.text, "stub library for linking", "and a sentence");
    static const char real[] = "/usr/local/cuda/lib64/stubs/libcuda.so";
    if (access(real, R_OK) != 0) {
        tap_skip(1, "no CUDA toolkit");
        return;
    }
    kvf_status status = kvf_driver_open(KVF_DRIVER_CUDA, real, &driver, &error);
    ok(status == KVF_ERROR_NO_DRIVER && error.driver_code == 34, "NVIDIA's own stub likewise");
}

static void test_no_device(void) {
    kvf_driver *driver;
    fake = fake_reset();
    fake->init_result = 100;
    is(open_fake(&driver), KVF_ERROR_NO_DRIVER, "cuInit finds no device");
    contains(error.text, "sees no CUDA device", "and says so");
    fake = fake_reset();
    fake->devices = 0;
    is(open_fake(&driver), KVF_ERROR_NO_DRIVER, "no devices are counted");
    is(error.driver_code, 100, "which is the same");
    fake = fake_reset();
    fake->init_result = 803;
    is(open_fake(&driver), KVF_ERROR_NO_DRIVER, "driver and kernel module differ");
    contains(error.text, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): the kernel module", "in words");
    static const char *const calls[] = {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount"};
    for (int i = 0; i < 3; i++) {
        fake = fake_reset();
        fake->fail_in = i + 1;
        fake->fail_code = 999;
        is(open_fake(&driver), KVF_ERROR_NO_DRIVER, "a call of starting up fails");
        contains(error.text, calls[i], "and is named");
    }
}

/* Each symbol of the table missing in turn: {base name, is it required}. */
#define NAME_REQUIRED(base, abi, version, parameters) {#base, true, version},
#define NAME_OPTIONAL(base, abi, version, parameters) {#base, false, version},
static const struct {
    const char *base;
    bool required;
    int version;
} names[] = {DRIVER_SYMBOLS(NAME_REQUIRED, NAME_OPTIONAL)};

static void test_missing(void) {
    int required = 0, optional = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        kvf_driver *driver;
        fake = fake_reset();
        fake->missing = names[i].base;
        kvf_status status = open_fake(&driver);
        bool first = strcmp(names[i].base, "cuInit") == 0 ||
                     strcmp(names[i].base, "cuDriverGetVersion") == 0 ||
                     strcmp(names[i].base, "cuDeviceGetCount") == 0;
        kvf_status want = first               ? KVF_ERROR_NO_DRIVER
                          : names[i].required ? KVF_ERROR_OLD_DRIVER
                                              : KVF_OK;
        bool good = status == want && (status == KVF_OK || strstr(error.text, names[i].base));
        if (!good) ok(false, "%s missing: %d, %s", names[i].base, status, error.text);
        required += good && names[i].required;
        optional += good && !names[i].required;
        kvf_driver_close(driver);
    }
    is(required, 24, "each required symbol missing is named");
    is(optional, (int)(sizeof names / sizeof names[0]) - 24, "each optional one is done without");
}

static void test_old(void) {
    kvf_driver *driver;
    fake = fake_reset();
    fake->version = 12020;
    is(open_fake(&driver), KVF_OK, "a driver for CUDA 12.2 opens");
    ok(driver && !driver->cuFuncLoad && !driver->cuFuncGetParamInfo && driver->cuLaunchKernel,
       "without what came in 12.4");
    kvf_driver_close(driver);
    fake = fake_reset();
    fake->version = 9020;
    is(open_fake(&driver), KVF_ERROR_OLD_DRIVER, "one for 9.2 is too old");
    contains(error.text, "(version 9.2) lacks", "and both versions are said");
    /* This one has no cuGetProcAddress at all: symbols come by their ABI names. */
    driver = NULL;
    is(kvf_driver_open(KVF_DRIVER_CUDA, test_beside("fake/old/libcuda.so.1"), &driver, &error),
       KVF_OK, "a driver without cuGetProcAddress opens");
    ok(driver && driver->cuMemAlloc_v2 && driver->cuCtxPushCurrent_v2 && !driver->cuFuncLoad,
       "and is asked by dlsym");
    kvf_driver_close(driver);
}

static void test_errors(void) {
    static const struct {
        int code;
        kvf_status status;
    } codes[] = {{0, KVF_OK},
                 {2, KVF_ERROR_DEVICE_MEMORY},
                 {34, KVF_ERROR_NO_DRIVER},
                 {100, KVF_ERROR_NO_DRIVER},
                 {209, KVF_ERROR_NO_TARGET},
                 {218, KVF_ERROR_COMPILE},
                 {221, KVF_ERROR_COMPILE},
                 {222, KVF_ERROR_OLD_DRIVER},
                 {700, KVF_ERROR_DRIVER},
                 {701, KVF_ERROR_LIMIT},
                 {719, KVF_ERROR_DRIVER},
                 {800, KVF_ERROR_DRIVER},
                 {900, KVF_ERROR_CAPTURE},
                 {906, KVF_ERROR_CAPTURE},
                 {908, KVF_ERROR_CAPTURE},
                 {777777, KVF_ERROR_DRIVER}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        is(driver_status(codes[i].code), codes[i].status, "a result's status");
    ok(strcmp(driver_result_name(1), "CUDA_ERROR_INVALID_VALUE") == 0 &&
           strcmp(driver_result_name(999), "CUDA_ERROR_UNKNOWN") == 0 && !driver_result_name(5000),
       "results have the driver's names");
    kvf_driver *driver;
    fake = fake_reset();
    if (open_fake(&driver) != KVF_OK) exit(1);
    is(driver_fail(driver, 12345, "cuThing", "doing a thing", &error), KVF_ERROR_DRIVER,
       "a result newer than the table");
    ok(strcmp(error.driver_name, "CUDA_ERROR_OF_THE_FUTURE") == 0, "is named by the driver");
    driver_fail(driver, 12346, "cuThing", "doing a thing", &error);
    contains(error.text, "doing a thing: cuThing returned an unknown result (12346)",
             "and if it cannot, by its number");
    is(driver_fail(driver, 700, "cuThing", "doing a thing", NULL), KVF_ERROR_DRIVER,
       "without a place for details");
    kvf_driver_close(driver);
    bool named = true;
    for (int status = 0; status <= 16; status++)
        named = named && strcmp(kvf_status_name((kvf_status)status), "unknown status") != 0;
    ok(named, "every status has a name");
    ok(strcmp(kvf_status_name((kvf_status)99), "unknown status") == 0, "others have none");
    ok(strcmp(kvf_version(), KVF_VERSION) == 0, "the version is the build's");
}

/* ---- finding the executor: this program, copied elsewhere, says what it opens ---- */

static int say_what_opens(const char *kind) {
    kvf_driver *driver = NULL;
    kvf_status status = kvf_driver_open(strcmp(kind, "auto") == 0   ? KVF_DRIVER_AUTO
                                        : strcmp(kind, "cuda") == 0 ? KVF_DRIVER_CUDA
                                                                    : KVF_DRIVER_EXECUTOR,
                                        NULL, &driver, &error);
    if (status == KVF_OK)
        printf("%s %s\n", kvf_driver_kind_of(driver) == KVF_DRIVER_EXECUTOR ? "executor" : "cuda",
               kvf_driver_path(driver));
    else
        printf("status %d: %s\n", status, error.text);
    kvf_driver_close(driver);
    return 0;
}

/* The output of a shell command, in a static buffer. */
__attribute__((format(printf, 1, 2))) static const char *shell(const char *format, ...) {
    static char out[8192];
    char command[16384];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): commands of our own */
    size_t got = pipe ? fread(out, 1, sizeof out - 1, pipe) : 0;
    out[got] = 0;
    if (pipe) pclose(pipe);
    return out;
}

static void test_places(void) {
    char dir[64] = "/tmp/kvforge-test-XXXXXX", fake_file[4300];
    if (!mkdtemp(dir)) exit(2);
    snprintf(fake_file, sizeof fake_file, "%s", fake_path());
    shell("mkdir -p %s/bin %s/none %s/cuda && cp %s %s/bin/prog && ln -s %s %s/cuda/libcuda.so.1",
          dir, dir, dir, "/proc/$PPID/exe", dir, fake_file, dir);

    contains(shell("cd %s/bin && ./prog executor", dir), "KVF_EXECUTOR names no file",
             "nowhere an executor");
    const char *said = shell("cd %s/bin && ./prog auto", dir);
    ok(strstr(said, "no CUDA driver (") || strncmp(said, "cuda ", 5) == 0,
       "auto takes a real driver or says that both are missing");
    contains(shell("cd %s/bin && KVF_EXECUTOR=%s ./prog executor", dir, fake_file), "executor /",
             "the environment names one");
    contains(shell("cd %s/bin && KVF_EXECUTOR=/nowhere.so ./prog executor", dir), "/nowhere.so",
             "or one that is not there");
    contains(shell("cd %s/bin && LD_LIBRARY_PATH=%s/cuda ./prog auto", dir, dir), "cuda ",
             "a driver on the loader's path is the real one");

    contains(shell("cd %s/bin && LD_LIBRARY_PATH=%s/cuda ./prog cuda", dir, dir), "cuda ",
             "also when only a real one is wanted");

    shell("mkdir -p %s/lib/kvforge && cp %s %s/lib/kvforge/libcuda.so.1", dir, fake_file, dir);
    contains(shell("cd %s/bin && ./prog executor", dir), "/lib/kvforge/libcuda.so.1",
             "installed, it lies in lib/kvforge");
    contains(shell("cd / && PATH=%s/bin:$PATH prog executor", dir), "/lib/kvforge/libcuda.so.1",
             "also when the program is found by PATH");
    contains(shell("cd %s/bin && KVF_EXECUTOR=/nowhere.so ./prog executor", dir), "/lib/kvforge/",
             "what lies beside the program comes first");
    shell("mkdir -p %s/executor && cp %s %s/executor/libcuda.so.1", dir, fake_file, dir);
    contains(shell("cd %s/bin && ./prog executor", dir), "/executor/libcuda.so.1",
             "in a build tree it lies in executor");
    shell("rm -rf %s", dir);
}

/* Whether a driver that is refused stays mapped, which it must once cuInit has succeeded. */
static bool stays_mapped(const char *file, int init_result, const char *missing, kvf_status want) {
    kvf_driver *driver = NULL;
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *found, *after;
    fake_cuda_state_fn get;
    if (!handle) exit(2);
    found = dlsym(handle, "fake_cuda_state");
    memcpy(&get, &found, sizeof get);
    get()->init_result = init_result;
    get()->missing = missing;
    is(kvf_driver_open(KVF_DRIVER_CUDA, file, &driver, &error), want, "a driver is refused");
    dlclose(handle);
    after = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (after) dlclose(after);
    return after != NULL;
}

static void test_mapped(void) {
    char dir[64] = "/tmp/kvforge-test-XXXXXX", file[128];
    if (!mkdtemp(dir)) exit(2);
    snprintf(file, sizeof file, "%s/libcuda.so.1", dir); /* a copy: nothing else has it open */
    shell("cp %s %s", fake_path(), file);
    ok(!stays_mapped(file, 999, NULL, KVF_ERROR_NO_DRIVER), "one that does not start is closed");
    ok(stays_mapped(file, 0, "cuLaunchKernel", KVF_ERROR_OLD_DRIVER),
       "one that has started stays mapped");
    shell("rm -rf %s", dir);
}

int main(int argc, char **argv) {
    if (argc > 1) return say_what_opens(argv[1]);
    tap_plan(80);
    test_good();
    test_none();
    test_stub();
    test_no_device();
    test_missing();
    test_old();
    test_errors();
    test_places();
    test_mapped();
    return tap_done();
}
