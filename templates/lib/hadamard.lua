-- The Walsh-Hadamard transform of a spread f32 row in natural order: strides 1, 2, 4, ..., then
-- times n^-0.5. Strides up to four lie inside a vector, the others between lanes.
local hadamard = {}

local function inside(x, stride)
  local y = {}
  for i = 0, 7 do
    local a, b = x[(i & ~stride) + 1], x[(i | stride) + 1]
    if i & stride == 0 then y[i + 1] = a + b else y[i + 1] = a - b end
  end
  return y
end

local function between(x, distance)
  local upper, y = (lane_id() & distance):ne(0), {}
  for i = 1, 8 do
    local other = shuffle_xor(x[i], distance)
    -- a + b on the lower lane, a - b on the upper; the sum's order does not change its bits
    y[i] = upper:select(other - x[i], x[i] + other)
  end
  return y
end

-- Rows of 8 to 256 elements: one step.
function hadamard.transform(x, elements)
  assert(elements & (elements - 1) == 0 and elements <= 256, "a transform of a power of two up to 256")
  local y = x[0]
  for _, stride in ipairs { 1, 2, 4 } do y = inside(y, stride) end
  local distance = 1
  while distance * 8 < elements do
    y = between(y, distance)
    distance = distance * 2
  end
  local scaled = {}
  for i = 1, 8 do scaled[i] = y[i] * elements ^ -0.5 end
  return { [0] = scaled }
end

return hadamard
