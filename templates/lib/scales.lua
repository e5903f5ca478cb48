-- The scales of the row formats: what quantise.lua stores, requantise.lua applies at once.
local vectors = require "vectors"
local warp = require "warp"
local fp8 = require "fp8"

local scales = { FLT_MAX = 0x1.fffffep+127, FLT_MIN = 0x1p-126 }

-- The exponent byte of the smallest power of two that is not below t (a positive normal number).
local function exponent_up(t) return (t:bits(u32) + 0x7fffff) >> 23 end

-- 2^e and 2^-e of an exponent byte; the second is a normal number for bytes up to 253.
function scales.power(byte) return (byte << 23):bits(f32) end
function scales.inverse_power(byte) return ((254 - byte) << 23):bits(f32) end

-- The largest magnitude of a lane's eight elements, in f32: NaN does not count.
function scales.amax_of_vector(x)
  local most = const(f32, 0.0)
  for _, value in ipairs(x) do most = max(most, abs(value:to(f32))) end
  return most
end

-- The largest magnitude over the first `count` vectors of a row; infinity counts as FLT_MAX.
function scales.amax_of_row(x, count)
  local most = const(f32, 0.0)
  for step = 0, (count + 31) // 32 - 1 do
    most = max(most, vectors.choose(vectors.within(step, 0, count), scales.amax_of_vector(x[step]), 0.0))
  end
  return min(warp.max(most), scales.FLT_MAX)
end

-- The same over the `lanes` neighbouring lanes' vectors of a step.
function scales.amax_of_lanes(x, lanes)
  return min(warp.max_of(lanes, scales.amax_of_vector(x)), scales.FLT_MAX)
end

-- The format's scale for a largest magnitude.
function scales.fp8_token(amax)
  return amax:eq(0.0):select(1.0, max(amax / fp8.LARGEST, scales.FLT_MIN))
end
function scales.fp8_ds_mla(amax) return exponent_up(max(amax, 1e-4) * (1 / fp8.LARGEST)) end
function scales.fp8_two_plane(amax) return exponent_up(max(amax / fp8.LARGEST, 1e-4)) end
scales.fp8_index = scales.fp8_ds_mla
function scales.fp4_index(amax) return exponent_up(max(amax, 6 * scales.FLT_MIN) * (1 / 6)) end

return scales
