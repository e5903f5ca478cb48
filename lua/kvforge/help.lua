-- The text of `kvforge help spec`, from the field table.
local fields = require "kvforge.fields"
local formats = require "kvforge.formats"

local WIDTH = 96

local intro = [[
A spec is a Lua file that returns kv.model { ... }. It runs in a closed environment: no files, no
other modules than kvforge, limits on instructions and memory.

  local kv = require "kvforge"
  return kv.model {
    name = "small", heads = 16, max_positions = 65536,
    types = {
      swa = kv.layer_type { head_dim = 512, rope_dim = 64, window = 128, ratio = 0,
                            format = "fp8_token", rope = kv.rope { theta = 10000 } },
    },
    layers = { kv.of("swa", 4) },
  }
]]

local sections = {
  { level = "model", title = "kv.model { ... }" },
  { level = "layer type",
    title = "kv.layer_type { ... }   tables before the named fields are merged in, left to right" },
  { level = "rope", title = "kv.rope { theta }, kv.yarn { ... }" },
  { level = "indexer", title = "kv.indexer { ... }" },
}

local lists = [[
In layers and draft_layers

  "name"                     one layer
  kv.of("name", n)           n layers
  kv.alternate(n, "a", "b")  n times a layer a and a layer b
]]

-- Break `text` into lines of at most WIDTH columns, each after `indent` spaces.
local function wrap(text, indent)
  local lines, line = {}, ""
  for word in text:gmatch("%S+") do
    if #line + 1 + #word > WIDTH - indent then
      lines[#lines + 1] = line
      line = word
    else
      line = line == "" and word or line .. " " .. word
    end
  end
  lines[#lines + 1] = line
  return (" "):rep(indent) .. table.concat(lines, "\n" .. (" "):rep(indent))
end

local function default_text(field)
  if field.required then return "required" end
  if field.default == nil then return "may be left out" end
  if type(field.default) ~= "table" then return "default " .. tostring(field.default) end
  return "default { " .. (#field.default > 0 and fields.show(field.default[1]) or "") .. " }"
end

local function entry(field)
  local unit = field.unit and (" (%s)"):format(field.unit) or ""
  local text = ("%s%s; %s"):format(fields.allowed(field), unit, default_text(field))
  if field.yarn then text = "kv.yarn only; " .. text end
  local why = field.why and ("; " .. field.why) or ""
  return ("  %s\n%s\n%s"):format(field.name, wrap(field.meaning .. why, 6), wrap(text, 6))
end

local function all_formats()
  local names = formats.names "latent"
  table.move(formats.names "index", 1, #formats.names "index", #names + 1, names)
  table.sort(names)
  return names
end

return function()
  local out = { intro }
  for _, section in ipairs(sections) do
    out[#out + 1] = section.title .. "\n"
    for _, field in ipairs(fields.of(section.level)) do out[#out + 1] = entry(field) end
    out[#out + 1] = ""
  end
  out[#out + 1] = lists
  out[#out + 1] = "Row formats\n"
  for _, name in ipairs(all_formats()) do
    out[#out + 1] = ("  %-15s%s"):format(name, (wrap(formats[name].meaning, 17):gsub("^ +", "")))
  end
  out[#out + 1] = "\nRules between fields\n"
  for _, rule in ipairs(fields.rules) do out[#out + 1] = wrap(rule, 2) end
  return table.concat(out, "\n") .. "\n"
end
