#!/usr/bin/env lua5.4
-- Our own declarations of the CUDA Driver API against the vendor's headers, where they are installed: the
-- values of the constants, the sizes of the types, and for every row of the symbol table that the version
-- asked for is the one the vendor's typedef is named by, and that our parameters fit it.
package.path = "tests/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"

local function find_include()
  for _, root in ipairs { os.getenv("CUDA_HOME") or "", "/usr/local/cuda" } do
    if root ~= "" and shell.exists(root .. "/include/cudaTypedefs.h") then return root .. "/include" end
  end
end

local include = find_include()
if not include then tap.skip_all("no cuda.h and cudaTypedefs.h") end

local api, driver = shell.read("runtime/cuda_api.h"), shell.read("runtime/driver.h")
local code = {
  '#include "cuda.h"', '#include "cudaTypedefs.h"', "#include <stdint.h>",
  "_Static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice) == sizeof(int), \"ints\");",
  "_Static_assert(sizeof(CUdeviceptr) == 8 && (CUdeviceptr)-1 > 0, \"addresses are 64-bit, unsigned\");",
  "_Static_assert(sizeof(CUjit_option) == sizeof(int), \"enums are ints\");",
  "_Static_assert(sizeof(CUstreamCaptureStatus) == sizeof(int), \"enums are ints\");",
}

-- Constants: every NAME = number of an enum.
local constants = 0
for name, value in api:gmatch("([%u][%w_]+) = (%d+)") do
  constants = constants + 1
  code[#code + 1] = ("_Static_assert((int)%s == %s, \"%s\");"):format(name, value, name)
end
for name, value in api:gmatch("#define (CU_LAUNCH_PARAM_%u[%u_]*) +%(%(void %*%)(%d)%)") do
  constants = constants + 1
  code[#code + 1] = ("_Static_assert(%s_AS_INT == %s, \"%s\");"):format(name, value, name)
end

-- Names of results, as driver_error.c has them for drivers that cannot be asked.
local results = 0
for value, name in shell.read("runtime/driver_error.c"):gmatch('{(%d+), KVF_%u[%u_]+,%s*"(CUDA_[%u_]+)"') do
  results = results + 1
  code[#code + 1] = ("_Static_assert((int)%s == %s, \"%s\");"):format(name, value, name)
end

-- Opaque types are the same structs.
for our in api:gmatch("typedef struct %w+ %*(CU%w+);") do
  code[#code + 1] = ("_Static_assert(sizeof(%s) == sizeof(void *), \"%s\");"):format(our, our)
end
for tag, our in api:gmatch("typedef struct (%w+) %*(CU%w+);") do
  code[#code + 1] = ("struct %s *same_%s(%s x) { return x; }"):format(tag, our, our)
end

-- Symbols: a function that calls the vendor's type with our parameters.
local rows = 0
local names = driver:match("#define DRIVER_SYMBOLS.-\n\n"):gsub("\\\n", " ")
for base, abi, version, parameters in names:gmatch("%u+%((%w+), ([%w_]+), (%d+),%s*(%b())%)") do
  rows = rows + 1
  local arguments = {}
  for argument in parameters:sub(2, -2):gmatch("[^,]+") do
    local name = argument:match("([%w_]+)%s*$")
    if name ~= "void" then arguments[#arguments + 1] = name end
  end
  local list = #arguments > 0 and parameters:sub(2, -2) or ""
  code[#code + 1] = ("CUresult call_%s(PFN_%s_v%s f%s) { return f(%s); }"):format(abi, base, version,
    list ~= "" and ", " .. list or "", table.concat(arguments, ", "))
end

local here = shell.directory()
-- cuda_api.h has int where the vendor has enums, which differ in C only behind a pointer.
local function compiles(lines)
  shell.write(here .. "/check.c", table.concat(lines, "\n") .. "\n")
  return shell.run("${CC:-cc} -std=c17 -Wall -Wextra -Werror -Wno-incompatible-pointer-types " ..
    "-Wno-enum-conversion -I" .. include .. " -c " .. here .. "/check.c -o " .. here .. "/check.o")
end

tap.plan(6)
tap.ok(constants > 30, constants .. " constants are compared")
tap.ok(results > 45, results .. " results are compared")
tap.ok(rows > 45, rows .. " symbols are compared")
local status, output = compiles(code)
if not tap.ok(status == 0, "all agree with the vendor's headers") then tap.note(output) end

-- The comparison itself must be able to fail.
local wrong = { table.unpack(code) }
wrong[#wrong + 1] = "_Static_assert((int)CU_JIT_LOG_VERBOSE == 13, \"planted\");"
tap.ok(compiles(wrong) ~= 0, "a wrong constant would be seen")
wrong[#wrong] = "CUresult planted(PFN_cuLaunchKernel_v4000 f, CUfunction g) { return f(g, 1); }"
tap.ok(compiles(wrong) ~= 0, "missing parameters would be seen")
shell.clean()
tap.done()
