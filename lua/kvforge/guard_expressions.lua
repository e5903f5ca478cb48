-- The expressions of Lua 5.4, for kvforge.guard: parses them and inserts the guard's calls.
--
-- A function that parses an expression returns its kind and the first and last byte of its *leaf*:
-- of `A and B` or `A or B`, also in parentheses, B, since A has been tested; else all of it.
-- It leaves the cursor behind the expression, so s.previous is its last byte.
local cursor = require "kvforge.guard_cursor"

local advance, expect, accept, close = cursor.advance, cursor.expect, cursor.accept, cursor.close
local fail, enclose = cursor.fail, cursor.enclose

local expressions = {}

-- What is known of an expression. From NEVER to EQUALITY: it is no register value.
local NEVER = 1 -- a constant other than nil, a constructor, a function, a truth
local NIL = 2
local EQUALITY = 3 -- a call of __equal
local OTHER = 4
local VARIABLE = 5 -- can be assigned to
local MULTIPLE = 6 -- a call or `...`: any number of results

local expression

local UNARY_PRIORITY = 12
local unary = { ["not"] = true, ["-"] = true, ["#"] = true, ["~"] = true }

-- Priorities to the left and to the right of the operator.
local left_priority, right_priority = {}, {}
for operators, priority in pairs {
  ["or"] = { 1, 1 }, ["and"] = { 2, 2 }, ["< > <= >= == ~="] = { 3, 3 }, ["|"] = { 4, 4 }, ["~"] = { 5, 5 },
  ["&"] = { 6, 6 }, ["<< >>"] = { 7, 7 }, [".."] = { 9, 8 }, ["+ -"] = { 10, 10 }, ["* / // %"] = { 11, 11 },
  ["^"] = { 14, 13 },
} do
  for operator in operators:gmatch "%S+" do
    left_priority[operator], right_priority[operator] = priority[1], priority[2]
  end
end

local is_order = { ["<"] = true, [">"] = true, ["<="] = true, [">="] = true }

-- Expressions between commas. Returns whether it is just one, and that a call of __equal.
local function list(s)
  local from = s.first
  local kind, first = expression(s, 0)
  if s.token ~= "," then return kind == EQUALITY and first == from end
  while accept(s, ",") do expression(s, 0) end
  return false
end

local function index(s)
  advance(s)
  expression(s, 0)
  expect(s, "]")
end

local function field(s)
  if s.token == "[" then
    index(s)
  elseif s.token == "<name>" and cursor.peek(s) == "=" then
    advance(s)
  else
    return expression(s, 0)
  end
  expect(s, "=")
  expression(s, 0)
end

local function constructor(s)
  local from = s.first
  advance(s)
  while s.token ~= "}" do
    field(s)
    if not (accept(s, ",") or accept(s, ";")) then break end
  end
  close(s, "}", "{", from)
end

local function parameters(s)
  expect(s, "(")
  if s.token ~= ")" then
    repeat
      if accept(s, "...") then break end
      if s.token ~= "<name>" then fail(s, "<name> or '...' expected") end
      cursor.variable(s)
    until not accept(s, ",")
  end
  expect(s, ")")
end

-- The parameters and the block of a function that began at `from`.
function expressions.body(s, from)
  parameters(s)
  s.block(s)
  close(s, "end", "function", from)
end

local function arguments(s)
  local from = s.first
  if s.token == "<string>" then return advance(s) end
  if s.token == "{" then return constructor(s) end
  if s.token ~= "(" then fail(s, "function arguments expected") end
  advance(s)
  if s.token ~= ")" then list(s) end
  close(s, ")", "(", from)
end

local function parenthesised(s)
  local from = s.first
  advance(s)
  local inner = s.first
  local kind, first, last = expression(s, 0)
  close(s, ")", "(", from)
  if kind <= EQUALITY then return NEVER, from, s.previous end
  if first == inner then return OTHER, from, s.previous end
  return kind, first, last
end

-- A variable or parentheses, and the fields and calls that follow.
local function suffixed(s)
  local from = s.first
  local kind, first, last
  if s.token == "<name>" then
    cursor.variable(s)
    kind, first, last = VARIABLE, from, s.previous
  elseif s.token == "(" then
    kind, first, last = parenthesised(s)
  else
    fail(s, "unexpected symbol")
  end
  while true do
    local token = s.token
    if token == "." then
      advance(s)
      cursor.name(s)
      kind = VARIABLE
    elseif token == "[" then
      index(s)
      kind = VARIABLE
    elseif token == ":" then
      advance(s)
      cursor.name(s)
      arguments(s)
      kind = MULTIPLE
    elseif token == "(" or token == "<string>" or token == "{" then
      arguments(s)
      kind = MULTIPLE
    else
      return kind, first, last
    end
    first, last = from, s.previous
  end
end

local constants = {
  ["<number>"] = NEVER, ["<string>"] = NEVER, ["true"] = NEVER, ["false"] = NEVER,
  ["nil"] = NIL, ["..."] = MULTIPLE,
}

local function simple(s)
  local from, kind = s.first, constants[s.token]
  if kind then
    advance(s)
  elseif s.token == "{" then
    constructor(s)
    kind = NEVER
  elseif s.token == "function" then
    advance(s)
    expressions.body(s, s.first)
    kind = NEVER
  else
    return suffixed(s)
  end
  return kind, from, s.previous
end

local function test(s, kind, first, last)
  if kind <= EQUALITY then return end
  if kind == MULTIPLE then return enclose(s, first, last, "__test((", "))") end
  enclose(s, first, last, "__test(", ")")
end

-- An expression that begins with a unary operator, without the binary ones that bind less tightly.
local function prefixed(s)
  local operator = s.token
  advance(s)
  local kind, first, last = expression(s, UNARY_PRIORITY)
  if operator ~= "not" then return kind <= EQUALITY and NEVER or OTHER end
  test(s, kind, first, last)
  return NEVER
end

-- The rest of A == B, from the operator on; A is known by its first byte and kind.
local function equality(s, first, kind)
  local operator, at = s.token, s.first
  advance(s)
  local from = s.first
  local second, leaf = expression(s, right_priority[operator])
  if kind == NIL or second == NIL or kind <= EQUALITY and second <= EQUALITY then return NEVER end
  if second == MULTIPLE and leaf == from then enclose(s, from, s.previous, "(", ")") end
  cursor.replace(s, at, #operator, ",")
  if operator == "==" then
    enclose(s, first, s.previous, "__equal(", ")")
    return EQUALITY
  end
  enclose(s, first, s.previous, "not __equal(", ")")
  return NEVER
end

-- An expression whose operators all bind more tightly than `limit`.
function expression(s, limit)
  cursor.enter(s)
  local from = s.first
  local kind, first, last
  if unary[s.token] then
    kind = prefixed(s)
    first, last = from, s.previous
  else
    kind, first, last = simple(s)
  end
  local operator = s.token
  local priority = left_priority[operator]
  while priority and priority > limit do
    if operator == "and" or operator == "or" then
      test(s, kind, first, last)
      advance(s)
      kind, first, last = expression(s, priority)
    else
      if operator == "==" or operator == "~=" then
        kind = equality(s, from, kind)
      else
        advance(s)
        expression(s, right_priority[operator])
        kind = is_order[operator] and NEVER or OTHER
      end
      first, last = from, s.previous
    end
    operator = s.token
    priority = left_priority[operator]
  end
  s.depth = s.depth - 1
  return kind, first, last
end

-- ---- what statements are made of ----

-- One expression.
function expressions.one(s)
  expression(s, 0)
end

expressions.list = list

-- An expression that decides by its truth.
function expressions.condition(s)
  test(s, expression(s, 0))
end

-- What returns: if it is one call of __equal, keep it from being a tail call, for that would take the
-- line of the comparison off the stack.
function expressions.results(s)
  local from = s.first
  if list(s) then enclose(s, from, s.previous, "(", ")") end
end

-- A variable or a call. Returns which of the two: "variable", "call", or nil for anything in parentheses.
function expressions.target(s)
  local from = s.first
  local kind, first = suffixed(s)
  if first ~= from then return nil end
  return kind == VARIABLE and "variable" or kind == MULTIPLE and "call" or nil
end

return expressions
