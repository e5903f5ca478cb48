#!/usr/bin/env lua5.4
-- What `kvforge check` accepts can be built: specs drawn at the edges of every field are refused with a
-- reason or build, the library opens the bundle, and ptxas (where it is) takes every kernel, for every
-- target; those that spill a register are told. For `make test-long`: shapes.lua [SEED [COUNT]].
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local json = require "kvforge.json"
local shell = require "shell"

local seed, count = tonumber(arg[1] or 1), tonumber(arg[2] or 300)

local state = seed * 2654435761 % 4294967296
local function one(list)
  state = state * 6364136223846793005 + 1442695040888963407
  return list[(state >> 33) % #list + 1]
end

local yes_no = { true, false }

local function indexer()
  return ("indexer = kv.indexer { heads = %d, dim = %d, topk = %d, format = %q },"):format(
    one { 1, 4, 8, 12, 20, 64, 128, 256 }, one { 32, 64, 128, 256 }, one { 1, 2, 8, 31, 512, 1000, 2048 },
    one { "fp8_index", "fp4_index" })
end

local function layer_type(name)
  local head, ratio = one { 64, 128, 256, 512, 1024 }, one { 0, 2, 4, 8, 16, 32, 64, 128, 256 }
  local overlap = ratio > 0 and one(yes_no)
  return ([[    %s = kv.layer_type { head_dim = %d, rope_dim = %d, window = %d, format = %q, ratio = %d,
      overlap = %s, rope = kv.rope { theta = 10000 }, %s },]]):format(name, head,
    one { 2, 8, 16, 32, 48, 64, 64, 64, 128, head // 2 }, one { 1, 2, 3, 8, 16, 100, 128, 129, 1000, 8192 },
    one { "bf16", "fp8_token", "fp8_ds_mla", "fp8_two_plane" }, ratio, overlap,
    ratio > 0 and one(yes_no) and indexer() or "")
end

local function spec()
  local fields = {}
  local function say(name, values) fields[#fields + 1] = ("%s = %s,"):format(name, one(values)) end
  say("heads", { 1, 2, 3, 5, 8, 12, 16, 24, 64, 128, 200, 256 })
  say("block", { 128, 256 })
  say("drafts", { 0, 1, 2, 3, 5, 7, 64, "0, online = true" })
  say("max_positions", { 8192, 1 << 20, 1 << 30 })
  say("norm_eps", { 0, 1, "1e-6" })
  say("page_align", { 16, 32, 48, 576, 4096 })
  say("split_rows", { 64, 128, 512, 4096 })
  say("checkpoint", { 256, 512, 768 })
  say("window_mode", { '"ring"', '"paged"' })
  say("targets", { '{ "sm_80" }', '{ "sm_89" }', '{ "sm_90" }', '{ "sm_90a" }', '{ "sm_100a" }',
    '{ "sm_120a" }' })
  say("input_dtype", { '"bf16"', '"f32"' })
  say("state_dtype", { '"bf16"', '"f32"' })
  for _, name in ipairs { "kv_norm", "ape_on_write", "round_before_norm", "round_before_rope", "hadamard" } do
    say(name, { "true", "false" })
  end
  local types = { layer_type "a" }
  if one(yes_no) then types[2] = layer_type "b" end
  return ('local kv = require "kvforge"\nreturn kv.model { name = "m",\n  %s\n  types = {\n%s\n  },\n'
    .. '  layers = { "a" } }\n'):format(table.concat(fields, " "), table.concat(types, "\n"))
end

local dir = shell.directory()
local text_file, bundle, report_file = dir .. "/m.lua", dir .. "/m", dir .. "/report.json"

-- What ptxas refused of the last build, if anything.
local function complaint()
  local report = json.decode(shell.read(report_file))
  for _, k in ipairs(report.kernels) do
    if (k.spill_bytes or 0) > 0 then
      tap.note(("%s of %s for %s spills %d bytes"):format(k.kernel, k.type, k.target, k.spill_bytes))
    end
  end
  return report.ptxas_error
end

-- "built" or "refused"; or nil and what is wrong.
local function try()
  local checked, said = shell.run(("%s check %s"):format(shell.kvforge, text_file))
  if checked == 1 and said:find("m.lua", 1, true) then return "refused" end
  if checked ~= 0 then return nil, said end
  local built, told = shell.run(("%s build %s -o %s --report %s && %s info %s"):format(shell.kvforge,
    text_file, bundle, report_file, shell.kvforge_run, bundle))
  if built ~= 0 then return nil, told end
  local bad = complaint()
  if bad then return nil, bad end
  return "built"
end

tap.plan(2)
local seen, bad = { built = 0, refused = 0 }, 0
for i = 1, count do
  local text = spec()
  shell.write(text_file, text)
  local outcome, why = try()
  if outcome then
    seen[outcome] = seen[outcome] + 1
  else
    bad = bad + 1
    if bad < 4 then tap.note(("spec %d: %s\n%s"):format(i, why, text)) end
  end
end
tap.is(bad, 0, ("%d specs, %d refused, %d built without a complaint"):format(count, seen.refused, seen.built))
tap.ok(seen.built > count // 10, "a share of them builds")
shell.clean()
tap.done()
