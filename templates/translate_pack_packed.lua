-- translate_pack_packed: the entries the indexer chose, as row numbers at the head of a token's slice; the
-- window_count rows at its tail are row_lists_packed's. One warp a token.
local lists = require "lists"
local packed = require "packed"

local TOKENS = 4

return kernel {
  name = "translate_pack_packed",
  job = "the chosen entries to row numbers, at the head of the token's packed list",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },
  variants = function(T)
    return T.model.packed_lists and T.indexer and { { name = "translate_pack_packed" } } or {}
  end,

  params = function() return {
    value("tokens", u32), value("requests", u32), value("block_pages", u32), value("table_stride", u32),
    value("list_rows", u32), value("topk_stride", u32),
    input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
    input("indptr", i32, "[tokens + 1]"), input("topk", i32, "[tokens][topk_stride]"),
    input("topk_count", i32, "[tokens]"), input("block_table", i32, "[requests][table_stride]"),
    input("window_count", i32, "[tokens]"),
    output("rows", i32, "[list_rows]"),
  } end,

  build = function(T, p)
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    local request = p.batch_id:at(token):load():to(u32)
    return_if(~(request:lt(p.requests) & p.position:at(token):load():ge(0)))

    local first, length = packed.slice(p.indptr, token, p.list_rows)
    local room = length - imin(p.window_count:at(token):load():to(u32), length)
    local chosen = imin(imin(p.topk_count:at(token):load():to(u32), p.topk_stride), room)
    local from = p.topk:at(token:to(u64) * p.topk_stride:to(u64))
    packed.fill(p.rows:at(first), room, chosen, function(j)
      return lists.row(p.block_table, p.table_stride, p.block_pages, request, from:at(j):load():to(u32), T.k)
    end)
  end,
}
