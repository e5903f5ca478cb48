#!/usr/bin/env lua5.4
-- Every kernel of the small models under other orders of blocks, warps and lanes: the same bits. Sixteen of them
-- for tiny; narrow, whose rows are Flash's, has two here and sixteen in make test-long.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("ldmatrix", 1, true) then
  tap.skip_all("the executor has not been built, or knows no tensor cores")
end

local dir = shell.directory()
local models = { { "tiny", 16, 2, 800 }, { "flash-narrow", 2, 1, 800 } }

tap.plan(4 * #models)
for _, model in ipairs(models) do
  local name, schedules, jobs, least = table.unpack(model)
  local status, output = shell.run(("%s build examples/%s.lua -o %s/%s"):format(shell.kvforge, name, dir, name))
  if not tap.is(status, 0, name .. ": builds") then tap.note(output) end
  status, output = shell.run(("KVF_EXECUTOR_THREADS=1 %s verify --driver executor --schedules %d --jobs %d %s/%s")
    :format(shell.kvforge_run, schedules, jobs, dir, name))
  if not tap.is(status, 0, name .. ": every kernel equals its reference in every order") then tap.note(output) end
  local orders = {}
  for order in output:gmatch("\nok %d+ %- order (%d+)") do orders[#orders + 1] = order end
  local want = {}
  for i = 1, schedules do want[i] = tostring(i - 1) end
  tap.is(table.concat(orders, " "), table.concat(want, " "), name .. ": all of them, in their order")
  local enough = 0
  for cases in output:gmatch("# (%d+) cases, 0 failed") do
    if tonumber(cases) >= least then enough = enough + 1 end
  end
  tap.is(enough, schedules, name .. ": with all cases")
end
shell.clean()
tap.done()
