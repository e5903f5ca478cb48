#!/usr/bin/env lua5.4
-- kvforge-run's command line: usage, help, exit statuses, info.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local function run(arguments) return shell.run(shell.kvforge_run .. " " .. arguments) end

-- What a command prints on standard output alone.
local function output_of(arguments)
  local _, text = shell.run(shell.kvforge_run .. " " .. arguments .. " 2>/dev/null")
  return text
end

tap.plan(26)

for _, case in ipairs {
  { "", 2, "usage: kvforge-run COMMAND" },
  { "nonsense", 2, 'there is no command "nonsense"' },
  { "info", 2, "a bundle is missing" },
  { "info a b", 2, "one bundle is enough" },
  { "verify --nonsense x", 2, "usage: kvforge-run verify" },
  { "verify --seed -1 x", 2, '"-1" is not a value' },
  { "verify --seed 1x x", 2, '"1x" is not a value' },
  { "verify --driver gpu x", 2, '"gpu" is not a value' },
  { "info /nonexistent", 1, "/nonexistent" },
  { "verify /nonexistent", 1, "/nonexistent" },
  { "demo /nonexistent", 1, "/nonexistent" },
} do
  local status, output = run(case[1])
  tap.is(status, case[2], "kvforge-run " .. case[1] .. ": exit status " .. case[2])
  tap.contains(output, case[3], "and says why")
end

tap.contains(output_of("--help"), "verify", "--help lists the commands on standard output")
tap.contains(output_of("demo --help"), "--report FILE", "demo --help lists its options")
tap.ok(output_of("--version"):find("^kvforge%-run %d+%.%d+%.%d+\n$"), "--version says so")

local dir = shell.directory()
shell.run(shell.kvforge .. " build examples/tiny.lua -o " .. dir .. "/tiny")
tap.contains(output_of("info " .. dir .. "/tiny"), "one entry per 4 tokens, overlapping",
  "info shows the layer types")
shell.clean()
tap.done()
