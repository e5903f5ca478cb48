#!/usr/bin/env lua5.4
-- kvforge-run plan: usage, and that its numbers follow from the bundle's bytes.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local function run(arguments) return shell.run(shell.kvforge_run .. " plan " .. arguments) end

tap.plan(25)

for _, case in ipairs {
  { "", "a bundle is missing" },
  { "x", "--memory is missing" },
  { "--memory 80GiB", "a bundle is missing" },
  { "--memory 80Gi x", '"80Gi" is not a value' },
  { "--memory -1 x", '"-1" is not a value' },
  { "--memory 1GiB --context 0 x", '"0" is not a value' },
  { "--memory 1GiB --nonsense 1 x", 'there is no option "--nonsense"' },
} do
  local status, output = run(case[1])
  tap.is(status, 2, "plan " .. case[1] .. ": exit status 2")
  tap.contains(output, case[2], "and says why")
end
tap.contains(select(2, run("--help")), "--context N", "--help lists the options")

local dir = shell.directory()
local function build(name, change)
  local spec, path = dir .. "/" .. name .. ".lua", dir .. "/" .. name
  shell.run(("sed '%s' examples/tiny.lua > %s && %s build %s -o %s"):format(change, spec, shell.kvforge,
    spec, path))
  return path
end

local status, output = run("--memory 1GiB " .. build("ring", 's/window_mode = "paged"/window_mode = "ring"/'))
tap.is(status, 1, "a bundle with rings is refused")
tap.contains(output, 'needs window_mode "paged"', "and why is said")

-- Rows without page footers, so that all three policies are possible.
local footerless = 's/format = "fp8_[dt][a-z_]*"/format = "bf16"/'
local paged = build("paged", footerless)
status, output = run("--memory 64MiB --context 256 --requests 8 " .. paged)
tap.is(status, 0, "a plan of a small bundle")
if status ~= 0 then tap.note(output) end
local chunks = tonumber(output:match("elastic: (%d+) chunks"))
local n = tonumber(output:match("window blocks or (%d+) blocks"))
tap.ok(chunks and n and n % chunks == 0, "elastic: chunks, each a window block or some blocks")
for _, policy in ipairs { "elastic", "static", "shared" } do
  local part = output:match("\n" .. policy .. ":.-GiB: [^\n]*\n") or ""
  local requests, tokens = part:match("(%d+) requests of 256 tokens at once: (%d+) tokens")
  tap.ok(requests and tonumber(tokens) == 256 * tonumber(requests),
    policy .. ": tokens are requests times context")
end
local static = output:match("static: (%d+) request states")
tap.is(static, "8", "static sets aside the states it was asked for")
local total = 0
for _, word in ipairs { "state", "windows", "saved tails", "blocks", "left for the cache" } do
  total = total + tonumber(output:match("elastic:.-" .. word .. " ([%d.]+)"))
end
local of = tonumber(output:match("elastic:.-, of ([%d.]+)"))
tap.ok(math.abs(total - of) < 0.04, "elastic: the components add up to the memory")
tap.is(select(1, run("--memory 1KiB " .. paged)), 0, "a memory below one request is no failure")
shell.clean()
tap.done()
