-- Print a C file that holds the named Lua files: lua5.4 gen/embed.lua FILE... > embedded.c
-- A file lua/kvforge/x.lua is known to `require` as "kvforge.x"; templates keep their path and are
-- embedded as kvforge.guard rewrites them, so that the program need not.
local root = arg[0]:match "^(.*)gen/embed%.lua$" or ""
package.path = root .. "lua/?.lua;" .. package.path
local guard = require "kvforge.guard"

local function module_name(path)
  local name = path:gsub("%.lua$", ""):gsub("^lua/", "")
  return (name:gsub("/", "."))
end

local function c_string(text)
  local out = {}
  for line in text:gmatch("[^\n]*\n?") do
    if line ~= "" then
      line = line:gsub("\\", "\\\\"):gsub('"', '\\"'):gsub("\n", "\\n"):gsub("%?%?", "?\\?")
      out[#out + 1] = '    "' .. line .. '"'
    end
  end
  return table.concat(out, "\n")
end

local function embedded_text(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  if not path:find "^templates/" then return text end
  local guarded, fault = guard.rewrite(text, path)
  if guarded then return guarded end
  io.stderr:write(fault, "\n")
  os.exit(1)
end

print('#include "embedded.h"\n\nconst struct embedded_file embedded_files[] = {')
for _, path in ipairs(arg) do
  local text = embedded_text(path)
  print(('    {"%s", "%s",\n%s, %d},'):format(module_name(path), path, c_string(text), #text))
end
print("    {0, 0, 0, 0},\n};")
