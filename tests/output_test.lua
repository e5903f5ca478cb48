#!/usr/bin/env lua5.4
-- What else kvforge writes: embedded bundles, cubins, imported specs; and what is left when writing
-- fails half-way.
package.path = "tests/?.lua;lua/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"
local json = require "kvforge.json"

local dir = shell.directory()
local bundle = dir .. "/bundle"
local function kvforge(arguments) return shell.run(shell.kvforge .. " " .. arguments) end
local function info(path) return shell.run(shell.kvforge_run .. " info " .. path) end
local function expect(good, output, name) if not tap.ok(good, name) then tap.note(output) end end

tap.plan(49)

-- ---- the header and the embedded bundle, in C and C++ ----

local warnings = "-Wall -Wextra -Wshadow -Wconversion -Werror -Iruntime"
local status, output = kvforge("build examples/tiny.lua --embed -o " .. bundle)
expect(status == 0 and shell.exists(bundle .. "/tiny.c"), output, "--embed writes tiny.c")
local program = [[
#include "tiny.h"
#include <stdio.h>
int main(void) {
    kvf_bundle *bundle;
    kvf_error error;
    kvf_model_info model;
    if (kvf_bundle_open_memory(tiny_files, tiny_file_count, &bundle, &error)) return puts(error.text), 1;
    if (kvf_bundle_model(bundle, &model)) return 1;
    printf("%s %u\n", model.name, model.layers);
    kvf_bundle_close(bundle);
    return 0;
}
]]
shell.write(dir .. "/user.c", program)
local libraries = (os.getenv("KVF_SANITIZE") or "") .. " " .. shell.build
  .. "/lib/libkvforge.a -ljansson -lxxhash -lmd -ldl -lm -pthread"
for _, compiler in ipairs { "cc -std=c17 -x c", "g++ -std=c++17 -x c++" } do
  status, output = shell.run(("%s %s -I%s %s/user.c %s/tiny.c -x none -o %s/user %s && %s/user")
    :format(compiler, warnings, bundle, dir, bundle, dir, libraries, dir))
  expect(status == 0 and output == "tiny 3\n", output,
    compiler:match("std=(%S+)") .. ": a program carries its bundle")
end

-- ---- cubins ----

if shell.find("ptxas") then
  status, output = kvforge("build examples/tiny.lua --cubin -o " .. bundle)
  local module = json.decode(shell.read(bundle .. "/manifest.json")).modules[1]
  local cubin = status == 0 and module.cubin and shell.read(bundle .. "/" .. module.cubin.file)
  expect(cubin and cubin:sub(1, 4) == "\127ELF", output, "--cubin adds an ELF file that the manifest names")
  local first = shell.read(bundle .. "/manifest.json")
  kvforge("build examples/tiny.lua --cubin -o " .. bundle)
  tap.ok(first == shell.read(bundle .. "/manifest.json"), "cubins are the same every time")
  tap.ok((info(bundle)) == 0, "the library takes a bundle with cubins")
else
  tap.skip(3, "no ptxas here")
end
status, output = shell.run(("KVF_PTXAS=/nowhere %s build examples/tiny.lua --cubin -o %s/none"):format(
  shell.kvforge, dir))
expect(status == 2 and output:find("--cubin needs ptxas", 1, true) and not shell.exists(dir .. "/none"),
  output, "--cubin without ptxas is refused")

-- ---- templates and Lua modules from a directory ----

shell.run(("cp -r templates %s/templates && cp -r lua/kvforge %s/lua"):format(dir, dir))
kvforge("build examples/tiny.lua -o " .. bundle)
status, output = kvforge(("build examples/tiny.lua --templates %s/templates --lua %s/lua -o %s/other"):format(
  dir, dir, dir))
local differ, what = shell.run(("diff -r %s %s/other"):format(bundle, dir))
expect(status == 0 and differ == 0, output .. what,
  "--templates and --lua read the same files from elsewhere")
shell.run(("sed -i 's/a \\* c - b \\* s/a * c + b * s/' %s/templates/lib/rope.lua"):format(dir))
kvforge(("build examples/tiny.lua --templates %s/templates -o %s/other"):format(dir, dir))
tap.ok((shell.run(("diff -r %s %s/other"):format(bundle, dir))) == 1, "and a change there changes the PTX")
for _, option in ipairs { "--templates", "--lua" } do
  status, output = kvforge(("build examples/tiny.lua %s %s/nowhere -o %s/none"):format(option, dir, dir))
  expect(status == 2 and output:find("no directory: " .. dir .. "/nowhere", 1, true), output,
    option .. " of a directory that does not exist")
end

-- ---- import ----

status, output = kvforge("import tests/data/deepseek-small.config.json --name small --target sm_80")
expect(status == 0 and output:find('name = "small"', 1, true) and output:find('"sm_80"', 1, true), output,
  "import prints a spec, flags taken over")
status, output = kvforge(("import tests/data/deepseek-small.config.json -o %s/small.lua && %s check "
  .. "%s/small.lua"):format(dir, shell.kvforge, dir))
expect(status == 0, output, "import -o writes a spec that checks")
shell.write(dir .. "/bad.json", '{ "model_type": "deepseek_v4", "head_dim": 320 }')
status, output = kvforge(("import %s/bad.json -o %s/bad.lua"):format(dir, dir))
expect(status == 1 and output:find("bad.json", 1, true) and not shell.exists(dir .. "/bad.lua"), output,
  "a config that cannot be taken over is refused, and nothing is written")
shell.write(dir .. "/odd.json", (shell.read("tests/data/deepseek-small.config.json"):gsub(
  '"index_n_heads": 4', '"index_n_heads": 2')))
status, output = kvforge(("import %s/odd.json -o %s/odd.lua"):format(dir, dir))
expect(status == 1 and output:find("odd.json: layer type \"csa\": kernel indexer_query: the indexer's heads "
  .. "must be a multiple of 4", 1, true) and not shell.exists(dir .. "/odd.lua"), output,
  "so is one whose shapes no kernel has")
status, output = kvforge(("import tests/data/deepseek-small.config.json -o %s/no/such/spec.lua"):format(dir))
expect(status == 1 and output:find("cannot create a file beside", 1, true), output,
  "a place that cannot be written")

-- What is no file stays what it is, whoever may remove it.
shell.run(("ln -s %s/through.lua %s/link.lua"):format(dir, dir))
status, output = kvforge(("import tests/data/deepseek-small.config.json -o %s/link.lua"):format(dir))
expect(status == 0 and shell.exists(dir .. "/through.lua") and shell.run(("test -L %s/link.lua"):format(dir)) == 0,
  output, "import -o through a link")
status, output = kvforge("import tests/data/deepseek-small.config.json -o /dev/full")
expect(status == 1 and output:find("cannot write /dev/full: No space left", 1, true)
  and shell.run("test -c /dev/full") == 0, output, "and to a device")

-- ---- writing that fails ----

local function whole(name)
  local good, text = info(bundle)
  local _, left = shell.run(("ls -d %s.new-* 2>/dev/null"):format(bundle))
  expect(good == 0 and text:find("^tiny"), text .. left, name)
  return left
end

kvforge("build examples/tiny.lua -o " .. bundle)
-- A file size limit ends the program with a signal in the middle of a file.
-- A shell of its own says so, into the output that is read here.
local limited = ("sh -c '%%s ulimit -f 16; %s build examples/deepseek-v4-flash.lua -o %s; exit $?'"):format(
  shell.kvforge, bundle)
status = shell.run(limited:format "")
tap.ok(status ~= 0, "a build that dies while writing fails")
whole("and the old bundle is whole")
shell.run(("rm -rf %s.new-*"):format(bundle))
-- With the signal ignored the same limit is a write that fails, as on a full disk.
status, output = shell.run(limited:format 'trap "" XFSZ;')
expect(status == 1 and output:find("cannot write .-: File too large"), output,
  "a write that fails half-way is an error")
tap.is(whole("and the old bundle is whole"), "", "with nothing left beside it")

-- Killed at many moments: the directory is the old bundle or the new one, never a mixture.
local names = {}
for step = 1, 30 do
  local spec = step % 2 == 0 and "tiny" or "deepseek-v4-pro"
  shell.run(("timeout -s KILL 0.%03d %s build examples/%s.lua -o %s"):format(step * 25, shell.kvforge,
    spec, bundle))
  local good, text = info(bundle)
  names[#names + 1] = good == 0 and (text:find("^tiny") or text:find("^deepseek%-v4%-pro")) and "good" or text
end
local bad = 0
for _, name in ipairs(names) do if name ~= "good" then bad = bad + 1 end end
tap.is(bad, 0, "killed at thirty moments, the bundle opens every time")
shell.run(("rm -rf %s.new-*"):format(bundle))

-- On a file system that cannot exchange two names, and one where the new name cannot be had either.
shell.write(dir .. "/names.c", [[
#include <errno.h>
#include <stdlib.h>
#include <string.h>
int renameat2(int a, const char *b, int c, const char *d, unsigned e);
int renameat2(int a, const char *b, int c, const char *d, unsigned e) {
    (void)a, (void)b, (void)c, (void)d, (void)e;
    errno = EINVAL;
    return -1;
}
int renameat(int a, const char *b, int c, const char *d);
int rename(const char *from, const char *to) {
    const char *refused = getenv("REFUSED");
    if (refused && strcmp(to, refused) == 0 && !strstr(from, ".old")) return errno = EACCES, -1;
    return renameat(-100, from, -100, to);
}
]])
local preload = ("cc -shared -fPIC -o %s/names.so %s/names.c && %s env LD_PRELOAD=%s/names.so %s build examples/tiny.lua -o %s")
if (os.getenv("KVF_SANITIZE") or "") == "" then
  status, output = shell.run(preload:format(dir, dir, "", dir, shell.kvforge, bundle))
  local kept = whole("without an exchange of names a bundle is replaced too")
  expect(status == 0 and kept == "", output .. kept, "and nothing is left beside it")
  status, output = shell.run(preload:format(dir, dir, "REFUSED=" .. bundle, dir, shell.kvforge, bundle))
  kept = whole("if the new one cannot be put there, the old one is")
  expect(status == 1 and kept == "" and output:find("cannot rename to .-: Permission denied"), output .. kept,
    "with an error, and nothing left")
else
  tap.skip(4, "a sanitizer wants to be loaded first")
end

local mounted = shell.run(("mkdir %s/small && mount -t tmpfs -o size=96k tmpfs %s/small"):format(dir,
  dir)) == 0
if mounted then
  status, output = kvforge(("build examples/tiny.lua -o %s/small/bundle"):format(dir))
  local _, left = shell.run(("ls -A %s/small"):format(dir))
  expect(status == 1 and output:find("No space left on device", 1, true), output, "a full disk is an error")
  tap.is(left, "", "and nothing is left on it")
  shell.run("umount " .. dir .. "/small")
else
  tap.skip(2, "cannot mount a small file system here")
end

-- Root may write anywhere: it becomes somebody else, if that one can run the program.
shell.run(("chmod 755 %s && mkdir %s/locked && chmod 555 %s/locked"):format(dir, dir, dir))
local somebody = shell.run(("touch %s/locked/x"):format(dir)) == 0
  and "setpriv --reuid=65534 --regid=65534 --clear-groups " or ""
if shell.run(somebody .. shell.kvforge .. " check examples/tiny.lua") == 0 then
  status, output = shell.run(("%s%s build examples/tiny.lua -o %s/locked/bundle"):format(somebody,
    shell.kvforge, dir))
  expect(status == 1 and output:find("Permission denied", 1, true), output,
    "a directory that cannot be written")
else
  tap.skip(1, "root may write anywhere, and nobody else can run this")
end

-- ---- help and usage ----

shell.write(dir .. "/wide.lua", (shell.read("examples/tiny.lua"):gsub("heads = 4, dim = 64",
  "heads = 256, dim = 256")))

status, output = kvforge("--help")
expect(status == 0 and output:find("^usage: kvforge build", 1), output, "--help says the usage")
status, output = kvforge("--version")
expect(status == 0 and output:find("^kvforge %d+%.%d+%.%d+\n$"), output, "--version says the version")
for _, command in ipairs { "--help", "--version", "help", "help spec", "explain examples/tiny.lua",
  "explain --json examples/deepseek-v4-pro.lua", "import tests/data/deepseek-small.config.json" } do
  status, output = kvforge(command .. " > /dev/full")
  expect(status == 1 and output:find("^kvforge: cannot write the output: No space left on device\n$"), output,
    command .. ": output that is lost is an error")
end
for _, case in ipairs { "check --embed", "check --output x", "explain --target sm_80", "import --cubin", "build --json" } do
  status, output = kvforge(case .. " examples/tiny.lua")
  expect(status == 2 and output:find(("%s takes no %s\n"):format(case:match("(%a+) (%-%-%a+)")), 1, true), output,
    case .. " is no option of that command")
end
status, output = kvforge("check --target sm_89 " .. dir .. "/wide.lua")
expect(status == 1 and output:find("more shared memory", 1, true)
  and kvforge("check " .. dir .. "/wide.lua") == 0, output, "check judges for a target as build does")
status, output = shell.run(("mkfifo %s/pipe && timeout 20 %s check %s/pipe"):format(dir, shell.kvforge, dir))
expect(status == 1 and output:find("not a regular file", 1, true), output, "a pipe is not waited for")
status, output = kvforge("build")
expect(status == 2 and output:find("a spec is missing", 1, true), output, "a missing spec")
status, output = kvforge("check " .. dir .. "/nothing.lua")
expect(status == 1 and output:find("cannot read", 1, true), output, "a spec that is not there")
shell.clean()
tap.done()
