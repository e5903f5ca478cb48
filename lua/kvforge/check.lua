-- Judge what a spec's constructors recorded: every field by the field table, then the rules between
-- fields. All errors are collected; a value that is wrong leaves a hole, and a rule that needs it is
-- passed over, so that one mistake gives one message.
local fields = require "kvforge.fields"
local layout = require "kvforge.layout"
local nearest = require "kvforge.nearest"

local checker = {}
checker.__index = checker

local MAX_TYPES = 32
local MAX_LAYERS = 4096

-- Add an error. `given` and `allowed` are texts, or nil to leave them out.
function checker:problem(line, where, field, rule, given, allowed)
  local text = where
  if field then text = ("%s: field %s"):format(text, fields.show(field)) end
  text = text .. ": " .. rule
  if given then text = text .. "; given " .. given end
  if allowed then text = text .. (given and ", allowed " or "; allowed ") .. allowed end
  self.problems[#self.problems + 1] = { line = line, order = #self.problems, text = text }
end

-- The line of a node's field, or of its constructor.
function checker:line(node, field)
  local info = self.book.info[node]
  if not info.lines then
    info.line, info.lines = self.reader:call(info.constructor, info.line, info.nth)
  end
  return field and info.lines[field] or info.line
end

function checker:kind(value)
  local info = type(value) == "table" and self.book.info[value]
  return info and info.kind
end

-- Wrong arguments of any constructor, used in the model or not.
function checker:constructors()
  for _, node in ipairs(self.book.nodes) do
    local info = self.book.info[node]
    for _, fault in ipairs(info.faults) do
      self:problem(self:line(node), "kv." .. info.constructor, nil, fault.rule,
        fields.show(fault.given), fault.allowed)
    end
    self.faulty[node] = #info.faults > 0
    if info.kind == "layers" and self.faulty[node] then self.faulty_groups = true end
  end
end

local function sorted_keys(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "string" or type(a) == "number") then return a < b end
    return type(a) < type(b)
  end)
  return keys
end

function checker:unknown_fields(node, where, known, level)
  local names = {}
  for _, field in ipairs(known) do names[field.name], names[#names + 1] = true, field.name end
  for _, key in ipairs(sorted_keys(node)) do
    if type(key) ~= "string" or not names[key] then
      local line = self:line(node, key)
      local near = nearest(key, names)
      if fields.find(level, key) then
        self:problem(line, where, key, "is a field of kv.yarn, not of kv.rope")
      elseif near then
        self:problem(line, where, key, ("unknown; did you mean \"%s\"?"):format(near))
      else
        self:problem(line, where, key, "unknown", nil, table.concat(names, ", "))
      end
    end
  end
end

-- Check the scalar fields of a node. Returns their values (defaults filled in, wrong ones missing).
function checker:record(node, where, known, level)
  if self.faulty[node] then return {} end
  local values = {}
  self:unknown_fields(node, where, known, level)
  for _, field in ipairs(known) do
    local given = node[field.name]
    if given == nil then
      values[field.name] = field.default
      if field.required then
        self:problem(self:line(node), where, field.name, "is missing", nil, fields.allowed(field))
      end
    elseif self[field.type .. "_field"] then
      values[field.name] = given -- judged by its own function
    else
      local value, rule = fields.check(field, given)
      values[field.name] = value
      if rule then
        self:problem(self:line(node, field.name), where, field.name, rule, fields.show(given),
          fields.allowed(field))
      end
    end
  end
  return values
end

-- ---- fields that a constructor or a list makes ----

function checker:rope_field(node, where, owner)
  if node == nil then return nil end
  local kind = self:kind(node)
  if kind ~= "rope" and kind ~= "yarn" then
    self:problem(self:line(owner, "rope"), where, "rope", "must be made by a constructor",
      fields.show(node), "kv.rope { ... } or kv.yarn { ... }")
    return nil
  end
  if not self.seen[node] then
    local known = {}
    for _, field in ipairs(fields.of("rope")) do
      if kind == "yarn" or not field.yarn then known[#known + 1] = field end
    end
    self.seen[node] = self:record(node, where .. ": rope", known, "rope")
  end
  return self.seen[node]
end

function checker:indexer_field(node, where, owner)
  if node == nil then return nil end
  if self:kind(node) ~= "indexer" then
    self:problem(self:line(owner, "indexer"), where, "indexer", "must be made by a constructor",
      fields.show(node), "kv.indexer { ... }")
    return nil
  end
  if not self.seen[node] then
    self.seen[node] = self:record(node, where .. ": indexer", fields.of("indexer"), "indexer")
  end
  return self.seen[node]
end

-- A list of names from field.values, without repetition.
function checker:list_field(list, where, owner, field)
  local line = self:line(owner, field.name)
  if type(list) ~= "table" or #list == 0 then
    self:problem(line, where, field.name, "must be a list with at least one entry",
      type(list) == "table" and "an empty list" or fields.show(list), fields.allowed(field))
    return {}
  end
  local kept, seen = {}, {}
  for _, key in ipairs(sorted_keys(list)) do
    local name = list[key]
    local value = fields.check({ type = "choice", values = field.values }, name)
    if math.type(key) ~= "integer" or not value then
      self:problem(line, where, field.name, "is not among the values",
        fields.show(math.type(key) == "integer" and name or key), fields.allowed(field))
    elseif seen[name] then
      self:problem(line, where, field.name, "names an entry twice", fields.show(name))
    else
      kept[#kept + 1], seen[name] = name, true
    end
  end
  return kept
end

-- Collect the names of a list and of the groups in it into `flat`, anything else into `bad`. A hostile
-- spec can put a group into itself: `left` entries may be looked at. Returns how many are left, below
-- zero if they were not enough.
local function flatten(self, list, flat, bad, left)
  left = left - #list
  if left < 0 then return left end
  for _, key in ipairs(sorted_keys(list)) do
    local entry = list[key]
    if math.type(key) ~= "integer" then
      bad[#bad + 1] = key
    elseif self:kind(entry) == "layers" then
      left = flatten(self, entry, flat, bad, left)
      if left < 0 then return left end
    else
      local into = type(entry) == "string" and flat or bad
      into[#into + 1] = entry
    end
  end
  return left
end

function checker:layers_field(list, where, owner, field, types)
  local line, name = self:line(owner, field.name), field.name
  if type(list) ~= "table" then
    self:problem(line, where, name, "must be a list", fields.show(list), fields.allowed(field))
    return {}
  end
  local flat, bad, told = {}, {}, {}
  local list_of_groups = self:kind(list) == "layers" and { list } or list
  if flatten(self, list_of_groups, flat, bad, 2 * MAX_LAYERS) < 0 or #flat > MAX_LAYERS then
    self:problem(line, where, name, "has too many entries", nil, ("%d layers"):format(MAX_LAYERS))
    return {}
  end
  for _, entry in ipairs(bad) do
    self:problem(line, where, name, "an entry is not the name of a layer type",
      fields.show(entry), fields.allowed(field))
  end
  local known = sorted_keys(types)
  for _, entry in ipairs(flat) do
    -- Without any type that is an error of its own, and said already.
    if #known > 0 and not types[entry] and not told[entry] then
      local near = nearest(entry, known)
      told[entry] = true
      self:problem(line, where, name, "names no layer type"
        .. (near and ("; did you mean \"%s\"?"):format(near) or ""), fields.show(entry),
        table.concat(known, ", "))
    end
  end
  if field.required and #flat == 0 and #bad == 0 and not self.faulty_groups then
    self:problem(line, where, name, "must name at least one layer")
  end
  return flat
end

-- ---- layer types ----

-- Rules between the fields of one layer type; a rule whose values are missing is passed over.
function checker:type_rules(T, node, where, model)
  local function rule(good, field, text, given, allowed)
    if not good then self:problem(self:line(node, field), where, field, text, given, allowed) end
  end
  local head, rope, ratio = T.head_dim, T.rope_dim, T.ratio
  if head and rope then
    rule(rope < head, "rope_dim", "must be below head_dim", fields.show(rope),
      ("even integers below %d"):format(head))
    if rope < head and T.format then
      local size, text, allowed = layout.refusal(T.format, { nope = head - rope, rope = rope, head = head })
      local given = size == "rope" and rope or head - rope
      rule(not size, "rope_dim",
        ("%s %s"):format(size == "rope" and "rope_dim" or "head_dim - rope_dim", text),
        fields.show(given), allowed)
    end
  end
  if ratio then
    rule(ratio ~= 1, "ratio", "one token is no group", "1", "0, or 2 to 256")
    if ratio > 1 and model.block then
      rule(model.block % ratio == 0, "ratio", "the block must be a multiple of it",
        ("%d with block %d"):format(ratio, model.block), "divisors of the block")
    end
    rule(not (T.overlap and ratio == 0), "overlap", "needs a ratio", "true with ratio 0", "false")
    rule(not (T.indexer and ratio == 0), "indexer", "needs a ratio: without one nothing is compressed",
      "an indexer with ratio 0")
  end
  if T.window and model.drafts and model.max_positions then
    rule(T.window <= model.max_positions, "window", "must not exceed max_positions",
      fields.show(T.window), ("1 to %d"):format(model.max_positions))
  end
end

function checker:indexer_rules(indexer, node, where, rope)
  if not indexer or not indexer.dim then return end
  local function complain(field, ...)
    self:problem(self:line(node, field), where .. ": indexer", field, ...)
  end
  if rope and rope > indexer.dim then
    complain("dim", "must hold the rope_dim elements that RoPE rotates", fields.show(indexer.dim),
      ("at least %d"):format(rope))
  end
  local refused, text, allowed = nil, nil, nil
  if indexer.format then refused, text, allowed = layout.refusal(indexer.format, { dim = indexer.dim }) end
  if refused then complain("dim", text, fields.show(indexer.dim), allowed) end
end

function checker:layer_type(name, node, model)
  local where = ("layer type %s"):format(fields.show(name))
  local T = self:record(node, where, fields.of("layer type"), "layer type")
  T.name, T.line = name, self:line(node)
  T.rope = self:rope_field(T.rope, where, node)
  local indexer = T.indexer
  T.indexer = self:indexer_field(indexer, where, node)
  self:type_rules(T, node, where, model)
  self:indexer_rules(T.indexer, indexer, where, T.rope_dim)
  return T
end

function checker:types_field(map, where, owner, _, model)
  local line, types, by_name = self:line(owner, "types"), {}, {}
  local allowed = fields.allowed(fields.find("model", "types"))
  if type(map) ~= "table" or next(map) == nil then
    self:problem(line, where, "types", "must name at least one layer type",
      type(map) == "table" and "an empty table" or fields.show(map), allowed)
    return types, by_name
  end
  local names = sorted_keys(map)
  if #names > MAX_TYPES then
    self:problem(line, where, "types", "too many layer types", fields.show(#names),
      ("at most %d"):format(MAX_TYPES))
    return types, by_name
  end
  for _, name in ipairs(names) do
    local node = map[name]
    if type(name) ~= "string" or #name > 32 or not name:match("^[a-z][a-z0-9_]*$") then
      self:problem(line, where, "types", "a layer type's name must be an identifier",
        fields.show(name), "1 to 32 of a-z 0-9 _, a letter first")
    elseif name == "common" then
      self:problem(line, where, "types", "the name is taken by the module of shared kernels",
        fields.show(name))
    elseif self:kind(node) ~= "layer type" then
      self:problem(line, ("layer type %s"):format(fields.show(name)), nil,
        "must be made by a constructor", fields.show(node), "kv.layer_type { ... }")
    else
      types[#types + 1] = self:layer_type(name, node, model)
    end
    if type(name) == "string" then by_name[name] = true end
  end
  return types, by_name
end

-- ---- the model ----

-- The bundle's header is called after the model: it must not stand in front of one that it, kvforge.h or
-- a program includes.
local headers = {}
for name in ([[ assert complex ctype cuda errno fenv float inttypes iso646 kvforge limits locale math setjmp
  signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time
  uchar wchar wctype ]]):gmatch("%S+") do
  headers[name] = true
end

function checker:model_rules(model, node)
  local function rule(good, field, ...)
    if not good then self:problem(self:line(node, field), "model", field, ...) end
  end
  if model.name then
    rule(not headers[model.name], "name", "is that of another C header, which the bundle's would hide",
      fields.show(model.name))
  end
  if model.checkpoint and model.block then
    rule(model.checkpoint % model.block == 0, "checkpoint", "must be a multiple of the block",
      fields.show(model.checkpoint), ("multiples of %d"):format(model.block))
  end
  if model.packed_lists and model.window_mode then
    rule(model.window_mode == "paged", "packed_lists", "needs window blocks",
      ("true with window_mode = %q"):format(model.window_mode), 'false, or window_mode = "paged"')
  end
  if model.online and model.drafts then
    rule(model.drafts == 0, "online", "cannot take a rejected draft back out of a running softmax",
      ("true with drafts = %d"):format(model.drafts), "false, or drafts = 0")
  end
end

function checker:model(node)
  if self:kind(node) ~= "model" then
    self:problem(self.reader:last_return(), "spec", nil, "must return a model", fields.show(node),
      "return kv.model { ... }")
    return nil
  end
  local model = self:record(node, "model", fields.of("model"), "model")
  if self.faulty[node] then return nil end
  self:model_rules(model, node)
  local M = { model = model }
  if model.targets ~= nil then
    model.targets = self:list_field(model.targets, "model", node, fields.find("model", "targets"))
  end
  local by_name = {}
  if model.types ~= nil then
    M.types, by_name = self:types_field(model.types, "model", node, nil, model)
  end
  for _, name in ipairs { "layers", "draft_layers" } do
    local list = model[name]
    if list ~= nil then
      M[name] = self:layers_field(list, "model", node, fields.find("model", name), by_name)
    end
    model[name] = nil
  end
  model.types = nil
  return M
end

--[[
check(node, book, reader) -> M, problems

node      what the spec returned
book      spec.lua's record of the run; reader: source.lua's, for lines
M         model, types (by name), layers, draft_layers; valid only if `problems` is empty
problems  array of { line, text }, in order of line
]]
return function(node, book, reader)
  local self = setmetatable({
    book = book, reader = reader, problems = {}, seen = {}, faulty = {},
  }, checker)
  self:constructors()
  local M = self:model(node)
  table.sort(self.problems, function(a, b)
    if a.line ~= b.line then return a.line < b.line end
    return a.order < b.order
  end)
  return M, self.problems
end
