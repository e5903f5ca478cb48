-- compress: each group of `ratio` tokens that completes in this launch becomes one stored entry. A
-- block looks at one token; the last token of a group pools the group's rows, channel by channel,
-- and its first warp normalises, rotates and stores the entry.
--
-- Rows of this launch come from the projections, through the tail's dtype, older ones from the tail
-- ring: so a group that spans two launches gives the same bits as one inside a launch. Where the
-- compressor keeps a running softmax, that stands for the older rows; see lib/running.lua.
local vectors = require "vectors"
local norm = require "norm"
local latent = require "latent"
local quantise = require "quantise"
local hadamard = require "hadamard"
local exp2 = require "exp2"
local running = require "running"

local UNROLLED = 8      -- groups of at most so many rows stay in registers
local TOGETHER = 4      -- rows whose loads are under way at once

local function variants(T)
  local list = {}
  if T.ratio > 0 then
    list[1] = { name = "compress", prefix = "", dim = T.head_dim, place = "compressed" }
  end
  if T.indexer then
    list[#list + 1] = { name = "index_compress", prefix = "idx_", dim = T.indexer.dim, place = "index" }
  end
  return list
end

-- Channels of a thread: 16 bytes of the tails.
local function channels(T)
  if running.keeps(T) then return running.CHANNELS end
  return T.model.state_dtype == f32 and 4 or 8
end
local function threads(T, dim) return math.max(32, dim // channels(T)) end
local function width(T, variant) return T.overlap and 2 * variant.dim or variant.dim end

local function tail_names(T, variant)
  if running.keeps(T) then return running.arrays(variant.prefix) end
  local names = {}
  for _, stream in ipairs(T.overlap and { "a", "b" } or { "a" }) do
    names[#names + 1] = variant.prefix .. "tail_k" .. stream
    names[#names + 1] = variant.prefix .. "tail_z" .. stream
  end
  return names
end

-- ---- the rows of a group ----

local function through(dtype, x)
  if dtype == f32 then return x end
  local y = {}
  for e, value in ipairs(x) do y[e] = value:to(dtype):to(f32) end
  return y
end

local function add(x, y)
  local z = {}
  for e, value in ipairs(x) do z[e] = value + y[e] end
  return z
end

local function assign(slots, x)
  for e, value in ipairs(x) do slots[e]:set(value) end
end

-- What rows' loads need: `g` is the group: position and token (i32) of its last token, the request's
-- first token, slot, and the thread's first channel.
local function row_reader(T, p, variant, g)
  local dim, ring, K = variant.dim, T.tail_ring, g.rows
  local state, ape_on_write = T.model.state_dtype, T.model.ape_on_write
  local reader = {}

  local function wide(pointer) return vectors.load_wide(pointer:at(g.channel), g.channels) end

  -- Loads of a stream's rows of the ring: row(u) of position s + u (u32) into scores[u], values[u].
  -- Aligned rows do not wrap, neither in the ring nor in the group, so that `u` is an offset.
  local function of_ring(stream, s, aligned)
    local name = variant.prefix .. "tail_%s" .. stream
    local function at(length, u)
      if aligned then return s % length + u else return (s + u) % length end
    end
    return function(u, scores, values)
      local offset = at(ring, u):to(u64) * dim
      local z = wide(array(p, name:format("z"), g.slot):at(offset))
      if not ape_on_write then
        z = add(z, wide(p.ape:at(at(T.ratio, u):to(u64) * width(T, variant)):at(g.column[stream])))
      end
      assign(scores, z)
      if values then assign(values, wide(array(p, name:format("k"), g.slot):at(offset))) end
    end
  end

  -- The same of the launch's tokens from `token` on; rows are asked for in order.
  local function of_launch(stream, s, token)
    local column = g.column[stream]
    local score = p.score:bytes(token:to(u64) * p.score_stride):at(column)
    local kv = p.kv:bytes(token:to(u64) * p.kv_stride):at(column)
    local ape = p.ape:at((s % T.ratio):to(u64) * width(T, variant)):at(column)
    return function(u, scores, values)
      if u > 0 then score, kv = score:bytes(p.score_stride), kv:bytes(p.kv_stride) end
      local z, bias = wide(score), wide(ape:at(u * width(T, variant)))
      if ape_on_write then z = through(state, add(z, bias)) else z = add(through(state, z), bias) end
      assign(scores, z)
      if values then assign(values, through(state, wide(kv))) end
    end
  end

  -- Load the scores of rows q .. q + #rows - 1, and their values where a row has room for them, into
  -- variables; those of rows before the sequence stay. rows[i]: scores, values.
  function reader.load(q, stream, rows)
    local s, token = g.position - (K - 1) + q, g.token - (K - 1) + q
    local function each(load)
      for i, row in ipairs(rows) do load(i - 1, row.scores, row.values) end
    end
    local function one_by_one()
      for i, row in ipairs(rows) do
        local function here() return (s + (i - 1)):to(u32) end
        when((token + (i - 1)):ge(g.first_token),
          function() of_launch(stream, here(), token + (i - 1))(0, row.scores, row.values) end,
          function() of_ring(stream, here(), false)(0, row.scores, row.values) end)
      end
    end
    -- Groups begin at multiples of the ratio, so rows that are loaded together are all there or none is.
    when(s:ge(0), function()
      local aligned = ring % #rows == 0
      when((token + (#rows - 1)):lt(g.first_token),
        function() each(of_ring(stream, s:to(u32), aligned)) end,
        function()
          when(token:ge(g.first_token), function() each(of_launch(stream, s:to(u32), token)) end, one_by_one)
        end)
    end)
  end

  return reader
end

local function fresh(g, first)
  local slots = {}
  for e = 1, g.channels do slots[e] = variable(f32, first) end
  return slots
end

-- Visit the rows in order, some together: body(q, count, stream), q a number or, in long groups, a value.
local function each_rows(T, rows_of_group, body)
  local streams = T.overlap and { "b", "a" } or { "a" }
  local per_stream = rows_of_group // #streams
  local together = math.min(TOGETHER, per_stream)
  for i, stream in ipairs(streams) do
    local from, to = (i - 1) * per_stream, i * per_stream
    if rows_of_group <= UNROLLED then
      for q = from, to - 1, together do body(q, together, stream) end
    else
      loop(i32, from, to, together, function(q) body(q, together, stream) end)
    end
  end
end

-- The base of the exponent: the largest score, 0 where there is none.
local function base_of(most)
  local base = {}
  for e, slot in ipairs(most) do
    local m = slot:get()
    base[e] = m:eq(-math.huge):select(0.0, m)
  end
  return base
end

-- The softmax over the rows, per channel: the weighted mean of the values. Short groups are read once and
-- kept; of long ones the scores are read twice. Loads come before what waits for them.
local function pool(T, g, reader)
  local most, sum, acc = fresh(g, -math.huge), fresh(g, 0.0), fresh(g, 0.0)
  local short, kept = g.rows <= UNROLLED, {}
  local function load(q, count, stream, values)
    local rows = {}
    for i = 1, count do rows[i] = { scores = fresh(g, -math.huge), values = values and fresh(g, 0.0) } end
    reader.load(q, stream, rows)
    return rows
  end
  local function compare(row)
    for e = 1, g.channels do most[e]:set(max(most[e]:get(), row.scores[e]:get())) end
  end
  each_rows(T, g.rows, function(q, count, stream)
    for _, row in ipairs(load(q, count, stream, short)) do
      if short then kept[#kept + 1] = row else compare(row) end
    end
  end)
  for _, row in ipairs(kept) do compare(row) end
  local base = base_of(most)
  local function weigh(row)
    for e = 1, g.channels do
      local w = exp2.falling((row.scores[e]:get() - base[e]) * exp2.LOG2E)
      sum[e]:set(sum[e]:get() + w)
      acc[e]:set(acc[e]:get() + w * row.values[e]:get())
    end
  end
  for _, row in ipairs(kept) do weigh(row) end
  if not short then
    each_rows(T, g.rows, function(q, count, stream)
      for _, row in ipairs(load(q, count, stream, true)) do weigh(row) end
    end)
  end
  local pooled = {}
  for e = 1, g.channels do
    local total = sum[e]:get()
    pooled[e] = total:eq(0.0):select(0.0, acc[e]:get() / total)
  end
  return pooled
end

-- ---- from the threads' channels to a warp's spread row ----

-- Run `after(x, weight)` in the first warp, with the row and the norm's weight spread over it.
local function spread(T, pooled, p, dim, after)
  local row, weight, thread = vectors.stage(dim), vectors.stage(dim), thread_id()
  local owners, fours = dim // #pooled, #pooled // 4
  local function store()
    for i = 0, fours - 1 do
      row.store(thread * fours + i, { table.unpack(pooled, 4 * i + 1, 4 * i + 4) })
    end
  end
  if owners < 32 then when(thread:lt(owners), store) else store() end
  weight.fill(p.norm_weight, threads(T, dim))
  barrier()
  when(warp_id():eq(0), function() after(row.load(), weight.load()) end)
end

local function store_entry(T, variant, row, x, weight, table_row)
  local m, dim = T.model, variant.dim
  if m.round_before_norm then x = latent.widen(latent.round(x)) end
  local y = norm.rms(x, weight, dim, m.norm_eps)
  local rounded = latent.round(y)
  if m.round_before_rope then y = latent.widen(rounded) end
  if variant.place == "compressed" then
    latent.store(T, row, rounded, y, table_row)
  else
    local key = latent.rotate(rounded, y, dim, T.rope_dim, table_row)
    if m.hadamard then key = latent.round(hadamard.transform(latent.widen(key), dim)) end
    quantise[T.indexer.format](row, key, dim)
  end
end

return kernel {
  name = "compress",
  job = "each group that completes: softmax per channel, RMSNorm, RoPE, quantise, into its entry",
  block = function(T, variant) return threads(T, variant.dim) end,
  grid = { per("tokens") },
  variants = variants,

  rules = function(T)
    local list = {}
    for _, variant in ipairs(variants(T)) do
      list[#list + 1] = { variant.dim % 16 == 0 and threads(T, variant.dim) % 32 == 0,
        variant.name .. " pools rows of a multiple of 16 elements in whole warps" }
    end
    if T.indexer then
      list[#list + 1] = { not T.model.hadamard or T.indexer.dim & (T.indexer.dim - 1) == 0,
        "hadamard needs an indexer dim that is a power of two" }
      list[#list + 1] = { T.rope_dim <= T.indexer.dim, "rope_dim must not be above the indexer's dim" }
    end
    return list
  end,

  params = function(T, variant)
    local shape = "[tokens][" .. width(T, variant) .. "]"
    return {
      value("tokens", u32), value("requests", u32), value("slots", u32), value("pages", u32),
      value("positions", u32), value("table_stride", u32),
      input("kv", T.model.input_dtype, shape, { align = 16, nc = true }), stride("kv_stride", 16),
      input("score", T.model.input_dtype, shape, { align = 16, nc = true }), stride("score_stride", 16),
      input("ape", f32, "[ratio][" .. width(T, variant) .. "]", { align = 16, nc = true }),
      input("norm_weight", f32, "[" .. variant.dim .. "]", { align = 16, nc = true }),
      input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      input("cu_tokens", i32, "[requests + 1]"), input("state_slot", i32, "[requests]"),
      input("write_from", i32, "[requests]"), input("block_table", i32, "[requests][table_stride]"),
      state(T, tail_names(T, variant), "in"),
      planes(T.place[variant.place], "out"),
    }
  end,

  build = function(T, p, variant)
    local token = block_id()
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load()
    return_if(request:ge(p.requests) | position:to(u32):ge(p.positions))
    return_if(((position:to(u32) + 1) % T.ratio):ne(0) | position:lt(p.write_from:at(request):load()))
    local slot = p.state_slot:at(request):load():to(u32)
    local block = position:to(u32) // T.model.block
    return_if(slot:ge(p.slots) | block:ge(p.table_stride))
    local entry = request:to(u64) * p.table_stride:to(u64) + block:to(u64)
    local page = p.block_table:at(entry):load():to(u32)
    return_if(page:ge(p.pages))

    -- Threads beyond the row's channels pool the last ones once more and store nothing.
    local dim = variant.dim
    local thread = thread_id()
    local owners = dim // channels(T)
    if owners < 32 then thread = imin(thread, owners - 1) end
    local g = {
      rows = (T.overlap and 2 or 1) * T.ratio, position = position, token = token:to(i32),
      first_token = p.cu_tokens:at(request):load(), slot = slot:to(u64),
      channels = channels(T), channel = thread * channels(T), dim = dim, prefix = variant.prefix,
      column = { a = T.overlap and dim or 0, b = 0 },
    }
    local pooled = running.keeps(T) and running.pool(T, p, g) or pool(T, g, row_reader(T, p, variant, g))
    local number = position:to(u32) % T.model.block // T.ratio
    local first = (position - (T.ratio - 1)):to(u64)
    spread(T, pooled, p, dim, function(x, weight)
      local row = rows(T.place[variant.place], p, page:to(u64), number:to(u64))
      store_entry(T, variant, row, x, weight, p.rope:at(first * T.rope_dim))
    end)
  end,
}
