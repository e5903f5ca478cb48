-- Find and load the kernel templates: each chunk runs with the kernel language as its globals.
local host = require "host"
local guard = require "kvforge.guard"
local kernel = require "kvforge.kernel"
local ir = require "ir"

local templates = {}

local function load_chunk(path, environment)
  local text, chunkname, guarded = host.template_text(path)
  if not guarded then
    local rewritten, fault = guard.rewrite(text, chunkname:sub(2))
    if not rewritten then error(fault, 0) end
    text = rewritten
  end
  local chunk, fault = load(text, chunkname, "t", environment)
  if not chunk then error(fault, 0) end
  return chunk()
end

-- All templates, in order of name.
function templates.load()
  local loaded = {}
  local environment
  local function load_lib(name)
    if loaded[name] == nil then loaded[name] = load_chunk("lib/" .. name, environment) end
    return loaded[name]
  end
  environment = kernel.environment(guard.environment(ir.is_value), load_lib)
  local list = {}
  for _, name in ipairs(host.template_names()) do
    local template = load_chunk(name, environment)
    if type(template) ~= "table" or template.name ~= name then
      error(("templates/%s.lua does not return kernel { name = \"%s\", ... }"):format(name, name), 0)
    end
    list[#list + 1] = template
  end
  return list
end

-- The numbers of a layer type that a rule speaks of: "head_dim 64, rope_dim 8".
local function given(T, rule)
  local list, seen = {}, {}
  for word in rule:gmatch("[%a_]+") do
    if math.type(T[word]) == "integer" and not seen[word] then
      list[#list + 1], seen[word] = ("%s %d"):format(word, T[word]), true
    end
  end
  return #list > 0 and "; given " .. table.concat(list, ", ") or ""
end

-- What the layer types of M break of the templates' shape rules: an array of "file:line: ..." texts
-- like those of kvforge.load, every broken rule once.
function templates.broken(list, M, file)
  local broken = {}
  for _, T in ipairs(M.types) do
    for _, template in ipairs(list) do
      for _, rule in ipairs(#kernel.variants(template, T) > 0 and kernel.broken_rules(template, T) or {}) do
        broken[#broken + 1] = ("%s:%d: layer type \"%s\": %s%s"):format(file, T.line, T.name, rule,
          given(T, rule))
      end
    end
  end
  return broken
end

-- The same for whoever has no templates at hand.
function templates.judge(M) return templates.broken(templates.load(), M) end

return templates
