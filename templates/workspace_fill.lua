-- workspace_fill: the rows before a long chunk into the workspace, so that attention reads window
-- rows from one place. Of every request the last window - 1 positions before its first token of
-- this launch; positions before the sequence and rows that are not backed are left alone. One warp a
-- row, four rows a block. Rows move as they are stored.
local window = require "window"

local ROWS = 4

-- Copy a field of a row, each lane the widest access that alignment and size allow.
local function copy_field(from, to, name)
  local field = from.place.field[name]
  local bits = { e2m1 = 4, bf16 = 16, f32 = 32 }
  local bytes = field.count * (bits[field.dtype] or 8) // 8
  local source, target = from:field(name):as(u8), to:field(name):as(u8)
  local unit = math.min(16, source:multiple(), target:multiple())
  while bytes % unit ~= 0 do unit = unit // 2 end
  local element, count = u8, 1
  if unit >= 4 then element, count = u32, unit // 4 elseif unit == 2 then element = u16 end
  for first = 0, bytes // unit - 1, 32 do
    local lanes = math.min(32, bytes // unit - first)
    local function copy()
      local at = (lane_id() + first) * unit
      target:bytes(at):as(element):store(source:bytes(at):as(element):load(count))
    end
    if lanes == 32 then copy() else when(lane_id():lt(lanes), copy) end
  end
end

return kernel {
  name = "workspace_fill",
  job = "each request's last window - 1 rows before the launch, into the workspace",
  block = 32 * ROWS,
  -- A window of one token has nothing before the launch.
  variants = function(T) return T.window > 1 and { { name = "workspace_fill" } } or {} end,
  grid = function(T) return { per("requests"), (T.window - 1 + ROWS - 1) // ROWS } end,

  params = function(T) return {
    value("tokens", u32), value("requests", u32), window.mode(T).counts(),
    input("position", i32, "[tokens]"), input("cu_tokens", i32, "[requests + 1]"),
    window.mode(T).tables(),
    planes(T.place.window, "in"), planes(T.place.window, "out", window.WORKSPACE),
  } end,

  build = function(T, p)
    local request, i = block_id("x"), block_id("y") * ROWS + warp_id()
    local first = p.cu_tokens:at(request):load():to(u32)
    local end_ = p.cu_tokens:at(request):at(1):load():to(u32)
    return_if(i:ge(T.window - 1) | first:ge(end_) | end_:gt(p.tokens))
    -- Padding is below 0 as well. Nothing is subtracted before the test: it would wrap.
    local start, back = p.position:at(first):load(), const(i32, T.window - 1) - i:to(i32)
    return_if(start:lt(back))
    local from, found = window.mode(T).find(T, p, request, (start - back):to(u32))
    return_if(~found)
    local to = window.workspace_row(T, p, first + request * (T.window - 1) + i)
    for _, field in ipairs(T.place.window.fields) do copy_field(from, to, field.name) end
  end,
}
