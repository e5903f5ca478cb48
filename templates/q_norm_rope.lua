-- q_norm_rope: each query head normalised without a weight, and rotated. One warp a head.
local vectors = require "vectors"
local norm = require "norm"
local latent = require "latent"

local HEADS = 4

return kernel {
  name = "q_norm_rope",
  job = "per-head RMSNorm (no weight) and RoPE of the queries",
  block = 32 * HEADS,
  grid = { per("tokens"), per("heads", HEADS) },

  params = function() return {
    value("tokens", u32), value("heads", u32), value("positions", u32),
    input("q", bf16, "[tokens][heads][head_dim]", { align = 16, nc = true }), stride("q_stride", 16),
    input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
    input("position", i32, "[tokens]"),
    output("out", bf16, "[tokens][heads][head_dim]", { align = 16 }), stride("out_stride", 16),
  } end,

  build = function(T, p)
    local token, head = block_id("x"), block_id("y") * HEADS + warp_id()
    local position = p.position:at(token):load():to(u32)
    return_if(head:ge(p.heads) | position:ge(p.positions))
    local at = head:to(u64) * T.head_dim
    local x = vectors.load(p.q:bytes(token:to(u64) * p.q_stride):at(at), T.head_dim)
    local y = norm.rms(latent.widen(x), nil, T.head_dim, T.model.norm_eps)
    local rounded = latent.round(y)
    if T.model.round_before_rope then y = latent.widen(rounded) end
    local table_row = p.rope:at(position:to(u64) * T.rope_dim)
    local out = latent.rotate(rounded, y, T.head_dim, T.rope_dim, table_row)
    vectors.store(p.out:bytes(token:to(u64) * p.out_stride):at(at), out, 0, vectors.count(T.head_dim))
  end,
}
