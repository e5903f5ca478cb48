#!/usr/bin/env lua5.4
-- kvforge-run decode on a small model: every way of serving gives the same bits as each text alone,
-- and those lie within the dense reference's bound; faults in templates are found, each by the
-- comparison that is about it.
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

-- tiny, with a place to resume at behind every block.
local function spec(name, format)
  local text = shell.read("examples/tiny.lua")
  text = replace(text, '"paged"', '"paged", checkpoint = 128, split_rows = 64')
  text = replace(text, '"fp8_ds_mla"', '"' .. format .. '"')
  shell.write(dir .. "/" .. name .. ".lua", replace(text, 'draft_layers = { "swa" }', "draft_layers = {}"))
end

local function build(from, to, options)
  local status, text = shell.run(("%s build %s/%s.lua -o %s/%s %s"):format(shell.kvforge, dir, from, dir, to,
    options or ""))
  if status ~= 0 then tap.note(text) end
end

local function decode(bundle, options)
  return shell.run(("%s decode --driver executor %s %s/%s"):format(shell.kvforge_run, options or "", dir, bundle))
end

local ways = { "one chunk = many chunks", "prefill = decode steps", "captured graph's replay", "alone = in a batch",
               "cold = resumed", "before = after preemption", "after a fork, child and parent", "lent back and forth",
               "permuted physical ids", "policy static", "policy shared", "another schedule" }

-- File, what stands in it, what shall, and the comparison that then fails.
local faults = {
  { "compress.lua", "each(of_launch(stream, s:to(u32), token))", "each(of_ring(stream, s:to(u32), aligned))",
    "dense float64 .*FAILED",
    "a row of the launch read from the ring" },
  { "row_lists.lua", "seen // T.ratio", "(seen + 1) // T.ratio", "dense float64 .*FAILED",
    "an entry seen before it is complete" },
  { "rows_copy.lua", "src:lt(0)", "src:ge(0)", "resumed from the prefix cache .*DIFFERS",
    "tails that are not restored" },
  { "lib/window.lua", "(request + 1) * (T.window - 1)", "request * (T.window - 1)", "many chunks .*DIFFERS",
    "workspace rows of two chunks in one place" },
}

tap.plan(#ways + 8 + #faults)

spec("planes", "fp8_two_plane")
build("planes", "planes")
local status, output = decode("planes", ("--record %s/outputs"):format(dir))
if not tap.is(status, 0, "all ways of serving give the same bits") then tap.note(output) end
for _, way in ipairs(ways) do
  local line = output:match("[^\n]*" .. way .. "[^\n]*") or ""
  local tokens = tonumber(line:match("%s(%d+)%s"))
  tap.ok(line:find("equal$") and tokens and tokens > 100, way)
end
tap.ok(output:find("dense float64 reference[^\n]* holds"), "within the dense reference's bound")
tap.ok(output:find("[1-9]%d* preemptions, 2 forks") and output:find("restored [1-9]"),
  "with preemptions, forks and restored tails")
tap.ok(output:find("[1-9]%d+ changes of a chunk's role; evicted: [1-9]%d* windows, [1-9]%d* blocks"),
  "with chunks that change their role and evictions of both kinds")

status, output = decode("planes", ("--quick --against %s/outputs"):format(dir))
if not tap.is(status, 0, "recorded outputs are the same again") then tap.note(output) end
status, output = decode("planes", ("--quick --seed 2 --against %s/outputs"):format(dir))
tap.ok(status == 1 and output:find("other texts", 1, true), "those of other texts are refused")

spec("footers", "fp8_ds_mla")
for _, fault in ipairs(faults) do
  local templates = dir .. "/templates"
  shell.run(("rm -rf %s && cp -r templates %s"):format(templates, templates))
  local file = templates .. "/" .. fault[1]
  shell.write(file, replace(shell.read(file), fault[2], fault[3]))
  build("footers", "faulty", "--templates " .. templates)
  status, output = decode("faulty", "--quick")
  if not tap.ok(status == 1 and output:find(fault[4]), fault[5] .. ": is found") then tap.note(output) end
end
build("footers", "footers")
status, output = decode("footers", "--quick")
if not tap.is(status, 0, "and without a fault nothing is") then tap.note(output) end

status, output = shell.run(("%s build examples/deepseek-v4-flash-ring.lua -o %s/ring && %s decode --driver executor %s/ring")
  :format(shell.kvforge, dir, shell.kvforge_run, dir))
tap.ok(status == 1 and output:find('window_mode = "paged"', 1, true), "a bundle in ring mode is refused")

shell.clean()
tap.done()
