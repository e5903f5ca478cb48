-- Rows read back as stored: code times scale, as bf16. The counterpart of quantise.lua. The results
-- are words of two bf16, the first in the low half.
local fp4 = require "fp4"

local stored = {}

local function word_of(low, high) return asm("cvt_bf16x2", high, low) end

-- Two e4m3, exactly, as two f16 without the instruction for it; each is the upper byte of a half of
-- `x`. Moved to f16's place they are 2^-8 times as much, least numbers too. NaN would be 480, the only
-- one whose 128fold and 4096 is infinite: times -0 that is NaN, and any other -0, which adds nothing.
local function f16x2_of(x)
  local magnitude, both = (x & 0x7f007f00) >> 1, function(half) return const(u32, half << 16 | half) end
  local value = asm("fma_f16x2", magnitude | (x & 0x80008000), both(0x5c00), both(0x8000))
  local infinite = asm("fma_f16x2", magnitude, both(0x7800), both(0x6c00))
  return asm("fma_f16x2", infinite, both(0x8000), value)
end

-- The four e4m3 of a word as two words of two f16.
local function halves_of(word)
  if has("cvt_f16x2_e4m3x2") then
    local two = word:unpack(u16)
    return { asm("cvt_f16x2_e4m3x2", two[1]), asm("cvt_f16x2_e4m3x2", two[2]) }
  end
  local function spread(bytes) return f16x2_of(asm("prmt", word, const(u32, 0), const(u32, bytes))) end
  return { spread(0x1404), spread(0x3424) }
end

-- e4m3 codes, four a word, times a scale.
function stored.e4m3(words, scale)
  local out = {}
  for _, word in ipairs(words) do
    for _, two in ipairs(halves_of(word)) do
      local half = two:unpack(f16)
      out[#out + 1] = word_of(half[1]:to(f32) * scale, half[2]:to(f32) * scale)
    end
  end
  return out
end

-- The eight e2m1 codes of a word, times a scale.
function stored.e2m1(word, scale)
  local out = {}
  for i = 0, 7, 2 do
    local low, high = fp4.value(word >> (4 * i)), fp4.value(word >> (4 * i + 4))
    out[#out + 1] = word_of(low * scale, high * scale)
  end
  return out
end

-- A row's scales in shared memory, `bytes` of them: read once, as words.
local function words_at(pointer, bytes)
  local words, per_access = {}, math.min(4, bytes // 4)
  while (bytes // 4) % per_access ~= 0 or per_access == 3 do per_access = per_access - 1 end
  for first = 0, bytes // 4 - 1, per_access do
    for _, word in ipairs(pointer:as(u32):at(first):load(per_access)) do words[#words + 1] = word end
  end
  return words
end

-- The power of two of exponent byte `i` of words: the byte moved to f32's exponent.
local function power(words, i)
  local word, by = words[i // 4 + 1], 23 - 8 * (i % 4)
  if by < 0 then word = word >> -by else word = word << by end
  return (word & 0x7f800000):bits(f32)
end

-- A row's scales from the stage (stage.lua): a function from the number of a block of elements to
-- its scale. With `part`, a value of 0 or 1, to that of block number + part, for even numbers.
function stored.scales(place, pointer, bytes, part)
  local scale = place.scale
  if scale.dtype == "f32" then
    local only = pointer:as(f32):load()
    return function() return only end
  end
  local words = words_at(pointer, bytes)
  if part ~= nil then
    local by = part * (8 * scale.copies)
    for i, word in ipairs(words) do words[i] = word >> by end
  end
  return function(block) return power(words, block * scale.copies) end
end

-- Vector v (eight elements) of an index row in shared memory, `row` its codes, `scales` its scales.
stored.index = {
  fp8_index = function(row, scales, v)
    return stored.e4m3(row:bytes(v * 8):as(u32):load(2), scales:as(f32):load())
  end,
  fp4_index = function(row, scales, v)
    local byte = scales:as(u8):at(v >> 2):load():to(u32)
    return stored.e2m1(row:bytes(v * 4):as(u32):load(), (byte << 23):bits(f32))
  end,
}

return stored
