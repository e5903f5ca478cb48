#!/usr/bin/env lua5.4
-- kvforge-run demo, end to end on the executor: what it prints, and that it finds faults. And the
-- example of a user's program.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("cuLaunchKernel", 1, true) then
  tap.skip_all("the executor has not been built")
end

local dir = shell.directory()

local function build(spec, name, options)
  return shell.run(("%s build %s -o %s/%s --report %s/%s.json %s"):format(shell.kvforge, spec, dir,
    name, dir, name, options or ""))
end

local function demo(name, options)
  return shell.run(("%s demo --driver executor %s %s/%s"):format(shell.kvforge_run, options or "", dir, name))
end

-- The demo drives rings.
local ring = dir .. "/ring.lua"
shell.write(ring, shell.ring(shell.read("examples/tiny.lua")))

tap.plan(20)

local status, output = build(ring, "tiny")
if not tap.is(status, 0, "tiny builds") then tap.note(output) end
status, output = demo("tiny", ("--report %s/tiny.json"):format(dir))
if not tap.is(status, 0, "the demo of tiny succeeds") then tap.note(output) end
tap.contains(output, "# driver: executor", "it says which driver it uses")
tap.ok(output:find("csa +swa_write +sm_90 +%d+ +%d+%.%d +[%d-]+ +%d+ tokens +equal"),
  "the table has times from the report")
tap.contains(output, "index_tail_append", "the indexer's tails are driven")
tap.contains(output, "index_compress", "and its rows")
tap.ok(tonumber(output:match("%((%d+) slots reused%)")) > 3, "slots are used again")
tap.ok(tonumber(output:match("%((%d+) of decode only%)")) >= 16, "there are decode steps")
tap.contains(output, "every byte is what it must be", "and every byte is compared")

local _, again = demo("tiny", ("--report %s/tiny.json"):format(dir))
tap.is(again, output, "the same seed gives the same lines")
status = demo("tiny", "--seed 99")
tap.is(status, 0, "another seed succeeds too")
status, output = demo("tiny", "--report /nonexistent")
tap.ok(status == 1 and output:find("/nonexistent", 1, true), "a report that is not there is an error")
shell.write(dir .. "/broken.json", "{}")
status = demo("tiny", ("--report %s/broken.json"):format(dir))
tap.is(status, 1, "and one without kernels")

-- A bundle whose template has a fault; what the demo says of it.
local function faulty(file, from, to, words)
  local templates = dir .. "/templates"
  shell.run(("rm -rf %s && cp -r templates %s"):format(templates, templates))
  local text, count = shell.read(templates .. "/" .. file):gsub(from, to, 1)
  assert(count == 1, "the template has no " .. from)
  shell.write(templates .. "/" .. file, text)
  build(ring, "faulty", "--templates " .. templates)
  local result, report = demo("faulty")
  local found = result == 1 and report:find(words) ~= nil
  if not tap.ok(found, "a fault in " .. file .. " is found") then tap.note(report) end
end

faulty("swa_write.lua", "%(position %+ 1%) %% T%.ring", "(position + 2) %% T.ring",
  "swa_write .* DIFFERS")
faulty("tail_append.lua", "%(position %+ 1%) %% T%.ratio", "(position + 2) %% T.ratio",
  "tail_append .* DIFFERS")
faulty("compress.lua", "position %- %(T%.ratio %- 1%)", "position - (T.ratio - 2)", "compress .* DIFFERS")
faulty("state_reset.lua", "or a%.init", "or a.init + 1", "state_reset .* DIFFERS")

-- The example is compiled against the header of Flash's bundle.
local flash = shell.build .. "/deepseek-v4-flash-ring"
status, output = shell.run(("%s/examples/state_cache %s"):format(shell.build, flash))
if not tap.is(status, 0, "the example of a user's program succeeds") then tap.note(output) end
tap.contains(output, "slot 1 row 2 holds position 2", "it reads back what it wrote")
tap.contains(output, "slot 0 is as new (-1), 3 slots are free", "and gives a slot back")

shell.clean()
tap.done()
