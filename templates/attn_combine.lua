-- attn_combine: the splits of a token's list put together, the sink once in the denominator. One
-- block a token and head, four dims a thread. Order: splits ascending.
local exp2 = require "exp2"

local DIMS = 4

return kernel {
  name = "attn_combine",
  job = "combine the splits; sink in the denominator; log-sum-exp",
  block = function(T) return math.max(32, T.head_dim // DIMS) end,
  grid = { per("tokens"), per("heads") },

  params = function() return {
    value("tokens", u32), value("heads", u32), value("splits", u32),
    input("part_o", f32, "[tokens][splits][heads][head_dim]", { align = 16 }),
    input("part_m", f32, "[tokens][splits][heads]"), input("part_l", f32, "[tokens][splits][heads]"),
    input("sink", f32, "[heads]"),
    output("out", bf16, "[tokens][heads][head_dim]", { align = 16 }), stride("out_stride", 16),
    output("lse", f32, "[tokens][heads]"),
  } end,

  build = function(T, p)
    local token, head, thread = block_id("x"), block_id("y"), thread_id()
    local function part(split)
      return (token:to(u64) * p.splits:to(u64) + split:to(u64)) * p.heads:to(u64) + head:to(u64)
    end
    local most = variable(f32, -math.huge, "uniform")
    loop(u32, 0, p.splits, 1, function(i) most:set(max(most:get(), p.part_m:at(part(i)):load())) end)
    local of_rows = most:get()
    local sink = p.sink:at(head):load() * exp2.LOG2E
    local top = max(of_rows, sink)
    local base = top:eq(-math.huge):select(0.0, top)
    local rows_base = of_rows:eq(-math.huge):select(0.0, of_rows)

    -- Threads beyond the row's dims work on the first ones once more and store nothing.
    local narrow = T.head_dim // DIMS < 32
    local busy = thread:lt(T.head_dim // DIMS)
    if narrow then thread = busy:select(thread, 0) end
    local sum = variable(f32, 0.0, "uniform")
    local rows_sum = variable(f32, 0.0, "uniform")
    local acc = {}
    for d = 1, DIMS do acc[d] = variable(f32, 0.0) end
    loop(u32, 0, p.splits, 1, function(i)
      local m, l = p.part_m:at(part(i)):load(), p.part_l:at(part(i)):load()
      when(l:ne(0.0), function()
        local factor = exp2.falling(m - base)
        sum:set(sum:get() + l * factor)
        rows_sum:set(rows_sum:get() + l * exp2.falling(m - rows_base))
        for d, o in ipairs(p.part_o:at(part(i) * T.head_dim):at(thread * DIMS):load(DIMS)) do
          acc[d]:set(acc[d]:get() + o * factor)
        end
      end)
    end)
    local total = sum:get()
    local denominator, empty = total + exp2.falling(sink - base), total:eq(0.0)
    local out = {}
    for d = 1, DIMS do out[d] = empty:select(0.0, acc[d]:get() / denominator):to(bf16) end
    local row = p.out:bytes(token:to(u64) * p.out_stride):at(head:to(u64) * T.head_dim)
    local function store() row:at(thread * DIMS):store(out) end
    if narrow then when(busy, store) else store() end
    when(thread_id():eq(0), function()
      local lse = (of_rows + exp2.log2(rows_sum:get())) * exp2.LN2
      p.lse:at(token:to(u64) * p.heads:to(u64) + head:to(u64)):store(lse)
    end)
  end,
}
