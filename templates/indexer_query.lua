-- indexer_query: the indexer's queries rotated, transformed and quantised as its keys are, and its
-- head weights with both factors folded in. One warp a token and head.
local vectors = require "vectors"
local latent = require "latent"
local hadamard = require "hadamard"
local requantise = require "requantise"

local HEADS = 4

return kernel {
  name = "indexer_query",
  job = "the indexer's queries: RoPE, Hadamard, quantise; its weights scaled",
  block = 32 * HEADS,
  grid = function(T) return { per("tokens"), T.indexer.heads // HEADS } end,
  variants = function(T) return T.indexer and { { name = "indexer_query" } } or {} end,

  rules = function(T) return {
    { T.indexer.heads % HEADS == 0, "the indexer's heads must be a multiple of 4" },
    { T.indexer.dim <= 256, "the indexer's dim must be at most 256" },
  } end,

  params = function() return {
    value("tokens", u32), value("positions", u32),
    input("q", bf16, "[tokens][indexer heads][indexer dim]", { align = 16, nc = true }),
    stride("q_stride", 16),
    input("weights", f32, "[tokens][indexer heads]"), stride("weights_stride", 4),
    input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
    input("position", i32, "[tokens]"),
    output("q_out", bf16, "[tokens][indexer heads][indexer dim]", { align = 16 }),
    output("w_out", f32, "[tokens][indexer heads]"),
  } end,

  build = function(T, p)
    local heads, dim = T.indexer.heads, T.indexer.dim
    local token, head = block_id("x"), block_id("y") * HEADS + warp_id()
    local position = p.position:at(token):load():to(u32)
    return_if(position:ge(p.positions))
    local x = vectors.load(p.q:bytes(token:to(u64) * p.q_stride):at(head * dim), dim)
    local table_row = p.rope:at(position:to(u64) * T.rope_dim)
    local q = latent.rotate(x, latent.widen(x), dim, T.rope_dim, table_row)
    if T.model.hadamard then q = latent.round(hadamard.transform(latent.widen(q), dim)) end
    q = requantise[T.indexer.format](q, dim)
    local row = token:to(u64) * heads + head:to(u64)
    vectors.store(p.q_out:at(row * dim), q, 0, vectors.count(dim))
    when(lane_id():eq(0), function()
      local weight = p.weights:bytes(token:to(u64) * p.weights_stride):at(head):load()
      p.w_out:at(row):store(weight * (dim ^ -0.5 * heads ^ -0.5))
    end)
  end,
}
