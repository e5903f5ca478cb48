-- indexer_topk: a token's k best entries, exactly; ties go to the lower entry, the result ascends.
-- One block a token. Scores become integers that sort like them; four passes over the scores find
-- the k-th largest, eight bits at a time, and a last one writes, in order of entry, what lies above
-- it and as many of its equals as are still wanted.
local THREADS = 256
local BINS = 256

-- An integer that orders like the score: NaN lowest of all, -0 like +0.
local function key_of(score)
  local bits = (score + 0.0):bits(u32)
  local negative = (bits >> 31):eq(1)
  local key = negative:select(~bits, bits | 0x80000000)
  return score:eq(score):select(key, 0)
end

-- The sum of a u32 over the threads before this one, and over all: a scan over warps through
-- `warps`, one u32 a warp.
local function scan(count, warps)
  local lane, before = lane_id(), count
  for _, distance in ipairs { 1, 2, 4, 8, 16 } do
    local from = shuffle_up(before, distance)
    before = lane:ge(distance):select(before + from, before)
  end
  when(lane:eq(31), function() warps:at(warp_id()):store(before) end)
  barrier()
  local earlier, total = const(u32, 0), const(u32, 0)
  for w = 0, THREADS // 32 - 1 do
    local of_warp = warps:at(w):load()
    earlier = earlier + warp_id():gt(w):select(of_warp, 0)
    total = total + of_warp
  end
  barrier()
  return earlier + before - count, total
end

-- Narrow the search by one digit: `prefix` are the bits known of the k-th key, `wanted` its rank
-- among the keys with that prefix. Both are variables in shared memory: found[0], found[1].
local function narrow(scores, n, shift, histogram, found, warps)
  local thread = thread_id()
  histogram:at(thread):store(0)
  barrier()
  local prefix = found:load()
  loop(u32, thread, n, THREADS, function(i)
    local key = key_of(scores:at(i):load())
    -- Two shifts: a shift by 32 has no meaning.
    local above = (key >> shift) >> 8
    when(above:eq((prefix >> shift) >> 8), function()
      atomic_add(histogram:at((key >> shift) & (BINS - 1)), 1)
    end)
  end)
  barrier()
  -- Thread b looks at bin 255 - b: how many keys lie in higher bins?
  local bin = (BINS - 1) - thread
  local here = histogram:at(bin):load()
  local higher = scan(here, warps)
  local wanted = found:at(1):load()
  barrier()
  when(higher:lt(wanted) & (higher + here):ge(wanted), function()
    found:store(prefix | bin << shift)
    found:at(1):store(wanted - higher)
  end)
  barrier()
end

return kernel {
  name = "indexer_topk",
  job = "the best entries of a token, exact, ties to the lower entry, ascending",
  block = THREADS,
  grid = { per("tokens") },
  variants = function(T) return T.indexer and { { name = "indexer_topk" } } or {} end,

  params = function() return {
    value("tokens", u32), value("scores_stride", u32), value("topk_stride", u32),
    input("position", i32, "[tokens]"), input("scores", f32, "[tokens][scores_stride]"),
    output("topk", i32, "[tokens][topk_stride]"), output("topk_count", i32, "[tokens]"),
  } end,

  build = function(T, p)
    local token, thread = block_id(), thread_id()
    local position = p.position:at(token):load()
    local visible = position:lt(0):select(0, (position:to(u32) + 1) // T.ratio)
    local n = imin(visible, p.scores_stride)
    local count = imin(imin(n, T.indexer.topk), p.topk_stride)
    when(thread:eq(0), function() p.topk_count:at(token):store(count:to(i32)) end)
    return_if(count:eq(0))

    local scores = p.scores:at(token:to(u64) * p.scores_stride:to(u64))
    local out = p.topk:at(token:to(u64) * p.topk_stride:to(u64))
    local histogram, found, warps = shared(u32, BINS), shared(u32, 4), shared(u32, THREADS // 32)
    when(thread:eq(0), function()
      found:store(0)
      found:at(1):store(count)
    end)
    barrier()
    for shift = 24, 0, -8 do narrow(scores, n, shift, histogram, found, warps) end
    local kth, equals = found:load(), found:at(1):load()

    -- Entries in order, THREADS at a time; `taken` and `tied` count those before this tile.
    local taken = variable(u32, 0, "uniform")
    local tied = variable(u32, 0, "uniform")
    loop(u32, 0, n, THREADS, function(tile)
      local i = tile + thread
      local inside = i:lt(n)
      local key = key_of(scores:at(imin(i, n - 1)):load())
      local is_tie = inside & key:eq(kth)
      local ties_before, ties = scan(is_tie:to(u32), warps)
      local chosen = inside & (key:gt(kth) | (is_tie & (tied:get() + ties_before):lt(equals)))
      local before, all = scan(chosen:to(u32), warps)
      when(chosen, function() out:at(taken:get() + before):store(i:to(i32)) end)
      taken:set(taken:get() + all:promise { level = "uniform" })
      tied:set(tied:get() + ties:promise { level = "uniform" })
    end)
  end,
}
