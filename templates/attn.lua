-- attn: attention of a token's heads over one split of its list of rows. Key and value are the same
-- row. A block takes a group of heads; while it works on a tile of 32 rows, the next one is fetched.
-- Four warps share 16 heads, each a quarter of the dims: of the queries, which it keeps in registers,
-- of the keys, whose products the four add up, and of the output. docs/kernels.md states the order of
-- every operation.
local tensor = require "tensor"
local gather = require "gather"
local stage = require "stage"
local exp2 = require "exp2"

local TILE = gather.TILE
local HEADS = 16 -- of four warps
-- Heads are apart in shared memory by so many bf16 weights or f32 products of a tile: accesses of
-- several heads then meet every bank once.
local APART = TILE + 8

-- ---- what fits a chip ----

-- A block that takes `groups` times 16 heads, and what lies in its shared memory, as offsets in
-- bytes: rows (gather.lua), products of each quarter, weights, the factor of each head's output, and
-- the queries that no registers are spent on: the last `kept` times 16 dims of each quarter.
local function shape(T, groups, tiles, kept)
  local heads, rows = HEADS * groups, gather.plan(T, tiles)
  local s = { groups = groups, heads = heads, warps = 4 * groups, rows = rows, kept = kept,
    steps = T.head_dim // 4 // 16, kept_stride = 64 * kept + tensor.PAD }
  s.products_at = rows.shared
  s.weights_at = s.products_at + 4 * (4 * heads * APART)
  s.factors_at = s.weights_at + 2 * heads * APART
  s.kept_at = s.factors_at + 4 * heads
  s.shared = s.kept_at + (kept > 0 and 2 * heads * s.kept_stride or 0)
  return s
end

-- A thread keeps up to 3/16 head_dim registers of queries and outputs. With 512 dims it can just be
-- one of 512, and has some to spare where a few queries stay in shared memory.
local function most_groups(T) return T.head_dim <= 512 and 4 or 2 end
local function to_keep(T, groups) return T.head_dim == 512 and groups == 4 and 2 or 0 end

-- Every row that a block brings in serves all its heads: as many as there are and as fit, with what
-- is needed to fetch ahead; rows without scales (bf16) can do without. Nil if not even one group fits.
local function plan(T, limit)
  local needed = (T.model.heads + HEADS - 1) // HEADS
  for tiles = T.place.window.scale and 1 or 2, 1, -1 do
    local groups = most_groups(T)
    while groups >= 2 * needed do groups = groups // 2 end
    while groups > 0 do
      for kept = to_keep(T, groups), 0, -2 do
        local fits = shape(T, groups, tiles, kept)
        if fits.shared <= limit then return fits end
      end
      groups = groups // 2
    end
  end
end

-- Whether every chip that the model is for can have a block.
local function fits_all(T)
  for _, target in ipairs(T.model.targets) do
    local limit = shared_limit(target)
    if limit and not plan(T, limit) then return false end
  end
  return true
end

local function chosen(T)
  return plan(T, shared_limit())
    or error(("attn needs %d bytes of shared memory"):format(shape(T, 1, 1, 0).shared))
end

-- ---- together ----

-- Combine over the eight lanes of a head: lane xor 1, 2, 4.
local function over_eight(x, combine)
  for _, distance in ipairs { 1, 2, 4 } do x = combine(x, shuffle_xor(x, distance)) end
  return x
end

-- Where a thread stands. `group` of heads, `quarter` of the dims; `row`, `column` of its fragments.
-- In the softmax a warp has heads quarter, quarter + 4, + 8, + 12 of its group, eight lanes each:
-- `head`, and four of the tile's rows from `first_row` on; `first` of the eight or not.
local function place()
  local lane, group, quarter = lane_id(), warp_id() >> 2, warp_id() & 3
  return { group = group, quarter = quarter, row = lane >> 2, column = (lane & 3) * 2,
    head = group * HEADS + quarter + (lane >> 3) * 4, first_row = (lane & 7) * 4,
    first = (lane & 7):eq(0) }
end

-- This warp's part of the queries as A operands, 16 dims each: by way of a tile's memory, 32 heads at
-- a time; heads beyond the model's are zeros.
local function load_queries(T, p, s, w, token, first_head, memory, kept)
  local stride, per_row, quarter = s.rows.tile_stride, T.head_dim // 8, T.head_dim // 4
  local from, queries = p.q:bytes(token:to(u64) * p.q_stride), {}
  -- Start copying vector v of a head to where it waits.
  local function copy(head, v, to)
    local live = (first_head + head):lt(p.heads)
    local at = live:select(first_head + head, 0):to(u64) * T.head_dim
    stage.copy(to, from:at(at):at(v * 8), 16, 16, const(u32, 0), 1, live)
  end
  if s.kept > 0 then
    local of_quarter = 2 * s.kept
    loop(u32, thread_id(), s.heads * (4 * of_quarter), 32 * s.warps, function(i)
      local head, v = i // (4 * of_quarter), i % (4 * of_quarter)
      copy(head, v // of_quarter * (quarter // 8) + v % of_quarter + (quarter // 8 - of_quarter),
        kept:at(head * s.kept_stride):at(v * 8))
    end)
  end
  for i = 1, s.steps - s.kept do
    queries[i] = {}
    for r = 1, 4 do queries[i][r] = variable(u32, 0) end
  end
  for first = 0, s.heads - 1, TILE do
    local heads = math.min(TILE, s.heads - first)
    if first > 0 then barrier() end
    loop(u32, thread_id(), heads * per_row, 32 * s.warps, function(i)
      local head, v = i // per_row, i % per_row
      copy(head + first, v, memory:at(head * stride):at(v * 8))
    end)
    stage.wait()
    barrier()
    when((w.group >> 1):eq(first // TILE), function()
      local mine = memory:at((w.group & 1) * (HEADS * stride)):at(w.quarter * quarter)
      for i = 1, #queries do
        for r, value in ipairs(tensor.a(mine:at(16 * (i - 1)), stride)) do queries[i][r]:set(value) end
      end
    end)
  end
  return queries
end

-- The products of this warp's quarter of the dims, into shared memory.
local function multiply(T, s, w, queries, kept, tile, stride, products)
  local quarter = T.head_dim // 4
  local mine = kept:at(w.group * (HEADS * s.kept_stride)):at(w.quarter * (16 * s.kept))
  local out = products:at(w.quarter * (HEADS * APART)):at(w.row * APART):at(w.column)
  for first = 0, TILE - 1, 16 do
    local keys = tile:at(first * stride):at(w.quarter * quarter)
    local low, high = tensor.zeros(), tensor.zeros()
    for i = 1, s.steps do
      local a, b = {}, tensor.b_pair(keys:at(16 * (i - 1)), stride)
      if i <= #queries then
        for r = 1, 4 do a[r] = queries[i][r]:get() end
      else
        a = tensor.a(mine:at(16 * (i - 1 - #queries)), s.kept_stride)
      end
      low = tensor.mma(a, b[1], b[2], low)
      high = tensor.mma(a, b[3], b[4], high)
    end
    for r = 0, 1 do
      out:at(8 * r * APART):at(first):store { low[2 * r + 1], low[2 * r + 2] }
      out:at(8 * r * APART):at(first + 8):store { high[2 * r + 1], high[2 * r + 2] }
    end
  end
end

-- A lane's four scores: the quarters' products added in order, times the scale; masked where a list
-- position names no row.
local function scores(w, products, scale, live)
  local at, x = products:at((w.head & (HEADS - 1)) * APART):at(w.first_row), nil
  for quarter = 0, 3 do
    local part = at:at(quarter * (HEADS * APART)):load(4)
    if quarter == 0 then x = part else for i = 1, 4 do x[i] = x[i] + part[i] end end
  end
  for i = 1, 4 do x[i] = live[i]:select(x[i] * scale, -math.huge) end
  return x
end

-- The sum of a tile's weights: of each eight rows pairs first, then pairs of pairs; the four in order.
local function tile_sum(weights)
  local half = (weights[1] + weights[2]) + (weights[3] + weights[4])
  local eight, total = half + shuffle_xor(half, 1), nil
  for i = 0, 3 do
    local other = shuffle(eight, (lane_id() & 24) | (2 * i))
    if i == 0 then total = other else total = total + other end
  end
  return total
end

return kernel {
  name = "attn",
  job = "attention over a split of a token's list: weighted sum, maximum and denominator",
  block = function(T) return 32 * chosen(T).warps end,
  grid = function(T) return { per("tokens"), per("splits"), per("heads", chosen(T).heads) } end,
  shared = function(T) return chosen(T).shared end,

  rules = function(T) return {
    { T.head_dim % 64 == 0, "head_dim must be a multiple of 64" },
    { T.model.split_rows % TILE == 0, "split_rows must be a multiple of 32" },
    { T.head_dim % 64 ~= 0 or fits_all(T), ("16 heads and a tile of 32 rows of %s at this head_dim need "
      .. "%d bytes of shared memory, more than a block has on one of the targets")
      :format(T.format, T.head_dim % 64 == 0 and shape(T, 1, 1, 0).shared or 0) },
  } end,

  params = function(T) return {
    value("tokens", u32), value("heads", u32), value("splits", u32), value("list_stride", u32),
    value("scale", f32),
    input("q", bf16, "[tokens][heads][head_dim]", { align = 16 }), stride("q_stride", 16),
    input("rows", i32, "[tokens][list_stride]"), input("window_count", i32, "[tokens]"),
    input("entry_count", i32, "[tokens]"),
    planes(T.place.window, "in"),
    T.place.compressed and planes(T.place.compressed, "in") or {},
    output("part_o", f32, "[tokens][splits][heads][head_dim]", { align = 16 }),
    output("part_m", f32, "[tokens][splits][heads]"),
    output("part_l", f32, "[tokens][splits][heads]"),
  } end,

  build = function(T, p)
    local s = chosen(T)
    local token, split, first_head = block_id("x"), block_id("y"), block_id("z") * s.heads
    local thread, w = thread_id(), place()
    local window = p.window_count:at(token):load():to(u32)
    local length = window + p.entry_count:at(token):load():to(u32)
    local begin = split * T.model.split_rows
    local total = imin(length, begin + T.model.split_rows)
    local part = (token:to(u64) * p.splits:to(u64) + split:to(u64)) * p.heads:to(u64)
    local out_m, out_l = p.part_m:at(part), p.part_l:at(part)
    when(begin:ge(length) & thread:lt(s.heads) & (first_head + thread):lt(p.heads), function()
      out_m:at(first_head + thread):store(-math.huge)
      out_l:at(first_head + thread):store(0.0)
    end)
    return_if(begin:ge(length))

    local row_stride = s.rows.tile_stride
    local memory = dynamic_shared(u8)
    local products = memory:bytes(s.products_at):as(f32):at(w.group * (4 * HEADS * APART))
    local weights = memory:bytes(s.weights_at):as(bf16)
    local factors = memory:bytes(s.factors_at):as(f32)
    local kept = memory:bytes(s.kept_at):as(bf16)
    local list = p.rows:at(token:to(u64) * p.list_stride:to(u64))
    local scale = p.scale * exp2.LOG2E
    local n_tiles = T.head_dim // 4 // 8
    local o, m, l = {}, variable(f32, -math.huge), variable(f32, 0.0)
    for j = 1, n_tiles do o[j] = tensor.accumulator() end
    local rows = gather.open(T, p, s.rows, list, window, total, 32 * s.warps, memory)
    local ahead = not s.rows.direct or s.rows.tiles == 2
    -- The four warps of 16 heads wait for each other.
    local function group_barrier()
      if s.groups == 1 then barrier() else asm("barrier_some", w.group + 1, const(u32, 128)) end
    end

    gather.look(rows, begin)
    if ahead then gather.fetch(rows, begin) end
    local queries = load_queries(T, p, s, w, token, first_head, gather.idle(rows, begin),
      kept)

    loop(u32, begin, total, TILE, function(first)
      if not ahead then
        barrier()
        gather.fetch(rows, first)
      end
      gather.look(rows, first + TILE)
      stage.wait()
      barrier()
      if not s.rows.direct then
        gather.expand(rows)
        barrier()
      end
      if ahead then when((first + TILE):lt(total), function() gather.fetch(rows, first + TILE) end) end

      local tile = gather.tile(rows, first)
      multiply(T, s, w, queries, kept, tile, row_stride, products)
      group_barrier()
      local x = scores(w, products, scale, gather.are_rows(rows, first, w.first_row))
      local before = m:get()
      local most = max(before, over_eight(max(max(x[1], x[2]), max(x[3], x[4])), max))
      local base = most:eq(-math.huge):select(0.0, most)
      local factor, weight = exp2.falling(before - base), {}
      for i = 1, 4 do weight[i] = exp2.falling(x[i] - base) end
      m:set(most)
      l:set(l:get() * factor + tile_sum(weight))
      weights:at(w.head * APART):at(w.first_row):as(u32):store {
        asm("cvt_bf16x2", weight[2], weight[1]), asm("cvt_bf16x2", weight[4], weight[3]) }
      when(w.first, function() factors:at(w.head):store(factor) end)
      group_barrier()

      local heads = w.group * HEADS
      for r = 1, 2 do
        local alpha = factors:at(heads + 8 * (r - 1)):at(w.row):load()
        for j = 1, n_tiles do
          for h = 2 * r - 1, 2 * r do o[j][h]:set(o[j][h]:get() * alpha) end
        end
      end
      local mine = tile:at(w.quarter * (T.head_dim // 4))
      for k = 0, TILE - 1, 16 do
        local a = tensor.a(weights:at(heads * APART):at(k), APART)
        for j = 1, n_tiles, 2 do
          local b = tensor.b_rows(mine:at(k * row_stride):at((j - 1) * 8), row_stride)
          tensor.set(o[j], tensor.mma(a, b[1], b[2], tensor.get(o[j])))
          tensor.set(o[j + 1], tensor.mma(a, b[3], b[4], tensor.get(o[j + 1])))
        end
      end
    end)

    when(w.first & (first_head + w.head):lt(p.heads), function()
      out_m:at(first_head + w.head):store(m:get())
      out_l:at(first_head + w.head):store(l:get())
    end)
    for r = 1, 2 do
      local head = first_head + w.group * HEADS + w.row + 8 * (r - 1)
      when(head:lt(p.heads), function()
        local row = p.part_o:at((part + head:to(u64)) * T.head_dim):at(w.quarter * (T.head_dim // 4))
        for j = 1, n_tiles do
          row:at(w.column):at((j - 1) * 8):store { o[j][2 * r - 1]:get(), o[j][2 * r]:get() }
        end
      end)
    end
  end,
}
