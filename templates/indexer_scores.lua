-- indexer_scores: every visible entry's score for a token: the weighted sum over the indexer's heads
-- of relu(q . key), keys as stored. A block scores 64 entries of one token; each of its four warps
-- takes all heads of 16 entries, on the tensor cores.
local tensor = require "tensor"
local stage = require "stage"
local stored = require "stored"

local ENTRIES, WARPS = 64, 4
local THREADS = 32 * WARPS

-- Heads come in tiles of 16; a tile that is not full counts heads of zeros.
local function tiles(T) return (T.indexer.heads + 15) // 16 end

-- What lies in shared memory, as offsets in bytes: queries, the keys as stored and their scales, the
-- keys as bf16.
local function plan(T)
  local rows, stride = stage.plan(T.place.index), T.indexer.dim + tensor.PAD
  local staged = 2 * 16 * tiles(T) * stride
  local scales = staged + ENTRIES * rows.stride
  local keys = (scales + ENTRIES * rows.scale.bytes + 15) // 16 * 16
  return { rows = rows, stride = stride, staged = staged, scales = scales, keys = keys,
    bytes = keys + 2 * ENTRIES * stride }
end

-- Whether every chip that the model is for has room.
local function fits_all(T)
  for _, target in ipairs(T.model.targets) do
    local limit = shared_limit(target)
    if limit and plan(T).bytes > limit then return false end
  end
  return true
end

-- Start fetching the token's queries, rows beyond the heads as zeros.
local function fetch_queries(T, p, token, memory, s)
  local heads, count = T.indexer.heads, T.indexer.dim // 8
  local from = p.q:at(token:to(u64) * (heads * T.indexer.dim))
  local q = memory:as(bf16)
  loop(u32, thread_id(), 16 * tiles(T) * count, THREADS, function(i)
    local head, v = i // count, i % count
    local live = head:lt(heads)
    stage.copy(q:at(head * s.stride):at(v * 8), from:at(live:select(i, 0) * 8), 16, 16, const(u32, 0), 1,
      live)
  end)
end

-- Start fetching the keys as stored; entries that are not visible or not backed as zeros.
-- `page_of(entry)` gives an entry's page, out of range where there is none.
local function fetch_keys(T, p, first, visible, page_of, memory, s)
  local lanes = 8
  while lanes > s.rows.bytes // 16 do lanes = lanes // 2 end
  local lane = thread_id() % lanes
  for past = 0, ENTRIES - 1, THREADS // lanes do
    local e = thread_id() // lanes + past
    local entry = first + e
    local page = variable(u32, 0xffffffff)
    when(entry:lt(visible), function() page:set(page_of(entry)) end)
    local live = page:get():lt(p.pages)
    local row = rows(T.place.index, p, live:select(page:get(), 0):to(u64), (entry % T.k):to(u64))
    stage.fetch(s.rows, row, memory:bytes(s.staged):bytes(e * s.rows.stride),
      memory:bytes(s.scales):bytes(e * s.rows.scale.bytes), lane, lanes, live)
  end
end

-- The keys that were fetched, as bf16.
local function expand_keys(T, memory, s)
  local count = T.indexer.dim // 8
  local keys = memory:bytes(s.keys):as(bf16)
  loop(u32, thread_id(), ENTRIES * count, THREADS, function(i)
    local e, v = i // count, i % count
    local row, scales = memory:bytes(s.staged):bytes(e * s.rows.stride),
      memory:bytes(s.scales):bytes(e * s.rows.scale.bytes)
    keys:at(e * s.stride):at(v * 8):as(u32):store(stored.index[T.indexer.format](row, scales, v))
  end)
end

-- This warp's 16 entries against all heads: per lane the weighted sums of columns 2c, 2c+1 of both
-- groups of eight entries, over the head rows g and g + 8 of every tile.
local function score_tile(T, p, token, q, keys)
  local stride, dim, heads = T.indexer.dim + tensor.PAD, T.indexer.dim, T.indexer.heads
  local mine = keys:at(warp_id() * (16 * stride))
  local weights = p.w:at(token:to(u64) * heads)
  local sums = { const(f32, 0.0), const(f32, 0.0), const(f32, 0.0), const(f32, 0.0) }
  local group = lane_id() >> 2
  for tile = 0, tiles(T) - 1 do
    local low, high = tensor.zeros(), tensor.zeros()
    for k = 0, dim - 1, 16 do
      local a = tensor.a(q:at(tile * 16 * stride):at(k), stride)
      local b = tensor.b_pair(mine:at(k), stride)
      low = tensor.mma(a, b[1], b[2], low)
      high = tensor.mma(a, b[3], b[4], high)
    end
    for half = 0, 1 do
      local head = group + (16 * tile + 8 * half)
      local weight = variable(f32, 0.0)
      when(head:lt(heads), function() weight:set(weights:at(head):load()) end)
      local w = weight:get()
      local dots = { low[1 + 2 * half], low[2 + 2 * half], high[1 + 2 * half], high[2 + 2 * half] }
      for i = 1, 4 do sums[i] = sums[i] + w * max(dots[i], 0.0) end
    end
  end
  for i = 1, 4 do
    for _, distance in ipairs { 16, 8, 4 } do sums[i] = sums[i] + shuffle_xor(sums[i], distance) end
  end
  return sums
end

return kernel {
  name = "indexer_scores",
  job = "the lightning indexer's scores of all visible entries",
  block = THREADS,
  shared = function(T) return plan(T).bytes end,
  grid = { per("tokens"), per("scores_stride", ENTRIES) },
  variants = function(T) return T.indexer and { { name = "indexer_scores" } } or {} end,

  rules = function(T) return {
    { T.indexer.dim % 64 == 0, "the indexer's dim must be a multiple of 64" },
    { T.indexer.dim % 64 ~= 0 or fits_all(T), "the queries of a token and 64 index keys need more shared "
      .. "memory than a block has on one of the targets" },
  } end,

  params = function(T) return {
    value("tokens", u32), value("requests", u32), value("pages", u32), value("table_stride", u32),
    value("scores_stride", u32), value("first", u32),
    input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
    input("q", bf16, "[tokens][indexer heads][indexer dim]", { align = 16 }),
    input("w", f32, "[tokens][indexer heads]"),
    input("block_table", i32, "[requests][table_stride]"),
    planes(T.place.index, "in"),
    output("scores", f32, "[tokens][scores_stride]"),
  } end,

  build = function(T, p)
    local token, tile = block_id("x"), block_id("y") * ENTRIES
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load()
    return_if(request:ge(p.requests) | position:lt(0))
    local visible = imin((position:to(u32) + 1) // T.ratio, p.first + p.scores_stride)
    local first = p.first + tile
    return_if(first:ge(visible))

    local s, memory = plan(T), dynamic_shared(u8)
    local function page_of(entry)
      local column = entry // T.k
      local page = variable(u32, 0xffffffff)
      when(column:lt(p.table_stride), function()
        page:set(p.block_table:at(request:to(u64) * p.table_stride:to(u64) + column:to(u64)):load():to(u32))
      end)
      return page:get()
    end
    fetch_keys(T, p, first, visible, page_of, memory, s)
    fetch_queries(T, p, token, memory, s)
    stage.wait()
    barrier()
    expand_keys(T, memory, s)
    barrier()
    local sums = score_tile(T, p, token, memory:as(bf16), memory:bytes(s.keys):as(bf16))
    -- After the tree all groups of four lanes hold the same sums.
    local lane = lane_id()
    when(lane:lt(4), function()
      for i = 1, 4 do
        local column = (lane & 3) * 2 + ((i - 1) % 2 + (i - 1) // 2 * 8)
        local entry = first + warp_id() * 16 + column
        when(entry:lt(visible), function()
          local backed = page_of(entry):lt(p.pages)
          p.scores:at(token:to(u64) * p.scores_stride:to(u64)):at(entry - p.first)
            :store(backed:select(sums[i], -math.huge))
        end)
      end
    end)
  end,
}
