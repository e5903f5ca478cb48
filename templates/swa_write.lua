-- swa_write: a token's latent into its window row. One warp a token, four tokens a block. For long
-- chunks swa_write_workspace writes every row into the workspace besides, in the same pass.
local vectors = require "vectors"
local norm = require "norm"
local latent = require "latent"
local window = require "window"

local TOKENS = 4

-- The latent in f32, normalised if the model does that, and how it reaches the stored row:
-- `nope` as bf16, `rotated` as the f32 that RoPE starts from.
local function normalise(T, weight, x)
  local m = T.model
  local y = latent.widen(x)
  if not m.kv_norm and m.input_dtype == bf16 then
    -- The bits are copied, a NaN's too.
    return x, y
  end
  if m.kv_norm then
    y = norm.rms(y, weight.load(), T.head_dim, m.norm_eps)
  end
  local rounded = latent.round(y)
  if m.round_before_rope then y = latent.widen(rounded) end
  return rounded, y
end

-- The persistent row and whether this token is written there.
local persistent = {}

-- In the ring a token survives if it is among the last `ring` of its request.
function persistent.ring(T, p, token, request, position)
  local row, found, slot = window.mode(T).find(T, p, request, position)
  local last = p.cu_tokens:at(request):at(1):load()
  local survives = found & (token:to(i32) + T.ring):ge(last)
  local function finish()
    array(p, "swa_pos", slot:to(u64)):at(position % T.ring):store(position:to(i32))
    when((token:to(i32) + 1):eq(last), function()
      array(p, "swa_head", slot:to(u64)):store(((position + 1) % T.ring):to(i32))
    end)
  end
  return row, survives, finish
end

-- A page is written where it is backed and the position is not shared with another request.
function persistent.paged(T, p, _, request, position)
  local row, found = window.mode(T).find(T, p, request, position)
  return row, found & position:to(i32):ge(p.write_from:at(request):load())
end

return kernel {
  name = "swa_write",
  job = "a token's latent: RMSNorm, RoPE, quantise, into its window row; position, ring head",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },
  variants = function()
    return { { name = "swa_write" }, { name = "swa_write_workspace", workspace = true } }
  end,

  rules = function(T) return {
    { T.head_dim % 8 == 0, "head_dim must be a multiple of 8" },
    { T.rope_dim % 8 == 0, "rope_dim must be a multiple of 8" },
    { T.nope_dim % 16 == 0, "head_dim - rope_dim must be a multiple of 16" },
  } end,

  params = function(T, variant)
    local ring = T.model.window_mode == "ring"
    return {
      value("tokens", u32), value("requests", u32), value(ring and "slots" or "pages", u32),
      value("positions", u32), ring and {} or value("table_stride", u32),
      input("latent", T.model.input_dtype, "[tokens][head_dim]", { align = 16, nc = true }),
      stride("latent_stride", 16),
      T.model.kv_norm and input("norm_weight", f32, "[head_dim]", { align = 16, nc = true }) or {},
      input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      input(ring and "cu_tokens" or "write_from", i32, ring and "[requests + 1]" or "[requests]"),
      window.mode(T).tables(),
      planes(T.place.window, "out"),
      ring and state(T, { "swa_pos", "swa_head" }, "out") or {},
      variant.workspace and planes(T.place.window, "out", window.WORKSPACE) or {},
    }
  end,

  build = function(T, p, variant)
    -- The block's tokens share the norm's weight.
    local weight = T.model.kv_norm and vectors.stage(T.head_dim)
    if weight then
      weight.fill(p.norm_weight, 32 * TOKENS)
      barrier()
    end
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    -- Unsigned comparisons: -1, the padding, is out of every range.
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load():to(u32)
    return_if(request:ge(p.requests) | position:ge(p.positions))
    local row, kept, finish = persistent[T.model.window_mode](T, p, token, request, position)
    if variant.workspace then
      local number = token + window.workspace_shift(T, request)
      row = several {
        { row = window.workspace_row(T, p, number), condition = const(bool, true) },
        { row = row, condition = kept },
      }
    else
      return_if(~kept)
    end

    local x = vectors.load(p.latent:bytes(token:to(u64) * p.latent_stride), T.head_dim)
    local nope, y = normalise(T, weight, x)
    latent.store(T, row, nope, y, p.rope:at(position:to(u64) * T.rope_dim))
    if finish then when(lane_id():eq(0) & kept, finish) end
  end,
}
