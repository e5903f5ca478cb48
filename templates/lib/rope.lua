-- Rotary position embedding on interleaved pairs: (a, b) -> (a cos - b sin, a sin + b cos).
local rope = {}

-- Rotate one vector of eight elements: four pairs. `cos` and `sin` are four values each; every
-- product and sum rounds by itself.
function rope.rotate(x, cos, sin)
  local y = {}
  for pair = 1, 4 do
    local a, b, c, s = x[2 * pair - 1], x[2 * pair], cos[pair], sin[pair]
    y[2 * pair - 1] = a * c - b * s
    y[2 * pair] = a * s + b * c
  end
  return y
end

-- The other way: (a, b) -> (a cos + b sin, b cos - a sin).
function rope.rotate_back(x, cos, sin)
  local y = {}
  for pair = 1, 4 do
    local a, b, c, s = x[2 * pair - 1], x[2 * pair], cos[pair], sin[pair]
    y[2 * pair - 1] = a * c + b * s
    y[2 * pair] = b * c - a * s
  end
  return y
end

-- The table's row of a position (u64): cosines of the pairs, then sines. Returns the cosines and
-- sines of vector `v` (u32) of the rotated part.
function rope.angles(row, rope_dim, v)
  local cos = row:at(v * 4)
  return cos:load(4), cos:at(rope_dim // 2):load(4)
end

return rope
