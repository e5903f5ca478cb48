-- tail_append: the last tokens' compressor inputs into the tail ring, for later groups. Runs after
-- compress, which reads older rows from the ring and this launch's from the projections.
--
-- The projections are [tokens][width]: of an overlapped compressor columns [dim, 2 dim) are stream
-- a, for the token's own group, and columns [0, dim) stream b, for the next group; without overlap
-- there is stream a alone. One warp a token and stream, four tokens a block; block y is the stream.
local vectors = require "vectors"

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

return kernel {
  name = "tail_append",
  job = "values and scores into the tail ring; tail length",
  block = 32 * TOKENS,
  grid = function(T) return { per("tokens", TOKENS), #streams(T) } end,
  variants = variants,

  params = function(T, variant)
    local width = "[tokens][" .. #streams(T) * variant.dim .. "]"
    local names = {}
    for _, stream in ipairs { "a", "b" } do
      for _, name in ipairs { arrays(variant, stream) } do names[#names + 1] = name end
    end
    names[#names + 1] = variant.prefix .. "tail_len"
    return {
      value("tokens", u32), value("requests", u32), value("slots", u32),
      input("kv", T.model.input_dtype, width, { align = 16, nc = true }), stride("kv_stride", 16),
      input("score", T.model.input_dtype, width, { align = 16, nc = true }), stride("score_stride", 16),
      T.model.ape_on_write and input("ape", f32, "[ratio][" .. #streams(T) * variant.dim .. "]",
        { align = 16, nc = true }) or {},
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      input("cu_tokens", i32, "[requests + 1]"), input("state_slot", i32, "[requests]"),
      state(T, names, "out"),
    }
  end,

  build = function(T, p, variant)
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
  end,
}
