-- e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign; rounding is to nearest even, beyond 6 saturates,
-- NaN becomes 6. Integer arithmetic: only chips later than our portable targets have an instruction.
local fp4 = {}

local function e2m1(x)
  local bits = x:bits(u32)
  local sign, magnitude = (bits >> 28) & 8, bits & 0x7fffffff
  -- From 1 on, round the fraction to one bit; below, adding 2^22 makes the adder round at 0.5.
  local normal = ((magnitude + 0x1fffff + ((magnitude >> 22) & 1)) >> 22) - ((127 << 1) - 2)
  local small = (magnitude:bits(f32) + 0x1p22):bits(u32) - 0x4a800000
  local code = magnitude:lt(0x3f800000):select(small, normal)
  code = magnitude:gt(0x40c00000):select(7, code)
  return magnitude:gt(0x7f800000):select(7, sign | code)
end

-- Eight f32 as eight codes in a u32, the first in the lowest four bits.
function fp4.e2m1x8(x)
  local word
  for i = 1, 8 do
    local code = e2m1(x[i]) << (4 * (i - 1))
    if i == 1 then word = code else word = word | code end
  end
  return word
end

-- A code (u32, four bits) as f32, exactly: its bits moved to f32's place, times 2^126.
function fp4.value(code)
  return ((code & 7) << 22 | (code & 8) << 28):bits(f32) * 0x1p126
end

return fp4
