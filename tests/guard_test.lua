#!/usr/bin/env lua5.4
-- The template guard, construct by construct: what it rewrites, what it leaves, where values raise.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local guard = require "kvforge.guard"

local PROLOGUE = "local __test, __equal = __test, __equal; "
local CONDITION = "a register value is used as a Lua condition; use when(), select() or & | ~"
local EQUALITY = "a register value is compared by == or ~=; use :eq() or :ne()"

-- Values of these tests: what the metatable says.
local value_meta = {}
local VALUE = setmetatable({}, value_meta)
value_meta.__add = function() return VALUE end
value_meta.__unm = value_meta.__add
value_meta.__index = function() return VALUE end
value_meta.__call = function() return VALUE, VALUE end
value_meta.__lt = function() error("values have no order", 2) end
local function is_value(v) return getmetatable(v) == value_meta end

local function environment(extra)
  local env = setmetatable(guard.environment(is_value), { __index = _G })
  for name, what in pairs(extra or {}) do env[name] = what end
  return env
end

-- Rewrite and run `text`; what it returns, or nil and what it raised.
local function run(text, extra)
  local chunk = assert(load(assert(guard.rewrite(text, "chunk")), "=chunk", "t", environment(extra)))
  local results = table.pack(pcall(chunk, 1, nil, 3))
  if not results[1] then return nil, results[2] end
  return table.unpack(results, 2, results.n)
end

-- ---- what becomes of a text ----

-- Escapes and line breaks of every sort.
local escapes = "'a\\\r\nb\\\n\rc\\\rd\\\ne\\z \n \rf\\255\\u{07fffFFFF}'"

local rewrites = {
  -- conditions
  { "if a then elseif b.c then end", "if __test(a) then elseif __test(b.c) then end" },
  { "while a[i] do end", "while __test(a[i]) do end" },
  { "repeat local a = b until a", "repeat local a = b until __test(a)" },
  { "if(a)then end", "if __test((a))then end" },
  { "if(a)(b)then end", "if __test(((a)(b)))then end" },
  { "if -a + b then end", "if __test(-a + b) then end" },
  -- the operators
  { "x = not a", "x = not __test(a)" },
  { "x = not not a", "x = not not __test(a)" },
  { "x = not a ^ b", "x = not __test(a ^ b)" },
  { "x = not a.b:c()", "x = not __test((a.b:c()))" },
  { "x = not -a", "x = not __test(-a)" },
  { "x=not(a)", "x=not __test((a))" },
  { "x = a and b", "x = __test(a) and b" },
  { "x = a or b or c", "x = __test(a) or __test(b) or c" },
  { "x = a and b or c and d", "x = __test(a) and __test(b) or __test(c) and d" },
  { "x = a + b or c", "x = __test(a + b) or c" },
  { "if a and b then end", "if __test(a) and __test(b) then end" },
  { "if (a or (b and c)) then end", "if (__test(a) or (__test(b) and __test(c))) then end" },
  { "x = (a or b) and c", "x = (__test(a) or __test(b)) and c" },
  { "x = (a or b).y and c", "x = __test((__test(a) or b).y) and c" },
  { "x = (a or b) + 1 or c", "x = __test((__test(a) or b) + 1) or c" },
  { "return a and b", "return __test(a) and b" },
  -- equality
  { "x = a == b", "x = __equal(a , b)" },
  { "x = a ~= b", "x = not __equal(a , b)" },
  { "x=a==b", "x=__equal(a,b)" },
  { "x = a == b == c", "x = __equal(__equal(a , b) , c)" },
  { "x = a ~= b ~= c", "x = not __equal(not __equal(a , b) , c)" },
  { "x = a < b == c", "x = __equal(a < b , c)" },
  { "x = a == b < c", "x = __equal(a , b) < c" },
  { "x = a .. b == c + d", "x = __equal(a .. b , c + d)" },
  { "x = not a == b", "x = __equal(not __test(a) , b)" },
  { "x=not a==b", "x=__equal(not __test(a),b)" },
  { "x = a | b ~= c", "x = not __equal(a | b , c)" },
  { "x = a == 1.0 and b ~= 'c'", "x = __equal(a , 1.0) and not __equal(b , 'c')" },
  { "return(a)~=b", "return not __equal((a),b)" },
  { "return a == b", "return (__equal(a , b))" },
  { "return a == b, c == d", "return __equal(a , b), __equal(c , d)" },
  { "return (a == b)", "return (__equal(a , b))" },
  { "if a == b then end", "if __equal(a , b) then end" },
  -- several results
  { "x = f() == g()", "x = __equal(f() , (g()))" },
  { "x = a == ...", "x = __equal(a , (...))" },
  { "x = a == (f())", "x = __equal(a , (f()))" },
  { "x = f() or g()", "x = __test((f())) or g()" },
  { "x = not ...", "x = not __test((...))" },
  { "if (f()) then end", "if __test((f())) then end" },
  { "if (a or f()) then end", "if (__test(a) or __test((f()))) then end" },
  { "x = a == b.c 'd'", "x = __equal(a , (b.c 'd'))" },
  -- places
  { "f(a or b, { c and d, [e or f] = g or h; i = not j })",
    "f(__test(a) or b, { __test(c) and d, [__test(e) or f] = __test(g) or h; i = not __test(j) })" },
  { "for i = a or b, c or d, e or f do end",
    "for i = __test(a) or b, __test(c) or d, __test(e) or f do end" },
  { "for k, v in a or b, c or d do end", "for k, v in __test(a) or b, __test(c) or d do end" },
  { "local a <const>, b <close> = c or d, e == f",
    "local a <const>, b <close> = __test(c) or d, __equal(e , f)" },
  { "(a or b).c[d or e] = f or g", "(__test(a) or b).c[__test(d) or e] = __test(f) or g" },
  { "function a.b:c(d, ...) return d or ... end", "function a.b:c(d, ...) return __test(d) or ... end" },
  { "local function a() goto b; ::b:: if c then return end end",
    "local function a() goto b; ::b:: if __test(c) then return end end" },
  { "x = function(...) return not a end or b", "x = function(...) return not __test(a) end or b" },
  { "x = a--[==[ or ]] ]==]or b", "x = __test(a)--[==[ or ]] ]==]or b" },
  { "x = { [[a and b]], [=[ not ]] c]=], \"d \\\" or e\", 'not \\' f' }", nil },
  { "x = a // b or ~c or a ~ b", "x = __test(a // b) or __test(~c) or a ~ b" },
  { "x = a >> b << c & d or e", "x = __test(a >> b << c & d) or e" },
  { "x = 0x1.8p-1 or 3e+2 or .5 or 7//2 or a", "x = 0x1.8p-1 or 3e+2 or .5 or __test(7//2) or a" },
  { "x = " .. escapes .. " or a or b", "x = " .. escapes .. " or __test(a) or b" },
  -- what stays
  { "x = a < b and c >= d", nil },
  { "if not (a < b) then end", nil },
  { "if true then elseif nil then elseif 'a' then elseif 1 then end", nil },
  { "x = a == nil or nil ~= b", nil },
  { "x = 1 == 1.0, 'a' ~= 'b', {} == true", nil },
  { "while true do break end", nil },
  { "x = { __test = 1, a.__equal }", nil },
  { "x = (not (a < b)) == (c > d)", nil },
  { "x = -1 and b", nil },
  { "", nil },
  { "-- nothing", nil },
}

local function rewriting()
  local bad = {}
  for _, case in ipairs(rewrites) do
    local text, want = case[1], case[2]
    local got = guard.rewrite(text, "chunk")
    want = want and PROLOGUE .. want or text
    if got ~= want then bad[#bad + 1] = ("%s\ngot  %s\nwant %s"):format(text, got, want) end
  end
  tap.is(table.concat(bad, "\n"), "", #rewrites .. " texts are rewritten as they should be")
  tap.is(guard.rewrite("-- a\n\n  x = a or b", "c"), "-- a\n\n  " .. PROLOGUE .. "x = __test(a) or b",
    "the prologue stands before the first token")
  tap.is(guard.rewrite("#!/usr/bin/lua == if\nx = not a", "c"), "#!/usr/bin/lua == if\n" .. PROLOGUE
    .. "x = not __test(a)", "a first line with # is passed over")
end

-- ---- the same behaviour ----

-- Every statement of the language, and what they say.
local program = [===[
local out = {}
local function say(...) out[#out + 1] = table.concat({ ... }, " ") return ... end
local t = setmetatable({ n = 0, ["a b"] = { 5, 6; 7, x = 8 } }, { __eq = function() return true end })
function t.add(k) t.n = t.n + (k or 1) return t end
function t:twice(...) return select("#", ...) == 0 and self.add(2) or self, ... end
for i = 10, 1, -4 do say("down", i) end
for x = 0x1p-1, 0x.8p+2, 0.5 do say("half", x) end
for _, v in ipairs(t["a b"]) do if v ~= 6 then say("element", v) end end
local i = 0
while i < 5 do
  i = i + 1
  if i == 2 then goto continue elseif i == 4 then break else say("while", i) end
  ::continue::
end
repeat local last = i >= 7 i = i + 1 until last == true
do local a <const>, b <close> = 3, nil say("attributes", a, tostring(b)) end
local a, b, c = (function(...) return ... end)(1, nil, 3)
say("adjusted", tostring(a == 1), tostring(b ~= nil), c)
say("truth", tostring(not a), tostring(a and b), tostring(b or c), tostring(nil and a))
say("bits", 5 & 3 | 8 ~ 1 << 2, ~0 >> 60, 7 // 2, -7 % 3)
say("power", 2 ^ 3 ^ 0.5 == 2 ^ (3 ^ 0.5) and "right" or "left")
say("strings", "a" .. 1 .. 'b\z
     c\x41\65\u{48}\
d', [[
long]], #[==[]]]==], ("x"):rep(3) == "xxx" and "xxx" or "-", #"\"" == 1 and "one" or "more")
say("equal", tostring(t == setmetatable({}, getmetatable(t))), tostring(t ~= {}), tostring(rawequal(t, {})))
say("varargs", select("#", ...), tostring((...) == 1), tostring(... == 1), tostring(not ...))
t.add().add(3):twice():twice(nil) say("methods", t.n, t:twice() == t and "self" or "other")
local function count(k) return k == 0 and 0 or 1 + count(k - 1) end
say("recursion", count(50)) say "call"
local _ENV <const> = setmetatable({}, { __index = _ENV }) say("environment", tostring(x == 1), x or "none")
do return table.concat(out, "\n"), a == b, (a == c) or b, out and a end
]===]

local function behaviour()
  local original = assert(load(program, "=chunk", "t", setmetatable({}, { __index = _G })))
  local want = table.pack(original(1, nil, 3))
  local got = table.pack(run(program))
  tap.is(got[1], want[1], "a program of every statement says the same")
  local same = got.n == want.n
  for k = 2, want.n do same = same and got[k] == want[k] end
  tap.ok(same, "and returns the same")
  local changed = 0
  for _ in guard.rewrite(program, "c"):gmatch "__%l+%(" do changed = changed + 1 end
  tap.ok(changed > 20, "although " .. changed .. " places were rewritten")
end

-- ---- values ----

-- Texts that raise: line, message.
local raising = {
  { "local a = v\nif a\n then end", 2, CONDITION },
  { "local a\nif a then elseif\nv then end", 3, CONDITION },
  { "\nwhile v do break end", 2, CONDITION },
  { "repeat\nlocal a = v\nuntil a", 3, CONDITION },
  { "return\nnot v", 2, CONDITION },
  { "local a = 1\nlocal b = v and a", 2, CONDITION },
  { "local b = v or\n1", 1, CONDITION },
  { "if (nil\nor v) then end", 2, CONDITION },
  { "if 1 and\n(false or\nv.x) then end", 3, CONDITION },
  { "return v + 1 and 2", 1, CONDITION },
  { "\nif v(1) then end", 2, CONDITION },
  { "local function f(...) \n return not ... end f(v)", 2, CONDITION },
  { "return true,\n v == 1.0", 2, EQUALITY },
  { "return 1.0 == v", 1, EQUALITY },
  { "\n\nreturn v == v", 3, EQUALITY },
  { "local a = 'x'\nreturn a ~= v", 2, EQUALITY },
  { "local function f()\n return v == 1 end\nlocal a = f()\nreturn a", 2, EQUALITY },
  { "local function f()\n return 1 == v(2) end\nreturn f()", 2, EQUALITY },
  { "local _ENV = { v = v }\nif v then end", 2, CONDITION },
}

local function values()
  local bad = {}
  for _, case in ipairs(raising) do
    local want = ("chunk:%d: %s"):format(case[2], case[3])
    local results, message = run(case[1], { v = VALUE })
    if results ~= nil or message ~= want then
      bad[#bad + 1] = ("%s\ngot  %s\nwant %s"):format(case[1], message, want)
    end
  end
  tap.is(table.concat(bad, "\n"), "", #raising .. " misuses of values raise at their lines")
  local a, b, c, d = run("return v == nil, nil ~= v, (v), v + 1, f { v }", { v = VALUE, f = rawlen })
  tap.ok(a == false and b == true and is_value(c) and is_value(d), "values pass, and can be told from nil")
  tap.ok(is_value(run("return 1 and v", { v = VALUE })), "a value may be the result of `and`")
  tap.ok(is_value(run("return nil or v", { v = VALUE })), "and of `or`")
  tap.is(select(2, run("return v < 1", { v = VALUE })), "chunk:1: values have no order",
    "a < b is left to the value")
end

-- ---- faults ----

local faults = {
  { "x = = 1", "t.lua:1: unexpected symbol near '='" },
  { "\nif a the", "t.lua:2: 'then' expected near 'the'" },
  { "if a then\n\nx = 1", "t.lua:3: 'end' expected (to close 'if' at line 1) near <eof>" },
  { "f(", "t.lua:1: unexpected symbol near <eof>" },
  { "x = 'abc\n'", "t.lua:1: unfinished string near ''abc'" },
  { "x = [[\n\n", "t.lua:3: unfinished long string (starting at line 1) near <eof>" },
  { "x = 3x", "t.lua:1: malformed number near '3x'" },
  { "x = '\\q'", "t.lua:1: invalid escape sequence near ''\\q'" },
  { "x = '\\256'", "t.lua:1: decimal escape too large near ''\\256''" },
  { "x =\r\n\n\r\r'\\u{80000000}'", "t.lua:4: UTF-8 value too large near ''\\u{80000000'" },
  { "f() = 1", "t.lua:1: syntax error near '='" },
  { "(f())", "t.lua:1: syntax error near <eof>" },
  { "a, (b or c) = 1", "t.lua:1: syntax error near '='" },
  { "return 1 2", "t.lua:1: <eof> expected near '2'" },
  { "end", "t.lua:1: <eof> expected near 'end'" },
  { "local __test = 1", "t.lua:1: reserved name near '__test'" },
  { "return\n__equal(1)", "t.lua:2: reserved name near '__equal'" },
  { "x = " .. ("("):rep(300), "t.lua:1: too many nested levels near '('" },
  { ("do "):rep(300), "t.lua:1: too many nested levels near 'do'" },
}

local function refusals()
  local bad = {}
  for _, case in ipairs(faults) do
    local text, message = guard.rewrite(case[1], "t.lua")
    if text or message ~= case[2] then bad[#bad + 1] = ("got  %s\nwant %s"):format(message, case[2]) end
  end
  tap.is(table.concat(bad, "\n"), "", #faults .. " faults are reported")
  tap.is(pcall(guard.rewrite, nil, "t.lua"), false, "an error that is no fault of the text is not swallowed")
end

-- ---- embedding ----

local function command(line)
  local pipe = assert(io.popen(line .. " 2>&1"))
  local text = pipe:read "a"
  return text, select(3, pipe:close())
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function embedding()
  local directory = command("mktemp -d"):gsub("\n", "")
  command("mkdir -p " .. directory .. "/templates/lib " .. directory .. "/lua/kvforge")
  write(directory .. "/templates/a.lua", "if v then return \"a\" end\n")
  write(directory .. "/templates/lib/b.lua", "return\nv == 1\n")
  write(directory .. "/templates/bad.lua", "return\nif\n")
  write(directory .. "/lua/kvforge/c.lua", "return not v\n")
  local embed = ("R=$PWD; cd %s && %s $R/gen/embed.lua "):format(directory, arg[-1] or "lua5.4")
  local text, status = command(embed .. "lua/kvforge/c.lua templates/a.lua templates/lib/b.lua")
  tap.is(status, 0, "files are embedded")
  tap.contains(text, "if __test(v) then return \\\"a\\\" end\\n\"", "templates are guarded")
  tap.contains(text, "return\\n\"\n    \"(__equal(v , 1))\\n\"", "and so are those of lib, line by line")
  tap.contains(text, "\"return not v\\n\", 13}", "other files are embedded as they are")
  text, status = command(embed .. "templates/bad.lua")
  tap.ok(status ~= 0 and text:find("templates/bad.lua:2: unexpected symbol near 'if'", 1, true),
    "a template that is not Lua stops the build with its line")
  command("rm -r " .. directory)
end

tap.plan(18)
rewriting()
behaviour()
values()
refusals()
embedding()
tap.done()
