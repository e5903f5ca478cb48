-- Where things stand in a spec's text: the line of every field of a table constructor.
-- It reads tokens, not Lua's grammar; what it cannot find it leaves out, and the caller falls back
-- to the constructor's own line. The text has been compiled before, so it is valid Lua.
local source = {}

local function count_newlines(text, first, last)
  local lines = 0
  for position in text:sub(first, last):gmatch("()\n") do
    lines = lines + (position and 1 or 0)
  end
  return lines
end

-- The end of the comment, long string or string that starts at `at`, and its kind; or nil.
local function skip(text, at)
  local comment = text:find("^%-%-", at)
  local equals = text:match("^%[(=*)%[", comment and at + 2 or at)
  if equals then
    local _, stop = text:find("]" .. equals .. "]", at, true)
    return stop or #text, comment and "comment" or "string"
  end
  if comment then
    return (text:find("\n", at, true) or #text + 1) - 1, "comment"
  end
  local quote = text:match("^[\"']", at)
  if not quote then return nil end
  local stop = at + 1
  while stop <= #text and text:sub(stop, stop) ~= quote do
    stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
  end
  return stop, "string"
end

-- An array of { text, line }; comments are dropped.
local function tokens_of(text)
  local tokens, at, line = {}, 1, 1
  while true do
    local start = text:find("%S", at)
    if not start then return tokens end
    line = line + count_newlines(text, at, start - 1)
    local stop, kind = skip(text, start)
    if not stop then
      local _, word = text:find("^[%w_]+", start)
      local _, comparison = text:find("^[=~<>]=", start)
      stop = word or comparison or start
    end
    if kind ~= "comment" then
      tokens[#tokens + 1] = { text = text:sub(start, stop), line = line }
    end
    line = line + count_newlines(text, start, stop)
    at = stop + 1
  end
end

local opens = { ["{"] = 1, ["("] = 1, ["["] = 1, ["}"] = -1, [")"] = -1, ["]"] = -1 }

-- Read the table constructor whose `{` is token `open`: lines of its named fields, and the names
-- that stand in it as positional entries.
local function read_table(tokens, open)
  local found = { lines = {}, names = {} }
  local depth, starts = 1, true
  for i = open + 1, #tokens do
    local token, after = tokens[i], tokens[i + 1] and tokens[i + 1].text
    if starts and depth == 1 and token.text:match("^[%a_]") then
      if after == "=" then
        found.lines[token.text] = found.lines[token.text] or token.line
      elseif after == "," or after == ";" or after == "}" then
        found.names[#found.names + 1] = token.text
      end
    elseif starts and token.text == "[" and tokens[i + 3] and tokens[i + 3].text == "=" then
      local key = after:match("^[\"'](.*)[\"']$")
      if key then found.lines[key] = found.lines[key] or token.line end
    end
    depth = depth + (opens[token.text] or 0)
    if depth == 0 then break end
    starts = depth == 1 and (token.text == "," or token.text == ";")
  end
  return found
end

-- The fields of the table that is assigned to a name: `local latent = { ... }`.
local function assigned_table(tokens, name)
  for i = 1, #tokens - 2 do
    if tokens[i].text == name and tokens[i + 1].text == "=" and tokens[i + 2].text == "{" then
      return read_table(tokens, i + 2)
    end
  end
end

-- Where every call `constructor { ... }` has its brace, on the given line or (nil) anywhere.
local function calls_of(tokens, constructor, line)
  local calls = {}
  for i = 1, #tokens - 1 do
    local brace = tokens[i + 1].text == "(" and i + 2 or i + 1
    if tokens[i].text == constructor and tokens[brace] and tokens[brace].text == "{"
      and (not line or tokens[i + 1].line == line) then
      calls[#calls + 1] = brace
    end
  end
  return calls
end

local reader = {}
reader.__index = reader

-- The nth call of `constructor` on `line`: the call's line and a map from field name to line. Fields
-- merged from a positional table carry that table's lines. Without a line: the text's last call.
function reader:call(constructor, line, nth)
  local calls = calls_of(self.tokens, constructor, line)
  if #calls == 0 then return line or self:last_return(), {} end
  local brace = calls[line and (nth - 1) % #calls + 1 or #calls]
  local found = read_table(self.tokens, brace)
  for _, name in ipairs(found.names) do
    local merged = assigned_table(self.tokens, name)
    for field, at in pairs(merged and merged.lines or {}) do
      found.lines[field] = found.lines[field] or at
    end
  end
  return self.tokens[brace].line, found.lines
end

-- The line of the last `return`, else of the last token.
function reader:last_return()
  for i = #self.tokens, 1, -1 do
    if self.tokens[i].text == "return" then return self.tokens[i].line end
  end
  local last = self.tokens[#self.tokens]
  return last and last.line or 1
end

function source.open(text)
  return setmetatable({ tokens = tokens_of(text) }, reader)
end

return source
