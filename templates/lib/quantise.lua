-- The stored form of a row's quantised part, one function per row format. Each gets the row, the
-- part as spread bf16 values (lanes beyond the part hold anything) and its number of elements.
local vectors = require "vectors"
local warp = require "warp"
local fp8 = require "fp8"
local fp4 = require "fp4"

local FLT_MAX, FLT_MIN = 0x1.fffffep+127, 0x1p-126

-- The largest magnitude of a lane's eight elements, in f32: NaN does not count.
local function amax_of_vector(x)
  local most = const(f32, 0.0)
  for _, value in ipairs(x) do most = max(most, abs(value:to(f32))) end
  return most
end

-- The largest magnitude over the first `count` vectors of a row; infinity counts as FLT_MAX.
local function amax_of_row(x, count)
  local most = const(f32, 0.0)
  for step = 0, (count + 31) // 32 - 1 do
    most = max(most, vectors.choose(vectors.within(step, 0, count), amax_of_vector(x[step]), 0.0))
  end
  return min(warp.max(most), FLT_MAX)
end

-- The eight codes of a vector, each element brought to the format's range by `scale`.
local function codes(x, scale)
  local scaled = {}
  for e, value in ipairs(x) do scaled[e] = scale(value:to(f32)) end
  return fp8.e4m3x8(scaled)
end

-- Zero the pad bytes of a row, each lane as many as alignment allows.
local function clear_pad(row)
  if not row:has("pad") or row:count("pad") == 0 then return end
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

-- One power of two for every 64 elements: eight neighbouring lanes share a block. `byte_of` turns a
-- block's amax into the exponent byte.
local function by_blocks(row, x, elements, byte_of)
  local count, words = vectors.count(elements), {}
  local copies = row.place.scale.copies
  for step = 0, (count + 31) // 32 - 1 do
    local byte = byte_of(min(warp.max_of(8, amax_of_vector(x[step])), FLT_MAX))
    -- 2^-e, so that a product does what the division by 2^e would: both are exact.
    local inverse = ((254 - byte) << 23):bits(f32)
    words[step] = codes(x[step], function(value) return value * inverse end)
    local leader = (lane_id() & 7):eq(0)
    local within = vectors.within(step, 0, count)
    if is_value(within) then leader = leader & within end
    when(leader, function()
      local block, bytes = (lane_id() >> 3) + 4 * step, {}
      for copy = 1, copies do bytes[copy] = byte:to(u8):bits(ue8m0) end
      row:field("scale"):at(block * copies):store(bytes)
    end)
  end
  vectors.store_bytes(row:field("nope"), words, count)
  clear_pad(row)
end

-- The exponent byte of the smallest power of two that is not below t (a positive normal number).
local function exponent_up(t) return (t:bits(u32) + 0x7fffff) >> 23 end

local quantise = {}

function quantise.bf16(row, x, elements)
  vectors.store(row:field("nope"), x, 0, vectors.count(elements))
end

-- One f32 inverse scale a row: code = e4m3(x / inverse).
function quantise.fp8_token(row, x, elements)
  local count, words = vectors.count(elements), {}
  local most = amax_of_row(x, count)
  local inverse = most:eq(0.0):select(1.0, max(most / fp8.LARGEST, FLT_MIN))
  for step = 0, (count + 31) // 32 - 1 do
    words[step] = codes(x[step], function(value) return value / inverse end)
  end
  vectors.store_bytes(row:field("nope"), words, count)
  when(lane_id():eq(0), function() row:field("scale"):store(inverse) end)
end

-- Scale bytes in the page's footer; amax at least 1e-4, times 1/448 rounded to f32.
function quantise.fp8_ds_mla(row, x, elements)
  by_blocks(row, x, elements, function(amax) return exponent_up(max(amax, 1e-4) * (1 / fp8.LARGEST)) end)
end

-- Scale bytes in the row, each twice; amax / 448 at least 1e-4.
function quantise.fp8_two_plane(row, x, elements)
  by_blocks(row, x, elements, function(amax) return exponent_up(max(amax / fp8.LARGEST, 1e-4)) end)
end

-- One f32 scale a row, a power of two.
function quantise.fp8_index(row, x, elements)
  local count, words = vectors.count(elements), {}
  local byte = exponent_up(max(amax_of_row(x, count), 1e-4) * (1 / fp8.LARGEST))
  local inverse = ((254 - byte) << 23):bits(f32)
  for step = 0, (count + 31) // 32 - 1 do
    words[step] = codes(x[step], function(value) return value * inverse end)
  end
  vectors.store_bytes(row:field("codes"), words, count)
  when(lane_id():eq(0), function() row:field("scale"):store((byte << 23):bits(f32)) end)
end

-- Four bits an element, one scale byte for every 32: four neighbouring lanes share a block.
function quantise.fp4_index(row, x, elements)
  local count = vectors.count(elements)
  for step = 0, (count + 31) // 32 - 1 do
    local most = min(warp.max_of(4, amax_of_vector(x[step])), FLT_MAX)
    local byte = exponent_up(max(most, 6 * FLT_MIN) * (1 / 6))
    -- The scale's inverse can be subnormal where 2^e is huge: divide.
    local scale = (byte << 23):bits(f32)
    local scaled = {}
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
