-- The stored form of a row's nope part, one function per row format. Each gets the layer type, the
-- row and the nope part as spread bf16 values (lanes beyond the part hold anything).
local vectors = require "vectors"
local warp = require "warp"
local fp8 = require "fp8"

local FLT_MAX, FLT_MIN = 0x1.fffffep+127, 0x1p-126

-- The largest magnitude over the part in f32: NaN does not count, infinity counts as FLT_MAX.
local function amax(x, count)
  local most = const(f32, 0.0)
  for step = 0, (count + 31) // 32 - 1 do
    local of_step = const(f32, 0.0)
    for _, value in ipairs(x[step]) do of_step = max(of_step, abs(value:to(f32))) end
    most = max(most, vectors.choose(vectors.within(step, 0, count), of_step, 0.0))
  end
  return min(warp.max(most), FLT_MAX)
end

local quantise = {}

function quantise.bf16(T, row, x)
  vectors.store(row:field("nope"), x, 0, vectors.count(T.nope_dim))
end

-- One f32 inverse scale a row: code = e4m3(x / inverse).
function quantise.fp8_token(T, row, x)
  local count, codes = vectors.count(T.nope_dim), {}
  local most = amax(x, count)
  local inverse = most:eq(0.0):select(1.0, max(most / fp8.LARGEST, FLT_MIN))
  for step = 0, (count + 31) // 32 - 1 do
    local scaled = {}
    for e, value in ipairs(x[step]) do scaled[e] = value:to(f32) / inverse end
    codes[step] = fp8.e4m3x8(scaled)
  end
  vectors.store_bytes(row:field("nope"), codes, count)
  when(lane_id():eq(0), function() row:field("scale"):store(inverse) end)
end

return quantise
