-- The rows of a token's list: where each lies, and its way into a tile of bf16 in shared memory. A
-- list is window rows first, then compressed rows; both places have the same fields, each its own
-- pages. Rows are fetched a tile ahead: bf16 straight into the other of two tiles, quantised rows into
-- a stage, from where expand() fills the one tile there is.
local stage = require "stage"
local stored = require "stored"
local tensor = require "tensor"

local gather = { TILE = 32 }

local TILE = gather.TILE

-- What a gather keeps in shared memory, as offsets in bytes; `tiles` 1 or 2. Without a second tile
-- bf16 rows are fetched when they are wanted.
function gather.plan(T, tiles)
  local plan = stage.plan(T.place.window)
  plan.direct, plan.tiles = not T.place.window.scale, tiles
  plan.tile_stride = T.head_dim + tensor.PAD
  local bytes = 0
  local function take(name, n) plan[name], bytes = bytes, bytes + n end
  take("tile_at", tiles * TILE * plan.tile_stride * 2)
  if not plan.direct then
    take("rows_at", TILE * plan.stride)
    take("scales_at", TILE * plan.scale.bytes)
  end
  take("numbers_at", 2 * TILE * 4)
  plan.shared = bytes
  return plan
end

-- The row a row number (u32) names in a place.
local function row_of(place, p, number)
  return rows(place, p, (number // place.rows):to(u64), (number % place.rows):to(u64))
end

-- A gather by all `threads` of a block: list positions below `total`, the first `window` of them
-- window rows. `memory`: plan.shared bytes of shared memory.
function gather.open(T, p, plan, list, window, total, threads, memory)
  local lanes, thread = threads // TILE, thread_id()
  local g = { T = T, p = p, plan = plan, list = list, window = window, total = total,
    threads = threads, lanes = lanes, lane = thread % lanes, row = thread // lanes,
    memory = memory:as(u8), number = variable(i32, -1) }
  g.numbers = g.memory:bytes(plan.numbers_at):as(i32)
  return g
end

-- Which of the two tiles, or of the two lists of numbers, belongs to the tile from `first` on.
local function parity(first) return (first // TILE) & 1 end

-- The tile of list positions `first` .. `first` + 31.
function gather.tile(g, first)
  local tile = g.memory:bytes(g.plan.tile_at):as(bf16)
  if g.plan.tiles == 1 then return tile end
  return tile:at(parity(first) * (TILE * g.plan.tile_stride))
end

-- A tile's memory that the fetch of the tile from `first` on leaves alone.
function gather.idle(g, first)
  if g.plan.tiles == 2 then first = first + TILE end
  return gather.tile(g, first)
end

-- Look up the row number that the next fetch, of the tile from `first` on, needs: early, so that nobody
-- waits for it then.
function gather.look(g, first)
  local position = first + g.row
  local found = g.list:at(imin(position, g.total - 1)):load()
  g.number:set(position:lt(g.total):select(found, -1))
end

-- Start fetching the tile that was looked up: zeros for positions beyond the list and rows that are -1.
function gather.fetch(g, first)
  local T, plan, number = g.T, g.plan, g.number:get()
  local lane, row = g.lane, g.row
  local live = number:ge(0)
  local at = live:select(number, 0):to(u32)
  when(lane:eq(0), function()
    g.numbers:at(parity(first) * TILE):at(row):store(number)
  end)
  local to, scales
  if plan.direct then
    to = gather.tile(g, first):at(row * plan.tile_stride)
  else
    to = g.memory:bytes(plan.rows_at):bytes(row * plan.stride)
    scales = g.memory:bytes(plan.scales_at):bytes(row * plan.scale.bytes)
  end
  local function of(place)
    stage.fetch(plan, row_of(place, g.p, at), to, scales, lane, g.lanes, live)
  end
  if T.place.compressed then
    when((first + row):lt(g.window) | ~live, function() of(T.place.window) end,
      function() of(T.place.compressed) end)
  else
    of(T.place.window)
  end
end

-- Vectors of eight elements, eight of them a step: eight threads side by side take a step of a row.
local function expand_nope(plan, sub, step, count, row, tile, scale)
  local v = sub + 8 * step
  local function one()
    local words = row:bytes(v * 8):bytes(plan.at.nope):as(u32):load(2)
    tile:at(v * 8):as(u32):store(stored.e4m3(words, scale(step)))
  end
  if count >= 8 * (step + 1) then one() else when(v:lt(count), one) end
end

local function expand_rope(plan, sub, step, count, row, tile)
  local v = sub + 8 * step
  local function one() tile:at(v * 8):as(u32):store(row:bytes(v * 16):bytes(plan.at.rope):as(u32):load(4)) end
  if count >= 8 * (step + 1) then one() else when(v:lt(count), one) end
end

-- One of `parts` shares of a row: its steps number part, part + parts, ...
local function expand_row(g, sub, r, part, parts)
  local T, plan = g.T, g.plan
  local nope, rope = T.nope_dim // 8, T.rope_dim // 8
  local row = g.memory:bytes(plan.rows_at):bytes(r * plan.stride)
  local tile = g.memory:bytes(plan.tile_at):as(bf16):at(r * plan.tile_stride)
  local scales = g.memory:bytes(plan.scales_at):bytes(r * plan.scale.bytes)
  local scale = stored.scales(T.place.window, scales, plan.scale.bytes)
  local steps = (nope + 7) // 8
  for step = part, steps + (rope + 7) // 8 - 1, parts do
    if step < steps then
      expand_nope(plan, sub, step, nope, row, tile, scale)
    else
      expand_rope(plan, sub, step - steps, rope, row, tile:at(T.nope_dim))
    end
  end
end

-- Fill the tile from the stage; a barrier must stand before and behind.
function gather.expand(g)
  local thread = thread_id()
  local sub, r, parts = thread & 7, (thread >> 3) & (TILE - 1), g.threads // (8 * TILE)
  if parts <= 1 then
    for first = 0, TILE - 1, g.threads // 8 do expand_row(g, sub, r + first, 0, 1) end
  else
    local mine = warp_id() // (8 * TILE // 32)
    for part = 0, parts - 1 do
      when(mine:eq(part), function() expand_row(g, sub, r, part, parts) end)
    end
  end
end

-- Whether the four list positions from position first + `at` on (`at` a multiple of 4) name rows, once
-- the tile is there.
function gather.are_rows(g, first, at)
  local found = g.numbers:at(parity(first) * TILE):at(at):load(4)
  for i = 1, 4 do found[i] = found[i]:ge(0) end
  return found
end

return gather
