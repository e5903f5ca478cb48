#!/usr/bin/env lua5.4
-- Importing a published config: the same geometry as the example; what cannot be taken over is named.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local import = require "kvforge.import"
local json = require "kvforge.json"
local load_spec = require "kvforge.load"
local objects = require "kvforge.objects"

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end

-- A published config's attention fields, with changes; json.null removes one.
local function config(changes)
  local c = {
    architectures = { "DeepseekV4ForCausalLM" }, model_type = "deepseek_v4", hidden_size = 512,
    num_hidden_layers = 5, num_attention_heads = 16, num_key_value_heads = 1,
    max_position_embeddings = 65536, rms_norm_eps = 1e-6, rope_theta = 10000,
    qk_rope_head_dim = 64, head_dim = 512, compress_ratios = { 0, 4, 128, 4, 128, 0 },
    sliding_window = 128, compress_rope_theta = 160000,
    rope_scaling = { type = "yarn", factor = 16, original_max_position_embeddings = 65536,
      beta_fast = 32, beta_slow = 1 },
    index_n_heads = 64, index_head_dim = 128, index_topk = 512, num_nextn_predict_layers = 1,
    torch_dtype = "bfloat16",
  }
  for name, value in pairs(changes or {}) do c[name] = value end
  for name, value in pairs(changes or {}) do
    if value == json.null then c[name] = nil end
  end
  return json.encode(c)
end

local function model(changes, flags)
  local text, errors = import(config(changes), "@c.json", flags)
  if not text then return nil, table.concat(errors, "\n") end
  return assert(load_spec(text, "@c.lua")), text
end

local function type_of(M, name)
  for _, T in ipairs(M.types) do
    if T.name == name then return T end
  end
end

local function refused(name, text, ...)
  local got, errors = import(text, "@dir/c.json")
  local all = got and "accepted" or table.concat(errors, "\n")
  local good = not got
  for _, want in ipairs { ... } do good = good and all:find(want, 1, true) ~= nil end
  if not tap.ok(good, name) then tap.note(all) end
end

local function refuses(name, changes, ...)
  refused(name, config(changes), ...)
end

tap.plan(56)

-- ---- the real one ----

local published = read "../shared/configs/deepseek-v4-flash.config.json"
if not published then
  tap.skip(3, "the published configuration is not here")
else
  local text, notes = import(published, "@deepseek-v4-flash.config.json", { name = "deepseek-v4-flash" })
  tap.ok(text, "Flash imports")
  tap.is(#notes, 0, "and every field of it is known")
  local path = "examples/deepseek-v4-flash.lua"
  local example, M = load_spec(read(path), "@" .. path), load_spec(text, "@imported.lua")
  tap.is(json.encode(objects.model(M)), json.encode(objects.model(example)),
    "to the same resolved model as the example")
end

-- ---- other members ----

local M, text = model()
tap.is(table.concat(M.layers, " "), "swa csa hca csa hca", "layers in order")
tap.is(table.concat(M.draft_layers, " "), "swa", "entries beyond the layers are draft layers")
tap.is(type_of(M, "csa").overlap, true, "ratio 4 overlaps")
tap.is(type_of(M, "hca").overlap, false, "ratio 128 does not")
tap.is(type_of(M, "swa").rope.theta .. " " .. type_of(M, "hca").rope.theta, "10000 160000", "two thetas")
tap.is(type_of(M, "hca").rope.factor, 16, "YaRN where compressed")
tap.is(type_of(M, "swa").rope.factor, nil, "and nowhere else")
tap.contains(text, "kv.alternate(2, \"csa\", \"hca\")", "alternation is written as such")
tap.is(M.model.name, "deepseek-v4", "a name of the family's")

M = model { compress_ratios = { 128, 128, 4, 128, 4, 0 } }
tap.is(table.concat(M.layers, " "), "hca hca csa hca csa", "the first layers may be compressed (Pro)")
tap.is(type_of(M, "swa").layers .. " " .. type_of(M, "swa").draft_layers, "0 1",
  "window layers only as drafts")
M = model({ sliding_window = 8, head_dim = 64, qk_rope_head_dim = 16, index_head_dim = 32 },
  { format = "fp8_token" })
tap.is(M and type_of(M, "csa").bytes.row, 48 + 32 + 4, "a shrunken model imports")
refuses("rows a format cannot hold are refused by its name",
  { head_dim = 64, qk_rope_head_dim = 16, index_head_dim = 32 }, "fp8_ds_mla", "multiple")
M = model({ compress_ratios = { 8, 16, 4, 128, 0 }, num_nextn_predict_layers = 0 })
tap.is(M and M.types[1].name .. M.types[2].name .. M.types[4].name, "c16c8hca", "other ratios import")
M = model { compress_ratios = { 0, 4, 256, 4, 256, 0 } }
tap.is(M and M.model.block, 256, "a ratio that needs a block of 256 gets one")
M = model { rope_scaling = json.null }
tap.is(M and type_of(M, "hca").rope.factor, nil, "without rope_scaling there is no YaRN")
M = model { compress_ratios = { 0, 0, 0, 0, 0 }, num_nextn_predict_layers = 0, index_n_heads = json.null,
  index_head_dim = json.null, index_topk = json.null, compress_rope_theta = json.null }
tap.is(M and #M.types, 1, "a model without compressed layers needs no fields for them")
M = model({}, { name = "x", format = "bf16", index_format = "fp4_index", window_mode = "paged",
  targets = { "sm_80", "sm_90" } })
tap.is(M and M.model.name .. M.model.window_mode .. #M.model.targets .. type_of(M, "csa").format
  .. type_of(M, "csa").indexer.format, "xpaged2bf16fp4_index", "flags choose name, formats, mode, targets")

local _, notes = import(config { compress_ratios = { 0, 4, 128, 4, 128, 0, 0, 0 } }, "@c.json")
tap.contains(notes[1], "3 draft layers", "more draft entries than announced are noted")
_, notes = import(config { speculative_thing = 1, windows = 3 }, "@c.json")
tap.is(#notes, 2, "unknown fields are named")
tap.contains(notes[1], "\"speculative_thing\" is not known", "each with its name")

-- ---- refused ----

refused("no JSON", "{ \"a\": 1,\n\"b\" 2 }", "dir/c.json: line 2:", "expected ':'")
refused("a list", "[1, 2]", "must be a JSON object")
refused("nothing", "", "dir/c.json: line 1:", "found the end")
refused("a duplicate key", "{\"a\": 1,\n \"a\": 2}", "line 2:", "appears twice")
refused("deep nesting", ("["):rep(100000), "64 levels")
refused("a huge number", "{\"head_dim\": 1e999}", "too large")
refuses("another family", { model_type = "llama" }, "field \"model_type\": is of another family",
  "\"llama\"")
refuses("more than one latent row", { num_key_value_heads = 8 }, "num_key_value_heads")
refuses("missing fields, all at once", { head_dim = json.null, sliding_window = json.null,
  index_topk = json.null },
  "\"head_dim\": is missing", "\"sliding_window\": is missing", "\"index_topk\": is missing")
refuses("a model of one kind of layer without its theta", { compress_ratios = { 4, 4, 4, 4, 4 },
  num_nextn_predict_layers = 0, compress_rope_theta = json.null }, "\"compress_rope_theta\": is missing")
refuses("window layers without theirs", { rope_theta = json.null }, "\"rope_theta\": is missing")
refuses("too few ratios", { compress_ratios = { 0, 4 } }, "compress_ratios", "2 entries", "says 5")
refuses("draft layers without ratios", { num_hidden_layers = 6 }, "num_nextn_predict_layers")
refuses("a ratio of 1", { compress_ratios = { 0, 1, 4, 4, 4, 0 } }, "entry 2 is no group")
refuses("a ratio that no block has", { compress_ratios = { 0, 4, 48, 4, 48, 0 } }, "field \"ratio\"",
  "given 48")
refuses("rows read from other layers", { kv_source_layer_ids = { 2, 8 } }, "another layer's rows")
refuses("head_dim 320", { head_dim = 320 }, "power of two", "given 320")
refuses("rope_dim beyond head_dim", { qk_rope_head_dim = 512 }, "dir/c.json: layer type", "rope_dim")
refuses("values of another size", { v_head_dim = 256 }, "v_head_dim", "contradicts head_dim")
refuses("a nope of another size", { qk_nope_head_dim = 512 }, "qk_nope_head_dim", "given 512, allowed 448")
refuses("another scaling", { rope_scaling = { type = "linear", factor = 2 } }, "field \"type\"",
  "\"linear\"",
  "\"original_max_position_embeddings\": is missing")
refuses("a scaling factor nobody knows", { rope_scaling = { type = "yarn", factor = 16, mscale = 1,
  original_max_position_embeddings = 65536 } }, "field \"mscale\"")
refuses("a type latents cannot have", { torch_dtype = "float16" }, "torch_dtype", "float16")
refuses("a fractional window", { sliding_window = 1.5 }, "c.json:",
  "field \"sliding_window\": must be whole")
refuses("an architecture of another family", { architectures = { "LlamaForCausalLM" } },
  "field \"architectures\": contradicts model_type; given \"LlamaForCausalLM\"")
refuses("an architecture that is no name", { architectures = { {} } }, "\"architectures\"")
refuses("two types of latents", { dtype = "float32" },
  "field \"dtype\": contradicts torch_dtype; given \"float32\", allowed \"bfloat16\"")
refuses("two scalings", { rope_parameters = { rope_type = "yarn", factor = 4,
  original_max_position_embeddings = 65536 } }, "field \"rope_parameters\": contradicts rope_scaling")
local null = import((config { rope_parameters = { type = "yarn", factor = 4,
  original_max_position_embeddings = 65536 } }:gsub('"rope_scaling": %b{}', '"rope_scaling": null')), "@c.json")
tap.contains(null or "", "factor = 4", "a rope_scaling of null leaves it to rope_parameters")
null = import((config { dtype = "float32" }:gsub('"torch_dtype": "bfloat16"', '"torch_dtype": null')), "@c.json")
tap.contains(null or "", 'input_dtype = "f32"', "and a torch_dtype of null to dtype")
tap.ok(model { dtype = "bfloat16", architectures = json.null }, "what is said twice may agree")
local ok, errors = import(config(), "@c.json", { format = "fp5", targets = { "sm_1" } })
tap.ok(not ok and errors[1]:find("--format", 1, true), "a wrong flag is named")
tap.done()
