-- e4m3: 448 is the largest, NaN is 0x7f, rounding is to nearest even, beyond the largest saturates.
local fp8 = { LARGEST = 448.0 }

-- The same bits by integer arithmetic, where the chip has no instruction: the magnitude's bits are
-- cut to three fraction bits with round to nearest even; below 2^-6, e4m3's least normal number,
-- adding 2^14 makes the adder round at 2^-9.
local function e4m3_by_integers(x)
  local bits = x:bits(u32)
  local sign, magnitude = (bits >> 24) & 0x80, bits & 0x7fffffff
  local normal = (magnitude + 0x7ffff + ((magnitude >> 20) & 1)) >> 20
  local small = (magnitude:bits(f32) + 0x1p14):bits(u32) - 0x46800000
  local code = magnitude:lt(0x3c800000):select(small, normal - (120 << 3))
  code = magnitude:gt(0x43e00000):select(0x7e, code)
  return magnitude:gt(0x7f800000):select(0x7f, sign | code)
end

-- Two f32 as two e4m3 bytes in a u16, the first in the low byte.
function fp8.e4m3x2(low, high)
  if has("cvt_e4m3x2") then return asm("cvt_e4m3x2", high, low) end
  return (e4m3_by_integers(low) | e4m3_by_integers(high) << 8):to(u16)
end

-- Eight f32 as eight bytes: two u32.
function fp8.e4m3x8(x)
  local words = {}
  for i = 1, 8, 4 do
    words[#words + 1] = pack(u32, { fp8.e4m3x2(x[i], x[i + 1]), fp8.e4m3x2(x[i + 2], x[i + 3]) })
  end
  return words
end

-- A byte's value as f32, exactly: its bits moved to f32's place, times 2^120.
function fp8.value(code)
  local byte = code:bits(u8):to(u32)
  local magnitude = byte & 0x7f
  local value = ((magnitude << 20) | (byte & 0x80) << 24):bits(f32) * 0x1p120
  return magnitude:eq(0x7f):select(0x7fffffff, value:bits(u32)):bits(f32)
end

return fp8
