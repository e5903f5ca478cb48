#!/usr/bin/env lua5.4
-- The manifest says what docs/manifest.md says; the header compiles as C17 and C++17 and agrees.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local header = require "kvforge.header"
local json = require "kvforge.json"
local load_spec = require "kvforge.load"
local manifest = require "kvforge.manifest"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

local function load_example(name)
  local path = "examples/" .. name .. ".lua"
  local M, errors = load_spec(read(path), "@" .. path)
  if not M then error(table.concat(errors, "\n")) end
  return M
end

-- A checksum is enough here: it shows which text was digested.
local function checksum(text)
  local sum = 5381
  for i = 1, #text do sum = (sum * 33 + text:byte(i)) % 4294967296 end
  return ("%064x"):format(sum)
end

local function kernel(name)
  return {
    name = name, entry = "kvf_" .. name, block = 128, shared = 0, params_bytes = 44,
    grid = { { param = "tokens", per = 4 }, { const = 1 }, { const = 1 } },
    params = {
      { name = "tokens", type = "u32", offset = 0, direction = "value" },
      { name = "scale", type = "f32", offset = 4, direction = "value" },
      { name = "new", type = "ptr", offset = 8, direction = "in", dtype = "bf16",
        shape = "[tokens][head_dim]", align = 16 },
      { name = "stride", type = "u64", offset = 16, direction = "value" },
      { name = "swa_pos", type = "ptr", offset = 24, direction = "inout", dtype = "i32",
        shape = "[ring]", align = 4 },
      { name = "count", type = "i32", offset = 32, direction = "value" },
      { name = "first", type = "u32", offset = 36, direction = "value" },
      { name = "last", type = "u32", offset = 40, direction = "value" },
    },
  }
end

-- Twelve bytes: no multiple of eight, and no padding behind.
local function small_kernel(name)
  local small = kernel(name)
  small.params = { small.params[1], small.params[2],
    { name = "count", type = "i32", offset = 8, direction = "value" } }
  small.params_bytes = 12
  return small
end

local function modules_of(M)
  local modules = {}
  for i = #M.types, 1, -1 do
    for _, target in ipairs { "sm_90", "sm_80" } do
      modules[#modules + 1] = {
        type = M.types[i].name, target = target, file = M.types[i].name .. "." .. target .. ".ptx",
        text = "// " .. target, ptx = "7.8", driver = 11080,
        kernels = { kernel "swa_write", small_kernel "state_reset" },
      }
    end
  end
  return modules
end

local function build_of(M)
  return { llvm = "19.1.7", version = "0.1.0", sha256 = checksum, modules = modules_of(M) }
end

tap.plan(31)

-- ---- the manifest ----

local M = load_example "deepseek-v4-flash-ring"
local text = manifest(M, build_of(M))
local root, lines = json.decode(text)
tap.ok(root, "the manifest is JSON" .. (root and "" or ": " .. tostring(lines)))
tap.is(text:sub(-2), "}\n", "it ends with one newline")
tap.is(text, manifest(load_example "deepseek-v4-flash-ring", build_of(M)), "the same spec, the same text")
tap.is(root.format, 1, "format")
tap.is(root.kvforge .. " " .. root.llvm, "0.1.0 19.1.7", "versions")
tap.is(#root.digest, 64, "a digest")
local zeroed, places = text:gsub('("checksum": ")%x+', "%1" .. ("0"):rep(64))
tap.is(root.checksum, checksum(zeroed), "a checksum of the text itself, zeros in its place")
tap.is(places, 1, "which has one place")
tap.is(root.model.norm_eps, 1e-6, "a float reads back as it was")
tap.contains(text, '"norm_eps": 1e-06', "and is written short")
tap.is(root.model.types, nil, "the model object holds no layer types")
tap.is(#root.layers, 43, "layers")
tap.is(root.types[2].name, "hca", "types in order of name")
tap.is(root.types[1].indexer.topk, 512, "an indexer")
tap.is(root.types[2].indexer, nil, "absent without one")
tap.is(root.types[1].places[3].planes[1].name, "index_rows", "planes of a place")
tap.is(root.types[1].places[3].fields[2].offset, 4096, "fields of a place")
tap.is(root.types[1].places[1].plane, nil, "what only templates need is left out")
tap.is(#root.types[1].state, 15, "state arrays")
tap.is(root.modules[1].type .. root.modules[1].target .. root.modules[6].type
  .. root.modules[6].target, "csasm_80swasm_90", "modules in order of type and target")
tap.is(root.modules[1].bytes, #"// sm_80", "bytes of a module")
tap.is(root.modules[1].sha256, checksum "// sm_80", "digest of a module")
tap.is(root.modules[1].kernels[1].params[3].shape, "[tokens][head_dim]", "kernels as they came")

local other = load_example "deepseek-v4-flash-ring"
other.model.drafts = 1
tap.ok(json.decode(manifest(other, build_of(other))).digest ~= root.digest,
  "another model, another digest")

-- ---- the header ----

local function run(command)
  local pipe = io.popen(command .. " 2>&1; echo \"status $?\"")
  local output = pipe:read "a"
  pipe:close()
  return output:match "status 0\n$" and output:gsub("status 0\n$", "") or nil, output
end

local folder = run "mktemp -d":gsub("%s", "")
local function write(name, content)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  file:write(content)
  file:close()
end

local user = [[
#include <model.h>
#include <stdio.h>
kvf_status use(const kvf_library *library, kvf_stream stream, kvf_error *error);
kvf_status use(const kvf_library *library, kvf_stream stream, kvf_error *error) {
    deepseek_v4_flash_ring_kernels kernels;
    struct kvf_deepseek_v4_flash_ring_csa_swa_write_params params;
    kvf_status status = deepseek_v4_flash_ring_find(library, &kernels, error);
    params.tokens = 1;
    params.new_ = 0;
    if (status == KVF_OK)
        status = deepseek_v4_flash_ring_csa_swa_write(&kernels, stream, &params, error);
    return status;
}
int main(void) {
    printf("%d %d %d\n", DEEPSEEK_V4_FLASH_RING_CSA_COMPRESSED_SCALE_OFFSET,
           DEEPSEEK_V4_FLASH_RING_CSA_INDEX_SCALE_OFFSET, DEEPSEEK_V4_FLASH_RING_REQUEST_BYTES);
    return 0;
}
]]
local library = [[
#include <kvforge.h>
kvf_status kvf_launch(const kvf_kernel *k, kvf_stream s, const void *p, size_t b, kvf_error *e) {
    (void)k, (void)s, (void)p, (void)b, (void)e; return KVF_OK; }
kvf_status kvf_library_kernel(const kvf_library *l, const char *t, const char *n,
                              const kvf_kernel **o, kvf_error *e) {
    (void)l, (void)t, (void)n, (void)o, (void)e; return KVF_OK; }
]]
local flags = "-Wall -Wextra -Wshadow -Wconversion -Werror -Iruntime -I" .. folder
write("model.h", header(M, modules_of(M)))
write("user.c", user)
write("user.cc", user)
write("library.c", library)

for _, compiler in ipairs { "cc -std=c17", "g++ -std=c++17", "clang-19 -std=c17", "clang++-19 -std=c++17" } do
  local name = compiler:match "^%S+"
  if not run("command -v " .. name) then
    tap.skip(1, name .. " is not installed")
  else
    local file = compiler:find("++", 1, true) and "user.cc" or "user.c"
    local ok, output = run(("%s %s -c %s/%s -o %s/user.o"):format(compiler, flags, folder, file, folder))
    tap.ok(ok, "the header compiles with " .. compiler)
    if not ok then tap.note(output) end
  end
end

local built, output = run(("cc -std=c17 %s %s/user.c %s/library.c -o %s/user && %s/user"):format(flags,
  folder, folder, folder, folder))
tap.is(built, "0 4096 15495592\n", "its numbers are the model's")
if not built then tap.note(output) end

-- A wrong number does not compile.
local function refuses(pattern, replacement, name)
  local damaged, count = header(M, modules_of(M)):gsub(pattern, replacement)
  write("model.h", damaged)
  local ok = run(("cc -std=c17 -fsyntax-only %s %s/user.c"):format(flags, folder))
  tap.ok(count == 1 and not ok, name)
end
refuses("(CSA_INDEX_SCALE_OFFSET) 4096", "%1 4100", "a field beyond its page is refused")
refuses("(_csa_swa_write_params {\n.-)    kvf_address swa_pos;[^\n]*\n", "%1",
  "a missing parameter is refused")
os.execute("rm -rf " .. folder)
tap.done()
