-- Where window rows lie: in the ring of a request slot or in the paged window blocks, and for chunks
-- longer than a decode step in a workspace besides.
--
-- The workspace holds one layer's rows of one launch: of every request its last window - 1 rows
-- before the launch, then the launch's. Token t of request b is workspace row t + (b + 1) * (window - 1).
local window = {}

window.WORKSPACE = "ws_"

-- The workspace's row (of `number`, u32) as a row of pages like the window place's.
function window.workspace_row(T, p, number)
  local per_page = T.place.window.rows
  return rows(T.place.window, p, (number // per_page):to(u64), (number % per_page):to(u64), window.WORKSPACE)
end

-- Request b's first row of the launch, counted from token 0 of the launch: (b + 1) * (window - 1).
function window.workspace_shift(T, request) return (request + 1) * (T.window - 1) end

-- ---- ring mode ----

local ring = {}

function ring.counts() return value("slots", u32) end
function ring.tables() return input("state_slot", i32, "[requests]") end

-- The row of a request's position (u32) and whether there is one (a warp condition).
function ring.find(T, p, request, position)
  local slot = p.state_slot:at(request):load():to(u32)
  return rows(T.place.window, p, slot:to(u64), (position % T.ring):to(u64)), slot:lt(p.slots), slot
end

-- ---- paged mode ----

local paged = {}

function paged.counts() return { value("pages", u32), value("table_stride", u32) } end
function paged.tables() return input("window_table", i32, "[requests][table_stride]") end

function paged.find(T, p, request, position)
  local column = position // T.model.block
  local inside = column:lt(p.table_stride)
  local entry = request:to(u64) * p.table_stride:to(u64) + inside:select(column, 0):to(u64)
  local page = variable(u32, 0xffffffff, "warp")
  when(inside, function() page:set(p.window_table:at(entry):load():to(u32)) end)
  local id = page:get()
  return rows(T.place.window, p, id:to(u64), (position % T.model.block):to(u64)), id:lt(p.pages)
end

local modes = { ring = ring, paged = paged }
function window.mode(T) return modes[T.model.window_mode] end

return window
