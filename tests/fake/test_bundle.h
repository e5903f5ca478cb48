/*
 * A small bundle written by hand, for tests of the library: two layer types and the PTX of two
 * modules that only the fake driver "compiles". Tests change it through jansson and open it from
 * memory or from a temporary directory.
 */
#ifndef TEST_BUNDLE_H
#define TEST_BUNDLE_H

#include <dlfcn.h>
#include <jansson.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "kvforge.h"

/* Digests by sha256sum, which shares no code with the library. */
#define TEST_CSA_PTX                                                                               \
    ".version 7.8\n.target sm_80\n.address_size 64\n"                                              \
    ".visible .entry csa_swa_write(.param .u32 tokens, .param .u64 latent, .param .u64 stride,\n"  \
    " .param .f32 scale, .param .u64 out)\n{ ret; }\n"                                             \
    ".visible .entry csa_state_reset(.param .u32 count, .param .u32 layers, .param .u64 list)\n"   \
    "{ ret; }\n"
#define TEST_CSA_SHA256 "cbf59059d7001686107862df63448eb45c9ec9229c71c1a635a231351ea69f72"
#define TEST_SWA_PTX                                                                               \
    ".version 7.8\n.target sm_80\n.address_size 64\n"                                              \
    ".visible .entry swa_swa_write(.param .u32 tokens, .param .u64 latent)\n{ ret; }\n"
#define TEST_SWA_SHA256 "dc25733f3d3bbb7ee26fd80be25efdc44829d2778fa8c4be51fa0287b3e69d60"

#define TEST_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

/* Single quotes stand for double ones. */
static const char test_manifest_text[] =
    "{'format':1,'checksum':'" TEST_ZEROS "',"
    "'kvforge':'0.1.0','llvm':'19.1.7','digest':'d0','extra':{'ignored':true},"
    "'model':{'name':'test','heads':8,'block':128,'drafts':2,'max_positions':4096,"
    " 'window_mode':'ring','input_dtype':'bf16','state_dtype':'f32','kv_norm':true,"
    " 'norm_eps':1e-6,'ape_on_write':true,'round_before_norm':true,'round_before_rope':false,"
    " 'hadamard':true,'online':false,'page_align':32,'split_rows':256,'checkpoint':512,"
    " 'targets':['sm_80']},"
    "'layers':['swa','csa','csa'],'draft_layers':['swa'],"
    "'bytes':{'block':0,'window_block':0,'request':12345},"
    "'arena':{'align':128,'n':2,'envelope_bytes':4096,'chunk_bytes':8192,"
    " 'places':[{'type':'csa','place':'window','plane':'swa_fp8','offset':128,'layer_stride':768,"
    "   'id_stride':4096},{'type':'swa','place':'window','plane':'swa_rows','offset':4096,"
    "   'layer_stride':2048,'id_stride':8192}],"
    " 'state':{'chunks':1,'envelopes':2,'layers':[{'layer':3,'part':2,'offset':100}]},"
    " 'snapshot':{'bytes':64,'envelopes':1,'layers':[{'layer':0,'part':0,'offset':0}]}},"
    "'types':["
    " {'name':'csa','head_dim':64,'rope_dim':16,'nope_dim':48,'window':14,'ratio':4,"
    "  'overlap':true,'format':'fp8_token','ring':16,'k':32,'layers':2,'draft_layers':0,"
    "  'rope':{'theta':160000,'factor':16,'original':65536,'beta_fast':32,'beta_slow':1},"
    "  'indexer':{'heads':4,'dim':32,'topk':8,'format':'fp8_index'},"
    "  'bytes':{'row':84,'block':2688,'window_block':0,'request':1412},"
    "  'places':[{'name':'window','id':'slot','rows':16,'row_bytes':84,'page_bytes':1344,"
    "   'planes':[{'name':'swa_fp8','page_bytes':768,'align':16},"
    "    {'name':'swa_rope','page_bytes':512,'align':16},"
    "    {'name':'swa_inv','page_bytes':64,'align':4}],"
    "   'fields':[{'name':'nope','plane':'swa_fp8','dtype':'e4m3','count':48,'offset':0,"
    "    'stride':48},{'name':'rope','plane':'swa_rope','dtype':'bf16','count':16,'offset':0,"
    "    'stride':32},{'name':'scale','plane':'swa_inv','dtype':'f32','count':1,'offset':0,"
    "    'stride':4}]}],"
    "  'state':[{'name':'swa_fp8','dtype':'e4m3','shape':[16,48],'init':0,'slot_bytes':768,"
    "    'align':16},"
    "   {'name':'swa_rope','dtype':'bf16','shape':[16,16],'init':-2.5,'slot_bytes':512,"
    "    'align':16},"
    "   {'name':'swa_inv','dtype':'f32','shape':[16],'init':1,'slot_bytes':64,'align':4},"
    "   {'name':'swa_pos','dtype':'i32','shape':[16],'init':-1,'slot_bytes':64,'align':4},"
    "   {'name':'tail_len','dtype':'i32','shape':[],'init':0,'slot_bytes':4,'align':4}]},"
    " {'name':'swa','head_dim':64,'rope_dim':16,'nope_dim':48,'window':14,'ratio':0,"
    "  'overlap':false,'format':'bf16','ring':16,'k':0,'layers':1,'draft_layers':1,"
    "  'rope':{'theta':10000},"
    "  'bytes':{'row':128,'block':0,'window_block':0,'request':2116},"
    "  'places':[{'name':'window','id':'slot','rows':16,'row_bytes':128,'page_bytes':2048,"
    "   'planes':[{'name':'swa_rows','page_bytes':2048,'align':16}],"
    "   'fields':[{'name':'nope','plane':'swa_rows','dtype':'bf16','count':48,'offset':0,"
    "    'stride':128},{'name':'rope','plane':'swa_rows','dtype':'bf16','count':16,'offset':96,"
    "    'stride':128}]}],"
    "  'state':[{'name':'swa_rows','dtype':'bf16','shape':[16,64],'init':0,'slot_bytes':2048,"
    "    'align':16},"
    "   {'name':'swa_pos','dtype':'i32','shape':[16],'init':-1,'slot_bytes':64,'align':4},"
    "   {'name':'swa_head','dtype':'i32','shape':[],'init':0,'slot_bytes':4,'align':4}]}],"
    "'modules':["
    " {'type':'csa','target':'sm_80','file':'csa.sm_80.ptx','bytes':278,"
    "  'sha256':'" TEST_CSA_SHA256 "','ptx':'7.8','driver':11080,"
    "  'kernels':[{'name':'swa_write','entry':'csa_swa_write','params_bytes':40,"
    "    'grid':[{'param':'tokens','per':4},{'const':1},{'const':1}],'block':128,'shared':0,"
    "    'params':[{'name':'tokens','type':'u32','offset':0,'direction':'value','max':4096},"
    "     {'name':'latent','type':'ptr','offset':8,'direction':'in','dtype':'bf16',"
    "      'shape':'[tokens][64]','align':16},"
    "     {'name':'stride','type':'u64','offset':16,'direction':'value'},"
    "     {'name':'scale','type':'f32','offset':24,'direction':'value'},"
    "     {'name':'out','type':'ptr','offset':32,'direction':'inout','dtype':'u8','shape':'',"
    "      'align':1,'optional':true}]},"
    "   {'name':'state_reset','entry':'csa_state_reset','params_bytes':16,"
    "    'grid':[{'param':'count','per':1},{'param':'layers','per':1},{'const':1}],'block':128,"
    "    'shared':65536,"
    "    'params':[{'name':'count','type':'i32','offset':0,'direction':'value'},"
    "     {'name':'layers','type':'u32','offset':4,'direction':'value'},"
    "     {'name':'list','type':'ptr','offset':8,'direction':'in','dtype':'i32',"
    "      'shape':'[count]','align':4}]}]},"
    " {'type':'swa','target':'sm_80','file':'swa.sm_80.ptx','bytes':123,"
    "  'sha256':'" TEST_SWA_SHA256 "','ptx':'7.8','driver':11080,"
    "  'kernels':[{'name':'swa_write','entry':'swa_swa_write','params_bytes':16,"
    "    'grid':[{'param':'tokens','per':4},{'const':1},{'const':1}],'block':128,'shared':0,"
    "    'params':[{'name':'tokens','type':'u32','offset':0,'direction':'value'},"
    "     {'name':'latent','type':'ptr','offset':8,'direction':'in','dtype':'bf16',"
    "      'shape':'[tokens][64]','align':16}]}]}]}";

/* The good manifest as a tree; the caller drops the reference. */
static inline json_t *test_manifest(void) {
    char text[sizeof test_manifest_text];
    memcpy(text, test_manifest_text, sizeof text);
    for (char *at = text; *at; at++)
        if (*at == '\'') *at = '"';
    json_error_t where;
    json_t *tree = json_loads(text, 0, &where);
    if (!tree) {
        fprintf(stderr, "test manifest:%d:%d: %s\n", where.line, where.column, where.text);
        exit(2);
    }
    return tree;
}

/* The value at a path such as "types.0.places.0.rows"; exits if there is none. */
static inline json_t *test_at(json_t *tree, const char *path) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *save, *part = strtok_r(copy, ".", &save); part; part = strtok_r(NULL, ".", &save)) {
        tree = json_is_array(tree) ? json_array_get(tree, strtoul(part, NULL, 10))
                                   : json_object_get(tree, part);
        if (!tree) {
            fprintf(stderr, "test manifest has no %s\n", path);
            exit(2);
        }
    }
    return tree;
}

/* Replace the member `key` of the object at `path` ("" is the top). Takes `value`; null removes. */
static inline void test_set(json_t *tree, const char *path, const char *key, json_t *value) {
    json_t *object = test_at(tree, path);
    if (value)
        json_object_set_new(object, key, value);
    else
        json_object_del(object, key);
}

/* Give a text the checksum that it must have, where it has the place for one. */
static inline void test_seal(char *text, size_t bytes) {
    static const char key[] = "\"checksum\"";
    char hex[SHA256_DIGEST_STRING_LENGTH];
    char *at = memmem(text, bytes, key, sizeof key - 1);
    if (at) at = memchr(at + sizeof key - 1, '"', bytes - (size_t)(at + sizeof key - 1 - text));
    if (!at || bytes - (size_t)(at + 1 - text) < 64) return;
    memset(at + 1, '0', 64);
    SHA256Data((const uint8_t *)text, bytes, hex);
    memcpy(at + 1, hex, 64);
}

/* The sealed text of a manifest; free it. */
static inline char *test_text(const json_t *tree, size_t flags) {
    char *text = json_dumps(tree, JSON_SORT_KEYS | flags);
    if (!text) exit(2);
    test_seal(text, strlen(text));
    return text;
}

/* Open a manifest's text with the two good modules, from memory. */
static inline kvf_status test_open_text(const char *text, size_t bytes, kvf_bundle **out,
                                        kvf_error *error) {
    const kvf_file files[] = {
        {"manifest.json", text, bytes},
        {"csa.sm_80.ptx", TEST_CSA_PTX, strlen(TEST_CSA_PTX)},
        {"swa.sm_80.ptx", TEST_SWA_PTX, strlen(TEST_SWA_PTX)},
    };
    return kvf_bundle_open_memory(files, 3, out, error);
}

static inline kvf_status test_open(json_t *tree, kvf_bundle **out, kvf_error *error) {
    char *text = test_text(tree, 0);
    kvf_status status = test_open_text(text, strlen(text), out, error);
    free(text);
    return status;
}

static inline void test_write(const char *directory, const char *name, const void *data,
                              size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
}

/* Write the good bundle into a new temporary directory, whose name goes to `directory`. */
static inline void test_write_bundle(char directory[64]) {
    snprintf(directory, 64, "/tmp/kvforge-test-XXXXXX");
    if (!mkdtemp(directory)) exit(2);
    json_t *tree = test_manifest();
    char *text = test_text(tree, 0);
    test_write(directory, "manifest.json", text, strlen(text));
    test_write(directory, "csa.sm_80.ptx", TEST_CSA_PTX, strlen(TEST_CSA_PTX));
    test_write(directory, "swa.sm_80.ptx", TEST_SWA_PTX, strlen(TEST_SWA_PTX));
    free(text);
    json_decref(tree);
}

static inline void test_remove(const char *directory, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    unlink(path);
}

static inline void test_remove_bundle(const char *directory) {
    test_remove(directory, "manifest.json");
    test_remove(directory, "csa.sm_80.ptx");
    test_remove(directory, "swa.sm_80.ptx");
    rmdir(directory);
}

/* ---- the fake driver ---- */

/* The path of a file beside the test program: build/tests/<name>. */
static inline const char *test_beside(const char *name) {
    static char path[4096 + 128];
    ssize_t bytes = readlink("/proc/self/exe", path, 4096);
    path[bytes > 0 ? bytes : 0] = 0;
    char *slash = strrchr(path, '/');
    if (slash) snprintf(slash + 1, 128, "%s", name);
    return path;
}

static inline const char *fake_path(void) {
    return test_beside("fake/libcuda.so.1");
}

/* The fake's state, healthy again. */
static inline struct fake_state *fake_reset(void) {
    void *handle = dlopen(fake_path(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    fake_cuda_state_fn get;
    fake_cuda_reset_fn reset;
    void *found = dlsym(handle, "fake_cuda_state");
    memcpy(&get, &found, sizeof get);
    found = dlsym(handle, "fake_cuda_reset");
    memcpy(&reset, &found, sizeof reset);
    reset();
    return get();
}

#endif
