-- Row numbers through a block table: id * B + r, -1 where nothing is backed.
local lists = {}

-- The row number (i32) of item `i` (u32) of a request, `per_page` items a page of the table's ids.
function lists.row(table, table_stride, pages, request, i, per_page)
  local column = i // per_page
  local inside = column:lt(table_stride)
  local entry = request:to(u64) * table_stride:to(u64) + inside:select(column, 0):to(u64)
  local row = variable(i32, -1)
  when(inside, function()
    local page = table:at(entry):load():to(u32)
    when(page:lt(pages), function() row:set((page * per_page + i % per_page):to(i32)) end)
  end)
  return row:get()
end

return lists
