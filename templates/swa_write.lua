-- swa_write: a token's latent into its window row. One warp a token, four tokens a block.
local vectors = require "vectors"
local norm = require "norm"
local latent = require "latent"

local TOKENS = 4

-- The latent in f32, normalised if the model does that, and how it reaches the stored row:
-- `nope` as bf16, `rotated` as the f32 that RoPE starts from.
local function normalise(T, p, x)
  local m = T.model
  local y = latent.widen(x)
  if not m.kv_norm and m.input_dtype == bf16 then
    -- The bits are copied, a NaN's too.
    return x, y
  end
  if m.kv_norm then
    y = norm.rms(y, vectors.load(p.norm_weight, T.head_dim), T.head_dim, m.norm_eps)
  end
  local rounded = latent.round(y)
  if m.round_before_rope then y = latent.widen(rounded) end
  return rounded, y
end

-- ---- where the row goes ----

local ring = {}

function ring.params(T) return {
  value("tokens", u32), value("requests", u32), value("slots", u32), value("positions", u32),
}, {
  input("cu_tokens", i32, "[requests + 1]"), input("state_slot", i32, "[requests]"),
}, {
  planes(T.place.window, "out"), state(T, { "swa_pos", "swa_head" }, "out"),
} end

-- The ring's row, for a token that is among the last `ring` of its request.
function ring.row(T, p, token, request, position)
  local slot = p.state_slot:at(request):load():to(u32)
  local last = p.cu_tokens:at(request):at(1):load()
  return_if(slot:ge(p.slots) | (token:to(i32) + T.ring):lt(last))
  local number = position % T.ring
  local function finish()
    array(p, "swa_pos", slot:to(u64)):at(number):store(position:to(i32))
    when((token:to(i32) + 1):eq(last), function()
      array(p, "swa_head", slot:to(u64)):store(((position + 1) % T.ring):to(i32))
    end)
  end
  return rows(T.place.window, p, slot:to(u64), number:to(u64)), finish
end

local paged = {}

function paged.params(T) return {
  value("tokens", u32), value("requests", u32), value("pages", u32), value("positions", u32),
  value("table_stride", u32),
}, {
  input("write_from", i32, "[requests]"), input("window_table", i32, "[requests][table_stride]"),
}, {
  planes(T.place.window, "out"),
} end

-- The row of the position's window block, if that is backed and not shared with another request.
function paged.row(T, p, token, request, position)
  local block = T.model.block
  local shared_end = p.write_from:at(request):load()
  return_if(position:to(i32):lt(shared_end) | (position // block):ge(p.table_stride))
  local entry = request:to(u64) * p.table_stride:to(u64) + (position // block):to(u64)
  local page = p.window_table:at(entry):load():to(u32)
  return_if(page:ge(p.pages))
  return rows(T.place.window, p, page:to(u64), (position % block):to(u64)), nil
end

local modes = { ring = ring, paged = paged }

return kernel {
  name = "swa_write",
  job = "a token's latent: RMSNorm, RoPE, quantise, into its window row; position, ring head",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },

  rules = function(T) return {
    { T.head_dim % 8 == 0, "head_dim must be a multiple of 8" },
    { T.rope_dim % 8 == 0, "rope_dim must be a multiple of 8" },
    { T.nope_dim % 16 == 0, "head_dim - rope_dim must be a multiple of 16" },
  } end,

  params = function(T)
    local counts, lists, places = modes[T.model.window_mode].params(T)
    return {
      counts,
      input("latent", T.model.input_dtype, "[tokens][head_dim]", { align = 16, nc = true }),
      stride("latent_stride", 16),
      T.model.kv_norm and input("norm_weight", f32, "[head_dim]", { align = 16, nc = true }) or {},
      input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      lists, places,
    }
  end,

  build = function(T, p)
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    -- Unsigned comparisons: -1, the padding, is out of every range.
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load():to(u32)
    return_if(request:ge(p.requests) | position:ge(p.positions))
    local row, finish = modes[T.model.window_mode].row(T, p, token, request, position)

    local x = vectors.load(p.latent:bytes(token:to(u64) * p.latent_stride), T.head_dim)
    local nope, y = normalise(T, p, x)
    latent.store(T, row, nope, y, p.rope:at(position:to(u64) * T.rope_dim))
    if finish then when(lane_id():eq(0), finish) end
  end,
}
