-- Rows and state arrays by name, so that no template computes an address.
--
--   row r of page `id` lies at base + id * stride + offset(field) + r * row stride   (per field)
local place = {}

local field_element = { e4m3 = "e4m3", bf16 = "bf16", f32 = "f32", ue8m0 = "ue8m0", e2m1 = "e2m1x2", pad = "u8" }

local Row = {}
Row.__index = Row

-- A pointer to the first element of a field of this row.
function Row:field(name)
  local field = self.place.field[name]
  if not field then error("rows of this place have no field '" .. tostring(name) .. "'", 2) end
  local page = self.pages[field.plane]
  return page:bytes(self.number * field.stride):bytes(field.offset):as(field_element[field.dtype])
end

function Row:has(name) return self.place.field[name] ~= nil end
function Row:count(name) return self.place.field[name].count end

-- The row `r` (u64) of page `id` (u64) of a place; `p` holds the kernel's parameters.
-- Page addresses are computed here, once, however many fields are used.
function place.rows(where, p, id, r)
  local pages = {}
  for _, plane in ipairs(where.planes) do
    pages[plane.name] = p[plane.name]:bytes(id * p[plane.name .. "_stride"])
  end
  return setmetatable({ place = where, pages = pages, number = r }, Row)
end

-- A pointer to a slot's part of a state array: array(p, "swa_pos", slot [, layer]).
function place.array(p, name, slot, layer)
  local at = p[name]:bytes(slot * p[name .. "_stride"])
  if layer then at = at:bytes(layer * p[name .. "_layer_stride"]) end
  return at
end

return place
