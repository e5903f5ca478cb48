-- translate_pack: the entries the indexer chose, as row numbers behind the token's window rows.
-- One warp a token.
local lists = require "lists"

local TOKENS = 4

return kernel {
  name = "translate_pack",
  job = "the chosen entries to row numbers, packed into the token's list",
  block = 32 * TOKENS,
  grid = { per("tokens", TOKENS) },
  variants = function(T) return T.indexer and { { name = "translate_pack" } } or {} end,

  params = function() return {
    value("tokens", u32), value("requests", u32), value("block_pages", u32), value("table_stride", u32),
    value("list_stride", u32), value("topk_stride", u32),
    input("batch_id", i32, "[tokens]"), input("position", i32, "[tokens]"),
    input("topk", i32, "[tokens][topk_stride]"), input("topk_count", i32, "[tokens]"),
    input("block_table", i32, "[requests][table_stride]"), input("window_count", i32, "[tokens]"),
    output("rows", i32, "[tokens][list_stride]"), output("entry_count", i32, "[tokens]"),
  } end,

  build = function(T, p)
    local token = block_id() * TOKENS + warp_id()
    return_if(token:ge(p.tokens))
    local request = p.batch_id:at(token):load():to(u32)
    local live = request:lt(p.requests) & p.position:at(token):load():ge(0)
    local function count(n) when(lane_id():eq(0), function() p.entry_count:at(token):store(n) end) end
    when(~live, function() count(0) end)
    return_if(~live)

    local window = p.window_count:at(token):load():to(u32)
    local chosen = imin(p.topk_count:at(token):load():to(u32), p.list_stride - window)
    local from = p.topk:at(token:to(u64) * p.topk_stride:to(u64))
    local to = p.rows:at(token:to(u64) * p.list_stride:to(u64)):at(window)
    loop(u32, lane_id(), chosen, 32, function(j)
      local entry = from:at(j):load():to(u32)
      to:at(j):store(lists.row(p.block_table, p.table_stride, p.block_pages, request, entry, T.k))
    end)
    count(chosen:to(i32))
  end,
}
