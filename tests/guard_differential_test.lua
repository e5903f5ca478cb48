#!/usr/bin/env lua5.4
-- The template guard against Lua itself: random expressions, damaged texts, every Lua file at hand.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local guard = require "kvforge.guard"

local random = math.random

local function pick(list) return list[random(#list)] end

-- ---- random expressions, as trees ----
-- A tree is { what, operands... }; `print_tree` writes it, `evaluate` runs it; neither uses the guard.

local binary = { "or", "or", "and", "and", "==", "==", "~=", "~=", "<", "<=", ">", ">=", "..", "+", "-", "*",
  "/", "//", "%", "^", "&", "|", "~", "<<", ">>" }
local unary = { "not", "not", "not", "-", "#", "~" }
local leaves = { "nil", "true", "false", "1", "2.5", "'x'", "n", "m", "f", "i", "j", "s", "u", "t", "e" }

local function tree(depth)
  local dice = random()
  if depth == 0 or dice < 0.1 then return { "leaf", pick(leaves) } end
  if dice < 0.65 then return { pick(binary), tree(depth - 1), tree(depth - 1) } end
  if dice < 0.8 then return { "unary", pick(unary), tree(depth - 1) } end
  -- A call logs its number and returns that many of its operands.
  local call = pick { "call(t, ", "t:call(", "t.call(t, ", "(call)(t, " }
  return { "call", random(0, 2), tree(depth - 1), tree(depth - 1), call }
end

local priority = { ["or"] = 1, ["and"] = 2, ["|"] = 4, ["~"] = 5, ["&"] = 6, [".."] = 9, ["^"] = 13 }
for operators, level in pairs { ["< > <= >= == ~="] = 3, ["<< >>"] = 7, ["+ -"] = 10, ["* / // %"] = 11 } do
  for operator in operators:gmatch "%S+" do priority[operator] = level end
end
local UNARY = 12

local gaps = { " ", " ", " ", "  ", "\n", " --[[ or ]] ", " -- and\n" }

-- The text of a tree where operators of a priority below `least` need parentheses.
local function print_tree(x, least)
  local text, level
  if x[1] == "leaf" then return x[2] end
  if x[1] == "call" then
    return x[5] .. x[2] .. ", " .. print_tree(x[3], 0) .. "," .. print_tree(x[4], 0) .. ")"
  elseif x[1] == "unary" then
    text, level = x[2] .. pick(gaps) .. print_tree(x[3], UNARY), UNARY
  else
    level = priority[x[1]]
    local right_associative = x[1] == ".." or x[1] == "^"
    local left = print_tree(x[2], right_associative and level + 1 or level)
    local right = print_tree(x[3], right_associative and level or level + 1)
    text = left .. pick(gaps) .. x[1] .. pick(gaps) .. right
  end
  if level < least or random() < 0.1 then text = "(" .. text .. ")" end
  return text
end

-- ---- the world they run in ----

local value_meta = {}
local function new_value() return setmetatable({}, value_meta) end
local function is_value(v) return getmetatable(v) == value_meta end
for event in ("add sub mul div mod idiv pow unm band bor bxor shl shr bnot len"):gmatch "%a+" do
  value_meta["__" .. event] = new_value
end

local table_meta = { __eq = function(a, b) return a.id == b.id end, __lt = function() return nil end }
table_meta.__le = function() return 1 end
table_meta.__add = function(a) return a end
table_meta.__concat = function() return "joined" end

-- The globals of an expression; `values` turns some of them into register values.
local function world(values)
  local log = {}
  local env = {
    n = nil, m = -3, f = false, i = 7, j = 2.0, s = "str", u = "5",
    t = setmetatable({ id = 1 }, table_meta), e = setmetatable({ id = 1 }, table_meta),
  }
  function env.call(_, count, a, b)
    log[#log + 1] = count
    if count == 2 then return a, b elseif count == 1 then return b end
  end
  env.t.call = env.call
  if values then env.m, env.i, env.s = new_value(), new_value(), new_value() end
  return env, log
end

-- Something that two runs can be compared by.
local function shown(v)
  if is_value(v) then return "value" end
  if type(v) == "table" then return "table " .. v.id end
  return math.type(v) == "float" and ("%a"):format(v) or tostring(v)
end

local function outcome(results, log)
  local out = { table.concat(log, " "), tostring(results[1]) }
  -- What a failed operation says of its operands' names is not the guard's business.
  if not results[1] then return out[1] .. " failed: " .. tostring(results[2]):gsub(" %(.-%)", "") end
  for k = 2, results.n do out[#out + 1] = shown(results[k]) end
  return table.concat(out, ", ")
end

local contexts = {
  "return %s", "return %s, 1", "return 1, %s", "local a <const> = %s return a", "return { %s, n = 1 }",
  "if %s then return 1 else return 2 end", "while %s do return 1 end return 2",
  "local k = 0 repeat k = k + 1 if k > 2 then return 9 end until %s return 3",
  "return call(t, 2, %s, i)", "return (%s)", "local a = { call(t, 2, i, %s) } return a[1], a[2]",
  "return (function(...) return select('#', ...) end)(%s)", "if f then elseif %s then return 4 end",
}

local function unroll(results)
  local first = results[2]
  if type(first) == "table" and getmetatable(first) == nil then
    return { results[1], #first, first.n, first[1], n = 4 }
  end
  return results
end

local function run(text, env, log)
  local chunk = assert(load(text, "=x", "t", env))
  return outcome(unroll(table.pack(pcall(chunk, 1, 2))), log)
end

-- Without values, a rewritten expression does what the original does.
local function same_behaviour(seed, count)
  math.randomseed(seed)
  local changed, good = 0, 0
  for _ = 1, count do
    local text = pick(contexts):gsub("%%s", (print_tree(tree(random(1, 6)), 0):gsub("%%", "%%%%")))
    local rewritten = guard.rewrite(text, "x")
    local env, log = world()
    local want = run(text, env, log)
    env, log = world()
    for name, what in pairs(guard.environment(is_value)) do env[name] = what end
    local got = rewritten and run(rewritten, env, log)
    if got ~= want then
      tap.note(("%s\nrewritten %s\ngot  %s\nwant %s"):format(text, rewritten, got, want))
      return false
    end
    if not want:find "failed" then good = good + 1 end
    if rewritten ~= text then changed = changed + 1 end
  end
  tap.note(("%d expressions, %d rewritten, %d without an error"):format(count, changed, good))
  return changed > count // 2 and good > count // 10
end

-- ---- values, against an evaluator of trees ----

local MISUSE = {}

local arithmetic = {}
for operator in pairs(priority) do
  arithmetic[operator] = load("local a, b = ... return a " .. operator .. " b")
end
local unary_arithmetic = {}
for _, operator in ipairs(unary) do unary_arithmetic[operator] = load("return " .. operator .. " ...") end

local evaluate

local function truth(x, env)
  local v = evaluate(x, env)
  if is_value(v) then error(MISUSE, 0) end
  return v
end

function evaluate(x, env)
  local what = x[1]
  if what == "leaf" then
    if x[2]:find "^%l$" then return env[x[2]] end
    return load("return " .. x[2])()
  elseif what == "call" then
    return (env.call(nil, x[2], evaluate(x[3], env), evaluate(x[4], env)))
  elseif what == "unary" then
    if x[2] == "not" then return not truth(x[3], env) end
    return unary_arithmetic[x[2]](evaluate(x[3], env))
  elseif what == "and" then
    return truth(x[2], env) and evaluate(x[3], env)
  elseif what == "or" then
    return truth(x[2], env) or evaluate(x[3], env)
  end
  local a, b = evaluate(x[2], env), evaluate(x[3], env)
  if (what == "==" or what == "~=") and x[2][2] ~= "nil" and x[3][2] ~= "nil" then
    if is_value(a) or is_value(b) then error(MISUSE, 0) end
  end
  return arithmetic[what](a, b)
end

-- A rewritten expression raises where the evaluator says so, after the same calls, and only there.
local function same_misuse(seed, count)
  math.randomseed(seed)
  local raised, calm = 0, 0
  for _ = 1, count do
    local x, decides = tree(random(1, 5)), random() < 0.5
    local env, log = world(true)
    local want = outcome(table.pack(pcall(decides and truth or evaluate, x, env)), log)
    want = want:gsub(tostring(MISUSE), "MISUSE"):gsub("failed: [^M].*", "failed")
    local text = (decides and "if %s then return true end return false" or "return (%s)")
    text = text:gsub("%%s", (print_tree(x, 0):gsub("%%", "%%%%")))
    env, log = world(true)
    for name, what in pairs(guard.environment(is_value)) do env[name] = what end
    local got = outcome(table.pack(pcall(load(guard.rewrite(text, "x"), "=x", "t", env))), log)
    got = got:gsub("failed: x:%d+: a register value.*", "failed: MISUSE"):gsub("failed: [^M].*", "failed")
    if decides and not want:find "failed" then
      local v = want:match "true, (.*)"
      want = want:gsub("true, .*", "true, " .. tostring(v ~= "false" and v ~= "nil"))
    end
    if got ~= want then
      tap.note(("%s\ngot  %s\nwant %s"):format(guard.rewrite(text, "x"), got, want))
      return false
    end
    if want:find "MISUSE" then raised = raised + 1 elseif want:find "true, " then calm = calm + 1 end
  end
  tap.note(("%d expressions, %d misuse a value, %d run to their end"):format(count, raised, calm))
  return raised > count // 10 and calm > count // 10
end

-- ---- the files of the repository ----

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

local function lua_files()
  local find = "find lua templates gen tests examples -name '*.lua' 2>/dev/null | LC_ALL=C sort"
  local pipe = assert(io.popen(find))
  local texts = {}
  for path in pipe:lines() do
    texts[#texts + 1] = { path = path, text = (read(path):gsub("^#[^\n]*", "")) }
  end
  pipe:close()
  return texts
end

-- A line without anything that the guard may insert, or put something else in place of.
local function reduced(line)
  line = line:gsub("not __equal%(", ""):gsub("__equal%(", ""):gsub("__test%(", "")
  return (line:gsub("==", ""):gsub("~=", ""):gsub("[%s(),]", ""))
end

local function same_lines(a, b)
  local next_a, next_b = a:gmatch "[^\n]*", b:gmatch "[^\n]*"
  repeat
    local line_a, line_b = next_a(), next_b()
    if not line_a or not line_b then return line_a == line_b end
  until reduced(line_a) ~= reduced(line_b)
  return false
end

-- Every file can be rewritten, still loads, and keeps its lines.
local function files_load(files)
  local prologue = "local __test, __equal = __test, __equal; "
  for _, file in ipairs(files) do
    local rewritten, fault = guard.rewrite(file.text, file.path)
    local chunk = rewritten and load(rewritten, "=x")
    local first, last = (rewritten or ""):find(prologue, 1, true)
    local bare = first and rewritten:sub(1, first - 1) .. rewritten:sub(last + 1) or rewritten
    if not chunk or not same_lines(bare, file.text) then
      tap.note(file.path .. ": " .. tostring(fault))
      return false
    end
  end
  tap.note(#files .. " files")
  return #files >= 8
end

-- The guard, rewritten by itself, rewrites as it did before.
local function guard_guarded(files)
  local loaded = {}
  local env = setmetatable(guard.environment(is_value), { __index = _G })
  function env.require(name)
    if not loaded[name] then
      local path = "lua/" .. name:gsub("%.", "/") .. ".lua"
      loaded[name] = assert(load(guard.rewrite(read(path), path), "@" .. path, "t", env))()
    end
    return loaded[name]
  end
  local second = env.require "kvforge.guard"
  if second == guard then return false end
  for _, file in ipairs(files) do
    if second.rewrite(file.text, "x") ~= guard.rewrite(file.text, "x") then return false end
    local half = file.text:sub(1, #file.text // 2)
    if select(2, second.rewrite(half, "x")) ~= select(2, guard.rewrite(half, "x")) then return false end
  end
  return true
end

-- ---- damaged texts ----

local words = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
  "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while", "+", "-", "*",
  "/", "//", "%", "^", "#", "&", "~", "|", "<<", ">>", "==", "~=", "<=", ">=", "<", ">", "=", "(", ")",
  "{", "}", "[", "]", "::", ";", ":", ",", ".", "..", "...", "a", "b", "1", "0x", "3e", "0x1p4",
  "1..2", ".5", "3x", "'s'", "\"", "'", "[[", "]]", "[=", "--[[", "--", "'\\x4'", "'\\u{110000000}'",
  "'\\u{7fffffff}'", "'\\300'", "'\\z \n'", "'\\\n'", "\n", "\r\n", "@", "!", "\1", "\200", "<const>",
  "<close>", "<other>", "__index", "$",
}

local function damaged(text)
  for _ = 1, random(1, 2) do
    local from = random(#text)
    local first, last = text:find(pick { "[%w_]+", "%p+", ".", "%s+", "[^\n]*\n" }, from)
    if first then
      local dice, word = random(3), pick(words)
      local middle = dice == 1 and "" or dice == 2 and word or text:sub(first, last) .. " " .. word .. " "
      text = text:sub(1, first - 1) .. middle .. text:sub(last + 1)
    end
  end
  return text
end

-- A few statements of a file, so that texts are short and faults are not always at the end.
local function excerpt(text)
  local from = text:find("\n", random(#text), true) or 0
  local size = random(20, 600)
  return text:sub(from + 1, from + size)
end

-- Lua's message with what is not the guard's to decide taken out: near a string it shows the string's
-- content, escapes decoded; where a call's parentheses opened differs between versions of Lua 5.4.
local function comparable(message)
  if not message then return nil end
  return (message:gsub("(near ['\"]['\"%[]).*", "%1"):gsub("%(to close '%(' at line %d+%) ", ""))
end

-- Whether Lua stopped at a fault that is not one of grammar; the guard goes on to the next.
local function beyond_grammar(message)
  for _, part in ipairs { "outside a vararg function", "const variable", "break outside", "no visible label",
    "already defined", "unknown attribute", "to-be-closed", "into the scope" } do
    if message and message:find(part, 1, true) then return true end
  end
  return false
end

-- Guard and Lua refuse the same texts with the same words: the guard itself, or Lua the rewritten text.
local function same_faults(files, seed, count)
  math.randomseed(seed)
  local refused, by_guard = 0, 0
  for _ = 1, count do
    local text = pick(files).text
    text = damaged(random() < 0.8 and excerpt(text) or text)
    if not text:find "^#" and not text:find "__test" and not text:find "__equal" then
      local _, want = load(text, "=x", "t")
      local rewritten, got = guard.rewrite(text, "x")
      if got then by_guard = by_guard + 1 else got = select(2, load(rewritten, "=x", "t")) end
      if comparable(got) ~= comparable(want) and not (rewritten == nil and beyond_grammar(want)) then
        tap.note(("%s\ngot  %s\nwant %s"):format(text, got, want))
        return false
      end
      if want then refused = refused + 1 end
    end
  end
  tap.note(("%d texts, Lua refuses %d, the guard %d of them"):format(count, refused, by_guard))
  return refused > count // 4 and refused < count and by_guard > refused // 2
end

local files = lua_files()
-- Only the guard's own files are damaged, so that no other change can bring up a text not met before.
local own = {}
for _, file in ipairs(files) do
  if file.path:find "guard" then own[#own + 1] = file end
end
tap.plan(5)
tap.ok(same_behaviour(1, 20000), "random expressions behave the same when rewritten")
tap.ok(same_misuse(2, 20000), "values raise where they are misused, and only there")
tap.ok(files_load(files), "every Lua file can be rewritten and keeps its lines")
tap.ok(guard_guarded(files), "the guard, rewritten by itself, does the same")
tap.ok(same_faults(own, 3, 6000), "damaged texts are refused in Lua's own words")
tap.done()
