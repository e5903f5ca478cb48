#!/usr/bin/env lua5.4
-- kvforge-run profile: a line a kernel, the same numbers at every run, and the limit that binds.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

tap.plan(8)
local dir = shell.directory()
shell.run(shell.kvforge .. " build examples/tiny.lua -o " .. dir .. "/tiny")

local function profile(options)
  return shell.run(shell.kvforge_run .. " profile --kernel swa_write " .. options .. " " .. dir .. "/tiny 2>/dev/null")
end

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read("a")
end

local status, output = profile("--json " .. dir .. "/one.json")
tap.is(status, 0, "profile runs")
tap.contains(output, "kvf_swa_swa_write", "it lists a kernel")
tap.contains(output, "H100", "and a chip")
tap.ok(output:find("memory") or output:find("issue"), "with the limit that binds")
local _, other = profile("--chip B200 --json " .. dir .. "/two.json")
tap.contains(other, "B200", "another chip")
tap.is(read(dir .. "/one.json"), read(dir .. "/two.json"), "the counters are the same at every run")
tap.is(profile("--chip abacus"), 2, "an unknown chip is wrong usage")
tap.is((shell.run(shell.kvforge_run .. " profile")), 2, "so is no bundle")
tap.done()
