-- row_lists_packed, row_lists_packed_prefill: the published pool's form of lists, one ragged array a layer
-- type. Token t's slice is rows[indptr[t] .. indptr[t + 1]). Window rows stand at its tail (in
-- prefill, for types without an indexer, at its head), entries where the window rows leave room.
-- One warp a token.
local lists = require "lists"
local packed = require "packed"

local TOKENS = 4

-- Of the rows a prefill token attends to, how many are this forward's, and how many stand before it.
-- A request's tokens are consecutive, so that its first one is as far away in the batch as in the text.
local function parts(T, p, token, request, position)
  local visible = imin(position + 1, T.window)
  local inside = imin(token - p.cu_tokens:at(request):load():to(u32) + 1, visible)
  return inside, visible - inside
end

return kernel {
  name = "row_lists_packed",
  job = "the lists of row_lists in the published pool's packed form, for attention kernels that want it",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },
  variants = function(T)
    return T.model.packed_lists and { { name = "row_lists_packed" },
      { name = "row_lists_packed_prefill", prefill = true } } or {}
  end,

  params = function(T, variant)
    return {
      value("tokens", u32), value("requests", u32), value("window_pages", u32),
      packed.reads_all(T) and value("block_pages", u32) or {}, value("table_stride", u32),
      value("list_rows", u32), variant.prefill and value("extend_rows", u32) or {},
      input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
      variant.prefill and input("cu_tokens", i32, "[requests + 1]") or {},
      input("indptr", i32, "[tokens + 1]"),
      variant.prefill and input("extend_indptr", i32, "[tokens + 1]") or {},
      input("window_table", i32, "[requests][table_stride]"),
      packed.reads_all(T) and input("block_table", i32, "[requests][table_stride]") or {},
      output("rows", i32, "[list_rows]"),
      variant.prefill and output("extend", i32, "[extend_rows]") or {},
      output("window_count", i32, "[tokens]"),
    }
  end,

  build = function(T, p, variant)
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    local request = p.batch_id:at(token):load():to(u32)
    local signed = p.position:at(token):load()
    local live = request:lt(p.requests) & signed:ge(0)
    local function count(n) when(lane_id():eq(0), function() p.window_count:at(token):store(n) end) end
    when(~live, function() count(0) end)
    return_if(~live)

    local position = signed:to(u32)
    local before, visible, inside = position + 1, imin(position + 1, T.window), nil
    if variant.prefill then
      inside, visible = parts(T, p, token, request, position)
      before = before - inside
    end
    local first, length = packed.slice(p.indptr, token, p.list_rows)
    -- Where the slice is too short the youngest rows stand in it.
    local n = imin(visible, length)
    local out, room = p.rows:at(first), length - n
    local window, others = out:at(room), out
    if variant.prefill and not T.indexer then window, others = out, out:at(n) end
    loop(u32, lane_id(), n, 32, function(i)
      window:at(i):store(lists.row(p.window_table, p.table_stride, p.window_pages, request, before - n + i,
        T.model.block))
    end)
    if packed.reads_all(T) then
      local entries = imin((position + 1) // T.ratio, room)
      packed.fill(others, room, entries, function(j)
        return lists.row(p.block_table, p.table_stride, p.block_pages, request, j, T.k)
      end)
    elseif not T.indexer then
      packed.clear(others, 0, room)
    end
    if variant.prefill then
      local from, most = packed.slice(p.extend_indptr, token, p.extend_rows)
      local m = imin(inside, most)
      local to = p.extend:at(from)
      packed.fill(to, most, m, function(i) return (token + 1 - m + i):to(i32) end)
    end
    count(n:to(i32))
  end,
}
