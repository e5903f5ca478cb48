-- Run a spec as data from a stranger: text only, a closed environment, limits on instructions and
-- memory. The spec reaches the `kvforge` constructors and pure functions, nothing else: no pcall, no
-- metatables, no coroutines, so it can neither catch a limit's error nor hide from the hook.
local sandbox = {}

-- Far above what any spec needs (the examples stay under 10,000 instructions and 50 KB), low enough
-- that a hostile one ends within a second.
sandbox.limits = {
  text = 1 << 20,         -- bytes of the spec
  instructions = 200000,  -- Lua instructions while it runs
  memory = 1 << 20,       -- bytes it may allocate while it runs
}

-- So few instructions between two looks at the memory that a string that doubles each time cannot
-- get far. A host that must survive one huge concatenation also limits its allocator.
local HOOK_STEP = 8

local function pick(from, names)
  local picked = {}
  for name in names:gmatch("%S+") do picked[name] = from[name] end
  return picked
end

-- Library functions that can stay long inside C first pay for it: charge(instructions, bytes).
local function safe_table(charge)
  return {
    concat = function(list, separator, first, last)
      first, last = first or 1, last or #list
      local bytes = 0
      for i = first, last do
        bytes = bytes + #list[i] + (separator and #separator or 0)
      end
      charge(0, bytes)
      return table.concat(list, separator, first, last)
    end,
    insert = function(list, ...)
      charge(#list)
      return table.insert(list, ...)
    end,
    remove = function(list, ...)
      charge(#list)
      return table.remove(list, ...)
    end,
    sort = function(list, less)
      charge(24 * #list)
      return table.sort(list, less)
    end,
    unpack = function(list, first, last)
      first, last = first or 1, last or #list
      charge(math.max(0, last - first))
      return table.unpack(list, first, last)
    end,
    pack = table.pack,
  }
end

local function safe_string(charge)
  local safe = pick(string, "len lower reverse sub upper")
  -- One byte at a time: a slice would push as many values as the string is long.
  safe.byte = function(text, at) return string.byte(text, at) end
  safe.format = function(form, ...)
    for i = 1, select("#", ...) do
      local value = select(i, ...)
      local kind = type(value)
      if kind == "table" or kind == "function" then
        -- Their text would be an address, different in every run.
        error(("string.format: argument %d is a %s"):format(i, kind), 2)
      end
      if kind == "string" then charge(#value) end
    end
    return string.format(form, ...)
  end
  return safe
end

-- pairs in a fixed order: numbers, then strings, then the rest as they come. The built-in order
-- changes from run to run.
local function sorted_pairs(charge)
  local rank = { number = 1, string = 2 }
  local function before(a, b)
    local ra, rb = rank[type(a)] or 3, rank[type(b)] or 3
    if ra ~= rb then return ra < rb end
    return ra < 3 and a < b
  end
  return function(map)
    local keys = {}
    for key in next, map do keys[#keys + 1] = key end
    charge(24 * #keys)
    table.sort(keys, before)
    local at = 0
    return function()
      at = at + 1
      local key = keys[at]
      if key ~= nil then return key, map[key] end
    end
  end
end

local function plain_text(value)
  local kind = type(value)
  if kind == "table" or kind == "function" then return kind end
  return tostring(value)
end

local function environment(kv, charge)
  local env = {
    assert = assert, error = error, ipairs = ipairs, select = select, type = type,
    pairs = sorted_pairs(charge),
    tostring = plain_text,
    tonumber = function(value, base)
      if type(value) == "string" and #value > 64 then return nil end
      if base then return tonumber(value, base) end
      return tonumber(value)
    end,
    math = pick(math, "abs ceil floor fmod huge max maxinteger min mininteger pi sqrt tointeger type ult"),
    string = safe_string(charge),
    table = safe_table(charge),
    require = function(name)
      if name ~= "kvforge" then
        error('a spec can require "kvforge" and nothing else', 2)
      end
      return kv
    end,
  }
  local reader = {
    __index = function(_, name)
      error(("there is no global \"%s\" in a spec"):format(plain_text(name)), 2)
    end,
    __metatable = "sealed",
  }
  return setmetatable(env, reader)
end

-- The line of the spec that `thread` executes, or that failed in it, whatever it has called; nil if
-- there is none (a tail call leaves none).
local function line_of(thread, chunkname)
  for level = 0, 64 do
    local info = debug.getinfo(thread, level, "Sl")
    if not info then return nil end
    if info.source == chunkname then return info.currentline end
  end
end

-- A meter of instructions and allocated bytes; it raises a table { limit } when one is out.
local function new_meter(limits)
  local used, start = 0, collectgarbage("count")
  -- string.format, not a method: methods are the spec's guarded ones now, which charge in turn.
  local function raise(form, limit) error({ limit = string.format(form, limit) }) end
  return function(instructions, bytes)
    used = used + instructions
    if used > limits.instructions then
      raise("the spec runs longer than %d instructions", limits.instructions)
    end
    if (collectgarbage("count") - start) * 1024 + (bytes or 0) > limits.memory then
      raise("the spec takes more than %d bytes of memory", limits.memory)
    end
  end
end

-- Replace the fields of the strings' metatable by those of `now`; returns what was there.
local function swap_string_meta(now)
  local meta, before = getmetatable(""), {}
  for name, value in pairs(meta) do before[name] = value end
  for name in pairs(before) do meta[name] = nil end
  for name, value in pairs(now) do meta[name] = value end
  return before
end

-- Resume `thread` under `hook`. What strings can do and the collector are the whole state's: put back
-- afterwards. Strings keep the safe methods and lose arithmetic, which would read a long one anew each
-- time. With the collector off every allocation counts, so the memory limit also bounds copying. The
-- hook belongs to the spec's own coroutine, so it ends with it.
local function guarded(thread, hook, strings)
  local collecting = collectgarbage("isrunning")
  debug.sethook(thread, hook, "", HOOK_STEP)
  local before = swap_string_meta({ __index = strings })
  collectgarbage("stop")
  local ok, result = coroutine.resume(thread)
  swap_string_meta(before)
  if collecting then collectgarbage("restart") end
  return ok, result
end

local function fault_text(raised)
  if type(raised) == "table" and raised.limit then return raised.limit end
  if type(raised) ~= "string" then return "the spec raised an error that is no text" end
  if raised:find("stack overflow", 1, true) then return "the spec recurses too deeply" end
  if raised == "not enough memory" then return "the spec takes more memory than there is" end
  return raised
end

-- sandbox.run(text, chunkname, make, limits) -> what the spec returns, or nil and { line, text }; the
-- text may begin with file and line itself.
-- `make(here)` returns the `kvforge` module for the spec; here() is the line of the spec that called,
-- or nil. Code that `make`'s functions run must not use strings as objects (text:sub(1)).
function sandbox.run(text, chunkname, make, limits)
  if #text > limits.text then
    return nil, { line = 1, text = ("the spec is longer than %d bytes"):format(limits.text) }
  end
  local charge, thread = new_meter(limits), nil
  local env = environment(make(function() return line_of(thread, chunkname) end), charge)
  local chunk, fault = load(text, chunkname, "t", env)
  if not chunk then return nil, { text = fault } end
  thread = coroutine.create(chunk)
  local ok, result = guarded(thread, function() charge(HOOK_STEP) end, env.string)
  if ok then return result end
  local line = line_of(thread, chunkname)
  coroutine.close(thread)
  return nil, { line = line, text = fault_text(result) }
end

return sandbox
