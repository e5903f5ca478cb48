#!/usr/bin/env lua5.4
-- What went wrong in other projects' caches, one fault of each kind: planted in a template or in the layout's Lua,
-- built, and found by verify or decode. Without it the same command is content.
--
-- Kinds that have their fault in another test: a compressed entry of the future, state that is not restored behind
-- a cached prefix (tool_decode_test); masked rows, empty lists (tool_verify_attention_test); slices of lists
-- mixed up (tool_verify_test); a layer's type taken from its number (import_config_test).
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

local write = "verify --type csa --kernel swa_write"
local faults = {
  { "a byte offset in 32 bits", "paged", "lua", "kernel_place.lua", page,
    'p[name]:bytes((id * p[name .. "_stride"]) & 0xffffffff)', write,
    { "\nok [^\n]*page 14340 of 149760", "not ok [^\n]*page 114717 of 37440" } },
  { "a byte offset in 31 bits and a sign", "paged", "lua", "kernel_place.lua", page,
    'p[name]:bytes(((id * p[name .. "_stride"]) & 0xffffffff) - ((id * p[name .. "_stride"]) & 0x80000000) * 2)',
    write, { "\nok [^\n]*page 14339 of 149760", "not ok [^\n]*page 14340 of 149760" } },
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
}

tap.plan(#faults + 3)

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
  local status, text = 0, "it was not built"
  if plant(fault) then status, text = run(fault[7], "faulty") end
  local found = status == 1
  for _, pattern in ipairs(fault[8]) do found = found and text:find(pattern) end
  if not tap.ok(found, fault[1] .. ": is found") then tap.note(text) end
end

for _, name in ipairs { "paged", "ring" } do
  build(name, name)
  local status, text = run(write, name)
  if not tap.is(status, 0, name .. ": without a fault rows are right") then tap.note(text) end
end
local status, text = run("decode --quick", "paged")
if not tap.is(status, 0, "and whole steps") then tap.note(text) end

shell.clean()
tap.done()
