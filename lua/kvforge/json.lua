-- JSON, both ways, the same text on every machine.
--
-- json.encode(value) -> text
--   Objects with sorted keys, two spaces a level, arrays of scalars on one line. An empty table is an
--   empty array. Integers as they are, floats as the shortest decimal that reads back the same.
--   Raises on what JSON cannot hold (nan, functions, mixed keys): that is the caller's mistake.
-- json.number(value) -> the text of one number
--
-- json.decode(text) -> value, lines; or nil, "line N: what is wrong"
--   Strict: no comments, no duplicate keys, no trailing text, at most 64 levels. null becomes
--   json.null. `lines[object]` maps each key of an object to its line.
local json = { null = setmetatable({}, { __tostring = function() return "null" end }) }

-- ---- encode ----

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r" }

local function quote(text)
  local function escape(c) return escapes[c] or ("\\u%04x"):format(c:byte()) end
  text = text:gsub('[%c"\\\127]', escape)
  if not utf8.len(text) then text = text:gsub("[\128-\255]", escape) end
  return '"' .. text .. '"'
end

function json.number(value)
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if value ~= value or value == math.huge or value == -math.huge then
    error("json: no text for a number that is not finite")
  end
  for digits = 1, 17 do
    local text = ("%." .. digits .. "g"):format(value)
    -- The locale may write a comma; reading it back knows that too.
    if tonumber(text) == value then return (text:gsub(",", ".")) end
  end
end

local function scalar_text(value)
  local kind = type(value)
  if value == json.null then return "null" end
  if kind == "string" then return quote(value) end
  if kind == "number" then return json.number(value) end
  if kind == "boolean" then return tostring(value) end
  error("json: no text for a " .. kind)
end

local function is_scalar(value)
  return type(value) ~= "table" or value == json.null
end

local function all_scalar(list)
  for _, value in ipairs(list) do
    if not is_scalar(value) then return false end
  end
  return true
end

local encode

local function encode_array(list, indent)
  local parts, count = {}, 0
  local inner = indent .. "  "
  for i, value in ipairs(list) do parts[i] = encode(value, inner) end
  for _ in pairs(list) do count = count + 1 end
  if count ~= #parts then error("json: a table is neither an array nor an object") end
  if all_scalar(list) then return "[" .. table.concat(parts, ", ") .. "]" end
  return "[\n" .. inner .. table.concat(parts, ",\n" .. inner) .. "\n" .. indent .. "]"
end

local function encode_object(map, indent)
  local keys, parts, inner = {}, {}, indent .. "  "
  for key in pairs(map) do
    if type(key) ~= "string" then error("json: a table is neither an array nor an object") end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for i, key in ipairs(keys) do parts[i] = quote(key) .. ": " .. encode(map[key], inner) end
  return "{\n" .. inner .. table.concat(parts, ",\n" .. inner) .. "\n" .. indent .. "}"
end

function encode(value, indent)
  if is_scalar(value) then return scalar_text(value) end
  if #value > 0 or next(value) == nil then return encode_array(value, indent) end
  return encode_object(value, indent)
end

function json.encode(value)
  return encode(value, "")
end

-- ---- decode ----

local MAX_DEPTH = 64

local reader = {}
reader.__index = reader

function reader:fail(text, ...)
  local _, newlines = self.text:sub(1, self.at - 1):gsub("\n", "")
  error({ json = ("line %d: "):format(newlines + 1) .. text:format(...) })
end

function reader:space()
  self.at = self.text:find("[^ \t\r\n]", self.at) or #self.text + 1
end

-- Take `pattern` (anchored) at the cursor, or return nil.
function reader:take(pattern)
  local first, last, capture = self.text:find("^" .. pattern, self.at)
  if not first then return nil end
  self.at = last + 1
  return capture or self.text:sub(first, last)
end

-- What stands at the cursor, for messages.
function reader:here()
  if self.at > #self.text then return "the end" end
  local byte = self.text:byte(self.at)
  if byte < 32 or byte > 126 then return ("byte %d"):format(byte) end
  return "'" .. string.char(byte) .. "'"
end

local unescape = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}

function reader:unicode()
  local unit = self:take("(%x%x%x%x)") or self:fail("\\u needs four hexadecimal digits")
  local code = tonumber(unit, 16)
  if code >= 0xD800 and code < 0xDC00 then
    local low = self:take("\\u(%x%x%x%x)")
    low = low and tonumber(low, 16)
    if not low or low < 0xDC00 or low > 0xDFFF then self:fail("half of a surrogate pair") end
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
  elseif code >= 0xDC00 and code < 0xE000 then
    self:fail("half of a surrogate pair")
  end
  return utf8.char(code)
end

function reader:string()
  local parts = {}
  while true do
    parts[#parts + 1] = self:take('[^"\\%c]+')
    if self:take('"') then break end
    if self:take("\\") then
      local letter = self:take(".") or ""
      parts[#parts + 1] = letter == "u" and self:unicode() or unescape[letter]
        or self:fail("unknown escape in a string")
    else
      self:fail("a string is not closed: found %s", self:here())
    end
  end
  local text = table.concat(parts)
  if not utf8.len(text) then self:fail("a string is not UTF-8") end
  return text
end

function reader:number()
  local start = self.at
  if not (self:take("%-?0") or self:take("%-?[1-9]%d*")) then
    self:fail("expected a value, found %s", self:here())
  end
  local fraction, exponent = self:take("%.%d+"), self:take("[eE][+-]?%d+")
  local text = self.text:sub(start, self.at - 1)
  if self.text:find("^[%w.+-]", self.at) then self:fail("a number goes wrong at %s", self:here()) end
  local value = tonumber(text) or tonumber((text:gsub("%.", ","))) -- where the locale says so
  if not value or value == math.huge or value == -math.huge then
    self:fail("a number is too large")
  end
  -- "1e3" and "10.0" are whole; beyond 64 bits a number stays a float.
  return (fraction or exponent) and math.tointeger(value) or value
end

function reader:array(depth)
  local list = {}
  self:space()
  if self:take("%]") then return list end
  while true do
    list[#list + 1] = self:value(depth)
    self:space()
    if self:take("%]") then return list end
    if not self:take(",") then self:fail("expected ',' or ']', found %s", self:here()) end
  end
end

function reader:object(depth)
  local map, lines = {}, {}
  self.lines[map] = lines
  self:space()
  if self:take("}") then return map end
  while true do
    self:space()
    local _, newlines = self.text:sub(self.counted, self.at - 1):gsub("\n", "")
    self.counted, self.line = self.at, self.line + newlines
    if not self:take('"') then self:fail("expected a key, found %s", self:here()) end
    local key = self:string()
    if lines[key] then self:fail("the key %s appears twice", quote(key)) end
    lines[key] = self.line
    self:space()
    if not self:take(":") then self:fail("expected ':', found %s", self:here()) end
    map[key] = self:value(depth)
    self:space()
    if self:take("}") then return map end
    if not self:take(",") then self:fail("expected ',' or '}', found %s", self:here()) end
  end
end

function reader:value(depth)
  if depth >= MAX_DEPTH then self:fail("more than %d levels", MAX_DEPTH) end
  self:space()
  if self:take("{") then return self:object(depth + 1) end
  if self:take("%[") then return self:array(depth + 1) end
  if self:take('"') then return self:string() end
  if self:take("true") then return true end
  if self:take("false") then return false end
  if self:take("null") then return json.null end
  return self:number()
end

function json.decode(text)
  local self = setmetatable({ text = text, at = 1, lines = {}, counted = 1, line = 1 }, reader)
  local ok, value = pcall(function()
    local whole = self:value(0)
    self:space()
    if self.at <= #text then self:fail("more text after the value: %s", self:here()) end
    return whole
  end)
  if ok then return value, self.lines end
  if type(value) == "table" and value.json then return nil, value.json end
  error(value, 0)
end

return json
