-- The template guard: makes a register value fail where Lua would silently take it for "true".
--
-- Lua asks no metamethod when it needs a truth (`if v`, `not v`, `v and w`) nor when it compares a
-- value with something of another type (`v == 1.0` is false). So a template's text is rewritten
-- before it is loaded, line by line the same:
--   if E, elseif E, while E, until E    E becomes __test(E)
--   not E, E and F, E or F              E becomes __test(E)
--   E == F, E ~= F                      __equal(E, F), not __equal(E, F)
-- What cannot be a value stays as it is: constants, constructors, functions, results of comparisons
-- and of `not`; of E and F, only the operand that has not been tested yet. `E == nil` stays too: it
-- asks, rightly, whether there is a value at all.
--
-- The rewriter is a parser of Lua 5.4's grammar. Faults of grammar are reported in Lua's own words;
-- what needs scopes (goto, break, attributes, varargs, constants) is left to `load`, which sees the
-- same lines. No state is shared between calls.
local cursor = require "kvforge.guard_cursor"
local expressions = require "kvforge.guard_expressions"

local expect, accept, close, fail, name, variable =
  cursor.expect, cursor.accept, cursor.close, cursor.fail, cursor.name, cursor.variable
local one, list, condition, body = expressions.one, expressions.list, expressions.condition, expressions.body

local guard = {}

-- ---- statements ----

local statements = {} -- by their first token; a function gets that token's position

local function assignment(s)
  local target = expressions.target(s)
  if s.token == "=" or s.token == "," then
    while target == "variable" and accept(s, ",") do target = expressions.target(s) end
    if target ~= "variable" then fail(s, "syntax error") end
    expect(s, "=")
    list(s)
  elseif target ~= "call" then
    fail(s, "syntax error")
  end
end

local ends_block = { ["else"] = true, ["elseif"] = true, ["end"] = true, ["<eof>"] = true, ["until"] = true }

local function block(s)
  while not ends_block[s.token] do
    local token, from = s.token, s.first
    local statement = statements[token]
    cursor.enter(s)
    if statement then
      cursor.advance(s)
      statement(s, from)
    else
      assignment(s)
    end
    s.depth = s.depth - 1
    if token == "return" then return end
  end
end

statements[";"] = function() end
statements["break"] = function() end
statements["goto"] = name

statements["::"] = function(s)
  name(s)
  expect(s, "::")
end

statements["do"] = function(s, from)
  block(s)
  close(s, "end", "do", from)
end

statements["if"] = function(s, from)
  repeat
    condition(s)
    expect(s, "then")
    block(s)
  until not accept(s, "elseif")
  if accept(s, "else") then block(s) end
  close(s, "end", "if", from)
end

statements["while"] = function(s, from)
  condition(s)
  expect(s, "do")
  block(s)
  close(s, "end", "while", from)
end

statements["repeat"] = function(s, from)
  block(s)
  close(s, "until", "repeat", from)
  condition(s)
end

statements["for"] = function(s, from)
  variable(s)
  if accept(s, "=") then
    one(s)
    expect(s, ",")
    one(s)
    if accept(s, ",") then one(s) end
  elseif s.token == "," or s.token == "in" then
    while accept(s, ",") do variable(s) end
    expect(s, "in")
    list(s)
  else
    fail(s, "'=' or 'in' expected")
  end
  expect(s, "do")
  block(s)
  close(s, "end", "for", from)
end

statements["function"] = function(s, from)
  variable(s)
  while accept(s, ".") do name(s) end
  if accept(s, ":") then name(s) end
  body(s, from)
end

statements["local"] = function(s)
  if accept(s, "function") then
    variable(s)
    return body(s, s.first)
  end
  repeat
    variable(s)
    if accept(s, "<") then
      name(s)
      expect(s, ">")
    end
  until not accept(s, ",")
  if accept(s, "=") then list(s) end
end

statements["return"] = function(s)
  if not ends_block[s.token] and s.token ~= ";" then expressions.results(s) end
  accept(s, ";")
end

-- ---- the interface ----

-- The functions reach the chunk as globals and are kept in locals: faster, and `local _ENV` does no harm.
local PROLOGUE = "local __test, __equal = __test, __equal; "

local function parse(text)
  local s = cursor.new(text, block)
  local from = s.first
  block(s)
  if s.token ~= "<eof>" then fail(s, "<eof> expected") end
  if #s.positions == 0 then return text end
  cursor.prepend(s, from, PROLOGUE)
  return cursor.edited(s)
end

-- Rewrite a chunk. Returns the text with the same lines, or nil and "chunkname:line: message" where
-- it is not Lua. The result expects the functions of guard.environment among its globals.
-- A first line that starts with # is passed over, as Lua does with files.
function guard.rewrite(text, chunkname)
  local ok, result = pcall(parse, text)
  if ok then return result end
  if type(result) ~= "table" then error(result, 0) end
  return nil, ("%s:%d: %s"):format(chunkname, result.line, result.message)
end

-- The two functions that a rewritten chunk calls. `is_value(v)` says whether v is a register value.
-- They raise at the line of the template's condition or comparison.
function guard.environment(is_value)
  return {
    __test = function(v)
      if is_value(v) then
        error("a register value is used as a Lua condition; use when(), select() or & | ~", 2)
      end
      return v
    end,
    __equal = function(a, b)
      if is_value(a) or is_value(b) then
        error("a register value is compared by == or ~=; use :eq() or :ne()", 2)
      end
      return a == b
    end,
  }
end

return guard
