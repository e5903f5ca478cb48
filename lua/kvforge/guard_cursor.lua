-- The state of kvforge.guard's parser: where it stands in the text, and what it will insert.
--
-- A state s holds: text; the current token (token, first, last: kind and bytes); previous, the last
-- byte of the token before; depth, the nesting of statements and expressions; block, the function that
-- parses a block; edits, by position: each goes before the byte there; positions, those of the edits;
-- dropped, by position: how many bytes are left out after the edit.
local lexer = require "kvforge.guard_lexer"

local cursor = {}

local scan = lexer.scan

-- The deepest nesting, Lua's own.
local MAX_DEPTH = 200

function cursor.new(text, block)
  local s = {
    text = text, token = "", first = 0, last = 0, previous = 0, depth = 0, block = block,
    edits = {}, positions = {}, dropped = {},
  }
  if text:find "^#" then s.last = (text:find "[\r\n]" or #text + 1) - 1 end
  cursor.advance(s)
  return s
end

-- ---- tokens ----

function cursor.advance(s)
  s.previous = s.last
  s.token, s.first, s.last = scan(s.text, s.last + 1)
end

local advance = cursor.advance

-- The kind of the token after the current one.
function cursor.peek(s)
  return (scan(s.text, s.last + 1))
end

function cursor.fail(s, message)
  lexer.fail(s.text, s.last, message, s.token ~= "<eof>" and s.text:sub(s.first, s.last) or nil)
end

local fail = cursor.fail

local function quote(token)
  if token == "<name>" or token == "<eof>" then return token end
  return "'" .. token .. "'"
end

function cursor.expect(s, token)
  if s.token ~= token then fail(s, quote(token) .. " expected") end
  advance(s)
end

function cursor.accept(s, token)
  if s.token ~= token then return false end
  advance(s)
  return true
end

-- Expect what closes the `opener` at the byte `from`.
function cursor.close(s, token, opener, from)
  if s.token == token then return advance(s) end
  local line = lexer.line(s.text, from)
  if line == lexer.line(s.text, s.last) then fail(s, quote(token) .. " expected") end
  fail(s, ("'%s' expected (to close '%s' at line %d)"):format(token, opener, line))
end

function cursor.name(s)
  cursor.expect(s, "<name>")
end

-- A variable's name: not one of the two that the guard speaks through.
function cursor.variable(s)
  if s.token ~= "<name>" then fail(s, "<name> expected") end
  local word = s.text:sub(s.first, s.last)
  if word == "__test" or word == "__equal" then fail(s, "reserved name") end
  advance(s)
end

-- One level deeper; the caller leaves it by s.depth = s.depth - 1.
function cursor.enter(s)
  s.depth = s.depth + 1
  if s.depth > MAX_DEPTH then fail(s, "too many nested levels") end
end

-- ---- insertions ----
-- Inner expressions end before outer ones. So what opens goes in front of what was inserted at the
-- same place, and what closes goes behind it. No operand begins where another one ends.

local function insert(s, position, before, after)
  local edits = s.edits
  local old = edits[position]
  if not old then
    s.positions[#s.positions + 1] = position
    old = ""
  end
  edits[position] = before .. old .. after
end

-- Put `text` before everything from `position` on.
function cursor.prepend(s, position, text)
  insert(s, position, text, "")
end

-- Enclose the bytes first .. last.
function cursor.enclose(s, first, last, left, right)
  insert(s, first, left, "")
  insert(s, last + 1, "", right)
end

-- Put `text` in place of the `bytes` at `position`.
function cursor.replace(s, position, bytes, text)
  insert(s, position, "", text)
  s.dropped[position] = bytes
end

-- The text with all insertions.
function cursor.edited(s)
  local text, edits, dropped, positions = s.text, s.edits, s.dropped, s.positions
  table.sort(positions)
  local out, from = {}, 1
  for _, position in ipairs(positions) do
    local edit = edits[position]
    out[#out + 1] = text:sub(from, position - 1)
    -- Keep a keyword in front apart: if(a)(b)then.
    if edit:find "^[%a_]" and text:sub(position - 1, position - 1):find "[%w_]" then out[#out + 1] = " " end
    out[#out + 1] = edit
    from = position + (dropped[position] or 0)
  end
  out[#out + 1] = text:sub(from)
  return table.concat(out)
end

return cursor
