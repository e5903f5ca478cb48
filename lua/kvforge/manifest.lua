-- The text of manifest.json. Its words are defined in docs/manifest.md.
local json = require "kvforge.json"

local FORMAT = 1

local function pick(from, names)
  local picked = {}
  for name in names:gmatch("%S+") do picked[name] = from[name] end
  return picked
end

local function picked_list(list, names)
  local picked = {}
  for i, entry in ipairs(list) do picked[i] = pick(entry, names) end
  return picked
end

local function place_object(place)
  local object = pick(place, "name id rows row_bytes page_bytes")
  object.planes = picked_list(place.planes, "name page_bytes align")
  object.fields = picked_list(place.fields, "name plane dtype count offset stride")
  return object
end

local function type_object(T)
  local object = pick(T, "name head_dim rope_dim nope_dim window ratio overlap format ring k rope"
    .. " layers draft_layers bytes")
  object.indexer = T.indexer and pick(T.indexer, "heads dim topk format")
  object.places = {}
  for i, place in ipairs(T.places) do object.places[i] = place_object(place) end
  object.state = picked_list(T.state, "name dtype shape init slot_bytes align")
  return object
end

local function type_objects(M)
  local objects = {}
  for i, T in ipairs(M.types) do objects[i] = type_object(T) end
  return objects
end

local function module_objects(build)
  local objects = {}
  for i, module in ipairs(build.modules) do
    objects[i] = pick(module, "type target file ptx driver kernels")
    objects[i].bytes = #module.text
    objects[i].sha256 = build.sha256(module.text)
  end
  table.sort(objects, function(a, b)
    if a.type ~= b.type then return a.type < b.type end
    return a.target < b.target
  end)
  return objects
end

--[[
manifest(M, build) -> text, digest

M      the resolved model
build  version, llvm   texts
       sha256          function(text) -> hex digits
       modules         array of { type, target, file, text, ptx, driver, kernels }; the bytes and the
                       digest are taken from `text`, all else is written as it is
]]
return function(M, build)
  local model = {
    model = M.model, types = type_objects(M), layers = M.layers, draft_layers = M.draft_layers,
  }
  local root = pick(model, "model types layers draft_layers")
  root.format, root.kvforge, root.llvm = FORMAT, build.version, build.llvm
  root.digest = build.sha256(json.encode(model))
  root.bytes, root.arena = M.bytes, M.arena
  root.modules = module_objects(build)
  return json.encode(root) .. "\n", root.digest
end
