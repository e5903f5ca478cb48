-- Load a spec: run it in the sandbox, check what it declared, derive everything that follows.
--
--   local M, errors = require("kvforge.load")(text, "@examples/tiny.lua", limits)
--
-- M is the resolved model (words of docs/manifest.md; for templates also T.model, T.place and
-- T.tail_ring). On errors it is nil, and `errors` an array of "file:line: where: field: rule" texts,
-- every error of the file. `limits` may replace single entries of sandbox.limits.
local check = require "kvforge.check"
local fields = require "kvforge.fields"
local header = require "kvforge.header"
local layout = require "kvforge.layout"
local sandbox = require "kvforge.sandbox"
local source = require "kvforge.source"
local spec = require "kvforge.spec"

local MAX_ERRORS = 50

local function merged_limits(given)
  local limits = {}
  for name, value in pairs(sandbox.limits) do limits[name] = given and given[name] or value end
  return limits
end

-- Lua would cut a long path in its messages, so the chunk has a short name of its own.
local CHUNK = "=spec"

-- Lua's own messages begin with the chunk's name and line already; the sandbox's have a line.
local function run_error(file, fault)
  local line, text = fault.text:match("^spec:(%d+): (.*)$")
  return ("%s:%d: %s"):format(file, line or fault.line or 1, text or fault.text)
end

local function texts_of(file, problems)
  local texts = {}
  for i, problem in ipairs(problems) do
    if i > MAX_ERRORS then
      texts[i] = ("%s: and %d more errors"):format(file, #problems - MAX_ERRORS)
      break
    end
    texts[i] = ("%s:%d: %s"):format(file, problem.line, problem.text)
  end
  return texts
end

-- Layer types whose names run into others' in the header: "window" and "a_window" beside "a" do.
local function clashes(M)
  local problems, told = {}, {}
  local _, found = header(M, {})
  for _, clash in ipairs(found) do
    if not told[clash.type] then
      told[clash.type] = true
      problems[#problems + 1] = {
        line = clash.type.line,
        text = ("layer type %s: its name gives the header a second %s"):format(fields.show(clash.type.name),
          clash.name),
      }
    end
  end
  return problems
end

return function(text, chunkname, limits)
  local file = chunkname:gsub("^@", "")
  local book
  local function make(here)
    local kv
    kv, book = spec.new(here)
    return kv
  end
  local node, fault = sandbox.run(text, CHUNK, make, merged_limits(limits))
  if fault then return nil, { run_error(file, fault) } end

  local M, problems = check(node, book, source.open(text))
  if #problems > 0 then return nil, texts_of(file, problems) end
  layout.complete(M)
  problems = clashes(M)
  if #problems > 0 then return nil, texts_of(file, problems) end
  return M
end
