-- attn: attention of a token's heads over one split of its list of rows. Key and value are the same
-- row. A block takes a group of heads; while it works on a tile of 32 rows, the next one is fetched.
-- Four warps share 16 heads: warp w scores rows 8 w .. 8 w + 7 of a tile and owns a quarter of the
-- output's dims. docs/kernels.md states the order of every operation.
local tensor = require "tensor"
local gather = require "gather"
local stage = require "stage"
local exp2 = require "exp2"

local TILE = gather.TILE
local HEADS = 16        -- of four warps
local MOST_GROUPS = 4   -- groups of 16 heads in a block

-- ---- what fits a chip ----

-- Heads, tiles and shared memory of a block that takes `groups` times 16 heads.
local function shape(T, groups, tiles)
  local heads, rows = HEADS * groups, gather.plan(T, tiles)
  local q = 2 * heads * (T.head_dim + tensor.PAD)
  local probs = 2 * heads * (TILE + tensor.PAD)
  return { groups = groups, heads = heads, warps = 4 * groups, rows = rows, rows_at = q,
    probs_at = q + rows.shared, maxima_at = q + rows.shared + probs,
    shared = q + rows.shared + probs + 2 * (4 * 4 * heads) }
end

-- Every row that a block brings in serves all its heads: as many as there are and as fit, with what
-- is needed to fetch ahead; bf16 rows can do without. Nil if not even one group fits.
local function plan(T, limit)
  local needed = (T.model.heads + HEADS - 1) // HEADS
  for tiles = T.format == "bf16" and 2 or 1, 1, -1 do
    local groups = MOST_GROUPS
    while groups >= 2 * needed do groups = groups // 2 end
    while groups > 0 do
      local fits = shape(T, groups, tiles)
      if fits.shared <= limit then return fits end
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
    or error(("attn needs %d bytes of shared memory"):format(shape(T, 1, 1).shared))
end

-- ---- together ----

local function sum(a, b) return a + b end

-- Combine over the four lanes of a row: lane xor 1, then 2.
local function over_quad(x, combine)
  for _, distance in ipairs { 1, 2 } do x = combine(x, shuffle_xor(x, distance)) end
  return x
end

-- What the four lanes of a row have in common, stored by the first.
local function store_once(w, at, value) when(w.column:eq(0), function() at:store(value) end) end

-- Where a warp stands: `group` of heads, `quarter` within it, the lane's fragment row and column.
local function place_of_warp()
  local lane = lane_id()
  return { group = warp_id() >> 2, quarter = warp_id() & 3, row = lane >> 2, column = (lane & 3) * 2 }
end

-- Start fetching the queries; heads beyond the model's become zeros.
local function fetch_queries(T, p, s, token, first_head, q, row_stride)
  local per_row = T.head_dim // 8
  local from = p.q:bytes(token:to(u64) * p.q_stride)
  loop(u32, thread_id(), s.heads * per_row, 32 * s.warps, function(i)
    local head, v = i // per_row, i % per_row
    local live = (first_head + head):lt(p.heads)
    local at = live:select(first_head + head, 0):to(u64) * T.head_dim
    stage.copy(q:at(head * row_stride):at(v * 8), from:at(at):at(v * 8), 16, 16, const(u32, 0), 1, live)
  end)
end

-- This warp's scores of its eight rows of the tile: rows row, row + 8 of the heads, two columns each.
local function score(T, w, q, tile, stride)
  local mine = q:at(w.group * (HEADS * stride))
  local keys = tile:at(w.quarter * (8 * stride))
  local s = tensor.zeros()
  for k = 0, T.head_dim - 1, 32 do
    local b = tensor.b_long(keys:at(k), stride)
    s = tensor.mma(tensor.a(mine:at(k), stride), b[1], b[2], s)
    s = tensor.mma(tensor.a(mine:at(k + 16), stride), b[3], b[4], s)
  end
  return s
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
      :format(T.format, T.head_dim % 64 == 0 and shape(T, 1, 1).shared or 0) },
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
    local thread, w = thread_id(), place_of_warp()
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

    local row_stride, p_stride = T.head_dim + tensor.PAD, TILE + tensor.PAD
    local memory = dynamic_shared(u8)
    local q = memory:as(bf16)
    local probs = memory:bytes(s.probs_at):as(bf16)
    -- Per head and quarter: the tile's maximum and sum.
    local maxima = memory:bytes(s.maxima_at):as(f32)
    local sums = maxima:at(4 * s.heads)
    local list = p.rows:at(token:to(u64) * p.list_stride:to(u64))
    local scale = p.scale * exp2.LOG2E
    local n_tiles = T.head_dim // 4 // 8
    local o = {}
    for j = 1, n_tiles do o[j] = tensor.accumulator() end
    local m = { variable(f32, -math.huge), variable(f32, -math.huge) }
    local l = { variable(f32, 0.0), variable(f32, 0.0) }
    local rows = gather.open(T, p, s.rows, list, window, total, 32 * s.warps, memory:bytes(s.rows_at))
    local ahead = not s.rows.direct or s.rows.tiles == 2
    -- The four warps of 16 heads wait for each other.
    local function group_barrier()
      if s.groups == 1 then barrier() else asm("barrier_some", w.group + 1, const(u32, 128)) end
    end

    gather.look(rows, begin)
    if ahead then gather.fetch(rows, begin) end
    fetch_queries(T, p, s, token, first_head, q, row_stride)

    loop(u32, begin, total, TILE, function(first)
      if not ahead then
        barrier()
        gather.fetch(rows, first)
      end
      stage.wait()
      barrier()
      if not s.rows.direct then
        gather.expand(rows)
        barrier()
      end
      if ahead then when((first + TILE):lt(total), function() gather.fetch(rows, first + TILE) end) end

      local tile = gather.tile(rows, first)
      local dots = score(T, w, q, tile, row_stride)
      local live = gather.are_rows(rows, first, w.quarter * 8 + w.column)
      local x, head = {}, {}
      for r = 1, 2 do
        head[r] = w.group * HEADS + w.row + 8 * (r - 1)
        x[r] = {}
        for c = 1, 2 do x[r][c] = live[c]:select(dots[2 * (r - 1) + c] * scale, -math.huge) end
        store_once(w, maxima:at(head[r] * 4 + w.quarter), over_quad(max(x[r][1], x[r][2]), max))
      end
      group_barrier()
      local alpha = {}
      for r = 1, 2 do
        local before = m[r]:get()
        local most = before
        for _, value in ipairs(maxima:at(head[r] * 4):load(4)) do most = max(most, value) end
        local base = most:eq(-math.huge):select(0.0, most)
        m[r]:set(most)
        alpha[r] = exp2.exp2(before - base)
        local weights = { exp2.exp2(x[r][1] - base), exp2.exp2(x[r][2] - base) }
        store_once(w, sums:at(head[r] * 4 + w.quarter), over_quad(weights[1] + weights[2], sum))
        probs:at(head[r] * p_stride + w.quarter * 8 + w.column):as(u32)
          :store(asm("cvt_bf16x2", weights[2], weights[1]))
        for j = 1, n_tiles do
          for h = 2 * r - 1, 2 * r do o[j][h]:set(o[j][h]:get() * alpha[r]) end
        end
      end
      group_barrier()
      for r = 1, 2 do
        local parts = sums:at(head[r] * 4):load(4)
        l[r]:set(l[r]:get() * alpha[r] + (parts[1] + parts[2] + parts[3] + parts[4]))
      end
      local mine = tile:at(w.quarter * (T.head_dim // 4))
      for k = 0, TILE - 1, 16 do
        local a = tensor.a(probs:at(w.group * (HEADS * p_stride)):at(k), p_stride)
        for j = 1, n_tiles, 2 do
          local b = tensor.b_rows(mine:at(k * row_stride):at((j - 1) * 8), row_stride)
          tensor.set(o[j], tensor.mma(a, b[1], b[2], tensor.get(o[j])))
          tensor.set(o[j + 1], tensor.mma(a, b[3], b[4], tensor.get(o[j + 1])))
        end
      end
    end)

    for r = 1, 2 do
      local head = first_head + w.group * HEADS + w.row + 8 * (r - 1)
      when(head:lt(p.heads), function()
        local row = p.part_o:at((part + head:to(u64)) * T.head_dim):at(w.quarter * (T.head_dim // 4))
        for j = 1, n_tiles do
          row:at(w.column):at((j - 1) * 8):store { o[j][2 * r - 1]:get(), o[j][2 * r]:get() }
        end
        when((lane_id() & 3):eq(0) & w.quarter:eq(0), function()
          out_m:at(head):store(m[r]:get())
          out_l:at(head):store(l[r]:get())
        end)
      end)
    end
  end,
}
