#!/usr/bin/env lua5.4
-- Every kernel beside its version in CUDA C, where nvcc is: both compute the same, and a fault is seen.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

if (os.getenv("KVF_SANITIZE") or "") ~= "" then tap.skip_all("too slow under sanitizers") end
if not shell.find("nvcc") then tap.skip_all("no nvcc here") end

tap.plan(5)
local here = select(2, shell.run("pwd")):match("[^\n]+")
local build = shell.build:match("^/") and shell.build or here .. "/" .. shell.build
local function twins(directory, kernels)
  return shell.run(("cd %s && KVF_BUILD=%s %s/bench/twins %s"):format(directory, build, build, kernels))
end

local status, output = twins(".", "")
tap.is(status, 0, "every kernel computes what its version in CUDA C computes")
if status ~= 0 then tap.note(output) end
local _, lines = output:gsub("\n%l+ +[%l%d_]+ +%l+ +%d+ +%d+ +[%d.]+ ", "")
tap.ok(lines > 25, "on many batches: " .. lines)

-- One head of one kernel is left out in a copy of the sources.
local dir = shell.directory()
shell.run(("mkdir %s/bench && cp -r bench/cuda %s/bench/ && ln -s $PWD/examples $PWD/runtime %s/"):format(dir,
  dir, dir))
local source = dir .. "/bench/cuda/query.cu"
local text, found = shell.read(source):gsub("if %(position >= p%.positions%) return;", "%0 if (head == 3) return;")
tap.is(found, 1, "a fault is planted")
shell.write(source, text)
status, output = twins(dir, "indexer_query q_norm_rope")
tap.is(status, 1, "it ends the program with 1")
tap.ok(output:find("indexer_query[^\n]+NOT THE SAME") and output:find("q_norm_rope[^\n]+equal"),
  "and is told from the kernels that are right")
shell.clean()
tap.done()
