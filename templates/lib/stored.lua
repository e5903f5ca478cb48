-- Rows read back as stored: code times scale, as bf16. The counterpart of quantise.lua.
local fp8 = require "fp8"
local fp4 = require "fp4"

local stored = {}

local function power(byte) return (byte:bits(u8):to(u32) << 23):bits(f32) end

-- Eight e4m3 codes in two words, times a scale, as bf16.
local function from_e4m3(words, scale)
  local out = {}
  for _, word in ipairs(words) do
    for _, code in ipairs(word:unpack(u8)) do
      out[#out + 1] = (fp8.value(code) * scale):to(bf16)
    end
  end
  return out
end

-- Where a row's quantised field and scale lie: pointers to the first of each, and how to read them.
--   fields            names of the quantised field and its scale
--   load(row, v)      the eight elements of vector v (u32) as bf16
local function blocks_of_64(row, v)
  local copies = row.place.scale.copies
  local words = row:field("nope"):as(u32):at(v * 2):load(2)
  return from_e4m3(words, power(row:field("scale"):at((v >> 3) * copies):load()))
end

stored.latent = {
  bf16 = function(row, v) return row:field("nope"):at(v * 8):load(8) end,
  fp8_token = function(row, v)
    return from_e4m3(row:field("nope"):as(u32):at(v * 2):load(2), row:field("scale"):load())
  end,
  fp8_ds_mla = blocks_of_64,
  fp8_two_plane = blocks_of_64,
}

-- Index rows: the vector v of eight elements as bf16.
stored.index = {
  fp8_index = function(row, v)
    return from_e4m3(row:field("codes"):as(u32):at(v * 2):load(2), row:field("scale"):load())
  end,
  fp4_index = function(row, v)
    local word = row:field("codes"):at(v * 4):as(u32):load()
    local scale, out = power(row:field("scale"):at(v >> 2):load()), {}
    for i = 0, 7 do out[i + 1] = (fp4.value(word >> (4 * i)) * scale):to(bf16) end
    return out
  end,
}

return stored
