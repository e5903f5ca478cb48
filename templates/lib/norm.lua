-- RMSNorm of a spread row: y = x * (1 / sqrt(mean(x^2) + eps)) * weight, in f32.
local vectors = require "vectors"
local warp = require "warp"

local norm = {}

-- The sum of squares: each lane adds its elements in order, then the lanes meet in warp.sum's tree.
local function sum_of_squares(x, elements)
  local count, sum = vectors.count(elements), nil
  for step = 0, #x do
    local before = sum
    for _, value in ipairs(x[step]) do
      if sum then sum = sum + value * value else sum = value * value end
    end
    sum = vectors.choose(vectors.within(step, 0, count), sum, before or 0.0)
  end
  return warp.sum(sum)
end

-- `weight` is a spread row too.
function norm.rms(x, weight, elements, eps)
  local mean = sum_of_squares(x, elements) / elements
  local scale = const(f32, 1.0) / sqrt(mean + eps)
  return vectors.map(x, function(value, step, e) return value * scale * weight[step][e] end)
end

return norm
