-- What an index row would read back as, without storing it: for the queries that meet index rows.
local vectors = require "vectors"
local scales = require "scales"
local fp8 = require "fp8"
local fp4 = require "fp4"

local requantise = {}

function requantise.fp8_index(x, elements)
  local byte = scales.fp8_index(scales.amax_of_row(x, vectors.count(elements)))
  local scale, inverse = scales.power(byte), scales.inverse_power(byte)
  local out = {}
  for step = 0, #x do
    local scaled = {}
    for e, value in ipairs(x[step]) do scaled[e] = value:to(f32) * inverse end
    out[step] = {}
    for _, word in ipairs(fp8.e4m3x8(scaled)) do
      for _, code in ipairs(word:unpack(u8)) do
        out[step][#out[step] + 1] = (fp8.value(code) * scale):to(bf16)
      end
    end
  end
  return out
end

function requantise.fp4_index(x)
  local out = {}
  for step = 0, #x do
    local scale = scales.power(scales.fp4_index(scales.amax_of_lanes(x[step], 4)))
    local scaled = {}
    for e, value in ipairs(x[step]) do scaled[e] = value:to(f32) / scale end
    local word = fp4.e2m1x8(scaled)
    out[step] = {}
    for i = 0, 7 do out[step][i + 1] = (fp4.value(word >> (4 * i)) * scale):to(bf16) end
  end
  return out
end

return requantise
