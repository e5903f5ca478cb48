#!/usr/bin/env lua5.4
-- `kvforge explain` and `kvforge help spec`: complete, and the same as the model and the field table.
package.path = "lua/?.lua;tests/?.lua;" .. package.path
local tap = require "tap"
local explain = require "kvforge.explain"
local fields = require "kvforge.fields"
local help = require "kvforge.help"
local json = require "kvforge.json"
local load_spec = require "kvforge.load"

local spec = [[
local kv = require "kvforge"
local latent = { head_dim = 512, rope_dim = 64, window = 128, format = "fp8_ds_mla" }
return kv.model {
  name = "two", heads = 64, max_positions = 1048576, window_mode = "paged", page_align = 576,
  types = {
    swa = kv.layer_type { latent, ratio = 0, rope = kv.rope { theta = 10000 } },
    csa = kv.layer_type { latent, ratio = 4, overlap = true,
      rope = kv.yarn { theta = 160000, factor = 16, original = 65536 },
      indexer = kv.indexer { heads = 64, dim = 128, topk = 512 } },
  },
  layers = { kv.of("swa", 2), kv.of("csa", 3) },
  draft_layers = { "swa" },
}]]
local M, errors = load_spec(spec, "@two.lua")
if not M then error(table.concat(errors, "\n")) end

tap.plan(17 + #fields.list)

local text = explain(M)
tap.contains(text, "layer type csa: 3 layers, 0 draft layers", "layers of a type")
tap.contains(text, "head_dim 512 = 448 nope + 64 rope, window 128, ring 128, format fp8_ds_mla", "geometry")
tap.contains(text, "ratio 4 with overlap: 32 entries a block; tail ring of 8 rows", "compression")
tap.contains(text, "theta 160000, YaRN factor 16, original 65536, beta_fast 32, beta_slow 1", "rope")
tap.contains(text, "window rows: a page of 128 for one window block; 584 bytes a row, 74880 a page",
  "a place")
tap.contains(text, "swa_rows  scale  ue8m0      7   73728       8", "a field with its offset and stride")
tap.contains(text, "index_rows  scale  f32       1    4096       4", "an index field")
tap.contains(text, "tail_kb       f32   8 x 512     0  16384", "a state array")
local total = text:match "\n  all layers +(%d+ +%d+ +%d+ +%d+)\n"
-- Three CSA layers and three of windows; tails are four arrays of 8 rows, main and indexer, and two lengths.
tap.is(total and (total:gsub(" +", " ")), ("6 %d %d %d"):format(3 * (19008 + 4608), 6 * 74880,
  3 * (4 * 8 * 512 * 4 + 4 * 8 * 128 * 4 + 2 * 4)), "what all layers take")
tap.contains(text, "one token of context: 537 bytes", "3 * (584 + 132) / 4 bytes a token")
tap.contains(text, "a chunk of", "the arena")
tap.ok(not text:find " \n", "no trailing space")

local root = json.decode(explain(M, { json = true }))
tap.is(root.context_bytes, 537, "as JSON")
tap.is(root.types[1].places[2].planes[1].page_bytes, 19008, "with the places")
tap.is(root.arena.n, M.arena.n, "and the arena")

local manual = help()
for _, field in ipairs(fields.list) do
  tap.contains(manual, "\n  " .. field.name .. "\n", "help names " .. field.level .. " " .. field.name)
end
local longest = 0
for line in manual:gmatch "[^\n]+" do longest = math.max(longest, #line) end
tap.ok(longest <= 100, "help fits 100 columns")
local example = manual:match("\n(  local kv.-\n  }\n)")
tap.ok(example and load_spec(example, "@help"), "the example in it is a good spec")
tap.done()
