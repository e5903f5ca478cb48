-- e4m3: 448 is the largest, NaN is 0x7f, rounding is to nearest even, beyond the largest saturates.
local fp8 = { LARGEST = 448.0 }

-- Two f32 as two e4m3 bytes in a u16, the first in the low byte.
function fp8.e4m3x2(low, high) return asm("cvt_e4m3x2", high, low) end

-- Eight f32 as eight bytes: two u32.
function fp8.e4m3x8(x)
  local words = {}
  for i = 1, 8, 4 do
    words[#words + 1] = pack(u32, { fp8.e4m3x2(x[i], x[i + 1]), fp8.e4m3x2(x[i + 2], x[i + 3]) })
  end
  return words
end

return fp8
