#!/usr/bin/env lua5.4
-- What went wrong in other projects' caches, one fault of each kind: planted in a template, in Lua or in the program's
-- C, built, and found by verify, by decode or by a test. Without it the same command is content.
--
-- Kinds that have their fault in another test: a compressed entry of the future, state that is not restored behind
-- a cached prefix (tool_decode_test); masked rows, empty lists (tool_verify_attention_test); slices of lists
-- mixed up (tool_verify_test); a module loaded while a graph is captured (runtime_executor).
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("ldmatrix", 1, true) then
  tap.skip_all("the executor has not been built, or knows no tensor cores")
end

local dir = shell.directory()

local function replace(text, from, to)
  local first, last = text:find(from, 1, true)
  assert(first, "there is no " .. from)
  return text:sub(1, first - 1) .. to .. text:sub(last + 1)
end

-- tiny in pages, with a second csa layer, and in rings.
local paged = replace(shell.read("examples/tiny.lua"), '"paged"', '"paged", checkpoint = 128, split_rows = 64')
paged = replace(paged, 'draft_layers = { "swa" }', "draft_layers = {}")
shell.write(dir .. "/paged.lua", paged)
shell.write(dir .. "/two.lua", replace(replace(paged, '{ "swa", "csa", "hca" }', '{ "swa", "csa", "hca", "csa" }'),
  "checkpoint = 128", 'checkpoint = 128, state_dtype = "bf16"'))
shell.write(dir .. "/ring.lua", shell.ring(shell.read("examples/tiny.lua")))

local page = 'p[name]:bytes(id * p[name .. "_stride"])'
local field = "page:bytes(self.number * field.stride):bytes(field.offset)"

-- Where a row lies in its plane, as one number, of which 31 bits and a sign are left.
local plane = "pages[plane.name] = " .. page
local plane_and_start = 'pages[plane.name], pages[plane.name .. " start"] = p[name], id * p[name .. "_stride"]'
local signed = 'page:bytes((function(at) return (at & 0xffffffff) - (at & 0x80000000) * 2 end)'
  .. '(self.pages[field.plane .. " start"] + self.number * field.stride + field.offset))'

local write = "verify --type csa --kernel swa_write"
local faults = {
  { "a byte offset in 32 bits", "paged", "lua", "kernel_place.lua", page,
    'p[name]:bytes((id * p[name .. "_stride"]) & 0xffffffff)', write,
    { "\nok [^\n]*page 14340 of 149760", "not ok [^\n]*page 114717 of 37440" } },
  { "a byte offset in 31 bits and a sign", "paged", "lua", "kernel_place.lua", page,
    'p[name]:bytes(((id * p[name .. "_stride"]) & 0xffffffff) - ((id * p[name .. "_stride"]) & 0x80000000) * 2)',
    write, { "\nok [^\n]*page 14339 of 149760", "not ok [^\n]*page 14340 of 149760" } },
  { "a page's end beyond 2^31, in 31 bits and a sign", "paged", "lua", "kernel_place.lua", field, signed, write,
    { "\nok [^\n]*page 57357 of 37440", "not ok [^\n]*page 57358 of 37440" }, { plane, plane_and_start } },
  { "a page's stride from its shape", "paged", "lua", "kernel_place.lua", page,
    "p[name]:bytes(id * where.page_bytes)", write, { "not ok" } },
  { "a scale's offset dropped", "paged", "lua", "kernel_place.lua", field,
    'page:bytes(self.number * field.stride):bytes(name == "scale" and 0 or field.offset)', write, { "not ok" } },
  { "planes where fields of a row lie together", "paged", "lua", "kernel_place.lua", field,
    'page:bytes(self.number * (name == "nope" and 64 or name == "rope" and 128 or field.stride))'
      .. ':bytes(name == "rope" and 64 * self.place.rows or field.offset)', write, { "not ok" } },
  { "every layer on the first one's rows", "two", "manifest", "manifest.json",
    '"layer_stride": %d+', '"layer_stride": 0', "decode --quick",
    { "many chunks[^\n]*DIFFERS" } },
  { "the group before lost at a chunk's boundary", "paged", "templates", "compress.lua",
    "each(of_ring(stream, s:to(u32), aligned))", "if stream == 'a' then each(of_ring(stream, s:to(u32), aligned)) end",
    "decode --quick",
    { "dense float64[^\n]* holds", "many chunks[^\n]*DIFFERS" } },
  { "a tail ring without room for rejected drafts", "paged", "lua", "layout.lua",
    "* T.ratio + model.drafts or 0", "* T.ratio or 0", "decode --quick", { "drafts rejected[^\n]*DIFFERS" } },
  { "a row written by two blocks", "paged", "templates", "swa_write.lua", "grid = { per(\"tokens\", TOKENS) }",
    "grid = { per(\"tokens\", 2) }", write, { "race" },
    { "block_id() * TOKENS + warp_id()", "(block_id() // 2) * TOKENS + warp_id()" },
    { "p.rope:at(position:to(u64) * T.rope_dim)", "p.rope:at((position * (block_id() % 2)):to(u64) * T.rope_dim)" } },
  { "two tokens on one ring row", "ring", "templates", "swa_write.lua",
    "found & (token:to(i32) + T.ring):ge(last)", "found", write, { "not ok" } },
  { "a copied page's offset in 32 bits", "paged", "templates", "rows_copy.lua", "dst:to(u64) * p.dst_stride",
    "((dst:to(u64) * p.dst_stride) & 0xffffffff)", "verify --kernel rows_copy", { "not ok" } },
  { "a token's offset in 32 bits", "paged", "templates", "attn.lua", "token:to(u64) * p.q_stride",
    "((token:to(u64) * p.q_stride) & 0xffffffff)", "verify --type csa --kernel attn", { "not ok" } },
  { "a layer's offset in 32 bits", "paged", "lua", "kernel_place.lua", 'layer * p[name .. "_layer_stride"]',
    '((layer * p[name .. "_layer_stride"]) & 0xffffffff)', "verify --type csa --kernel state_reset", { "not ok" } },
  { "no block for more heads than the usual", "paged", "templates", "attn.lua", 'per("heads", chosen(T).heads)', "1",
    "verify --type csa --kernel attn", { "\nok [^\n]* 8 heads", "not ok [^\n]* 17 heads" } },
}

tap.plan(#faults + 6)

local function build(name, bundle, options)
  local status, text = shell.run(("%s build %s/%s.lua -o %s/%s %s"):format(shell.kvforge, dir, name, dir, bundle,
    options or ""))
  if status ~= 0 then tap.note(text) end
  return status == 0
end

local function run(command, bundle)
  return shell.run(("%s %s --driver executor %s/%s"):format(shell.kvforge_run, command, dir, bundle))
end

-- The fault's bundle: built from a changed copy of templates or Lua files, or itself changed.
local function plant(fault)
  local _, name, where, file, from, to = table.unpack(fault, 1, 8)
  local copy = dir .. "/" .. where
  if where == "manifest" then
    build(name, "faulty")
    local text, count = shell.read(dir .. "/faulty/" .. file):gsub(from, to)
    assert(count > 0, "there is no " .. from)
    shell.write(dir .. "/faulty/" .. file, text)
    shell.seal(dir .. "/faulty/" .. file)
    return true
  end
  shell.run(("rm -rf %s && cp -r %s %s"):format(copy, where == "lua" and "lua/kvforge" or where, copy))
  local text = replace(shell.read(copy .. "/" .. file), from, to)
  for i = 9, #fault do text = replace(text, table.unpack(fault[i])) end
  shell.write(copy .. "/" .. file, text)
  return build(name, "faulty", ("--%s %s"):format(where, copy))
end

for _, fault in ipairs(faults) do
  local result, said = 0, "it was not built"
  if plant(fault) then result, said = run(fault[7], "faulty") end
  local found = result == 1
  for _, pattern in ipairs(fault[8]) do found = found and said:find(pattern) end
  if not tap.ok(found, fault[1] .. ": is found") then tap.note(said) end
end

-- ---- a layer's type from its number: right on Flash, wrong on Pro ----

-- import_config_test in a tree of its own, with a change to its importer.
local function import_test(from, to)
  local tree = dir .. "/tree/kvforge"
  shell.run(("mkdir -p %s && cp -r lua tests examples %s && ln -sfn $PWD/../shared %s/../shared")
    :format(tree, tree, tree))
  local file = tree .. "/lua/kvforge/import.lua"
  shell.write(file, replace(shell.read(file), from, to))
  return shell.run(("cd %s && lua5.4 tests/import_config_test.lua"):format(tree))
end

local typed = "names[i] = type_name(ratio, got.kinds)"
local numbered = 'names[i] = (i <= 2 or i > got.layers) and "swa" or i % 2 == 1 and "csa" or "hca"'
local status, text = import_test(typed, numbered)
if not tap.ok(status ~= 0 and text:find("\nok 3 ") and text:find("not ok [^\n]*%(Pro%)"),
  "a layer's type from its number, as Flash has it: is found") then tap.note(text) end
if not tap.is(import_test(typed, typed), 0, "without that the test is content") then tap.note(text) end

-- ---- a graph that has captured a copy from memory that is then used for something else ----

-- kvforge-run with another step_graph.c; what it says of the bundle.
local function graph_run(from, to)
  local objects = shell.build .. "/obj/runtime/"
  shell.write(dir .. "/step_graph.c",
    "#include <string.h>\n" .. replace(shell.read("runtime/tool/step_graph.c"), from, to))
  local flags = "-std=c17 -D_GNU_SOURCE -pthread -Iruntime -Iruntime/tool " .. (os.getenv("KVF_SANITIZE") or "")
  local built, output = shell.run(([[${CC:-cc} %s %s/step_graph.c -o %s/run $(ls %stool/*.o | grep -v /step_graph.o) \
      %sreference/*.o %s/lib/libkvforge.a -ljansson -lxxhash -lmd -ldl -lm]])
    :format(flags, dir, dir, objects, objects, shell.build))
  if built ~= 0 then return built, output end
  return shell.run(("KVF_EXECUTOR=%s %s/run decode --quick --driver executor %s/paged"):format(executor, dir, dir))
end

build("paged", "paged")
local layers = "    bool good = step_layers(step, true);\n"
status, text = graph_run(layers, [[
    static int32_t once[4096]; /* tokens */
    size_t bytes = 4 * (size_t)step->padded;
    memcpy(once, buffer_data(&step->position), bytes);
    driver->cuMemcpyHtoDAsync_v2(buffer_address(&step->position), once, bytes, stream);
]] .. layers .. "    memset(once, 0xff, sizeof once);\n")
if not tap.ok(status == 1 and text:find("captured graph[^\n]*DIFFERS") and text:find("dense float64[^\n]* holds"),
  "a graph that has captured a copy from a buffer of the moment: is found") then tap.note(text) end
-- ---- no fault ----

for _, name in ipairs { "paged", "ring" } do
  build(name, name)
  status, text = run(write, name)
  if not tap.is(status, 0, name .. ": without a fault rows are right") then tap.note(text) end
end
status, text = run("decode --quick", "paged")
if not tap.is(status, 0, "and whole steps, replays of a graph among them") then tap.note(text) end

shell.clean()
tap.done()
