/* Reading bundles: a good one, and every way of being bad that a file can have. */
#include "bundle.h"

#include <dirent.h>

#include "fake/test_bundle.h"
#include "tap.h"

static kvf_error error;

/* ---- the good bundle ---- */

static void test_good_model(const kvf_bundle *bundle) {
    kvf_model_info model = {0};
    is(kvf_bundle_model(bundle, &model), KVF_OK, "the model is there");
    ok(strcmp(model.name, "test") == 0 && strcmp(model.digest, "d0") == 0 &&
           strcmp(model.window_mode, "ring") == 0,
       "the model's texts");
    ok(model.heads == 8 && model.block == 128 && model.drafts == 2 && model.max_positions == 4096 &&
           model.types == 2 && model.layers == 3 && model.draft_layers == 1 &&
           model.request_bytes == 12345,
       "the model's numbers");
    ok(bundle->model.kv_norm && !bundle->model.round_before_rope &&
           bundle->model.checkpoint == 512 && bundle->model.norm_eps == 1e-6 &&
           strcmp(bundle->model.input_dtype, "bf16") == 0,
       "the rest of the model");
}

static void test_good_types(const kvf_bundle *bundle) {
    kvf_type_info csa = {0}, swa = {0}, none;
    ok(kvf_bundle_type(bundle, 0, &csa) == KVF_OK && kvf_bundle_type(bundle, 1, &swa) == KVF_OK,
       "both types are there");
    is(kvf_bundle_type(bundle, 2, &none), KVF_ERROR_NOT_FOUND, "a third type is not");
    ok(csa.has_indexer && csa.indexer_topk == 8 && csa.overlap && csa.ratio == 4 && csa.k == 32 &&
           csa.ring == 16 && csa.nope_dim == 48 && csa.row_bytes == 84 && csa.block_bytes == 2688,
       "the compressed type's numbers");
    ok(!swa.has_indexer && !swa.overlap && swa.layers == 1 && swa.draft_layers == 1,
       "the window type's numbers");
    const struct bundle_place *place = bundle_place(&bundle->types[0], "window");
    ok(place && place->rows == 16 && place->plane_count == 3 && place->field_count == 3 &&
           place->fields[1].plane == 1 && place->fields[1].stride == 32 &&
           place->fields[0].dtype == DTYPE_E4M3,
       "a place with its planes and fields");
    ok(!bundle_place(&bundle->types[0], "index"), "no place of another name");
    const struct bundle_elastic *e = bundle->elastic;
    ok(e && e->n == 2 && e->place_count == 2 && e->places[1].type == 1 &&
           e->places[1].offset == 4096 && e->state_chunks == 1 && e->state[0].part == 2 &&
           e->snapshot_bytes == 64,
       "the arena");
    ok(bundle->types[0].rope.yarn && !bundle->types[1].rope.yarn, "YaRN where factor stands");
}

static void test_good_layers(const kvf_bundle *bundle) {
    static const uint32_t types[] = {1, 0, 0, 1}, numbers[] = {0, 0, 1, 1};
    uint32_t type, number;
    bool good = true;
    for (uint32_t i = 0; i < 4; i++)
        good = good && kvf_bundle_layer(bundle, i, &type, &number) == KVF_OK && type == types[i] &&
               number == numbers[i];
    ok(good, "layers count within their type, draft layers last");
    is(kvf_bundle_layer(bundle, 4, &type, &number), KVF_ERROR_NOT_FOUND, "there is no fifth layer");
}

static void test_good_modules(const kvf_bundle *bundle) {
    is(bundle->module_count, 2, "both modules are there");
    const struct bundle_module *module = &bundle->modules[0];
    ok(strcmp(module->text, TEST_CSA_PTX) == 0 && module->target.capability == 80 &&
           module->driver == 11080 && module->kernel_count == 2,
       "a module with its text");
    const struct bundle_kernel *kernel = &module->kernels[0];
    ok(kernel->param_count == 5 && kernel->params[4].info.optional &&
           kernel->params[0].max == 4096 && kernel->params[1].info.align == 16 &&
           kernel->grid[0].n == 4 && kernel->grid[1].constant,
       "a kernel with its parameters and grid");
}

static void test_good(void) {
    char directory[64];
    kvf_bundle *bundle = NULL;
    test_write_bundle(directory);
    if (!is(kvf_bundle_open(directory, &bundle, &error), KVF_OK, "a good bundle opens")) {
        tap_note("%s", error.text);
        exit(1);
    }
    test_good_model(bundle);
    test_good_types(bundle);
    test_good_layers(bundle);
    test_good_modules(bundle);
    kvf_bundle_close(bundle);
    test_remove_bundle(directory);
    kvf_bundle_close(NULL);
}

/* ---- one change at a time, at every place of the tree ---- */

/* What may be absent; what follows it is then not needed either. */
static bool may_be_missing(const char *key) {
    static const char *const free_keys[] = {"extra",    "ignored", "indexer", "factor",
                                            "optional", "max",     "arena"};
    for (size_t i = 0; i < sizeof free_keys / sizeof free_keys[0]; i++)
        if (strcmp(key, free_keys[i]) == 0) return true;
    return false;
}

/* Open the tree as it now is; true if it is refused as a bad bundle with a text. */
static bool is_refused(json_t *root) {
    kvf_bundle *bundle = NULL;
    memset(&error, 0, sizeof error);
    kvf_status status = test_open(root, &bundle, &error);
    kvf_bundle_close(bundle);
    return status == KVF_ERROR_BUNDLE && error.status == status &&
           strstr(error.text, "manifest.json") && !bundle;
}

static bool is_opened(json_t *root) {
    kvf_bundle *bundle = NULL;
    kvf_status status = test_open(root, &bundle, &error);
    kvf_bundle_close(bundle);
    return status == KVF_OK;
}

static int tried, wrong;

static void expect(bool good, const char *key, const char *what) {
    tried++;
    if (good) return;
    wrong++;
    tap_note("%s %s: %s", key, what, error.text);
}

static void remove_each(json_t *root, json_t *at) {
    if (json_is_array(at)) {
        for (size_t i = 0; i < json_array_size(at); i++) remove_each(root, json_array_get(at, i));
        return;
    }
    if (!json_is_object(at)) return;
    /* A member that is put back comes last, so the names are taken down first. */
    const char *key;
    char *names[32];
    json_t *value;
    size_t count = 0;
    json_object_foreach(at, key, value) names[count++] = strdup(key);
    for (size_t i = 0; i < count; i++) {
        value = json_incref(json_object_get(at, names[i]));
        json_object_del(at, names[i]);
        expect(may_be_missing(names[i]) ? is_opened(root) : is_refused(root), names[i], "removed");
        json_object_set_new(at, names[i], value);
        free(names[i]);
    }
    json_object_foreach(at, key, value) remove_each(root, value);
}

/* Values of every JSON type; for each place those of another type than what stands there. */
static json_t *strange_value(int which) {
    switch (which) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_string("x");
    case 3: return json_array();
    case 4: return json_object();
    default: return json_integer(3);
    }
}

static bool same_kind(const json_t *a, const json_t *b) {
    if (json_is_boolean(a) && json_is_boolean(b)) return true;
    if (json_is_number(a) && json_is_number(b)) return true;
    return json_typeof(a) == json_typeof(b);
}

static void retype_each(json_t *root, json_t *at);

static void retype(json_t *root, json_t *parent, const char *key, size_t index) {
    json_t *old = key ? json_object_get(parent, key) : json_array_get(parent, index);
    json_incref(old);
    for (int which = 0; which < 6; which++) {
        json_t *strange = strange_value(which);
        if (same_kind(old, strange)) {
            json_decref(strange);
            continue;
        }
        if (key)
            json_object_set_new(parent, key, strange);
        else
            json_array_set_new(parent, index, strange);
        expect(is_refused(root), key ? key : "item", "of another type");
    }
    if (key)
        json_object_set_new(parent, key, old);
    else
        json_array_set_new(parent, index, old);
}

static void retype_each(json_t *root, json_t *at) {
    if (json_is_array(at)) {
        for (size_t i = 0; i < json_array_size(at); i++) {
            retype(root, at, NULL, i);
            retype_each(root, json_array_get(at, i));
        }
    } else if (json_is_object(at)) {
        const char *key;
        json_t *value;
        json_object_foreach(at, key, value) {
            if (strcmp(key, "extra") == 0) continue; /* unknown members are nobody's business */
            retype(root, at, key, 0);
            retype_each(root, json_object_get(at, key));
        }
    }
}

/* Every integer in turn becomes `value`, which no member but those of `allowed` can take. */
static void renumber_each(json_t *root, json_t *at, json_int_t value, const char *allowed) {
    if (json_is_array(at)) {
        for (size_t i = 0; i < json_array_size(at); i++)
            renumber_each(root, json_array_get(at, i), value, allowed);
        return;
    }
    if (!json_is_object(at)) return;
    const char *key;
    json_t *item;
    json_object_foreach(at, key, item) {
        if (json_is_integer(item)) {
            json_int_t old = json_integer_value(item);
            json_integer_set(item, value);
            expect(strstr(allowed, key) || is_refused(root), key, "out of range");
            json_integer_set(item, old);
        } else {
            renumber_each(root, item, value, allowed);
        }
    }
}

static void test_tree(void) {
    json_t *root = test_manifest();
    tried = wrong = 0;
    remove_each(root, root);
    ok(tried > 200 && wrong == 0, "each of %d members missing is named, or may be", tried);
    tried = wrong = 0;
    retype_each(root, root);
    ok(tried > 1000 && wrong == 0, "each of %d values of a wrong type is refused", tried);
    tried = wrong = 0;
    renumber_each(root, root, -1, "init");
    renumber_each(root, root, INT64_MIN, "init");
    renumber_each(root, root, INT64_MAX, "max theta init");
    ok(tried > 400 && wrong == 0, "each of %d numbers out of range is refused", tried);
    ok(is_opened(root), "the tree is as good as before");
    json_decref(root);
}

/* ---- members that contradict each other ---- */

static void test_contradictions(void) {
    static const struct {
        const char *path, *key, *json, *says;
    } cases[] = {
        {"", "format", "2", "format is 2; this library reads format 1"},
        {"types.0", "rope_dim", "15", "types[0].rope_dim is 15"},
        {"types.0", "rope_dim", "64", "rope_dim is 64"},
        {"types.0", "nope_dim", "47", "types[0].nope_dim is 47, not head_dim - rope_dim"},
        {"types.0", "ring", "15", "types[0].ring is 15, not window + drafts"},
        {"types.0", "k", "16", "types[0].k is 16, not block / ratio"},
        {"types.0", "ratio", "5", "does not divide block"},
        {"types.1", "overlap", "true", "types[1].overlap is true without a ratio"},
        {"types.0", "name", "\"zzz\"", "not in order"},
        {"types.0", "name", "\"../x\"", "is not a name"},
        {"types.0", "layers", "1", "layers"},
        {"types.0.places.0", "page_bytes", "1345", "its planes add up to 1344"},
        {"types.0.places.0", "id", "\"slots\"", "types[0].places[0].id is \"slots\""},
        {"types.0.places.0.fields.0", "stride", "49", "ends at byte 783 of a page of 768"},
        {"types.0.places.0.fields.0", "plane", "\"swa\"", "is no plane of the place"},
        {"types.0.places.0.fields.0", "dtype", "\"f8\"", "an unknown dtype"},
        {"types.0.state.0", "slot_bytes", "769", "dtype and shape make 768"},
        {"types.0.state.0", "init", "1", "which e4m3 cannot hold"},
        {"types.0.state.1", "init", "1.001", "which bf16 cannot hold"},
        {"types.0.state.3", "init", "0.5", "which i32 cannot hold"},
        {"types.0.state.3", "init", "2147483648", "which i32 cannot hold"},
        {"types.0.state.3", "align", "3", "align is 3"},
        {"types.0.state.3", "align", "2", "less than an element's 4 bytes"},
        {"types.0.state.3", "name", "\"swa_inv\"", "a second time"},
        {"types.0.state.1", "name", "\"swa_fp8\"", "a second time"},
        {"model", "window_mode", "\"rings\"", "window_mode is \"rings\""},
        {"model", "targets", "[\"sm_9\"]", "model.targets[0]"},
        {"", "layers", "[\"swa\",\"csa\",\"hca\"]", "layers[2] is \"hca\", which is no layer type"},
        {"modules.0", "type", "\"hca\"", "is no layer type"},
        {"modules.0", "target", "\"sm_90b\"", "is not a target"},
        {"modules.0", "target", "\"sm_0\"", "is not a target"},
        {"modules.0", "file", "\"../csa.ptx\"", "is not a plain file name"},
        {"modules.0", "file", "\".hidden\"", "is not a plain file name"},
        {"modules.0", "file", "\"manifest.json\"", "is not a plain file name"},
        {"modules.0", "sha256", "\"abc\"", "is not 64 lower-case hex digits"},
        {"arena", "chunk_bytes", "8193", "arena.chunk_bytes is not n envelopes"},
        {"arena.places.0", "type", "\"hca\"", "arena.places[0].type is \"hca\""},
        {"arena.places.0", "place", "\"index\"", "which type \"csa\" has not"},
        {"arena.places.0", "plane", "\"swa_rows\"", "which type \"csa\" has not"},
        {"arena.places.0", "id_stride", "4095", "neither a chunk's nor an envelope's"},
        {"arena.places.0", "offset", "2561",
         "arena.places[0] reaches beyond its id_stride of 4096"},
        {"arena.places.1", "layer_stride", "2049", "arena.places[1] reaches beyond"},
        {"arena.state.layers.0", "layer", "4", "arena.state.layers[0].layer is 4"},
        {"arena.state.layers.0", "part", "3", "part is 3, allowed are 0 to 2"},
        {"modules.0", "cubin", "3", "modules[0].cubin is not an object"},
        {"modules.0", "cubin", "{\"file\":\"../x\"}", "modules[0].cubin.file is \"../x\""},
        {"modules.0", "cubin", "{\"file\":\"x\",\"bytes\":1}",
         "modules[0].cubin.sha256 is missing"},
        {"modules.0", "sha256",
         "\"CBF59059d7001686107862df63448eb45c9ec9229c71c1a635a231351ea69f72\"",
         "is not 64 lower-case hex digits"},
        {"modules.1", "type", "\"csa\"", "a second time"},
        {"modules.0.kernels.1", "name", "\"swa_write\"", "a second time"},
        {"modules.0.kernels.0", "params_bytes", "36", "the parameters make 40"},
        {"modules.0.kernels.0.params.1", "offset", "4", "natural alignment puts it at 8"},
        {"modules.0.kernels.0.params.1", "align", "12", "not a power of two"},
        {"modules.0.kernels.0.params.1", "direction", "\"value\"", "does not fit type"},
        {"modules.0.kernels.0.params.1", "name", "\"tokens\"", "a second time"},
        {"modules.0.kernels.0.params.0", "type", "\"u16\"", "an unknown type"},
        {"modules.0.kernels.0.grid.0", "param", "\"latent\"", "no integer parameter"},
        {"modules.0.kernels.0.grid.0", "param", "\"scale\"", "no integer parameter"},
        {"modules.0.kernels.0.grid.0", "per", "0", "grid[0].per is 0"},
        {"modules.0.kernels.0", "grid", "[]", "has not three items"},
        {"modules.0.kernels.0", "block", "1025", "block is 1025, allowed are 1 to 1024"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = test_manifest();
        test_set(root, cases[i].path, cases[i].key,
                 json_loads(cases[i].json, JSON_DECODE_ANY, NULL));
        bool refused = is_refused(root);
        if (!ok(refused && strstr(error.text, cases[i].says), "%s.%s = %s is refused",
                cases[i].path, cases[i].key, cases[i].json))
            tap_note("%s", error.text);
        json_decref(root);
    }
}

/* ---- text that is hardly JSON ---- */

static kvf_status open_text(const char *text, size_t bytes) {
    kvf_bundle *bundle = NULL;
    memset(&error, 0, sizeof error);
    char *sealed = malloc(bytes + 1);
    memcpy(sealed, text, bytes);
    test_seal(sealed, bytes);
    kvf_status status = test_open_text(sealed, bytes, &bundle, &error);
    kvf_bundle_close(bundle);
    free(sealed);
    return status;
}

static char *good_text(void) {
    json_t *root = test_manifest();
    char *text = test_text(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static void test_truncated(void) {
    char *text = good_text();
    size_t bytes = strlen(text), refused = 0;
    for (size_t i = 0; i < bytes; i++) refused += open_text(text, i) == KVF_ERROR_BUNDLE;
    is(refused, bytes, "the manifest cut anywhere is refused");
    is(open_text(text, bytes), KVF_OK, "uncut it opens");
    free(text);
}

static void test_nested(char open, char close) {
    size_t depth = 1000000;
    char *text = malloc(2 * depth);
    memset(text, open, depth);
    memset(text + depth, close, depth);
    is(open_text(text, 2 * depth), KVF_ERROR_BUNDLE, "a million levels of nesting are refused");
    free(text);
}

/* The good text with its first `from` replaced by `to`. */
static kvf_status open_replaced(const char *from, const char *to) {
    char *text = good_text();
    char *at = strstr(text, from);
    size_t bytes = strlen(text) + strlen(to) + 1;
    char *changed = malloc(bytes);
    snprintf(changed, bytes, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    kvf_status status = open_text(changed, strlen(changed));
    free(changed);
    free(text);
    return status;
}

static void test_texts(void) {
    test_nested('[', ']');
    test_nested('{', '}');
    is(open_text("", 0), KVF_ERROR_BUNDLE, "an empty manifest is refused");
    is(open_text("[]", 2), KVF_ERROR_BUNDLE, "an array is refused");
    is(open_text("\xff\xfe{\0}\0", 6), KVF_ERROR_BUNDLE, "UTF-16 is refused");
    is(open_replaced("\"format\":1", "\"format\":1,\"format\":1"), KVF_ERROR_BUNDLE,
       "a key that stands twice is refused");
    contains(error.text, "duplicate", "and called a duplicate");
    is(open_replaced("\"heads\":8", "\"heads\":8,\"heads\":9"), KVF_ERROR_BUNDLE,
       "further inside too");
    is(open_replaced("\"heads\":8", "\"heads\":99999999999999999999999"), KVF_ERROR_BUNDLE,
       "an integer beyond 64 bits is refused");
    is(open_replaced("\"heads\":8", "\"heads\":8.0"), KVF_ERROR_BUNDLE,
       "a real number where an integer must stand is refused");
    is(open_replaced("\"theta\":10000", "\"theta\":1e999"), KVF_ERROR_BUNDLE,
       "a number beyond double is refused");
    is(open_replaced("\"theta\":10000", "\"theta\":NaN"), KVF_ERROR_BUNDLE, "NaN is refused");
    is(open_replaced("\"name\":\"test\"", "\"name\":\"te\\u0000st\""), KVF_ERROR_BUNDLE,
       "a 0 inside a string is refused");
    is(open_replaced("\"name\":\"test\"", "\"name\":\"te\xc3st\""), KVF_ERROR_BUNDLE,
       "bad UTF-8 is refused");
    char *text = good_text();
    size_t bytes = strlen(text);
    text[bytes - 1] = ' ';
    is(open_text(text, bytes), KVF_ERROR_BUNDLE, "without the last brace it is refused");
    text[bytes - 1] = '}';
    char *longer = malloc(bytes + 2);
    memcpy(longer, text, bytes);
    longer[bytes] = '{';
    is(open_text(longer, bytes + 1), KVF_ERROR_BUNDLE, "something after the end is refused");
    longer[bytes] = 0;
    is(open_text(longer, bytes + 1), KVF_ERROR_BUNDLE, "even a 0");
    free(longer);
    free(text);
}

/* Bytes changed at random: whatever the outcome, it is one of ours, and nothing is overrun. */
static void test_noise(void) {
    uint64_t seed = 88172645463325252u;
    char *text = good_text();
    size_t bytes = strlen(text);
    int opened = 0, refused = 0;
    for (int round = 0; round < 4000; round++) {
        char *changed = malloc(bytes);
        /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): what is read ends with its length */
        memcpy(changed, text, bytes);
        for (int i = 0; i <= round % 4; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            static const char letters[] = "0123456789-.eE\"{}[]:,tfnul \\x";
            changed[seed % bytes] = letters[(seed >> 32) % (sizeof letters - 1)];
        }
        kvf_status status = open_text(changed, bytes);
        opened += status == KVF_OK;
        refused += status == KVF_ERROR_BUNDLE || status == KVF_ERROR_IO;
        free(changed);
    }
    ok(opened + refused == 4000 && refused > 2000, "4000 random changes: %d refused", refused);
    free(text);
}

/* Every byte of the manifest in turn is another one, whether it then still means something or not.
 */
static void test_changed_manifest(void) {
    json_t *root = test_manifest();
    char *text = test_text(root, JSON_INDENT(1));
    size_t bytes = strlen(text), refused = 0;
    kvf_bundle *bundle = NULL;
    for (size_t i = 0; i < bytes; i++) {
        text[i] ^= 1;
        refused += test_open_text(text, bytes, &bundle, &error) == KVF_ERROR_BUNDLE && !bundle;
        text[i] ^= 1;
    }
    is(refused, bytes, "any changed byte of the manifest is noticed");
    strstr(text, "\"init\": -1")[9] = '2';
    is(test_open_text(text, bytes, &bundle, &error), KVF_ERROR_BUNDLE,
       "also one that reads as well");
    contains(error.text, "manifest.json: checksum is ", "and it is said");
    text[bytes - 1] = '\n';
    is(test_open_text(text, bytes, &bundle, &error), KVF_ERROR_BUNDLE, "a text cut short");
    free(text);
    test_set(root, "", "checksum", json_string(TEST_ZEROS));
    text = json_dumps(root, 0);
    is(test_open_text(text, strlen(text), &bundle, &error), KVF_ERROR_BUNDLE, "an empty checksum");
    char *at = strstr(text, TEST_ZEROS);
    memcpy(at, "\\u0030\\u0030\\u0030\\u0030\\u0030\\u0030\\u0030\\u0030\\u0030\\u0030", 60);
    is(test_open_text(text, strlen(text), &bundle, &error), KVF_ERROR_BUNDLE, "one in escapes");
    free(text);
    json_decref(root);
}

/* ---- modules ---- */

static void test_changed_bytes(void) {
    char *text = good_text();
    char ptx[] = TEST_CSA_PTX;
    kvf_file files[] = {{"manifest.json", text, strlen(text)},
                        {"csa.sm_80.ptx", ptx, sizeof ptx - 1},
                        {"swa.sm_80.ptx", TEST_SWA_PTX, strlen(TEST_SWA_PTX)}};
    kvf_bundle *bundle = NULL;
    size_t refused = 0;
    for (size_t i = 0; i < sizeof ptx - 1; i++) {
        ptx[i] ^= 1;
        refused += kvf_bundle_open_memory(files, 3, &bundle, &error) == KVF_ERROR_BUNDLE &&
                   strstr(error.text, "csa.sm_80.ptx is not the file the manifest names");
        ptx[i] ^= 1;
    }
    is(refused, sizeof ptx - 1, "any changed byte of a module is noticed");
    files[1].bytes--;
    is(kvf_bundle_open_memory(files, 3, &bundle, &error), KVF_ERROR_BUNDLE, "a shorter one too");
    contains(error.text, "has 277 bytes, the manifest says 278", "with both sizes");
    files[1].bytes++;
    is(kvf_bundle_open_memory(files, 2, &bundle, &error), KVF_ERROR_IO, "a missing one too");
    contains(error.text, "swa.sm_80.ptx", "by name");
    is(kvf_bundle_open_memory(files, 0, &bundle, &error), KVF_ERROR_IO, "no manifest at all");
    ok(!bundle, "nothing was handed out");
    free(text);
}

/* A module with a 0 byte whose digest is right: the rest would be hidden from the driver. */
static void test_zero_byte(void) {
    static const char ptx[] = ".version 7.8\n\0hidden";
    json_t *root = test_manifest();
    test_set(root, "modules.1", "bytes", json_integer(sizeof ptx - 1));
    test_set(root, "modules.1", "sha256",
             json_string("7f46ddd2acc2a10958b2cb3fb102b6a466ed4572e0c68322c5659df0fde3dcd2"));
    char *text = test_text(root, 0);
    kvf_file files[] = {{"manifest.json", text, strlen(text)},
                        {"csa.sm_80.ptx", TEST_CSA_PTX, strlen(TEST_CSA_PTX)},
                        {"swa.sm_80.ptx", ptx, sizeof ptx - 1}};
    kvf_bundle *bundle = NULL;
    is(kvf_bundle_open_memory(files, 3, &bundle, &error), KVF_ERROR_BUNDLE,
       "a module with a 0 byte is refused");
    contains(error.text, "0 byte", "and says so");
    free(text);
    json_decref(root);
}

static void test_directory(void) {
    char directory[64], path[128], other[128];
    kvf_bundle *bundle = NULL;
    is(kvf_bundle_open("/nonexistent/kvforge", &bundle, &error), KVF_ERROR_IO, "no directory");
    is(kvf_bundle_open("/dev/null", &bundle, &error), KVF_ERROR_IO, "a file is no directory");
    test_write_bundle(directory);
    snprintf(path, sizeof path, "%s/swa.sm_80.ptx", directory);
    snprintf(other, sizeof other, "%s.ptx", directory);

    rename(path, other);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_ERROR_IO, "a missing module");
    contains(error.text, "swa.sm_80.ptx", "is named");
    if (symlink(other, path) != 0) perror(path);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_ERROR_BUNDLE,
       "a link out of the directory is refused, right bytes or not");
    contains(error.text, "symbolic link", "and called one");
    unlink(path);
    mkdir(path, 0700);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_ERROR_BUNDLE, "so is a directory");
    rmdir(path);
    mkfifo(path, 0600);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_ERROR_BUNDLE,
       "and a pipe, without waiting for a writer");
    unlink(path);
    rename(other, path);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_OK, "put back, it opens");
    kvf_bundle_close(bundle);
    bundle = NULL;

    snprintf(path, sizeof path, "%s/manifest.json", directory);
    rename(path, other);
    if (symlink(other, path) != 0) perror(path);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_ERROR_BUNDLE, "no linked manifest either");
    unlink(path);
    test_write(directory, "manifest.json", "", 0);
    if (truncate(path, (off_t)17 << 20) != 0) perror(path);
    is(kvf_bundle_open(directory, &bundle, &error), KVF_ERROR_LIMIT, "nor one of 17 MiB");
    unlink(other);
    test_remove_bundle(directory);
    ok(!bundle, "nothing was handed out");
}

/* Files and directories that this process has open. */
static int open_files(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

static void test_open_files(void) {
    char directory[64], path[128];
    kvf_bundle *bundle = NULL;
    test_write_bundle(directory);
    int before = open_files();
    for (int i = 0; i < 3; i++) {
        kvf_bundle_open(directory, &bundle, &error);
        kvf_bundle_close(bundle);
    }
    snprintf(path, sizeof path, "%s/swa.sm_80.ptx", directory);
    unlink(path);
    for (int i = 0; i < 3; i++) kvf_bundle_open(directory, &bundle, &error);
    is(open_files(), before, "no file stays open, whether the bundle is good or not");
    test_remove_bundle(directory);
}

static void test_arguments(void) {
    kvf_bundle *bundle = NULL;
    uint32_t a, b;
    is(kvf_bundle_open(NULL, &bundle, &error), KVF_ERROR_ARGUMENT, "directory null");
    is(kvf_bundle_open(".", NULL, &error), KVF_ERROR_ARGUMENT, "out null");
    is(kvf_bundle_open(NULL, NULL, NULL), KVF_ERROR_ARGUMENT, "error null");
    is(kvf_bundle_open_memory(NULL, 0, &bundle, &error), KVF_ERROR_ARGUMENT, "files null");
    kvf_file file = {"manifest.json", NULL, 0};
    is(kvf_bundle_open_memory(&file, 1, &bundle, &error), KVF_ERROR_BUNDLE, "no bytes at null");
    file.bytes = 100;
    is(kvf_bundle_open_memory(&file, 1, &bundle, &error), KVF_ERROR_ARGUMENT, "bytes at null");
    contains(error.text, "manifest.json has 100 bytes, but its data is null", "are named");
    file.name = NULL;
    is(kvf_bundle_open_memory(&file, 1, &bundle, &error), KVF_ERROR_IO, "a file without a name");
    is(kvf_bundle_model(NULL, NULL), KVF_ERROR_ARGUMENT, "model of null");
    is(kvf_bundle_type(NULL, 0, NULL), KVF_ERROR_ARGUMENT, "type of null");
    is(kvf_bundle_layer(NULL, 0, &a, &b), KVF_ERROR_ARGUMENT, "layer of null");
    json_t *manifest = test_manifest();
    if (test_open(manifest, &bundle, &error) != KVF_OK) exit(1);
    is(kvf_bundle_layer(bundle, 0, NULL, &b), KVF_ERROR_ARGUMENT, "layer's type nowhere to put");
    is(kvf_bundle_layer(bundle, 0, &a, NULL), KVF_ERROR_ARGUMENT, "layer's number likewise");
    kvf_bundle_close(bundle);
    json_decref(manifest);
}

int main(void) {
    tap_plan(144);
    test_good();
    test_tree();
    test_contradictions();
    test_truncated();
    test_texts();
    test_noise();
    test_changed_manifest();
    test_changed_bytes();
    test_zero_byte();
    test_directory();
    test_open_files();
    test_arguments();
    return tap_done();
}
