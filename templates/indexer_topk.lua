-- indexer_topk: a token's k best entries, exactly; ties go to the lower entry, the result ascends.
-- One block a token. Scores become integers that sort like them; four passes over them find the k-th
-- largest, eight bits at a time, and a last one writes, in order of entry, what lies above it and as
-- many of its equals as are still wanted. Up to CACHED of them are read once and stay in shared
-- memory; more are read once a pass.
local THREADS = 256
local BINS = 256
local CACHED = 4096

-- Rows of scores and results begin anywhere; threads take four entries each, from a multiple of 32
-- bytes on, a memory sector: thread i those from 4 i - skew on, which are not all the row's at its
-- ends.
local WIDTH, SECTOR = 4, 8

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

-- The part of an array of rows that is one row of `n`: `skew` elements before it a sector begins.
local function vectors_of(array, start, n)
  local skew = start & (SECTOR - 1)
  return { pointer = array:at(start // SECTOR * SECTOR), skew = skew:to(u32), n = n,
    count = (n + skew:to(u32) + (WIDTH - 1)) // WIDTH }
end

-- The first entry of a vector, and whether all of it is the row's. Entries before the row wrap around
-- and are beyond it too.
local function first_of(row, i) return i * WIDTH - row.skew end
local function is_whole(row, first) return first:lt(row.n) & (first + (WIDTH - 1)):lt(row.n) end

-- The keys of vector i; of entries that are not the row's, 0.
local function read_keys(row, i)
  local first, key = first_of(row, i), {}
  for e = 1, WIDTH do key[e] = variable(u32, 0) end
  when(is_whole(row, first), function()
    for e, score in ipairs(row.pointer:at(i * WIDTH):load(WIDTH)) do key[e]:set(key_of(score)) end
  end, function()
    for e = 1, WIDTH do
      when((first + (e - 1)):lt(row.n), function()
        key[e]:set(key_of(row.pointer:at(i * WIDTH):at(e - 1):load()))
      end)
    end
  end)
  local out = {}
  for e = 1, WIDTH do out[e] = key[e]:get() end
  return out
end

-- The same, from the cache where the row fits there.
local function keys(row, i)
  local key = {}
  for e = 1, WIDTH do key[e] = variable(u32, 0) end
  local function set(values) for e = 1, WIDTH do key[e]:set(values[e]) end end
  when(row.cached, function() set(row.cache:at(i * WIDTH):load(WIDTH)) end,
    function() set(read_keys(row, i)) end)
  local out = {}
  for e = 1, WIDTH do out[e] = key[e]:get() end
  return out
end

local function fill_cache(row)
  when(row.cached, function()
    loop(u32, thread_id(), row.count, THREADS, function(i)
      row.cache:at(i * WIDTH):store(read_keys(row, i))
    end)
  end)
end

-- Narrow the search by one digit: `prefix` are the bits known of the k-th key, `wanted` its rank
-- among the keys with that prefix. Both are variables in shared memory: found[0], found[1].
local function narrow(row, shift, histogram, found, warps)
  local thread = thread_id()
  histogram:at(thread):store(0)
  barrier()
  local prefix = found:load()
  loop(u32, thread, row.count, THREADS, function(i)
    local first = first_of(row, i)
    for e, key in ipairs(keys(row, i)) do
      -- Two shifts: a shift by 32 has no meaning.
      local above = (key >> shift) >> 8
      when((first + (e - 1)):lt(row.n) & above:eq((prefix >> shift) >> 8), function()
        atomic_add(histogram:at((key >> shift) & (BINS - 1)), 1)
      end)
    end
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

-- Entries in order, a tile of vectors at a time: those above the k-th key and the first `equals` of
-- those equal to it go to chosen[0], [1], ...
local function choose(row, kth, equals, chosen, warps)
  local taken, tied = variable(u32, 0, "uniform"), variable(u32, 0, "uniform")
  loop(u32, 0, row.count, THREADS, function(tile)
    local i = tile + thread_id()
    local first, above, ties = first_of(row, i), {}, {}
    local count = const(u32, 0)
    for e, key in ipairs(keys(row, imin(i, row.count - 1))) do
      local inside = (first + (e - 1)):lt(row.n)
      above[e], ties[e] = (inside & key:gt(kth)):to(u32), (inside & key:eq(kth)):to(u32)
      count = count + (above[e] | ties[e] << 16)
    end
    -- Both counts in one word: a tile has fewer than 2^16 of either.
    local before, all = scan(count, warps)
    local higher, equal = taken:get() + (before & 0xffff), tied:get() + (before >> 16)
    for e = 1, WIDTH do
      when(above[e]:ne(0) | (ties[e]:ne(0) & equal:lt(equals)), function()
        chosen:at(higher + imin(equal, equals)):store((first + (e - 1)):to(i32))
      end)
      higher, equal = higher + above[e], equal + ties[e]
    end
    local sum = all:promise { level = "uniform" }
    taken:set(taken:get() + (sum & 0xffff))
    tied:set(tied:get() + (sum >> 16))
  end)
end

-- The row from shared memory, where it lies `skew` elements from the start.
local function write(row, from)
  loop(u32, thread_id(), row.count, THREADS, function(i)
    local first, values = first_of(row, i), from:at(i * WIDTH):load(WIDTH)
    local to = row.pointer:at(i * WIDTH)
    when(is_whole(row, first), function() to:store(values) end, function()
      for e = 1, WIDTH do
        when((first + (e - 1)):lt(row.n), function() to:at(e - 1):store(values[e]) end)
      end
    end)
  end)
end

return kernel {
  name = "indexer_topk",
  job = "the best entries of a token, exact, ties to the lower entry, ascending",
  block = THREADS,
  grid = { per("tokens") },
  variants = function(T) return T.indexer and { { name = "indexer_topk" } } or {} end,

  params = function() return {
    value("tokens", u32), value("scores_stride", u32), value("topk_stride", u32),
    input("position", i32, "[tokens]"), input("scores", f32, "[tokens][scores_stride]", { align = 16 }),
    output("topk", i32, "[tokens][topk_stride]", { align = 16 }), output("topk_count", i32, "[tokens]"),
  } end,

  build = function(T, p)
    local token, thread = block_id(), thread_id()
    local position = p.position:at(token):load()
    local visible = position:lt(0):select(0, (position:to(u32) + 1) // T.ratio)
    local n = imin(visible, p.scores_stride)
    local count = imin(imin(n, T.indexer.topk), p.topk_stride)
    when(thread:eq(0), function() p.topk_count:at(token):store(count:to(i32)) end)
    return_if(count:eq(0))

    local row = vectors_of(p.scores, token:to(u64) * p.scores_stride:to(u64), n)
    local out = vectors_of(p.topk, token:to(u64) * p.topk_stride:to(u64), count)
    local histogram, found, warps = shared(u32, BINS), shared(u32, 4), shared(u32, THREADS // 32)
    local chosen = shared(i32, (T.indexer.topk + 2 * SECTOR) // WIDTH * WIDTH)
    row.cache, row.cached = shared(u32, CACHED), row.count:le(CACHED // WIDTH)
    when(thread:eq(0), function()
      found:store(0)
      found:at(1):store(count)
    end)
    fill_cache(row)
    barrier()
    for shift = 24, 0, -8 do narrow(row, shift, histogram, found, warps) end
    choose(row, found:load(), found:at(1):load(), chosen:at(out.skew), warps)
    barrier()
    write(out, chosen)
  end,
}
