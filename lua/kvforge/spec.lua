-- What `require "kvforge"` is inside a spec: constructors that record, and check nothing.
-- They run in the sandbox, so they must be cheap, must not raise on bad input (all errors of a file
-- are reported together) and must not call methods on strings. check.lua judges what they recorded.
--
-- The book of one run:
--   book.info[node]  { kind, line, nth, constructor, faults }: where a node was made, and what was
--                    wrong with the arguments themselves
-- Nodes are plain tables with the fields the spec gave; a spec may change them afterwards.
local spec = {}

-- Remember a new node. `nth` counts the calls of this constructor on this line, for source.lua; the
-- line is unknown (nil) after a tail call such as `return kv.model { ... }`.
local function note(book, kind, constructor, node)
  local line = book.here()
  local calls = book.calls[constructor] or {}
  book.calls[constructor] = calls
  local nth = (calls[line or 0] or 0) + 1
  calls[line or 0] = nth
  local info = { kind = kind, line = line, nth = nth, constructor = constructor, faults = {} }
  book.info[node] = info
  book.nodes[#book.nodes + 1] = node
  return info
end

local function fault(info, rule, given, allowed)
  info.faults[#info.faults + 1] = { rule = rule, given = given, allowed = allowed }
end

-- A constructor that takes one table of named fields; with `merges`, positional tables first.
local function constructor(book, kind, name, merges)
  return function(fields, ...)
    local node = {}
    local info = note(book, kind, name, node)
    if type(fields) ~= "table" then
      fault(info, "takes one table of fields", fields, "kv." .. name .. " { ... }")
      return node
    end
    if select("#", ...) > 0 then fault(info, "takes one table and nothing after it", (...)) end
    local positional = 0
    for i, part in ipairs(fields) do
      positional = i
      if not merges then
        fault(info, "takes named fields only", part)
      elseif type(part) ~= "table" then
        fault(info, "a positional entry must be a table of fields", part)
      else
        for key, value in next, part do node[key] = value end
      end
    end
    for key, value in next, fields do
      local whole = math.type(key) == "integer" and key >= 1 and key <= positional
      if not whole then node[key] = value end
    end
    return node
  end
end

local function repeated(book, name, count, ...)
  local node = {}
  local info = note(book, "layers", name, node)
  local names = table.pack(...)
  if math.type(count) ~= "integer" or count < 0 or count > spec.MAX_LAYERS then
    fault(info, "the count is not an integer in range", count, "0 to " .. spec.MAX_LAYERS)
    count = 0
  end
  if names.n == 0 then fault(info, "needs the name of a layer type", nil) end
  for _ = 1, count do
    for i = 1, names.n do node[#node + 1] = names[i] end
    if #node > spec.MAX_LAYERS then
      fault(info, "makes too many layers", #node, "at most " .. spec.MAX_LAYERS)
      break
    end
  end
  return node
end

spec.MAX_LAYERS = 4096

-- spec.new(here) -> the module for the spec, and the book. here() is the spec's current line,
-- or nil.
function spec.new(here)
  local book = { here = here, info = {}, nodes = {}, calls = {} }
  local kv = {
    model = constructor(book, "model", "model"),
    layer_type = constructor(book, "layer type", "layer_type", true),
    rope = constructor(book, "rope", "rope"),
    yarn = constructor(book, "yarn", "yarn"),
    indexer = constructor(book, "indexer", "indexer"),
    -- n layers of one type
    of = function(name, count) return repeated(book, "of", count, name) end,
    -- n times the given types in turn
    alternate = function(count, ...) return repeated(book, "alternate", count, ...) end,
  }
  return kv, book
end

return spec
