-- The rows of a token's list: where each lies, and its copy into shared memory as bf16. A list is
-- window rows first, then compressed rows; both places have the same fields, each its own pages.
local vectors = require "vectors"
local stored = require "stored"

local gather = {}

-- The row a row number (u32) names in a place.
local function row_of(place, p, number)
  return rows(place, p, (number // place.rows):to(u64), (number % place.rows):to(u64))
end

-- Vector v of a row as bf16: its nope part decoded, its rotated part copied.
local function load_vector(T, row, v, use)
  local nope = vectors.count(T.nope_dim)
  when(v:lt(nope), function() use(stored.latent[T.format](row, v)) end,
    function() use(row:field("rope"):at((v - nope) * 8):load(8)) end)
end

-- Copy list positions first .. first + count - 1 (below `total`) into `tile`, rows `stride` elements
-- apart: zeros for positions beyond the list and rows that are -1. `threads` threads take part.
function gather.tile(T, p, list, window, total, first, count, tile, stride, threads)
  local per_row = vectors.count(T.head_dim)
  loop(u32, thread_id(), count * per_row, threads, function(i)
    local r, v = i // per_row, i % per_row
    local position, eight = first + r, {}
    for e = 1, 8 do eight[e] = variable(bf16, 0.0) end
    local function use(values) for e = 1, 8 do eight[e]:set(values[e]) end end
    when(position:lt(total), function()
      local number = list:at(position):load()
      when(number:ge(0), function()
        local function of(place) load_vector(T, row_of(place, p, number:to(u32)), v, use) end
        if T.place.compressed then
          when(position:lt(window), function() of(T.place.window) end,
            function() of(T.place.compressed) end)
        else
          of(T.place.window)
        end
      end)
    end)
    local out = {}
    for e = 1, 8 do out[e] = eight[e]:get() end
    tile:at(r * stride):at(v * 8):store(out)
  end)
end

-- Whether a list position names a row.
function gather.is_row(list, total, position)
  local found = variable(bool, false)
  when(position:lt(total), function() found:set(list:at(position):load():ge(0)) end)
  return found:get()
end

return gather
