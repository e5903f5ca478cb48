#!/usr/bin/env lua5.4
-- The README's table of kernels names every kernel of the bundle that it is about, each with its template's job.
package.path = "tests/?.lua;lua/?.lua;" .. package.path
local tap = require "tap"
local shell = require "shell"
local json = require "kvforge.json"

local dir = shell.directory()
local status, output = shell.run(("%s build examples/deepseek-v4-flash.lua -o %s"):format(shell.kvforge, dir))
if status ~= 0 then tap.note(output) end
local manifest = json.decode(shell.read(dir .. "/manifest.json"))

-- The templates' own words, and the rows of the table: kernel -> job.
local jobs, rows, count = {}, {}, 0
for path in select(2, shell.run("ls templates/*.lua")):gmatch("[^\n]+") do
  jobs[path:match("templates/([%w_]+)%.lua")] = shell.read(path):match('job = "([^"]+)"')
end
local readme = shell.read("README.md")
local from = assert(readme:find("<!-- kernels -->", 1, true), "the README has no table of kernels")
local to = assert(readme:find("<!-- end of kernels", from, true))
for kernel, job in readme:sub(from, to):gmatch("\n| `([%w_]+)` | ([^|]+) |") do
  rows[kernel] = job
  count = count + 1
end

-- The template of a kernel: prefixes and endings are those of its variants.
local function template_of(kernel)
  for _, name in ipairs { kernel, (kernel:gsub("^index_", "")), (kernel:gsub("_workspace$", "")) } do
    if jobs[name] then return name end
  end
end

local seen, kernels = {}, {}
for _, module in ipairs(manifest.modules) do
  for _, kernel in ipairs(module.kernels) do
    if not seen[kernel.name] then kernels[#kernels + 1] = kernel.name end
    seen[kernel.name] = true
  end
end
tap.plan(#kernels + 5)
tap.ok(#kernels > 15, "the bundle has kernels")
for _, kernel in ipairs(kernels) do
  tap.is(rows[kernel], jobs[template_of(kernel) or ""] or "a job", "the README has " .. kernel .. " and its job")
end
tap.is(count, #kernels, "and no others")

-- ---- how it gets there ----

local function insert(name, text)
  return (shell.run(("printf '%s' | bench/insert.lua %s/file %s"):format(text, dir, name)))
end
local before, after = "a\n<!-- x -->\n", "<!-- end of x -->\nz\n"
shell.write(dir .. "/file", before .. "old\n" .. after)
tap.is(insert("x", "new\\n"), 0, "a table is put between its marks")
tap.is(shell.read(dir .. "/file"), before .. "\nnew\n\n" .. after, "in place of the old one")
tap.ok(insert("y", "new\\n") == 1 and insert("x", "") == 1, "no marks, or no table: an error")
shell.clean()
tap.done()
