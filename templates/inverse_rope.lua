-- inverse_rope: turn the rotated part of attention's output back, at the query's position: values
-- carry the rotation of their own positions. One thread for eight elements.
local rope = require "rope"

local THREADS = 128

local function heads_per_block(T) return THREADS // (T.rope_dim // 8) end

return kernel {
  name = "inverse_rope",
  job = "the conjugate rotation on the output's last rope_dim dims, in place",
  block = THREADS,
  grid = function(T) return { per("tokens"), per("heads", heads_per_block(T)) } end,

  rules = function(T) return {
    { T.rope_dim % 8 == 0 and T.rope_dim // 8 <= THREADS, "rope_dim must be a multiple of 8 up to 1024" },
  } end,

  params = function() return {
    value("tokens", u32), value("heads", u32), value("positions", u32),
    input("rope", f32, "[positions][rope_dim]", { align = 16, nc = true }),
    input("position", i32, "[tokens]"),
    inout("out", bf16, "[tokens][heads][head_dim]", { align = 16 }), stride("out_stride", 16),
  } end,

  build = function(T, p)
    local per_head, heads = T.rope_dim // 8, heads_per_block(T)
    local token, thread = block_id("x"), thread_id()
    local position = p.position:at(token):load():to(u32)
    local head, v = block_id("y") * heads + thread // per_head, thread % per_head
    return_if(thread:ge(heads * per_head) | head:ge(p.heads) | position:ge(p.positions))
    local row = p.out:bytes(token:to(u64) * p.out_stride):at(head:to(u64) * T.head_dim)
    local at, x = row:at(v * 8):at(T.nope_dim), {}
    for e, value in ipairs(at:load(8)) do x[e] = value:to(f32) end
    local cos, sin = rope.angles(p.rope:at(position:to(u64) * T.rope_dim), T.rope_dim, v)
    local y = {}
    for e, value in ipairs(rope.rotate_back(x, cos, sin)) do y[e] = value:to(bf16) end
    at:store(y)
  end,
}
