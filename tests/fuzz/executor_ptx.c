/*
 * PTX text from a stranger: module_parse must end with a module or with an error that names a line;
 * what it accepts runs for a few steps, and must end too.
 */
#include <stdlib.h>

#include "config.h"
#include "launch.h"
#include "report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void run_kernel(struct module *m, const struct function *f) {
    static struct config config;
    static struct memory memory;
    static struct reporter reporter;
    static bool started;
    if (!started) {
        char why[200];
        setenv("KVF_EXECUTOR_REPORT", "/dev/null", 1);
        setenv("KVF_EXECUTOR_STEPS", "2000", 1);
        setenv("KVF_EXECUTOR_THREADS", "1", 1);
        if (!config_read(&config, why, sizeof why) || !memory_start(&memory, 1 << 20) ||
            !reporter_start(&reporter, &config))
            abort();
        started = true;
    }
    struct launch launch = {.module = m,
                            .function = f,
                            .memory = &memory,
                            .config = &config,
                            .reporter = &reporter,
                            .grid = {1, 1, 1},
                            .dimensions = {33, 1, 1},
                            .shared_bytes = f->dynamic_start + 256,
                            .number = 1};
    struct launch_totals totals;
    launch.params = calloc(1, f->param_bytes + 16);
    if (launch.params && launch.shared_bytes < 1 << 20) launch_run(&launch, &totals);
    free(launch.params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct parse_error error;
    bool out_of_memory;
    struct module *m = module_parse((const char *)data, bytes, &error, &out_of_memory);
    if (!m) {
        if (!out_of_memory && !error.text[0]) abort(); /* a refusal says why */
        return 0;
    }
    module_bind(m);
    for (const struct function *f = m->functions; f; f = f->next)
        if (f->entry) run_kernel(m, f);
    module_free(m);
    return 0;
}
