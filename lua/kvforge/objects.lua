-- The resolved model as the objects that manifest.json and `kvforge explain --json` hold: the words of
-- docs/manifest.md and nothing else (templates see more, e.g. T.place).
local objects = {}

function objects.pick(from, names)
  local picked = {}
  for name in names:gmatch("%S+") do picked[name] = from[name] end
  return picked
end

local function picked_list(list, names)
  local picked = {}
  for i, entry in ipairs(list) do picked[i] = objects.pick(entry, names) end
  return picked
end

local function place_object(place)
  local object = objects.pick(place, "name id rows row_bytes page_bytes")
  object.planes = picked_list(place.planes, "name page_bytes align")
  object.fields = picked_list(place.fields, "name plane dtype count offset stride")
  return object
end

local function type_object(T)
  local object = objects.pick(T, "name head_dim rope_dim nope_dim window ratio overlap format ring k rope"
    .. " layers draft_layers bytes")
  object.indexer = T.indexer and objects.pick(T.indexer, "heads dim topk format")
  object.places = {}
  for i, place in ipairs(T.places) do object.places[i] = place_object(place) end
  object.state = picked_list(T.state, "name dtype shape init slot_bytes align")
  return object
end

-- What the digest of a model covers.
function objects.model(M)
  local types = {}
  for i, T in ipairs(M.types) do types[i] = type_object(T) end
  return { model = M.model, types = types, layers = M.layers, draft_layers = M.draft_layers }
end

return objects
