-- row_lists: the rows a token attends to, by row number: its window by position, then, for types
-- that read every entry, all entries it may see, in order. One warp a token.
local lists = require "lists"

local TOKENS = 4

local function has_entries(T) return T.ratio > 0 and not T.indexer end

-- The row number of a window position.
local function window_row(T, p, request)
  if T.model.window_mode == "ring" then
    local slot = p.state_slot:at(request):load():to(u32)
    return function(position)
      return slot:lt(p.slots):select(slot * T.ring + position % T.ring, 0xffffffff):to(i32)
    end
  end
  return function(position)
    return lists.row(p.window_table, p.table_stride, p.window_pages, request, position, T.model.block)
  end
end

return kernel {
  name = "row_lists",
  job = "per token: its window's row numbers by position, then (without indexer) all visible entries",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },

  params = function(T)
    local ring = T.model.window_mode == "ring"
    return {
      value("tokens", u32), value("requests", u32), value(ring and "slots" or "window_pages", u32),
      value("block_pages", u32), value("table_stride", u32), value("list_stride", u32),
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      ring and input("state_slot", i32, "[requests]")
        or input("window_table", i32, "[requests][table_stride]"),
      has_entries(T) and input("block_table", i32, "[requests][table_stride]") or {},
      output("rows", i32, "[tokens][list_stride]"), output("window_count", i32, "[tokens]"),
      output("entry_count", i32, "[tokens]"),
    }
  end,

  build = function(T, p)
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load()
    local live = request:lt(p.requests) & position:ge(0)
    -- With an indexer translate_pack counts the entries.
    local function counts(window, entries)
      when(lane_id():eq(0), function()
        p.window_count:at(token):store(window)
        if not T.indexer then p.entry_count:at(token):store(entries) end
      end)
    end
    when(~live, function() counts(0, 0) end)
    return_if(~live)

    local out = p.rows:at(token:to(u64) * p.list_stride:to(u64))
    local seen = position:to(u32) + 1
    local window = imin(imin(seen, T.window), p.list_stride)
    -- Where the list is too short for the window, its first rows stand in it.
    local first = seen - imin(seen, T.window)
    local row_of = window_row(T, p, request)
    loop(u32, lane_id(), window, 32, function(i) out:at(i):store(row_of(first + i)) end)
    if not has_entries(T) then
      counts(window:to(i32), 0)
      return
    end
    local entries = imin(seen // T.ratio, p.list_stride - window)
    loop(u32, lane_id(), entries, 32, function(j)
      out:at(window + j):store(lists.row(p.block_table, p.table_stride, p.block_pages, request, j, T.k))
    end)
    counts(window:to(i32), entries:to(i32))
  end,
}
