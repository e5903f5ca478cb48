#!/usr/bin/env lua5.4
-- JSON both ways: numbers read back as they were, sorted keys, and a strict reader.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local json = require "kvforge.json"

tap.plan(60)

-- ---- writing ----

for _, case in ipairs {
  { 0, "0" }, { -7, "-7" }, { 1 << 62, "4611686018427387904" }, { 0.1, "0.1" }, { 1e-6, "1e-06" },
  { 1 / 3, "0.3333333333333333" }, { 1e300, "1e+300" }, { 5e-324, "5e-324" }, { 0.1 + 0.2,
  "0.30000000000000004" },
} do
  local value, text = case[1], case[2]
  tap.is(json.encode(value), text, "writes " .. text)
end
tap.is(json.encode { b = 1, a = { 3, "x", true } }, '{\n  "a": [3, "x", true],\n  "b": 1\n}', "sorted keys")
tap.is(json.encode { {} , { { x = json.null } } }, '[\n  [],\n  [\n    {\n      "x": null\n    }\n  ]\n]',
  "two spaces a level")
tap.is(json.encode "a\"b\\c\n\t\1\127é", [["a\"b\\c\n\t\u0001\u007fé"]], "escapes")
tap.is(json.encode "\255\254", [["\u00ff\u00fe"]], "bytes that are no UTF-8 become escapes")
for _, case in ipairs {
  { "nan", 0 / 0 }, { "infinity", 1 / 0 }, { "a function", print }, { "mixed keys", { 1, a = 2 } },
  { "holes", { 1, nil, 3, [9] = 1 } }, { "number keys", { [2] = 1 } },
} do
  local name, value = case[1], case[2]
  tap.ok(not pcall(json.encode, value), "refuses to write " .. name)
end
local state, same = 1, true
for _ = 1, 20000 do
  state = state * 6364136223846793005 + 1442695040888963407
  local value = string.unpack("d", string.pack("j", state))
  if value == value and value ~= 1 / 0 and value ~= -1 / 0 then
    same = same and json.decode(json.encode(value)) == value
  end
end
tap.ok(same, "20,000 random doubles read back as they were")

-- ---- reading ----

local value, lines = json.decode(
  ' {"a": [1, -2.5e1, true, null, false],\n "b": {"c":\n "\\u00e9\\ud83d\\ude00\\/"}} \n')
tap.is(value.a[1], 1, "an integer")
tap.is(math.type(value.a[2]), "integer", "a float that is whole becomes an integer")
tap.is(value.a[2], -25, "with its value")
tap.is(value.a[4], json.null, "null")
tap.is(tostring(value.a[3]) .. tostring(value.a[5]), "truefalse", "true and false")
tap.is(value.b.c, "é\u{1F600}/", "escapes and surrogates")
tap.is(lines[value].b, 2, "the line of a key")
tap.is(lines[value.b].c, 2, "and of one inside")
tap.is(#json.decode "[]", 0, "an empty array")
tap.is(next((json.decode "{}")), nil, "an empty object")
tap.is(json.decode "9223372036854775807", math.maxinteger, "the largest integer")
tap.is(json.decode "9223372036854775808", 2.0 ^ 63, "beyond it a float")

for _, case in ipairs {
  { "", "found the end" }, { "{", "expected a key" }, { "[1,", "found the end" }, { "[1 2]",
  "expected ','" },
  { '{"a" 1}', "expected ':'" }, { '{"a":1,}', "expected a key" }, { "[1,]", "expected a value" },
  { "01", "goes wrong" }, { "1.e5", "goes wrong" }, { ".5", "expected a value" }, { "-",
  "expected a value" },
  { "+1", "expected a value" }, { "0x10", "goes wrong" }, { "nan", "expected a value" }, { "1e999",
  "too large" },
  { "[1] 2", "more text" }, { '"a', "not closed" }, { '"a\nb"', "not closed" }, { '"\\x"',
  "unknown escape" },
  { '"\\u12"', "four hexadecimal" }, { '"\\ud800"', "half" }, { '"\\udc00"', "half" }, { '"\255"',
  "UTF-8" },
  { '{"a":1,\n"a":2}', "line 2: the key \"a\" appears twice" }, { ("["):rep(65), "64 levels" },
  { "// x\n1", "expected a value" }, { "{1: 2}", "expected a key" },
} do
  local text, want = case[1], case[2]
  local got, message = json.decode(text)
  if not tap.ok(got == nil and message:find(want, 1, true), "refuses " .. text:sub(1, 12):gsub("%c",
    "?")) then
    tap.note(tostring(message) .. "\nwant " .. want)
  end
end
tap.ok(json.decode(("["):rep(64) .. ("]"):rep(64)), "64 levels are allowed")
tap.done()
