/*
 * The pipeline, from a spec to a bundle. build_bundle at the end reads top to bottom; what lies
 * above it are its steps.
 */
#include "build.h"

#include "bundle_write.h"
#include "ir.h"
#include "ptxas.h"
#include "target.h"

#include <lauxlib.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm/Config/llvm-config.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_SPEC     (1 << 20)
#define USUAL_PASSES "function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg)"

struct build {
    lua_State *L;
    const struct build_options *options;
    int model, templates, modules, report; /* stack indices of tables */
    int ir;                                /* file name -> LLVM IR, if kept */
    char *ptxas;
    char error[1024];
    int status;
    const struct target *targets[BUILD_MAX_TARGETS]; /* that are built */
    int n_targets;
};

/* What LLVM was doing if it gives up: it ends the process, so the name must be at hand. */
static char current_work[256];

__attribute__((format(printf, 3, 4))) static int fail(struct build *b, int status,
                                                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(b->error, sizeof b->error, format, args);
    va_end(args);
    b->status = status;
    return 1;
}

static double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- LLVM's two ways to fail besides a return value ---- */

static void fatal_error(const char *reason) {
    fprintf(stderr, "kvforge: internal error while building %s: LLVM: %s\n", current_work, reason);
    _exit(EXIT_INTERNAL);
}

static void diagnostic(LLVMDiagnosticInfoRef info, void *user) {
    struct build *b = user;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    char *text = LLVMGetDiagInfoDescription(info);
    fail(b, EXIT_INTERNAL, "%s", text);
    LLVMDisposeMessage(text);
}

/* ---- the spec ---- */

static void print_errors(lua_State *L) {
    if (!lua_istable(L, -1)) {
        fprintf(stderr, "kvforge: %s\n", luaL_tolstring(L, -1, NULL));
        lua_pop(L, 1);
        return;
    }
    lua_Integer count = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_geti(L, -1, i);
        fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
        lua_pop(L, 2);
    }
}

lua_State *build_load(const struct host_options *host, const char *spec, int *status) {
    char error[256];
    size_t bytes;
    *status = EXIT_BAD_SPEC;
    char *text = host_read_file(spec, MAX_SPEC, &bytes, error);
    if (!text) {
        fprintf(stderr, "kvforge: %s\n", error);
        return NULL;
    }
    lua_State *L = host_open(host);
    if (!L) {
        fprintf(stderr, "kvforge: out of memory\n");
        free(text);
        *status = EXIT_INTERNAL;
        return NULL;
    }
    bool failed = host_require(L, "kvforge.load") != 0;
    if (!failed) {
        lua_pushlstring(L, text, bytes);
        lua_pushfstring(L, "@%s", spec);
        failed = host_call(L, 2, 2) != 0;
    }
    free(text);
    if (failed || lua_isnil(L, -2)) {
        if (failed) *status = EXIT_INTERNAL; /* a spec's own errors are returned, not raised */
        print_errors(L);
        host_close(L);
        return NULL;
    }
    lua_pop(L, 1);
    return L;
}

/* The error on top of the stack, which is popped. */
static int fail_lua(struct build *b) {
    const char *text = lua_tostring(b->L, -1);
    if (text && !strcmp(text, "not enough memory"))
        fail(b, EXIT_INTERNAL,
             "the bundle needs more than the %zu MiB there are to build it in: fewer targets or "
             "layer types",
             b->options->host.memory >> 20);
    else
        fail(b, EXIT_INTERNAL, "%s", text ? text : "an error that is no text");
    lua_pop(b->L, 1);
    return 1;
}

/* Call function `function` of `module` with the `arguments` on top of the stack. */
static int call(struct build *b, const char *module, const char *function, int arguments,
                int results) {
    lua_State *L = b->L;
    if (host_require(L, module)) return fail_lua(b);
    if (function) {
        lua_getfield(L, -1, function);
        lua_remove(L, -2);
    }
    lua_insert(L, -1 - arguments);
    return host_call(L, arguments, results) ? fail_lua(b) : 0;
}

static int check_tools(struct build *b) {
    if (b->options->cubin && !b->ptxas)
        return fail(b, EXIT_BAD_USAGE, "--cubin needs ptxas: in PATH, or named by KVF_PTXAS");
    return 0;
}

static int load_templates(struct build *b) {
    if (call(b, "kvforge.kernel_templates", "load", 0, 1)) return 1;
    b->templates = lua_gettop(b->L);
    return 0;
}

/* Shapes that no template can build are the spec's fault; all of them are printed. */
static int check_rules(struct build *b) {
    lua_State *L = b->L;
    lua_pushvalue(L, b->templates);
    lua_pushvalue(L, b->model);
    lua_pushstring(L, b->options->spec);
    if (call(b, "kvforge.kernel_templates", "broken", 3, 1)) return 1;
    bool broken = luaL_len(L, -1) > 0;
    if (broken) {
        print_errors(L);
        b->status = EXIT_BAD_SPEC;
    }
    lua_pop(L, 1);
    return broken;
}

/* ---- one module: all kernels of a layer type for a target ---- */

struct module_times {
    double build, emit;
    int kernels;
};

#define MAX_STATIC_SHARED ((uint64_t)48 << 10) /* of a block, on every chip */

/* Refuse what no block of the target can have; the kernel's entry in the manifest is on top. */
static int check_shared(struct build *b, const struct ir_module *m) {
    lua_getfield(b->L, -1, "shared");
    uint64_t dynamic = (uint64_t)lua_tointeger(b->L, -1);
    lua_pop(b->L, 1);
    if (m->shared_bytes > MAX_STATIC_SHARED)
        return fail(b, EXIT_BAD_SPEC,
                    "kernel %s: needs %llu bytes of static shared memory; allowed %llu",
                    m->kernel_name, (unsigned long long)m->shared_bytes,
                    (unsigned long long)MAX_STATIC_SHARED);
    if (m->shared_bytes + dynamic > m->target->max_shared)
        return fail(b, EXIT_BAD_SPEC, "kernel %s: needs %llu bytes of shared memory; allowed %u",
                    m->kernel_name, (unsigned long long)m->shared_bytes + dynamic,
                    m->target->max_shared);
    return 0;
}

/* Build one kernel: `template`, `type` and the variant on top; appends its entry to `kernels`. */
static int build_kernel(struct build *b, struct ir_module *m, int template, int type, int kernels,
                        struct module_times *times) {
    lua_State *L = b->L;
    double start = clock_ms();
    lua_pushvalue(L, template);
    lua_insert(L, -2);
    lua_pushvalue(L, type);
    lua_insert(L, -2);
    ir_set_current(L, m);
    int failed = call(b, "kvforge.kernel", "build", 3, 1);
    ir_set_current(L, NULL);
    if (failed || check_shared(b, m)) return 1;
    double ms = clock_ms() - start;
    times->build += ms;
    times->kernels++;
    lua_pushnumber(L, ms);
    lua_setfield(L, -2, "build_ms");
    lua_seti(L, kernels, luaL_len(L, kernels) + 1);
    return 0;
}

/* Build every kernel the layer type has; appends the manifest's entries to the table `kernels`. */
static int build_kernels(struct build *b, struct ir_module *m, int type, int kernels,
                         struct module_times *times) {
    lua_State *L = b->L;
    lua_Integer count = luaL_len(L, b->templates);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_geti(L, b->templates, i);
        int template = lua_gettop(L);
        lua_pushvalue(L, template);
        lua_pushvalue(L, type);
        if (call(b, "kvforge.kernel", "variants", 2, 1)) return 1;
        for (lua_Integer v = 1; v <= luaL_len(L, template + 1); v++) {
            lua_geti(L, template + 1, v);
            if (build_kernel(b, m, template, type, kernels, times)) return 1;
        }
        lua_settop(L, template - 1);
    }
    return 0;
}

static int keep_ir(struct build *b, struct ir_module *m, const char *file) {
    char *text = LLVMPrintModuleToString(m->module);
    lua_pushstring(b->L, text);
    lua_setfield(b->L, b->ir, file);
    LLVMDisposeMessage(text);
    return 0;
}

/* Add what the report says of a module's kernels, and take the times out of the manifest's. */
static void report_module(struct build *b, int module, int kernels, const struct target *target,
                          const char *ptx, const struct module_times *times) {
    lua_State *L = b->L;
    lua_newtable(L);
    int assembled = lua_gettop(L);
    if (b->ptxas) ptxas_report(L, b->ptxas, target->name, ptx);
    lua_getfield(L, b->report, "kernels");
    int list = lua_gettop(L);
    for (lua_Integer i = 1; i <= luaL_len(L, kernels); i++) {
        lua_geti(L, kernels, i);
        int kernel = lua_gettop(L);
        lua_getfield(L, kernel, "entry");
        lua_gettable(L, assembled);
        if (lua_isnil(L, -1)) {
            lua_pop(L, 1);
            lua_newtable(L);
        }
        lua_getfield(L, module, "type");
        lua_setfield(L, -2, "type");
        lua_pushstring(L, target->name);
        lua_setfield(L, -2, "target");
        lua_getfield(L, kernel, "name");
        lua_setfield(L, -2, "kernel");
        lua_getfield(L, kernel, "build_ms");
        double ms = lua_tonumber(L, -1) + times->emit / times->kernels;
        lua_pop(L, 1);
        lua_pushnumber(L, ms);
        lua_setfield(L, -2, "ms");
        lua_seti(L, list, luaL_len(L, list) + 1);
        lua_pushnil(L);
        lua_setfield(L, kernel, "build_ms");
        lua_settop(L, kernel - 1);
    }
    lua_getfield(L, assembled, "error");
    if (!lua_isnil(L, -1)) lua_setfield(L, b->report, "ptxas_error");
    lua_settop(L, assembled - 1);
}

/* module.cubin = { file, text }: the module assembled for exactly its target. */
static int add_cubin(struct build *b, int module, const struct target *target, const char *ptx) {
    lua_State *L = b->L;
    char error[512], file[300];
    size_t bytes;
    char *cubin = ptxas_cubin(b->ptxas, target->name, ptx, &bytes, error, sizeof error);
    if (!cubin) return fail(b, EXIT_INTERNAL, "ptxas: %s", error);
    lua_getfield(L, module, "file");
    const char *name = lua_tostring(L, -1);
    snprintf(file, sizeof file, "%.*s.cubin", (int)(strrchr(name, '.') - name), name);
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushstring(L, file);
    lua_setfield(L, -2, "file");
    lua_pushlstring(L, cubin, bytes);
    lua_setfield(L, -2, "text");
    lua_setfield(L, module, "cubin");
    free(cubin);
    return 0;
}

/* Verify, optimise and emit a module; appends it to b->modules. */
static int emit_module(struct build *b, struct ir_module *m, int type, int kernels,
                       struct module_times *times) {
    lua_State *L = b->L;
    size_t bytes;
    char *error, file[256];
    lua_getfield(L, type, "name");
    snprintf(file, sizeof file, "%s.%s", lua_tostring(L, -1), m->target->name);
    lua_pop(L, 1);
    if (b->options->keep_ir) {
        char name[264];
        snprintf(name, sizeof name, "%s.ll", file);
        keep_ir(b, m, name);
    }
    double start = clock_ms();
    char *ptx = target_emit(m->target, m->ptx, m->module, USUAL_PASSES, &bytes, &error);
    times->emit = clock_ms() - start;
    if (!ptx || b->status) {
        if (!b->status) fail(b, EXIT_INTERNAL, "%s", error);
        free(ptx);
        return 1;
    }
    lua_newtable(L);
    int module = lua_gettop(L);
    lua_getfield(L, type, "name");
    lua_setfield(L, module, "type");
    lua_pushstring(L, m->target->name);
    lua_setfield(L, module, "target");
    lua_pushfstring(L, "%s.ptx", file);
    lua_setfield(L, module, "file");
    lua_pushlstring(L, ptx, bytes);
    lua_setfield(L, module, "text");
    lua_pushfstring(L, "%d.%d", (int)(m->ptx / 10), (int)(m->ptx % 10));
    lua_setfield(L, module, "ptx");
    lua_pushinteger(L, target_driver(m->ptx));
    lua_setfield(L, module, "driver");
    lua_pushvalue(L, kernels);
    lua_setfield(L, module, "kernels");
    if (b->options->cubin && add_cubin(b, module, m->target, ptx)) {
        free(ptx);
        return 1;
    }
    report_module(b, module, kernels, m->target, ptx, times);
    lua_seti(L, b->modules, luaL_len(L, b->modules) + 1);
    free(ptx);
    return 0;
}

static int build_module(struct build *b, int type, const struct target *target) {
    lua_State *L = b->L;
    struct module_times times = {0, 0, 0};
    int top = lua_gettop(L);
    lua_getfield(L, type, "name");
    snprintf(current_work, sizeof current_work, "%s for %s", lua_tostring(L, -1), target->name);
    struct ir_module *m = ir_module_open(lua_tostring(L, -1), target);
    if (!m) return fail(b, EXIT_INTERNAL, "out of memory");
    LLVMContextSetDiagnosticHandler(m->context, diagnostic, b);
    lua_newtable(L);
    int kernels = lua_gettop(L);
    int failed = build_kernels(b, m, type, kernels, &times);
    if (!failed && times.kernels) failed = emit_module(b, m, type, kernels, &times);
    ir_module_close(m);
    lua_settop(L, top);
    return failed;
}

/* ---- all modules ---- */

/* What was asked for, or else what the spec names; -1 if there is no such target. */
static int read_targets(struct build *b, const struct target **targets) {
    lua_State *L = b->L;
    int count = b->options->n_targets;
    const char *names[BUILD_MAX_TARGETS];
    lua_getfield(L, b->model, "model");
    lua_getfield(L, -1, "targets");
    if (!count) {
        for (; count < BUILD_MAX_TARGETS; count++) {
            if (lua_geti(L, -1, count + 1) == LUA_TNIL) break;
            names[count] = lua_tostring(L, -1); /* the list in M keeps it alive */
            lua_pop(L, 1);
        }
    } else {
        memcpy(names, b->options->targets, (size_t)count * sizeof *names);
    }
    for (int i = 0; i < count; i++) {
        targets[i] = target_find(names[i]);
        if (!targets[i]) {
            fail(b, EXIT_BAD_USAGE, "unknown target '%s'; known are %s", names[i], target_names());
            return -1;
        }
    }
    return count;
}

/* Rules and the manifest know the targets that are built, whatever the spec asked for. */
static int choose_targets(struct build *b) {
    lua_State *L = b->L;
    int top = lua_gettop(L);
    b->n_targets = read_targets(b, b->targets);
    if (b->n_targets < 0) return 1;
    lua_getfield(L, b->model, "model");
    lua_createtable(L, b->n_targets, 0);
    for (int i = 0; i < b->n_targets; i++) {
        lua_pushstring(L, b->targets[i]->name);
        lua_seti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "targets");
    lua_settop(L, top);
    return 0;
}

static int build_modules(struct build *b) {
    lua_State *L = b->L;
    int top = lua_gettop(L);
    lua_getfield(L, b->model, "types");
    int types = lua_gettop(L);
    for (lua_Integer i = 1; i <= luaL_len(L, types); i++) {
        lua_geti(L, types, i);
        for (int t = 0; t < b->n_targets; t++)
            if (build_module(b, lua_gettop(L), b->targets[t])) return 1;
        lua_pop(L, 1);
    }
    lua_pushvalue(L, b->model);
    if (call(b, "kvforge.kernel", "common_type", 1, 1)) return 1;
    for (int t = 0; t < b->n_targets; t++)
        if (build_module(b, lua_gettop(L), b->targets[t])) return 1;
    *current_work = 0;
    lua_settop(L, top);
    return 0;
}

/* ---- the bundle ---- */

/* Push the array of the bundle's files: { name, text } each. */
static int list_files(struct build *b) {
    lua_State *L = b->L;
    lua_pushvalue(L, b->model);
    lua_newtable(L);
    lua_pushstring(L, KVF_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, LLVM_VERSION_STRING);
    lua_setfield(L, -2, "llvm");
    host_require(L, "host");
    lua_getfield(L, -1, "sha256");
    lua_setfield(L, -3, "sha256");
    lua_pop(L, 1);
    lua_pushvalue(L, b->modules);
    lua_setfield(L, -2, "modules");
    lua_pushvalue(L, b->ir);
    lua_setfield(L, -2, "ir");
    lua_pushboolean(L, b->options->embed);
    lua_setfield(L, -2, "embed");
    return call(b, "kvforge.bundle", NULL, 2, 1);
}

/* Three of every module, and a few: 33 modules a target at most. */
#define MAX_FILES 640

static int write_bundle(struct build *b) {
    lua_State *L = b->L;
    struct bundle_file files[MAX_FILES];
    char out[512], error[1000];
    int top = lua_gettop(L);
    if (list_files(b)) return 1;
    size_t count = (size_t)luaL_len(L, top + 1);
    if (count > MAX_FILES)
        return fail(b, EXIT_INTERNAL, "a bundle of more than %d files", MAX_FILES);
    for (size_t i = 0; i < count; i++) {
        lua_geti(L, top + 1, (lua_Integer)i + 1);
        lua_getfield(L, -1, "name");
        lua_getfield(L, -2, "text");
        files[i].name = lua_tostring(L, -2);
        files[i].text = lua_tolstring(L, -1, &files[i].bytes);
        lua_pop(L, 3); /* the array keeps both alive */
    }
    lua_getfield(L, b->model, "model");
    lua_getfield(L, -1, "name");
    snprintf(out, sizeof out, "build/%s", lua_tostring(L, -1));
    if (!b->options->out)
        mkdir("build", 0777); /* if it is not there, and cannot be, writing fails */
    if (bundle_write(b->options->out ? b->options->out : out, files, count, error, sizeof error))
        return fail(b, EXIT_BAD_SPEC, "%s", error);
    lua_settop(L, top);
    return 0;
}

static int write_report(struct build *b, double ms) {
    lua_State *L = b->L;
    if (!b->options->report) return 0;
    lua_pushnumber(L, ms);
    lua_setfield(L, b->report, "total_ms");
    lua_pushvalue(L, b->report);
    if (call(b, "kvforge.json", "encode", 1, 1)) return 1;
    lua_pushfstring(L, "%s\n", lua_tostring(L, -1));
    char error[600];
    if (!file_replace(b->options->report, lua_tostring(L, -1), error, sizeof error)) return 0;
    return fail(b, EXIT_BAD_SPEC, "%s", error);
}

/* ---- the pipeline ---- */

/* What failed, unless it has been printed where it was found. */
static void print_error(const struct build *b) {
    if (!*b->error) return;
    fprintf(stderr, "kvforge: %s%s%s\n", current_work, *current_work ? ": " : "", b->error);
}

static int new_table(lua_State *L) {
    lua_newtable(L);
    return lua_gettop(L);
}

int build_check(const struct build_options *options) {
    struct build b = {.options = options};
    b.L = build_load(&options->host, options->spec, &b.status);
    if (!b.L) return b.status;
    b.status = EXIT_GOOD;
    b.model = lua_gettop(b.L);
    if (load_templates(&b) || choose_targets(&b) || check_rules(&b)) print_error(&b);
    host_close(b.L);
    return b.status;
}

int build_bundle(const struct build_options *options) {
    struct build b = {.options = options};
    double start = clock_ms();
    target_init();
    LLVMInstallFatalErrorHandler(fatal_error);
    b.L = build_load(&options->host, options->spec, &b.status);
    if (!b.L) return b.status;
    b.status = EXIT_GOOD;
    b.model = lua_gettop(b.L);
    b.modules = new_table(b.L);
    b.ir = new_table(b.L);
    b.report = new_table(b.L);
    lua_newtable(b.L);
    lua_setfield(b.L, b.report, "kernels");
    b.ptxas = options->report || options->cubin ? ptxas_find() : NULL;

    bool failed = check_tools(&b) || load_templates(&b) || choose_targets(&b) || check_rules(&b) ||
                  build_modules(&b) || write_bundle(&b) || write_report(&b, clock_ms() - start);

    if (failed) print_error(&b);
    free(b.ptxas);
    host_close(b.L);
    return b.status;
}
