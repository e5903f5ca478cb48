#!/usr/bin/env lua5.4
-- Every pair of a spec's options and values, on the executor: models drawn so that any two values of
-- different options meet in at least one of them; every kernel of each against its reference.
-- For `make test-long`: matrix.lua [SEED [GEOMETRY[,GEOMETRY]]].
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local seed, geometries = tonumber(arg[1] or 1), {}
for name in (arg[2] or "tiny,flash,pro"):gmatch("%w+") do geometries[#geometries + 1] = name end

local yes_no = { true, false }
local options = {
  { "geometry", geometries },
  { "format", { "bf16", "fp8_token", "fp8_ds_mla", "fp8_ds_mla 576", "fp8_two_plane" } },
  { "window_mode", { "ring", "paged" } },
  { "index", { "fp8_index", "fp4_index" } },
  { "capability", { "8.0", "8.9", "9.0", "9.0a", "10.0a", "12.0a" } },
  { "kv_norm", yes_no }, { "ape_on_write", yes_no }, { "hadamard", yes_no },
  { "round_before_norm", yes_no }, { "round_before_rope", yes_no },
  { "input_dtype", { "bf16", "f32" } }, { "state_dtype", { "f32", "bf16" } },
  { "drafts", { 0, 1, 2, 3, 4, 5, "online" } }, { "block", { 128, 256 } }, { "heads", { 8, 16, 32, 64, 128 } },
  { "csa_ratio", { 2, 4, 8, 16, 64, 128 } }, { "overlap", yes_no },
  { "hca_ratio", { 2, 4, 8, 16, 64, 128 } }, { "split_rows", { 64, 512 } },
}

-- What an example says of rows, windows and indexers; the rest is drawn.
local shapes = {
  tiny = { head = 128, window = 16, index = "heads = 4, dim = 64, topk = 8" },
  flash = { head = 512, window = 128, index = "heads = 64, dim = 128, topk = 512" },
  pro = { head = 512, window = 128, index = "heads = 64, dim = 128, topk = 1024" },
}

-- ---- drawing ----

local state = seed * 2654435761 % 4294967296
local function random(n)
  state = state * 6364136223846793005 + 1442695040888963407
  return (state >> 33) % n + 1
end

local function pair(i, value, j, other) return ("%d=%s,%d=%s"):format(i, value, j, other) end

local function open_pairs()
  local open, count = {}, 0
  for i = 1, #options do
    for j = i + 1, #options do
      for _, a in ipairs(options[i][2]) do
        for _, b in ipairs(options[j][2]) do open[pair(i, a, j, b)], count = true, count + 1 end
      end
    end
  end
  return open, count
end

local function pairs_of(case)
  local list = {}
  for i = 1, #options do
    for j = i + 1, #options do list[#list + 1] = pair(i, case[i], j, case[j]) end
  end
  return list
end

-- One random case improved option by option as long as it meets more of the open pairs.
local function draw(open)
  local case = {}
  for i, option in ipairs(options) do case[i] = option[2][random(#option[2])] end
  local function gain()
    local met = 0
    for _, key in ipairs(pairs_of(case)) do met = met + (open[key] and 1 or 0) end
    return met
  end
  for _ = 1, 2 do
    for i, option in ipairs(options) do
      local best, most = case[i], gain()
      for _, value in ipairs(option[2]) do
        case[i] = value
        local met = gain()
        if met > most then best, most = value, met end
      end
      case[i] = best
    end
  end
  return case, gain()
end

local function cases()
  local open, left = open_pairs()
  local list = {}
  while left > 0 do
    local best, most
    for _ = 1, 8 do
      local case, met = draw(open)
      if not most or met > most then best, most = case, met end
    end
    if most > 0 then
      for _, key in ipairs(pairs_of(best)) do open[key] = nil end
      list[#list + 1], left = best, left - most
    end
  end
  return list
end

-- ---- running ----

local function named(case)
  local c, words = {}, {}
  for i, option in ipairs(options) do
    c[option[1]] = case[i]
    words[i] = type(case[i]) == "boolean" and (case[i] and "" or "no-") .. option[1]
      or type(case[i]) == "number" and option[1] .. "=" .. case[i] or case[i]
  end
  return c, table.concat(words, " ")
end

local function spec(c)
  local shape = shapes[c.geometry]
  local format, align = c.format:match("^(%S+) ?(%d*)$")
  local fields = {}
  fields[1] = c.drafts == "online" and "drafts = 0, online = true," or ("drafts = %d,"):format(c.drafts)
  for _, name in ipairs { "heads", "block", "kv_norm", "ape_on_write", "hadamard", "split_rows",
    "round_before_norm", "round_before_rope" } do
    fields[#fields + 1] = ("%s = %s,"):format(name, c[name])
  end
  for _, name in ipairs { "window_mode", "input_dtype", "state_dtype" } do
    fields[#fields + 1] = ("%s = %q,"):format(name, c[name])
  end
  return ([[
local kv = require "kvforge"
local latent = { head_dim = %d, rope_dim = 64, window = %d, format = "%s" }
local long = kv.yarn { theta = 160000, factor = 16, original = 65536, beta_fast = 32, beta_slow = 1 }
return kv.model {
  name = "m", max_positions = 65536, targets = { "sm_%s" }, page_align = %s,
  %s
  types = {
    swa = kv.layer_type { latent, ratio = 0, rope = kv.rope { theta = 10000 } },
    csa = kv.layer_type { latent, ratio = %d, rope = long, overlap = %s,
                          indexer = kv.indexer { %s, format = "%s" } },
    hca = kv.layer_type { latent, ratio = %d, rope = long },
  },
  layers = { "swa", "csa", "hca" },
}
]]):format(shape.head, shape.window, format, c.capability:gsub("%.", ""), align == "" and 32 or align,
    table.concat(fields, " "), c.csa_ratio, c.overlap, shape.index, c.index, c.hca_ratio)
end

local list = cases()
local dir = shell.directory()
tap.plan(#list + 1)
for _, case in ipairs(list) do
  local c, words = named(case)
  shell.write(dir .. "/m.lua", spec(c))
  local status, output = shell.run(("%s build %s/m.lua -o %s/m && KVF_EXECUTOR_CAPABILITY=%s %s verify "
    .. "--driver executor --seed %d %s/m"):format(shell.kvforge, dir, dir, c.capability:match "[%d.]+",
    shell.kvforge_run, seed, dir))
  local count = tonumber(output:match("# (%d+) cases, 0 failed") or 0)
  if not tap.ok(status == 0 and count > 500, words) then
    for line in output:gmatch("[^\n]+") do
      if not line:find("^ok ") then tap.note(line) end
    end
  end
end
tap.ok(#list >= 30, "the pairs fill " .. #list .. " models")
shell.clean()
tap.done()
