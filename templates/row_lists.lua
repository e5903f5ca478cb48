-- row_lists: the rows a token attends to, by row number: its window by position, then, for types
-- that read every entry, all entries it may see, in order. One warp a token.
local lists = require "lists"
local window = require "window"

local TOKENS = 4

local function has_entries(T) return T.ratio > 0 and not T.indexer end

-- The row number of a window position, as a function of it.
local function window_row(T, p, variant, token, request, position)
  if variant.workspace then
    local here = token + window.workspace_shift(T, request)
    return function(other) return (here - (position - other)):to(i32) end
  end
  if T.model.window_mode == "ring" then
    local slot = p.state_slot:at(request):load():to(u32)
    return function(other)
      return slot:lt(p.slots):select(slot * T.ring + other % T.ring, 0xffffffff):to(i32)
    end
  end
  return function(other)
    return lists.row(p.window_table, p.table_stride, p.window_pages, request, other, T.model.block)
  end
end

return kernel {
  name = "row_lists",
  job = "per token: its window's row numbers by position, then (without indexer) all visible entries",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },
  variants = function()
    return { { name = "row_lists" }, { name = "row_lists_workspace", workspace = true } }
  end,

  params = function(T, variant)
    local ring = T.model.window_mode == "ring"
    return {
      value("tokens", u32), value("requests", u32),
      variant.workspace and {} or value(ring and "slots" or "window_pages", u32),
      value("block_pages", u32), value("table_stride", u32), value("list_stride", u32),
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      variant.workspace and {} or ring and input("state_slot", i32, "[requests]")
        or input("window_table", i32, "[requests][table_stride]"),
      has_entries(T) and input("block_table", i32, "[requests][table_stride]") or {},
      output("rows", i32, "[tokens][list_stride]"), output("window_count", i32, "[tokens]"),
      output("entry_count", i32, "[tokens]"),
    }
  end,

  build = function(T, p, variant)
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    local request = p.batch_id:at(token):load():to(u32)
    local position = p.position:at(token):load()
    local live = request:lt(p.requests) & position:ge(0)
    -- With an indexer translate_pack counts the entries.
    local function counts(rows_of_window, entries)
      when(lane_id():eq(0), function()
        p.window_count:at(token):store(rows_of_window)
        if not T.indexer then p.entry_count:at(token):store(entries) end
      end)
    end
    when(~live, function() counts(0, 0) end)
    return_if(~live)

    local out = p.rows:at(token:to(u64) * p.list_stride:to(u64))
    local seen = position:to(u32) + 1
    local count = imin(imin(seen, T.window), p.list_stride)
    -- Where the list is too short for the window, its first rows stand in it.
    local first = seen - imin(seen, T.window)
    local row_of = window_row(T, p, variant, token, request, position:to(u32))
    loop(u32, lane_id(), count, 32, function(i) out:at(i):store(row_of(first + i)) end)
    if not has_entries(T) then
      counts(count:to(i32), 0)
      return
    end
    local entries = imin(seen // T.ratio, p.list_stride - count)
    loop(u32, lane_id(), entries, 32, function(j)
      out:at(count + j):store(lists.row(p.block_table, p.table_stride, p.block_pages, request, j, T.k))
    end)
    counts(count:to(i32), entries:to(i32))
  end,
}
