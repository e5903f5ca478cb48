-- The stored form of a row's quantised part, one function per row format. Each gets the row, the
-- part as spread bf16 values (lanes beyond the part hold anything) and its number of elements.
local vectors = require "vectors"
local scales = require "scales"
local fp8 = require "fp8"
local fp4 = require "fp4"

-- The eight codes of a vector, each element brought to the format's range by `scale`.
local function codes(x, scale)
  local scaled = {}
  for e, value in ipairs(x) do scaled[e] = scale(value:to(f32)) end
  return fp8.e4m3x8(scaled)
end

-- Zero the pad bytes of a row, each lane as many as alignment allows.
local function clear_pad(row)
  local at, bytes = row:field("pad"), row:count("pad")
  local unit = 4
  while bytes % unit ~= 0 or at:multiple() < unit do unit = unit // 2 end
  local element = unit == 4 and u32 or unit == 2 and u16 or u8
  local lanes = bytes // unit
  for first = 0, lanes - 1, 32 do
    local condition = vectors.within(0, 0, lanes - first)
    vectors.where(condition, function() at:as(element):at(lane_id()):at(first):store(0) end)
  end
end

-- One power of two for every 64 elements: eight neighbouring lanes share a block.
local function by_blocks(row, x, elements, byte_of)
  local count, words = vectors.count(elements), {}
  local copies = row.place.scale.copies
  for step = 0, (count + 31) // 32 - 1 do
    local byte = byte_of(scales.amax_of_lanes(x[step], 8))
    -- A product with 2^-e does what the division by 2^e would: both are exact.
    local inverse = scales.inverse_power(byte)
    words[step] = codes(x[step], function(value) return value * inverse end)
    local leader = (lane_id() & 7):eq(0)
    local within = vectors.within(step, 0, count)
    if is_value(within) then leader = leader & within end
    local block, bytes = (lane_id() >> 3) + 4 * step, {}
    for copy = 1, copies do bytes[copy] = byte:to(u8):bits(ue8m0) end
    row:each(function(one)
      when(leader, function() one:field("scale"):at(block * copies):store(bytes) end)
    end)
  end
  row:each(function(one)
    vectors.store_bytes(one:field("nope"), words, count)
    if one:has("pad") and one:count("pad") > 0 then clear_pad(one) end
  end)
end

local quantise = {}

function quantise.bf16(row, x, elements)
  row:each(function(one) vectors.store(one:field("nope"), x, 0, vectors.count(elements)) end)
end

-- One f32 inverse scale a row: code = e4m3(x / inverse).
function quantise.fp8_token(row, x, elements)
  local count, words = vectors.count(elements), {}
  local inverse = scales.fp8_token(scales.amax_of_row(x, count))
  for step = 0, (count + 31) // 32 - 1 do
    words[step] = codes(x[step], function(value) return value / inverse end)
  end
  row:each(function(one)
    vectors.store_bytes(one:field("nope"), words, count)
    when(lane_id():eq(0), function() one:field("scale"):store(inverse) end)
  end)
end

-- Scale bytes in the page's footer.
function quantise.fp8_ds_mla(row, x, elements) by_blocks(row, x, elements, scales.fp8_ds_mla) end

-- Scale bytes in the row, each twice.
function quantise.fp8_two_plane(row, x, elements) by_blocks(row, x, elements, scales.fp8_two_plane) end

-- One f32 scale a row, a power of two.
function quantise.fp8_index(row, x, elements)
  local count, words = vectors.count(elements), {}
  local byte = scales.fp8_index(scales.amax_of_row(x, count))
  local inverse = scales.inverse_power(byte)
  for step = 0, (count + 31) // 32 - 1 do
    words[step] = codes(x[step], function(value) return value * inverse end)
  end
  vectors.store_bytes(row:field("codes"), words, count)
  when(lane_id():eq(0), function() row:field("scale"):store(scales.power(byte)) end)
end

-- Four bits an element, one scale byte for every 32: four neighbouring lanes share a block.
function quantise.fp4_index(row, x, elements)
  local count = vectors.count(elements)
  for step = 0, (count + 31) // 32 - 1 do
    local byte = scales.fp4_index(scales.amax_of_lanes(x[step], 4))
    -- The inverse of a huge scale would be subnormal: divide.
    local scale, scaled = scales.power(byte), {}
    for e, value in ipairs(x[step]) do scaled[e] = value:to(f32) / scale end
    local word = fp4.e2m1x8(scaled)
    vectors.where(vectors.within(step, 0, count), function()
      row:field("codes"):at((lane_id() + 32 * step) * 4):as(u32):store(word)
      when((lane_id() & 3):eq(0), function()
        row:field("scale"):at((lane_id() >> 2) + 8 * step):store(byte:to(u8):bits(ue8m0))
      end)
    end)
  end
end

return quantise
