-- Reductions over the 32 lanes of a warp, in a fixed tree: lane l meets l xor 16, then 8, 4, 2, 1.
local warp = {}

local function reduce(value, combine)
  for _, distance in ipairs { 16, 8, 4, 2, 1 } do
    value = combine(value, shuffle_xor(value, distance))
  end
  -- Both partners of each step combine the same two numbers, so all lanes end with the same bits.
  return value:promise { level = "warp" }
end

function warp.sum(value) return reduce(value, function(a, b) return a + b end) end

-- The maximum; a NaN loses against a number.
function warp.max(value) return reduce(value, max) end

-- The maximum over the `lanes` (a power of two) that share lane // lanes.
function warp.max_of(lanes, value)
  local distance = lanes // 2
  while distance > 0 do
    value = max(value, shuffle_xor(value, distance))
    distance = distance // 2
  end
  return value
end

return warp
