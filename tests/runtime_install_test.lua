#!/usr/bin/env lua5.4
-- The installed package as a stranger uses it: `make install` into an empty place, then C and C++ programs
-- built outside the tree through pkg-config, with the shared and the static library; and what is exported.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local STRICT = "-Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion"
-- How the library under test was built, if not plainly: whoever links it needs the same.
local SANITIZE = os.getenv("KVF_SANITIZE") or ""
local PREFIX = "/opt/kvforge"

local PROGRAM = [[
#include <kvforge.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    kvf_error error;
    kvf_bundle *bundle = NULL;
    kvf_driver *driver = NULL;
    if (strcmp(kvf_version(), argv[1]) != 0) return 2;
    if (kvf_bundle_open("/nonexistent", &bundle, &error) != KVF_ERROR_IO) return 3;
    if (argc > 2) {
        kvf_status status = kvf_driver_open(KVF_DRIVER_EXECUTOR, NULL, &driver, &error);
        printf("%d %s\n", (int)status, status == KVF_OK ? kvf_driver_path(driver) : error.text);
        kvf_driver_close(driver);
    }
    return 0;
}
]]

tap.plan(32)

local function runs(command, name)
  local status, output = shell.run(command)
  if not tap.ok(status == 0, name) then tap.note(output) end
  return output
end

-- ---- the header by itself ----

local here = shell.directory()
shell.write(here .. "/header.c", '#include "kvforge.h"\nint main(void) { return KVF_OK; }\n')
os.execute("cp " .. here .. "/header.c " .. here .. "/header.cc")
runs("${CC:-cc} -std=c17 " .. STRICT .. " -Iruntime -c " .. here .. "/header.c -o " .. here .. "/c.o",
  "the header is clean C17")
runs("${CXX:-g++} -std=c++17 " .. STRICT .. " -Wold-style-cast -Iruntime -c " .. here ..
  "/header.cc -o " .. here .. "/cc.o", "and clean C++17")

-- ---- install ----

local root = shell.directory()
local make = ("make --no-print-directory BUILD=%s DESTDIR=%s PREFIX=%s "):format(shell.build, root, PREFIX)
runs(make .. "install", "make install")
local _, listed = shell.run("cd " .. root .. " && find . ! -type d | sort")
local EXPECTED = {
  "/bin/kvforge", "/bin/kvforge-run", "/include/kvforge.h", "/lib/kvforge/libcuda.so.1", "/lib/libkvforge.a",
  "/lib/libkvforge.so", "/lib/libkvforge.so.0", "/lib/pkgconfig/kvforge.pc",
  "/share/man/man1/kvforge-run.1", "/share/man/man1/kvforge.1",
}
for i, path in ipairs(EXPECTED) do EXPECTED[i] = "." .. PREFIX .. path .. "\n" end
tap.is(listed, table.concat(EXPECTED), "puts these files there and no others")

local lib = root .. PREFIX .. "/lib"
local _, soname = shell.run("readelf -d " .. lib .. "/libkvforge.so")
tap.contains(soname, "soname: [libkvforge.so.0]", "the shared library has its SONAME")
tap.ok(not soname:find("libcuda", 1, true), "and is not linked with a driver")

-- ---- consumers ----

local version = shell.read("Makefile"):match("\nVERSION +:= (%S+)")
local pc = "PKG_CONFIG_SYSROOT_DIR=" .. root .. " PKG_CONFIG_PATH=" .. lib .. "/pkgconfig pkg-config "
tap.is(select(2, shell.run(pc .. "--modversion kvforge")), version .. "\n", "pkg-config knows the version")
shell.write(here .. "/program.c", PROGRAM)
os.execute("cp " .. here .. "/program.c " .. here .. "/program.cc")

local function build(compiler, source, output, extra)
  local command = "cd %s && %s %s $(%s --cflags kvforge) %s -o %s $(%s --libs %s kvforge)"
  return command:format(here, compiler, STRICT .. " " .. SANITIZE, pc, source, output, pc, extra or "")
end

runs(build("${CC:-cc} -std=c17", "program.c", "c-shared"), "a C program builds with the shared library")
runs("LD_LIBRARY_PATH=" .. lib .. " " .. here .. "/c-shared " .. version, "and runs")
runs(build("${CXX:-g++} -std=c++17", "program.cc", "cc-shared"), "so does a C++ program")
runs("LD_LIBRARY_PATH=" .. lib .. " " .. here .. "/cc-shared " .. version, "and runs")
-- The static one by its exact name, as the linker would take the shared one of the two.
runs((build("${CC:-cc} -std=c17", "program.c", "c-static", " --static"):gsub("kvforge%)$",
  "kvforge | sed s/-lkvforge/-l:libkvforge.a/)")), "a C program builds with the static library")
local _, needed = shell.run("readelf -d " .. here .. "/c-static")
tap.ok(not needed:find("libkvforge", 1, true), "and needs no shared one")
runs(here .. "/c-static " .. version, "and runs")
local said = runs("env -u KVF_EXECUTOR LD_LIBRARY_PATH=" .. lib .. " " .. here .. "/c-shared " .. version ..
  " executor",
  "a program outside the tree asks for the executor")
tap.contains(said, PREFIX .. "/lib/kvforge/libcuda.so.1", "which is found beside the library")

-- ---- the examples, from a copy of their own: nothing of the source tree but what was installed ----

local copy, bundles = shell.directory(), shell.directory()
os.execute("cp examples/*.c examples/*.h " .. copy)
for _, spec in ipairs { "deepseek-v4-flash-ring", "flash-narrow", "tiny" } do
  runs(("%s build examples/%s.lua -o %s/%s > %s/log"):format(shell.kvforge, spec, bundles, spec, bundles),
    "a bundle of " .. spec)
end
local _, sources = shell.run("cd " .. copy .. " && ls *.c")
tap.is(sources, "decode.c\nreplay.c\nstate_cache.c\n", "the examples")
-- POSIX wants dlsym's answer cast to a function, ISO C forbids it: not pedantic.
local include = ("-I%s/deepseek-v4-flash-ring -I%s/flash-narrow"):format(bundles, bundles)
for name in sources:gmatch("([%w_]+)%.c") do
  local command = "cd %s && ${CC:-cc} -std=c17 %s %s $(%s --cflags kvforge) %s %s.c -o %s $(%s --libs kvforge) -ldl -lm"
  runs(command:format(copy, STRICT .. " -Wno-pedantic", SANITIZE, pc, include, name, name, pc),
    name .. ".c builds with the installed package alone")
end
local run = "LD_LIBRARY_PATH=" .. lib .. " " .. copy .. "/"
runs(run .. "state_cache " .. bundles .. "/deepseek-v4-flash-ring", "state_cache runs")
local report = runs(run .. "replay " .. bundles .. "/tiny --load short --memory 0.2", "replay runs on a bundle")
tap.contains(report, "requests finished    6000", "and serves every request")
local _, refusal = shell.run(run .. "replay " .. bundles .. "/deepseek-v4-flash-ring --load short")
tap.contains(refusal, 'a pool needs window_mode "paged"', "a bundle with rings is refused by name")

-- ---- exports: what is in the list stays, or programs break; what is new is declared in kvforge.h ----

local _, symbols = shell.run("nm -D --defined-only " .. lib .. "/libkvforge.so | awk '{ print $3 }'")
local exported, golden = {}, {}
for name in symbols:gmatch("%S+") do exported[name] = true end
for name in shell.read("tests/exports.txt"):gmatch("%S+") do golden[name] = true end
local gone, new, foreign = {}, {}, {}
for name in pairs(golden) do if not exported[name] then gone[#gone + 1] = name end end
for name in pairs(exported) do
  if not golden[name] then new[#new + 1] = name end
  if not name:find("^kvf_") then foreign[#foreign + 1] = name end
end
local instrumented = SANITIZE ~= ""
if instrumented then
  tap.skip(2, "instrumentation exports symbols of its own")
else
  if #new > 0 then tap.note("not yet in tests/exports.txt (make exports): " .. table.concat(new, " ")) end
  tap.is(table.concat(gone, " "), "", "no exported symbol has gone")
  tap.is(table.concat(foreign, " "), "", "all begin with kvf_")
end
local header, undeclared = shell.read("runtime/kvforge.h"), {}
for name in pairs(exported) do
  if not header:find("%f[%w_]" .. name .. "%(") then undeclared[#undeclared + 1] = name end
end
if instrumented then
  tap.skip(1, "likewise")
else
  tap.is(table.concat(undeclared, " "), "", "all are declared in kvforge.h")
end

-- ---- uninstall ----

runs(make .. "uninstall", "make uninstall")
tap.is(select(2, shell.run("find " .. root .. " ! -type d")), "", "leaves no file")

shell.clean()
tap.done()
