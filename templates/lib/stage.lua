-- Rows as stored, on their way through shared memory: cp.async brings them, 16 bytes an access, while
-- the threads do something else; later they are read back from there (stored.lua).
--
-- A staged row holds the place's fields that are vectors (nope and rope, or codes) one after the
-- other. Rows whose bytes divide 128 are packed, others lie 64 bytes more than a multiple of 128
-- apart: reads of 64 bytes side by side from each of two rows meet every bank once. Scales are staged
-- apart, packed row by row.
local stage = {}

local bits = { e4m3 = 8, bf16 = 16, e2m1 = 4, ue8m0 = 8, f32 = 32 }
local function bytes_of(field) return field.count * bits[field.dtype] // 8 end
local function up(n, multiple) return (n + multiple - 1) // multiple * multiple end

-- The widest access that a row's scales allow, whatever the row; nil where it is below four bytes,
-- the least that cp.async moves.
local function width_of(field)
  for _, width in ipairs { 16, 8, 4 } do
    if field.offset % width == 0 and field.stride % width == 0 then return width end
  end
end

--[[
How rows of a place are staged:
  pieces   { field, bytes, to }: what lies together in memory, and where in a staged row it goes
  at       offset of each of those fields in a staged row
  bytes    of a row; stride: between staged rows
  scale    nil, or { bytes, width }: of a row's staged scales, of an access; width nil: by plain loads
]]
function stage.plan(place)
  local plan, last = { pieces = {}, at = {}, bytes = 0 }, nil
  for _, field in ipairs(place.fields) do
    if field.name == "scale" then
      local width, bytes = width_of(field), bytes_of(field)
      plan.scale = { width = width, bytes = up(bytes, width or 4), count = field.count }
    elseif field.name ~= "pad" then
      local piece, bytes = plan.pieces[#plan.pieces], bytes_of(field)
      plan.at[field.name] = plan.bytes
      if last and last.plane == field.plane and last.stride == field.stride
        and last.offset + bytes_of(last) == field.offset then
        piece.bytes = piece.bytes + bytes
      else
        plan.pieces[#plan.pieces + 1] = { field = field.name, bytes = bytes, to = plan.bytes }
      end
      plan.bytes, last = plan.bytes + bytes, field
    end
  end
  plan.stride = 128 % plan.bytes == 0 and plan.bytes or up(plan.bytes + 64, 128) - 64
  return plan
end

-- Start copying `bytes` bytes, `width` an access, by `lanes` threads of which this is number `lane`.
-- Where `live` does not hold nothing is read and zeros are written.
function stage.copy(to, from, bytes, width, lane, lanes, live)
  local name, size = "cp_async" .. width, live:select(const(u32, width), 0)
  to, from = to:as(u8):bytes(lane * width), from:as(u8):bytes(lane * width)
  local count = bytes // width
  for first = 0, count - 1, lanes do
    local function one() asm(name, to:bytes(first * width), from:bytes(first * width), size) end
    if first + lanes <= count then one() else when(lane:lt(count - first), one) end
  end
end

-- Scales too narrow for cp.async, by one thread of the row.
local function copy_scales(plan, row, to, lane, live)
  when(lane:eq(0), function()
    local from = row:field("scale")
    for i = 0, plan.scale.count - 1 do
      local value = variable(ue8m0, const(u8, 0):bits(ue8m0))
      when(live, function() value:set(from:at(i):load()) end)
      to:as(ue8m0):at(i):store(value:get())
    end
  end)
end

-- Start copying a row: its vectors to `to`, its scales to `scales` (both in shared memory). A row
-- that is not `live` becomes zeros and is not read.
function stage.fetch(plan, row, to, scales, lane, lanes, live)
  for _, piece in ipairs(plan.pieces) do
    stage.copy(to:as(u8):bytes(piece.to), row:field(piece.field), piece.bytes, 16, lane, lanes, live)
  end
  if plan.scale and plan.scale.width then
    stage.copy(scales, row:field("scale"), plan.scale.bytes, plan.scale.width, lane, lanes, live)
  elseif plan.scale then
    copy_scales(plan, row, scales, lane, live)
  end
end

-- Wait for all that this thread has started; a barrier makes it the block's.
function stage.wait() asm("cp_async_wait_all") end

return stage
