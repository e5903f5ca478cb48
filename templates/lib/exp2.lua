-- exp2 and log2 by polynomials with fma: the same bits on every chip. docs/kernels.md states them.
local exp2 = {}

local SHIFT = 0x1.8p23 -- added to x, leaves x rounded to an integer in the low bits
local SHIFT_BITS = 0x4b400000
local C = { 0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6aee8p-5, 0x1.3b2d4cp-7, 0x1.5f3e54p-10, 0x1.41fbbcp-13 }
local D = { 0x1.b8c6dp-2, 0x1.274d9p-1, 0x1.ec70d6p-1, 0x1.715476p+1 }

exp2.LOG2E = 0x1.715476p+0
exp2.LN2 = 0x1.62e43p-1

-- x rounded to an integer, in the low bits of M + x; and the polynomial of what is left of x.
local function split(x)
  local shifted = x + SHIFT
  local f = x - (shifted - SHIFT)
  local p = fma(f, C[6], C[5])
  for k = 4, 1, -1 do p = fma(f, p, C[k]) end
  return shifted:bits(u32), fma(f, p, 1.0)
end

function exp2.exp2(x)
  local shifted, p = split(x)
  local y = (p:bits(u32) + ((shifted - SHIFT_BITS) << 23)):bits(f32)
  y = x:lt(-125.0):select(0.0, y)
  y = x:ge(128.0):select(math.huge, y)
  return x:eq(x):select(y, x)
end

-- The same of an x that is not above 0, or NaN. The power of two is a number of its own, so that a
-- NaN goes through.
function exp2.falling(x)
  local shifted, p = split(x)
  return x:lt(-125.0):select(0.0, p * ((shifted << 23) + 0x3f800000):bits(f32))
end

-- log2 of a positive normal number; NaN gives NaN.
function exp2.log2(v)
  local bits = v:bits(i32)
  local n = (bits - 0x3f3504f3) >> 23
  local m = (bits - (n << 23)):bits(f32)
  local z = (m - 1.0) / (m + 1.0)
  local u = z * z
  local q = fma(u, D[1], D[2])
  q = fma(u, q, D[3])
  q = fma(u, q, D[4])
  return v:eq(v):select(z * q + n:to(f32), v)
end

return exp2
