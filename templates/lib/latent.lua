-- A latent row from its last arithmetic to its stored form: nope part and rotated part.
local vectors = require "vectors"
local rope = require "rope"
local quantise = require "quantise"

local latent = {}

function latent.widen(x) return vectors.map(x, function(value) return value:to(f32) end) end
function latent.round(x) return vectors.map(x, function(value) return value:to(bf16) end) end

-- Rotate the vectors from `first` on of a spread f32 row and hand each rotated vector to
-- `use(step, v, eight bf16 values)`, on the lanes that have one; v counts from `first`.
local function rotated(y, first, count, rope_dim, table_row, use)
  for step = 0, #y do
    vectors.where(vectors.within(step, first, count), function()
      local v = lane_id() + 32 * step - first
      local cos, sin = rope.angles(table_row, rope_dim, v)
      local out = {}
      for e, value in ipairs(rope.rotate(y[step], cos, sin)) do out[e] = value:to(bf16) end
      use(step, v, out)
    end)
  end
end

-- Store a row: `nope` is its nope part as spread bf16, `y` (spread f32) what the rotation starts
-- from, `table_row` the RoPE table's row of its position.
function latent.store(T, row, nope, y, table_row)
  quantise[T.format](row, nope, T.nope_dim)
  rotated(y, vectors.count(T.nope_dim), vectors.count(T.rope_dim), T.rope_dim, table_row,
    function(_, v, out)
      row:each(function(one) one:field("rope"):at(v * 8):store(out) end)
    end)
end

-- The whole row of `elements` as spread bf16, its last rope_dim elements rotated.
function latent.rotate(x, y, elements, rope_dim, table_row)
  local first, count = vectors.count(elements - rope_dim), vectors.count(rope_dim)
  local out = {}
  for step = 0, #x do
    out[step] = {}
    for e = 1, 8 do out[step][e] = variable(bf16, x[step][e]) end
  end
  rotated(y, first, count, rope_dim, table_row, function(step, _, eight)
    for e = 1, 8 do out[step][e]:set(eight[e]) end
  end)
  return vectors.map(out, function(slot) return slot:get() end)
end

return latent
