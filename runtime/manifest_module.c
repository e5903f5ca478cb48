/* The manifest's `modules`: files, kernels, their parameters and grids. */
#include "manifest.h"

#include <ctype.h>
#include <string.h>

#include "kvforge.h"

static const struct {
    const char *name;
    uint32_t size; /* and alignment */
} param_types[] = {
    [PARAM_PTR] = {"ptr", 8}, [PARAM_I32] = {"i32", 4}, [PARAM_U32] = {"u32", 4},
    [PARAM_U64] = {"u64", 8}, [PARAM_F32] = {"f32", 4},
};

static void read_param_type(struct json_reader *r, struct bundle_param *param,
                            const struct json_node *node) {
    param->info.type = json_get_text(r, node, "type", MANIFEST_NAME, false);
    for (unsigned i = 0; i < sizeof param_types / sizeof param_types[0]; i++) {
        if (strcmp(param->info.type, param_types[i].name) != 0) continue;
        param->type = (enum bundle_param_type)i;
        param->info.size = param_types[i].size;
        return;
    }
    if (json_reader_good(r))
        json_refuse(r, node, "type", "is \"%s\", an unknown type", param->info.type);
}

static void read_direction(struct json_reader *r, struct bundle_param *param,
                           const struct json_node *node) {
    param->info.direction = json_get_text(r, node, "direction", MANIFEST_NAME, false);
    if (!json_reader_good(r)) return;
    bool value = strcmp(param->info.direction, "value") == 0;
    bool known = value || strcmp(param->info.direction, "in") == 0 ||
                 strcmp(param->info.direction, "out") == 0 ||
                 strcmp(param->info.direction, "inout") == 0;
    if (!known || value != (param->type != PARAM_PTR))
        json_refuse(r, node, "direction", "is \"%s\", which does not fit type \"%s\"",
                    param->info.direction, param->info.type);
}

static void read_pointer(struct json_reader *r, struct bundle_param *param,
                         const struct json_node *node) {
    param->info.dtype = json_get_text(r, node, "dtype", MANIFEST_TEXT, true);
    param->info.shape = json_get_text(r, node, "shape", MANIFEST_TEXT, true);
    param->info.align = json_get_u32(r, node, "align", 1, 4096);
    param->info.optional = json_has(node, "optional") && json_get_bool(r, node, "optional");
    if (param->info.align & (param->info.align - 1))
        json_refuse(r, node, "align", "is %u, not a power of two", param->info.align);
}

/* Offsets follow the C ABI: each parameter at the next multiple of its own size. */
static void read_param(struct json_reader *r, struct bundle_param *param, uint32_t end,
                       const struct json_node *node) {
    param->info.name = manifest_name(r, node, "name");
    param->info.dtype = param->info.shape = "";
    param->info.align = 1;
    param->max = UINT64_MAX;
    read_param_type(r, param, node);
    read_direction(r, param, node);
    param->info.offset = json_get_u32(r, node, "offset", 0, MANIFEST_PARAMS_BYTES);
    if (!json_reader_good(r)) return;
    uint32_t size = param->info.size, want = (end + size - 1) / size * size;
    if (param->info.offset != want)
        return json_refuse(r, node, "offset", "is %u, natural alignment puts it at %u",
                           param->info.offset, want);
    if (param->type == PARAM_PTR)
        read_pointer(r, param, node);
    else if (json_has(node, "max"))
        param->max = json_get_u64(r, node, "max", 0, INT64_MAX);
}

static void read_params(struct json_reader *r, struct bundle_kernel *kernel,
                        const struct json_node *node) {
    uint32_t count, end = 0, widest = 1;
    struct json_node list = json_get_array(r, node, "params", MANIFEST_PARAMS, &count);
    if (!json_reader_good(r)) return;
    kernel->params = arena_take(r->arena, count, sizeof *kernel->params);
    if (!kernel->params) return json_no_memory(r);
    kernel->param_count = count;
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        struct bundle_param *param = &kernel->params[i];
        read_param(r, param, end, &item);
        end = param->info.offset + param->info.size;
        if (param->info.size > widest) widest = param->info.size;
        for (uint32_t j = 0; j < i && json_reader_good(r); j++)
            if (strcmp(kernel->params[j].info.name, param->info.name) == 0)
                json_refuse(r, &item, "name", "is \"%s\" a second time", param->info.name);
    }
    kernel->params_bytes = json_get_u32(r, node, "params_bytes", 0, MANIFEST_PARAMS_BYTES);
    uint32_t want = (end + widest - 1) / widest * widest;
    if (json_reader_good(r) && kernel->params_bytes != want)
        json_refuse(r, node, "params_bytes", "is %u, the parameters make %u", kernel->params_bytes,
                    want);
}

static void read_grid(struct json_reader *r, struct bundle_kernel *kernel,
                      const struct json_node *node) {
    uint32_t count;
    struct json_node list = json_get_array(r, node, "grid", 3, &count);
    if (json_reader_good(r) && count != 3) json_refuse(r, node, "grid", "has not three items");
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        struct bundle_grid *grid = &kernel->grid[i];
        grid->constant = json_has(&item, "const");
        grid->n = json_get_u32(r, &item, grid->constant ? "const" : "per", 1, INT32_MAX);
        if (grid->constant) continue;
        const char *name = manifest_name(r, &item, "param");
        if (!json_reader_good(r)) return;
        while (grid->param < kernel->param_count &&
               strcmp(kernel->params[grid->param].info.name, name) != 0)
            grid->param++;
        if (grid->param == kernel->param_count || kernel->params[grid->param].type == PARAM_PTR ||
            kernel->params[grid->param].type == PARAM_F32)
            json_refuse(r, &item, "param", "is \"%s\", which is no integer parameter", name);
    }
}

static void read_kernel(struct json_reader *r, struct bundle_kernel *kernel,
                        const struct json_node *node) {
    kernel->name = manifest_name(r, node, "name");
    kernel->entry = json_get_text(r, node, "entry", MANIFEST_TEXT, false);
    read_params(r, kernel, node);
    read_grid(r, kernel, node);
    kernel->block = json_get_u32(r, node, "block", 1, 1024);
    kernel->shared = json_get_u32(r, node, "shared", 0, 1 << 24);
}

static void read_kernels(struct json_reader *r, struct bundle_module *module,
                         const struct json_node *node) {
    uint32_t count;
    struct json_node list = json_get_array(r, node, "kernels", MANIFEST_KERNELS, &count);
    if (!json_reader_good(r)) return;
    module->kernels = arena_take(r->arena, count, sizeof *module->kernels);
    if (!module->kernels) return json_no_memory(r);
    module->kernel_count = count;
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        read_kernel(r, &module->kernels[i], &item);
        for (uint32_t j = 0; j < i && json_reader_good(r); j++)
            if (strcmp(module->kernels[j].name, module->kernels[i].name) == 0)
                json_refuse(r, &item, "name", "is \"%s\" a second time", module->kernels[i].name);
    }
}

/* A plain name inside the bundle: no path, nothing hidden, not the manifest itself. */
static void check_file(struct json_reader *r, const struct json_node *node, const char *file) {
    bool good = file[0] != '.' && strcmp(file, "manifest.json") != 0;
    for (const char *at = file; *at; at++)
        good = good && (isalnum((unsigned char)*at) || strchr("._-+", *at));
    if (json_reader_good(r) && !good)
        json_refuse(r, node, "file", "is \"%s\", which is not a plain file name", file);
}

static void check_type(struct json_reader *r, const struct kvf_bundle *bundle,
                       const struct json_node *node, const char *type) {
    if (!json_reader_good(r) || strcmp(type, "common") == 0) return;
    for (uint32_t i = 0; i < bundle->info.types; i++)
        if (strcmp(bundle->types[i].info.name, type) == 0) return;
    json_refuse(r, node, "type", "is \"%s\", which is no layer type", type);
}

static void read_cubin(struct json_reader *r, struct bundle_module *module,
                       const struct json_node *node) {
    if (!json_reader_good(r) || !json_has(node, "cubin")) return;
    struct json_node cubin = json_get_object(r, node, "cubin");
    module->cubin_file = json_get_text(r, &cubin, "file", MANIFEST_TEXT, false);
    check_file(r, &cubin, module->cubin_file);
    module->cubin_bytes = json_get_u64(r, &cubin, "bytes", 1, MANIFEST_PTX);
    module->cubin_sha256 = manifest_sha256(r, &cubin, "sha256");
}

static void read_module(struct json_reader *r, const struct kvf_bundle *bundle,
                        struct bundle_module *module, const struct json_node *node) {
    module->type = manifest_name(r, node, "type");
    check_type(r, bundle, node, module->type);
    const char *target = json_get_text(r, node, "target", MANIFEST_NAME, false);
    if (json_reader_good(r) && !target_parse(target, &module->target))
        json_refuse(r, node, "target", "is \"%s\", which is not a target", target);
    module->file = json_get_text(r, node, "file", MANIFEST_TEXT, false);
    check_file(r, node, module->file);
    module->bytes = json_get_u64(r, node, "bytes", 1, MANIFEST_PTX);
    module->sha256 = manifest_sha256(r, node, "sha256");
    module->ptx = json_get_text(r, node, "ptx", MANIFEST_NAME, false);
    module->driver = (int)json_get_u32(r, node, "driver", 1000, 1000000);
    read_cubin(r, module, node);
    read_kernels(r, module, node);
}

void manifest_modules(struct json_reader *r, struct kvf_bundle *bundle,
                      const struct json_node *root) {
    uint32_t count;
    struct json_node list = json_get_array(r, root, "modules", MANIFEST_MODULES, &count);
    if (!json_reader_good(r)) return;
    bundle->modules = arena_take(r->arena, count, sizeof *bundle->modules);
    if (!bundle->modules) return json_no_memory(r);
    for (uint32_t i = 0; i < count && json_reader_good(r); i++) {
        struct json_node item = json_object_item(r, &list, i);
        struct bundle_module *module = &bundle->modules[i];
        read_module(r, bundle, module, &item);
        bundle->module_count = i + 1;
        for (uint32_t j = 0; j < i && json_reader_good(r); j++)
            if (strcmp(bundle->modules[j].type, module->type) == 0 &&
                strcmp(bundle->modules[j].target.name, module->target.name) == 0)
                json_refuse(r, &item, NULL, "is \"%s\" for \"%s\" a second time", module->type,
                            module->target.name);
    }
}
