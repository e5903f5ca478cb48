#!/usr/bin/env lua5.4
-- kvforge-run profile: a line a kernel and batch, the same numbers at every run, and the limit that
-- binds; and Flash's figures at full batch: no byte moved twice, no bank conflicts, and not more
-- instructions for each row than there were.
package.path = "tests/?.lua;lua/?.lua;" .. package.path
local tap = require "tap"
local json = require "kvforge.json"
local shell = require "shell"

tap.plan(21)
local dir = shell.directory()

local function build(name, text)
  shell.write(("%s/%s.lua"):format(dir, name), text or shell.read(("examples/%s.lua"):format(name)))
  local status, output = shell.run(("%s build %s/%s.lua -o %s/%s"):format(shell.kvforge, dir, name, dir, name))
  if status ~= 0 then tap.note(output) end
  return status
end

local function profile(name, options)
  return shell.run(("%s profile %s %s/%s"):format(shell.kvforge_run, options, dir, name))
end

-- ---- the command ----

build "tiny"
local status, output = profile("tiny", "--kernel swa_write --json " .. dir .. "/one.json")
tap.is(status, 0, "profile runs")
tap.contains(output, "kvf_swa_swa_write", "it lists a kernel")
tap.ok(output:find("decode %s+256 row") and output:find("prefill %s+1024 row"), "with its two batches")
tap.contains(output, "H100", "and a chip")
tap.ok(output:find("memory") or output:find("issue"), "with the limit that binds")
local _, other = profile("tiny", "--kernel swa_write --chip B200 --json " .. dir .. "/two.json")
tap.contains(other, "B200", "another chip")
tap.is(shell.read(dir .. "/one.json"), shell.read(dir .. "/two.json"), "the counters are the same at every run")
status = profile("tiny", "--verify --kernel swa_write --type swa --json " .. dir .. "/odd.json")
local odd = status == 0 and json.decode(shell.read(dir .. "/odd.json")) or {}
tap.ok(#odd == 1 and odd[1].kernel == "kvf_swa_swa_write" and odd[1].launches > 10,
  "--verify counts verify's launches")
tap.is(profile("tiny", "--chip abacus"), 2, "an unknown chip is wrong usage")
tap.is((shell.run(shell.kvforge_run .. " profile")), 2, "so is no bundle")
status, output = profile("tiny", "--kernel nonsense")
tap.ok(status == 1 and output:find("no such kernel", 1, true), "a kernel that is not there is a failure")

-- ---- Flash at full batch ----

-- Warp instructions for a unit of work (decode, prefill), measured; a twentieth more is allowed. Of a
-- prefill's tokens only the last reach a ring.
local most = {
  csa = { swa_write = { 484, 484 }, swa_write_workspace = { nil, 536 }, workspace_fill = { nil, 97 },
    tail_append = { 388, 80 }, index_tail_append = { 214, 75 }, compress = { 595, 700 },
    index_compress = { 194, 220 }, state_reset = { 68 } },
  hca = { swa_write = { 484, 484 }, tail_append = { 193, 111 }, compress = { 521, 785 } },
}

local function few(k)
  local type_name, kernel = k.kernel:match("^kvf_(%l+)_(.*)$")
  local limit = (most[type_name] or {})[kernel] or {}
  limit = limit[k.load == "decode" and 1 or 2]
  return not limit or k.warp_instructions <= 1.05 * limit * k.units
end

-- The top-k's counters follow the scores' values, not rows.
local function moves_rows(k) return not k.kernel:find("topk", 1, true) end

local function figures(name, what, instructions, options)
  local ended, said = profile(name, (options or "") .. " --json " .. dir .. "/flash.json")
  local list = ended == 0 and json.decode(shell.read(dir .. "/flash.json")) or {}
  local thrifty, apart, short = #list > 0, #list > 0, #list > 0
  for _, k in ipairs(list) do
    local words = ("%s, %s: "):format(k.kernel, k.load)
    if moves_rows(k) and k.sectors_moved > 1.05 * k.sectors_needed then
      thrifty = tap.note(words .. k.sectors_moved .. " sectors for " .. k.sectors_needed)
    end
    if moves_rows(k) and k.bank_conflicts > 0 then
      apart = tap.note(words .. k.bank_conflicts .. " bank conflicts")
    end
    if instructions and not few(k) then short = tap.note(words .. k.warp_instructions / k.units .. " instructions a unit") end
  end
  if ended ~= 0 then tap.note(said) end
  tap.ok(thrifty, what .. ": at most 1.05 sectors are moved for each that is needed")
  tap.ok(apart, what .. ": there are no bank conflicts")
  if instructions then tap.ok(short, what .. ": a row takes no more instructions than it did") end
  return #list
end

build "deepseek-v4-flash"
tap.ok(figures("deepseek-v4-flash", "Flash", true) > 40, "of every kernel and batch")

-- The other row formats, in rings and in pages; what moves rows of them.
local movers = "--type csa --kernel swa_write,swa_write_workspace,workspace_fill,compress,index_compress"
local text = shell.read("examples/deepseek-v4-flash.lua")
build("ring", shell.ring(text))
figures("ring", "rings of fp8_token", false, movers)
for _, format in ipairs { "bf16", "fp8_two_plane" } do
  build(format, (text:gsub('"fp8_ds_mla"', ('"%s"'):format(format)):gsub('"fp8_index"', '"fp4_index"')))
  figures(format, format, false, movers)
end

shell.clean()
tap.done()
