-- RMSNorm of a spread row: y = x * (1 / sqrt(mean(x^2) + eps)) * weight, in f32.
local vectors = require "vectors"
local warp = require "warp"

local norm = {}

local function add(sum, value)
  if is_value(sum) then return sum + value end
  return value
end

-- The sum of squares: each lane adds its elements in order, then the lanes meet in warp.sum's tree.
local function sum_of_squares(x, elements)
  local count, sum = vectors.count(elements), nil
  for step = 0, #x do
    local before = step == 0 and 0.0 or sum
    for _, value in ipairs(x[step]) do sum = add(sum, value * value) end
    sum = vectors.choose(vectors.within(step, 0, count), sum, before)
  end
  return warp.sum(sum)
end

-- `weight` is a spread row too, or nil.
function norm.rms(x, weight, elements, eps)
  local mean = sum_of_squares(x, elements) / elements
  local scale = const(f32, 1.0) / sqrt(mean + eps)
  return vectors.map(x, function(value, step, e)
    local y = value * scale
    if weight then return y * weight[step][e] else return y end
  end)
end

return norm
