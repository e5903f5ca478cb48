#!/usr/bin/env lua5.4
-- The compressors of every ratio, with and without overlap, under every pair of the options that touch
-- them: each kernel against its reference on verify's batches, among them several groups of one request in
-- a launch and entries below write_from, of which no byte may change.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local dir = shell.directory()
local kernels = "compress,index_compress,tail_append,index_tail_append,state_reset"

-- Eleven two-valued options in twelve models, so that any two of them meet in all four combinations
-- equally often: the design of Plackett and Burman, a row shifted around and one of all second values.
local design = { 1, 1, 2, 1, 1, 1, 2, 2, 2, 1, 2 }
local options = {
  { 'state_dtype = "f32",', 'state_dtype = "bf16",' },
  { 'input_dtype = "bf16",', 'input_dtype = "f32",' },
  { "ape_on_write = true,", "ape_on_write = false," },
  { "round_before_norm = true,", "round_before_norm = false," },
  { "round_before_rope = true,", "round_before_rope = false," },
  { "hadamard = true,", "hadamard = false," },
  { "drafts = 0, online = true,", "drafts = 3," },
  { "block = 128,", "block = 256," },
  { 'window_mode = "ring",', 'window_mode = "paged",' },
  { index = true, "fp8_index", "fp4_index" },
  { width = true, 128, 64 },
}
local formats = { "bf16", "fp8_token", "fp8_ds_mla", "fp8_two_plane" }

-- Row `number` of the design: the model's fields, the index format, the index keys' width.
local function row(number)
  local fields, index, width = {}, nil, nil
  for i, option in ipairs(options) do
    local value = option[number == 12 and 2 or design[(i + number - 2) % 11 + 1]]
    if option.index then
      index = value
    elseif option.width then
      width = value
    else
      fields[#fields + 1] = value
    end
  end
  return table.concat(fields, " "), index, width
end

local function spec(number, ratio, overlap)
  local fields, index, width = row(number)
  return ([[
local kv = require "kvforge"
return kv.model { name = "m", heads = 8, max_positions = 8192, %s
  types = { c = kv.layer_type { head_dim = 128, rope_dim = 64, window = 16, format = %q, ratio = %d, overlap = %s,
    rope = kv.rope { theta = 10000 }, indexer = kv.indexer { heads = 4, dim = %d, topk = 8, format = %q } } },
  layers = { "c" } }
]]):format(fields, formats[number % 4 + 1], ratio, overlap, width, index), fields
end

tap.plan(13)
local running = 0
for number = 1, 12 do
  local ratio, overlap = ({ 2, 4, 8, 16, 64, 128 })[(number + 1) // 2], number % 2 == 0
  local text, fields = spec(number, ratio, overlap)
  shell.write(dir .. "/m.lua", text)
  local status, output = shell.run(("%s build %s/m.lua -o %s/m && %s verify --driver executor --kernel %s %s/m")
    :format(shell.kvforge, dir, dir, shell.kvforge_run, kernels, dir))
  local cases = tonumber(output:match("# (%d+) cases, 0 failed") or 0)
  local what = ("ratio %d%s, %s"):format(ratio, overlap and " with overlap" or "", fields)
  if not tap.ok(status == 0 and cases > 100, what) then
    for line in output:gmatch("[^\n]+") do
      if not line:find("^ok ") then tap.note(line) end
    end
  end
  if output:find("chunks of every length, as one launch", 1, true) then running = running + 1 end
end
tap.ok(running >= 2, running .. " of the models keep a running softmax")
shell.clean()
tap.done()
