-- A compressor's running softmax: of the group that is not complete yet, per channel the largest score,
-- the sum of the weights and the weighted sum of the values, in f32. It takes the place of a tail of
-- rows where groups do not overlap. Tokens join one by one in order, so that no chunking changes a bit.
local vectors = require "vectors"
local exp2 = require "exp2"

local CHANNELS = 4 -- of a thread: 16 bytes of the state
local TOGETHER = 4 -- rows whose loads are under way at once

local running = { CHANNELS = CHANNELS }

-- Whether the type's compressors keep one.
function running.keeps(T) return T.model.online and not T.overlap end

function running.threads(dim) return math.max(32, dim // CHANNELS) end

-- Names of the arrays of the compressor whose names begin with `prefix`.
function running.arrays(prefix)
  return { prefix .. "tail_max", prefix .. "tail_sum", prefix .. "tail_acc" }
end

-- One token's scores and values. A score that is not above the maximum, a NaN too, leaves it; the
-- other one of the two weights is 1, which a product with it does not change.
local function join(state, scores, values)
  for e = 1, CHANNELS do
    local most, score = state[1][e]:get(), scores[e]
    local above = score:gt(most)
    local top, other = above:select(score, most), above:select(most, score)
    local base = top:eq(-math.huge):select(0.0, top)
    local weight = exp2.falling((other - base) * exp2.LOG2E)
    local before, now = above:select(weight, 1.0), above:select(1.0, weight)
    state[1][e]:set(top)
    state[2][e]:set(state[2][e]:get() * before + now)
    state[3][e]:set(state[3][e]:get() * before + now * values[e])
  end
end

-- The state after token `g.token`: { maxima, sums, weighted sums }, variables of the thread's channels.
-- g: token, position, first_token (i32) of its request in the launch; slot (u64); channel (u32); dim, prefix.
-- The group's tokens of this launch come from the projections, what was before them from the slot.
function running.state(T, p, g)
  local state, names = { {}, {}, {} }, running.arrays(g.prefix)
  for e = 1, CHANNELS do
    state[1][e] = variable(f32, -math.huge)
    state[2][e], state[3][e] = variable(f32, 0.0), variable(f32, 0.0)
  end
  local start = g.token - (g.position:to(u32) % T.ratio):to(i32)
  when(start:lt(g.first_token), function()
    for i, name in ipairs(names) do
      local stored = array(p, name, g.slot):at(g.channel):load(CHANNELS)
      for e = 1, CHANNELS do state[i][e]:set(stored[e]) end
    end
  end)
  local function rows(first, count)
    local scores, values = {}, {}
    for i = 0, count - 1 do
      local token = first + i
      local at, row = token:to(u64), (token - start):to(u64)
      local ape = vectors.load_wide(p.ape:at(row * g.dim):at(g.channel), CHANNELS)
      values[i] = vectors.load_wide(p.kv:bytes(at * p.kv_stride):at(g.channel), CHANNELS)
      scores[i] = vectors.load_wide(p.score:bytes(at * p.score_stride):at(g.channel), CHANNELS)
      for e = 1, CHANNELS do scores[i][e] = scores[i][e] + ape[e] end
    end
    for i = 0, count - 1 do join(state, scores[i], values[i]) end
  end
  local from = imax(start, g.first_token)
  local whole = from + ((g.token + 1 - from) & ~(TOGETHER - 1))
  loop(i32, from, whole, TOGETHER, function(first) rows(first, TOGETHER) end)
  loop(i32, whole, g.token + 1, 1, function(token) rows(token, 1) end)
  return state
end

-- The weighted means of a complete group.
function running.pool(T, p, g)
  local state, pooled = running.state(T, p, g), {}
  for e = 1, CHANNELS do
    local sum = state[2][e]:get()
    pooled[e] = sum:eq(0.0):select(0.0, state[3][e]:get() / sum)
  end
  return pooled
end

function running.store(p, g, state)
  for i, name in ipairs(running.arrays(g.prefix)) do
    local values = {}
    for e = 1, CHANNELS do values[e] = state[i][e]:get() end
    array(p, name, g.slot):at(g.channel):store(values)
  end
end

return running
