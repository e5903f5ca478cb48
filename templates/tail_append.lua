-- tail_append: the last tokens' compressor inputs into the tail ring, for later groups. Runs after
-- compress, which reads older rows from the ring and this launch's from the projections.
--
-- The projections are [tokens][width]: of an overlapped compressor columns [dim, 2 dim) are stream
-- a, for the token's own group, and columns [0, dim) stream b, for the next group; without overlap
-- there is stream a alone. One warp a token and stream, four tokens a block; block y is the stream.
--
-- A compressor that keeps a running softmax has no ring: the block of a request's last token brings its
-- state up to date.
local vectors = require "vectors"
local running = require "running"

local TOKENS = 4

-- The compressor's arrays begin with `prefix`; its rows have `dim` elements.
local function variants(T)
  local list = {}
  if T.ratio > 0 then list[1] = { name = "tail_append", prefix = "", dim = T.head_dim } end
  if T.indexer then list[#list + 1] = { name = "index_tail_append", prefix = "idx_", dim = T.indexer.dim } end
  return list
end

local function streams(T) return T.overlap and { "b", "a" } or { "a" } end

-- The ring arrays of a stream: values and scores.
local function arrays(variant, stream)
  return variant.prefix .. "tail_k" .. stream, variant.prefix .. "tail_z" .. stream
end

-- Convert and store one vector; a vector of f32 is four elements, of bf16 eight: 16 bytes a store.
local function store(T, to, x)
  local y = {}
  for e, value in ipairs(x) do y[e] = value:to(T.model.state_dtype) end
  to:store(y)
end

-- One vector as it comes: bf16 that stays bf16 keeps its bits.
local function load(T, from, count)
  if T.model.input_dtype == T.model.state_dtype then return from:load(count) end
  return vectors.load_wide(from, count)
end

-- ---- a token's rows into the ring ----

local function append_rows(T, p, variant)
  local token = block_id() * TOKENS + warp_id()
  return_if(token:ge(p.tokens))
  local request = p.batch_id:at(token):load():to(u32)
  local signed_position = p.position:at(token):load()
  return_if(request:ge(p.requests) | signed_position:lt(0))
  local position = signed_position:to(u32)
  local slot = p.state_slot:at(request):load():to(u32)
  local last = p.cu_tokens:at(request):at(1):load()
  return_if(slot:ge(p.slots) | (token:to(i32) + T.tail_ring):lt(last))

  local dim, lane = variant.dim, lane_id()
  local width = 16 // (T.model.state_dtype == f32 and 4 or 2)
  local count, ring_row = dim // width, (position % T.tail_ring):to(u64)
  local kv = p.kv:bytes(token:to(u64) * p.kv_stride)
  local score = p.score:bytes(token:to(u64) * p.score_stride)

  for number, stream in ipairs(streams(T)) do
    local k_name, z_name = arrays(variant, stream)
    local k = array(p, k_name, slot:to(u64)):at(ring_row * dim)
    local z = array(p, z_name, slot:to(u64)):at(ring_row * dim)
    local column = (number - 1) * dim
    when(block_id("y"):eq(number - 1), function()
      for step = 0, (count + 31) // 32 - 1 do
        vectors.where(vectors.within(step, 0, count), function()
          local at = (lane + 32 * step) * width
          store(T, k:at(at), load(T, kv:at(at):at(column), width))
          local scores = load(T, score:at(at):at(column), width)
          if T.model.ape_on_write then
            local row = p.ape:at((position % T.ratio):to(u64) * (#streams(T) * dim))
            local added = vectors.load_wide(row:at(at):at(column), width)
            for e, value in ipairs(scores) do scores[e] = value:to(f32) + added[e] end
          end
          store(T, z:at(at), scores)
        end)
      end
    end)
  end
  -- Tokens that no entry covers yet.
  when(lane:eq(0) & block_id("y"):eq(0) & (token:to(i32) + 1):eq(last), function()
    array(p, variant.prefix .. "tail_len", slot:to(u64)):store(((position + 1) % T.ratio):to(i32))
  end)
end

-- ---- the running softmax after a request's last token ----

local function append_running(T, p, variant)
  local token, thread, dim = block_id(), thread_id(), variant.dim
  local request = p.batch_id:at(token):load():to(u32)
  local position = p.position:at(token):load()
  return_if(request:ge(p.requests) | position:lt(0))
  local slot = p.state_slot:at(request):load():to(u32)
  local last = p.cu_tokens:at(request):at(1):load()
  return_if(slot:ge(p.slots) | (token:to(i32) + 1):ne(last))

  -- Threads beyond the channels repeat the last ones and store nothing.
  local owners, owner = dim // running.CHANNELS, thread
  if owners < 32 then owner = imin(thread, owners - 1) end
  local g = {
    position = position, token = token:to(i32), first_token = p.cu_tokens:at(request):load(),
    slot = slot:to(u64), channel = owner * running.CHANNELS, dim = dim, prefix = variant.prefix,
  }
  local state = running.state(T, p, g)
  when(thread:lt(owners), function() running.store(p, g, state) end)
  when(thread:eq(0), function()
    array(p, variant.prefix .. "tail_len", slot:to(u64)):store(((position + 1):to(u32) % T.ratio):to(i32))
  end)
end

return kernel {
  name = "tail_append",
  job = "values and scores into the tail ring, or into a running softmax; tail length",
  block = function(T, variant)
    return running.keeps(T) and running.threads(variant.dim) or 32 * TOKENS
  end,
  grid = function(T)
    if running.keeps(T) then return { per("tokens") } end
    return { per("tokens", TOKENS), #streams(T) }
  end,
  variants = variants,

  params = function(T, variant)
    local width, with_ape = #streams(T) * variant.dim, running.keeps(T) or T.model.ape_on_write
    local shape, names = "[tokens][" .. width .. "]", {}
    for _, stream in ipairs { "a", "b" } do
      for _, name in ipairs { arrays(variant, stream) } do names[#names + 1] = name end
    end
    return {
      value("tokens", u32), value("requests", u32), value("slots", u32),
      input("kv", T.model.input_dtype, shape, { align = 16, nc = true }), stride("kv_stride", 16),
      input("score", T.model.input_dtype, shape, { align = 16, nc = true }), stride("score_stride", 16),
      with_ape and input("ape", f32, "[ratio][" .. width .. "]", { align = 16, nc = true }) or {},
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      input("cu_tokens", i32, "[requests + 1]"), input("state_slot", i32, "[requests]"),
      running.keeps(T) and state(T, running.arrays(variant.prefix), "inout") or state(T, names, "out"),
      state(T, { variant.prefix .. "tail_len" }, "out"),
    }
  end,

  build = function(T, p, variant)
    if running.keeps(T) then append_running(T, p, variant) else append_rows(T, p, variant) end
  end,
}
