-- A row spread over a warp. Its elements form vectors of eight; vector v belongs to lane v % 32 and
-- step v // 32, so that a step of all lanes touches 32 vectors side by side: whole memory sectors.
-- A spread value is a table x[step] of eight values each, steps from 0.
local vectors = {}

vectors.WIDTH = 8

function vectors.count(elements)
  assert(elements % 8 == 0, "a row must be whole vectors of eight elements")
  return elements // 8
end

function vectors.steps(elements) return (vectors.count(elements) + 31) // 32 end

-- Whether this lane's vector of a step is one of the `count` from `first`: true or false where that
-- is so for all lanes, else a value.
function vectors.within(step, first, count)
  local low, high = first - 32 * step, first + count - 32 * step
  if low >= 32 or high <= 0 then return false end
  if low <= 0 and high >= 32 then return true end
  local lane = lane_id()
  if low <= 0 then return lane:lt(high) end
  if high >= 32 then return lane:ge(low) end
  return lane:ge(low) & lane:lt(high)
end

-- `a` where `condition` (of vectors.within) holds, else `b`.
function vectors.choose(condition, a, b)
  if is_value(condition) then return condition:select(a, b) end
  if condition then return a else return b end
end

-- Run `body` on the lanes for which `condition` (of vectors.within) holds.
function vectors.where(condition, body)
  if is_value(condition) then when(condition, body) elseif condition then body() end
end

-- The number of this lane's vector in a step. Lanes beyond the row repeat its last vector, so that
-- a load stays inside the row.
function vectors.clamped(step, count)
  local lane = lane_id()
  if count >= 32 * (step + 1) then return lane + 32 * step end
  return imin(lane + 32 * step, count - 1)
end

-- Load a row of `elements`, 16 bytes an access.
function vectors.load(pointer, elements)
  local x, count = {}, vectors.count(elements)
  local per_access = pointer:type():find("f32", 1, true) and 4 or 8
  for step = 0, vectors.steps(elements) - 1 do
    local at, v = pointer:at(vectors.clamped(step, count) * 8), {}
    for e = 0, 7, per_access do
      for _, loaded in ipairs(at:at(e):load(per_access)) do v[#v + 1] = loaded end
    end
    x[step] = v
  end
  return x
end

-- `count` elements (4 or 8) from a pointer to bf16 or f32, as f32, in the widest accesses there are:
-- 16 bytes, or 8 for four bf16. Of bf16 whole words are loaded and the halves moved up, which is what
-- widening is; left to itself the compiler splits four bf16 into two accesses.
function vectors.load_wide(pointer, count)
  local x = {}
  if pointer:type():find("f32", 1, true) then
    for e = 0, count - 1, 4 do
      for _, value in ipairs(pointer:at(e):load(4)) do x[#x + 1] = value end
    end
    return x
  end
  for _, word in ipairs(pointer:as(u32):load(count // 2)) do
    x[#x + 1] = (word << 16):bits(f32)
    x[#x + 1] = (word & 0xffff0000):bits(f32)
  end
  return x
end

-- A row of f32 in shared memory, put there four elements a thread and read as a spread row. The
-- halves of its vectors lie apart, shifted by 64 bytes: neither way meets a bank twice.
function vectors.stage(elements)
  local count = vectors.count(elements)
  local apart = count * 4 + 16
  local buffer = shared(f32, 2 * apart)
  local staged = {}

  -- Elements 4 i .. 4 i + 3.
  function staged.store(i, four) buffer:at((i & 1) * apart):at((i >> 1) * 4):store(four) end

  -- The whole row from global memory, by all `threads` of the block; a barrier must follow.
  function staged.fill(pointer, threads)
    for first = 0, 2 * count - 1, threads do
      local i = thread_id() + first
      local function copy() staged.store(i, pointer:at(i * 4):load(4)) end
      if 2 * count - first >= threads then copy() else when(i:lt(2 * count), copy) end
    end
  end

  function staged.load()
    local x = {}
    for step = 0, vectors.steps(elements) - 1 do
      local v, eight = vectors.clamped(step, count), {}
      for half = 0, 1 do
        for _, value in ipairs(buffer:at(v * 4):at(half * apart):load(4)) do eight[#eight + 1] = value end
      end
      x[step] = eight
    end
    return x
  end

  return staged
end

-- Apply `f` to every element.
function vectors.map(x, f)
  local y = {}
  for step = 0, #x do
    y[step] = {}
    for e, value in ipairs(x[step]) do y[step][e] = f(value, step, e) end
  end
  return y
end

-- Store the vectors first .. first + count - 1 of a spread bf16 value; `pointer` is vector `first`'s.
function vectors.store(pointer, x, first, count)
  for step = 0, #x do
    vectors.where(vectors.within(step, first, count), function()
      pointer:at((lane_id() + 32 * step - first) * 8):store(x[step])
    end)
  end
end

-- Store the first `count` vectors of a spread row whose vectors are eight bytes, as two u32 each:
-- 16 bytes an access. Neighbouring lanes swap halves: of two steps, the even lane stores both
-- vectors of the first, the odd lane both of the second.
function vectors.store_bytes(pointer, words, count)
  local steps = (count + 31) // 32
  local lane = lane_id()
  local odd = (lane & 1):eq(1)
  local even_lane = lane & 0xfffffffe
  pointer = pointer:as(u32)
  for step = 0, steps - 1, 2 do
    local here, next_ = words[step], step + 1 < steps and words[step + 1]
    if next_ then
      local got = {}
      for i = 1, 2 do got[i] = shuffle_xor(odd:select(here[i], next_[i]), 1) end
      local first = even_lane + 32 * step + odd:to(u32) * 32
      local four = {
        odd:select(got[1], here[1]), odd:select(got[2], here[2]),
        odd:select(next_[1], got[1]), odd:select(next_[2], got[2]),
      }
      local inside = count >= 32 * (step + 2) or first:lt(count)
      vectors.where(inside, function() pointer:at(first * 2):store(four) end)
    else
      local got = { shuffle_xor(here[1], 1), shuffle_xor(here[2], 1) }
      local four = { here[1], here[2], got[1], got[2] }
      local first = even_lane + 32 * step
      local mine = ~odd
      if count < 32 * (step + 1) then mine = mine & first:lt(count) end
      when(mine, function() pointer:at(first * 2):store(four) end)
    end
  end
end

return vectors
