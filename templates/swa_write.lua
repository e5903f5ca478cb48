-- swa_write: a token's latent into its window row. One warp a token, four tokens a block.
local vectors = require "vectors"
local norm = require "norm"
local rope = require "rope"
local quantise = require "quantise"

local TOKENS = 4

-- The latent in f32, normalised if the model does that, and how it reaches the stored row:
-- `nope` as bf16, `rotated` as the f32 that RoPE starts from.
local function normalise(T, p, latent)
  local m = T.model
  if not m.kv_norm and m.input_dtype == bf16 then
    -- The bits are copied, a NaN's too.
    return latent, vectors.map(latent, function(x) return x:to(f32) end)
  end
  local y = vectors.map(latent, function(x) return x:to(f32) end)
  if m.kv_norm then
    y = norm.rms(y, vectors.load(p.norm_weight, T.head_dim), T.head_dim, m.norm_eps)
  end
  local rounded = vectors.map(y, function(x) return x:to(bf16) end)
  if m.round_before_rope then y = vectors.map(rounded, function(x) return x:to(f32) end) end
  return rounded, y
end

-- Rotate the row's last rope_dim elements and store them.
local function store_rotated(T, row, y, table_row)
  local first, count = vectors.count(T.nope_dim), vectors.count(T.rope_dim)
  for step = 0, #y do
    vectors.where(vectors.within(step, first, count), function()
      local v = lane_id() + 32 * step - first
      local cos, sin = rope.angles(table_row, T.rope_dim, v)
      local out = {}
      for e, value in ipairs(rope.rotate(y[step], cos, sin)) do out[e] = value:to(bf16) end
      row:field("rope"):at(v * 8):store(out)
    end)
  end
end

return kernel {
  name = "swa_write",
  job = "a token's latent: RMSNorm, RoPE, quantise, into its window row; position, ring head",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },

  applies = function(T) return T.model.window_mode == "ring" end,

  rules = function(T) return {
    { T.head_dim % 8 == 0, "head_dim must be a multiple of 8" },
    { T.rope_dim % 8 == 0, "rope_dim must be a multiple of 8" },
    { T.nope_dim % 16 == 0, "head_dim - rope_dim must be a multiple of 16" },
  } end,

  params = function(T) return {
    value("tokens", u32), value("requests", u32), value("slots", u32), value("positions", u32),
    input("latent", T.model.input_dtype, "[tokens][head_dim]", { align = 16, nc = true }),
    stride("latent_stride", 16),
    T.model.kv_norm and input("norm_weight", f32, "[head_dim]", { align = 16, nc = true }) or {},
    input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
    input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
    input("cu_tokens", i32, "[requests + 1]"), input("state_slot", i32, "[requests]"),
    planes(T.place.window, "out"), state(T, { "swa_pos", "swa_head" }, "out"),
  } end,

  build = function(T, p)
    local ring = T.ring
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    -- Unsigned comparisons: -1, the padding, is out of every range.
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load():to(u32)
    return_if(request:ge(p.requests) | position:ge(p.positions))
    local slot = p.state_slot:at(request):load():to(u32)
    local last = p.cu_tokens:at(request):at(1):load()
    return_if(slot:ge(p.slots) | (token:to(i32) + ring):lt(last))

    local latent = vectors.load(p.latent:bytes(token:to(u64) * p.latent_stride), T.head_dim)
    local nope, y = normalise(T, p, latent)
    local ring_row = position % ring
    local row = rows(T.place.window, p, slot:to(u64), ring_row:to(u64))
    quantise[T.format](T, row, nope)
    store_rotated(T, row, y, p.rope:at(position:to(u64) * T.rope_dim))

    when(lane_id():eq(0), function()
      array(p, "swa_pos", slot:to(u64)):at(ring_row):store(position:to(i32))
      when((token:to(i32) + 1):eq(last), function()
        array(p, "swa_head", slot:to(u64)):store(((position + 1) % ring):to(i32))
      end)
    end)
  end,
}
