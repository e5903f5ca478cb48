-- Tensor-core products of bf16 tiles in shared memory.
--
-- Fragments of mma.m16n8k16, lane = 4 g + c: of the 16x8 result a lane holds row g columns 2c, 2c+1
-- and row g + 8 the same columns. Rows in shared memory are padded by eight elements: 16-byte
-- accesses of eight rows then meet every bank once, whatever the row's length in multiples of 64.
local tensor = { PAD = 8 }

-- The A operand: 16 rows from `rows` (bf16, `stride` elements apart), 16 columns from its column on.
function tensor.a(rows, stride)
  local lane = lane_id()
  local at = rows:at((lane & 15) * stride):at((lane >> 4) * 8)
  return { asm("ldmatrix_x4", at) }
end

-- Two B operands from rows that are B's columns (keys): 16 of them, 16 elements each.
-- b[1], b[2] are the first eight's, b[3], b[4] the second eight's.
function tensor.b_pair(rows, stride)
  local lane = lane_id()
  local at = rows:at(((lane & 7) + ((lane >> 4) << 3)) * stride):at(((lane >> 3) & 1) * 8)
  return { asm("ldmatrix_x4", at) }
end

-- Two B operands from rows that are B's rows (values): 16 rows, 16 columns; b[1], b[2] are the first
-- eight columns'.
function tensor.b_rows(rows, stride)
  local lane = lane_id()
  local at = rows:at((lane & 15) * stride):at((lane >> 4) * 8)
  return { asm("ldmatrix_x4_trans", at) }
end

-- c + a . b, `c` four values; b1 and b2 the operand's registers.
function tensor.mma(a, b1, b2, c)
  return { asm("mma_bf16", a[1], a[2], a[3], a[4], b1, b2, c[1], c[2], c[3], c[4]) }
end

function tensor.zeros()
  return { const(f32, 0.0), const(f32, 0.0), const(f32, 0.0), const(f32, 0.0) }
end

-- Four f32 variables, for an accumulator that lives through a loop.
function tensor.accumulator()
  local slots = {}
  for i = 1, 4 do slots[i] = variable(f32, 0.0) end
  return slots
end

function tensor.get(slots) return { slots[1]:get(), slots[2]:get(), slots[3]:get(), slots[4]:get() } end
function tensor.set(slots, values) for i = 1, 4 do slots[i]:set(values[i]) end end

return tensor
