#!/usr/bin/env lua5.4
-- Random damage to good specs and configs: each ends in a model or in errors that name the file, never
-- in a raised error, a hang, or a changed state. Seed and count: spec_fuzz_test.lua [SEED [COUNT]].
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local explain = require "kvforge.explain"
local header = require "kvforge.header"
local import = require "kvforge.import"
local json = require "kvforge.json"
local load_spec = require "kvforge.load"
local manifest = require "kvforge.manifest"

local seed, count = tonumber(arg[1] or 1), tonumber(arg[2] or 1500)

local state = seed * 2654435761 % 4294967296
local function random(n)
  state = (state * 6364136223846793005 + 1442695040888963407)
  return (state >> 33) % n + 1
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

local examples = {
  read "examples/deepseek-v4-flash.lua", read "examples/deepseek-v4-pro.lua", read "examples/tiny.lua",
}

-- What damage is made of: values at and beyond every edge, names, and pieces of hostile code.
local pieces = {
  "0", "-1", "1", "2", "3", "4", "7", "16", "48", "63", "64", "128", "256", "512", "576", "1024", "4096",
  "1 << 31", "1 << 62", "1 << 63", "0.5", "1e300", "0/0", "1/0", "-1/0", "math.mininteger", "nil",
  "true", "false", "{}", "{ 1 }", "\"\"", "\"swa\"", "\"bf16\"", "\"fp8_ds_mla\"", "\"fp8_two_plane\"",
  "\"fp4_index\"", "\"paged\"", "\"sm_80\"", "\"x\\0y\"", "\"\\255\"", "kv", "kv.of", "kv.rope", "latent",
  "kv.model", "kv.of(\"swa\", 3)", "kv.rope { theta = 5 }", "kv.indexer {}", "kv.layer_type {}", "...",
  "overlap", "ratio", "online = true", "page_align = 576", "drafts = 3", "block = 256", "=", ",", "{", "}",
  "(", ")", "do", "end", "return", "function() end", "#", "..", "--", "[[", "goto x", "while true do end",
}

-- Cut the text at word boundaries and damage one to four of the places.
local function damaged(text)
  for _ = 1, random(4) do
    local words = {}
    for at, word, stop in text:gmatch "()([%w_\"%.%-]+)()" do
      words[#words + 1] = { at, stop, word }
    end
    if #words < 2 then return text end
    local pick, other = words[random(#words)], words[random(#words)]
    local kind = random(6)
    local new = kind <= 3 and pieces[random(#pieces)] or kind == 4 and "" or kind == 5 and other[3]
      or pick[3] .. " " .. pieces[random(#pieces)]
    text = text:sub(1, pick[1] - 1) .. new .. text:sub(pick[2])
  end
  return text
end

-- Everything that is made from a model works too.
local function use(M)
  local text = explain(M)
  assert(json.decode(explain(M, { json = true })))
  assert(json.decode((manifest(M, { llvm = "", version = "", modules = {},
    sha256 = function() return "" end }))))
  assert(#text > 0 and #header(M, {}) > 0)
  for _, T in ipairs(M.types) do
    for _, place in ipairs(T.places) do
      assert(place.page_bytes >= place.rows * place.row_bytes and place.rows > 0)
      for _, plane in ipairs(place.planes) do assert(plane.page_bytes % plane.align == 0) end
    end
  end
end

tap.plan(5)
local loaded, first_bad = 0, nil
for i = 1, count do
  local text = damaged(examples[random(#examples)])
  local ok, M, errors = pcall(load_spec, text, "@f.lua")
  local good = ok and (M or #errors > 0)
  if ok and M then
    loaded = loaded + 1
    ok, errors = pcall(use, M)
    good = ok
  elseif ok then
    for _, message in ipairs(errors) do good = good and message:find "^f.lua:%d*" ~= nil end
  end
  if not good and not first_bad then
    first_bad = ("input %d: %s\n%s"):format(i, tostring(ok and table.concat(errors,
      "\n") or errors or M), text)
  end
end
tap.ok(not first_bad, ("%d damaged specs end in a model or in errors"):format(count))
if first_bad then tap.note(first_bad) end
tap.ok(loaded > count // 20, "a share of them still loads (" .. loaded .. ")")
tap.ok(debug.gethook() == nil and collectgarbage "isrunning" and ("x"):rep(2) == "xx",
  "nothing is left behind")

local config = json.encode {
  model_type = "deepseek_v4", num_hidden_layers = 5, num_attention_heads = 16, num_key_value_heads = 1,
  max_position_embeddings = 65536, rms_norm_eps = 1e-6, rope_theta = 10000, qk_rope_head_dim = 64,
  head_dim = 512, compress_ratios = { 0, 4, 128, 4, 128, 0 }, sliding_window = 128,
  compress_rope_theta = 160000, rope_scaling = { type = "yarn", factor = 16,
  original_max_position_embeddings = 65536, beta_fast = 32, beta_slow = 1 }, index_n_heads = 64,
  index_head_dim = 128, index_topk = 512, num_nextn_predict_layers = 1, torch_dtype = "bfloat16",
}
pieces = { "null", "0", "-1", "1.5", "1e400", "\"\"", "{}", "[]", "[[[", "}", ",", ":", "true", "\"a\"",
  "4",
  "2", "16", "128", "99999999999999999999", "\"\\ud800\"", "\"yarn\"", "\"model_type\"" }
first_bad, loaded = nil, 0
for i = 1, count do
  local text = damaged(config)
  local ok, spec, errors = pcall(import, text, "@c.json")
  if ok and spec then
    loaded = loaded + 1
    ok = load_spec(spec, "@s.lua") ~= nil
  elseif ok then
    ok = #errors > 0
  end
  if not ok and not first_bad then first_bad = ("input %d: %s\n%s"):format(i, tostring(spec), text) end
end
tap.ok(not first_bad, ("%d damaged configs end in a good spec or in errors"):format(count))
if first_bad then tap.note(first_bad) end
tap.ok(loaded > count // 100, "a share of them still imports (" .. loaded .. ")")
tap.done()
