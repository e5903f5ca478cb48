-- state_reset: make request slots as new: positions -1, ring head 0, tail lengths and running softmaxes 0.
-- Rows are left as they are: nothing reads a row whose position or length does not say so. Block x
-- takes the list's entry x, block y a layer.
local running = require "running"

local THREADS = 128

-- What is reset; each array to what it holds at first.
local resets = { swa_pos = true, swa_head = true, tail_len = true, idx_tail_len = true }
for _, prefix in ipairs { "", "idx_" } do
  for _, name in ipairs(running.arrays(prefix)) do resets[name] = true end
end

local function reset_arrays(T)
  local arrays, names = {}, {}
  for _, a in ipairs(T.state) do
    if resets[a.name] then
      arrays[#arrays + 1] = {
        name = a.name, count = a.slot_bytes // 4, first = a.dtype == "f32" and a.init + 0.0 or a.init,
      }
      names[#names + 1] = a.name
    end
  end
  return arrays, names
end

return kernel {
  name = "state_reset",
  job = "for a list of request slots: positions -1, ring head and tail state 0, in all layers of the type",
  block = THREADS,
  grid = { per("count"), per("layers") },

  variants = function(T) return #reset_arrays(T) > 0 and { { name = "state_reset" } } or {} end,

  params = function(T)
    local _, names = reset_arrays(T)
    return {
      value("count", u32), value("slots", u32), value("layers", u32),
      input("slot_list", i32, "[count]"),
      state(T, names, "out", { layers = true }),
    }
  end,

  build = function(T, p)
    local slot = p.slot_list:at(block_id("x")):load():to(u32)
    return_if(slot:ge(p.slots))
    local layer, thread = block_id("y"):to(u64), thread_id()
    for _, a in ipairs((reset_arrays(T))) do
      local at = array(p, a.name, slot:to(u64), layer)
      for first = 0, a.count - 1, THREADS do
        local inside = a.count - first >= THREADS or thread:lt(a.count - first)
        local function store() at:at(thread:to(u64)):at(first):store(a.first) end
        if is_value(inside) then when(inside, store) else store() end
      end
    end
  end,
}
