/*
 * What kvf_bundle_open and kvf_library_load of a whole bundle take, apart from the driver: every
 * driver call that loading makes goes through a wrapper that takes the time, and that is
 * subtracted.
 *
 *     build/bench/load [rounds]      from the root of the source tree
 *
 * With two drivers: the executor, whose loading of PTX stands in for a driver's compiler, and the
 * tests' make-believe driver, which does next to nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "lib/machine.h"
#include "lib/sample.h"

enum { ROUNDS = 20, MS_TARGET = 10 };

struct spent {
    double wall, cpu; /* ms */
};

static struct spent now(void) {
    return (struct spent){clock_wall(), clock_cpu()};
}

static struct spent since(struct spent start) {
    return (struct spent){clock_wall() - start.wall, clock_cpu() - start.cpu};
}

/* ---- the driver's own time ---- */

/* Wrappers have no argument of ours, so what they need stands here. */
static struct kvf_driver real;
static struct spent inside;
static int calls;

static CUresult took(struct spent start, CUresult code) {
    struct spent spent = since(start);
    inside.wall += spent.wall;
    inside.cpu += spent.cpu;
    calls++;
    return code;
}

#define TIMED(name, parameters, arguments)                                                         \
    static CUresult timed_##name parameters {                                                      \
        struct spent start = now();                                                                \
        return took(start, real.name arguments);                                                   \
    }

TIMED(cuCtxGetCurrent, (CUcontext * context), (context))
TIMED(cuCtxPushCurrent_v2, (CUcontext context), (context))
TIMED(cuCtxPopCurrent_v2, (CUcontext * context), (context))
TIMED(cuStreamIsCapturing, (CUstream stream, int *status), (stream, status))
TIMED(cuModuleLoadDataEx,
      (CUmodule * module, const void *image, unsigned options, int *names, void **values),
      (module, image, options, names, values))
TIMED(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
      (function, module, name))
TIMED(cuFuncGetAttribute, (int *value, int attribute, CUfunction function),
      (value, attribute, function))
TIMED(cuFuncSetAttribute, (CUfunction function, int attribute, int value),
      (function, attribute, value))
TIMED(cuFuncLoad, (CUfunction function), (function))
TIMED(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t *offset, size_t *size),
      (function, index, offset, size))

#define WRAP(name)                                                                                 \
    if (driver->name) driver->name = timed_##name

/* All that kvf_library_load calls. */
static void wrap(struct kvf_driver *driver) {
    real = *driver;
    WRAP(cuCtxGetCurrent);
    WRAP(cuCtxPushCurrent_v2);
    WRAP(cuCtxPopCurrent_v2);
    WRAP(cuStreamIsCapturing);
    WRAP(cuModuleLoadDataEx);
    WRAP(cuModuleGetFunction);
    WRAP(cuFuncGetAttribute);
    WRAP(cuFuncSetAttribute);
    WRAP(cuFuncLoad);
    WRAP(cuFuncGetParamInfo);
}

/* ---- rounds ---- */

struct results {
    struct sample open_wall, open_cpu, load_wall, load_cpu, driver_wall, driver_cpu, own_wall,
        own_cpu;
};

/* Open the bundle and load it; everything is given back. */
static kvf_status run_round(kvf_device *device, const char *directory, struct results *results,
                            kvf_error *error) {
    kvf_bundle *bundle;
    kvf_library *library;
    struct spent start = now();
    kvf_status status = kvf_bundle_open(directory, &bundle, error);
    if (status != KVF_OK) return status;
    struct spent open = since(start);
    inside = (struct spent){0, 0};
    calls = 0;
    start = now();
    status = kvf_library_load(device, bundle, NULL, NULL, &library, error);
    struct spent load = since(start), driver = inside;
    if (status == KVF_OK) {
        sample_add(&results->open_wall, open.wall);
        sample_add(&results->open_cpu, open.cpu);
        sample_add(&results->load_wall, load.wall);
        sample_add(&results->load_cpu, load.cpu);
        sample_add(&results->driver_wall, driver.wall);
        sample_add(&results->driver_cpu, driver.cpu);
        sample_add(&results->own_wall, load.wall - driver.wall);
        sample_add(&results->own_cpu, load.cpu - driver.cpu);
        kvf_library_unload(library);
    }
    kvf_bundle_close(bundle);
    return status;
}

static void print_row(const char *name, const struct sample *wall, const struct sample *cpu) {
    printf("  %-44s%10.3f%10.3f\n", name, sample_median(wall), sample_median(cpu));
}

static void print_results(const char *name, const struct results *r) {
    double own = sample_median(&r->own_cpu);
    printf("\n%s, %d driver calls a load\n  %-44s%10s%10s\n", name, calls, "", "ms wall", "ms CPU");
    print_row("kvf_bundle_open", &r->open_wall, &r->open_cpu);
    print_row("kvf_library_load", &r->load_wall, &r->load_cpu);
    print_row("  in the driver", &r->driver_wall, &r->driver_cpu);
    print_row("  apart from the driver", &r->own_wall, &r->own_cpu);
    printf("  kvf_library_load apart from the driver, CPU time: %.3f ms, at most %d: %s\n", own,
           MS_TARGET, own <= (double)MS_TARGET ? "met" : "MISSED");
}

/* False if something broke; no driver of that kind is not that. */
static bool measure(const char *name, kvf_driver_kind kind, const char *path, const char *directory,
                    int rounds) {
    kvf_driver *driver;
    kvf_device *device;
    kvf_error error = {0};
    if (kvf_driver_open(kind, path, &driver, &error) != KVF_OK) {
        printf("\n%s: skipped: %s\n", name, error.text);
        return true;
    }
    wrap(driver);
    struct results *results = calloc(1, sizeof *results);
    kvf_status status = results ? kvf_device_open(driver, 0, &device, &error) : KVF_ERROR_MEMORY;
    if (status == KVF_OK) {
        for (int i = 0; i < rounds && status == KVF_OK; i++)
            status = run_round(device, directory, results, &error);
        kvf_device_close(device);
    }
    if (status == KVF_OK)
        print_results(name, results);
    else
        fprintf(stderr, "load: %s: %s\n", name, error.text);
    free(results);
    kvf_driver_close(driver);
    return status == KVF_OK;
}

int main(int argc, char **argv) {
    const char *build = getenv("KVF_BUILD");
    char directory[512], fake[512];
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : ROUNDS;
    if (!build) build = "build";
    (void)snprintf(directory, sizeof directory, "%s/deepseek-v4-flash-ring", build);
    (void)snprintf(fake, sizeof fake, "%s/tests/fake/libcuda.so.1", build);
    if (rounds < 1 || rounds > SAMPLE_MAX) {
        fprintf(stderr, "load: between 1 and %d rounds\n", SAMPLE_MAX);
        return 2;
    }
    machine_print();
    printf("%s, medians of %d loads\n", directory, rounds);
    bool good = measure("The make-believe driver", KVF_DRIVER_CUDA, fake, directory, rounds) &&
                measure("The executor", KVF_DRIVER_EXECUTOR, NULL, directory, rounds);
    return good ? 0 : 1;
}
