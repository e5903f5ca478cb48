#!/usr/bin/env lua5.4
-- The state cache's two kernels at DeepSeek's own sizes: rows of 512, a ring of 128 (its wrap at 126, 127,
-- 128, 255 and 256) and longer ones, for every layer type, in several orders of blocks and warps.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local ORDERS = 4
local dir = shell.directory()
local flash = shell.read("examples/deepseek-v4-flash-ring.lua")

-- Row format, window, drafts, normalised. In a ring longer than the block of state_reset each thread
-- resets several positions.
local models = {
  { "fp8_token", 128, 0, true }, { "fp8_token", 128, 0, false }, { "bf16", 128, 0, true },
  { "bf16", 128, 0, false }, { "fp8_token", 128, 1, true }, { "bf16", 300, 3, true },
}

tap.plan(#models * 3)
for _, m in ipairs(models) do
  local format, window, drafts, norm = table.unpack(m)
  local what = ("%s, ring %d%s"):format(format, window + drafts, norm and "" or ", no norm")
  local text = flash:gsub('"fp8_token"', '"' .. format .. '"'):gsub("window = 128", "window = " .. window)
    :gsub("drafts = 0,", ("drafts = %d, kv_norm = %s,"):format(drafts, norm))
  shell.write(dir .. "/model.lua", text)
  local status, output = shell.run(("%s build %s/model.lua -o %s/bundle"):format(shell.kvforge, dir, dir))
  if not tap.is(status, 0, what .. ": builds") then tap.note(output) end
  for _, kernel in ipairs { "swa_write", "state_reset" } do
    status, output = shell.run(("%s verify --driver executor --kernel %s --schedules %d %s/bundle"):format(
      shell.kvforge_run, kernel, ORDERS, dir))
    local _, equal = output:gsub("# %d+ cases, 0 failed", "")
    if not tap.ok(status == 0 and equal == ORDERS, ("%s: %s in %d orders"):format(what, kernel, ORDERS)) then
      tap.note(output)
    end
  end
end
shell.clean()
tap.done()
