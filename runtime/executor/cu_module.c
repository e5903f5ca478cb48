/* Modules and libraries: loading PTX with its JIT options, functions, global variables. */
#include <stdlib.h>

#include "driver.h"

enum {
    JIT_MAX_REGISTERS = 0,
    JIT_WALL_TIME = 2,
    JIT_INFO_LOG_BUFFER = 3,
    JIT_INFO_LOG_BUFFER_SIZE = 4,
    JIT_ERROR_LOG_BUFFER = 5,
    JIT_ERROR_LOG_BUFFER_SIZE = 6,
    JIT_LOG_VERBOSE = 12,
    JIT_COUNT = 40,
    DEFINEDNESS_MOST = 1 << 26
};

struct jit_log {
    char *buffer;
    size_t size;
    unsigned size_at; /* where the number of bytes used is returned */
    bool has_size;
};

struct jit {
    struct jit_log info, error;
    bool verbose;
    void **values;
};

static bool read_options(struct jit *jit, const int *options, void **values, unsigned count) {
    memset(jit, 0, sizeof *jit);
    jit->values = values;
    if (count && (!options || !values)) return false;
    for (unsigned i = 0; i < count; i++) {
        switch (options[i]) {
        case JIT_INFO_LOG_BUFFER: jit->info.buffer = values[i]; break;
        case JIT_ERROR_LOG_BUFFER: jit->error.buffer = values[i]; break;
        case JIT_INFO_LOG_BUFFER_SIZE:
            jit->info.size = (unsigned)(uintptr_t)values[i];
            jit->info.size_at = i;
            jit->info.has_size = true;
            break;
        case JIT_ERROR_LOG_BUFFER_SIZE:
            jit->error.size = (unsigned)(uintptr_t)values[i];
            jit->error.size_at = i;
            jit->error.has_size = true;
            break;
        case JIT_LOG_VERBOSE: jit->verbose = values[i] != NULL; break;
        default:
            if (options[i] < 0 || options[i] >= JIT_COUNT) return false;
        }
    }
    return true;
}

/* Fill a log's buffer and return how many bytes it took, its NUL not counted, where the size was.
 */
static void write_log(struct jit *jit, struct jit_log *log, const char *text) {
    size_t n = 0;
    if (log->buffer && log->size) {
        n = strlen(text);
        if (n >= log->size) n = log->size - 1;
        memcpy(log->buffer, text, n);
        log->buffer[n] = 0;
    }
    if (log->has_size) jit->values[log->size_at] = (void *)(uintptr_t)n;
}

/* ---- may this device run it? ---- */

/* The newest PTX version of a driver (PTX ISA, release notes): 12.4 has 8.4, 13.0 has 9.0. */
static unsigned newest_ptx(int version) {
    static const struct {
        int driver;
        unsigned ptx;
    } table[] = {{11000, 70}, {11010, 71}, {11020, 72}, {11030, 73}, {11040, 74}, {11050, 75},
                 {11060, 76}, {11070, 77}, {11080, 78}, {12000, 80}, {12010, 81}, {12020, 82},
                 {12030, 83}, {12040, 84}, {12050, 85}, {12060, 85}, {12070, 86}, {12080, 87},
                 {12090, 88}, {13000, 90}, {13010, 91}};
    unsigned ptx = 70;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (version >= table[i].driver) ptx = table[i].ptx;
    return ptx;
}

static int check_target(uint32_t version, uint32_t target, char suffix, char *why, size_t bytes) {
    unsigned newest = newest_ptx(driver.config.driver_version);
    unsigned device =
        (unsigned)(driver.config.capability_major * 10 + driver.config.capability_minor);
    if (version > newest) {
        snprintf(why, bytes, "PTX version %u.%u is newer than this driver's %u.%u", version / 10,
                 version % 10, newest / 10, newest % 10);
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    bool fits = target <= device;
    if (suffix == 'a') fits = target == device;
    if (suffix == 'f') fits = target <= device && target / 10 == device / 10;
    if (fits) return CUDA_SUCCESS;
    snprintf(why, bytes, "target sm_%u%c does not run on a device of capability %u.%u", target,
             suffix ? suffix : ' ', device / 10, device % 10);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* ---- variables ---- */

static int place_variable(struct variable *v) {
    struct region *r;
    enum memory_result result = memory_allocate(&driver.memory, v->bytes ? v->bytes : 1, &r);
    if (result != MEMORY_OK) return CUDA_ERROR_OUT_OF_MEMORY;
    v->address = r->base;
    r->name = v->name;
    r->space = v->space;
    r->read_only = v->space == SPACE_CONST;
    /* Without an initialiser it is zero. Of a huge one no map is made: it stays defined. */
    if (r->bytes <= DEFINEDNESS_MOST)
        region_define(r, 0, r->bytes, true);
    else
        region_forget_definedness(r);
    r->all_defined = true;
    if (v->initial) memcpy(r->host, v->initial, v->bytes);
    return CUDA_SUCCESS;
}

static int fill_addresses(struct module *m) {
    for (struct variable *v = m->variables; v; v = v->next) {
        for (const struct initial_symbol *s = v->symbols; s; s = s->next) {
            uint64_t value = s->variable ? s->variable->address : s->function->index;
            value += (uint64_t)s->addend;
            struct region *r = memory_find(&driver.memory, v->address);
            memcpy(r->host + s->at, &value, s->bytes);
        }
    }
    return CUDA_SUCCESS;
}

static bool is_placed(const struct variable *v) {
    return v->space == SPACE_GLOBAL || v->space == SPACE_CONST;
}

static void release_variables(struct module *m) {
    for (struct variable *v = m->variables; v; v = v->next)
        if (is_placed(v) && v->address) memory_release(&driver.memory, v->address);
}

static int place_variables(struct module *m) {
    for (struct variable *v = m->variables; v; v = v->next) {
        if (!is_placed(v)) continue;
        int result = place_variable(v);
        if (result) return result;
    }
    int result = fill_addresses(m);
    if (!result) module_bind(m);
    return result;
}

/* ---- loading ---- */

static bool looks_binary(const void *image) {
    static const uint8_t elf[4] = {0x7f, 'E', 'L', 'F'};
    static const uint8_t fat[4] = {0x50, 0xed, 0x55, 0xba}, wrapper[4] = {0xb1, 0x43, 0x62, 0x46};
    const char *text = image;
    /* Byte by byte: a short text must not be read beyond its NUL. */
    for (int i = 0; i < 4; i++)
        if (!text[i]) return false;
    return !memcmp(image, elf, 4) || !memcmp(image, fat, 4) || !memcmp(image, wrapper, 4);
}

static void add_function_handles(struct CUmod_st *m, bool *good) {
    for (struct function *f = m->module->functions; f; f = f->next) {
        if (!f->entry) continue;
        struct CUfunc_st *handle = calloc(1, sizeof *handle);
        if (!handle) {
            *good = false;
            return;
        }
        handle->function = f;
        handle->module = m;
        handle->carveout = -1;
        uint64_t left = shared_limit() > f->shared_bytes ? shared_limit() - f->shared_bytes : 0;
        handle->max_dynamic_shared = (int)left;
        handle->next = m->functions;
        m->functions = handle;
    }
}

static void free_module(struct CUmod_st *m) {
    while (m->functions) {
        struct CUfunc_st *next = m->functions->next;
        free(m->functions);
        m->functions = next;
    }
    if (m->module) {
        release_variables(m->module);
        module_free(m->module);
    }
    free(m);
}

static int build_module(const char *text, struct CUmod_st *m, char *why, size_t bytes) {
    uint32_t version, target;
    char suffix;
    size_t length = strlen(text);
    if (module_header(text, length, &version, &target, &suffix)) {
        int result = check_target(version, target, suffix, why, bytes);
        if (result) return result;
    }
    struct parse_error error;
    bool out_of_memory;
    m->module = module_parse(text, length, &error, &out_of_memory);
    if (!m->module) {
        snprintf(why, bytes, "line %u: %s", error.line, error.text);
        return out_of_memory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    }
    m->module->id = ++driver.module_ids;
    int result = place_variables(m->module);
    if (result) {
        snprintf(why, bytes, "the module's variables could not be placed");
        return result;
    }
    bool good = true;
    add_function_handles(m, &good);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void write_info(struct jit *jit, const struct CUmod_st *m) {
    char text[2048];
    size_t used =
        (size_t)snprintf(text, sizeof text, "kvforge executor: PTX %u.%u, sm_%u\n",
                         m->module->version / 10, m->module->version % 10, m->module->target);
    for (const struct CUfunc_st *f = m->functions; f && jit->verbose && used < sizeof text;
         f = f->next)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s: %u operations, %u register slots, %llu bytes shared, "
                                 "%llu bytes local\n",
                                 f->function->name, f->function->op_count, f->function->slots,
                                 (unsigned long long)f->function->shared_bytes,
                                 (unsigned long long)f->function->local_bytes);
    write_log(jit, &jit->info, text);
    write_log(jit, &jit->error, "");
}

int module_load(const void *image, const int *options, void **values, unsigned count, bool library,
                struct CUmod_st **out) {
    struct jit jit;
    if (!image || !out || !read_options(&jit, options, values, count))
        return CUDA_ERROR_INVALID_VALUE;
    if (looks_binary(image)) {
        write_log(&jit, &jit.error, "the image is no PTX text: machine code cannot be executed");
        write_log(&jit, &jit.info, "");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    struct CUmod_st *m = calloc(1, sizeof *m);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    char why[600] = "";
    int result = build_module(image, m, why, sizeof why);
    if (result) {
        char text[700];
        snprintf(text, sizeof text, "kvforge executor: %s\n", why);
        write_log(&jit, &jit.error, text);
        write_log(&jit, &jit.info, "");
        free_module(m);
        return result;
    }
    m->library = library;
    m->next = driver.modules;
    driver.modules = m;
    write_info(&jit, m);
    *out = m;
    return CUDA_SUCCESS;
}

int module_unload(struct CUmod_st *module) {
    for (struct CUmod_st **link = &driver.modules; *link; link = &(*link)->next) {
        if (*link != module) continue;
        *link = module->next;
        free_module(module);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

void modules_free(void) {
    while (driver.modules) {
        struct CUmod_st *next = driver.modules->next;
        free_module(driver.modules);
        driver.modules = next;
    }
}

bool module_valid(const struct CUmod_st *module) {
    for (const struct CUmod_st *m = driver.modules; m; m = m->next)
        if (m == module) return true;
    return false;
}

bool function_valid(const struct CUfunc_st *function) {
    for (const struct CUmod_st *m = driver.modules; m; m = m->next)
        for (const struct CUfunc_st *f = m->functions; f; f = f->next)
            if (f == function) return true;
    return false;
}

struct CUfunc_st *function_find(struct CUmod_st *module, const char *name) {
    for (struct CUfunc_st *f = module->functions; f; f = f->next)
        if (!strcmp(f->function->name, name)) return f;
    return NULL;
}

/* ---- modules ---- */

CU_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image);
CU_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                      int *options, void **values);
CU_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path);
CU_EXPORT CUresult cuModuleUnload(CUmodule module);
CU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CU_EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module);
CU_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned room,
                                              CUmodule module);
CU_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                        const char *name);
CU_EXPORT CUresult cuModuleGetLoadingMode(int *mode);

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                            void **values) {
    ENTER_CONTEXT("cuModuleLoadDataEx");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(module_load(image, options, values, count, false, module));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER_CONTEXT("cuModuleLoadData");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(module_load(image, NULL, NULL, 0, false, module));
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rbe");
    if (!file) return NULL;
    char *text = NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size >= 0 && fseek(file, 0, SEEK_SET) == 0) text = malloc((size_t)size + 1);
    if (text) text[fread(text, 1, (size_t)size, file)] = 0;
    fclose(file);
    return text;
}

int module_load_file(const char *path, const int *options, void **values, unsigned count,
                     bool library, struct CUmod_st **out) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    char *text = read_file(path);
    if (!text) return CUDA_ERROR_FILE_NOT_FOUND;
    int result = module_load(text, options, values, count, library, out);
    free(text);
    return result;
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    ENTER_CONTEXT("cuModuleLoad");
    if (capture_active()) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    DONE(module_load_file(path, NULL, NULL, 0, false, module));
}

CUresult cuModuleUnload(CUmodule module) {
    ENTER_CONTEXT("cuModuleUnload");
    if (!module_valid(module) || module->library) DONE(CUDA_ERROR_INVALID_HANDLE);
    DONE(module_unload(module));
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER_CONTEXT("cuModuleGetFunction");
    if (!function || !name) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!module_valid(module)) DONE(CUDA_ERROR_INVALID_HANDLE);
    struct CUfunc_st *found = function_find(module, name);
    if (!found) DONE(CUDA_ERROR_NOT_FOUND);
    *function = found;
    DONE(CUDA_SUCCESS);
}

unsigned module_functions(const struct CUmod_st *module, struct CUfunc_st **list, unsigned room) {
    unsigned count = 0;
    for (struct CUfunc_st *f = module->functions; f; f = f->next, count++)
        if (count < room) list[count] = f;
    return count;
}

CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    ENTER_CONTEXT("cuModuleGetFunctionCount");
    if (!count) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!module_valid(module)) DONE(CUDA_ERROR_INVALID_HANDLE);
    *count = module_functions(module, NULL, 0);
    DONE(CUDA_SUCCESS);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned room, CUmodule module) {
    ENTER_CONTEXT("cuModuleEnumerateFunctions");
    if (!functions || !room) DONE(CUDA_ERROR_INVALID_VALUE);
    if (!module_valid(module)) DONE(CUDA_ERROR_INVALID_HANDLE);
    module_functions(module, functions, room);
    DONE(CUDA_SUCCESS);
}

int module_global(struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes) {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    if (!module_valid(module)) return CUDA_ERROR_INVALID_HANDLE;
    const struct variable *v = module_variable(module->module, name);
    if (!v || !is_placed(v) || v->owner) return CUDA_ERROR_NOT_FOUND;
    if (address) *address = v->address;
    if (bytes) *bytes = v->bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name) {
    ENTER_CONTEXT("cuModuleGetGlobal_v2");
    DONE(module_global(module, name, address, bytes));
}

CUresult cuModuleGetLoadingMode(int *mode) {
    ENTER("cuModuleGetLoadingMode");
    if (!mode) DONE(CUDA_ERROR_INVALID_VALUE);
    *mode = 1; /* eager */
    DONE(CUDA_SUCCESS);
}
