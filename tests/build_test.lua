#!/usr/bin/env lua5.4
-- What `kvforge build` writes: the same bytes every time, PTX that ptxas takes without spills,
-- wide accesses, and nothing half-written.
package.path = "tests/?.lua;lua/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"
local fields = require "kvforge.fields"
local json = require "kvforge.json"

local dir = shell.directory()
local examples = { "deepseek-v4-flash", "deepseek-v4-pro", "tiny" }
local function kvforge(arguments) return shell.run(shell.kvforge .. " " .. arguments) end

-- An example with one field changed.
local function variant(name, pattern, with)
  local text, count = shell.read("examples/" .. name .. ".lua"):gsub(pattern, with)
  assert(count > 0, "the example has no " .. pattern)
  local path = ("%s/%s-%d.lua"):format(dir, name, #with)
  shell.write(path, text)
  return path
end

local function kernel_text(ptx, entry)
  local from = assert(ptx:find(".visible .entry " .. entry .. "(", 1, true), "no entry " .. entry)
  local to = ptx:find(".visible .entry", from + 1, true)
  return ptx:sub(from, to and to - 1)
end

-- ---- the same bytes ----

-- Every field of a level as `choose` has it, for a spec.
local function edge(level, choose)
  local said = {}
  for _, field in ipairs(fields.of(level)) do
    local value = choose(field)
    if value ~= nil then said[#said + 1] = ("%s = %s,"):format(field.name, json.number(value)) end
  end
  return table.concat(said, " ")
end

-- What the spec allows the library must read: every number at one edge of its range, with the longest name.
local function opens(name, choose)
  local text = ([[
local kv = require "kvforge"
return kv.model { name = "%s", %s heads = 8, block = 128, checkpoint = 512, page_align = 32, drafts = 0, layers = { "a" },
  types = { a = kv.layer_type { head_dim = 128, rope_dim = 64, ratio = 4, overlap = true, format = "bf16", window = 16,
    rope = kv.yarn { %s }, indexer = kv.indexer { heads = 4, dim = 64, topk = 64 } } } }
]]):format(("n"):rep(64), edge("model", function(f) return (f.name:find "max_pos" or f.name:find "eps") and choose(f) end),
    edge("rope", choose))
  shell.write(dir .. "/edge.lua", text)
  local status, output = shell.run(("%s build %s/edge.lua -o %s/edge && %s info %s/edge"):format(shell.kvforge, dir, dir,
    shell.kvforge_run, dir))
  if not tap.is(status, 0, name) then tap.note(output .. text) end
end

local function reproducible(name)
  local spec = "examples/" .. name .. ".lua"
  kvforge(("build %s -o %s/one"):format(spec, dir))
  local root = shell.run("true") and io.popen("pwd"):read("l")
  shell.run(("mkdir -p %s/elsewhere && cp %s %s/elsewhere/"):format(dir, spec, dir))
  local program = shell.build:sub(1, 1) == "/" and shell.kvforge or root .. "/" .. shell.kvforge
  local status, output = shell.run(("cd %s/elsewhere && LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8 "
    .. "TZ=Asia/Tokyo %s build %s.lua -o ../two"):format(dir, program, name))
  local differ, what = shell.run(("diff -r %s/one %s/two"):format(dir, dir))
  if not tap.ok(status == 0 and differ == 0, name .. ": two builds in two places are equal") then
    tap.note(output .. what)
  end
end

-- ---- what ptxas says ----

local function assembles(spec, what, options)
  local status, output = kvforge(("build %s -o %s/asm --report %s/report.json %s"):format(spec, dir, dir,
    options or ""))
  local report = status == 0 and json.decode(shell.read(dir .. "/report.json"))
  local good, kernels = status == 0 and report.ptxas_error == nil, 0
  for _, k in ipairs(report and report.kernels or {}) do
    kernels = kernels + 1
    good = good and k.registers and k.registers > 0 and k.spill_bytes == 0 and k.local_bytes == 0
  end
  if not tap.ok(good and kernels > 0, what .. ": every kernel assembles without spill or local memory") then
    tap.note(output .. (report and json.encode(report) or ""))
  end
end

-- ---- wide accesses ----

-- Count the accesses of a kernel by instruction.
local function accesses(text)
  local count = {}
  for name in text:gmatch("\n%s+(%a[%w.]*)%s+[^\n]*%[%%rd%d+") do
    if name:find("^ld%.global") or name:find("^st%.global") then count[name] = (count[name] or 0) + 1 end
  end
  return count
end

-- Latent, norm weight, RoPE table: read-only loads; nope and rope fields: vector stores. The rest of
-- swa_write's accesses are narrow: batch_id, position, and in a ring cu_tokens, state_slot, the inverse
-- scale, position and head; in pages write_from, window_table, scale bytes (of two steps) and the pad.
local ring = { ["ld.global.u32"] = 4, ["st.global.u32"] = 2, ["st.global.f32"] = 1 }
local paged = { ["ld.global.u32"] = 4, ["st.global.u8"] = 3 }

local function wide(ptx, entry, narrow)
  local count, good = accesses(kernel_text(ptx, entry)), true
  for name, n in pairs(count) do
    good = good and (narrow[name] == n or name:find("%.v4%.[ufb]32$") ~= nil)
  end
  good = good and count["ld.global.nc.v4.u32"] == 2 and count["st.global.v4.u32"] == 1
    and count["st.global.v4.b32"] == 1
  if not tap.ok(good, entry .. ": latents, nope and rope fields are moved 16 bytes at a time") then
    for name, n in pairs(count) do tap.note(name .. " " .. n) end
  end
end

-- The kernels of tails and of the workspace: nothing but indices, scales and pads is narrow. Four channels
-- of an f32 tail are 16 bytes and of bf16 projections 8; of bf16 tails both are 16.
local indices = { ["ld.global.u32"] = 6, ["st.global.u8"] = 3, ["ld.global.u8"] = 2, ["st.global.f32"] = 1,
  ["st.global.u32"] = 1 }

local function wide_tails(path, projections)
  local text, good = shell.read(path .. "/csa.sm_90.ptx"), true
  for _, kernel in ipairs { "compress", "index_compress", "tail_append", "index_tail_append",
    "workspace_fill" } do
    local count, vectors = accesses(kernel_text(text, "kvf_csa_" .. kernel)), 0
    for name, n in pairs(count) do
      local whole = name:find("%.v4%.[ufb]32$") ~= nil
      vectors = vectors + (whole and n or 0)
      local kept = whole or name == projections or n <= (indices[name] or 0)
      if not kept then tap.note(("%s: %d %s"):format(kernel, n, name)) end
      good = good and kept
    end
    good = good and vectors >= 4
  end
  return good
end

-- ---- output that must not be touched, or comes whole ----

local function refused(prepare, message, what)
  shell.run(("rm -rf %s/target && mkdir %s/target && cd %s/target && %s"):format(dir, dir, dir, prepare))
  local _, before = shell.run(("ls -la %s/target; cat %s/target/* 2>/dev/null"):format(dir, dir))
  local status, output = kvforge(("build examples/tiny.lua -o %s/target"):format(dir))
  local _, after = shell.run(("ls -la %s/target; cat %s/target/* 2>/dev/null"):format(dir, dir))
  local _, left = shell.run(("ls -d %s/target.new-* 2>/dev/null"):format(dir))
  tap.ok(status == 1 and output:find(message, 1, true) and before == after and left == "", what)
end

tap.plan(44)
for _, name in ipairs(examples) do reproducible(name) end
opens("the least numbers a spec may have, and the longest name", function(f)
  return f.name == "max_positions" and 16 or f.min
end)
opens("the largest", function(f) return f.max end)

if shell.find("ptxas") then
  for _, name in ipairs(examples) do assembles("examples/" .. name .. ".lua", name) end
  for _, name in ipairs(examples) do
    assembles(variant(name, '"fp8_ds_mla"', '"bf16"'), name .. " with bf16 rows")
  end
  assembles("examples/tiny.lua", "tiny for every other target",
    "--target sm_80 --target sm_89 --target sm_90a --target sm_100a --target sm_120a")
else
  tap.skip(7, "no ptxas here")
end

local flash = dir .. "/flash"
for _, example in ipairs { { "deepseek-v4-flash", paged }, { "deepseek-v4-flash-ring", ring } } do
  local name, narrow = table.unpack(example)
  kvforge(("build examples/%s.lua -o %s"):format(name, flash))
  for _, type_name in ipairs { "csa", "hca", "swa" } do
    wide(shell.read(("%s/%s.sm_90.ptx"):format(flash, type_name)), ("kvf_%s_swa_write"):format(type_name),
      narrow)
  end
end
for _, name in ipairs { "deepseek-v4-flash", "deepseek-v4-flash-ring" } do
  kvforge(("build examples/%s.lua -o %s"):format(name, flash))
  tap.ok(wide_tails(flash, "ld.global.nc.v2.u32"), name .. ": f32 tails and stored rows are moved 16 bytes at a time")
end
kvforge(("build %s -o %s"):format(variant("deepseek-v4-flash", "drafts = 0,", 'drafts = 0, state_dtype = "bf16",'), flash))
tap.ok(wide_tails(flash), "so are bf16 tails, and the projections with them")
kvforge(("build examples/deepseek-v4-flash-ring.lua -o %s"):format(flash))
local ptx = shell.read(flash .. "/swa.sm_90.ptx")
tap.ok(ptx:find("\n.version 7.8\n.target sm_90\n", 1, true),
  "the header says the lowest version and the target asked for")

local whole = shell.read(flash .. "/manifest.json")
shell.seal(flash .. "/manifest.json")
tap.ok(whole:find('"checksum": "%x+"') and shell.read(flash .. "/manifest.json") == whole,
  "the manifest's checksum is what sha256sum makes of it")
shell.write(flash .. "/manifest.json", (whole:gsub('"init": %-1', '"init": -2', 1)))
local opened, why_not = shell.run(shell.kvforge_run .. " info " .. flash)
tap.ok(opened ~= 0 and why_not:find("checksum", 1, true), "a bundle whose manifest was changed is refused")
shell.write(flash .. "/manifest.json", whole)

refused("echo hello > notes.txt", "it holds notes.txt", "a directory with a stranger's file is refused")
refused("echo '{}' > manifest.json", "does not say so", "a manifest that is not ours is refused")
shell.run(("echo x > %s/file"):format(dir))
local status, output = kvforge(("build examples/tiny.lua -o %s/file"):format(dir))
tap.ok(status == 1 and output:find("is not a directory", 1, true), "a file in the way is refused")
tap.is((kvforge(("build examples/tiny.lua -o %s/flash"):format(dir))), 0, "an older bundle is replaced")
tap.ok(shell.exists(flash .. "/tiny.h") and not shell.exists(flash .. "/deepseek-v4-flash-ring.h"),
  "and nothing of it is left")
shell.write(flash .. "/main.c", "int main(void) { return 0; }\n")
status, output = kvforge(("build examples/tiny.lua -o %s/flash"):format(dir))
tap.ok(status == 1 and output:find("it holds main.c", 1, true) and shell.exists(flash .. "/main.c"),
  "a bundle to which somebody added a source file is refused")
shell.run("rm " .. flash .. "/main.c")
-- The manifest has kernels and parameters of such names: a bundle holds no file called after them.
for _, file in ipairs { "swa_write.c", "latent.h", "window.c" } do
  shell.write(flash .. "/" .. file, "mine\n")
  status, output = kvforge(("build examples/tiny.lua -o %s/flash"):format(dir))
  tap.ok(status == 1 and output:find("it holds " .. file, 1, true) and shell.exists(flash .. "/" .. file),
    "and one with a " .. file)
  shell.run("rm " .. flash .. "/" .. file)
end
local everything = shell.find("ptxas") and "--embed --keep ir --cubin" or "--embed --keep ir"
kvforge(("build examples/tiny.lua %s -o %s/flash"):format(everything, dir))
tap.is((kvforge(("build examples/deepseek-v4-pro.lua -o %s/flash"):format(dir))), 0,
  "one with every kind of file a build can write is replaced")
local _, left = shell.run(("cd %s && ls | tr '\\n' ' '"):format(flash))
tap.is(left, "common.sm_90.ptx csa.sm_90.ptx deepseek-v4-pro.h hca.sm_90.ptx manifest.json swa.sm_90.ptx ",
  "and nothing of it is left")
status, output = kvforge(("build examples/tiny.lua -o %s/no/such/place"):format(dir))
tap.ok(status == 1 and output:find("cannot create a directory beside", 1, true),
  "a parent that does not exist")

-- Without -o it goes to build/NAME, and build is made where it is missing.
local root = io.popen("pwd"):read("l")
local program = shell.build:sub(1, 1) == "/" and shell.kvforge or root .. "/" .. shell.kvforge
status = shell.run(("cd %s && %s build %s/examples/tiny.lua"):format(dir, program, root))
tap.ok(status == 0 and shell.exists(dir .. "/build/tiny/manifest.json"), "the default place is build/NAME")

-- ---- shapes that no template can build ----

local spec = [[
local kv = require "kvforge"
local row = { window = 16, ratio = 0, format = "bf16", rope = kv.rope { theta = 10000 } }
return kv.model { name = "odd", heads = 8, max_positions = 4096, layers = { "a", "b" },
  types = {
    a = kv.layer_type { row, head_dim = 64, rope_dim = 8 },
    b = kv.layer_type { row, head_dim = 128, rope_dim = 8 },
  } }
]]
shell.write(dir .. "/odd.lua", spec)
status, output = kvforge(("check %s/odd.lua"):format(dir))
local rule = 'kernel swa_write: head_dim - rope_dim must be a multiple of 16; given head_dim %d, rope_dim 8\n'
tap.is(status .. output, ('1%s/odd.lua:5: layer type "a": ' .. rule .. '%s/odd.lua:6: layer type "b": ' .. rule)
  :format(dir, 64, dir, 128), "every one is reported, with its line")

-- ---- shapes that no kernel can have: refused, by `check` too where the spec alone shows it ----

local function not_built(path, options, ...)
  local built, said = kvforge(("build %s %s -o %s/refused"):format(path, options, dir))
  local good = built == 1 and not shell.exists(dir .. "/refused")
  for _, text in ipairs { ... } do good = good and said:find(text, 1, true) ~= nil end
  return good, said
end

local wanted = "kernel indexer_scores: the queries of a token and 64 index keys need more shared memory"
shell.write(dir .. "/sm_89.lua", (shell.read("examples/tiny.lua"):gsub("heads = 4, dim = 64", "heads = 256, dim = 256")
  :gsub("targets = %b{}", 'targets = { "sm_89" }')))
local changed = dir .. "/sm_89.lua"
local refusal, why = not_built(changed, "", wanted)
if not tap.ok(refusal, "more index queries than shared memory holds are refused") then tap.note(why) end
local checked, told = kvforge("check " .. changed)
if not tap.ok(checked == 1 and told:find(wanted, 1, true), "by `check` too") then tap.note(told) end

-- A template that asks for too much, as one in the making may.
shell.run(("cp -r templates %s/templates"):format(dir))
local source = shell.read("templates/attn.lua"):gsub("  shared = function%(T%)",
  "%0 if T then return 101377 end", 1)
shell.write(dir .. "/templates/attn.lua", source)
local good, said = not_built("examples/tiny.lua", ("--target sm_89 --templates %s/templates"):format(dir),
  "csa for sm_89: kernel kvf_csa_attn: needs 101377 bytes of shared memory; allowed 101376")
if not tap.ok(good, "more dynamic shared memory than the target's") then tap.note(said) end
shell.write(dir .. "/templates/attn.lua", shell.read("templates/attn.lua"))
source = shell.read("templates/indexer_topk.lua"):gsub("shared%(u32, BINS%)", "shared(u32, 12289)", 1)
shell.write(dir .. "/templates/indexer_topk.lua", source)
good, said = not_built("examples/tiny.lua", ("--templates %s/templates"):format(dir),
  "kernel kvf_csa_indexer_topk: needs ", "bytes of static shared memory; allowed 49152")
if not tap.ok(good, "more static shared memory than a block has") then tap.note(said) end

-- ---- usage ----

status, output = kvforge("build examples/tiny.lua --target sm_42 -o " .. dir .. "/x")
tap.ok(status == 2 and output:find("unknown target 'sm_42'; known are sm_80", 1, true), "an unknown target")
status = kvforge("frobnicate")
tap.is(status, 2, "an unknown command")
shell.clean()
tap.done()
