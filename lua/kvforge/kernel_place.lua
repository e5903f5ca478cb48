-- Rows and state arrays by name, so that no template computes an address.
--
--   row r of page `id` lies at base + id * stride + offset(field) + r * row stride   (per field)
local ir = require "ir"

local place = {}

local field_element = {
  e4m3 = "e4m3", bf16 = "bf16", f32 = "f32", ue8m0 = "ue8m0", e2m1 = "e2m1x2", pad = "u8",
}

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

-- What is stored goes to every destination of a row: one, or with place.several as many as hold.
function Row:each(store) store(self) end

local Several = {}
Several.__index = Several
function Several:has(name) return self.place.field[name] ~= nil end
function Several:count(name) return self.place.field[name].count end
function Several:each(store)
  for _, part in ipairs(self.parts) do
    ir.when(part.condition, function() store(part.row) end)
  end
end

-- One row in several places of the same format: parts { row =, condition = }, each stored where its
-- condition holds. A condition must be the same in the whole warp.
function place.several(parts)
  return setmetatable({ place = parts[1].row.place, parts = parts }, Several)
end

-- The row `r` (u64) of page `id` (u64) of a place; `p` holds the kernel's parameters.
-- Page addresses are computed here, once, however many fields are used.
-- `prefix` stands before the planes' parameter names, for a second place of the same format.
function place.rows(where, p, id, r, prefix)
  local pages = {}
  for _, plane in ipairs(where.planes) do
    local name = (prefix or "") .. plane.name
    pages[plane.name] = p[name]:bytes(id * p[name .. "_stride"])
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
