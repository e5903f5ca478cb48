#!/usr/bin/env lua5.4
-- examples/decode.c as an engine's author would have it: built outside the tree against the installed package
-- and a bundle that the installed kvforge wrote; and what it prints.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local executor = shell.build .. "/executor/libcuda.so.1"
if not shell.exists(executor) or not shell.read(executor):find("ldmatrix", 1, true) then
  tap.skip_all("the executor has not been built, or knows no tensor cores")
end

local SANITIZE = os.getenv("KVF_SANITIZE") or ""
local PREFIX = "/opt/kvforge"
local root, here = shell.directory(), shell.directory()

local function runs(command, name)
  local status, output = shell.run(command)
  if not tap.ok(status == 0, name) then tap.note(output) end
  return output
end

tap.plan(10)
runs(("make --no-print-directory BUILD=%s DESTDIR=%s PREFIX=%s install"):format(shell.build, root, PREFIX),
  "make install")
local bin, lib = root .. PREFIX .. "/bin/", root .. PREFIX .. "/lib"
os.execute(("cp examples/decode.c examples/flash-narrow.lua %s"):format(here))
runs(("cd %s && %skvforge build flash-narrow.lua -o bundle"):format(here, bin), "the bundle")
local pc = "PKG_CONFIG_SYSROOT_DIR=" .. root .. " PKG_CONFIG_PATH=" .. lib .. "/pkgconfig pkg-config "
runs(("cd %s && ${CC:-cc} -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -Wshadow -Wconversion %s -Ibundle decode.c " ..
  "$(%s --cflags kvforge) -o decode $(%s --libs kvforge) -ldl -lm"):format(here, SANITIZE, pc, pc),
  "decode.c builds against the package")
local run = ("cd %s && env -u KVF_EXECUTOR LD_LIBRARY_PATH=%s ./decode "):format(here, lib)
local output = runs(run .. "bundle", "and runs")
tap.contains(output, "admitted: 300 tokens, 0 of them from the cache", "the first request computes everything")
tap.contains(output, "admitted: 300 tokens, 256 of them from the cache", "the second one what the cache does not have")
tap.contains(output, "token 289 of both: the same bits", "which is the same")
local _, decoded = output:gsub("decoded: ", "")
tap.is(decoded, 6, "both decode")
tap.is(runs(run .. "bundle", "again"), output, "with the same result")

shell.clean()
tap.done()
