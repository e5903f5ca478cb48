-- The tokens of Lua 5.4, for kvforge.guard.
--
-- A token's kind is a string: keywords, operators and punctuation stand for themselves, the others
-- are "<name>", "<number>", "<string>" and "<eof>". Positions are bytes from 1. Nothing is kept
-- between calls, so a caller looks ahead by scanning from another position.
-- A fault is thrown as a table { line, message }; messages are those of Lua's own compiler.
local byte, find, match, sub = string.byte, string.find, string.match, string.sub

local lexer = {}

local keywords = {}
for _, word in ipairs { "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto",
  "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while" } do
  keywords[word] = word
end

local pairs_of_signs = {}
for _, sign in ipairs { "//", "<<", "<=", ">>", ">=", "==", "~=", "::" } do pairs_of_signs[sign] = sign end

-- ---- faults ----

-- The line of the byte at `position`. "\r\n" and "\n\r" are one line break.
function lexer.line(text, position)
  local line, at = 1, find(text, "[\r\n]")
  while at and at <= position do
    line = line + 1
    local two = sub(text, at, at + 1)
    at = find(text, "[\r\n]", at + ((two == "\r\n" or two == "\n\r") and 2 or 1))
  end
  return line
end

-- Throw a fault at the line of `position`; `near` is what the message shows, nil for the end of the text.
function lexer.fail(text, position, message, near)
  if near and #near == 1 and not find(near, "[ -~]") then near = ("<\\%d>"):format(byte(near)) end
  near = near and "'" .. near .. "'" or "<eof>"
  error({ line = lexer.line(text, position), message = message .. " near " .. near }, 0)
end

local fail = lexer.fail

-- ---- brackets, strings, numbers ----

-- The last byte of the long bracket that opens at `first` with `level` signs of equality.
local function long_end(text, first, level, what)
  local _, last = find(text, "]" .. level .. "]", first + #level + 2, true)
  if not last then
    local line = lexer.line(text, first)
    fail(text, #text, ("unfinished long %s (starting at line %d)"):format(what, line))
  end
  return last
end

local function after_comment(text, first)
  local level = match(text, "^%[(=*)%[", first + 2)
  if level then return long_end(text, first + 2, level, "comment") + 1 end
  return find(text, "[\r\n]", first + 2) or #text + 1
end

local function fail_escape(text, first, at, message)
  fail(text, at, message, sub(text, first, at))
end

local function after_utf8_escape(text, first, at)
  if byte(text, at) ~= 123 then fail_escape(text, first, at, "missing '{'") end
  local digits, last = match(text, "^(%x*)()", at + 1)
  if digits == "" then fail_escape(text, first, last, "hexadecimal digit expected") end
  -- Up to 31 bits: Lua gives up at the digit that makes the code longer.
  local zeros = #match(digits, "^0*")
  local too_many = zeros + (find(digits, "^[89a-fA-F]", zeros + 1) and 8 or 9)
  if #digits >= too_many then fail_escape(text, first, at + too_many, "UTF-8 value too large") end
  if byte(text, last) ~= 125 then fail_escape(text, first, last, "missing '}'") end
  return last + 1
end

-- The position after the escape whose backslash is at `at`, in the string that opens at `first`.
local function after_escape(text, first, at)
  local c = sub(text, at + 1, at + 1)
  if c == "" or find(c, "[abfnrtv\\\"']") then return at + 2 end
  if c == "\n" or c == "\r" then
    return match(text, "^\r\n()", at + 1) or match(text, "^\n\r()", at + 1) or at + 2
  end
  if c == "z" then return match(text, "^%s*()", at + 2) end
  if c == "u" then return after_utf8_escape(text, first, at + 2) end
  if c == "x" then
    local last = match(text, "^%x?%x?()", at + 2)
    if last < at + 4 then fail_escape(text, first, last, "hexadecimal digit expected") end
    return last
  end
  local digits, last = match(text, "^(%d%d?%d?)()", at + 1)
  if not digits then fail_escape(text, first, at + 1, "invalid escape sequence") end
  if tonumber(digits) > 255 then fail_escape(text, first, last, "decimal escape too large") end
  return last
end

local string_stops = { ["'"] = "['\\\r\n]", ['"'] = '["\\\r\n]' }

local function quoted(text, first, quote)
  local stops, at = string_stops[quote], first + 1
  while true do
    at = find(text, stops, at)
    if not at then fail(text, #text, "unfinished string") end
    local c = sub(text, at, at)
    if c == quote then return "<string>", first, at end
    if c ~= "\\" then fail(text, at - 1, "unfinished string", sub(text, first, at - 1)) end
    at = after_escape(text, first, at)
  end
end

local function number(text, first)
  local last = match(text, "^%d+()", first)
  if last and not find(text, "^[%w_.]", last) then return "<number>", first, last - 1 end
  -- Take what looks like a number as far as it goes, with the signs of exponents, and let Lua judge.
  local hex = match(text, "^%.?0[xX]()", first)
  local exponent, at = hex and "^[pP][+-]?()" or "^[eE][+-]?()", hex or first
  while true do
    last = match(text, exponent, at) or match(text, "^[%x.]()", at)
    if not last then break end
    at = last
  end
  at = match(text, "^[%a_]()", at) or at
  local numeral = sub(text, first, at - 1)
  if not tonumber(numeral) then fail(text, at - 1, "malformed number", numeral) end
  return "<number>", first, at - 1
end

-- ---- one token ----

local function signs(text, first, sign)
  local two = pairs_of_signs[sub(text, first, first + 1)]
  if two then return two, first, first + 1 end
  return sign, first, first
end

local function dots(text, first)
  if find(text, "^%d", first + 1) then return number(text, first) end
  local run = match(text, "^%.%.?%.?", first)
  return run, first, first + #run - 1
end

local function bracket(text, first)
  local level, open = match(text, "^%[(=*)(%[?)", first)
  if open == "[" then return "<string>", first, long_end(text, first, level, "string") end
  if level ~= "" then fail(text, first, "invalid long string delimiter", "[" .. level) end
  return "[", first, first
end

-- What reads a token, by its first byte; any other byte is a token by itself, known to Lua or not.
local readers = { [byte "["] = bracket, [byte "."] = dots, [byte "'"] = quoted, [byte '"'] = quoted }
for digit = byte "0", byte "9" do readers[digit] = number end
for sign in ("/<>=~:"):gmatch "." do readers[byte(sign)] = signs end

local MINUS = byte "-"

-- The first token at or after `position`: its kind, first and last byte.
function lexer.scan(text, position)
  local first, c
  while true do
    first = find(text, "%S", position)
    if not first then return "<eof>", #text + 1, #text end
    c = byte(text, first)
    if c ~= MINUS or byte(text, first + 1) ~= MINUS then break end
    position = after_comment(text, first)
  end
  local word = match(text, "^[%a_][%w_]*", first)
  if word then return keywords[word] or "<name>", first, first + #word - 1 end
  local read = readers[c]
  local sign = sub(text, first, first)
  if read then return read(text, first, sign) end
  return sign, first, first
end

return lexer
