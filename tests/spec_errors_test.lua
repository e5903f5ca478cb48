#!/usr/bin/env lua5.4
-- Bad specs: each gives clear errors with file, line, layer type, field and rule; nothing escapes.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local load_spec = require "kvforge.load"

-- A good spec with holes: parts that a case may replace.
local parts = {
  head = "",
  latent = "head_dim = 128, rope_dim = 64, window = 16, format = \"fp8_token\"",
  model = "",
  csa = "ratio = 4, overlap = true",
  indexer = "heads = 4, dim = 64, topk = 8",
  rope = "kv.rope { theta = 10000 }",
  types = nil,
  layers = "{ \"swa\", \"csa\" }",
  block = "block = 128,",
}

local function spec_text(change)
  local p = setmetatable(change or {}, { __index = parts })
  local types = p.types or ([[{
    swa = kv.layer_type { latent, ratio = 0, rope = rope },
    csa = kv.layer_type { latent, rope = rope, indexer = kv.indexer { %s },
      %s },
  }]]):format(p.indexer, p.csa)
  return ([[
local kv = require "kvforge"
%s
local latent = { %s }
local rope = %s
return kv.model { name = "m", heads = 8, max_positions = 4096, %s
  %s
  types = %s,
  layers = %s,
}
]]):format(p.head, p.latent, p.rope, p.block, p.model, types, p.layers)
end

local function errors_of(text)
  local M, errors = load_spec(text, "@dir/bad.lua")
  if M then return {} end
  return errors
end

-- One mistake must give exactly one error, with everything in `wants` in it.
local function one(name, text, ...)
  local errors = errors_of(text)
  local good = #errors == 1
  for _, want in ipairs { ... } do
    good = good and errors[1]:find(want, 1, true) ~= nil
  end
  if not tap.ok(good, name) then tap.note("errors:\n" .. table.concat(errors, "\n")) end
end

local function change(name, changes, ...)
  one(name, spec_text(changes), ...)
end

tap.plan(108)

tap.is(#errors_of(spec_text()), 0, "the spec without a hole is good")
tap.is(#errors_of(spec_text { layers = "{ kv.of(\"swa\", 2048), kv.alternate(1024, \"swa\", \"csa\") }" }), 0,
  "so is one with as many layers as there may be")

-- ---- the text itself ----

one("wrong syntax", "local kv = \nreturn }", "dir/bad.lua:2:", "unexpected symbol")
one("an unfinished string", "local s = \"abc\nreturn 1", "dir/bad.lua:1:", "unfinished string")
one("no model", "local kv = require \"kvforge\"\nreturn 7", "dir/bad.lua:2:", "must return a model",
  "given 7")
one("nothing returned", "local kv = require \"kvforge\"", "must return a model", "given nothing")
one("a layer type returned", "local kv = require \"kvforge\"\nreturn kv.layer_type {}",
  "must return a model")
one("an empty text", "", "must return a model")
one("bytecode", string.dump(function() return 1 end), "binary chunk")
one("a text too long", "--" .. ("x"):rep(1 << 21), "longer than 1048576 bytes")
one("an error of the spec's own", "local a = nil\nlocal b = a.c", "dir/bad.lua:2:", "attempt to index")
one("an error raised as a table", "error({})", "raised an error that is no text")
one("an error raised as a text", "\nerror \"mine\"", "dir/bad.lua:2: mine")

-- ---- attempts to reach out or to run on ----

one("os.execute", "\nos.execute \"id\"", "dir/bad.lua:2:", "no global \"os\"")
one("io", "local f = io.open(\"/etc/passwd\")", "no global \"io\"")
one("load", "load \"return 1\"", "no global \"load\"")
one("dofile", "dofile \"/etc/passwd\"", "no global \"dofile\"")
one("debug", "debug.sethook()", "no global \"debug\"")
one("package", "package.loaded.os = nil", "no global \"package\"")
one("getmetatable", "getmetatable(\"\").__index = nil", "no global \"getmetatable\"")
one("setmetatable", "setmetatable({}, { __gc = print })", "no global \"setmetatable\"")
one("rawset", "rawset({}, 1, 2)", "no global \"rawset\"")
one("pcall", "pcall(error)", "no global \"pcall\"")
one("coroutine", "coroutine.wrap(print)()", "no global \"coroutine\"")
one("collectgarbage", "collectgarbage \"restart\"", "no global \"collectgarbage\"")
one("print", "print \"x\"", "no global \"print\"")
one("_G", "_G.os.exit()", "no global \"_G\"")
one("string.dump", "string.dump(function() end)", "dir/bad.lua:1:", "field 'dump'")
one("string.rep", "local s = string.rep(\"x\", 1 << 30)", "field 'rep'")
one("a method that repeats", "local s = (\"x\"):rep(1 << 30)", "method 'rep'")
one("a pattern as a method", "local s = (\"x\"):find(\"(.-)*\")", "method 'find'")
one("another module", "require \"os\"", "dir/bad.lua:1:", "require \"kvforge\"")
one("an endless loop", "\n\nwhile true do end", "dir/bad.lua:3:", "longer than 200000 instructions")
one("an endless loop over lines", "local i = 0\nwhile true do\n  i = i + 1\nend", "instructions")
one("a string of a gigabyte", "local s = \"xxxxxxxxxxxxxxxx\"\nfor i = 1, 26 do s = s .. s end",
  "dir/bad.lua:2:", "bytes of memory")
one("a list of a gigabyte", "local t = {}\nfor i = 1, 1 << 27 do t[i] = i end", "dir/bad.lua:2:")
one("a joined gigabyte",
  "local t = {}\nfor i = 1, 1000 do t[i] = \"x\" end\nlocal s = table.concat(t)\nlocal u = {}\n"
  .. "for i = 1, 2000 do u[i] = s end\nlocal v = table.concat(u)", "dir/bad.lua:6:", "bytes of memory")
one("deep recursion", "local function f() return 1 + f() end\nf()", "dir/bad.lua:1:", "spec")
one("deep nesting", "return " .. ("{"):rep(300) .. ("}"):rep(300), "dir/bad.lua:1:")
one("many sorts", "local t = {}\nfor i = 1, 1000 do t[i] = -i end\nwhile true do table.sort(t) end",
  "instructions")
one("a hook that hides in tostring", "local s = tostring({})\nerror(s)", "table")
local long = ("deep/"):rep(40) .. "x.lua"
local _, long_errors = load_spec("\nlocal x = = 1", "@" .. long)
tap.is(long_errors[1], long .. ":2: unexpected symbol near '='", "a long path is not cut")
one("arithmetic on a string", "local a = \"1\" + 1", "dir/bad.lua:1:", "arithmetic on a string")
tap.is("1" + 1, 2, "strings calculate again afterwards")
tap.is(("x"):rep(3), "xxx", "string methods are whole again afterwards")
tap.ok(collectgarbage "isrunning", "the collector runs again")
tap.is(debug.gethook(), nil, "no hook is left")

-- ---- fields ----

change("an unknown field", { model = "pagealign = 32," }, "dir/bad.lua:6: model: field \"pagealign\"",
  "unknown", "did you mean \"page_align\"?")
change("an unknown field of a layer type", { csa = "ration = 4, ratio = 4" },
  "dir/bad.lua:10: layer type \"csa\": field \"ration\"", "did you mean \"ratio\"?")
change("an unknown field of no resemblance", { model = "zzzzzzzzzz = 1," }, "unknown",
  "allowed name, heads")
change("an unknown field of an indexer", { indexer = "heads = 4, dim = 64, topk = 8, topq = 1" },
  "layer type \"csa\": indexer: field \"topq\"", "did you mean \"topk\"?")
change("a field that only kv.yarn has", { rope = "kv.rope { theta = 1e4, factor = 2 }" },
  "field \"factor\"", "kv.yarn")
change("a positional entry where there is none", { rope = "kv.rope { 10000, theta = 1 }" },
  "dir/bad.lua:4: kv.rope: takes named fields only")
change("a missing field", { latent = "head_dim = 128, window = 16, format = \"bf16\"",
  types = "{ swa = kv.layer_type { latent, ratio = 0, rope = rope } }", layers = "{ \"swa\" }" },
  "layer type \"swa\": field \"rope_dim\": is missing")
change("a wrong type", { model = "drafts = \"two\"," }, "field \"drafts\": must be a number; given \"two\"")
change("a boolean that is a number", { model = "kv_norm = 1," }, "must be true or false; given 1")
change("not a number", { model = "norm_eps = 0/0," }, "field \"norm_eps\": must be finite; given nan")
change("infinity", { model = "drafts = math.huge," }, "must be finite; given inf")
change("negative", { model = "drafts = -1," }, "too small; given -1, allowed integers from 0 to 64")
change("huge", { model = "drafts = 1 << 62," }, "too large; given 4611686018427387904")
change("huge as a float", { model = "drafts = 1e300," }, "whole; given 1e+300")
change("fractional", { model = "drafts = 1.5," }, "must be whole; given 1.5")
change("a choice", { model = "state_dtype = \"f16\"," }, "given \"f16\", allowed f32, bf16")
change("a block of 64", { block = "block = 64," }, "field \"block\"", "given 64, allowed 128, 256")
change("an alignment", { model = "page_align = 100," }, "multiple of 16", "sector")
change("a name that is none", { model = "" , block = "name = \"../x\"," }, "field \"name\": is not a name")
change("an unknown target", { model = "targets = { \"sm_70\" }," }, "field \"targets\"", "given \"sm_70\"",
  "sm_120a")
change("a target twice", { model = "targets = { \"sm_90\", \"sm_90\" }," }, "twice")
change("no target", { model = "targets = {}," }, "at least one")

-- ---- shapes ----

local function shape(name, head, rope, ...)
  local latent = "\n  head_dim = %s,\n  rope_dim = %s,\n  window = 16, format = \"fp8_token\""
  change(name, { latent = latent:format(head, rope),
    types = "{ swa = kv.layer_type { latent, ratio = 0, rope = rope } }", layers = "{ \"swa\" }" }, ...)
end
shape("head_dim 576", 576, 64, "dir/bad.lua:4: layer type \"swa\": field \"head_dim\"",
  "power of two", "given 576, allowed powers of two from 64 to 1024")
shape("head_dim 320", 320, 64, "power of two", "given 320")
shape("head_dim 80", 80, 16, "power of two", "given 80")
shape("head_dim of a megabyte", 1 << 20, 64, "too large")
shape("rope_dim odd", 128, 63, "dir/bad.lua:5:", "field \"rope_dim\": must be even", "given 63")
shape("rope_dim too large", 128, 128, "dir/bad.lua:5:", "must be below head_dim", "given 128")
shape("rope_dim of no whole vectors", 128, 68, "16-byte vectors", "given 60")
shape("nope of no whole vectors", 128, 56, "16-byte vectors", "given 72")
change("a scale block that does not divide", { latent = parts.latent:gsub("fp8_token", "fp8_ds_mla")
  :gsub("rope_dim = 64", "rope_dim = 32"),
    types = "{ swa = kv.layer_type { latent, ratio = 0, rope = rope } }",
  layers = "{ \"swa\" }" }, "multiple of the scale's block", "given 96", "multiples of 64")
change("a block not a multiple of a ratio", { csa = "ratio = 48" }, "field \"ratio\"",
  "given 48 with block 128")
change("a group of one token", { csa = "ratio = 1" }, "field \"ratio\"", "given 1")
change("overlap without a ratio",
  { types = "{ swa = kv.layer_type { latent, ratio = 0, rope = rope, overlap = true } }",
  layers = "{ \"swa\" }" }, "field \"overlap\": needs a ratio")
change("an indexer narrower than RoPE", { indexer = "heads = 4, dim = 32, topk = 8" }, "field \"dim\"",
  "at least 64")
change("a window beyond every position", { latent = parts.latent:gsub("16", "8192", 1) ,
  types = "{ swa = kv.layer_type { latent, ratio = 0, rope = rope } }", layers = "{ \"swa\" }" },
    "max_positions")
change("a running softmax with drafts", { model = "online = true, drafts = 1," }, "field \"online\"")
change("packed lists of rings", { model = 'packed_lists = true, window_mode = "ring",' },
  "field \"packed_lists\": needs window blocks", "or window_mode = \"paged\"")
change("a checkpoint inside a block", { block = "block = 256,", model = "checkpoint = 384," },
  "field \"checkpoint\"", "multiples of 256")

-- ---- types and layers ----

change("empty types", { types = "{}" }, "field \"types\"", "an empty table")
change("a layer naming no type", { layers = "{ \"swa\", \"csaa\" }" },
  "field \"layers\": names no layer type",
  "did you mean \"csa\"?", "allowed csa, swa")
change("a type that is no layer type", { types = "{ swa = { ratio = 0 } }", layers = "{ \"swa\" }" },
  "layer type \"swa\"", "kv.layer_type")
change("a type with a bad name",
  { types = "{ [\"S W\"] = kv.layer_type { latent, ratio = 0, rope = rope } }",
  layers = "{ \"S W\" }" }, "must be an identifier")
change("types as a list", { types = "{ kv.layer_type { latent, ratio = 0, rope = rope } }",
  layers = "{ \"swa\" }" }, "field \"types\": a layer type's name must be an identifier; given 1")
change("a type called common", { types = "{ common = kv.layer_type { latent, ratio = 0, rope = rope } }",
  layers = "{ \"common\" }" }, "taken")

change("a layer that is a number", { layers = "{ \"swa\", 4 }" }, "field \"layers\"", "given 4")
change("a group that holds itself", { head = "local g = kv.of(\"swa\", 1)\ng[2] = g\ng[3] = g",
  layers = "{ g }" }, "field \"layers\": has too many entries", "4096 layers")
change("groups of groups of groups", { head = "local g = kv.of(kv.of(kv.of(\"swa\", 90), 90), 90)",
  layers = "{ g }" }, "has too many entries")
change("too many layers", { layers = "{ kv.of(\"swa\", 4097) }" }, "kv.of: the count", "given 4097",
  "0 to 4096")

-- ---- names that the header cannot have ----

for _, name in ipairs { "stddef", "string", "kvforge", "cuda" } do
  change("a model called " .. name, { block = ("name = %q,"):format(name) }, "dir/bad.lua:5: model: field \"name\"",
    "another C header", "given \"" .. name .. "\"")
end
local function named(first, second)
  return { types = ([[{ %s = kv.layer_type { latent, ratio = 0, rope = rope },
    %s = kv.layer_type { latent, rope = rope, ratio = 4, indexer = kv.indexer { heads = 4, dim = 64, topk = 8 } } }]])
    :format(first, second), layers = ("{ %q, %q }"):format(first, second) }
end
change("a type called window", named("window", "a"), "dir/bad.lua:7: layer type \"window\"",
  "a second M_WINDOW_BLOCK_BYTES")
change("a type called draft", named("draft", "a"), "dir/bad.lua:7: layer type \"draft\"",
  "a second M_DRAFT_LAYERS")
change("types that differ by a place's name", named("a_index", "a"), "layer type \"a_index\"",
  "a second M_A_INDEX_ROW_BYTES")
change("or by the word draft", named("a_draft", "a"), "layer type \"a_draft\"", "a second M_A_DRAFT_LAYERS")
tap.is(#errors_of(spec_text(named("a_b", "a"))), 0, "other names may begin alike")
tap.is(#errors_of(spec_text(named("windows", "stddef"))), 0, "and types be called as headers are")

-- ---- several errors in one file ----

local several = errors_of [[
local kv = require "kvforge"
local latent = {
  head_dim = 576,
  rope_dim = 63, window = 16, format = "fp9" }
return kv.model {
  name = "x",
  heads = 0,
  max_positions = 4096,
  types = {
    a = kv.layer_type { latent, ratio = 0, rope = kv.rope { theta = -1 } },
    b = kv.layer_type {
      latent,
      ratio = 7,
      rope = 5,
    },
  },
  layers = { "a", kv.of("c", 2), kv.of("b", -1) },
}
]]
local want = { "bad.lua:3: layer type \"a\": field \"head_dim\"", "bad.lua:3: layer type \"b\"",
  "bad.lua:4: layer type \"a\": field \"rope_dim\"", "bad.lua:4: layer type \"a\": field \"format\"",
  "bad.lua:7: model: field \"heads\"", "bad.lua:10: layer type \"a\": rope: field \"theta\"",
  "bad.lua:13: layer type \"b\": field \"ratio\"", "bad.lua:14: layer type \"b\": field \"rope\"",
  "bad.lua:17: kv.of", "bad.lua:17: model: field \"layers\"" }
local all, missing = table.concat(several, "\n"), {}
for _, text in ipairs(want) do
  if not all:find(text, 1, true) then missing[#missing + 1] = text end
end
if not tap.is(#missing, 0, "all errors of a file are reported in one run, each with its line") then
  tap.note(all .. "\nmissing:\n" .. table.concat(missing, "\n"))
end
if not tap.is(#several, 12, "and nothing else") then tap.note(all) end

tap.done()
